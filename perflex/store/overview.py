"""Reading the whole measurement store: each row for export as CSV or JSON lines, and what there is of each kernel."""

from __future__ import annotations

import csv
import json
import statistics
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from perflex.store.reading import rows_after
from perflex.store.rows import ACTIVITY_FACTS, failure_of, sample_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence

    from perflex.store.reading import KeptRow
    from perflex.store.samples import MeasurementStore


# So many rows are read at once: other processes may write in between.
_PORTION = 5000

# What every exported row has; samples have no kind and message, failures no round, seconds and launches, nor whether
# they were disturbed and what the system reported.
COLUMNS = (
    "record", "number", "device", "driver", "label", "kernel", "sizes", "conditions", "session", "round", "seconds",
    "launches", "kind", "message", "started", "started_utc", "disturbed", *ACTIVITY_FACTS,
)  # fmt: skip


@dataclass(frozen=True)
class KernelOverview:
    """What the store has of one kernel on one device.

    Attributes
    ----------
    device, label
        The device's full name, and what people call the kernel (the beginning of its digest where it has no name).
    measurements
        How many differ in sizes, driver, code or conditions.
    samples, failures
        How many there are of each.
    disturbed
        How many of the samples are marked as disturbed.
    first, last
        The earliest and the latest start, in seconds since 1970, UTC.
    median_s
        Median time of one launch, over all samples that were not disturbed, in seconds; None where there is none.
    """

    device: str
    label: str
    measurements: int
    samples: int
    disturbed: int
    failures: int
    first: float
    last: float
    median_s: float | None

    def as_dict(self) -> dict[str, object]:
        """Return the facts for JSON."""
        return {**vars(self), "first_utc": utc(self.first), "last_utc": utc(self.last)}


@dataclass(frozen=True)
class CountsSize:
    """How much of the store are counts, which are made again when they are missing.

    Attributes
    ----------
    kernels, scops, counts
        Rows of each table.
    text_bytes
        Characters of all descriptions and counts.
    """

    kernels: int
    scops: int
    counts: int
    text_bytes: int


def utc(seconds: float) -> str:
    """Return a time as ISO text, such as ``2026-03-01T12:00:00Z``; as a number where no calendar has it."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return f"{seconds:.0f}"


def all_rows(store: MeasurementStore) -> Iterator[dict[str, Any]]:
    """Yield every sample, then every failure, in the order added, as a mapping from `COLUMNS`.

    Raises
    ------
    StoreError
        The file cannot be read.
    """
    for kept in _portions(store, "samples"):
        sample = sample_of(kept.row)
        activity = {} if sample.activity is None else vars(sample.activity)
        yield _exported("sample", kept, {**vars(sample), **activity})
    for kept in _portions(store, "failures"):
        yield _exported("failure", kept, vars(failure_of(kept.row)))


def _exported(record: str, kept: KeptRow, facts: dict[str, Any]) -> dict[str, Any]:
    known = {
        "record": record, "number": kept.row[0], "device": kept.device, "driver": kept.driver, "label": kept.label,
        "kernel": kept.kernel, "sizes": dict(json.loads(kept.sizes)) if kept.sizes else {},
        "conditions": kept.conditions, "started_utc": utc(facts["started"]), **facts,
    }  # fmt: skip
    return {name: known.get(name) for name in COLUMNS}


def write_rows(store: MeasurementStore, stream: IO[str], *, as_json: bool) -> int:
    """Write every sample and failure, a line each, and return how many there are.

    CSV has the names of the columns in its first line; sizes, true and false are JSON. What is not known is an empty
    place in CSV, and left out in JSON.

    Raises
    ------
    StoreError
        The file cannot be read.
    OSError
        The stream takes no more.
    """
    count = 0
    if as_json:
        for row in all_rows(store):
            stream.write(json.dumps({name: value for name, value in row.items() if value is not None}) + "\n")
            count += 1
        return count
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in all_rows(store):
        writer.writerow([json.dumps(value) if isinstance(value, (dict, bool)) else value for value in row.values()])
        count += 1
    return count


def _portions(store: MeasurementStore, table: str) -> Iterator[KeptRow]:
    """Yield the rows of samples or failures in the order added."""
    last = 0
    while True:

        def fetch(connection: sqlite3.Connection, after: int = last) -> list[KeptRow]:
            return rows_after(connection, table, after, _PORTION)

        rows = store.use(fetch)
        if not rows:
            return
        yield from rows
        last = rows[-1].row[0]


def overview(store: MeasurementStore) -> tuple[KernelOverview, ...]:
    """Return what there is of each kernel on each device, sorted by both names.

    Raises
    ------
    StoreError
        The file cannot be read.
    """
    found: dict[tuple[str, str], list[_Start]] = defaultdict(list)
    for kept in _portions(store, "samples"):
        sample = sample_of(kept.row)
        found[_kernel(kept)].append(_Start(kept.row[1], sample.started, sample.seconds, sample.disturbed))
    for kept in _portions(store, "failures"):
        found[_kernel(kept)].append(_Start(kept.row[1], failure_of(kept.row).started))
    return tuple(_summary(*group, rows) for group, rows in sorted(found.items()))


def _kernel(kept: KeptRow) -> tuple[str, str]:
    return kept.device, kept.label or kept.kernel[:12] or "(unnamed)"


class _Start(NamedTuple):
    """When a sample or a failure of a key began; a failure has no time."""

    key: int
    started: float
    seconds: float | None = None
    disturbed: bool = False


def _summary(device: str, label: str, rows: Sequence[_Start]) -> KernelOverview:
    failures = sum(row.seconds is None for row in rows)
    times = [row.seconds for row in rows if row.seconds is not None and not row.disturbed]
    starts = [row.started for row in rows]
    return KernelOverview(
        device,
        label,
        measurements=len({row.key for row in rows}),
        samples=len(rows) - failures,
        disturbed=sum(row.disturbed for row in rows),
        failures=failures,
        first=min(starts),
        last=max(starts),
        median_s=statistics.median(times) if times else None,
    )


def counts_size(store: MeasurementStore) -> CountsSize:
    """Return how much of the store are counts.

    Raises
    ------
    StoreError
        The file cannot be read.
    """

    def fetch(connection: sqlite3.Connection) -> CountsSize:
        kernels = connection.execute("SELECT count(*) FROM kernels").fetchone()[0]
        # total(), not sum(): that of no rows is NULL.
        scops, scop_bytes = connection.execute("SELECT count(*), total(length(text)) FROM scops").fetchone()
        counts, count_bytes = connection.execute("SELECT count(*), total(length(text)) FROM counts").fetchone()
        return CountsSize(kernels, scops, counts, int(scop_bytes + count_bytes))

    return store.use(fetch)
