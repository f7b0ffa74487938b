"""Records of measurements: what was measured, each sample, each failure, and what keeps them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

__all__ = ["Failure", "MeasurementKey", "Recorder", "Sample"]


@dataclass(frozen=True)
class MeasurementKey:
    """Everything that a kernel's time depends on.

    Attributes
    ----------
    kernel
        Digest of the kernel and of what generates its code.
    sizes
        Pairs of size parameter and value, sorted by name.
    device, driver
        The device, and the versions of its driver.
    conditions
        How samples were taken, as far as it changes them.
    """

    kernel: str
    sizes: tuple[tuple[str, int], ...]
    device: str
    driver: str
    conditions: str = ""


@dataclass(frozen=True)
class Sample:
    """One timing.

    Attributes
    ----------
    seconds
        Time of one launch in seconds.
    launches
        Launches averaged.
    started
        When it began, in seconds since 1970.
    session
        The measurement run it belongs to.
    round
        The round of that run, from 0.
    """

    seconds: float
    launches: int
    started: float
    session: str
    round: int


@dataclass(frozen=True)
class Failure:
    """One failed attempt.

    Attributes
    ----------
    kind
        ``"prepare"`` (code generation, build, limits, missing sizes), ``"run"``, ``"limit"`` (too slow),
        ``"hang"``, ``"crash"`` or ``"memory"`` (of the device).
    message
        Cause in one line.
    started
        When the attempt began, in seconds since 1970.
    session
        The measurement run it belongs to.
    """

    kind: str
    message: str
    started: float
    session: str


class Recorder(Protocol):
    """Keeps samples and failures, and knows earlier ones."""

    def earlier(self, key: MeasurementKey) -> tuple[Sample, ...]:
        """Return the samples kept under a key, in the order taken."""
        ...

    def failure(self, key: MeasurementKey) -> Failure | None:
        """Return the last failure kept under a key."""
        ...

    def add(self, key: MeasurementKey, sample: Sample, label: str = "") -> None:
        """Keep a sample."""
        ...

    def fail(self, key: MeasurementKey, failure: Failure, label: str = "") -> None:
        """Keep a failure."""
        ...
