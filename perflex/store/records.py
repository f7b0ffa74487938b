"""The records of measurements, and what anything that keeps them can do."""

from __future__ import annotations

import hashlib
import json
import math
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, get_args, get_type_hints

from perflex.errors import warn

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence


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


def numbers_in_words(samples: int, failures: int, nameless: int = 0) -> str:
    """Return how many there are, such as ``1 sample and 0 failures``, and how many kernels lost their name if any."""
    text = f"{samples} sample{'s'[: samples != 1]} and {failures} failure{'s'[: failures != 1]}"
    return text + (f" (kernels without their names: {nameless})" if nameless else "")


# Marks the file as perflex's own ("pflx"), and counts its formats.
APPLICATION = 0x70666C78
FORMAT = 6
# What the system reports, each with its type: float, int or bool.
ACTIVITY_FACTS: dict[str, type] = {name: get_args(hint)[0] for name, hint in get_type_hints(SystemActivity).items()}
_ACTIVITY = ", ".join(f"{name} {'REAL' if kind is float else 'INTEGER'}" for name, kind in ACTIVITY_FACTS.items())
_CHECKSUM = "checksum INTEGER NOT NULL"
TABLES: Mapping[str, str] = {
    # Descriptions of kernels by the digest of the text, which description a kernel has by the kernel's key, and what
    # was counted of it: JSON from the name of each count to its record. `version` is a state of the package.
    "scops": f"digest TEXT PRIMARY KEY, text TEXT NOT NULL, {_CHECKSUM}",
    "kernels": f"key TEXT PRIMARY KEY, scop TEXT NOT NULL, version TEXT NOT NULL, {_CHECKSUM}",
    "counts": (
        f"scop TEXT NOT NULL, version TEXT NOT NULL, text TEXT NOT NULL, {_CHECKSUM}, "
        "PRIMARY KEY (scop, version, checksum)"
    ),
    # When each state of the package has last written (Julian day).
    "versions": "version TEXT PRIMARY KEY, used REAL NOT NULL",
    # What makes timings comparable: the number is a digest of the facts. The label is what people call the kernel.
    "measurement_keys": (
        "number INTEGER PRIMARY KEY, kernel TEXT NOT NULL, sizes TEXT NOT NULL, device TEXT NOT NULL, "
        f"driver TEXT NOT NULL, conditions TEXT NOT NULL, label TEXT NOT NULL, {_CHECKSUM}"
    ),
    # Samples and failures share one sequence of numbers, which tells what was added after what.
    "samples": (
        "number INTEGER PRIMARY KEY, key INTEGER NOT NULL, session TEXT NOT NULL, round INTEGER NOT NULL, "
        "launches INTEGER NOT NULL, seconds REAL NOT NULL, started REAL NOT NULL, "
        f"{_ACTIVITY}, disturbed INTEGER NOT NULL, {_CHECKSUM}, UNIQUE (key, session, round)"
    ),
    "failures": (
        "number INTEGER PRIMARY KEY, key INTEGER NOT NULL, session TEXT NOT NULL, kind TEXT NOT NULL, "
        f"message TEXT NOT NULL, started REAL NOT NULL, {_CHECKSUM}, UNIQUE (key, session, kind, started)"
    ),
    # The sessions of work that has not come to its end yet, and whose they are: the process, when it began, its host.
    "unfinished_work": (
        "work TEXT NOT NULL, session TEXT NOT NULL, host TEXT NOT NULL, process INTEGER NOT NULL, "
        f"began TEXT NOT NULL, {_CHECKSUM}, PRIMARY KEY (work, session)"
    ),
}
_NUMBERED = ("measurement_keys", "samples", "failures")
CHECKED = tuple(name for name, columns in TABLES.items() if _CHECKSUM in columns)
CREATE_STATEMENTS = tuple(f"CREATE TABLE {name} ({columns})" for name, columns in TABLES.items())
# Of a longer message the beginning and the end are kept: compilers say what is wrong first, crashes last.
_LONGEST_MESSAGE = 2000
_LARGEST = 2**63 - 1


# Tables that a warning has told of, by the store's path.
_told: set[tuple[str, str]] = set()


class DamageError(Exception):
    """The file is damaged in a way that SQLite does not notice; never leaves the store."""


def checksum(values: Sequence[object]) -> int:
    """Return the checksum of a row's other values; their texts have every digit of a number."""
    return zlib.crc32(repr(tuple(values)).encode("utf-8", "replace"))


def is_sound(row: Sequence[Any]) -> bool:
    """Return whether a row of a table is what was written."""
    return bool(row[-1] == checksum(row[:-1]))


def checked_rows(
    connection: sqlite3.Connection, table: str, rest: str = "", values: Sequence[Any] = ()
) -> list[tuple[Any, ...]]:
    """Return the rows of a table that `rest`, the end of the statement, chooses; without those that are not sound."""
    return sound_rows(connection, table, rows_in_order(connection, table, rest, values))


