"""What the system reported of each sample is kept with it, in files of this and of the previous format."""

from __future__ import annotations

import json
import math
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from perflex.errors import PerflexWarning, StoreError
from perflex.store.overview import COLUMNS, all_rows, overview
from perflex.store.records import Failure, MeasurementKey, Sample, SystemActivity
from perflex.store.samples import MeasurementStore
from perflex.store.schema import APPLICATION, MIGRATIONS
from perflex.store.verify import verify

if TYPE_CHECKING:
    from pathlib import Path

KEY = MeasurementKey("digest", (("n", 512), ("m", 64)), "Some platform: some device", "1.0", "warmups=1")
PAGE = 4096

FULL = SystemActivity(0.0125, 0.0249, 1 / 3, 0.01, 0.02, 17, throttled=True)
NUMPY = SystemActivity(np.float64(0.5), np.float32(0.25), switches=np.int64(3), throttled=np.bool_(False))
PLAIN = SystemActivity(0.5, 0.25, switches=3, throttled=False)

# What the previous format has of KEY, written by perflex of that time: number, session, round, seconds, launches,
# started and checksum of three samples.
OLD_KEY = 70185647224732063
OLD_ROWS = [
    (OLD_KEY, "old", 0, 0.001, 1, 1.7e9, 1584859383),
    (OLD_KEY, "old", 1, 0.002, 1, 1.7e9 + 1, 1964840015),
    (OLD_KEY, "old", 2, 0.003, 1, 1.7e9 + 2, 1445844545),
]
OLD_SAMPLES = tuple(Sample(1e-3 * (1 + n), 1, 1.7e9 + n, "old", n) for n in range(3))
OLD_COLUMNS = "key, session, round, seconds, launches, started, checksum"
OLD_INSERT = f"INSERT INTO samples ({OLD_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)"  # noqa: S608


def sample(number: int, activity: SystemActivity | None = FULL, *, disturbed: bool = False) -> Sample:
    return Sample(1e-3 * (1 + number), 2, 1.7e9 + number, "session", number, activity, disturbed)


def mixed(count: int) -> tuple[Sample, ...]:
    """Samples with and without activity and mark."""
    kinds = [(None, False), (FULL, True), (PLAIN, False), (None, True), (SystemActivity(0.25), False)]
    return tuple(sample(n, kinds[n % 5][0], disturbed=kinds[n % 5][1]) for n in range(count))


