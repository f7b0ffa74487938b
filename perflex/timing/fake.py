"""A device that runs nothing: times come from a stated law, for tests of models and fits without hardware."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perflex.errors import MeasurementError

if TYPE_CHECKING:
    from perflex.devices.device import Api
    from perflex.features.sized_kernel import SizedKernel

CostLaw = Callable[[str, Mapping[str, int]], float]


@dataclass(frozen=True)
class FakeDevice:
    """A device with a known cost law, which can stand wherever a device is asked for.

    Kernels are counted as ever, but neither built nor run: whatever would be timed takes as long as the law says. So a
    test knows what a calibration has to find, and needs no hardware and no time.

    Attributes
    ----------
    law
        Gives the time of one launch in seconds from a kernel's label and sizes; may raise MeasurementError
        to play a kernel that fails to build. Labels are measurement kernels' and variants' names, and
        ``"name(n=64)"`` of a kernel named ``name`` that was given with its sizes.
    noise
        Relative size of the noise: a launch takes ``law * (1 + noise * |normal|)``, never less than the law.
    seed
        Of the noise; each kernel has its own stream, so results do not depend on what else is timed.
    sub_group_size
        Work-items that execute together.
    name, platform, vendor, driver
        As an OpenCL device would give them.
    timer_resolution_s
        Resolution of the fake timer in seconds.
    api
        What it plays to be reached through, which decides on its output feature's name.

    Examples
    --------
    >>> from perflex import Model, calibrate
    >>> from perflex.testing import FakeDevice
    >>> device = FakeDevice(lambda label, sizes: 1e-6 + 2e-9 * sizes["n"])
    >>> model = Model("f_cl_wall_time", "p_launch * f_sync_kernel_launch + p_group * f_thread_groups")
    >>> calibration = calibrate(model, [(kernel, {"n": n}) for n in (256, 512, 1024)], device=device)
    >>> assert abs(calibration.params["p_launch"] - 1e-6) < 1e-12

    With ``noise=0.05`` times scatter as measured ones do, above the law. A law may also play a kernel that fails:

    >>> from perflex.errors import MeasurementError
    >>> def law(label, sizes):
    ...     if "broken" in label:
    ...         raise MeasurementError(f"{label}: does not build")
    ...     return 1e-6
    """

    law: CostLaw
    noise: float = 0.0
    seed: int = 0
    sub_group_size: int = 32
    name: str = "fake device"
    platform: str = "fake platform"
    vendor: str = "perflex"
    driver: str = "0"
    timer_resolution_s: float = 1e-9
    api: Api = "opencl"

    def __str__(self) -> str:
        return f"{self.name} ({self.platform})"

    def backend(self) -> FakeBackend:
        """Return what "runs" kernels on this device."""
        return FakeBackend(self)


class FakeBackend:
    """Stands in for an OpenCL backend."""

    def __init__(self, device: FakeDevice) -> None:
        self.device = device
        self.timer_resolution_s = device.timer_resolution_s

    def build(self, request: SizedKernel) -> FakeRunnable:
        """Evaluate the cost law for a kernel's label and sizes; nothing is built."""
        label, sizes = request.label, request.sizes
        seconds = self.device.law(label, sizes)
        # Not `<= 0`, which nan is not either.
        if not seconds > 0:
            msg = f"{label}: the fake device's law gives {seconds} s, a time must be positive"
            raise MeasurementError(msg, kernel=label)
        # Not hash(): that differs from process to process, and results must not depend on where kernels are timed.
        stream = zlib.crc32(f"{self.device.seed} {label} {sorted(sizes.items())}".encode())
        return FakeRunnable(seconds, self.device.noise, random.Random(stream))  # noqa: S311  noise is no secret

    def close(self) -> None:
        """Do nothing: there is no memory to give back."""


class FakeRunnable:
    """A kernel with sizes on the fake device."""

    def __init__(self, seconds: float, noise: float, stream: random.Random) -> None:
        self._seconds = seconds
        self._noise = noise
        self._stream = stream

    def run(self, launches: int) -> tuple[float, ...]:
        """Return the law's time with noise for each launch, in seconds."""
        # One-sided, as on hardware: disturbances make a kernel slower, not faster.
        return tuple(self._seconds * (1 + self._noise * abs(self._stream.gauss(0, 1))) for _ in range(launches))
