"""All that the store has of measurements: export as CSV or JSON lines, overview, and removal."""

from __future__ import annotations

import csv
import json
import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import partial
from itertools import chain, islice
from typing import IO, TYPE_CHECKING, Any

from perflex.store.records import MeasurementKey, SystemActivity, failure_of_json, key_of_json, sample_of_json
from perflex.store.rows import DamageError, checked_rows, rows_in_order, sound_rows
from perflex.tables import Table, fixed, seconds, text

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator

    from perflex.store.store import Store

# So many rows are read at once: other processes may write in between.
_PORTION = 5000
# What every exported row has; samples have no kind and message, failures no round, seconds and launches, nor whether
# they were disturbed and what the system reported.
COLUMNS = (
    "record", "number", "device", "driver", "label", "kernel", "sizes", "conditions", "session", "round", "seconds",
    "launches", "kind", "message", "started", "started_utc", "disturbed",
    *(field.name for field in fields(SystemActivity)),
)  # fmt: skip


_NAMELESS, _NOTHING = ("", MeasurementKey("", (), "", "")), SystemActivity()


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


def all_rows(store: Store) -> Iterator[dict[str, Any]]:
    """Yield every sample and failure, in the order added, as a mapping from `COLUMNS`."""
    after, end = -1, 0
    while end > after:
        after = end
        found, end = store.look(partial(_portion, after=after))
        yield from found


def _portion(connection: sqlite3.Connection, after: int) -> tuple[list[dict[str, Any]], int]:
    """Return records after a number, as `all_rows`, and the last one's number."""
    keys = _keys(connection)
    rows = rows_in_order(connection, "records", "WHERE number > ? ORDER BY number LIMIT ?", (after, _PORTION))
    if rows and rows[0][0] <= after:
        msg = "a row of records is out of order"
        raise DamageError(msg)
    found = []
    for number, of, _, turn, started, data, _ in sound_rows(connection, "records", rows):
        # Label and key are empty where damage took them.
        label, key = keys.get(of, _NAMELESS)
        record = failure_of_json(data) if turn is None else sample_of_json(data)
        known = {
            **vars(key), **vars(record), **vars(getattr(record, "activity", None) or _NOTHING), "number": number,
            "label": label, "record": type(record).__name__.lower(), "sizes": dict(key.sizes),
            "started_utc": utc(started),
        }  # fmt: skip
        found.append({name: known.get(name) for name in COLUMNS})
    return found, rows[-1][0] if rows else after


def _keys(connection: sqlite3.Connection) -> dict[int, tuple[str, MeasurementKey]]:
    """Return label and key by the key's number."""
    rows = checked_rows(connection, "measurement_keys")
    return {number: (label, key_of_json(data)) for number, label, data, _ in rows}


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
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in all_rows(store):
        groups[row["device"], row["label"] or row["kernel"][:12] or "(unnamed)"].append(row)
    return tuple(_summary(*names, rows) for names, rows in sorted(groups.items()))


def _summary(device: str, label: str, rows: list[dict[str, Any]]) -> KernelOverview:
    samples = [row for row in rows if row["record"] == "sample"]
    times = [row["seconds"] for row in samples if not row["disturbed"]]
    starts = [row["started"] for row in rows]
    return KernelOverview(
        device,
        label,
        measurements=len({(*map(row.get, ("kernel", "driver", "conditions")), *row["sizes"].items()) for row in rows}),
        samples=len(samples),
        disturbed=len(samples) - len(times),
        failures=len(rows) - len(samples),
        first=min(starts),
        last=max(starts),
        median_s=statistics.median(times) if times else None,
    )


def size_of_made(store: Store) -> dict[str, int]:
    """Return how many rows there are of what can be made again, by table, and their bytes.

    `text_bytes` are those of counts, in characters, `code_bytes` those of machine code.
    """

    def fetch(connection: sqlite3.Connection) -> dict[str, int]:
        # total(), not sum(): that of no rows is NULL.
        query = "SELECT count(*), total(length({})) FROM {}"
        columns = {"kernels": "''", "scops": "text", "counts": "text", "code": "content"}
        found = {table: connection.execute(query.format(text, table)).fetchone() for table, text in columns.items()}
        sizes = {table: int(size) for table, (_, size) in found.items()}
        return {table: rows for table, (rows, _) in found.items()} | {
            "text_bytes": sizes["scops"] + sizes["counts"], "code_bytes": sizes["code"]
        }  # fmt: skip

    return store.look(fetch)


def remove(
    store: Store, before: float | None = None, *, failures_only: bool = False, dry: bool = False
) -> dict[str, tuple[int, int]]:
    """Delete samples and failures and give their space back, unless dry.

    Those go that started before a time, in seconds since 1970; by default all do. Returns by device how many samples
    and failures they are.
    """
    which = "WHERE started < ? AND (round IS NULL OR NOT ?)"
    values = (float("inf") if before is None else before, failures_only)

    def count(connection: sqlite3.Connection) -> dict[str, tuple[int, int]]:
        samples, failures = Counter[str](), Counter[str]()
        keys = _keys(connection)
        query = f"SELECT key, count(round), count(*) - count(round) FROM records {which} GROUP BY key"  # noqa: S608
        for number, *counted in connection.execute(query, values):
            device = keys.get(number, _NAMELESS)[1].device
            samples[device] += counted[0]
            failures[device] += counted[1]
        return {device: (samples[device], failures[device]) for device in samples}

    def delete(connection: sqlite3.Connection) -> None:
        connection.execute(f"DELETE FROM records {which}", values)  # noqa: S608
        connection.execute("DELETE FROM measurement_keys WHERE number NOT IN (SELECT key FROM records)")
        # Also those of hosts and containers that never come again.
        connection.execute("DELETE FROM unfinished_work WHERE session NOT IN (SELECT session FROM records)")

    # VACUUM cannot be in a transaction.
    def shrink(connection: sqlite3.Connection) -> None:
        connection.execute("VACUUM")
        # VACUUM writes to the write-ahead log; the file shrinks when that is copied into it.
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    # Looked at first: what cannot be read is not set aside by this.
    counted = store.look(count)
    if not dry:
        store.use(delete, writes=True)
        store.use(shrink)
    return counted
