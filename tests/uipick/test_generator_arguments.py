from __future__ import annotations

import pytest

from perflex.errors import TagError
from uipick import Argument, Constraint, Criterion, Generator
from uipick._generator import multiples_of


def test_multiples_of_is_described_and_tested():
    criterion = multiples_of(16)
    assert criterion.description == "positive multiples of 16"
    assert [n for n in range(-16, 50) if criterion.test(n)] == [16, 32, 48]
    assert multiples_of(1).description == "integers of at least 1"
    assert [n for n in range(-2, 4) if multiples_of(1).test(n)] == [1, 2, 3]
    later = multiples_of(8, minimum=24)
    assert later.description == "multiples of 8, at least 24"
    assert [n for n in range(50) if later.test(n)] == [24, 32, 40, 48]


def test_finite_values_are_the_default():
    argument = Argument("dtype", "dtype", "element type", ("float32", "float64"))
    assert argument.values == ("float32", "float64")
    assert argument.allowed_text == "float32, float64"


def test_stated_defaults_go_first():
    assert Argument("nvars", "int", "variables", (16, 32), (32,)).values == (32,)


@pytest.mark.parametrize(
    ("kind", "allowed", "default", "text", "value"),
    [
        ("int", multiples_of(16), (16,), "32", 32),
        ("int", multiples_of(16), (16,), "33", None),
        ("int", multiples_of(16), (16,), "1e3", None),
        ("int", Criterion("all", lambda _: True), (1,), "-5", -5),
        ("int", multiples_of(1), (1,), "--5", None),
        ("int", (1, 2), (), "3", None),
        ("bool", (True, False), (), "True", True),
        ("bool", (True, False), (), "true", None),
        ("bool", (True, False), (), "1", None),
        ("bool", (True,), (), "False", None),
        ("dtype", ("float32",), (), "float32", "float32"),
        ("dtype", ("float32",), (), "float16", None),
    ],
)
def test_reading_values(kind, allowed, default, text, value):
    found = Argument("x", kind, "test", allowed, default).read(text)
    assert found == value
    assert type(found) is type(value)


def test_words_may_be_allowed_by_a_test():
    argument = Argument("keep", "str", "test", Criterion("words in order", lambda text: text in "a_b_c"), ("a_b",))
    assert argument.read("b_c") == "b_c"
    assert argument.read("c_b") is None
    assert not argument.allows(1)


def test_true_is_no_number():
    assert not Argument("n", "int", "size", multiples_of(1), (1,)).allows(value=True)
    assert not Argument("n", "int", "size", (1, 2)).allows(value=True)


def test_an_argument_needs_defaults_that_are_allowed():
    with pytest.raises(TagError, match="no default values"):
        Argument("n", "int", "size", multiples_of(1))
    with pytest.raises(TagError, match="default value 3 of argument 'n'"):
        Argument("n", "int", "size", multiples_of(2), (3,))


def _generator(**changes):
    described = {
        "name": "fake",
        "tags": frozenset({"fake"}),
        "arguments": (Argument("k", "int", "kind", (1, 2)), Argument("n", "int", "size", multiples_of(1), (4, 8))),
        "build": _build,
        "size_arguments": ("n",),
        "constraints": (Constraint("n is at least k", lambda a: a["n"] >= a["k"]),),
    }
    return Generator(**{**described, **changes})


def _build(*, k):
    """First line.

    More.
    """
    return ["kernel", k]


def test_a_generator_has_its_name_among_its_tags():
    with pytest.raises(TagError, match="lacks its own name"):
        _generator(tags=frozenset({"other"}))


def test_kernels_of_one_variant_share_the_object():
    generator = _generator()
    first, second = (generator.generate({"k": 1, "n": n}) for n in (4, 8))
    assert first.kernel is second.kernel
    assert first.kernel is not generator.generate({"k": 2, "n": 4}).kernel
    assert first.kernel == ["kernel", 1]
    assert (first.sizes, second.sizes) == ({"n": 4}, {"n": 8})
    assert first.name == "fake(k=1, n=4)"
    assert first.generator == "fake"
    assert first.arguments == {"k": 1, "n": 4}
    assert hash(first) != hash(second)
    assert first == generator.generate({"n": 4, "k": 1})


def test_measurement_kernels_cannot_be_changed():
    kernel = _generator().generate({"k": 1, "n": 4})
    with pytest.raises(AttributeError):
        kernel.name = "other"
    with pytest.raises(AttributeError, match="immutable"):
        kernel.sizes["n"] = 5


def test_sizes_may_be_computed():
    generator = _generator(sizes=lambda a: {"half": a["n"] // 2})
    assert generator.generate({"k": 1, "n": 8}).sizes == {"half": 4}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"k": 1}, "missing or unknown: n"),
        ({"k": 1, "n": 4, "z": 1}, "missing or unknown: z"),
        ({"k": 3, "n": 4}, "k:3 is not allowed in 'fake'; allowed: 1, 2"),
        ({"k": 2, "n": 1}, "n is at least k"),
    ],
)
def test_wrong_arguments_are_named(arguments, words):
    with pytest.raises(TagError, match=words):
        _generator().generate(arguments)


def test_description_comes_from_the_build_function():
    generator = _generator()
    assert generator.summary == "First line."
    assert generator.description == "First line.\n\nMore."
