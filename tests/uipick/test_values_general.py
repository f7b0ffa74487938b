"""Operations in chains, grids, sums in loops, gathers and exchanges: results, and the features they are made for."""

from __future__ import annotations

from itertools import cycle

import numpy as np
import pytest

from perflex.errors import TagError
from perflex.features import Target, extract_scop, parse_feature

# Values of many variants against numpy; some of each kind stand in test_generator_values.py, which is quick.
pytestmark = pytest.mark.slow

FLOATS = {
    "add": lambda x: 1 - x,
    "mul": lambda x: x,
    "madd": lambda x: x + 1,
    "div": lambda x: 0.5 / x,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "pow": np.sqrt,
    "exp": lambda x: np.exp(-x),
    "log": lambda x: np.log(x + 2),
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "min": lambda x: np.minimum(1 - x, 0.5),
    "max": lambda x: np.maximum(1 - x, 0.5),
    "abs": lambda x: np.abs(x - 1),
}
INTS = {
    "mul": lambda x: x,
    "madd": lambda x: x + 1,
    "floordiv": lambda x: 1000000 // x,
    "mod": lambda x: (x + 1000000) % 997,
}


def _value(kernel, identifier, sub_group_size=1):
    return parse_feature(identifier).value(extract_scop(kernel.kernel), kernel.sizes, Target(sub_group_size))


@pytest.mark.parametrize(
    ("operation", "dtype"),
    [
        *zip(FLOATS, cycle(("float32", "float64"))),
        *zip(INTS, cycle(("int32", "int64"))),
    ],
)
def test_op_chain(one, run, operation, dtype):
    kernel = one(
        "op_chain", f"operation:{operation}", f"dtype:{dtype}", "lsize_0:8", "chains:3", "nitems:16", "m:5"
    )  # fmt: skip
    values = 1 + np.arange(16)[:, None] % 997 + np.arange(3)
    step = (INTS if dtype.startswith("int") else FLOATS)[operation]
    values = values.astype(dtype)
    for _ in range(5):
        values = step(values)
    np.testing.assert_allclose(run(kernel.kernel, kernel.sizes), values.sum(axis=1), rtol=1e-4)
    longer = one(
        "op_chain", f"operation:{operation}", f"dtype:{dtype}", "lsize_0:8", "chains:3", "nitems:16", "m:9"
    )  # fmt: skip
    feature = f"f_op_{dtype}_{operation}"
    assert _value(longer, feature) - _value(kernel, feature) == 4 * 3 * 16
    assert _value(kernel, "f_mem_access_tag:resST") == 16


def test_values_of_chains_stay_harmless():
    """Denormal, infinite or undefined values would take another time than usual ones."""
    for name, step in FLOATS.items():
        values = np.arange(1.0, 1002.0)
        for _ in range(300):
            values = step(values)
        assert np.isfinite(values).all(), name
        assert (np.abs(values[values != 0]) > 1e-30).all(), name


MAPS = {
    "madd": lambda x, y: x * y + x,
    "div": lambda x, y: x / y,
    "sqrt": lambda x, _: np.sqrt(x),
    "rsqrt": lambda x, _: 1 / np.sqrt(x),
    "pow": lambda x, y: x**y,
    "exp": lambda x, _: np.exp(x),
    "log": lambda x, _: np.log(x),
    "sin": lambda x, _: np.sin(x),
    "cos": lambda x, _: np.cos(x),
    "tanh": lambda x, _: np.tanh(x),
    "min": np.minimum,
    "max": np.maximum,
    "abs": lambda x, _: np.abs(x),
}


@pytest.mark.parametrize("operation", MAPS)
def test_op_map(one, run, random, operation):
    # Logarithms are taken of positive numbers once.
    applied = 1 if operation == "log" else 2
    kernel = one(
        "op_map", f"operation:{operation}", f"applied:{applied}", "dtype:float64", "lsize_0:8", "nitems:24"
    )  # fmt: skip
    x, y = 0.5 + random.random((2, 24))
    expected = x
    for _ in range(applied):
        expected = MAPS[operation](expected, y)
    arrays = {"x": x, "y": y} if operation in {"madd", "div", "pow", "min", "max"} else {"x": x}
    np.testing.assert_allclose(run(kernel.kernel, kernel.sizes, **arrays), expected, rtol=1e-10)
    assert _value(kernel, f"f_op_float64_{operation}") == applied * 24
    assert _value(kernel, "f_mem_access_global_float64_lstrides:{0:1}") == (len(arrays) + 1) * 24


