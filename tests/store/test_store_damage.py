"""Damaged stores: set aside, told, and every row that SQLite still reads carried over, nothing else."""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
import sys
import time
import warnings
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from bench.stores import damages
from perflex.errors import PerflexWarning, StoreError
from perflex.store.contents import Selection, all_rows, overview, remove
from perflex.store.records import TABLES, Failure, MeasurementKey, Sample, insert
from perflex.store.resume import RunRecorder
from perflex.store.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.machine

KEY = MeasurementKey("digest", (("n", 512), ("m", 64)), "Some platform: some device", "1.0", "warmups=1")
OTHER = replace(KEY, device="Another platform: GPU")
COUNT = 2000
PAGE = 4096


def samples(count: int, session: str = "session") -> tuple[Sample, ...]:
    return tuple(Sample(1e-3 * (1 + n), 1, 1.7e9 + n, session, n) for n in range(count))


def failure(number: int) -> Failure:
    return Failure("hang", f"no answer {number}", 1.7e9 + number, "session")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a store of 2000 samples of one key, and 50 failures of another, of unfinished work; closed."""
    folder = tmp_path_factory.mktemp("whole")
    store = Store(folder / "store.sqlite")
    recorder = RunRecorder(store, "work")
    recorder.add_many([(KEY, row) for row in samples(COUNT)], {KEY: "matmul"})
    for number in range(50):
        recorder.fail(OTHER, failure(number), "stencil")
    store.close()
    return folder


@pytest.fixture
def path(whole: Path, tmp_path: Path) -> Path:
    """A copy of that store, to be damaged."""
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    return tmp_path / "store.sqlite"


def edit(path: Path, statement: str, *values: Any) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement, values)
        connection.commit()


@pytest.mark.slow
def test_random_damages_lose_nothing_readable_and_export_nothing_wrong() -> None:
    """20 of the benchmark's ways to damage a store."""
    assert damages(20, "test") == {"wrong row": 0, "lost row": 0, "escape": 0}


def leaves(content: bytes) -> list[int]:
    """Where the table's pages begin that hold samples."""
    starts = range(0, len(content), PAGE)
    return [at for at in starts if content[at] == 0x0D and b"session" in content[at : at + PAGE]]


def zeroed_pages(content: bytearray) -> None:
    for at in leaves(content)[3:9:2]:
        content[at : at + PAGE] = bytes(PAGE)


