"""The brute-force counts against hand-computed numbers and against executed instructions."""

import islpy as isl
import loopy as lp
import pytest

from sample_kernels import matmul
from support.written_kernels import written

from .brute import count
from .expressions import NotEnumerableError
from .mended_loopy import mend
from .oclgrind import needs_oclgrind, run_jobs
from .points import integer_points
from .random_kernels import make_random_kernel

FLOATS = ("float32", "float64")
MOVES = [(space, direction) for space in ("global", "local") for direction in ("load", "store")]
# n*(n+1)/2 multiply-adds, one work-item per row.
TRIANGLE = written(
    "{[i, j]: 0 <= j <= i < n}", "y[i] = sum(j, a[i, j]*x[j])", "x, y: float32[n]; a: float32[n, n]", "i/8: g.0, l.0"
)
GUARDED = written(
    "{[i]: 0 <= i < n}",
    """
    if i % 2 == 0
        x[i] = a[i]*b[i] + b[i+1] {id=first}
    end
    if i > 2 and i < n - 3
        y[i] = a[i] - b[i] {id=second}
    end
    z[i] = (a[i] if i < 3 else b[i]/a[i]) {id=third}
    """,
    "x, y, z, a, b: float32[n + 1]",
    "i/4: g.0, l.0",
)


@pytest.mark.parametrize("text", [
    "[n] -> {[i, j]: 0 <= i < n and i <= j < n and (i + j) mod 3 = 1}",
    "[n] -> {[i, j]: exists k: i = 3k and j = 2k + 1 and 0 <= k < n}",
    "[n] -> {[i]: exists k, l: i = 3k + 5l and 0 <= k < n and 0 <= l < 3}",
    "[n] -> {[i, j]: 0 <= i < n and 2j <= floor(i/3) and -j < 5 or (i = 7 and j = n)}",
    "[n] -> {[i]: 0 <= i < n and i > n}",
])  # fmt: skip
def test_points_are_those_of_isl(text):
    domain = isl.Set(text)
    names = [domain.get_dim_name(isl.dim_type.set, k) for k in range(domain.dim(isl.dim_type.set))]
    expected = set()
    domain.fix_val(isl.dim_type.param, 0, isl.Val(11)).foreach_point(
        lambda at: expected.add(
            tuple(at.get_coordinate_val(isl.dim_type.set, k).to_python() for k in range(len(names)))
        )
    )
    found = integer_points(domain, names, {"n": 11})
    rows = list(zip(*(found[name].tolist() for name in names), strict=True))
    assert set(rows) == expected
    assert len(rows) == len(expected)


def test_matmul_without_prefetch():
    n = 32
    counts = count(matmul(prefetch=False), {"n": n}, 32)
    assert (counts.groups, counts.items, counts.launches, counts.barriers) == (4, 256, 1, 0)
    assert counts.operations_per_work_item == {("float32", "madd"): n**3}
    assert counts.operations_per_sub_group == {("float32", "madd"): n**3 // 32}
    (a,) = counts.select(array="a")
    (b,) = counts.select(array="b")
    (c,) = counts.select(array="c")
    assert (a.direction, a.per_work_item, a.per_sub_group) == ("load", n**3, n**3 // 32)
    assert (a.local_strides, a.group_strides) == ({0: 0, 1: n}, {0: 0, 1: 16 * n})
    assert (b.local_strides, b.group_strides) == ({0: 1, 1: 0}, {0: 16, 1: 0})
    assert (len(b.elements), counts.footprint("b")) == (n**2, n**2)
    assert (c.direction, c.per_work_item, c.local_strides) == ("store", n**2, {0: 1, 1: n})
    assert a.tags == {"aLD"}


def test_triangle_and_partly_filled_sub_groups():
    counts = count(TRIANGLE, {"n": 13}, 4)
    assert counts.operations("madd") == 91
    # Sub-groups of rows 0-3, 4-7, 8-11, 12 run as long as their longest row: 4 + 8 + 12 + 13.
    assert counts.operations("madd", sub_group=True) == 37
    assert counts.footprint("a") == 91
    assert counts.footprint("x") == 13


def test_indirect_access_is_refused():
    kernel = written("{[i]: 0 <= i < n}", "x[i] = a[p[i]]", "x, a: float32[n]; p: int32[n]")
    with pytest.raises(NotEnumerableError, match=r"a\[p\[i\]\]"):
        count(kernel, {"n": 4})


def summary_of_counts(counts):
    names = ("madd", "add", "mul", "div", "exp", "sqrt", "fabs", "sin", "cos", "log", "fmax")
    floats = {name: sum(counts.operations(name, dtype) for dtype in FLOATS) for name in names}
    floats["fmax"] += sum(counts.operations("max", dtype) for dtype in FLOATS)
    moved = {way: sum(a.per_work_item for a in counts.select(space=way[0], direction=way[1])) for way in MOVES}
    return floats | moved | {"barriers": counts.barriers}


def summary_of_executed(executed):
    called = {name: executed.called(name) for name in ("exp", "sqrt", "fabs", "sin", "cos", "log", "fmax")}
    plain = {"madd": executed.madds(), "add": executed.adds, "mul": executed.muls, "div": executed.divs}
    moved = {(s, d): (executed.load(s) if d == "load" else executed.store(s)).count for s, d in MOVES}
    return called | plain | moved | {"barriers": executed.barriers}


@needs_oclgrind
@pytest.mark.parametrize("seeds", [range(5), pytest.param(range(5, 30), marks=pytest.mark.slow)], ids=["few", "many"])
def test_brute_force_is_what_oclgrind_executes(seeds):
    mend()
    jobs = [
        (matmul(prefetch=False), {"n": 32}),
        (lp.add_inames_for_unused_hw_axes(matmul(prefetch=True)), {"n": 32}),
        (TRIANGLE, {"n": 13}),
        (GUARDED, {"n": 11}),
        *((drawn.kernel, drawn.sizes) for drawn in map(make_random_kernel, seeds)),
    ]
    for number, ((kernel, sizes), executed) in enumerate(zip(jobs, run_jobs(jobs), strict=True)):
        counted = summary_of_counts(count(kernel, sizes, as_executed=True))
        assert counted == summary_of_executed(executed), f"job {number} at {sizes}: {kernel}"