def sound_rows(connection: sqlite3.Connection, table: str, rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return the rows that are what was written; a warning tells once of each table that has others."""
    sound = [row for row in rows if is_sound(row)]
    if len(sound) == len(rows):
        return sound
    place = str(connection.execute("PRAGMA database_list").fetchone()[2])
    if (place, table) not in _told:
        _told.add((place, table))
        msg = (
            f"the store {place} is damaged: rows of {table} are not what was written, and are left out; "
            "'perflex store verify' names them"
        )
        warn(msg)
    return sound


def rows_in_order(
    connection: sqlite3.Connection, table: str, rest: str, values: Sequence[Any]
) -> list[tuple[Any, ...]]:
    """Return the rows that `rest` chooses, sound or not; a DamageError where they are not those asked for."""
    rows = connection.execute(f"SELECT * FROM {table} {rest}", values).fetchall()  # noqa: S608 - one of `TABLES`
    numbers = [row[0] for row in rows if table in _NUMBERED]
    # A page may be there twice, or in the place of another; one of an index leads to rows of other values.
    wanted = values if "= ?" in rest else ()
    astray = any(value not in row for row in rows for value in wanted)
    if astray or numbers != sorted(set(numbers)):
        msg = f"a row of {table} is not where it was written"
        raise DamageError(msg)
    return rows


def insert(
    connection: sqlite3.Connection, table: str, values: Sequence[Any], conflict: str = "ON CONFLICT DO NOTHING"
) -> None:
    """Add a row; `conflict` says what happens where one like it is there."""
    row = (*values, checksum(values))
    connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))}) {conflict}", row)  # noqa: S608


def last_number(connection: sqlite3.Connection) -> int:
    """Return the largest number of a sample or failure; 0 where there is none."""
    query = "SELECT max((SELECT ifnull(max(number), 0) FROM samples), (SELECT ifnull(max(number), 0) FROM failures))"
    return int(connection.execute(query).fetchone()[0])


def key_values(key: MeasurementKey, label: str = "") -> tuple[Any, ...]:
    """Return a key as values of its table; the order of the sizes does not matter."""
    sizes = json.dumps(sorted((str(name), int(value)) for name, value in key.sizes))
    facts = [_text(fact) for fact in (key.kernel, sizes, key.device, key.driver, key.conditions)]
    digest = hashlib.sha256(json.dumps(facts).encode()).digest()
    # SQLite's integers have 64 bits with a sign.
    return (int.from_bytes(digest[:8], "big") >> 1, *facts, _text(label))


def sample_values(key: int, sample: Sample) -> tuple[Any, ...]:
    """Return a sample as values of its table, without its number."""
    given = {name: getattr(sample.activity, name, None) for name in ACTIVITY_FACTS}
    numbers = {
        "round": int(sample.round),
        "launches": int(sample.launches),
        "seconds": float(sample.seconds),
        "started": float(sample.started),
        # Numbers of numpy become Python's.
        **{name: int(fact) if kind is bool else kind(fact)
           for name, kind in ACTIVITY_FACTS.items() if (fact := given[name]) is not None},
    }  # fmt: skip
    for name, value in numbers.items():
        # A clock may be set to before 1970. Not a number is within no limits.
        if not (-_LARGEST if name == "started" else 0) <= value <= _LARGEST:
            msg = f"{name} of {value} is out of range"
            raise ValueError(msg)
    columns = ("round", "launches", "seconds", "started", *ACTIVITY_FACTS)
    return (key, _text(sample.session), *map(numbers.get, columns), int(sample.disturbed))


def sample_of(row: Sequence[Any]) -> Sample:
    """Return the sample of a row."""
    _, _, session, number, launches, seconds, started, *facts, disturbed, _ = row
    known = {
        name: kind(fact) for (name, kind), fact in zip(ACTIVITY_FACTS.items(), facts, strict=True) if fact is not None
    }
    activity = SystemActivity(**known) if known else None
    return Sample(seconds, launches, started, session, number, activity, bool(disturbed))


def failure_values(key: int, failure: Failure) -> tuple[Any, ...]:
    """Return a failure as values of its table, without its number."""
    started = float(failure.started)
    if not math.isfinite(started):
        msg = f"a failure's start at {started} is no time"
        raise ValueError(msg)
    message = _text(failure.message)
    if len(message) > _LONGEST_MESSAGE:
        half = _LONGEST_MESSAGE // 2
        message = f"{message[:half]} ... {message[-half:]}"
    return (key, _text(failure.session), _text(failure.kind), message, started)


def failure_of(row: Sequence[Any]) -> Failure:
    """Return the failure of a row."""
    _, _, session, kind, message, started, _ = row
    return Failure(kind, message, started, session)


def _text(text: object) -> str:
    # What drivers and crashed processes say need not be valid Unicode.
    return str(text).encode("utf-8", "replace").decode("utf-8")
