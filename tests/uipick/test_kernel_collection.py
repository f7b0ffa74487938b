from __future__ import annotations

from itertools import product

import pytest

from perflex.errors import TagError
from uipick import ALL_GENERATORS, Argument, Constraint, Generator, KernelCollection, MatchCondition
from uipick._generator import multiples_of

PAPER_MATMUL = ["matmul_sq", "dtype:float32", "prefetch:True", "lsize_0:16", "lsize_1:16", "groups_fit:True"]
PAPER_MADD = [
    "flops_madd_pattern",
    "dtype:float32",
    "lsize_0:16",
    "lsize_1:16",
    "groups_fit:True",
    "lid_stride_0:1",
    "lid_stride_1:2048",
    "nelements:524288,786432,1048576,1310720",
    "m:1024,1152,1280,1408",
]


def _fake(name, tags, *arguments, constraints=()):
    return Generator(
        name=name,
        tags=frozenset({name, *tags}),
        arguments=(*arguments, Argument("n", "int", "size", multiples_of(2), (2, 4))),
        build=lambda **values: (name, tuple(values.items())),
        size_arguments=("n",),
        constraints=constraints,
    )


KIND = Argument("kind", "str", "kind", ("x", "y"))
FIRST = _fake("first", {"common", "one"}, KIND)
SECOND = _fake("second", {"common", "two"}, Argument("wide", "bool", "wide", (True, False)))
BOTH = (FIRST, SECOND)


def _matching(condition, *tags):
    return [g.name for g in KernelCollection(BOTH, condition).matching_generators(tags)]


def test_superset_is_the_default():
    assert KernelCollection(BOTH).generator_match_cond is MatchCondition.SUPERSET


@pytest.mark.parametrize(
    ("condition", "tags", "names"),
    [
        (MatchCondition.SUPERSET, ("common",), ["first", "second"]),
        (MatchCondition.SUPERSET, ("common", "one"), ["first"]),
        (MatchCondition.SUPERSET, (), ["first", "second"]),
        (MatchCondition.IDENTICAL, ("first", "common", "one"), ["first"]),
        (MatchCondition.SUBSET, ("first", "common", "one", "two"), ["first"]),
        (MatchCondition.SUBSET, ("first", "common", "one", "two", "second"), ["first", "second"]),
        (MatchCondition.INTERSECT, ("one", "two"), ["first", "second"]),
        (MatchCondition.INTERSECT, ("two",), ["second"]),
    ],
)
def test_match_conditions(condition, tags, names):
    assert _matching(condition, *tags) == names


@pytest.mark.parametrize(
    ("condition", "tags"),
    [
        (MatchCondition.SUPERSET, ("one", "two")),
        (MatchCondition.IDENTICAL, ("common",)),
        (MatchCondition.SUBSET, ("common",)),
        (MatchCondition.INTERSECT, ()),
    ],
)
def test_no_generator_left_says_which_tags_they_have(condition, tags):
    with pytest.raises(TagError, match=f"under {condition.name}; they have") as caught:
        _matching(condition, *tags)
    assert "first: common, first, one" in str(caught.value)


def test_conditions_equal_set_relations_for_all_small_sets():
    universe = ("a", "b", "c")
    sets = [frozenset(u for u, used in zip(universe, bits, strict=True) if used) for bits in product((0, 1), repeat=3)]
    for own, given in product(sets, sets):
        assert MatchCondition.IDENTICAL.holds(own, given) == (own == given)
        assert MatchCondition.SUBSET.holds(own, given) == all(tag in given for tag in own)
        assert MatchCondition.SUPERSET.holds(own, given) == all(tag in own for tag in given)
        assert MatchCondition.INTERSECT.holds(own, given) == any(tag in given for tag in own)


def test_unknown_generator_tag_suggests_the_nearest():
    with pytest.raises(TagError, match="no generator has the tag 'matmul_sqr'; did you mean matmul_sq"):
        KernelCollection(ALL_GENERATORS).generate_kernels(["matmul_sqr"])
    with pytest.raises(TagError, match="there are common, first, one, second, two"):
        KernelCollection(BOTH).generate_kernels(["zzzzzz"])


def test_cartesian_product_with_defaults():
    kernels = KernelCollection(BOTH).generate_kernels(["first"])
    assert [k.name for k in kernels] == [f"first(kind={kind}, n={n})" for kind in "xy" for n in (2, 4)]


def test_variant_tag_reduces_the_values():
    kernels = KernelCollection(BOTH).generate_kernels(["first", "kind:y", "n:6,8,10"])
    assert [k.name for k in kernels] == [f"first(kind=y, n={n})" for n in (6, 8, 10)]


def test_variant_tag_applies_to_those_that_have_the_argument():
    kernels = KernelCollection(BOTH).generate_kernels(["common", "kind:x", "n:2"])
    assert [k.name for k in kernels] == ["first(kind=x, n=2)", "second(wide=True, n=2)", "second(wide=False, n=2)"]


def test_unknown_argument_suggests_and_lists():
    with pytest.raises(TagError, match=r"no argument 'knd' in first; did you mean kind or n\? \(arguments: kind, n\)"):
        KernelCollection(BOTH).generate_kernels(["first", "knd:x"])


