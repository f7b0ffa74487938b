"""The measurement store: nothing acknowledged is lost, whatever happens to processes and disks."""

from __future__ import annotations

import errno
import math
import sqlite3
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from perflex import using_store
from perflex.errors import StoreError
from perflex.store import samples as store_module
from perflex.store.records import Failure, MeasurementKey, Sample, SystemActivity
from perflex.store.rows import (
    FAILURE_COLUMNS,
    KEY_COLUMNS,
    SAMPLE_COLUMNS,
    is_sound_failure,
    is_sound_key,
    is_sound_sample,
    key_number,
)
from perflex.store.samples import MeasurementStore
from perflex.store.schema import MIGRATIONS
from perflex.store.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

KEY = MeasurementKey("digest", (("n", 512), ("m", 64)), "Some platform: some device", "1.0", "warmups=1")
OTHER = replace(KEY, driver="1.1")


def sample(number: int, session: str = "session", **changes: object) -> Sample:
    return replace(Sample(1e-3 * (1 + number), 1, 1.7e9 + number, session, number), **changes)


def samples(count: int, session: str = "session") -> tuple[Sample, ...]:
    return tuple(sample(number, session) for number in range(count))


def failure(kind: str = "hang", **changes: object) -> Failure:
    return replace(Failure(kind, "no answer", 1.7e9, "session"), **changes)


@pytest.fixture
def store(tmp_path: Path) -> MeasurementStore:
    return MeasurementStore(tmp_path / "store.sqlite")


def test_samples_come_back_in_the_order_added(store: MeasurementStore) -> None:
    assert store.earlier(KEY) == ()
    store.add(KEY, sample(3))
    store.add(OTHER, sample(1))
    store.add(KEY, sample(1), "matmul")
    store.add_many([(KEY, sample(2)), (OTHER, sample(0))], {KEY: "matmul"})
    store.close()
    again = MeasurementStore(store.path)
    assert again.earlier(KEY) == (sample(3), sample(1), sample(2))
    assert again.earlier(OTHER) == (sample(1), sample(0))


