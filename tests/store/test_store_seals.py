"""What a damaged store hands out: rows as they were written, or none; labels, numbers and unfinished work, too."""

from __future__ import annotations

import json
import sqlite3
import warnings
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from perflex.errors import PerflexWarning
from perflex.store.overview import all_rows, overview
from perflex.store.records import Failure, MeasurementKey, Sample, SystemActivity
from perflex.store.removal import Selection, remove
from perflex.store.resume import RunRecorder
from perflex.store.samples import MeasurementStore
from perflex.store.schema import APPLICATION, MIGRATIONS
from perflex.store.store import Store
from perflex.store.verify import verify

if TYPE_CHECKING:
    from pathlib import Path

KEY = MeasurementKey("digest", (("n", 512), ("m", 64)), "Some platform: some device", "1.0", "warmups=1")
OTHER = replace(KEY, device="Some platform: another device")
WORK = "work"


def sample(number: int, session: str = "session") -> Sample:
    return Sample(1e-3 * (1 + number), 2, 1.7e9 + number, session, number, SystemActivity(0.5, switches=3), number == 1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store of four samples and a failure of each of two kernels, with unfinished work; closed."""
    store = MeasurementStore(tmp_path / "store.sqlite")
    recorder = RunRecorder(store, WORK)
    for key, label in ((KEY, "matmul"), (OTHER, "stencil")):
        recorder.add_many([(key, sample(n)) for n in range(4)], {key: label})
        recorder.fail(key, Failure("hang", "no answer", 1.7e9, "session"), label)
    store.close()
    return store.path


def execute(path: Path, statement: str, *values: Any) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA foreign_keys=OFF")
        connection.execute(statement, values)
        connection.commit()


def exported(path: Path) -> list[str]:
    """Return the rows that are exported, without their numbers: recovery gives new ones."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PerflexWarning)
        rows = list(all_rows(MeasurementStore(Store(path))))
    return [json.dumps({name: value for name, value in row.items() if name != "number"}) for row in rows]


COLUMNS = {
    "measurement_keys": ("kernel", "sizes", "device", "driver", "conditions", "label", "label_checksum"),
    "samples": (
        "number", "session", "round", "seconds", "launches", "started", "checksum", "activity", "activity_checksum",
        "seal",
    ),
    "failures": ("number", "session", "kind", "message", "started", "after", "checksum", "seal"),
    "unfinished_work": ("work", "session", "checksum"),
}  # fmt: skip


@pytest.mark.parametrize(("table", "column"), [(table, column) for table, names in COLUMNS.items() for column in names])
def test_every_change_is_noticed_and_nothing_wrong_is_exported(path: Path, table: str, column: str) -> None:
    before = exported(path)
    text = column in {
        "kernel",
        "sizes",
        "device",
        "driver",
        "conditions",
        "label",
        "session",
        "kind",
        "message",
        "work",
    }
    change = f"{column} || 'x'" if text or column == "activity" else f"{column} + 100"
    execute(path, f"UPDATE {table} SET {column} = {change} WHERE rowid = (SELECT max(rowid) FROM {table})")  # noqa: S608
    # Damage that only takes a label away is the case of its own below.
    assert verify(path).problems
    after = exported(path)
    nameless = [row for row in after if json.loads(row)["label"] == ""]
    assert set(after) - set(nameless) <= set(before)
    facts = [{k: v for k, v in json.loads(row).items() if k not in {"label", *NAMES}} for row in before]
    for row in map(json.loads, nameless):
        assert {name: value for name, value in row.items() if name not in {"label", *NAMES}} in facts
        assert [row[name] for name in NAMES] in ([json.loads(one)[name] for name in NAMES] for one in (*before, LOST))


NAMES = ("device", "driver", "kernel", "sizes", "conditions")
LOST = json.dumps(dict.fromkeys(NAMES, "") | {"sizes": {}})


def test_a_changed_label_is_named_and_never_shown(path: Path) -> None:
    execute(path, "UPDATE measurement_keys SET label = 'stencil' WHERE label = 'matmul'")
    [problem] = verify(path).problems
    assert "of measurement_keys is not what was written" in problem
    with pytest.warns(PerflexWarning, match="8 samples and 2 failures"):
        found = overview(MeasurementStore(Store(path)))
    assert [(kernel.label, kernel.samples) for kernel in found] == [("stencil", 4), ("digest", 4)]
    assert verify(path).problems == ()


def test_a_row_whose_kernel_is_gone_is_not_left_out(path: Path) -> None:
    execute(path, "DELETE FROM measurement_keys WHERE label = 'matmul'")
    assert verify(path).problems
    with pytest.warns(PerflexWarning, match="8 samples and 2 failures"):
        assert len(list(all_rows(MeasurementStore(Store(path))))) == 10


@pytest.mark.parametrize("value", [None, b"\xff\x00", 7, 0.5])
def test_values_of_other_types(path: Path, value: object) -> None:
    execute(path, "UPDATE measurement_keys SET device = ifnull(?, x'00') WHERE label = 'matmul'", value)
    assert verify(path).problems
    with pytest.warns(PerflexWarning, match="is damaged"):
        assert remove(MeasurementStore(Store(path)), Selection(device="another")).by_device == {OTHER.device: (4, 1)}
    assert len(exported(path)) == 5


def test_removing_goes_by_what_was_written(path: Path) -> None:
    execute(path, "UPDATE measurement_keys SET device = 'Some platform: another device' WHERE label = 'matmul'")
    with pytest.warns(PerflexWarning, match="is damaged"):
        remove(MeasurementStore(Store(path)), Selection(device="another"))
    assert len(exported(path)) == 5


def test_unfinished_work_that_was_changed_is_measured_anew(path: Path) -> None:
    assert RunRecorder(MeasurementStore(Store(path)), WORK).earlier(KEY) == tuple(map(sample, range(4)))
    execute(path, "UPDATE unfinished_work SET session = 'others'")
    with pytest.warns(PerflexWarning, match="is damaged"):
        assert RunRecorder(MeasurementStore(Store(path)), WORK).earlier(KEY) == ()


def test_work_that_was_done_stays_done_after_recovery(path: Path) -> None:
    store = MeasurementStore(Store(path))
    RunRecorder(store, WORK).finish()
    with pytest.warns(PerflexWarning, match="is damaged"):
        store.set_aside("for the test")
    assert RunRecorder(store, WORK).earlier(KEY) == ()


def version_3(path: Path) -> None:
    """Make a store of version 3 with three samples, a failure, and unfinished work."""
    store = MeasurementStore(path.with_name("of_now.sqlite"))
    store.add_many([(KEY, sample(n)) for n in range(3)], {KEY: "matmul"})
    store.fail(KEY, Failure("hang", "no answer", 1.7e9, "session"), "matmul")
    store.close()
    columns = {
        "measurement_keys": "number, kernel, sizes, device, driver, conditions, label",
        "samples": "number, key, session, round, seconds, launches, started, checksum, activity, activity_checksum",
        "failures": "number, key, session, kind, message, started, after, checksum",
    }
    with closing(sqlite3.connect(path)) as connection:
        for migration in MIGRATIONS[:3]:
            for statement in migration:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id={APPLICATION}")
        connection.execute("PRAGMA user_version=3")
        connection.execute("ATTACH ? AS now", (str(store.path),))
        for table, names in columns.items():
            connection.execute(f"INSERT INTO {table} ({names}) SELECT {names} FROM now.{table}")  # noqa: S608
        connection.execute("INSERT INTO unfinished VALUES (?, 'session')", (WORK,))
        connection.commit()


def test_a_file_of_version_3_gets_its_checksums(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    version_3(path)
    assert verify(path).problems == ()
    store = MeasurementStore(Store(path))
    assert store.earlier(KEY) == tuple(map(sample, range(3)))
    assert RunRecorder(store, WORK).earlier(KEY) == tuple(map(sample, range(3)))
    assert [row["label"] for row in all_rows(store)] == ["matmul"] * 4
    store.close()
    verdict = verify(path)
    assert (verdict.samples, verdict.failures, verdict.problems) == (3, 1, ())
    execute(path, "UPDATE measurement_keys SET label = 'other'")
    assert verify(path).problems


def test_a_process_of_version_3_goes_on(tmp_path: Path) -> None:
    """It has the file open while it is migrated; its rows have no seals, and are taken as they are."""
    path = tmp_path / "store.sqlite"
    version_3(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        before = other.execute("SELECT number, label FROM measurement_keys").fetchall()
        store = MeasurementStore(Store(path))
        store.add(KEY, sample(3))
        rows = other.execute("SELECT key, checksum FROM samples ORDER BY number").fetchall()
        other.execute("DELETE FROM samples WHERE number = 4")
        other.execute(
            "INSERT INTO samples (key, session, round, seconds, launches, started, checksum) "
            "SELECT key, session, 3, 0.004, 2, 1.7e9 + 3, ? FROM samples WHERE round = 2",
            (rows[3][1],),
        )
        other.execute("INSERT INTO unfinished VALUES ('more', 'session')")
        assert before == [(rows[0][0], "matmul")]
        assert store.earlier(KEY)[3] == replace(sample(3), activity=None, disturbed=False)
    assert verify(path).problems == ()


def test_a_page_that_is_there_twice(tmp_path: Path) -> None:
    store = MeasurementStore(tmp_path / "store.sqlite")
    store.add_many([(KEY, sample(n)) for n in range(400)], {KEY: "matmul"})
    store.close()
    content = bytearray(store.path.read_bytes())
    leaves = [
        at for at in range(0, len(content), 4096) if content[at] == 0x0D and b"session" in content[at : at + 4096]
    ]
    first, second = leaves[1:3]
    content[second : second + 4096] = content[first : first + 4096]
    store.path.write_bytes(content)
    assert verify(store.path).problems
    with pytest.warns(PerflexWarning, match="is damaged"):
        rows = list(all_rows(MeasurementStore(Store(store.path))))
    assert len({row["round"] for row in rows}) == len(rows) < 400
