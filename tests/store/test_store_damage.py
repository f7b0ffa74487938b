"""Damaged stores: what SQLite cannot read is set aside and told; rows that are not what was written are left out."""

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from perflex.errors import PerflexWarning, StoreError
from perflex.store.contents import all_rows, overview
from perflex.store.records import Failure, MeasurementKey, Sample
from perflex.store.resume import RunRecorder
from perflex.store.rows import TABLES, insert
from perflex.store.store import Store

KEY = MeasurementKey("digest", (("n", 512), ("m", 64)), "Some platform: some device", "1.0", "warmups=1")
OTHER = replace(KEY, device="Another platform: GPU")
COUNT = 2000
PAGE = 4096


def samples(count, session="session"):
    return tuple(Sample(1e-3 * (1 + n), 1, 1.7e9 + n, session, n) for n in range(count))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of a store of 2000 samples of one key, and 50 failures of another, of unfinished work; closed."""
    folder = tmp_path_factory.mktemp("whole")
    store = Store(folder / "store.sqlite")
    recorder = RunRecorder(store, "work")
    recorder.add_many([(KEY, row) for row in samples(COUNT)], {KEY: "matmul"})
    for number in range(50):
        recorder.fail(OTHER, Failure("hang", f"no answer {number}", 1.7e9 + number, "session"), "stencil")
    store.close()
    return folder


@pytest.fixture
def path(whole, tmp_path):
    """A copy of that store, to be damaged."""
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    return tmp_path / "store.sqlite"


def edit(path, statement, *values):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement, values)
        connection.commit()


def leaves(content):
    """Where pages of tables with samples or failures begin."""
    starts = range(0, len(content), PAGE)
    return [at for at in starts if content[at] == 0x0D and b"session" in content[at : at + PAGE]]


def zeroed_pages(content):
    for start in leaves(content)[3:9:2]:
        content[start : start + PAGE] = bytes(PAGE)


def truncated(content):
    del content[len(content) * 6 // 10 :]


def replaced(content):
    content[:] = b"this is no database" * 500


@pytest.mark.parametrize("damage", [zeroed_pages, truncated, replaced])
def test_a_file_that_cannot_be_read_is_set_aside(path, damage):
    content = bytearray(path.read_bytes())
    damage(content)
    path.write_bytes(content)
    store = Store(path)
    assert store.examine().problems
    # Who only looks changes nothing.
    with pytest.raises(StoreError, match="is damaged"):
        list(all_rows(store))
    assert path.read_bytes() == content
    with pytest.warns(PerflexWarning, match="is damaged") as caught:
        assert store.earlier(KEY) == ()
    [aside] = store.set_asides()
    [told] = [str(one.message) for one in caught]
    assert told.endswith(f"it is now {aside}, and a new one has been begun")
    assert aside.read_bytes() == content
    store.add(KEY, samples(1)[0])
    assert store.earlier(KEY) == samples(1)
    store.close()
    assert Store(path).examine().problems == ()


def test_damage_that_comes_again_is_an_error(path):
    store = Store(path)
    for place in range(2):
        store.close()
        path.write_bytes(b"this is no database" * 500)
        if not place:
            with pytest.warns(PerflexWarning, match="is damaged"):
                store.earlier(KEY)
    with pytest.raises(StoreError, match=r"is damaged \(file is not a database\); name another"):
        store.earlier(KEY)
    assert len(store.set_asides()) == 1


def test_an_empty_file_becomes_a_store(tmp_path):
    path = tmp_path / "store.sqlite"
    path.touch()
    Store(path).add(KEY, samples(1)[0])
    assert Store(path).earlier(KEY) == samples(1)


@pytest.mark.parametrize("table", [table for table in TABLES if table != "versions"])
def test_every_changed_value_is_noticed(path, table):
    """Each column of each table, by SQL: no check of SQLite's own notices it."""
    store = Store(path)
    store.write_made(lambda connection: insert(connection, "scops", ("digest", "text")))
    store.write_made(lambda connection: insert(connection, "kernels", ("key", "digest", "version")))
    store.write_made(lambda connection: insert(connection, "counts", ("digest", "version", "text")))
    store.write_made(lambda connection: insert(connection, "code", ("key", 1.7e9, b"content")))
    store.close()
    before = path.read_bytes()
    with closing(sqlite3.connect(path)) as connection:
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    for column in columns:
        path.write_bytes(before)
        changed = (
            f"CASE typeof({column}) WHEN 'text' THEN {column} || 'x' WHEN 'blob' THEN x'00' WHEN 'null' THEN 1 "
            f"ELSE {column} + 100000 END"
        )
        edit(path, f"UPDATE {table} SET {column} = {changed} WHERE rowid = (SELECT max(rowid) FROM {table})")  # noqa: S608
        [problem] = Store(path).examine().problems
        assert f"of {table} is not what was written" in problem


def test_a_row_that_is_not_what_was_written_is_left_out(path):
    edit(path, "UPDATE records SET data = replace(data, 'seconds\":0', 'seconds\":9') WHERE number = 17")
    edit(path, "UPDATE measurement_keys SET label = 'stencil' WHERE label = 'matmul'")
    edit(path, "UPDATE unfinished_work SET work = 'other work'")
    store = Store(path)
    with pytest.warns(PerflexWarning) as caught:
        rows = list(all_rows(store))
    assert {str(one.message).partition(":")[2].split()[2] for one in caught} == {"records", "measurement_keys"}
    assert [row["seconds"] for row in rows[:-50]] == [one.seconds for one in samples(COUNT) if one.round != 16]
    # The kernel's name is lost, and known again when it is measured again.
    assert {row["label"] for row in rows} == {"", "stencil"}
    assert {row["device"] for row in rows if row["record"] == "sample"} == {""}
    assert store.examine().sound["nameless"] == 0
    # Told once.
    assert len(store.earlier(KEY)) == COUNT - 1
    with pytest.warns(PerflexWarning, match="rows of unfinished_work are not what was written"):
        assert RunRecorder(store, "other work").earlier(KEY) == ()
    store.add(KEY, Sample(1.0, 1, 1.0, "later", 0), "matmul")
    assert [(kernel.label, kernel.samples) for kernel in overview(store)] == [("stencil", 0), ("matmul", COUNT)]