@pytest.fixture
def store(tmp_path: Path) -> MeasurementStore:
    return MeasurementStore(tmp_path / "store.sqlite")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A file of the previous format, with three samples and a failure."""
    path = tmp_path / "store.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        for migration in MIGRATIONS[:2]:
            for statement in migration:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id={APPLICATION}")
        connection.execute("PRAGMA user_version=2")
        names = (KEY.kernel, json.dumps([["m", 64], ["n", 512]]), KEY.device, KEY.driver, KEY.conditions, "matmul")
        connection.execute("INSERT INTO measurement_keys VALUES (?, ?, ?, ?, ?, ?, ?)", (OLD_KEY, *names))
        connection.executemany(OLD_INSERT, OLD_ROWS)
        connection.commit()
    return path


def execute(path: Path, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(statement, values).fetchall()
        connection.commit()
        return rows


# kept with the sample


@pytest.mark.parametrize("disturbed", [False, True], ids=["quiet", "disturbed"])
@pytest.mark.parametrize(
    ("given", "kept"),
    [(None, None), (FULL, FULL), (NUMPY, PLAIN), (SystemActivity(others_s=0.0), SystemActivity(others_s=0.0)),
     (SystemActivity(throttled=False), SystemActivity(throttled=False)), (SystemActivity(), None)],
    ids=["none", "all", "numpy", "zero", "false", "nothing known"],
)  # fmt: skip
def test_what_the_system_reported_comes_back(
    store: MeasurementStore, given: SystemActivity | None, kept: SystemActivity | None, disturbed: bool
) -> None:
    store.add(KEY, sample(0, given, disturbed=disturbed))
    store.close()
    [found] = MeasurementStore(store.path).earlier(KEY)
    assert found == sample(0, kept, disturbed=disturbed)
    types = [type(value) for value in vars(found.activity or SystemActivity()).values() if value is not None]
    assert set(types) <= {float, int, bool}
    assert verify(store.path).problems == ()


def test_nothing_known_takes_no_space(store: MeasurementStore) -> None:
    store.add(KEY, sample(0, None))
    store.add(KEY, sample(1, SystemActivity(switches=2), disturbed=True))
    rows = execute(store.path, "SELECT activity, activity_checksum IS NULL FROM samples ORDER BY number")
    assert rows == [(None, 1), ('{"disturbed":true,"switches":2}', 0)]


@pytest.mark.parametrize(
    "wrong",
    [{"elapsed_s": math.nan}, {"waited_s": math.inf}, {"others_s": -0.01}, {"switches": -1}, {"switches": 2**70},
     {"stolen_s": -math.inf}],
    ids=str,
)  # fmt: skip
def test_a_fact_that_is_no_number_is_refused(store: MeasurementStore, wrong: dict[str, Any]) -> None:
    store.add(KEY, sample(0))
    with pytest.raises(StoreError, match=r"a measurement cannot be kept in .*store\.sqlite: .* out of range"):
        store.add_many([(KEY, sample(1)), (KEY, sample(2, SystemActivity(**wrong)))])
    assert store.earlier(KEY) == (sample(0),)


# damage


@pytest.mark.parametrize(
    "damage",
    [
        "activity = NULL",
        "activity = '{}'",
        "activity = replace(activity, '17', '18')",
        "activity = replace(activity, 'true', 'false')",
        "activity = activity || ' '",
        "activity = (SELECT activity FROM samples WHERE number = 3)",
        "(activity, activity_checksum) = (SELECT activity, activity_checksum FROM samples WHERE number = 3)",
        "activity_checksum = NULL",
        "activity_checksum = activity_checksum + 1",
        "activity = CAST(activity AS BLOB)",
        "activity = CAST(x'7bff7d' AS TEXT)",
        "seconds = 12.5",
    ],
)
def test_a_changed_activity_is_damage(store: MeasurementStore, damage: str) -> None:
    rows = (sample(0, None), sample(1), sample(2, PLAIN, disturbed=True))
    store.add_many([(KEY, row) for row in rows])
    store.close()
    execute(store.path, f"UPDATE samples SET {damage} WHERE number = 2")  # noqa: S608
    assert verify(store.path).problems == ("row 2 of samples is not what was written",)
    with pytest.warns(PerflexWarning, match=r"a row's checksum is wrong\).*: 2 samples and 0 failures"):
        assert store.earlier(KEY) == (rows[0], rows[2])


def test_an_added_activity_is_damage(store: MeasurementStore) -> None:
    store.add_many([(KEY, sample(0, None)), (KEY, sample(1, None))])
    store.close()
    execute(store.path, """UPDATE samples SET activity = '{"disturbed":true}' WHERE number = 1""")
    assert verify(store.path).problems == ("row 1 of samples is not what was written",)
    with pytest.warns(PerflexWarning, match="checksum is wrong"):
        assert store.earlier(KEY) == (sample(1, None),)


@pytest.mark.parametrize("byte", [b"\xff", b"\x80", b"\xed\xa0\x80"], ids=["ff", "continuation", "surrogate"])
def test_bytes_that_are_no_text_are_damage(store: MeasurementStore, byte: bytes) -> None:
    """SQLite hands them over, and sqlite3 would fail with an error that says nothing of damage."""
    session = "session" + "x" * len(byte)
    store.add_many([(KEY, replace(sample(0), session=session)), (KEY, sample(1))])
    store.close()
    content = store.path.read_bytes()
    assert session.encode() in content
    store.path.write_bytes(content.replace(session.encode(), b"session" + byte))
    assert "row 1 of samples is not what was written" in verify(store.path).problems
    with pytest.warns(PerflexWarning, match="checksum is wrong"):
        assert store.earlier(KEY) == (sample(1),)


def zeroed_header(content: bytearray) -> None:
    content[:100] = bytes(100)


def page_lost(content: bytearray) -> None:
    content[20 * PAGE : 21 * PAGE] = b"\xa5" * PAGE


def changed_bytes(content: bytearray) -> None:
    for at in np.random.default_rng(3).integers(8 * PAGE, len(content), 12):
        content[at] ^= 0xD5  # no text any more


# A page has fewer than 50 of these samples.
@pytest.mark.parametrize(("damage", "lost"), [(zeroed_header, 0), (page_lost, 50), (changed_bytes, 12 * 50)])
def test_salvaged_samples_keep_their_activity(store: MeasurementStore, damage: Any, lost: int) -> None:
    rows = mixed(2000)
    store.add_many([(KEY, row) for row in rows], {KEY: "matmul"})
    store.close()
    content = bytearray(store.path.read_bytes())
    damage(content)
    store.path.write_bytes(content)
    with pytest.warns(PerflexWarning, match="is damaged"):
        store.set_aside("for the test")
    kept = store.earlier(KEY)
    assert len(rows) - lost <= len(kept) <= len(rows) - (lost > 0)
    assert set(kept) <= set(rows)
    verdict = verify(store.path)
    assert (verdict.samples, verdict.nameless, verdict.problems) == (len(kept), 0, ())


# files of the previous format


def test_a_file_of_the_previous_format(old: Path) -> None:
    store = MeasurementStore(old)
    assert store.earlier(KEY) == OLD_SAMPLES
    store.add_many([(KEY, row) for row in mixed(10)])
    store.close()
    assert MeasurementStore(old).earlier(KEY) == OLD_SAMPLES + mixed(10)
    assert execute(old, "PRAGMA user_version") == [(len(MIGRATIONS),)]
    # The old rows stand as they were written.
    assert execute(old, f"SELECT {OLD_COLUMNS} FROM samples WHERE number <= 3") == OLD_ROWS  # noqa: S608
    verdict = verify(old)
    assert (verdict.samples, verdict.problems) == (13, ())
    assert not list(old.parent.glob("*.damaged*"))


def test_verifying_a_file_of_the_previous_format_leaves_it_alone(old: Path) -> None:
    before = old.read_bytes()
    verdict = verify(old)
    assert (verdict.samples, verdict.problems) == (3, ())
    execute(old, "UPDATE samples SET seconds = 12.5 WHERE number = 2")
    assert verify(old).problems == ("row 2 of samples is not what was written",)
    execute(old, "UPDATE samples SET seconds = 0.002 WHERE number = 2")
    assert old.read_bytes()[100:] == before[100:]
    assert execute(old, "PRAGMA user_version") == [(2,)]


def test_salvaging_a_file_of_the_previous_format(old: Path) -> None:
    content = bytearray(old.read_bytes())
    zeroed_header(content)
    old.write_bytes(content)
    store = MeasurementStore(old)
    with pytest.warns(PerflexWarning, match="3 samples and 0 failures$"):
        assert store.earlier(KEY) == OLD_SAMPLES
    store.add(KEY, sample(0))
    assert store.earlier(KEY) == (*OLD_SAMPLES, sample(0))


def test_salvaging_rows_of_both_formats(old: Path) -> None:
    store = MeasurementStore(old)
    store.add_many([(KEY, row) for row in mixed(10)])
    store.fail(KEY, Failure("hang", "no answer", 1.7e9, "session"))
    with pytest.warns(PerflexWarning, match="13 samples and 1 failure$"):
        store.set_aside("for the test")
    assert store.earlier(KEY) == OLD_SAMPLES + mixed(10)
    assert verify(old).problems == ()


def test_a_process_of_the_previous_version_goes_on(old: Path) -> None:
    """It has the file open while it is migrated: rows with an activity must not look damaged to it."""
    with closing(sqlite3.connect(old, isolation_level=None)) as other:
        assert len(other.execute(f"SELECT {OLD_COLUMNS} FROM samples").fetchall()) == 3  # noqa: S608
        store = MeasurementStore(old)
        twin = replace(OLD_SAMPLES[0], session="new", activity=FULL, disturbed=True)
        store.add_many([(KEY, twin), (KEY, replace(twin, activity=None, disturbed=False, round=1))])
        rows = other.execute(f"SELECT {OLD_COLUMNS} FROM samples WHERE session = 'new'").fetchall()  # noqa: S608
        # The checksum says nothing of the activity: it is that of the sample alone.
        alone = MeasurementStore(old.with_name("alone.sqlite"))
        alone.add(KEY, replace(twin, activity=None, disturbed=False))
        assert rows[0] == execute(alone.path, f"SELECT {OLD_COLUMNS} FROM samples")[0]  # noqa: S608
        other.execute("DELETE FROM samples WHERE session = 'old' AND round = 2")
        other.execute(OLD_INSERT, OLD_ROWS[2])
        assert store.earlier(KEY)[-1] == OLD_SAMPLES[2]
    assert verify(old).problems == ()


ADDING = """
import sys
from pathlib import Path
from perflex.store.records import MeasurementKey, Sample, SystemActivity
from perflex.store.samples import MeasurementStore
store = MeasurementStore(Path(sys.argv[1]))
key = MeasurementKey("digest", (("n", 512), ("m", 64)), "Some platform: some device", "1.0", "warmups=1")
for n in range(20):
    store.add(key, Sample(1e-3, 1, 1.7e9, sys.argv[2], n, SystemActivity(switches=n), n % 2 == 1))
