from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflex.errors import TagError
from uipick._collection import parse_tags

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z_0-9]*", fullmatch=True)
VALUES = st.from_regex(r"[A-Za-z_0-9.+-]+", fullmatch=True)


def test_takes_generator_and_variant_tags_apart():
    tags = parse_tags(["matmul_sq", "dtype:float32", "n:512,640", "other"])
    assert tags.generator == {"matmul_sq", "other"}
    assert tags.variant == {"dtype": ("float32",), "n": ("512", "640")}


def test_spaces_around_names_and_values_do_not_matter():
    assert parse_tags([" a ", "n : 1, 2 "]) == parse_tags(["a", "n:1,2"])


@given(st.sets(NAMES, max_size=4), st.dictionaries(NAMES, st.lists(VALUES, min_size=1, unique=True), max_size=4))
def test_what_is_written_is_read(generator, variant):
    tags = [*generator, *(f"{name}:{','.join(values)}" for name, values in variant.items())]
    found = parse_tags(tags)
    assert found.generator == generator
    assert found.variant == {name: tuple(values) for name, values in variant.items()}


@pytest.mark.parametrize("tag", ["", ":", "n:", ":5", "n:1,,2", "n:1,", "a:b:c", "two words", "n:1 2", "9n:1", "n:;"])
def test_malformed_tag_is_shown(tag):
    with pytest.raises(TagError, match="malformed") as caught:
        parse_tags(["matmul_sq", tag])
    assert repr(tag) in str(caught.value)
    assert caught.value.tag == tag


@pytest.mark.parametrize(
    ("tags", "words"),
    [
        (["n:1", "n:2"], "argument 'n' is given twice"),
        (["a", "a"], "generator tag 'a' is given twice"),
        (["n:1,2,1"], "value '1' twice"),
    ],
)
def test_duplicates_are_named(tags, words):
    with pytest.raises(TagError, match=words):
        parse_tags(tags)


def test_a_name_may_be_both_generator_tag_and_argument():
    assert parse_tags(["n", "n:1"]).generator == {"n"}


def test_one_string_is_not_a_list_of_tags():
    with pytest.raises(TagError, match="not one string"):
        parse_tags("matmul_sq")


def test_a_tag_that_is_no_string():
    with pytest.raises(TagError, match="7 is not a string"):
        parse_tags([7])
