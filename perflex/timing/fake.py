"""A device that runs nothing: times come from a stated law, for tests of models and fits without hardware."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perflex.errors import MeasurementError

if TYPE_CHECKING:
    import loopy as lp

    from perflex.devices.device import Api

__all__ = ["CostLaw", "FakeDevice"]

CostLaw = Callable[[str, Mapping[str, int]], float]


@dataclass(frozen=True)
class FakeDevice:
    """A device with a known cost law.

    Attributes
    ----------
    law
        Gives the time of one launch in seconds from a kernel's label and sizes; may raise MeasurementError
        to play a kernel that fails to build.
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

    @property
    def timer_resolution_s(self) -> float:
        """Resolution of the fake timer in seconds."""
        return self.device.timer_resolution_s

    def prepare(self, kernel: lp.TranslationUnit, sizes: Mapping[str, int], label: str) -> FakeRunnable:  # noqa: ARG002
        """Evaluate the cost law.

        Raises
        ------
        MeasurementError
            The law gives no positive time, or raises this itself.
        """
        seconds = self.device.law(label, sizes)
        if not seconds > 0:
            msg = f"{label}: the fake device's law gives {seconds} s, a time must be positive"
            raise MeasurementError(msg, kernel=label)
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
        return tuple(self._seconds * (1 + self._noise * abs(self._stream.gauss(0, 1))) for _ in range(launches))
