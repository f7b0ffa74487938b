"""How fast a device is."""

from __future__ import annotations

import pytest

from perflex.calibration.device_speed import multiply_add_rate
from perflex.testing import FakeDevice


def test_multiply_add_rate_of_a_fake_device() -> None:
    device = FakeDevice(lambda _, sizes: sizes["nelements"] * 32 * sizes["m"] / 2e12)
    assert multiply_add_rate(device) == pytest.approx(2e12)
