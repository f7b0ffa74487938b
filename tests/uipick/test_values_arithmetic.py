"""Arithmetic patterns of all kinds against numpy, on every platform there is."""

from __future__ import annotations

import loopy as lp
import numpy as np
import pytest
from loopy.kernel.data import UnrollTag

# Values of many variants against numpy; some of each kind stand in test_generator_values.py, which is quick.
pytestmark = pytest.mark.slow

SIDE = 32  # 2 by 2 work-groups of 16 by 16

# Offsets of the earlier values, and the update.
UPDATES = {
    "add": ((13, 11), np.add),
    "mul": ((13, 11), np.multiply),
    "madd": ((13, 11), np.add),
    "div": ((13, 14), np.divide),
    "bit": ((0, 13, 11), lambda own, x, y: own ^ (x & y)),
    "shift": ((13,), lambda x: x),
    "sqrt": ((13,), np.sqrt),
    "rsqrt": ((13,), lambda x: 1 / np.sqrt(x)),
    "exp": ((13,), lambda x: np.exp(-x)),
    "sin": ((13,), np.sin),
    "cos": ((13,), np.cos),
}


def _start(operation, lid_0, lid_1, number, position):
    item, odd = lid_0 + 16 * lid_1, (lid_0 + lid_1) % 2
    sign = 1 - 2 * odd
    if operation in {"add", "madd"}:
        return [item + 1, item, 0 * item - 1, -item - 1, -item, 0 * item + 1][position % 6]
    if operation == "mul":
        return [sign, -sign, 0 * item + 1, sign, 0 * item + 1][position % 5]
    if operation == "div":
        b, a = 8.0 + 0 * item, np.where(odd, 4.0, 2.0)
        return [a, b, b / a, 1 / a, 1 / b, a / b][position % 6]
    first = {"bit": 0, "shift": 0, "cos": 0, "exp": 0}.get(operation, 1)
    return (item + number + first) % 37 if operation == "exp" else item + number + first


def _repeated(operation, x, rounds, offsets=None):
    own, function = UPDATES[operation]
    for _ in range(rounds):
        for v in range(len(x)):
            x[v] = function(*(x[(v - back) % len(x)] for back in offsets or own))
    return x


def _places(rows, columns):
    j, i = np.meshgrid(np.arange(rows) % 16, np.arange(columns) % 16, indexing="ij")
    return i, j


def _expected(operation, dtype, nvars, m, shape=(SIDE, SIDE)):
    x = [np.asarray(_start(operation, *_places(*shape), v, v)).astype(dtype) for v in range(nvars)]
    return _repeated(operation, x, m)


def _rolled(kernel):
    """The kernel's loops without unrolling, which builds in a tenth of the time."""
    if "k_inner" not in kernel.default_entrypoint.all_inames():
        return kernel
    return kernel.with_kernel(lp.untag_inames(kernel.default_entrypoint, "k_inner", UnrollTag))


def _check(result, expected, dtype):
    if np.dtype(dtype).kind == "i":
        np.testing.assert_array_equal(result, expected)
    else:
        # Sums of sines nearly cancel in places.
        tolerance = 1e-12 if dtype == "float64" else 2e-5
        np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("operation", "dtype", "nvars", "m"),
    [
        ("div", "float32", 16, 64),
        ("div", "float64", 32, 128),
        ("sqrt", "float64", 16, 64),
        ("rsqrt", "float32", 32, 2),
        ("rsqrt", "float64", 16, 7),
        ("exp", "float32", 32, 3),
        ("exp", "float64", 16, 1),
        ("sin", "float32", 16, 3),
        ("sin", "float64", 32, 3),
        ("cos", "float32", 32, 1),
        ("cos", "float64", 16, 3),
    ],
)
def test_floating_point_patterns(one, run, operation, dtype, nvars, m):
    kernel = one(
        f"flops_{operation}_pattern", f"dtype:{dtype}", "groups_fit:True", f"lid_stride_1:{SIDE}", f"nvars:{nvars}",
        f"nelements:{SIDE * SIDE}", f"m:{m}",
    )  # fmt: skip
    result = run(_rolled(kernel.kernel), kernel.sizes).reshape(SIDE, SIDE)
    total = sum(_expected(operation, "float64", nvars, m))
    _check(result, total, dtype)


@pytest.mark.parametrize(
    ("operation", "dtype", "nvars"),
    [
        ("add", "int32", 16),
        ("mul", "int32", 32),
        ("madd", "int32", 16),
        ("bit", "int32", 32),
        ("bit", "int64", 16),
        ("shift", "int64", 16),
        ("shift", "int32", 16),
    ],
)
def test_integer_patterns(one, run, operation, dtype, nvars):
    kernel = one(
        f"iops_{operation}_pattern", f"dtype:{dtype}", "groups_fit:True", f"lid_stride_1:{SIDE}", f"nvars:{nvars}",
        f"nelements:{SIDE * SIDE}", "m:64",
    )  # fmt: skip
    result = run(_rolled(kernel.kernel), kernel.sizes).reshape(SIDE, SIDE)
    assert result.dtype == dtype
    _check(result, sum(_expected(operation, dtype, nvars, 64)), dtype)


def test_an_unrolled_pattern(one, run):
    kernel = one(
        "flops_div_pattern", "dtype:float32", "groups_fit:True", f"lid_stride_1:{SIDE}", "nvars:16",
        f"nelements:{SIDE * SIDE}", "m:128",
    )  # fmt: skip
    result = run(kernel.kernel, kernel.sizes).reshape(SIDE, SIDE)
    expected = sum(_expected("div", "float32", 16, 128))
    assert len(np.unique(expected)) == 2
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("name", ["flops_div_pattern", "iops_bit_pattern", "flops_exp_pattern"])
def test_patterns_guard_the_remainder(one, run, name):
    dtype = "int32" if name.startswith("iops") else "float64"
    kernel = one(
        name, f"dtype:{dtype}", "groups_fit:False", "lid_stride_1:40", "nvars:16", "nelements:830", "m:64"
    )  # fmt: skip
    result = run(_rolled(kernel.kernel), kernel.sizes)
    assert (result[800:] == -77).all()
    operation = name.split("_")[1]
    _check(result[:800].reshape(20, 40), sum(_expected(operation, dtype, 16, 64, (20, 40))), dtype)


@pytest.mark.parametrize("operation", [name for name in UPDATES if name not in {"bit", "shift"}])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values_stay_harmless_for_any_number_of_iterations(operation, dtype):
    item = np.arange(1024)
    x = [np.asarray(_start(operation, item % 16, item // 16, v, v)).astype(dtype) for v in range(32)]
    with np.errstate(all="raise"):
        for _ in range(4):
            x = _repeated(operation, x, 250)
            magnitudes = np.abs(x)
            assert ((magnitudes == 0) | (magnitudes > 1e-5)).all()
            assert magnitudes.max() <= 1024


def test_integers_do_not_overflow():
    item = np.arange(1024)
    for operation in ("add", "mul", "madd", "bit"):
        x = [np.asarray(_start(operation, item % 16, item // 16, v, v)).astype(np.int64) for v in range(32)]
        for _ in range(10):
            x = _repeated(operation, x, 50)
            assert np.abs(x).max() < 2048
