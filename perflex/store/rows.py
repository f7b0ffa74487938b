"""Records as rows of the store's tables, and the checks that tell a sound row from what damage left."""

from __future__ import annotations

import hashlib
import json
import math
import struct
import zlib
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from perflex.store.faults import DamageError
from perflex.store.records import Failure, MeasurementKey, Sample, SystemActivity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

KEY_COLUMNS = ("number", "kernel", "sizes", "device", "driver", "conditions", "label", "label_checksum")
SAMPLE_COLUMNS = (
    "number", "key", "session", "round", "seconds", "launches", "started", "checksum", "activity", "activity_checksum",
    "seal",
)  # fmt: skip
FAILURE_COLUMNS = ("number", "key", "session", "kind", "message", "started", "after", "checksum", "seal")
WORK_COLUMNS = ("work", "session", "checksum")
# Of a longer message the beginning and the end are kept: compilers say what is wrong first, crashes last.
_LONGEST_MESSAGE = 2000
_LARGEST = 2**63 - 1
# What the system reports, each with its type: float, int or bool.
ACTIVITY_FACTS: dict[str, type] = {name: get_args(hint)[0] for name, hint in get_type_hints(SystemActivity).items()}
# Stands among these facts in the row, so that the checksum covers it, too.
_MARK = "disturbed"
_SAMPLE_KINDS = (int, int, str, int, float, int, float, int)
_FAILURE_KINDS = (int, int, str, str, str, float, int, int)


def insert_statement(table: str, columns: Sequence[str]) -> str:
    """Return the statement that adds a row unless it is there."""
    places = ", ".join("?" * len(columns))
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places}) ON CONFLICT DO NOTHING"  # noqa: S608


def seal(*values: object) -> int:
    """Return a checksum of what SQLite knows of a row only: its number, its label, what a failure is older than.

    It goes on from the row's own checksum, which is one of the values. SQL statements of the store know it by this
    name, too.
    """
    return zlib.crc32(repr(values).encode("utf-8", "replace"))


def text_digest(*texts: object) -> str:
    """Return the digest of texts that are kept, one of which is it of that alone."""
    joined = texts[0] if len(texts) == 1 else json.dumps(texts)
    return hashlib.sha256(str(joined).encode("utf-8", "replace")).hexdigest()


def require_sound(rows: Iterable[Sequence[Any]], is_sound: Callable[[Sequence[Any]], bool]) -> None:
    """Raise DamageError unless each row is what was written."""
    if not all(map(is_sound, rows)):
        msg = "a row's checksum is wrong"
        raise DamageError(msg)


def key_row(key: MeasurementKey, label: str) -> tuple[Any, ...]:
    """Return a key's row, in the order of `KEY_COLUMNS`; the order of the sizes does not matter."""
    row, name = _row_without_label(key), _text(label)
    return (*row, name, seal(row[0], name))


# Asked for with every sample of a kernel.
@lru_cache(maxsize=4096)
def _row_without_label(key: MeasurementKey) -> tuple[Any, ...]:
    sizes = json.dumps(sorted((str(name), int(value)) for name, value in key.sizes))
    facts = tuple(map(_text, (key.kernel, sizes, key.device, key.driver, key.conditions)))
    return (_digest(facts), *facts)


def key_number(key: MeasurementKey) -> int:
    """Return the number of a key: 63 bits of a digest of what it says."""
    return int(_row_without_label(key)[0])


def _digest(facts: Sequence[str]) -> int:
    # SQLite's integers have 64 bits with a sign.
    return int.from_bytes(hashlib.sha256(json.dumps(facts).encode()).digest()[:8], "big") >> 1


def is_true_key(row: Sequence[Any]) -> bool:
    """Return whether what a key's row says is what was written, whatever its label is."""
    return (
        len(row) == len(KEY_COLUMNS)
        and isinstance(row[0], int)
        and all(isinstance(text, str) for text in row[1:6])
        # The number is a digest, and so serves as the checksum.
        and _digest(tuple(row[1:6])) == row[0]
    )


def is_nameless_key(row: Sequence[Any]) -> bool:
    """Return whether a key's row stands for texts that were lost to damage."""
    return len(row) == len(KEY_COLUMNS) and isinstance(row[0], int) and list(row[1:7]) == [""] * 6


def is_sound_key(row: Sequence[Any]) -> bool:
    """Return whether a key's row is what was written."""
    return is_true_key(row) and isinstance(row[6], str) and (row[7] is None or row[7] == seal(row[0], row[6]))


def label_of(row: Sequence[Any]) -> str:
    """Return the label in a sound key's row; empty where there is no checksum, as processes of version 3 leave it."""
    return row[6] if row[7] is not None else ""


def sample_row(key: int, sample: Sample) -> tuple[Any, ...]:
    """Return a sample's row, in the order of `SAMPLE_COLUMNS`, without number and seal.

    Raises
    ------
    ValueError
        A time or a fact of the system's is not finite, or negative; a number has more than 63 bits.
    """
    seconds, started = float(sample.seconds), float(sample.started)
    if not (math.isfinite(seconds) and seconds >= 0 and math.isfinite(started)):
        msg = f"a time of {seconds} s that started at {started} is not valid"
        raise ValueError(msg)
    trial, launches = int(sample.round), int(sample.launches)
    if max(abs(trial), abs(launches)) > _LARGEST:
        msg = f"round {trial} with {launches} launches is out of range"
        raise ValueError(msg)
    row = (key, _text(sample.session), trial, seconds, launches, started)
    checksum = _sample_checksum(*row)
    activity = _activity_text(sample)
    return (*row, checksum, activity, None if activity is None else _activity_checksum(checksum, activity))