@pytest.mark.parametrize(
    "change",
    [{"kernel": "x"}, {"sizes": (("n", 513), ("m", 64))}, {"sizes": (("n", 512),)}, {"device": "x"}, {"driver": "x"},
     {"conditions": ""}],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_everything_in_a_key_matters(store: MeasurementStore, change: dict) -> None:
    store.add(KEY, sample(0))
    assert store.earlier(replace(KEY, **change)) == ()


def test_the_order_of_sizes_does_not_matter(store: MeasurementStore) -> None:
    store.add(KEY, sample(0))
    assert store.earlier(replace(KEY, sizes=KEY.sizes[::-1])) == (sample(0),)


def test_numbers_of_numpy_are_numbers(store: MeasurementStore) -> None:
    key = replace(KEY, sizes=(("n", np.int64(512)), ("m", np.int32(64))))
    store.add(key, Sample(np.float64(1e-3), np.int64(1), np.float64(1.7e9), "session", np.int64(0)))
    assert store.earlier(KEY) == (sample(0),)


def test_nothing_is_kept_twice(store: MeasurementStore) -> None:
    for _ in range(2):
        store.add_many([(KEY, row) for row in samples(5)])
    store.add(KEY, sample(2, seconds=7.0))
    assert store.earlier(KEY) == samples(5)
    store.add(KEY, sample(2, "another"))
    assert len(store.earlier(KEY)) == 6


def test_a_failure_counts_until_a_sample_comes(store: MeasurementStore) -> None:
    assert store.failure(KEY) is None
    store.add(KEY, sample(0))
    store.fail(KEY, failure(started=1.0), "matmul")
    assert store.failure(KEY) == failure(started=1.0)
    assert store.failure(OTHER) is None
    store.add(OTHER, sample(9))
    store.fail(KEY, failure("crash", started=0.5, message="SIGSEGV"))
    assert store.failure(KEY) == failure("crash", started=0.5, message="SIGSEGV")
    store.add(KEY, sample(1))
    assert store.failure(KEY) is None
    store.fail(KEY, failure("memory", started=2.0))
    assert store.failure(KEY) == failure("memory", started=2.0)


def test_a_clock_that_goes_backwards_changes_no_order(store: MeasurementStore) -> None:
    rows = [sample(number, started=2e9 - 1000.0 * number) for number in range(10)]
    for row in rows:
        store.add(KEY, row)
    assert store.earlier(KEY) == tuple(rows)
    store.fail(KEY, failure(started=0.0))
    assert store.failure(KEY) == failure(started=0.0)
    store.add(KEY, sample(99, started=-5.0))
    assert store.failure(KEY) is None


def test_long_and_odd_messages(store: MeasurementStore) -> None:
    store.fail(KEY, failure(message="begin " + "x" * 9000 + " end"))
    kept = store.failure(KEY)
    assert kept is not None
    assert len(kept.message) < 2100
    assert kept.message.startswith("begin")
    assert kept.message.endswith("end")
    store.fail(KEY, failure("run", message="bytes \udcff and \0 and ü"))
    kept = store.failure(KEY)
    assert kept is not None
    assert kept.message == "bytes ? and \0 and ü"


@pytest.mark.parametrize(
    "wrong",
    [{"seconds": math.nan}, {"seconds": math.inf}, {"seconds": -1.0}, {"started": math.nan}, {"launches": 2**70}],
    ids=str,
)
def test_what_is_no_measurement_is_refused(store: MeasurementStore, wrong: dict) -> None:
    store.add(KEY, sample(0))
    with pytest.raises(StoreError, match=r"store\.sqlite"):
        store.add_many([(KEY, sample(1)), (KEY, sample(2, **wrong))])
    assert store.earlier(KEY) == (sample(0),)


def test_which_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with using_store(tmp_path / "chosen.sqlite"):
        assert MeasurementStore().path == tmp_path / "chosen.sqlite"
    assert MeasurementStore(Store(tmp_path / "a.sqlite")).path == tmp_path / "a.sqlite"
    monkeypatch.setenv("PERFLEX_STORE", "off")
    with pytest.raises(StoreError, match=r"switched off; give PERFLEX_STORE a file"):
        MeasurementStore()


def test_a_store_that_had_only_counts(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    connection = sqlite3.connect(path)
    for statement in MIGRATIONS[0]:
        connection.execute(statement)
    connection.execute("INSERT INTO scops VALUES ('digest', 'text')")
    connection.execute(f"PRAGMA application_id={0x70666C78}")
    connection.execute("PRAGMA user_version=1")
    connection.commit()
    connection.close()
    store = MeasurementStore(path)
    store.add(KEY, sample(0))
    assert store.earlier(KEY) == (sample(0),)
    assert Store(path).read("SELECT text FROM scops") == [("text",)]


def test_checksums_notice_every_change(store: MeasurementStore) -> None:
    store.add(KEY, sample(0))
    store.add(KEY, sample(1, activity=SystemActivity(waited_s=0.25, switches=3)))
    store.fail(KEY, failure())
    connection = sqlite3.connect(store.path)
    rows = connection.execute(f"SELECT {', '.join(SAMPLE_COLUMNS)} FROM samples ORDER BY number").fetchall()  # noqa: S608
    [failed] = connection.execute(f"SELECT {', '.join(FAILURE_COLUMNS)} FROM failures")  # noqa: S608
    [key] = connection.execute(f"SELECT {', '.join(KEY_COLUMNS)} FROM measurement_keys")  # noqa: S608
    connection.close()
    assert {row[1] for row in rows} == {key_number(KEY)}
    assert all(map(is_sound_sample, rows))
    assert is_sound_failure(failed)
    assert is_sound_key(key)
    assert not any(is_sound_sample(changed) for row in rows for changed in with_one_change(row))
    assert not any(map(is_sound_failure, with_one_change(failed)))
    assert not any(map(is_sound_key, with_one_change(key)))


def with_one_change(row: Sequence[Any]) -> Iterator[list[Any]]:
    """Yield a row with each of its places changed: texts longer, numbers larger, and something where nothing was."""
    for place, value in enumerate(row):
        other = 1 if value is None else value + ("x" if isinstance(value, str) else 1)
        yield [*row[:place], other, *row[place + 1 :]]


# Bad places and full disks: one error, and what was there stays.


def test_a_place_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    store = MeasurementStore(tmp_path / "file" / "store.sqlite")
    for attempt in (lambda: store.add(KEY, sample(0)), lambda: store.earlier(KEY), lambda: store.fail(KEY, failure())):
        with pytest.raises(StoreError, match=r"cannot be made \(File exists: .*file\); name another file \(--store"):
            attempt()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a /proc")
def test_a_folder_that_takes_no_files() -> None:
    with pytest.raises(StoreError, match=r"cannot be (made|written)"):
        MeasurementStore(Path("/proc/self/store.sqlite")).add(KEY, sample(0))


def test_a_file_of_a_newer_version(store: MeasurementStore) -> None:
    store.add(KEY, sample(0))
    store.close()
    connection = sqlite3.connect(store.path)
    connection.execute(f"PRAGMA user_version={len(MIGRATIONS) + 1}")
    connection.close()
    before = store.path.read_bytes()
    with pytest.raises(StoreError, match=r"written by a newer perflex .*; update perflex, or name another file"):
        store.add(KEY, sample(1))
    assert store.path.read_bytes() == before


def test_another_programs_file(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE visits (page TEXT)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"is another program's SQLite file; name another file"):
        MeasurementStore(path).add(KEY, sample(0))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_locked_file(store: MeasurementStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perflex.store.connection._BUSY_S", 0.02)
    monkeypatch.setattr(store_module, "_PATIENCE_S", 0.1)
    store.add(KEY, sample(0))
    holder = sqlite3.connect(store.path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match=r"has been locked for 0 s; end the process that holds it"):
        store.add(KEY, sample(1))
    assert store.earlier(KEY) == (sample(0),)
    holder.execute("ROLLBACK")
    holder.close()
    store.add(KEY, sample(1))
    assert store.earlier(KEY) == samples(2)


@pytest.mark.slow
def test_a_file_that_may_not_grow(store: MeasurementStore) -> None:
    store.add_many([(KEY, row) for row in samples(10)])
    pages = store.use(lambda connection: connection.execute("PRAGMA page_count").fetchone()[0])
    store.use(lambda connection: connection.execute(f"PRAGMA max_page_count={pages + 1}").fetchall())
    with pytest.raises(StoreError, match=r"cannot grow: database or disk is full; free space"):
        store.add_many([(KEY, row) for row in samples(10_000)])
    assert store.earlier(KEY) == samples(10)
    store.close()
    store.add_many([(KEY, row) for row in samples(10_000)])
    assert store.earlier(KEY) == samples(10_000)


LIMITED = """
import resource, sys
from pathlib import Path
from perflex.store.records import MeasurementKey, Sample
from perflex.store.samples import MeasurementStore
from perflex.errors import StoreError
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
store = MeasurementStore(Path(sys.argv[1]))
key = MeasurementKey("digest", (("n", 512), ("m", 64)), "Some platform: some device", "1.0", "warmups=1")
for number in range(3000):
    try:
        store.add(key, Sample(1e-3 * (1 + number), 1, 1.7e9 + number, "session", number))
    except StoreError as error:
        print(number, error)
        try:
            store.add(key, Sample(1.0, 1, 1.0, "late", number))
        except StoreError:
            pass
        break
"""


@pytest.mark.parametrize("limit", [20_000, 100_000, 300_000])
def test_a_full_disk(store: MeasurementStore, limit: int) -> None:
    command = [sys.executable, "-W", "error", "-c", LIMITED, str(store.path), str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == ""
    count, _, told = done.stdout.strip().partition(" ")
    assert "cannot grow: " in told
    assert "free space" in told
    kept = store.earlier(KEY)
    assert kept[: int(count)] == samples(int(count))
    store.add(KEY, sample(5000))
    assert store.earlier(KEY) == (*kept, sample(5000))


READER_ONLY = """
import os, sys
from pathlib import Path
from perflex.store.records import MeasurementKey, Sample
from perflex.store.samples import MeasurementStore
from perflex.errors import StoreError
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
store = MeasurementStore(Path(sys.argv[1]))
key = MeasurementKey("digest", (("n", 512), ("m", 64)), "Some platform: some device", "1.0", "warmups=1")
try:
    store.add(key, Sample(1.0, 1, 1.0, "session", 7))
except StoreError as error:
    print(error)
"""


def folder_for_all() -> Path:
    """A folder for temporary files that every user may enter; pytest's and homes' are their owner's alone."""
    for name in (tempfile.gettempdir(), "/tmp", "/var/tmp"):  # noqa: S108
        folder = Path(name).resolve()
        if folder.is_dir() and all(place.stat().st_mode & 0o001 for place in (folder, *folder.parents)):
            return folder
    pytest.skip("there is no folder that another user may enter")


@pytest.mark.parametrize("exists", [False, True], ids=["new", "old"])
def test_a_folder_and_file_that_may_only_be_read(exists: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="perflex-read-only-", dir=folder_for_all()) as folder:
        store = MeasurementStore(Path(folder) / "store.sqlite")
        if exists:
            store.add(KEY, sample(0))
            store.close()
            store.path.chmod(0o444)
        Path(folder).chmod(0o555)
        command = [sys.executable, "-W", "error", "-c", READER_ONLY, str(store.path)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, cwd="/")
        assert f"the store {store.path} cannot be written: " in done.stdout, done.stderr
        assert "name another file" in done.stdout
        Path(folder).chmod(0o755)
        if exists:
            store.path.chmod(0o644)
            assert store.earlier(KEY) == (sample(0),)
            store.close()


def test_no_space_for_a_new_file_where_one_is_damaged(
    store: MeasurementStore, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    store.add_many([(KEY, row) for row in samples(100)])
    store.close()
    store.path.write_bytes(b"\0" * 100 + store.path.read_bytes()[100:])

    def fails(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("perflex.store.recovery.salvage", fails)
        for _ in range(2):
            with pytest.raises(StoreError, match="cannot grow"):
                store.add(KEY, sample(100))
    assert not store.path.exists()
    store.add(KEY, sample(100))
    assert store.earlier(KEY) == samples(101)
    assert not recwarn.list
    assert not list(store.path.parent.glob("*.pending"))


# Many writers, and writers that are killed.

WRITER = """
import sys
from pathlib import Path
from perflex.store.records import MeasurementKey, Sample
from perflex.store.samples import MeasurementStore
store = MeasurementStore(Path(sys.argv[1]))
key = MeasurementKey("digest", (("n", 512), ("m", 64)), "Some platform: some device", "1.0", "warmups=1")
for number in range(int(sys.argv[3])):
    store.add(key, Sample(1e-3 * (1 + number), 1, 1.7e9 + number, sys.argv[2], number), "matmul")
    sys.stdout.write(f"{number}\\n")
    sys.stdout.flush()
"""


def writer(path: Path, session: str, count: int) -> tuple[subprocess.Popen, Path]:
    """Start a process that adds samples, and return it with the file where it acknowledges them."""
    told = path.with_name(f"{session}.txt")
    command = [sys.executable, "-W", "error", "-c", WRITER, str(path), session, str(count)]
    with told.open("w") as stream:
        return subprocess.Popen(command, stdout=stream, stderr=subprocess.PIPE, text=True), told


def test_processes_add_at_once(store: MeasurementStore) -> None:
    writers = [writer(store.path, f"session {i}", 300)[0] for i in range(4)]
    for process in writers:
        _, told = process.communicate(timeout=60)
        assert (process.returncode, told) == (0, "")
    kept = store.earlier(KEY)
    assert len(kept) == 1200
    for i in range(4):
        assert tuple(row for row in kept if row.session == f"session {i}") == samples(300, f"session {i}")


def test_threads_add_at_once(store: MeasurementStore) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: store.add(KEY, sample(number)), range(200)))
    assert sorted(store.earlier(KEY), key=lambda row: row.round) == list(samples(200))


@pytest.mark.slow
def test_killing_writers_loses_nothing_that_was_acknowledged(store: MeasurementStore) -> None:
    random = np.random.default_rng(5)
    bystander, told = writer(store.path, "bystander", 1_000_000)
    acknowledged = {"bystander": told}
    for turn in range(20):
        victim, told = writer(store.path, f"victim {turn}", 1_000_000)
        while not told.read_text():
            time.sleep(0.002)
        time.sleep(float(random.uniform(0.0, 0.05)))
        victim.kill()
        victim.communicate(timeout=60)
        acknowledged[f"victim {turn}"] = told
    bystander.kill()
    bystander.communicate(timeout=60)
    kept = store.earlier(KEY)
    assert len(kept) > 1000
    assert len(set(kept)) == len(kept)
    for session, told in acknowledged.items():
        count = told.read_text().count("\n")
        of_session = tuple(row for row in kept if row.session == session)
        # One more may have been committed but not yet acknowledged.
        assert of_session == samples(len(of_session), session)
        assert count <= len(of_session) <= count + 1