@pytest.mark.parametrize("store", ["stream", "update"])
@pytest.mark.parametrize(
    ("along", "arrays", "lsize", "shape"),
    [
        ("rows", 1, (4, 2), (6, 8)),
        ("rows", 3, (16, 1), (5, 32)),
        ("columns", 2, (2, 4), (6, 8)),
        ("columns", 1, (8, 8), (24, 16)),
    ],
)
def test_grid_scale(one, run, random, store, along, arrays, lsize, shape):
    kernel = one(
        "grid_scale", f"store:{store}", f"along:{along}", f"n_arrays:{arrays}", "dtype:float64", f"lsize_0:{lsize[0]}",
        f"lsize_1:{lsize[1]}", f"nx:{shape[1]}", f"ny:{shape[0]}",
    )  # fmt: skip
    inputs = {f"u{number}": random.random(shape) for number in range(arrays)}
    if store == "update":
        # The output array is -77 before the kernel runs.
        inputs["u0"] = np.full(shape, -77.0)
    expected = 0.5 * sum(inputs.values())
    given = {name: value for name, value in inputs.items() if store == "stream" or name != "u0"}
    np.testing.assert_allclose(run(kernel.kernel, kernel.sizes, **given), expected, rtol=1e-12)
    points = shape[0] * shape[1]
    own = 1 if along == "rows" else shape[1]
    assert _value(kernel, f"f_mem_access_global_float64_load_lstrides:{{0:{own}}}") == arrays * points
    assert _value(kernel, "f_mem_access_tag:u0LD") == _value(kernel, "f_mem_access_tag:vST") == points


@pytest.mark.parametrize("sum_in", ["private", "global"])
@pytest.mark.parametrize("factor", ["item", "loop"])
@pytest.mark.parametrize("layout", ["columns", "rows"])
def test_loop_sum(one, run, random, layout, sum_in, factor):
    kernel = one(
        "loop_sum", f"layout:{layout}", f"sum_in:{sum_in}", f"factor:{factor}", "dtype:float64", "lsize_0:8",
        "nitems:24", "m:5",
    )  # fmt: skip
    a = random.random((5, 24) if layout == "columns" else (24, 5))
    s = random.random(24 if factor == "item" else 5)
    by_item = a if layout == "columns" else a.T
    # The output array is -77 before the kernel runs.
    expected = -77 + (by_item * (s if factor == "item" else s[:, None])).sum(axis=0)
    np.testing.assert_allclose(run(kernel.kernel, kernel.sizes, a=a, s=s), expected, rtol=1e-12)
    stride = 1 if layout == "columns" else 5
    assert _value(kernel, f"f_mem_access_global_float64_load_lstrides:{{0:{stride}}}") >= 24 * 5
    assert _value(kernel, "f_mem_access_tag:yST") == 24 * (5 if sum_in == "global" else 1)
    assert _value(kernel, "f_op_float64_madd") == 24 * 5


@pytest.mark.parametrize(("spread", "step", "window"), [(1, 33, 64), (17, 3, 50)])
def test_gmem_gather(one, run, random, spread, step, window):
    kernel = one(
        "gmem_gather", f"spread:{spread}", f"step:{step}", f"window:{window}", "dtype:float64", "lsize_0:8",
        "nitems:24", "m:5",
    )  # fmt: skip
    source = random.random(window)
    places = (spread * np.arange(24)[:, None] + step * np.arange(5)) % window
    np.testing.assert_allclose(run(kernel.kernel, kernel.sizes, in0=source), source[places].sum(axis=1), rtol=1e-12)
    assert _value(kernel, "f_mem_access_tag:inLD") == 24 * 5


@pytest.mark.parametrize(("nvars", "halo", "lsize"), [(1, 1, 8), (3, 2, 8), (2, 16, 16)])
def test_lmem_exchange(one, run, nvars, halo, lsize):
    kernel = one(
        "lmem_exchange", f"nvars:{nvars}", f"halo:{halo}", "dtype:float64", f"lsize_0:{lsize}", "ngroups:3", "m:5"
    )  # fmt: skip
    values = np.arange(lsize)[:, None] + np.arange(nvars, dtype=np.float64)
    tile = np.zeros(lsize + halo)
    tile[halo:] = values[:, 0]
    for _ in range(5):
        tile[:lsize] = values[:, 0]
        values = tile[halo:, None] + values
    expected = np.broadcast_to(values.sum(axis=1), (3, lsize))
    np.testing.assert_array_equal(run(kernel.kernel, kernel.sizes), expected)
    assert _value(kernel, "f_sync_barrier_local") == 2 * 5 + 1
    assert _value(kernel, "f_mem_access_tag:xLD") == 3 * lsize * 5


@pytest.mark.parametrize(
    ("tags", "words"),
    [
        (["op_chain", "operation:exp", "dtype:int32"], "integers have the operations mul"),
        (["op_chain", "lsize_0:48"], "nitems must be a multiple of lsize_0"),
        (["op_map", "lsize_0:48"], "nitems must be a multiple of lsize_0"),
        (["loop_sum", "lsize_0:48"], "nitems must be a multiple of lsize_0"),
        (["gmem_gather", "lsize_0:48"], "nitems must be a multiple of lsize_0"),
        (["lmem_exchange", "halo:8", "lsize_0:4"], "halo may be at most lsize_0"),
        (["grid_scale", "lsize_0:48", "along:rows"], "multiples of lsize_0"),
    ],
)
def test_bad_values_are_refused_with_the_cause(one, tags, words):
    with pytest.raises(TagError, match=words):
        one(*tags)
