"""Footprints of several accesses together: by array, access tag and direction."""

import itertools

import loopy as lp
import numpy as np
import pytest

from perflex.features import counts_of, extract_scop, parse_feature, scop_from_yaml
from perflex.features.counting.touched import isl
from perflex.features.families.memory_accesses import touched
from sample_kernels import make, matmul
from support.written_kernels import written

STAR = [(0, 0, 0), *(tuple(s * (a == b) for b in range(3)) for a in range(3) for s in (1, -1))]
BOX = list(itertools.product((-1, 0, 1), repeat=3))


def footprint(scop, which="global"):
    return touched(scop, {}, parse_feature(f"f_mem_footprint_{which}").what)


def numbers(found, **sizes):
    return (*(count.evaluate(sizes) for count in (found.accesses, found.elements, found.bytes)), found.afr(sizes))


def stencil(offsets):
    loads = " + ".join(f"x[i + {a}, j + {b}, k + {c}]" for a, b, c in offsets)
    steps = "k/8: g.0, l.0; j/4: g.1, l.1"
    return written("{[i,j,k]: 1<=i,j,k<n-1}", f"out[i,j,k] = {loads}", "x, out: float64[n,n,n]", steps, assume="n >= 3")


def test_the_papers_matrix_multiplication():
    scop = extract_scop(matmul(prefetch=True))
    for array in "ab":
        together = footprint(scop, f"array:{array}")
        assert [str(count) for count in (together.elements, together.bytes)] == ["n^2", "4 * n^2"]
        assert numbers(together, n=64) == (64**3 / 16, 64**2, 4 * 64**2, 4)
        assert together.exact
    assert footprint(extract_scop(matmul(prefetch=False)), "array:a").afr({"n": 64}) == 64
    assert footprint(scop, "array:c_store").afr({"n": 64}) == 1
    assert footprint(scop).afr({"n": 64}) == (64 + 8) / 24
    assert str(footprint(scop, "global_load").elements) == "2 * n^2"


@pytest.mark.parametrize("offsets", [STAR, BOX], ids=["star", "box"])
@pytest.mark.parametrize("n", [3, 4, 11])
def test_stencils(offsets, n):
    inside = list(itertools.product(range(1, n - 1), repeat=3))
    touched = {tuple(np.add(point, offset)) for point in inside for offset in offsets}
    found = footprint(extract_scop(stencil(offsets)), "array:x")
    accesses = len(inside) * len(offsets)
    assert numbers(found, n=n) == (accesses, len(touched), 8 * len(touched), accesses / len(touched))
    assert found.exact
    assert not found.elements.deferred


def test_sets_that_isl_fails_to_simplify_are_counted_at_sizes(monkeypatch):
    def failing(_):
        msg = "total dimensionality changed unexpectedly"
        raise isl.Error(msg)

    monkeypatch.setattr("perflex.features.counting.touched.limited", failing)
    assert numbers(footprint(extract_scop(stencil(STAR)), "array:x"), n=10)[1] == 8**3 + 6 * 8**2


def test_triangular_domains():
    kernel = make("{[i,j]: 0<=j<=i<n}", "out[i,j] = a[i,j] + a[j,i]*x[i - j]", {"a": np.float32, "x": np.float32})
    scop = extract_scop(lp.assume(kernel, "n >= 1"))
    for n in (1, 2, 9):
        half = n * (n + 1) // 2
        assert numbers(footprint(scop, "array:a"), n=n) == (2 * half, n * n, 4 * n * n, (n + 1) / n)
        assert numbers(footprint(scop, "array:x"), n=n) == (half, n, 4 * n, (n + 1) / 2)


def test_a_bound_covered_by_what_is_certain_is_exact():
    kernel = make("{[i]: 0<=i<n}", "if x[i] > 0\n out[i] = x[i]*y[i]\nend", {"x": np.float32, "y": np.float32})
    scop = extract_scop(lp.assume(kernel, "n >= 1"))
    x, y = footprint(scop, "array:x"), footprint(scop, "array:y")
    # All of x is read for the condition; what of y is read depends on it.
    assert (x.accesses_certainty.bound, x.elements_certainty.exact, x.afr_relation) == (True, True, "<=")
    assert (y.accesses_certainty.bound, y.elements_certainty.bound, y.afr_relation) == (True, True, "~")
    assert not x.exact
    assert (str(x.elements_certainty), str(y.elements_certainty)) == ("exact", "upper bound")
    assert str(footprint(scop, "global_store").certainty) == "upper bound"


MIXED = """
schema: perflex-scop/2
name: mixed
parameters: [n]
assumptions: "[n] -> { : n >= 8 }"
launches:
- {groups: [n], items: [1]}
arrays:
- {name: x, space: global, dtype: float32, shape: [n], strides: [1]}
- {name: y, space: global, dtype: float32, shape: [n], strides: [1]}
- {name: t, space: local, dtype: float32, shape: [4], strides: [1]}
statements:
- name: first
  domain: "[n] -> { [g, l] : 0 <= g < n and l = 0 }"
  accesses:
  - {array: x, direction: load, relation: "{ [g, l] -> [g] }"}
  - {array: x, direction: load, relation: "[n] -> { [g, l] -> [i] : 0 <= i < n }"STATED}
  - {array: y, direction: load, relation: "[n] -> { [g, l] -> [i] : 0 <= i < n }"STATED}
  - {array: t, direction: store, relation: "{ [g, l] -> [0] }"}
"""


@pytest.mark.parametrize(("stated", "relation"), [("", "="), (", assumed: anywhere", "~")])
def test_elements_that_are_not_known(stated, relation):
    scop = scop_from_yaml(MIXED.replace("STATED", stated))
    y = footprint(scop, "array:y")
    assert numbers(y, n=9) == (9, 9, 36, 1)
    assert y.elements_certainty.bound
    assert y.elements_certainty.stated == bool(stated)
    assert y.afr_relation == ("~" if stated else ">=")
    assert str(y.elements_certainty) == ("upper bound as stated" if stated else "upper bound")
    # The other access of x touches all of it.
    x = footprint(scop, "array:x")
    assert x.elements_certainty.exact
    assert x.afr_relation == relation


TWO_WAYS = """
schema: perflex-scop/2
name: two_ways
parameters: [n]
assumptions: "[n] -> { : n >= 2 }"
launches:
- {groups: [n], items: [1], loops: [{name: j}]}
arrays:
- {name: x, space: global, dtype: float32, shape: [n], strides: [1]}
statements:
- name: first
  loops: [0]
  domain: "[n] -> { [g, l, j] : 0 <= g, j < n and l = 0 }"
  accesses:
  - {array: x, direction: load, relation: "{ [g, l, j] -> [g] }"}
  - {array: x, direction: load, relation: "{ [g, l, j] -> [g, j] }", strides: [n, 1], injective: DISTINCT}
"""


def test_index_tuples_that_may_be_one_element_make_a_bound():
    scop = scop_from_yaml(TWO_WAYS.replace("DISTINCT", "false"))
    assert [item.owner.footprint_among((item,)).exact for item in counts_of(scop).accesses] == [True, False]
