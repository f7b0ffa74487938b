"""A device that runs nothing, for users' tests of their own models, fits and spaces without hardware.

>>> device = FakeDevice(lambda label, sizes: 1e-6 + 2e-9 * sizes["n"])
>>> calibration = calibrate(model, kernels, device=device)
"""

from __future__ import annotations

from perflex.timing.fake import CostLaw, FakeDevice

__all__ = ["CostLaw", "FakeDevice"]