def truncated(content: bytearray) -> None:
    del content[len(content) * 6 // 10 :]


def changed_bytes(content: bytearray) -> None:
    for at in np.random.default_rng(3).integers(0, len(content) - 40 * PAGE, 10):
        content[40 * PAGE + at] ^= 0x55


@pytest.mark.parametrize(
    ("damage", "at_least"), [(zeroed_pages, COUNT - 300), (truncated, COUNT // 4), (changed_bytes, COUNT - 900)]
)
def test_what_is_readable_is_carried_over(path: Path, damage: Callable[[bytearray], None], at_least: int) -> None:
    content = bytearray(path.read_bytes())
    damage(content)
    path.write_bytes(content)
    store = Store(path)
    assert store.examine().problems
    assert path.read_bytes() == content
    with pytest.warns(PerflexWarning, match="is damaged") as caught:
        kept = store.earlier(KEY)
    [told] = [str(one.message) for one in caught]
    [aside] = store.set_asides()
    found = re.search(rf"it is now {aside}; a new one has its readable rows: (\d+) samples and (\d+) failures$", told)
    assert found is not None
    assert aside.read_bytes() == content
    assert list(kept) == sorted(kept, key=lambda row: row.round)
    assert set(kept) <= set(samples(COUNT))
    assert at_least <= len(kept) == int(found[1]) < COUNT
    later = Sample(1.0, 1, 1.0, "later", 0)
    store.add(KEY, later)
    assert store.earlier(KEY) == (*kept, later)
    store.close()
    verdict = Store(path).examine()
    assert (verdict.sound["samples"], verdict.sound["failures"]) == (len(kept) + 1, int(found[2]))
    assert verdict.problems == ()


@pytest.mark.parametrize("content", [b"this is no database" * 500, b"\0" * 5000], ids=["text", "zeros"])
def test_what_is_no_database_has_nothing_to_carry_over(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "store.sqlite"
    path.write_bytes(content)
    store = Store(path)
    with pytest.warns(PerflexWarning, match=r"is damaged \(file is not a database\); .*: 0 samples and 0 failures"):
        store.add(KEY, samples(1)[0])
    assert store.earlier(KEY) == samples(1)
    assert store.set_asides()[0].read_bytes() == content


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    path.touch()
    Store(path).add(KEY, samples(1)[0])
    assert Store(path).earlier(KEY) == samples(1)


@pytest.mark.parametrize("table", [table for table in TABLES if table != "versions"])
def test_every_changed_value_is_noticed(path: Path, table: str) -> None:
    """Each column of each table, by SQL: no check of SQLite's own notices it."""
    store = Store(path)
    store.write_counts(lambda connection: insert(connection, "scops", ("digest", "text")))
    store.write_counts(lambda connection: insert(connection, "kernels", ("key", "digest", "version")))
    store.write_counts(lambda connection: insert(connection, "counts", ("digest", "version", "text")))
    store.close()
    before = path.read_bytes()
    with closing(sqlite3.connect(path)) as connection:
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    for column in columns:
        path.write_bytes(before)
        changed = (
            f"CASE typeof({column}) WHEN 'text' THEN {column} || 'x' WHEN 'null' THEN 1 ELSE {column} + 100000 END"
        )
        edit(path, f"UPDATE {table} SET {column} = {changed} WHERE rowid = (SELECT max(rowid) FROM {table})")  # noqa: S608
        [problem] = Store(path).examine().problems
        assert f"of {table} is not what was written" in problem


def test_no_wrong_value_is_used_exported_or_removed_by(path: Path) -> None:
    edit(path, "UPDATE samples SET seconds = 12.5 WHERE number = 17")
    edit(path, "UPDATE measurement_keys SET label = 'stencil' WHERE label = 'matmul'")
    edit(path, "UPDATE unfinished_work SET work = 'other work'")
    store = Store(path)
    with pytest.warns(PerflexWarning, match=f"{COUNT - 1} samples and 50 failures"):
        rows = list(all_rows(store))
    assert [row["seconds"] for row in rows[:-50]] == [one.seconds for one in samples(COUNT) if one.round != 16]
    # The kernel's name is lost, and known again when it is measured again.
    assert {row["label"] for row in rows} == {"", "stencil"}
    assert {row["device"] for row in rows if row["record"] == "sample"} == {""}
    assert store.examine().sound["nameless"] == 1
    assert RunRecorder(store, "work").earlier(KEY) == ()
    assert remove(store, Selection(device="some")) == {}
    store.add(KEY, Sample(1.0, 1, 1.0, "later", 0), "matmul")
    assert [(kernel.label, kernel.samples) for kernel in overview(store)] == [("stencil", 0), ("matmul", COUNT)]


def test_unfinished_work_and_failures_are_carried_over(path: Path) -> None:
    # A description that is not what was written: nothing else is lost with it.
    edit(path, "INSERT INTO scops VALUES ('digest', 'text', 0)")
    store = Store(path)
    with pytest.warns(PerflexWarning, match=rf"is damaged \(for the test\).* {COUNT} samples and 50 failures"):
        store.set_aside("for the test")
    assert len(RunRecorder(store, "work").earlier(KEY)) == COUNT
    assert store.failure(OTHER) == failure(49)
    store.add(OTHER, Sample(1.0, 1, 1.0, "later", 0))
    assert store.failure(OTHER) is None


def test_a_page_that_is_there_twice(path: Path) -> None:
    content = bytearray(path.read_bytes())
    first, second = leaves(content)[1:3]
    content[second : second + PAGE] = content[first : first + PAGE]
    path.write_bytes(content)
    assert Store(path).examine().problems
    with pytest.warns(PerflexWarning, match="is damaged"):
        rows = list(all_rows(Store(path)))
    assert len({row["number"] for row in rows}) == len(rows) < COUNT + 50


def test_damage_that_comes_again_is_an_error(path: Path) -> None:
    store = Store(path)
    edit(path, "UPDATE samples SET seconds = 12.5 WHERE number = 17")
    with pytest.warns(PerflexWarning, match="is damaged"):
        store.earlier(KEY)
    edit(path, "UPDATE samples SET seconds = 12.5 WHERE number = 18")
    with pytest.raises(StoreError, match=r"is damaged \(a row of samples is not what was written\); name another"):
        store.earlier(KEY)
    assert len(store.set_asides()) == 1


UNTIL_TOLD = """
import sys
from pathlib import Path
from perflex.store.records import MeasurementKey, Sample
from perflex.store.store import Store
store = Store(Path(sys.argv[1]))
key = MeasurementKey("digest", (("n", 512), ("m", 64)), "Some platform: some device", "1.0", "warmups=1")
n = 0
while not Path(sys.argv[3]).exists():
    store.add(key, Sample(1e-3 * (1 + n), 1, 1.7e9 + n, sys.argv[2], n), "matmul")
    n += 1
print(n)
"""


def test_replacing_the_file_under_writers(tmp_path: Path) -> None:
    path, enough = tmp_path / "store.sqlite", tmp_path / "enough"
    command = [sys.executable, "-W", "error", "-c", UNTIL_TOLD, str(path)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    writers = [subprocess.Popen([*command, f"session {i}", str(enough)], **pipes) for i in range(2)]
    # The writers write until told, so that the file is replaced as often on a slow machine as on a fast one.
    for _ in range(4):
        store = Store(path)
        rows = len(store.earlier(KEY))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PerflexWarning)
            store.set_aside("for the test")
        deadline = time.monotonic() + 60
        while len(store.earlier(KEY)) < rows + 10:
            assert time.monotonic() < deadline, "the writers write no more"
            time.sleep(0.02)
        store.close()
    enough.touch()
    outputs = [process.communicate(timeout=60) for process in writers]
    assert [(process.returncode, error) for process, (_, error) in zip(writers, outputs, strict=True)] == [(0, "")] * 2
    kept = Store(path).earlier(KEY)
    for i, (count, _) in enumerate(outputs):
        assert tuple(row for row in kept if row.session == f"session {i}") == samples(int(count), f"session {i}")
    assert Store(path).examine().problems == ()
