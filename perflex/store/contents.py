"""All that the store has of measurements: export as CSV or JSON lines, overview, and removal."""

from __future__ import annotations

import csv
import json
import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, islice
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from perflex.store.records import (
    ACTIVITY_FACTS,
    DamageError,
    Sample,
    checked_rows,
    failure_of,
    rows_in_order,
    sample_of,
    sound_rows,
)
from perflex.tables import Table, fixed, seconds, text

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator

    from perflex.store.records import Failure
    from perflex.store.store import Store

# So many rows are read at once: other processes may write in between.
_PORTION = 5000
# What every exported row has; samples have no kind and message, failures no round, seconds and launches, nor whether
# they were disturbed and what the system reported.
COLUMNS = (
    "record", "number", "device", "driver", "label", "kernel", "sizes", "conditions", "session", "round", "seconds",
    "launches", "kind", "message", "started", "started_utc", "disturbed", *ACTIVITY_FACTS,
)  # fmt: skip


class Entry(NamedTuple):
    """A sample or failure and what it is of; texts are empty where damage took them."""

    number: int
    key: int
    kernel: str
    sizes: str
    device: str
    driver: str
    conditions: str
    label: str
    record: Sample | Failure


@dataclass(frozen=True)
class KernelOverview:
    """What the store has of one kernel on one device.

    `measurements` differ in sizes, driver, code or conditions; `first` and `last` started so many seconds after 1970,
    UTC; the median of the undisturbed samples is None where there is none.
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


def overview_table(kernels: Iterable[KernelOverview], device: str) -> Table:
    """Return what the store has of the kernels of a device."""
    columns = [
        text("label", "kernel"), fixed("samples"), fixed("disturbed"), fixed("failures"), text("first"), text("last"),
        seconds("median_s"),
    ]  # fmt: skip
    return Table(device or "(unnamed device)", columns, [
        (k.label, k.samples, k.disturbed, k.failures, utc(k.first)[:10], utc(k.last)[:10], k.median_s)
        for k in kernels if k.device == device
    ])  # fmt: skip


def utc(seconds: float) -> str:
    """Return a time as ISO text, such as ``2026-03-01T12:00:00Z``; as a number where no calendar has it."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return f"{seconds:.0f}"


def entries(store: Store, table: str) -> Iterator[Entry]:
    """Yield the samples or the failures in the order added."""
    last, record_of = 0, sample_of if table == "samples" else failure_of
    while True:

        def fetch(connection: sqlite3.Connection, after: int = last) -> tuple[list[Entry], int]:
            keys = {row[0]: row[1:-1] for row in checked_rows(connection, "measurement_keys")}
            rows = rows_in_order(connection, table, "WHERE number > ? ORDER BY number LIMIT ?", (after, _PORTION))
            if rows and rows[0][0] <= after:
                msg = f"a row of {table} is out of order"
                raise DamageError(msg)
            nothing, sound = ("",) * 6, sound_rows(connection, table, rows)
            found = [Entry._make((*row[:2], *keys.get(row[1], nothing), record_of(row))) for row in sound]
            return found, rows[-1][0] if rows else after

        found, end = store.look(fetch)
        if end == last:
            return
        yield from found
        last = end


def all_rows(store: Store) -> Iterator[dict[str, Any]]:
    """Yield every sample, then every failure, in the order added, as a mapping from `COLUMNS`."""
    for table in ("samples", "failures"):
        for entry in entries(store, table):
            activity = entry.record.activity if isinstance(entry.record, Sample) else None
            known = {
                **entry._asdict(), **vars(entry.record), **({} if activity is None else vars(activity)),
                "record": table.rstrip("s"), "sizes": dict(json.loads(entry.sizes or "[]")),
                "started_utc": utc(entry.record.started),
            }  # fmt: skip
            yield {name: known.get(name) for name in COLUMNS}


