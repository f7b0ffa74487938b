"""Short launches on a device whose law is known: what they predict, what that costs, and what cannot be probed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import loopy as lp
import numpy as np
import pytest

from perflex import ShortLauncher, TimingOptions, find_device, probe_kernel
from perflex.errors import MeasurementError, MissingSizeError
from perflex.testing import FakeDevice
from perflex.timing.short_launch import near_cache_bytes
from support.launched_kernels import two_programs
from support.slab_device import SlabDevice, SlabKernel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from perflex import Device
    from perflex.timing.launch.slabs import Slab


VERSION = (2018, 2)


def vector(body: str = "b[i] = 2*a[i]") -> lp.TranslationUnit:
    kernel = lp.make_kernel("{[i]: 0<=i<n}", body, assumptions="n>=1", lang_version=VERSION, name="vector")
    kernel = lp.add_dtypes(kernel, {"a": np.float32, "b": np.float32} if "b[" in body else {"a": np.float32})
    return lp.split_iname(kernel, "i", 32, outer_tag="g.0", inner_tag="l.0")


def plane() -> lp.TranslationUnit:
    kernel = lp.make_kernel(
        "{[i,j]: 0<=i,j<n}", "b[j,i] = 2*a[j,i]", assumptions="n>=1", lang_version=VERSION, name="plane"
    )
    kernel = lp.add_dtypes(kernel, {"a": np.float32, "b": np.float32})
    kernel = lp.split_iname(kernel, "i", 32, outer_tag="g.0", inner_tag="l.0")
    return lp.split_iname(kernel, "j", 8, outer_tag="g.1", inner_tag="l.1")


def truth(device: SlabDevice, groups: int) -> float:
    """Return the time of a whole launch in repeated ones."""
    return device.START_S + sum(device.law(number, False) for number in range(groups)) / device.compute_units


GROUPS = 4096


def test_even_work_is_known_to_a_percent_at_a_fraction_of_the_cost() -> None:
    device = SlabDevice(lambda _number, cold: 2e-5 * (1.5 if cold else 1.0))
    probe = probe_kernel(vector(), {"n": 32 * GROUPS}, device)
    assert probe.seconds == pytest.approx(truth(device, GROUPS), rel=0.02)
    assert probe.scaled_s == pytest.approx(truth(device, GROUPS), rel=0.03)
    assert probe.knowledge == "short launch"
    assert probe.device_s < 0.4 * truth(device, GROUPS)
    assert 0 < probe.groups < 0.4
    assert probe.cost_s > 0
    assert probe.launches == sum(device.restored)


@pytest.mark.parametrize("kernel", [vector, plane])
def test_groups_that_work_more_and_more_are_averaged(kernel: Callable[[], Any]) -> None:
    device = SlabDevice(lambda number, _cold: 1e-8 * number)
    sizes = {"n": 32 * GROUPS} if kernel is vector else {"n": 1024}
    groups = GROUPS if kernel is vector else 32 * 128
    probe = probe_kernel(kernel(), sizes, device)
    assert probe.seconds == pytest.approx(truth(device, groups), rel=0.03)
    assert probe.knowledge == "short launch"


@pytest.mark.parametrize("axis", [0, 1])
def test_groups_that_work_more_and_more_along_an_axis_are_averaged(axis: int) -> None:
    # So long groups that slabs are parts of rows; the grid is 32 by 128 work-groups.
    def law(number: int, _cold: bool) -> float:
        return 1e-5 * (4 * (number % 32) if axis == 0 else number // 32)

    device = SlabDevice(law)
    probe = probe_kernel(plane(), {"n": 1024}, device)
    assert probe.knowledge == "short launch"
    assert probe.seconds == pytest.approx(truth(device, 4096), rel=0.05)


def test_parts_of_the_grid_that_take_no_time_by_the_timer_count() -> None:
    class Coarse(SlabDevice):
        START_S = 0.0

    device = Coarse(lambda number, _cold: 4e-5 if number >= GROUPS // 4 else 0.0)
    probe = probe_kernel(vector(), {"n": 32 * GROUPS}, device)
    assert (probe.knowledge, probe.seconds) == ("short launch", pytest.approx(truth(device, GROUPS), rel=0.05))


def test_data_that_do_not_fit_come_from_between() -> None:
    device = SlabDevice(lambda _number, cold: 2e-6 * (4.0 if cold else 1.0))
    fits, exceeds = (near_cache_bytes(device) * factor for factor in (1, 8))
    # Two arrays of four bytes an element, 32 elements a group.
    small, large = (probe_kernel(vector(), {"n": held // 8}, device) for held in (fits, exceeds))
    assert small.seconds == pytest.approx(truth(device, fits // 256), rel=0.05)
    assert large.seconds == pytest.approx(2 * truth(device, exceeds // 256), rel=0.05)


def test_a_short_launch_runs_whole() -> None:
    device = SlabDevice(lambda _number, _cold: 1e-7)
    probe = probe_kernel(vector(), {"n": 32 * 64}, device)
    assert probe.knowledge == "timing"
    assert probe.seconds == pytest.approx(truth(device, 64), rel=1e-6)


def test_few_long_groups_run_whole() -> None:
    device = SlabDevice(lambda _number, _cold: 5e-3)
    probe = probe_kernel(vector(), {"n": 32 * 3}, device)
    assert (probe.knowledge, probe.seconds) == ("timing", pytest.approx(truth(device, 3), rel=1e-6))


def test_arrays_that_are_updated_are_restored_before_each_round() -> None:
    device = SlabDevice(lambda _number, _cold: 2e-5)
    plain, in_place = vector(), vector("a[i] = 2*a[i]")
    calls = []
    for kernel in (plain, in_place):
        device.restored.clear()
        probe = probe_kernel(kernel, {"n": 32 * GROUPS}, device)
        assert probe.seconds == pytest.approx(truth(device, GROUPS), rel=0.02)
        calls.append([slabs for slabs in device.restored if slabs != 2])
    (together,), rounds = calls
    assert rounds == [together // 3] * 3


def test_device_programs_add_up() -> None:
    device = SlabDevice(lambda _number, _cold: 2e-5)
    probe = probe_kernel(two_programs(), {"n": 32 * GROUPS}, device)
    assert probe.seconds == pytest.approx(2 * truth(device, GROUPS), rel=0.03)


def test_a_kernel_that_makes_its_own_subscripts_runs_whole() -> None:
    kernel = lp.make_kernel(
        "{[i,j]: 0<=i,j<n}",
        """
        places[i] = n-1-i {id=first}
        ... gbarrier {id=bar, dep=first}
        b[j] = a[places[j]] {id=second, dep=bar}
        """,
        [lp.GlobalArg("a,b", np.float32, shape="n"), lp.GlobalArg("places", np.int32, shape="n"), "..."],
        assumptions="n>=1",
        lang_version=VERSION,
        name="places",
    )
    kernel = lp.split_iname(kernel, "i", 32, outer_tag="g.0", inner_tag="l.0")
    kernel = lp.split_iname(kernel, "j", 32, outer_tag="g.0", inner_tag="l.0")
    device = SlabDevice(lambda _number, _cold: 2e-5)
    probe = probe_kernel(kernel, {"n": 32 * GROUPS}, device)
    # Parts of the second program would read subscripts that no part of the first has written.
    assert device.restored == []
    assert (probe.knowledge, probe.seconds) == ("timing", pytest.approx(truth(device, GROUPS)))


def test_gpus_get_whole_waves() -> None:
    device = SlabDevice(lambda _number, _cold: 1e-3, compute_units=4, kind="gpu")
    probe_kernel(vector(), {"n": 32 * GROUPS}, device)
    seen: list[int] = []

    class Recording(SlabKernel):
        def run_slabs(self, slabs: Sequence[Slab]) -> tuple[float, ...]:
            seen.extend(slab.count for slab in slabs)
            return super().run_slabs(slabs)

    backend = device.backend()
    backend.build = lambda request: Recording(device, request)  # type: ignore[method-assign]
    with ShortLauncher(device) as launcher:
        launcher._backend = backend
        from perflex.features import SizedKernel

        launcher.probe(SizedKernel(vector(), {"n": 32 * GROUPS}, "x"))
    # Two waves of 4 units that hold 2048 work-items each, in groups of 32.
    assert min(seen) >= 2 * 4 * 64


def test_what_cannot_launch_parts_says_so() -> None:
    device = FakeDevice(lambda _label, _sizes: 1e-3)
    with pytest.raises(MeasurementError, match=r"vector.*back end of fake device.*cannot launch parts of a grid"):
        probe_kernel(vector(), {"n": 64}, device)


def test_sizes_must_be_there() -> None:
    with pytest.raises(MissingSizeError):
        probe_kernel(vector(), {}, SlabDevice(lambda _number, _cold: 1e-6))


@pytest.mark.device
@pytest.mark.parametrize("isolate", [True, False])
def test_a_real_kernel_is_probed(default_device: Device, *, isolate: bool) -> None:
    # Too little is known of a test machine's load for more than an order of magnitude.
    kernel, sizes = vector("b[i] = sin(a[i]) + cos(a[i]) + exp(a[i])"), {"n": 1 << 22}
    timing = TimingOptions(isolate=isolate)
    with ShortLauncher(default_device, timing) as launcher:
        assert launcher.device == find_device(str(default_device.name)) or launcher.device is default_device
    probe = probe_kernel(kernel, sizes, default_device, timing)
    assert 1e-5 < probe.seconds < 1
    assert 0 < probe.device_s < probe.cost_s
