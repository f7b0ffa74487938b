"""Spaces: enumeration against brute force, constraints, causes, repeated kernels, workers."""

import copy
import itertools
import pickle
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perflex import RunOptions, VariantSpace, source_kernel
from perflex.errors import ExecutorError, MissingSizeError, SpaceError
from perflex.search.counted_variants import Work
from support.spaces_for_tests import scaled, small_space

FEATURES = ("f_op_float32_mul", "f_thread_groups", "f_mem_access_global_float32_load")


def nothing(**_):
    return None


def is_small(a):
    return a < 9


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    limits=st.lists(st.integers(0, 9), min_size=0, max_size=3),
)
def test_enumeration_and_counts_agree_with_brute_force(sizes, limits):
    names = "abcd"[: len(sizes)]
    values = {name: tuple(range(1, size + 1)) for name, size in zip(names, sizes, strict=True)}
    texts = [f"{' + '.join(names[: 1 + place])} <= {limit}" for place, limit in enumerate(limits) if place < len(names)]
    space = VariantSpace(nothing, values, texts)
    excluded = Counter()
    found = list(space.enumerate(excluded))
    expected = [
        dict(zip(names, each, strict=True))
        for each in itertools.product(*values.values())
        if all(sum(each[: 1 + place]) <= limit for place, limit in enumerate(limits) if place < len(names))
    ]
    assert found == expected
    assert len(found) + sum(excluded.values()) == space.combinations


def test_enumeration_is_lazy():
    space = VariantSpace(nothing, {name: range(1000) for name in "abcdef"}, ["a % 2 == 1", "f > 997"])
    assert list(itertools.islice(space, 2)) == [
        {"a": 1, "b": 0, "c": 0, "d": 0, "e": 0, "f": 998},
        {"a": 1, "b": 0, "c": 0, "d": 0, "e": 0, "f": 999},
    ]


def test_values_of_numpy_become_plain():
    arrays = {"a": 2 ** np.arange(2), "b": np.array([True]), "c": np.array(["x"])}
    (first, second) = VariantSpace(nothing, {**arrays, "d": [np.float32(0.5)], "e": np.int8(3)})
    assert list(first.values()) == [1, True, "x", 0.5, 3]
    assert [type(value) for value in second.values()] == [int, bool, str, float, int]


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        (None, r"with their values, e\.g\. .*, not None"),
        ([("a", (1, 2))], "with their values"),
        ({"a": None}, "not NoneType"),
        ({"a": np.ones((2, 2))}, "not ndarray"),
        ({"a": object}, "not type"),
        ({}, "no parameters"),
        ({"a": ()}, "has no values"),
        ({"a": (1, 1)}, "twice"),
        ({"a b": (1,)}, "identifier"),
        ({"a": ([1],)}, "must be numbers, texts or truth values"),
    ],
)
def test_what_is_no_parameter(parameters, text):
    with pytest.raises(SpaceError, match=text):
        VariantSpace(nothing, parameters)


@pytest.mark.parametrize("size", [[1024, 2048], np.array([1024]), "1024", None])
def test_a_size_is_one_number(size):
    with pytest.raises(SpaceError, match="size n must be one number"):
        small_space().extract(FEATURES, {"n": size})
    with pytest.raises(MissingSizeError):
        small_space().extract(FEATURES)


@pytest.mark.parametrize("constraints", [None, (), "a < 9", is_small, [is_small]])
def test_constraints_are_one_or_several_or_none(constraints):
    space = VariantSpace(nothing, {"a": (1, 2)}, constraints)
    assert len(list(space)) == 2
    again = pickle.loads(pickle.dumps(space))
    assert list(again) == list(space)


def test_functions_are_constraints_too():
    def small(a, c):
        return a < 2 or c == "y"

    space = VariantSpace(nothing, {"a": (1, 2), "b": (True, False), "c": ("x", "y")}, [small, lambda **s: s["b"]])
    assert [tuple(each.values()) for each in space] == [(1, True, "x"), (1, True, "y"), (2, True, "y")]


@pytest.mark.parametrize(
    "text", ["1 % (rows - 1) == 0", "'x' * 1000000000 == rows", "rows ** 10 ** 9 > 1", "rows < 'x'"]
)
def test_texts_that_cannot_be_evaluated(text):
    with pytest.raises(SpaceError, match="cannot be evaluated for rows=1"):
        list(VariantSpace(nothing, {"rows": (1, 2)}, [text]))


def test_build_must_take_the_parameters():
    with pytest.raises(SpaceError, match="cannot be called with lsize, other"):
        VariantSpace(scaled, {"lsize": (8,), "other": (1,)})
    with pytest.raises(SpaceError, match="a text or a function"):
        VariantSpace(nothing, {"a": (1, 2)}, 5)


