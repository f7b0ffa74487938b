"""Local memory loads, launches and work-groups: results on every platform, and the features they are made for."""

from __future__ import annotations

import numpy as np
import pytest

from perflex.errors import TagError
from perflex.features import Target, extract_scop, parse_feature
from support.building import built


def _value(kernel, identifier, sub_group_size=1):
    return parse_feature(identifier).value(extract_scop(kernel.kernel), kernel.sizes, Target(sub_group_size))


@pytest.mark.parametrize(
    ("dtype", "lsize", "stride", "chains", "m", "sizes"),
    [
        ("float32", 64, 1, 2, 32, (2, 8)),
        ("float32", 64, 32, 2, 12, (3, 2)),
        ("float64", 16, 3, 1, 21, (3, 7)),
        ("float64", 100, 5, 3, 9, (3, 1)),
    ],
)
def test_lmem_load(one, run, dtype, lsize, stride, chains, m, sizes):
    kernel = one(
        "lmem_load", f"dtype:{dtype}", f"lsize_0:{lsize}", f"lid_stride_0:{stride}", f"chains:{chains}", "ngroups:3",
        f"m:{m}",
    )  # fmt: skip
    outer, inner = kernel.sizes["m_outer"], kernel.sizes["m_inner"]
    assert (outer, inner) == sizes
    contents = np.arange(inner)[:, None] + np.arange(chains) + 1
    expected = chains * np.arange(lsize) + outer * contents.sum() + np.zeros((3, 1))
    np.testing.assert_array_equal(run(kernel.kernel, kernel.sizes), expected)
    assert _value(kernel, f"f_mem_access_local_{dtype}_load_lstrides:{{0:{stride}}}") == m * lsize * 3
    assert _value(kernel, f"f_mem_access_local_{dtype}_store_lstrides:{{0:{stride}}}") == inner * chains * lsize * 3
    assert _value(kernel, f"f_op_{dtype}_add") == (m + chains - 1) * lsize * 3


@pytest.mark.parametrize(
    ("lsize", "chains", "m", "sizes"), [(64, 2, 32, (2, 8)), (16, 3, 30, (2, 5)), (7, 1, 10, (2, 5))]
)
def test_lmem_broadcast(one, run, lsize, chains, m, sizes):
    kernel = one("lmem_broadcast", "dtype:float32", f"lsize_0:{lsize}", f"chains:{chains}", "ngroups:3", f"m:{m}")
    outer, inner = kernel.sizes["m_outer"], kernel.sizes["m_inner"]
    assert (outer, inner) == sizes
    expected = chains * np.arange(lsize) + outer * np.arange(inner * chains).sum() + np.zeros((3, 1))
    np.testing.assert_array_equal(run(kernel.kernel, kernel.sizes), expected)
    assert _value(kernel, "f_mem_access_local_float32_load_lstrides:{0:0}", lsize) == m * 3
    assert _value(kernel, "f_sync_barrier_local") == 1


@pytest.mark.parametrize("stages", [1, 2, 5])
def test_launches(one, run, stages):
    kernel = one("launches", "dtype:float64", "lsize_0:16", f"stages:{stages}", "ngroups:3")
    expected = np.broadcast_to(np.arange(48).reshape(3, 16), (stages, 3, 16))
    np.testing.assert_array_equal(run(kernel.kernel, kernel.sizes), expected)
    assert _value(kernel, "f_sync_kernel_launch") == stages


@pytest.mark.parametrize(("lsize", "items"), [(1, 33), (4, 64), (64, 128), (5, 5)])
def test_small_groups(one, run, lsize, items):
    kernel = one("small_groups", "dtype:float32", f"lsize_0:{lsize}", f"nitems:{items}")
    np.testing.assert_array_equal(run(kernel.kernel, kernel.sizes), np.arange(items))
    assert _value(kernel, "f_thread_groups") == items // lsize
    assert _value(kernel, "f_mem_access_tag:resST") == items


def test_barriers_vary_and_nothing_else_does(one):
    counts = []
    for m in (64, 128, 192):
        kernel = one("barrier_local", "dtype:float32", f"m:{m}", "nelements:524288")
        counts.append(
            [_value(kernel, f) for f in ("f_sync_barrier_local", "f_mem_access_tag:resST", "f_thread_groups")]
        )
    assert counts == [[m, 524288, 2048] for m in (64, 128, 192)]


def test_programs_of_several_launches_can_be_timed(one, default_device):
    from perflex.timing.launch.opencl import OpenCLBackend

    backend = OpenCLBackend(default_device)
    kernel = one("launches", "dtype:float32", "stages:2", "ngroups:16")
    runnable = built(backend, kernel.kernel, dict(kernel.sizes), kernel.name)
    assert all(time > 0 for time in runnable.run(3))
    assert runnable.read("result")[-1] == 16 * 256 - 1
    backend.close()


@pytest.mark.parametrize(
    ("tags", "words"),
    [
        (["lmem_load", "lsize_0:256", "lid_stride_0:32", "dtype:float32"], "must fit in 32 KiB"),
        (["lmem_load", "m:7"], "m must be a multiple of chains"),
        (["lmem_broadcast", "lsize_0:2", "chains:2"], "at least twice chains"),
        (["launches", "stages:17"], "integers from 1 to 16"),
        (["small_groups", "nitems:100", "lsize_0:16"], "multiple of lsize_0"),
        (["small_groups", "lsize_0:2048"], "integers from 1 to 1024"),
    ],
)
def test_bad_values_are_refused_with_the_cause(one, tags, words):
    with pytest.raises(TagError, match=words):
        one(*tags)