def write_rows(store: Store, stream: IO[str], *, as_json: bool) -> int:
    """Write every sample and failure, a line each, and return how many there are.

    CSV has the names of the columns in its first line; sizes, true and false are JSON. What is not known is an empty
    place in CSV, and left out in JSON.
    """
    writer = csv.writer(stream, lineterminator="\n")
    rows = all_rows(store)
    # Before anything is written: the store may be none.
    first = list(islice(rows, 1))
    if not as_json:
        writer.writerow(COLUMNS)
    count = 0
    for row in chain(first, rows):
        count += 1
        if as_json:
            stream.write(json.dumps({name: value for name, value in row.items() if value is not None}) + "\n")
        else:
            writer.writerow([json.dumps(value) if isinstance(value, (dict, bool)) else value for value in row.values()])
    return count


def overview(store: Store) -> tuple[KernelOverview, ...]:
    """Return what there is of each kernel on each device, sorted by both names."""
    groups: dict[tuple[str, str], list[Entry]] = defaultdict(list)
    for table in ("samples", "failures"):
        for entry in entries(store, table):
            groups[entry.device, entry.label or entry.kernel[:12] or "(unnamed)"].append(entry)
    return tuple(_summary(*names, found) for names, found in sorted(groups.items()))


def _summary(device: str, label: str, found: list[Entry]) -> KernelOverview:
    samples = [entry.record for entry in found if isinstance(entry.record, Sample)]
    times = [sample.seconds for sample in samples if not sample.disturbed]
    starts = [entry.record.started for entry in found]
    return KernelOverview(
        device,
        label,
        measurements=len({entry.key for entry in found}),
        samples=len(samples),
        disturbed=len(samples) - len(times),
        failures=len(found) - len(samples),
        first=min(starts),
        last=max(starts),
        median_s=statistics.median(times) if times else None,
    )


def counts_size(store: Store) -> dict[str, int]:
    """Return how many rows of counts there are, by table, and how many characters their texts have (`text_bytes`)."""

    def fetch(connection: sqlite3.Connection) -> dict[str, int]:
        # total(), not sum(): that of no rows is NULL.
        query = "SELECT count(*), total(length({})) FROM {}"
        columns = {"kernels": "''", "scops": "text", "counts": "text"}
        found = {table: connection.execute(query.format(text, table)).fetchone() for table, text in columns.items()}
        return {table: rows for table, (rows, _) in found.items()} | {
            "text_bytes": int(sum(size for _, size in found.values()))
        }

    return store.look(fetch)


@dataclass(frozen=True)
class Selection:
    """Which samples and failures go: those that all conditions hold for.

    They started before a time in seconds since 1970.
    """

    before: float | None = None
    failures_only: bool = False


def remove(store: Store, selection: Selection, *, dry: bool = False) -> dict[str, tuple[int, int]]:
    """Delete what is selected and give its space back, unless dry; return by device how many samples and failures."""
    taken = {
        "samples": [] if selection.failures_only else _selected(store, "samples", selection),
        "failures": _selected(store, "failures", selection),
    }

    def delete(connection: sqlite3.Connection) -> None:
        for table, found in taken.items():
            connection.executemany(f"DELETE FROM {table} WHERE number = ?", [(one.number,) for one in found])  # noqa: S608
        connection.execute(
            "DELETE FROM measurement_keys WHERE number NOT IN "
            "(SELECT key FROM samples UNION ALL SELECT key FROM failures)"
        )
        # Also those of hosts and containers that never come again.
        connection.execute(
            "DELETE FROM unfinished_work WHERE session NOT IN "
            "(SELECT session FROM samples UNION ALL SELECT session FROM failures)"
        )

    # VACUUM cannot be in a transaction.
    def shrink(connection: sqlite3.Connection) -> None:
        connection.execute("VACUUM")
        # VACUUM writes to the write-ahead log; the file shrinks when that is copied into it.
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    if not dry:
        store.use(delete, writes=True)
        store.use(shrink)
    samples, failures = (Counter(entry.device for entry in found) for found in taken.values())
    return {device: (samples[device], failures[device]) for device in samples | failures}


def _selected(store: Store, table: str, selection: Selection) -> list[Entry]:
    before = selection.before
    return [entry for entry in entries(store, table) if before is None or entry.record.started < before]
