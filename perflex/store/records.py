"""The records of measurements, and what anything that keeps them can do."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from itertools import chain
from numbers import Real
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


@dataclass(frozen=True)
class MeasurementKey:
    """What makes timings comparable: samples of equal keys are trials of one measurement.

    `kernel` is a digest of the kernel's content, `device` a full name with the platform; `conditions` are what else
    timings depend on, e.g. ``"warmups=1"``.
    """

    kernel: str
    sizes: tuple[tuple[str, int], ...]
    device: str
    driver: str
    conditions: str = ""


# Fields of these are kept by their names: one that is new needs a default, which it has in rows without it.


@dataclass(frozen=True)
class SystemActivity:
    """What the operating system and the driver report of the time in which a sample was taken.

    None stands for what they do not report.
    """

    # On the host's clock from before the first launch to the end of the last.
    elapsed_s: float | None = None
    # Processor time of all threads of the measuring process.
    processor_s: float | None = None
    # The longest time for which one of its threads was ready to run and waited for a processor.
    waited_s: float | None = None
    # What a hypervisor took from the processor that it took most from; known to 0.01 s.
    stolen_s: float | None = None
    # Processor time of other processes; known to about 0.01 s.
    others_s: float | None = None
    # How many times the system took a processor from one of its threads.
    switches: int | None = None
    # Whether the device lowered its clock because of heat or power.
    throttled: bool | None = None
    # The lower one of a GPU's clock rates before the first launch and after the last, and its higher temperature.
    clock_hz: float | None = None
    temperature_c: float | None = None
    # How many processes beside the measuring one had the GPU open.
    other_processes: int | None = None


# What becomes of the facts of parts that ran one after another, where it is not their sum.
_JOINED: Mapping[str, Callable[..., Any]] = {
    "waited_s": max, "throttled": max, "clock_hz": min, "temperature_c": max, "other_processes": max,
}  # fmt: skip


def joined_activity(parts: Sequence[SystemActivity]) -> SystemActivity | None:
    """Return what went on in all parts together, None of none; facts that one of them lacks are not known."""
    found: dict[str, Any] = {}
    for one in fields(SystemActivity):
        values = [getattr(part, one.name) for part in parts]
        if values and None not in values:
            join = _JOINED.get(one.name)
            found[one.name] = sum(values) if join is None else join(values)
    return SystemActivity(**found) if parts else None


@dataclass(frozen=True)
class Sample:
    """One timing."""

    # Device time of one launch, the average of so many.
    seconds: float
    launches: int
    # Wall clock at the start of the timing: seconds since 1970, UTC.
    started: float
    # Random name of the run that took it, and which round of it; a session has one sample of a key and round.
    session: str
    round: int
    # What else went on meanwhile; None where nothing is known of it.
    activity: SystemActivity | None = None
    # Mark of when the sample was taken: others used the processors, or the clock was lowered. Later samples may tell
    # more, so that a kernel's time goes by `activity`, not by the mark.
    disturbed: bool = False


@dataclass(frozen=True)
class Failure:
    """A measurement of a session that failed: of which kind (`FailureKind`), what was reported, and when it began."""

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


# Of a longer message the beginning and the end are kept: compilers say what is wrong first, crashes last.
_LONGEST_MESSAGE = 2000
_LARGEST = 2**63 - 1


def key_to_json(key: MeasurementKey) -> str:
    """Return a key as JSON; the order of the sizes does not matter."""
    return _to_json(replace(key, sizes=tuple(sorted((str(name), int(value)) for name, value in key.sizes))))


def record_values(record: Sample | Failure) -> tuple[str, int | None, float, str]:
    """Return session, round and start of a record, and all of it as JSON; a ValueError where it is no measurement."""
    activity = record.activity if isinstance(record, Sample) else None
    for name, value in chain(vars(record).items(), () if activity is None else vars(activity).items()):
        # A clock may be set to before 1970. Not a number is within no limits.
        if isinstance(value, Real) and not (-_LARGEST if name == "started" else 0) <= float(value) <= _LARGEST:
            msg = f"{name} of {value} is out of range"
            raise ValueError(msg)
    if isinstance(record, Failure) and len(record.message) > _LONGEST_MESSAGE:
        half = _LONGEST_MESSAGE // 2
        record = replace(record, message=f"{record.message[:half]} ... {record.message[-half:]}")
    turn = int(record.round) if isinstance(record, Sample) else None
    return valid_text(record.session), turn, float(record.started), _to_json(record)


key_of_json = msgspec.json.Decoder(MeasurementKey).decode
sample_of_json = msgspec.json.Decoder(Sample).decode
failure_of_json = msgspec.json.Decoder(Failure).decode


def _to_json(record: MeasurementKey | Sample | Failure) -> str:
    texts: dict[str, Any] = {name: valid_text(text) for name, text in vars(record).items() if isinstance(text, str)}
    # Numbers of numpy become Python's.
    return msgspec.json.encode(replace(record, **texts), enc_hook=lambda number: number.item()).decode()


def valid_text(text: str) -> str:
    """Return a text as valid Unicode, which what drivers and crashed processes say need not be."""
    return text.encode("utf-8", "replace").decode("utf-8")
