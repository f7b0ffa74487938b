"""Footprints of several accesses together: by array, access tag and direction."""

import itertools

import loopy as lp
import numpy as np
import pytest

from perflex.errors import NoMatchError
from perflex.features import ScopCounts, extract_scop, scop_from_yaml
from sample_kernels import make, matmul
from support.written_kernels import written

STAR = [(0, 0, 0), *(tuple(s * (a == b) for b in range(3)) for a in range(3) for s in (1, -1))]
BOX = list(itertools.product((-1, 0, 1), repeat=3))


def counts(kernel):
    return ScopCounts(extract_scop(kernel))


def numbers(found, **sizes):
    counted = (found.accesses, found.elements, found.bytes, found.afr)
    return tuple(entry.evaluate(sizes) for entry in counted)


def stencil(offsets):
    loads = " + ".join(f"x[i + {a}, j + {b}, k + {c}]" for a, b, c in offsets)
    steps = "k/8: g.0, l.0; j/4: g.1, l.1"
    return written("{[i,j,k]: 1<=i,j,k<n-1}", f"out[i,j,k] = {loads}", "x, out: float64[n,n,n]", steps, assume="n >= 3")


def test_the_papers_matrix_multiplication():
    found = counts(matmul(prefetch=True))
    for array in "ab":
        together = found.footprint_of(array=array)
        assert [str(count) for count in (together.elements, together.bytes, together.afr)] == ["n^2", "4 * n^2", "n/16"]
        assert numbers(together, n=64) == (64**3 / 16, 64**2, 4 * 64**2, 4)
        assert together.exact
    assert str(counts(matmul(prefetch=False)).footprint_of(array="a").afr) == "n"
    assert str(found.footprint_of(array="c", direction="store").afr) == "1"
    assert str(found.footprint_of().afr) == "(n + 8)/24"
    assert str(found.footprint_of(direction="load").elements) == "2 * n^2"


@pytest.mark.parametrize("offsets", [STAR, BOX], ids=["star", "box"])
@pytest.mark.parametrize("n", [3, 4, 11])
def test_stencils(offsets, n):
    inside = list(itertools.product(range(1, n - 1), repeat=3))
    touched = {tuple(np.add(point, offset)) for point in inside for offset in offsets}
    found = counts(stencil(offsets)).footprint_of(array="x")
    accesses = len(inside) * len(offsets)
    assert numbers(found, n=n) == (accesses, len(touched), 8 * len(touched), accesses / len(touched))
    assert found.exact
    assert not found.elements.deferred


def test_triangular_domains():
    kernel = make("{[i,j]: 0<=j<=i<n}", "out[i,j] = a[i,j] + a[j,i]*x[i - j]", {"a": np.float32, "x": np.float32})
    found = counts(lp.assume(kernel, "n >= 1"))
    for n in (1, 2, 9):
        half = n * (n + 1) // 2
        assert numbers(found.footprint_of(array="a"), n=n)[:2] == (2 * half, n * n)
        assert numbers(found.footprint_of(array="x"), n=n)[:2] == (half, n)
    assert str(found.footprint_of(array="a").afr) == "(n + 1)/n"
    assert str(found.footprint_of(array="x").afr) == "(n + 1)/2"


def test_a_bound_covered_by_what_is_certain_is_exact():
    kernel = make("{[i]: 0<=i<n}", "if x[i] > 0\n out[i] = x[i]*y[i]\nend", {"x": np.float32, "y": np.float32})
    found = counts(lp.assume(kernel, "n >= 1"))
    x, y = found.footprint_of(array="x"), found.footprint_of(array="y")
    # All of x is read for the condition; what of y is read depends on it.
    assert (x.accesses_certainty.bound, x.elements_certainty.exact, x.afr_relation) == (True, True, "<=")
    assert (y.accesses_certainty.bound, y.elements_certainty.bound, y.afr_relation) == (True, True, "~")
    assert not x.exact
    assert str(x.elements_certainty), str(y.elements_certainty) == ("exact", "upper bound")
    assert str(found.footprint_of(direction="store").certainty) == "upper bound"


MIXED = """
schema: perflex-scop/1
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


@pytest.mark.parametrize(("stated", "relation"), [("", "="), (", stated: anywhere", "~")])
def test_elements_that_are_not_known(stated, relation):
    found = ScopCounts(scop_from_yaml(MIXED.replace("STATED", stated)))
    y = found.footprint_of(array="y")
    assert numbers(y, n=9) == (9, 9, 36, 1)
    assert y.elements_certainty.bound
    assert y.elements_certainty.stated == bool(stated)
    assert y.afr_relation == ("~" if stated else ">=")
    assert str(y.elements_certainty) == ("upper bound as stated" if stated else "upper bound")
    # The other access of x touches all of it.
    x = found.footprint_of(array="x")
    assert x.elements_certainty.exact
    assert x.afr_relation == relation


TWO_WAYS = """
schema: perflex-scop/1
name: two_ways
parameters: [n]
assumptions: "[n] -> { : n >= 2 }"
launches:
- {groups: [n], items: [1]}
arrays:
- {name: x, space: global, dtype: float32, shape: [n], strides: [1]}
statements:
- name: first
  domain: "[n] -> { [g, l, j] : 0 <= g, j < n and l = 0 }"
  accesses:
  - {array: x, direction: load, relation: "{ [g, l, j] -> [g] }"}
  - {array: x, direction: load, relation: "{ [g, l, j] -> [g, j] }", strides: [n, 1], distinct: DISTINCT}
"""


def test_index_tuples_that_may_be_one_element_make_a_bound():
    found = ScopCounts(scop_from_yaml(TWO_WAYS.replace("DISTINCT", "false")))
    assert [item.footprint_exact for item in found.accesses] == [True, False]


@pytest.mark.parametrize(("asked", "message"), [
    ({"array": "aa"}, "has no global array 'aa'; did you mean 'a'"),
    ({"array": "velocity"}, "has no global array 'velocity'; there are a, b, c"),
    ({"array": "a_fetch"}, "no global array 'a_fetch'"),
    ({"tag": "aLD"}, "has no access tag of a global array 'aLD'; there are none"),
    ({"array": "a", "direction": "store"}, r"has array 'a', direction 'store'; its accesses are a\["),
])  # fmt: skip
def test_unknown_names_are_told(asked, message):
    with pytest.raises(NoMatchError, match=message):
        counts(matmul(prefetch=True)).footprint_of(**asked)
