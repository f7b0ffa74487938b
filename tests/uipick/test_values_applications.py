"""Matrix, vector and particle applications against numpy, on every platform there is."""

from __future__ import annotations

import numpy as np
import pytest

from perflex.errors import TagError
from uipick import ALL_GENERATORS, KernelCollection

# Values of many variants against numpy; some of each kind stand in test_generator_values.py, which is quick.
pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("fit", "rows", "columns", "lsize", "n"),
    [
        (True, 4, 2, 16, 64),
        (True, 1, 8, 4, 32),
        (True, 2, 2, 8, 48),
        (False, 4, 2, 16, 37),
        (False, 2, 4, 4, 33),
        (False, 8, 1, 4, 3),
    ],
)
def test_matmul_rb(one, run, random, fit, rows, columns, lsize, n):
    kernel = one(
        "matmul_rb", "dtype:float64", f"rows:{rows}", f"columns:{columns}", f"lsize:{lsize}", f"groups_fit:{fit}",
        f"n:{n}",
    )  # fmt: skip
    a, b = random.random((2, n, n))
    np.testing.assert_allclose(run(kernel.kernel, kernel.sizes, a=a, b=b), a @ b, rtol=1e-12)


@pytest.mark.parametrize("variant", ["naive", "tiled", "padded"])
@pytest.mark.parametrize(("fit", "lsize", "n"), [(True, 16, 48), (True, 5, 15), (False, 16, 37), (False, 8, 3)])
def test_transpose(one, run, random, variant, fit, lsize, n):
    kernel = one("transpose", "dtype:float32", f"variant:{variant}", f"lsize:{lsize}", f"groups_fit:{fit}", f"n:{n}")
    a = random.random((n, n)).astype(np.float32)
    np.testing.assert_array_equal(run(kernel.kernel, kernel.sizes, a=a), a.T)


@pytest.mark.parametrize("layout", ["rows", "columns"])
@pytest.mark.parametrize("prefetch", [True, False])
@pytest.mark.parametrize(("fit", "n", "m"), [(True, 64, 96), (False, 37, 50), (False, 3, 100), (False, 100, 1)])
def test_gemv(one, run, random, layout, prefetch, fit, n, m):
    kernel = one(
        "gemv", "dtype:float64", f"layout:{layout}", f"prefetch:{prefetch}", f"groups_fit:{fit}", "lsize_0:32",
        f"n:{n}", f"m:{m}",
    )  # fmt: skip
    a, x = random.random((n, m)), random.random(m)
    result = run(kernel.kernel, kernel.sizes, a=np.asarray(a, order="F" if layout == "columns" else "C"), x=x)
    np.testing.assert_allclose(result, a @ x, rtol=1e-12)


@pytest.mark.parametrize(("fit", "n"), [(True, 128), (False, 100), (False, 1)])
def test_axpy_updates_in_place(one, run, random, fit, n):
    kernel = one("axpy", "dtype:float64", f"groups_fit:{fit}", "lsize_0:64", f"n:{n}")
    x = random.random(n)
    # The output array, here y, is -77 before the kernel runs.
    np.testing.assert_allclose(run(kernel.kernel, kernel.sizes, x=x), 0.5 * x - 77, rtol=1e-14)


@pytest.mark.parametrize(
    ("fit", "lsize", "ngroups", "n"),
    [(True, 64, 4, 1024), (True, 16, 100, 3200), (False, 64, 4, 1000), (False, 12, 5, 7), (False, 2, 2, 1)],
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dot(one, run, random, dtype, fit, lsize, ngroups, n):
    kernel = one("dot", f"dtype:{dtype}", f"groups_fit:{fit}", f"lsize_0:{lsize}", f"ngroups:{ngroups}", f"n:{n}")
    x, y = random.random((2, n)).astype(dtype)
    (result,) = run(kernel.kernel, kernel.sizes, x=x, y=y)
    assert result == pytest.approx(float(x.astype(float) @ y), rel=1e-5 if dtype == "float32" else 1e-13)


@pytest.mark.parametrize("prefetch", [True, False])
@pytest.mark.parametrize(
    ("fit", "order", "per_group", "nbatch"), [(True, 4, 8, 24), (True, 16, 4, 8), (False, 3, 4, 9), (False, 7, 2, 1)]
)
def test_matmul_batch(one, run, random, prefetch, fit, order, per_group, nbatch):
    kernel = one(
        "matmul_batch", "dtype:float64", f"order:{order}", f"per_group:{per_group}", f"prefetch:{prefetch}",
        f"groups_fit:{fit}", f"nbatch:{nbatch}",
    )  # fmt: skip
    a, b = random.random((2, nbatch, order, order))
    np.testing.assert_allclose(run(kernel.kernel, kernel.sizes, a=a, b=b), a @ b, rtol=1e-12)


@pytest.mark.parametrize("prefetch", [True, False])
@pytest.mark.parametrize(("fit", "n"), [(True, 64), (False, 75), (False, 5)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nbody(one, run, random, dtype, prefetch, fit, n):
    kernel = one("nbody", f"dtype:{dtype}", f"prefetch:{prefetch}", f"groups_fit:{fit}", "lsize_0:32", f"n:{n}")
    body = (0.5 + random.random((4, n))).astype(dtype)
    distance = body[:3, None, :] - body[:3, :, None]
    pull = body[3] / ((distance**2).sum(axis=0) + 0.0625**2) ** 1.5
    tolerance = 1e-3 if dtype == "float32" else 1e-10
    result = run(kernel.kernel, kernel.sizes, body=body)
    np.testing.assert_allclose(result, (pull * distance).sum(axis=2), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("tags", "words"),
    [
        (["matmul_rb", "groups_fit:True", "n:48", "rows:4"], "multiple of rows and of columns"),
        (["matmul_rb", "rows:8", "columns:8", "lsize:32"], "32 KiB"),
        (["transpose", "groups_fit:True", "n:50"], "multiple of lsize"),
        (["transpose", "lsize:33"], "not allowed for argument 'lsize'"),
        (["gemv", "groups_fit:True", "m:1000"], "m to be a multiple"),
        (["axpy", "groups_fit:True", "n:1000"], "n to be a multiple"),
        (["dot", "groups_fit:True", "n:256"], "ngroups times lsize_0"),
        (["dot", "lsize_0:1"], "at least 2 work-items"),
        (["matmul_batch", "order:32", "per_group:2"], "at most 1024"),
        (["matmul_batch", "prefetch:True", "per_group:1"], "per_group of at least 2"),
        (["nbody", "groups_fit:True", "n:100"], "n to be a multiple"),
    ],
)
def test_what_cannot_be_generated(tags, words):
    with pytest.raises(TagError, match=words):
        KernelCollection(ALL_GENERATORS).generate_kernels(tags)
