"""Global memory patterns against numpy on every platform, and the features they are made for."""

from __future__ import annotations

import numpy as np
import pytest

from perflex.errors import TagError
from perflex.features import Target, extract_scop, parse_feature

# Values of many variants against numpy; some of each kind stand in test_generator_values.py, which is quick.
pytestmark = pytest.mark.slow


def _value(kernel, identifier, sub_group_size=1):
    return parse_feature(identifier).value(extract_scop(kernel.kernel), kernel.sizes, Target(sub_group_size))


def _close(result, expected):
    tolerance = 1e-12 if result.dtype == np.float64 else 1e-5
    np.testing.assert_allclose(result, expected, rtol=tolerance)


@pytest.mark.parametrize(
    ("dtype", "lsize", "stride", "chains", "m", "items"),
    [
        ("float32", 64, 1, 4, 16, 192),
        ("float64", 16, 32, 1, 3, 48),
        ("float32", 16, 2, 16, 16, 32),
        ("float64", 7, 5, 2, 4, 21),
    ],
)
def test_gmem_load(one, run, random, dtype, lsize, stride, chains, m, items):
    kernel = one(
        "gmem_load", f"dtype:{dtype}", f"lsize_0:{lsize}", f"lid_stride_0:{stride}", f"chains:{chains}",
        f"nelements:{m * stride * items}", f"m:{m}",
    )  # fmt: skip
    source = random.random((m // chains, chains, items, stride)).astype(dtype)
    _close(run(kernel.kernel, kernel.sizes, in0=source), source[..., 0].sum(axis=(0, 1)))
    assert _value(kernel, f"f_mem_access_global_{dtype}_load_lstrides:{{0:{stride}}}_afr:1") == m * items
    assert _value(kernel, "f_mem_access_tag:inLD") == m * items
    assert _value(kernel, f"f_mem_access_global_{dtype}_store_lstrides:{{0:1}}") == items
    assert _value(kernel, f"f_op_{dtype}_add") == (m + chains - 1) * items


@pytest.mark.parametrize(
    ("dtype", "lsize", "stride", "m", "items"),
    [("float32", 64, 1, 4, 128), ("float64", 16, 32, 1, 32), ("float32", 7, 3, 2, 21), ("float64", 16, 2, 3, 16)],
)
def test_gmem_store(one, run, dtype, lsize, stride, m, items):
    kernel = one(
        "gmem_store", f"dtype:{dtype}", f"lsize_0:{lsize}", f"lid_stride_0:{stride}",
        f"nelements:{m * stride * items}", f"m:{m}",
    )  # fmt: skip
    result = run(kernel.kernel, kernel.sizes)
    expected = np.full((m, items, stride), -77.0)
    expected[:, :, 0] = np.arange(items)
    np.testing.assert_array_equal(result, expected)
    assert _value(kernel, f"f_mem_access_global_{dtype}_store_lstrides:{{0:{stride}}}_afr:1") == m * items


@pytest.mark.parametrize("operation", ["copy", "scale", "add", "triad"])
@pytest.mark.parametrize(
    ("width", "fit", "nelements"), [(1, True, 512), (1, False, 501), (4, True, 512), (2, False, 74)]
)
def test_gmem_stream(one, run, random, operation, width, fit, nelements):
    kernel = one(
        f"gmem_{operation}", "dtype:float32", "lsize_0:64", f"width:{width}", f"groups_fit:{fit}",
        f"nelements:{nelements}",
    )  # fmt: skip
    shape = (nelements // width, width)[: 2 if width > 1 else 1]
    a, b = random.random((2, *shape)).astype(np.float32)
    expected = {"copy": a, "scale": 3 * a, "add": a + b, "triad": a + 3 * b}[operation]
    inputs = {"a": a, "b": b} if operation in {"add", "triad"} else {"a": a}
    _close(run(kernel.kernel, kernel.sizes, **inputs), expected)
    accesses = _value(kernel, f"f_mem_access_global_float32_lstrides:{{0:{width}}}_afr:1")
    assert accesses == (len(inputs) + 1) * nelements


@pytest.mark.parametrize("width", [8, 16])
def test_gmem_copy_of_long_vectors(one, run, random, width):
    kernel = one("gmem_copy", "dtype:float64", "lsize_0:4", f"width:{width}", "groups_fit:True", "nelements:512")
    a = random.random((512 // width, width))
    np.testing.assert_array_equal(run(kernel.kernel, kernel.sizes, a=a), a)


@pytest.mark.parametrize("by", ["groups", "items"])
@pytest.mark.parametrize(
    ("dtype", "lsize", "afr", "m", "items"),
    [("float32", 64, 4, 8, 128), ("float64", 16, 3, 4, 32), ("float32", 7, 64, 4, 21)],
)
def test_gmem_reuse(one, run, random, by, dtype, lsize, afr, m, items):
    kernel = one(
        "gmem_reuse", f"dtype:{dtype}", f"lsize_0:{lsize}", f"by:{by}", f"afr:{afr}",
        f"nelements:{m * items}", f"m:{m}",
    )  # fmt: skip
    source = random.random((m // 4, 4, items)).astype(dtype)
    expected = source.sum(axis=(0, 1)) + 4 * np.arange(afr)[:, None]  # four chains start at the place among the sharers
    _close(run(kernel.kernel, kernel.sizes, in0=source), expected)
    assert _value(kernel, f"f_mem_access_global_{dtype}_load_lstrides:{{0:1}}_afr:{afr}") == m * items * afr
    other = "gstrides:{1:0}" if by == "groups" else "lstrides:{1:0}"
    assert _value(kernel, f"f_mem_access_global_{dtype}_load_{other}") == m * items * afr


@pytest.mark.parametrize("by", ["launch", "groups"])
def test_gmem_uniform(one, run, random, by):
    kernel = one("gmem_uniform", "dtype:float32", "lsize_0:16", f"by:{by}", "chains:2", "ngroups:3", "m:8")
    source = random.random((3, 4, 2) if by == "groups" else (4, 2)).astype(np.float32)
    sums = source.sum(axis=(-2, -1))
    _close(
        run(kernel.kernel, kernel.sizes, in0=source),
        np.atleast_1d(sums)[:, None] + 2 * np.arange(16) + np.zeros((3, 1)),
    )
    # Uniform access is counted once per sub-group.
    assert _value(kernel, "f_mem_access_global_float32_load_lstrides:{0:0}", 16) == 8 * 3
    afr = 16 if by == "groups" else 48
    assert _value(kernel, f"f_mem_access_global_float32_load_lstrides:{{0:0}}_afr:{afr}", 16) == 8 * 3


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(("lsize", "stride", "chains", "rows", "m"), [(16, 1, 4, 3, 2), (64, 4, 1, 2, 5)])
def test_gmem_working_set(one, run, random, shared, lsize, stride, chains, rows, m):
    kernel = one(
        "gmem_working_set", "dtype:float64", f"lsize_0:{lsize}", f"lid_stride_0:{stride}", f"chains:{chains}",
        f"shared:{shared}", f"working_set:{lsize * stride * chains * rows}", "ngroups:3", f"m:{m}",
    )  # fmt: skip
    shape = (rows, chains, lsize, stride)
    source = random.random(shape if shared else (3, *shape))
    sums = source[..., 0].sum(axis=(-3, -2))
    expected = m * np.broadcast_to(sums, (3, lsize)) + chains * np.arange(lsize)
    _close(run(kernel.kernel, kernel.sizes, in0=source), expected)
    loads = 3 * lsize * chains * rows * m
    sharing = m * (3 if shared else 1)
    assert _value(kernel, f"f_mem_access_global_float64_load_lstrides:{{0:{stride}}}_afr:{sharing}") == loads
    assert _value(kernel, "f_sync_barrier_local") == m


@pytest.mark.parametrize("stride", [1, 2, 4, 8, 16, 32])
def test_gmem_pattern_has_the_strides_it_is_asked_for(one, stride):
    kernel = one(
        "gmem_pattern", "dtype:float32", "groups_fit:True", "n_arrays:1", f"lid_stride_0:{stride}", "nelements:65536"
    )
    identifier = f"f_mem_access_global_float32_load_lstrides:{{0:{stride};1:2048}}_gstrides:{{0:{16 * stride}}}_afr:1"
    assert _value(kernel, identifier) == 65536 // stride


@pytest.mark.parametrize(
    ("tags", "words"),
    [
        (["gmem_load", "lid_stride_0:33"], "integers from 1 to 32"),
        (["gmem_load", "m:6"], "m must be a multiple of chains"),
        (["gmem_load", "m:16", "lid_stride_0:32", "nelements:1000"], "multiple of m times lid_stride_0"),
        (["gmem_load", "groups_fit:False"], "not allowed"),
        (["gmem_store", "m:4", "lid_stride_0:1", "nelements:516"], "multiple of lsize_0 times m"),
        (["gmem_copy", "width:3"], "allowed are"),
        (["gmem_copy", "width:4", "nelements:1022", "groups_fit:False"], "multiple of width"),
        (["gmem_reuse", "by:items", "afr:16", "lsize_0:256"], "at most 1024"),
        (["gmem_reuse", "afr:1"], "integers from 2 to 1024"),
        (["gmem_uniform", "m:6"], "multiple of chains"),
        (["gmem_working_set", "working_set:1000"], "multiple of lsize_0 times lid_stride_0 times chains"),
        (["gmem_working_set", "groups_fit:False"], "not allowed"),
    ],
)
def test_bad_values_are_refused_with_the_cause(one, tags, words):
    with pytest.raises(TagError, match=words):
        one(*tags)