def sample_of(row: Sequence[Any]) -> Sample:
    """Return the sample of a row."""
    _, _, session, number, seconds, launches, started, _, text, _, _ = row
    if text is None:
        return Sample(seconds, launches, started, session, number)
    facts = json.loads(text)
    known = {name: facts[name] for name in ACTIVITY_FACTS if name in facts}
    activity = SystemActivity(**known) if known else None
    return Sample(seconds, launches, started, session, number, activity, disturbed=facts.get(_MARK, False))


def full_row(row: Sequence[Any], columns: Sequence[str]) -> Sequence[Any]:
    """Return a row with all columns: a file that was not opened for writing may lack the last ones."""
    return (*row, *[None] * (len(columns) - len(row)))


def is_true_sample(row: Sequence[Any]) -> bool:
    """Return whether what a sample's row says is what was written, whatever its number is."""
    if len(row) != len(SAMPLE_COLUMNS) or not _are(row[:8], _SAMPLE_KINDS):
        return False
    _, *facts, checksum, activity, activity_checksum, _ = row
    if _sample_checksum(*facts) != checksum:
        return False
    if activity is None or activity_checksum is None:
        return activity is activity_checksum
    return isinstance(activity, str) and bool(_activity_checksum(checksum, activity) == activity_checksum)


def is_sound_sample(row: Sequence[Any]) -> bool:
    """Return whether a sample's row is what was written; rows of processes of version 3 have no seal."""
    return is_true_sample(row) and (row[10] is None or row[10] == seal(row[0], row[7], row[9]))


def _sample_checksum(key: int, session: str, number: int, seconds: float, launches: int, started: float) -> int:
    # The bits of the numbers, not their texts: a damaged last digit must show.
    return zlib.crc32(struct.pack(">qqdqd", key, number, seconds, launches, started) + session.encode())


def _activity_text(sample: Sample) -> str | None:
    """Return what is known of a sample's time as JSON, None where nothing is."""
    facts: dict[str, float] = {}
    for name, kind in ACTIVITY_FACTS.items():
        given = getattr(sample.activity, name, None)
        if given is not None:
            # Numbers of numpy become Python's, which JSON knows.
            value = facts[name] = kind(given)
            if not 0 <= value <= _LARGEST:
                msg = f"{name} of {given} is out of range"
                raise ValueError(msg)
    if sample.disturbed:
        facts[_MARK] = True
    return json.dumps(facts, sort_keys=True, separators=(",", ":")) if facts else None


def _activity_checksum(sample_checksum: int, activity: str) -> int:
    # Goes on from the sample's own, so that an activity belongs to one sample only.
    return zlib.crc32(activity.encode(), sample_checksum & 0xFFFFFFFF)


def failure_row(key: int, failure: Failure) -> tuple[Any, ...]:
    """Return a failure's row, in the order of `FAILURE_COLUMNS`, without number, last sample before it and seal.

    Raises
    ------
    ValueError
        The time it started at is not finite.
    """
    started = float(failure.started)
    if not math.isfinite(started):
        msg = f"a failure's start at {started} is no time"
        raise ValueError(msg)
    message = _text(failure.message)
    if len(message) > _LONGEST_MESSAGE:
        half = _LONGEST_MESSAGE // 2
        message = f"{message[:half]} ... {message[-half:]}"
    clean = replace(failure, kind=_text(failure.kind), session=_text(failure.session), message=message, started=started)
    return (key, clean.session, clean.kind, message, started, _failure_checksum(key, clean))


def failure_of(row: Sequence[Any]) -> Failure:
    """Return the failure of a row."""
    _, _, session, kind, message, started, *_ = row
    return Failure(kind, message, started, session)


def is_true_failure(row: Sequence[Any]) -> bool:
    """Return whether what a failure's row says is what was written, whatever its number and place are."""
    if len(row) != len(FAILURE_COLUMNS) or not _are(row[:8], _FAILURE_KINDS):
        return False
    return bool(_failure_checksum(row[1], failure_of(row)) == row[7])


def is_sound_failure(row: Sequence[Any]) -> bool:
    """Return whether a failure's row is what was written; rows of processes of version 3 have no seal."""
    return is_true_failure(row) and (row[8] is None or row[8] == seal(row[0], row[6], row[7]))


def work_row(work: str, session: str) -> tuple[Any, ...]:
    """Return the row that says that a session's work is not done, in the order of `WORK_COLUMNS`."""
    return (work, _text(session), seal(work, _text(session)))


def is_sound_work(row: Sequence[Any]) -> bool:
    """Return whether a row of unfinished work is what was written."""
    return len(row) == len(WORK_COLUMNS) and _are(row, (str, str, int)) and row[2] == seal(*row[:2])


def _failure_checksum(key: int, failure: Failure) -> int:
    texts = json.dumps([failure.session, failure.kind, failure.message])
    return zlib.crc32(struct.pack(">qd", key, failure.started) + texts.encode())


def _are(row: Sequence[Any], kinds: Sequence[type]) -> bool:
    return len(row) == len(kinds) and all(isinstance(value, kind) for value, kind in zip(row, kinds, strict=True))


def _text(text: object) -> str:
    # What drivers and crashed processes say need not be valid Unicode.
    return str(text).encode("utf-8", "replace").decode("utf-8")
