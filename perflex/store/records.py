"""The records of measurements, and what anything that keeps them can do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class MeasurementKey:
    """What makes timings comparable: samples of equal keys are trials of one measurement.

    Attributes
    ----------
    kernel
        Digest of the kernel's content: description and generated code.
    sizes
        Names and values of the size parameters.
    device
        Full name of the device, its platform included.
    driver
        Version of the driver.
    conditions
        What else timings depend on, e.g. ``"warmups=1"``.
    """

    kernel: str
    sizes: tuple[tuple[str, int], ...]
    device: str
    driver: str
    conditions: str = ""


@dataclass(frozen=True)
class SystemActivity:
    """What the operating system and the driver report of the time in which a sample was taken.

    None stands for what they do not report.

    Attributes
    ----------
    elapsed_s
        Time on the host's clock from before the first launch to the end of the last, in seconds.
    processor_s
        Processor time that all threads of the measuring process used meanwhile, in seconds.
    waited_s
        The longest time for which one of its threads was ready to run and waited for a processor, in seconds.
    stolen_s
        Time that a hypervisor took from the processor that it took most from, in seconds; known to 0.01 s.
    others_s
        Processor time that other processes used, in seconds; known to about 0.01 s.
    switches
        How many times the system took a processor from one of its threads.
    throttled
        Whether the device lowered its clock because of heat or power.
    """

    elapsed_s: float | None = None
    processor_s: float | None = None
    waited_s: float | None = None
    stolen_s: float | None = None
    others_s: float | None = None
    switches: int | None = None
    throttled: bool | None = None


@dataclass(frozen=True)
class Sample:
    """One timing.

    Attributes
    ----------
    seconds
        Device time of one launch, in seconds.
    launches
        Launches that this is the average of.
    started
        Wall clock at the start of the timing: seconds since 1970, UTC.
    session
        Random name of the run that took it.
    round
        Which round of the session; a session has one sample of a key and round.
    activity
        What else went on meanwhile; None where nothing is known of it.
    disturbed
        Mark of when the sample was taken: the system showed that others used the processors, or the driver that the
        clock was lowered. Later samples may tell more, so that a kernel's time goes by `activity`, not by the mark.
    """

    seconds: float
    launches: int
    started: float
    session: str
    round: int
    activity: SystemActivity | None = None
    disturbed: bool = False


@dataclass(frozen=True)
class Failure:
    """A measurement that failed.

    Attributes
    ----------
    kind
        ``"prepare"`` (does not build or fit), ``"run"`` (the device reports an error), ``"limit"`` (too slow),
        ``"hang"``, ``"crash"`` or ``"memory"`` (the device has too little).
    message
        What was reported.
    started
        Wall clock at the start, in seconds since 1970, UTC.
    session
        Random name of the run.
    """

    kind: str
    message: str
    started: float
    session: str


class Recorder(Protocol):
    """Keeps samples and failures, and knows those of earlier runs."""

    def earlier(self, key: MeasurementKey) -> tuple[Sample, ...]:
        """Return the samples of a key in the order they were added."""
        ...

    def failure(self, key: MeasurementKey) -> Failure | None:
        """Return the newest failure of a key, unless a sample was added after it."""
        ...

    def add(self, key: MeasurementKey, sample: Sample, label: str = "") -> None:
        """Keep a sample; `label` is what people call the kernel."""
        ...

    def fail(self, key: MeasurementKey, failure: Failure, label: str = "") -> None:
        """Keep a failure."""
        ...


def numbers_in_words(samples: int, failures: int, nameless: int = 0) -> str:
    """Return how many there are, such as ``1 sample and 0 failures``.

    `nameless` are measurements whose kernel's name was lost to damage; they are mentioned where there are any.
    """
    text = f"{samples} sample{'s'[: samples != 1]} and {failures} failure{'s'[: failures != 1]}"
    return text + (f" (kernels without their names: {nameless})" if nameless else "")