@pytest.mark.parametrize(
    ("parameters", "constraints", "text"),
    [
        ({"a": (1, 2), "b": (1, 2)}, ["a < b", "a > b"], r"contradict.*a < b \(3\); a > b \(1\)"),
        ({"a": (1, 2)}, ["a > 0", "a > 5"], "no setting fulfils the constraint 'a > 5'"),
        ({"a": (1, 2)}, [], r"no valid variant of 2 combinations: build returned no kernel \(2\)"),
    ],
)
def test_spaces_without_a_variant(parameters, constraints, text):
    with pytest.raises(SpaceError, match=text):
        VariantSpace(nothing, parameters, constraints).extract(FEATURES)


def test_extraction_counts_causes_and_repeated_kernels():
    space = small_space(dead=(0, 1, 7, 8))
    found = space.extract(FEATURES, {"n": 1024})
    assert len(found) == 9
    assert found.excluded == {
        "build returned no kernel": 9,
        "build: ValueError: cannot make # of #": 9,
        "same kernel as another setting": 9,
    }
    assert {len(others) for others in found.same.values()} == {1}
    assert sum(found.excluded.values()) + len(found) == small_space(dead=(0, 1, 7, 8)).combinations
    expected = {(lsize, repeats): 1024 // 32 * repeats for lsize in (16, 32, 64) for repeats in (1, 2, 4)}
    for each, row in zip(found.settings, found.values, strict=True):
        groups = 1024 // each["lsize"]
        # Sub-groups of 32 are half empty in work-groups of 16.
        multiplications = expected[each["lsize"], each["repeats"]] * (2 if each["lsize"] == 16 else 1)
        assert row[1] == groups
        assert row[0] == pytest.approx(multiplications)


def test_workers_give_the_same():
    here = small_space(dead=(0, 7)).extract(FEATURES, {"n": 1024})
    told = []
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
        there = small_space(dead=(0, 7)).extract(
            FEATURES, {"n": 1024}, run=RunOptions(executor=executor, progress=lambda *step: told.append(step))
        )
    assert there.settings == here.settings
    assert (there.values == here.values).all()
    assert there.excluded == here.excluded
    assert told[-1][:2] == (18, 18)


def test_a_function_that_cannot_be_sent():
    space = VariantSpace(lambda a: scaled(lsize=16, repeats=a), {"a": (1, 2)})
    with (
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor,
        pytest.raises(ExecutorError, match="cannot be sent"),
    ):
        space.extract(FEATURES, {"n": 64}, run=RunOptions(executor=executor))


def test_kernels_are_built_anew():
    found = small_space().extract(FEATURES, {"n": 1024})
    assert (found.names[0], "scaled" in found.kernel(0).entrypoints) == ("lsize=16, repeats=1", True)
    assert np.isfinite(found.values).all()
    with pytest.raises(SpaceError, match="missing or unknown: repeats"):
        small_space().kernel({"lsize": 16})


def test_constraints_survive_copies():
    texts = ["layout == 'row' or tile in (1, 2)", "64 % (tile or 1) == 0", " + ".join(["tile"] * 45) + " < 1000"]
    space = VariantSpace(nothing, {"layout": ("row", "column"), "tile": (1, 2, 5, 16)}, texts)
    expected = [("row", 1), ("row", 2), ("row", 16), ("column", 1), ("column", 2)]
    for each in (space, pickle.loads(pickle.dumps(space)), copy.deepcopy(space)):
        assert [tuple(settings.values()) for settings in each] == expected


SOURCE = """
__global__ void k(float *x) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#if STAGED
    __shared__ float s[32 * WIDE];
    s[threadIdx.x] = x[i];
    x[i] = s[threadIdx.x];
#else
    x[i] = 2 * x[i];
#endif
}
"""


def from_source(**settings):
    return source_kernel(SOURCE, "k", language="cuda", local=32, groups=4, defines=settings)


def test_settings_that_change_nothing_in_a_source_are_one_variant_counted_once(monkeypatch):
    calls = []
    counted = Work._counted
    monkeypatch.setattr(Work, "_counted", lambda self, kernel, *more: calls.append(1) or counted(self, kernel, *more))
    found = VariantSpace(from_source, {"STAGED": (0, 1), "WIDE": (1, 2, 4)}).extract(["f_thread_groups"])
    assert found.excluded == {"same kernel as another setting": 2}
    assert [dict(each) for each in found.same[0]] == [{"STAGED": 0, "WIDE": 2}, {"STAGED": 0, "WIDE": 4}]
    assert len(found) == len(calls) == 4
