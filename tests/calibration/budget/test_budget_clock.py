"""A budget on devices that have a clock: everything where it fits, else choices that the clock bounds."""

from dataclasses import dataclass, field

import pytest

from perflex import Model, TimingOptions, calibrate
from perflex.testing import FakeDevice
from support.scripted_device import ScriptedDevice
from uipick import ALL_GENERATORS, KernelCollection

MODEL = Model("f_cl_wall_time_fake", "p_launch * f_sync_kernel_launch + p_group * f_thread_groups")
TIMING = TimingOptions(trials=12, min_trials=5, precision=0.0)
BUILD_S = 0.2


def law(_label, sizes):
    return 1e-3 + 1e-6 * sizes["ngroups"]


@dataclass
class Hours:
    now: float = 0.0
    built: int = 0


@dataclass(frozen=True)
class ClockedDevice(ScriptedDevice):
    """A device whose clock goes on with builds, with launches, and a little whenever it is looked at."""

    hours: Hours = field(default_factory=Hours)
    look_s: float = 0.0

    def clock(self):
        self.hours.now += self.look_s
        return self.hours.now


def clocked(look_s=0.0):
    hours = Hours()

    def on_build(_):
        hours.now += BUILD_S
        hours.built += 1

    def on_run(_, launches, run):
        times = run(launches)
        hours.now += sum(times)
        return times

    return ClockedDevice(law, noise=0.1, on_build=on_build, on_run=on_run, hours=hours, look_s=look_s)


@pytest.fixture(scope="module")
def kernels():
    groups = ",".join(str(16 * count) for count in range(1, 41))
    return list(
        KernelCollection(ALL_GENERATORS).generate_kernels(["empty", "lsize_0:16", "lsize_1:16", f"ngroups:{groups}"])
    )


def test_what_fits_is_an_ordinary_calibration(kernels):
    everything = calibrate(MODEL, kernels, device=FakeDevice(law, noise=0.1), timing=TIMING)
    device = clocked()
    found = calibrate(MODEL, kernels, device=device, timing=TIMING, budget_s=30.0)
    assert found.options["choice"] == "everything"
    assert dict(found.params) == dict(everything.params)
    assert found.fit.kernels == everything.fit.kernels
    assert found.timing == everything.timing
    # Builds are part of the estimate: 40 of them, and a timing of each.
    device_s = sum(law("", kernel.sizes) for kernel in kernels) * (2 + 2 * TIMING.trials)
    assert found.options["everything_estimate_s"] == pytest.approx(40 * BUILD_S + device_s, rel=0.2)
    # The first launches of a kernel belong to its build.
    assert found.options["building_s"] == pytest.approx(device.hours.built * BUILD_S, rel=0.02)


def test_building_counts_in_what_fits_but_is_not_limited(kernels):
    device = clocked()
    # Enough for timing all kernels, which takes 1.4 s, but not for building them, which takes 8 s.
    found = calibrate(MODEL, kernels, device=device, timing=TIMING, budget_s=5.0)
    assert found.options["choice"].startswith("D-optimal")
    assert found.options["everything_estimate_s"] > 5.0
    assert device.hours.now - found.options["building_s"] <= 1.2 * 5.0


def test_choosing_counts_against_the_budget(kernels):
    """Time passes whenever the clock is read; the budget holds for all of it."""
    device = clocked(look_s=0.01)
    found = calibrate(MODEL, kernels, device=device, timing=TIMING, budget_s=1.0)
    assert found.options["choice"].startswith("D-optimal")
    assert found.options["choosing_s"] > 0
    assert device.hours.now - found.options["building_s"] <= 1.2
    assert found.params["p_launch"] == pytest.approx(1e-3, rel=0.2)
