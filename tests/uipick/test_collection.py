"""Tags, arguments and constraints choose among generators, and the kernels that each makes."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflex.errors import ModelSyntaxError, TagError, UnsupportedKernelError
from perflex.features import kernel_feature_values
from sample_kernels import matmul
from uipick import (
    ALL_GENERATORS,
    Argument,
    Constraint,
    Criterion,
    Generator,
    KernelCollection,
    MatchCondition,
    tag_accesses,
)
from uipick._collection import parse_tags
from uipick._generator import multiples_of

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z_0-9]*", fullmatch=True)
VALUES = st.from_regex(r"[A-Za-z_0-9.+-]+", fullmatch=True)
CATALOG = KernelCollection(ALL_GENERATORS)


def _build(**values):
    """First line.

    More.
    """
    return ["kernel", *values.items()]


def fake(name, words, *arguments, **more):
    size = Argument("n", "int", "size", multiples_of(2), (2, 4))
    given = {"name": name, "tags": frozenset({name, *words}), "arguments": (*arguments, size), "build": _build}
    return Generator(**{**given, "size_arguments": ("n",), **more})


KIND = Argument("kind", "str", "kind", ("x", "y"))
FIRST = fake("first", {"common", "one"}, KIND)
SECOND = fake("second", {"common", "two"}, Argument("wide", "bool", "wide", (True, False)))
THIRD = fake("third", {"common"}, Argument("kind", "str", "kind", ("y", "z")))
LIMIT = Constraint("kind y needs n of at least 4", lambda a: a["kind"] == "x" or a["n"] >= 4)
LIMITED = fake("limited", set(), KIND, constraints=(LIMIT,))
IMPOSSIBLE = fake("none", set(), constraints=(Constraint("never", lambda _: False),))
STATED = fake("stated", set(), KIND, constraints=(Constraint("kind == 'x' or 8 % (n - 2) == 0"),))
BOTH = (FIRST, SECOND)


def made(tags, generators=BOTH):
    return [kernel.name for kernel in KernelCollection(generators).generate_kernels(tags.split())]


# Tags as they are read.


@given(st.sets(NAMES, max_size=4), st.dictionaries(NAMES, st.lists(VALUES, min_size=1, unique=True), max_size=4))
def test_what_is_written_is_read(generator, variant):
    found = parse_tags([*generator, *(f"{name} : {', '.join(values)}" for name, values in variant.items())])
    assert found.generator == generator
    assert found.variant == {name: tuple(values) for name, values in variant.items()}


@pytest.mark.parametrize("tag", ["", ":", "n:", ":5", "n:1,,2", "n:1,", "a:b:c", "two words", "n:1 2", "9n:1", "n:;"])
def test_malformed_tag_is_shown(tag):
    with pytest.raises(TagError, match="malformed") as caught:
        parse_tags(["matmul_sq", tag])
    assert repr(tag) in str(caught.value)
    assert caught.value.tag == tag


@pytest.mark.parametrize(("tags", "words"), [
    (["n:1", "n:2"], "argument 'n' is given twice"), (["a", "a"], "generator tag 'a' is given twice"),
    (["n:1,2,1"], "value '1' twice"), ("matmul_sq", "not one string"), ([7], "7 is not a string"),
])  # fmt: skip
def test_other_faults_of_tags_are_named(tags, words):
    with pytest.raises(TagError, match=words):
        parse_tags(tags)


# Arguments and generators.


@pytest.mark.parametrize(("criterion", "text", "allowed"), [
    (multiples_of(16), "positive multiples of 16", [16, 32, 48]),
    (multiples_of(24), "positive multiples of 24", [24, 48]),
    (multiples_of(1), "integers of at least 1", list(range(1, 50))),
])  # fmt: skip
def test_multiples_are_described_and_tested(criterion, text, allowed):
    assert criterion.description == text
    assert [n for n in range(-16, 50) if criterion.test(n)] == allowed


@pytest.mark.parametrize(("kind", "allowed", "default", "text", "value"), [
    ("int", multiples_of(16), (16,), "32", 32), ("int", multiples_of(16), (16,), "33", None),
    ("int", multiples_of(16), (16,), "1e3", None), ("int", Criterion("all", lambda _: True), (1,), "-5", -5),
    ("int", multiples_of(1), (1,), "--5", None), ("int", (1, 2), (), "3", None),
    ("bool", (True, False), (), "True", True), ("bool", (True, False), (), "true", None),
    ("bool", (True, False), (), "1", None), ("bool", (True,), (), "False", None),
    ("dtype", ("float32",), (), "float32", "float32"), ("dtype", ("float32",), (), "float16", None),
    ("str", Criterion("words in order", lambda text: text in "a_b_c"), ("a_b",), "b_c", "b_c"),
    ("str", Criterion("words in order", lambda text: text in "a_b_c"), ("a_b",), "c_b", None),
])  # fmt: skip
def test_reading_values(kind, allowed, default, text, value):
    found = Argument("x", kind, "test", allowed, default).read(text)
    assert found == value
    assert type(found) is type(value)


def test_values_of_arguments():
    argument = Argument("dtype", "dtype", "element type", ("float32", "float64"))
    assert (argument.values, argument.allowed_text) == (("float32", "float64"), "float32, float64")
    assert Argument("nvars", "int", "variables", (16, 32), (32,)).values == (32,)
    # True is no number.
    assert not Argument("n", "int", "size", multiples_of(1), (1,)).allows(value=True)
    assert not Argument("n", "int", "size", (1, 2)).allows(value=True)
    with pytest.raises(TagError, match="no default values"):
        Argument("n", "int", "size", multiples_of(1))
    with pytest.raises(TagError, match="default value 3 of argument 'n'"):
        Argument("n", "int", "size", multiples_of(2), (3,))


def test_kernels_of_one_variant_share_the_object_and_cannot_be_changed():
    first, second = (FIRST.generate({"kind": "x", "n": n}) for n in (4, 8))
    assert first.kernel is second.kernel is not FIRST.generate({"kind": "y", "n": 4}).kernel
    assert (first.kernel, first.sizes, second.sizes) == (["kernel", ("kind", "x")], {"n": 4}, {"n": 8})
    assert (first.name, first.generator, first.arguments) == ("first(kind=x, n=4)", "first", {"kind": "x", "n": 4})
    assert hash(first) != hash(second)
    assert first == FIRST.generate({"n": 4, "kind": "x"})
    assert fake("half", set(), sizes=lambda a: {"half": a["n"] // 2}).generate({"n": 8}).sizes == {"half": 4}
    assert (FIRST.summary, FIRST.description) == ("First line.", "First line.\n\nMore.")
    with pytest.raises(AttributeError):
        first.name = "other"
    with pytest.raises(AttributeError, match="immutable"):
        first.sizes["n"] = 5
    with pytest.raises(TagError, match="lacks its own name"):
        fake("mine", set(), tags=frozenset({"other"}))


@pytest.mark.parametrize(("arguments", "words"), [
    ({"kind": "x"}, "missing or unknown: n"),
    ({"kind": "x", "n": 4, "z": 1}, "missing or unknown: z"),
    ({"kind": "z", "n": 4}, "kind:z is not allowed in 'limited'; allowed: x, y"),
    ({"kind": "y", "n": 2}, "kind y needs n of at least 4"),
])  # fmt: skip
def test_wrong_arguments_are_named(arguments, words):
    with pytest.raises(TagError, match=words):
        LIMITED.generate(arguments)


def test_constraints_are_formulas_or_words_with_a_test():
    assert made("stated kind:x", [STATED]) == ["stated(kind=x, n=2)", "stated(kind=x, n=4)"]
    with pytest.raises(TagError, match=r"'stated' cannot make this kernel: kind == 'x' or 8 % \(n - 2\) == 0"):
        STATED.generate({"kind": "y", "n": 8})
    with pytest.raises(TagError, match=r"cannot be evaluated for kind:y, n:2: .*zero; guard it"):
        STATED.generate({"kind": "y", "n": 2})
    with pytest.raises(TagError, match="constraint 'm > 2' of 'wrong' names 'm'; there are kind, n"):
        fake("wrong", set(), KIND, constraints=(Constraint("m > 2"),))
    with pytest.raises(ModelSyntaxError, match="cannot read the constraint 'n is even, or'"):
        fake("wrong", set(), constraints=(Constraint("n is even, or"),))


# Which generators tags choose, and which kernels.


def test_conditions_equal_set_relations_for_all_small_sets():
    assert KernelCollection(BOTH).generator_match_cond is MatchCondition.SUPERSET
    universe = ("a", "b", "c")
    sets = [frozenset(u for u, used in zip(universe, bits, strict=True) if used) for bits in product((0, 1), repeat=3)]
    for own, given_tags in product(sets, sets):
        assert MatchCondition.IDENTICAL.holds(own, given_tags) == (own == given_tags)
        assert MatchCondition.SUBSET.holds(own, given_tags) == all(tag in given_tags for tag in own)
        assert MatchCondition.SUPERSET.holds(own, given_tags) == all(tag in own for tag in given_tags)
        assert MatchCondition.INTERSECT.holds(own, given_tags) == any(tag in given_tags for tag in own)


@pytest.mark.parametrize(("condition", "tags", "names"), [
    (MatchCondition.SUPERSET, "common one", ["first"]), (MatchCondition.SUPERSET, "", ["first", "second"]),
    (MatchCondition.IDENTICAL, "first common one", ["first"]),
    (MatchCondition.SUBSET, "first common one two", ["first"]),
    (MatchCondition.INTERSECT, "one two", ["first", "second"]), (MatchCondition.SUPERSET, "one two", None),
    (MatchCondition.IDENTICAL, "common", None), (MatchCondition.SUBSET, "common", None),
    (MatchCondition.INTERSECT, "", None),
])  # fmt: skip
def test_match_conditions(condition, tags, names):
    collection = KernelCollection(BOTH, condition)
    if names is None:
        with pytest.raises(TagError, match=f"under {condition.name}; they have .*first: common, first, one"):
            collection.matching_generators(tags.split())
    else:
        assert [generator.name for generator in collection.matching_generators(tags.split())] == names


@pytest.mark.parametrize(("generators", "tags", "names"), [
    (BOTH, "first", "first(kind=x, n=2), first(kind=x, n=4), first(kind=y, n=2), first(kind=y, n=4)"),
    (BOTH, "first kind:y n:6,8", "first(kind=y, n=6), first(kind=y, n=8)"),
    # A tag applies to those that have the argument, and to those that allow the value.
    (BOTH, "common kind:x n:2", "first(kind=x, n=2), second(wide=True, n=2), second(wide=False, n=2)"),
    ((FIRST, THIRD), "common kind:x,z n:2", "first(kind=x, n=2), third(kind=z, n=2)"),
    # Impossible combinations are left out.
    ((LIMITED,), "limited", "limited(kind=x, n=2), limited(kind=x, n=4), limited(kind=y, n=4)"),
])  # fmt: skip
def test_kernels_are_the_product_of_the_values(generators, tags, names):
    assert ", ".join(made(tags, generators)) == names


@pytest.mark.parametrize(("generators", "tags", "words"), [
    (ALL_GENERATORS, "matmul_sqr", "no generator has the tag 'matmul_sqr'; did you mean matmul_sq"),
    (BOTH, "zzzzzz", "there are common, first, one, second, two"),
    (BOTH, "first knd:x", r"no argument 'knd' in first; did you mean kind or n\? \(arguments: kind, n\)"),
    (BOTH, "first kind:z", "value 'z' is not allowed for argument 'kind'; allowed are first: x, y"),
    (BOTH, "first n:3", "value '3' is not allowed for argument 'n'; allowed are first: positive multiples of 2"),
    (BOTH, "first n:2,three", "value 'three' is not allowed"),
    ((LIMITED,), "limited kind:x,y n:2", r"no kernel can have kind:y .*limited: kind y needs n of at least 4"),
    ((IMPOSSIBLE,), "none", r"no combination .*none: never"),
])  # fmt: skip
def test_what_chooses_no_kernel_says_why(generators, tags, words):
    with pytest.raises(TagError, match=words):
        made(tags, generators)


MATMUL = ["matmul_sq", "dtype:float32", "lsize_0:16", "lsize_1:16", "groups_fit:True"]
MADD = [
    "flops_madd_pattern", "dtype:float32", "lsize_0:16", "lsize_1:16", "groups_fit:True", "lid_stride_0:1",
    "lid_stride_1:2048", "nelements:524288,786432,1048576,1310720", "m:1024,1152,1280,1408",
]  # fmt: skip


def test_the_paper_s_tags():
    kernels = CATALOG.generate_kernels([*MATMUL, "prefetch:True", "n:2048,2560,3072,3584"])
    assert [dict(k.sizes) for k in kernels] == [{"n": n} for n in (2048, 2560, 3072, 3584)]
    assert ({k.generator for k in kernels}, len({id(k.kernel) for k in kernels})) == ({"matmul_sq"}, 1)
    both = CATALOG.generate_kernels([*MATMUL, "n:2048,2560,3072,3584"])
    assert (len(both), len({id(k.kernel) for k in both})) == (8, 2)
    kernels = CATALOG.generate_kernels(MADD)
    assert (len(kernels), len({id(k.kernel) for k in kernels})) == (16, 1)
    assert {tuple(k.sizes) for k in kernels} == {("nelements", "m")}


def test_values_need_not_be_texts():
    given_values = CATALOG.generate_kernels(MATMUL, {"n": (2048, 2560)})
    assert [k.name for k in given_values] == [k.name for k in CATALOG.generate_kernels([*MATMUL, "n:2048,2560"])]
    with pytest.raises(TagError, match="argument 'n' is given twice"):
        CATALOG.generate_kernels([*MATMUL, "n:2048"], {"n": (2048,)})
    with pytest.raises(TagError, match="value -16 is not allowed for argument 'n'"):
        CATALOG.generate_kernels(MATMUL, {"n": (-16,)})


def test_every_generator_describes_itself_and_makes_unique_names():
    names = [g.name for g in ALL_GENERATORS]
    assert len(set(names)) == len(names)
    for generator in ALL_GENERATORS:
        assert generator.summary.endswith(".")
        assert "Source: " in generator.description
        assert all(a.meaning and a.allowed_text for a in generator.arguments)
        assert set(generator.size_arguments) <= set(generator.by_name)
        assert any(generator.violated(c) is None for c in generator.combinations({})), generator.name


def test_tags_of_accesses_survive_where_prefetching_dropped_them():
    names = ["f_mem_access_tag:bLD", "f_mem_access_tag:cST", "f_mem_access_global_load"]
    kernel = matmul(prefetch=True)
    assert kernel_feature_values(names[:1], kernel, {"n": 64}) == {names[0]: 0}
    tagged = tag_accesses(kernel, loads={"b": "bLD"}, stores={"c": "cST"})
    found = kernel_feature_values(names, tagged, {"n": 64})
    assert list(found.values()) == [64**3 / 16, 64**2, 2 * 64**3 / 16]
    with pytest.raises(UnsupportedKernelError, match=r"has no array 'd'; it has .*a, .*b, c"):
        tag_accesses(matmul(prefetch=False), loads={"d": "dLD"})