@pytest.mark.parametrize(
    ("tag", "words"),
    [
        ("kind:z", "value 'z' is not allowed for argument 'kind'; allowed are first: x, y"),
        ("n:3", "value '3' is not allowed for argument 'n'; allowed are first: positive multiples of 2"),
        ("n:2,three", "value 'three' is not allowed"),
    ],
)
def test_value_outside_the_allowed_set(tag, words):
    with pytest.raises(TagError, match=words):
        KernelCollection(BOTH).generate_kernels(["first", tag])


def test_a_value_may_be_allowed_in_one_of_several_generators():
    third = _fake("third", {"common"}, Argument("kind", "str", "kind", ("y", "z")))
    kernels = KernelCollection((FIRST, third)).generate_kernels(["common", "kind:x,z", "n:2"])
    assert [k.name for k in kernels] == ["first(kind=x, n=2)", "third(kind=z, n=2)"]


LIMIT = Constraint("kind y needs n of at least 4", lambda a: a["kind"] == "x" or a["n"] >= 4)
LIMITED = _fake("limited", set(), KIND, constraints=(LIMIT,))


def test_impossible_combinations_are_left_out():
    kernels = KernelCollection((LIMITED,)).generate_kernels(["limited"])
    assert [k.name for k in kernels] == ["limited(kind=x, n=2)", "limited(kind=x, n=4)", "limited(kind=y, n=4)"]


def test_a_named_value_that_leaves_no_kernel_names_the_constraint():
    with pytest.raises(TagError, match=r"no kernel can have kind:y .*limited: kind y needs n of at least 4"):
        KernelCollection((LIMITED,)).generate_kernels(["limited", "kind:x,y", "n:2"])


def test_defaults_that_leave_no_kernel():
    impossible = _fake("none", set(), constraints=(Constraint("never", lambda _: False),))
    with pytest.raises(TagError, match=r"no combination .*none: never"):
        KernelCollection((impossible,)).generate_kernels(["none"])


def test_the_paper_s_matmul_tags():
    kernels = KernelCollection(ALL_GENERATORS).generate_kernels([*PAPER_MATMUL, "n:2048,2560,3072,3584"])
    assert [dict(k.sizes) for k in kernels] == [{"n": n} for n in (2048, 2560, 3072, 3584)]
    assert {k.generator for k in kernels} == {"matmul_sq"}
    assert len({id(k.kernel) for k in kernels}) == 1


def test_without_the_prefetch_tag_there_are_eight():
    tags = [tag for tag in PAPER_MATMUL if not tag.startswith("prefetch")]
    kernels = KernelCollection(ALL_GENERATORS).generate_kernels([*tags, "n:2048,2560,3072,3584"])
    assert len(kernels) == 8
    assert len({id(k.kernel) for k in kernels}) == 2


def test_values_need_not_be_texts():
    collection = KernelCollection(ALL_GENERATORS)
    tags = [tag for tag in PAPER_MATMUL if not tag.startswith("n:")]
    given = collection.generate_kernels(tags, {"n": (2048, 2560)})
    assert [k.name for k in given] == [k.name for k in collection.generate_kernels([*tags, "n:2048,2560"])]
    with pytest.raises(TagError, match="argument 'n' is given twice"):
        collection.generate_kernels([*tags, "n:2048"], {"n": (2048,)})
    with pytest.raises(TagError, match="value -16 is not allowed for argument 'n'"):
        collection.generate_kernels(tags, {"n": (-16,)})


def test_the_paper_s_madd_tags():
    kernels = KernelCollection(ALL_GENERATORS).generate_kernels(PAPER_MADD)
    assert len(kernels) == 16
    assert len({id(k.kernel) for k in kernels}) == 1
    assert {tuple(k.sizes) for k in kernels} == {("nelements", "m")}


@pytest.mark.parametrize(
    ("tags", "words"),
    [
        (["matmul_sq", "groups_fit:True", "n:100"], "n to be a multiple of lsize_0 and lsize_1"),
        (["matmul_sq", "prefetch:True", "lsize_0:8"], "square tiles"),
        (["matmul_sq", "lsize_0:64", "lsize_1:64"], "at most 1024 work-items"),
        (["gmem_pattern", "groups_fit:True", "lid_stride_1:8"], "access the same element"),
        (["gmem_pattern", "groups_fit:True", "nelements:1000"], "multiple of the larger gid stride"),
        (["gmem_pattern", "groups_fit:False", "gid_stride_0:16"], "takes no gid strides"),
        (["overlap_madd", "m:2", "chains:4"], "chains is at most m"),
    ],
)
def test_constraints_of_the_generators(tags, words):
    with pytest.raises(TagError, match=words):
        KernelCollection(ALL_GENERATORS).generate_kernels(tags)


def test_every_generator_describes_itself_and_makes_unique_names():
    names = [g.name for g in ALL_GENERATORS]
    assert len(set(names)) == len(names)
    for generator in ALL_GENERATORS:
        assert generator.summary.endswith(".")
        assert "Source: " in generator.description
        assert all(a.meaning and a.allowed_text for a in generator.arguments)
        assert set(generator.size_arguments) <= set(generator.by_name)
        combinations = [c for c in generator.combinations({}) if generator.violated(c) is None]
        assert combinations, generator.name


def test_only_matmul_has_the_matmul_tag():
    matching = KernelCollection(ALL_GENERATORS).matching_generators(["matmul_sq"])
    assert [g.name for g in matching] == ["matmul_sq"]