"""


def test_processes_migrate_a_file_at_once(old: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", ADDING, str(old)]
    processes = [subprocess.Popen([*command, f"session {i}"], stderr=subprocess.PIPE, text=True) for i in range(3)]
    assert [(process.communicate(timeout=60)[1], process.returncode) for process in processes] == [("", 0)] * 3
    kept = MeasurementStore(old).earlier(KEY)
    assert set(OLD_SAMPLES) < set(kept)
    for i in range(3):
        of_session = [row for row in kept if row.session == f"session {i}"]
        assert [(row.activity, row.disturbed) for row in of_session] == [
            (SystemActivity(switches=n), n % 2 == 1) for n in range(20)
        ]


# shown


def test_rows_have_what_the_system_reported(store: MeasurementStore) -> None:
    store.add_many([(KEY, sample(0)), (KEY, sample(1, None, disturbed=True))])
    store.fail(KEY, Failure("hang", "no answer", 1.7e9, "session"))
    first, second, failed = all_rows(store)
    assert all(tuple(row) == COLUMNS for row in (first, second, failed))
    names = ("elapsed_s", "processor_s", "waited_s", "stolen_s", "others_s", "switches", "throttled")
    assert [first[name] for name in names] == [0.0125, 0.0249, 1 / 3, 0.01, 0.02, 17, True]
    assert (first["disturbed"], second["disturbed"], failed["disturbed"]) == (False, True, None)
    assert {second[name] for name in names} == {failed[name] for name in names} == {None}


def test_disturbed_samples_are_counted_and_not_in_the_median(store: MeasurementStore) -> None:
    other = replace(KEY, kernel="other")
    quiet, disturbed = [sample(n) for n in range(3)], [sample(n, disturbed=True) for n in range(10, 14)]
    store.add_many([(KEY, row) for row in (*disturbed, *quiet)], {KEY: "matmul"})
    store.add_many([(other, row) for row in disturbed], {other: "other"})
    known, unknown = overview(store)
    assert (known.label, known.samples, known.disturbed, known.median_s) == ("matmul", 7, 4, pytest.approx(2e-3))
    assert (unknown.label, unknown.samples, unknown.disturbed, unknown.median_s) == ("other", 4, 4, None)
    assert known.last == disturbed[-1].started
