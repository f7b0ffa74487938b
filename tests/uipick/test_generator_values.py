"""Every generator against numpy, on every platform there is."""

from __future__ import annotations

import warnings

import numpy as np
import pytest


def _places(rows, columns, lid_stride_0, lid_stride_1):
    """Element of each work-item, first index along axis 1."""
    j, i = np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij")
    return lid_stride_1 * j + lid_stride_0 * i


@pytest.mark.parametrize("prefetch", [True, False])
@pytest.mark.parametrize(
    ("fit", "lsize", "n"), [(True, 16, 32), (True, 8, 24), (False, 16, 37), (False, 16, 16), (False, 8, 5)]
)
def test_matmul(one, run, random, prefetch, fit, lsize, n):
    kernel = one(
        "matmul_sq", "dtype:float64", f"prefetch:{prefetch}", f"groups_fit:{fit}", f"n:{n}", f"lsize_0:{lsize}",
        f"lsize_1:{lsize}",
    )  # fmt: skip
    a, b = random.random((2, n, n))
    np.testing.assert_allclose(run(kernel.kernel, kernel.sizes, a=a, b=b), a @ b, rtol=1e-12)


def test_matmul_with_oblong_work_groups(one, run, random):
    kernel = one("matmul_sq", "dtype:float32", "prefetch:False", "groups_fit:True", "n:32", "lsize_0:32", "lsize_1:4")
    a, b = random.random((2, 32, 32)).astype(np.float32)
    np.testing.assert_allclose(run(kernel.kernel, kernel.sizes, a=a, b=b), a @ b, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "tags",
    [
        ("lid_stride_0:1", "lid_stride_1:64", "nelements:2048"),
        ("lid_stride_0:2", "lid_stride_1:64", "nelements:4096"),
        ("lid_stride_0:64", "lid_stride_1:1", "nelements:2048"),
        ("lid_stride_0:1", "lid_stride_1:16", "nelements:768"),
        ("lid_stride_0:1", "lid_stride_1:16", "gid_stride_0:512", "gid_stride_1:256", "nelements:2048"),
        ("lid_stride_0:1", "lid_stride_1:64", "lsize_0:64", "lsize_1:1", "nelements:640"),
        ("lid_stride_0:1", "lid_stride_1:2048", "lsize_0:256", "lsize_1:1", "nelements:4096"),
        ("lid_stride_0:3", "lid_stride_1:48", "nelements:1536"),
    ],
)
def test_gmem_pattern_covers_each_element_of_the_pattern_once(one, run, random, tags):
    kernel = one("gmem_pattern", "dtype:float32", "groups_fit:True", "n_arrays:3", *tags)
    arguments = kernel.arguments
    inputs = random.random((3, arguments["nelements"])).astype(np.float32)
    result = run(kernel.kernel, kernel.sizes, **dict(zip(("in0", "in1", "in2"), inputs, strict=True)))
    # Without gaps, every lid_stride-th element is touched: the smaller of the two strides.
    step = min(arguments["lid_stride_0"], arguments["lid_stride_1"])
    touched = np.zeros(arguments["nelements"], bool)
    touched[::step] = True
    np.testing.assert_allclose(result[touched], inputs.sum(axis=0)[touched], rtol=1e-6)
    assert (result[~touched] == -77).all()


