"""Probes: what they say, and what they cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import loopy as lp
import numpy as np
import pytest

from perflex import TimingOptions, probe_kernel
from perflex.errors import MeasurementError, MissingSizeError
from perflex.testing import FakeDevice

if TYPE_CHECKING:
    from perflex import Device

DEVICE = FakeDevice(lambda _label, _sizes: 2e-4)


def vector(body: str = "b[i] = 2*a[i]") -> lp.TranslationUnit:
    kernel = lp.make_kernel("{[i]: 0<=i<n}", body, assumptions="n>=1", lang_version=(2018, 2), name="vector")
    kernel = lp.add_dtypes(kernel, {"a": np.float32, "b": np.float32})
    return lp.split_iname(kernel, "i", 32, outer_tag="g.0", inner_tag="l.0")


def test_a_probe_is_a_timing_with_a_small_budget() -> None:
    probe = probe_kernel(vector(), {"n": 2048}, DEVICE)
    assert probe.seconds == pytest.approx(2e-4)
    assert 2e-4 <= probe.device_s <= 0.1


def test_intervals_hold_the_time_and_grow_with_confidence() -> None:
    probe = probe_kernel(vector(), {"n": 2048}, DEVICE)
    (low, high), (lower, higher) = probe.interval(0.5), probe.interval(0.95)
    assert lower < low < probe.seconds < high < higher
    assert low * high == pytest.approx(probe.seconds**2)
    with pytest.raises(MeasurementError, match="between 0 and 1"):
        probe.interval(2.0)


def test_sizes_must_be_there(default_device: Device) -> None:
    with pytest.raises(MissingSizeError):
        probe_kernel(vector(), {}, default_device)


@pytest.mark.parametrize("isolate", [True, False])
def test_a_real_kernel_is_probed(default_device: Device, *, isolate: bool) -> None:
    # Too little is known of a test machine's load for more than an order of magnitude.
    kernel, sizes = vector("b[i] = sin(a[i]) + cos(a[i]) + exp(a[i])"), {"n": 1 << 22}
    probe = probe_kernel(kernel, sizes, default_device, TimingOptions(isolate=isolate, budget_s=0.05))
    assert 1e-5 < probe.seconds < 1
    assert probe.device_s > 0
