"""A slab writes what its work-groups write in the whole launch, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import loopy as lp
import numpy as np
import pytest

from perflex.errors import MeasurementError
from perflex.features import SizedKernel
from perflex.timing.launch.backend import backend_of
from perflex.timing.launch.plan import plan_launch
from perflex.timing.launch.request import launch_request
from perflex.timing.launch.sizes import Grid
from perflex.timing.launch.slabs import Slab, code_for_slabs, slab_around, spread_slabs
from support.cuda_for_tests import fake_cupy, fake_gpu
from support.launched_kernels import two_programs

if TYPE_CHECKING:
    from perflex import Device

__all__ = ["fake_cupy", "fake_gpu"]

VERSION = (2018, 2)
SIZES = {"n": 96, "m": 40}


def plane(**options: Any) -> lp.TranslationUnit:
    """Six by ten work-groups of 16 by 4, each element its own value."""
    kernel = lp.make_kernel(
        "{[i,j]: 0<=i<n and 0<=j<m}",
        "c[j,i] = a[j,i] + 2*i + 100*j",
        [lp.GlobalArg("a,c", np.float32, shape="m,n"), lp.ValueArg("n,m", np.int32)],
        assumptions="n>=16 and n mod 16 = 0 and m>=4 and m mod 4 = 0",
        lang_version=VERSION,
        name="plane",
        **options,
    )
    kernel = lp.split_iname(kernel, "i", 16, outer_tag="g.0", inner_tag="l.0")
    return lp.split_iname(kernel, "j", 4, outer_tag="g.1", inner_tag="l.1")


def updated() -> lp.TranslationUnit:
    """Work-groups of 8 that count up in place."""
    kernel = lp.make_kernel("{[i]: 0<=i<n}", "a[i] = a[i] + 1", assumptions="n>=1", lang_version=VERSION, name="up")
    kernel = lp.add_dtypes(kernel, {"a": np.float32})
    return lp.split_iname(kernel, "i", 8, outer_tag="g.0", inner_tag="l.0")


def in_slabs(device: Device, kernel: Any, sizes: dict[str, int]) -> tuple[Any, Any]:
    backend = backend_of(device)
    return backend, backend.build(launch_request(SizedKernel(kernel, sizes, "x"), device, in_slabs=True))


def check_plane(device: Device) -> None:
    backend, kernel = in_slabs(device, plane(), SIZES)
    a, before = (kernel.read(name).reshape(40, 96) for name in "ac")
    times = kernel.run_slabs([Slab(0, (2, 3), (3, 2)), Slab(0, (0, 9), (6, 1))])
    assert len(times) == 2
    expected = before.copy()
    j, i = np.mgrid[:40, :96]
    values = a + 2 * i + 100 * j
    for rows, columns in ((slice(12, 20), slice(32, 80)), (slice(36, 40), slice(0, 96))):
        expected[rows, columns] = values[rows, columns]
    np.testing.assert_allclose(kernel.read("c").reshape(40, 96), expected, rtol=1e-6)
    kernel.run(1)
    np.testing.assert_allclose(kernel.read("c").reshape(40, 96), values, rtol=1e-6)
    backend.close()


@pytest.mark.device
def test_a_slab_writes_what_its_groups_write(real_devices: list[Device]) -> None:
    for device in real_devices:
        check_plane(device)


def test_a_slab_writes_what_its_groups_write_through_cuda(fake_gpu: Device) -> None:
    check_plane(fake_gpu)


@pytest.mark.device
def test_updated_arrays_are_restored_before_the_first_slab_only(default_device: Device) -> None:
    backend, kernel = in_slabs(default_device, updated(), {"n": 64})
    kernel.run_slabs([Slab(0, (7,), (1,))])
    first = kernel.read("a")
    kernel.run_slabs([Slab(0, (1,), (2,)), Slab(0, (2,), (1,))])
    counted = kernel.read("a") - np.concatenate([first[:56], first[56:] - 1])
    np.testing.assert_allclose(counted, [0] * 8 + [1] * 8 + [2] * 8 + [0] * 40, atol=1e-6)
    backend.close()


@pytest.mark.device
def test_each_device_program_has_slabs_of_its_own(default_device: Device) -> None:
    backend, kernel = in_slabs(default_device, two_programs(), {"n": 128})
    before = kernel.read("b")
    kernel.run_slabs([Slab(0, (0,), (4,)), Slab(1, (1,), (1,))])
    a, b = kernel.read("a"), kernel.read("b")
    np.testing.assert_allclose(b[32:64], (0.5 * (a + a[::-1]))[32:64], rtol=1e-6)
    np.testing.assert_array_equal(np.delete(b, range(32, 64)), np.delete(before, range(32, 64)))
    backend.close()


@pytest.mark.parametrize(
    ("centre", "count", "first", "groups"),
    [
        ((0, 0, 0), 1, (0, 0, 0), (1, 1, 1)),
        ((0.99, 0.3, 0.1), 3, (2, 0, 0), (3, 1, 1)),  # the box moves back into the row
        ((0.5, 0.5, 0.5), 1, (2, 1, 1), (1, 1, 1)),
        ((0.9, 0.9, 0.2), 12, (0, 2, 0), (5, 2, 1)),  # whole rows
        ((0.5, 0.1, 0.9), 45, (0, 0, 1), (5, 4, 2)),  # whole planes
        ((0.5, 0.5, 0.5), 1000, (0, 0, 0), (5, 4, 3)),
    ],
)
def test_a_slab_is_a_box_that_fits(
    centre: tuple[float, ...], count: int, first: tuple[int, ...], groups: tuple[int, ...]
) -> None:
    found = slab_around(0, Grid((5, 4, 3), (1, 1, 1)), centre, count)
    assert (found.first, found.groups) == (first, groups)
    assert found.count == np.prod(groups)


@pytest.mark.parametrize("slabs", range(3, 9))
def test_slabs_lie_once_in_each_part_of_each_axis(slabs: int) -> None:
    chosen = spread_slabs(0, Grid((840, 840, 840), (1, 1, 1)), slabs, 1)
    parts = [[slab.first[axis] * slabs // 840 for slab in chosen] for axis in range(3)]
    for axis in parts:
        assert sorted(axis) == list(range(slabs))
    # No axis goes with another: not as long as there are more than a few.
    if slabs > 3:
        for one, other in ((0, 1), (0, 2), (1, 2)):
            assert abs(np.corrcoef(parts[one], parts[other])[0, 1]) < 0.7


@pytest.mark.parametrize("index_dtype", [np.int32, np.int64])
def test_code_keeps_all_but_the_group_id(index_dtype: Any) -> None:
    source = plan_launch(plane(index_dtype=index_dtype)).source
    code = code_for_slabs(source, "opencl", "x")
    assert "get_group_id(N) + perflex_first_##N)" in code
    assert "int const m, int const perflex_first_0, int const perflex_first_1, int const perflex_first_2)" in code
    assert code.partition("{")[2] == source.partition("{")[2]


def test_names_that_only_look_like_the_grids_are_no_matter() -> None:
    source = "__kernel void f(__global float *get_global_x) { get_global_x[0] = 1; }"
    assert "int const perflex_first_2) {" in code_for_slabs(source, "opencl", "f1")


def test_code_that_asks_for_the_grid_is_refused() -> None:
    source = "__kernel void f(__global float *a) { a[get_global_id(0)] = get_num_groups(0); }"
    with pytest.raises(MeasurementError, match="f1: its code asks for the extent of its grid"):
        code_for_slabs(source, "opencl", "f1")
    with pytest.raises(MeasurementError, match="extent"):
        code_for_slabs('extern "C" __global__ void f(int n) { n = gridDim.x; }', "cuda", "f1")