@pytest.mark.parametrize(
    ("lid_stride_0", "lid_stride_1", "nelements"), [(1, 40, 1700), (1, 40, 40), (40, 1, 1700), (2, 60, 1000)]
)
def test_gmem_pattern_guards_the_remainder(one, run, random, lid_stride_0, lid_stride_1, nelements):
    kernel = one(
        "gmem_pattern", "dtype:float64", "groups_fit:False", "n_arrays:1", f"nelements:{nelements}",
        f"lid_stride_0:{lid_stride_0}", f"lid_stride_1:{lid_stride_1}",
    )  # fmt: skip
    source = random.random(nelements)
    result = run(kernel.kernel, kernel.sizes, in0=source)
    large, small = max(lid_stride_0, lid_stride_1), min(lid_stride_0, lid_stride_1)
    touched = np.zeros(nelements, bool)
    touched[_places(nelements // large, large // small, small, large).ravel()] = True
    np.testing.assert_array_equal(result, np.where(touched, source, -77))


def _flops(operation, items, nvars, m):
    """The sum of the variables after m rounds, from the recurrence on whole arrays of work-items."""
    lid_0, lid_1 = items
    item, sign = lid_0 + 16 * lid_1, 1 - 2 * ((lid_0 + lid_1) % 2)
    if operation == "mul":
        cycle = [sign, -sign, 0 * item + 1, sign, 0 * item + 1]
    else:
        cycle = [item + 1, item, 0 * item - 1, -item - 1, -item, 0 * item + 1]
    x = [cycle[v % len(cycle)].astype(np.float64) for v in range(nvars)]
    for _ in range(m):
        for v in range(nvars):
            first, second = x[(v - 13) % nvars], x[(v - 11) % nvars]
            x[v] = first * second if operation == "mul" else first + second
    return sum(x)


@pytest.mark.slow
@pytest.mark.parametrize(("operation", "nvars"), [("add", 16), ("mul", 16), ("madd", 32)])
def test_flops_patterns(one, run, operation, nvars):
    kernel = one(
        f"flops_{operation}_pattern", "dtype:float32", "groups_fit:True", "lid_stride_1:32", f"nvars:{nvars}",
        "nelements:1024", "m:64",
    )  # fmt: skip
    result = run(kernel.kernel, kernel.sizes).reshape(32, 32)
    j, i = np.meshgrid(np.arange(32) % 16, np.arange(32) % 16, indexing="ij")
    expected = _flops(operation, (i, j), nvars, 64)
    assert len(np.unique(expected)) > 1
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("operation", ["add", "mul", "madd"])
def test_flops_patterns_stay_bounded_for_any_number_of_iterations(operation):
    item = np.arange(256)
    sums = [np.abs(_flops(operation, (item % 16, item // 16), 32, m)).max() for m in (1, 64, 512)]
    assert max(sums) <= 32 * 256


@pytest.mark.slow
def test_flops_pattern_guards_the_remainder(one, run):
    kernel = one(
        "flops_add_pattern", "dtype:float64", "groups_fit:False", "lid_stride_1:40", "nvars:16", "nelements:800", "m:64"
    )
    result = run(kernel.kernel, kernel.sizes).reshape(20, 40)
    j, i = np.meshgrid(np.arange(20) % 16, np.arange(40) % 16, indexing="ij")
    np.testing.assert_array_equal(result, _flops("add", (i, j), 16, 64))


@pytest.mark.parametrize(("m", "sizes"), [(8, (1, 8)), (64, (8, 8)), (24, (3, 8))])
def test_lmem_move(one, run, m, sizes):
    kernel = one("lmem_move", "dtype:float32", f"m:{m}", "lid_stride_1:32", "nelements:1024")
    assert (kernel.sizes["m_outer"], kernel.sizes["m_inner"]) == sizes
    result = run(kernel.kernel, kernel.sizes).reshape(32, 32)
    j, i = np.meshgrid(np.arange(32) % 16, np.arange(32) % 16, indexing="ij")
    np.testing.assert_array_equal(result, i + 16 * j + sizes[1] - 1)


def test_lmem_move_uses_fewer_rows_in_large_work_groups(one, run):
    kernel = one("lmem_move", "dtype:float64", "m:16", "lsize_0:32", "lsize_1:32", "lid_stride_1:32", "nelements:1024")
    assert dict(kernel.sizes) == {"nelements": 1024, "m_outer": 8, "m_inner": 2}
    np.testing.assert_array_equal(run(kernel.kernel, kernel.sizes), np.arange(1024) + 1)


@pytest.mark.parametrize(("m", "inner"), [(1, 1), (5, 5), (8, 8), (40, 8)])
def test_overlap_ratio(one, run, random, m, inner):
    kernel = one("overlap_ratio", "dtype:float64", f"m:{m}", "lid_stride_1:32", "nelements:512")
    assert kernel.sizes["m_inner"] == inner
    assert kernel.sizes["m_outer"] * inner == m
    source = random.random(512)
    np.testing.assert_array_equal(run(kernel.kernel, kernel.sizes, in0=source), source)


def test_barrier_local(one, run):
    kernel = one("barrier_local", "dtype:float32", "m:3", "lid_stride_1:32", "nelements:512")
    result = run(kernel.kernel, kernel.sizes).reshape(16, 32)
    j, i = np.meshgrid(np.arange(16), np.arange(32) % 16, indexing="ij")
    np.testing.assert_array_equal(result, i + 16 * j)


def test_empty_is_launched(one, contexts):
    import pyopencl as cl

    kernel = one("empty", "ngroups:16")
    for context in contexts:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", cl.CompilerWarning)
            event, outputs = kernel.kernel.executor(context)(cl.CommandQueue(context), **kernel.sizes)
        event.wait()
        assert outputs == ()


@pytest.mark.slow
@pytest.mark.parametrize(("fit", "n"), [(True, 32), (False, 21)])
@pytest.mark.parametrize(("load", "m", "chains"), [("uniform", 3, 2), ("unit", 1, 1), ("both", 5, 2), ("both", 1, 1)])
def test_overlap_madd(one, run, random, load, m, chains, fit, n):
    kernel = one(
        "overlap_madd", "dtype:float64", f"load:{load}", f"m:{m}", f"chains:{chains}", f"groups_fit:{fit}", f"n:{n}"
    )
    matrices = dict(zip("ab", random.random((2, n, n)), strict=True))
    inputs = {name: matrices[name] for name in {"uniform": "a", "unit": "b", "both": "ab"}[load]}
    i, j = np.meshgrid(np.arange(n), np.arange(n), indexing="ij")
    x = [16.0 * (i % 16) + j % 16 + chain for chain in range(chains)]
    for k in range(n):
        row, column = matrices["a"][:, k : k + 1], matrices["b"][k : k + 1, :]
        values = {"uniform": [row], "unit": [column], "both": [row, column]}[load]
        for u in range(m):
            factor = row if u == 0 and load == "both" else 0.5
            addend = values[-1] if u == 0 else values[u % len(values)]
            x[u % chains] = x[u % chains] * factor + addend
    np.testing.assert_allclose(run(kernel.kernel, kernel.sizes, **inputs), sum(x), rtol=1e-12)


@pytest.mark.parametrize("prefetch", [True, False])
@pytest.mark.parametrize("keep", ["aLD", "bLD", "aLD_bLD", "cST", "aLD_cST", "aLD_bLD_cST"])
def test_matmul_sq_mem_sums_what_it_loads(one, run, random, prefetch, keep):
    n = 48
    kernel = one("matmul_sq_mem", "dtype:float64", f"prefetch:{prefetch}", f"keep:{keep}", "groups_fit:True", f"n:{n}")
    a, b = random.random((2, n, n))
    inputs = {name: array for name, array in (("a", a), ("b", b)) if f"{name}LD" in keep}
    expected = np.zeros((n, n))
    if prefetch:  # each work-item loads one element of each tile
        i, j = np.meshgrid(np.arange(n), np.arange(n), indexing="ij")
        for k in range(0, n, 16):
            expected += ("a" in inputs) * a[i, k + j % 16] + ("b" in inputs) * b[k + i % 16, j]
    else:
        expected += ("a" in inputs) * a.sum(axis=1)[:, None] + ("b" in inputs) * b.sum(axis=0)
    np.testing.assert_allclose(run(kernel.kernel, kernel.sizes, **inputs), expected, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("prefetch", [True, False])
@pytest.mark.parametrize(("fit", "n"), [(True, 40), (False, 37)])
def test_matmul_with_confined_loads(one, run, random, prefetch, fit, n):
    kernel = one(
        "matmul_sq_core", "dtype:float64", f"prefetch:{prefetch}", "lsize_0:8", "lsize_1:8", f"groups_fit:{fit}",
        "confined:2", f"n:{n}",
    )  # fmt: skip
    a, b = random.random((2, n, n))
    near = np.arange(n) // 8 % 2 * 8 + np.arange(n) % 8
    np.testing.assert_allclose(run(kernel.kernel, kernel.sizes, a=a, b=b), a[near] @ b[:, near], rtol=1e-12)


@pytest.mark.parametrize(("m", "depth"), [(2, 16), (3, 16), (3, 32)])
def test_lmem_madd(one, run, m, depth):
    kernel = one("lmem_madd", "dtype:float32", f"m:{m}", f"depth:{depth}", "lid_stride_1:32", "nelements:1024")
    result = run(kernel.kernel, kernel.sizes).reshape(32, 32)
    j, i = np.meshgrid(np.arange(32) % 16, np.arange(32) % 16, indexing="ij")
    column = depth // 16 * (16 * i + 16 * np.arange(16).sum())
    np.testing.assert_array_equal(result, i + 16 * j + (column if m % 2 else 0))


@pytest.mark.parametrize("chains", [1, 3])
@pytest.mark.parametrize("operation", ["add", "madd"])
def test_flops_chain(one, run, operation, chains):
    kernel = one(
        f"flops_{operation}_chain", "dtype:float32", "groups_fit:True", "lid_stride_1:32", f"chains:{chains}",
        "nelements:1024", "m:100",
    )  # fmt: skip
    result = run(kernel.kernel, kernel.sizes).reshape(32, 32)
    j, i = np.meshgrid(np.arange(32) % 16, np.arange(32) % 16, indexing="ij")
    item = i + 16 * j
    np.testing.assert_array_equal(result, sum(item + c + 100 * (1 + item % 2) for c in range(chains)))
