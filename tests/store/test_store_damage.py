"""Damaged stores: set aside, told, and every measurement that is still whole carried over."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from perflex.errors import PerflexWarning, StoreError
from perflex.store.lock import folder_lock
from perflex.store.overview import overview
from perflex.store.records import Failure, MeasurementKey, Sample
from perflex.store.removal import Selection, remove
from perflex.store.samples import MeasurementStore
from perflex.store.store import Store
from perflex.store.verify import verify
from perflex.store.write_ahead_log import FRAME_HEADER, WAL_HEADER, log_is_damaged

if TYPE_CHECKING:
    from pathlib import Path

KEY = MeasurementKey("digest", (("n", 512), ("m", 64)), "Some platform: some device", "1.0", "warmups=1")
COUNT = 5000
PAGE = 4096


def samples(count: int, session: str = "session") -> tuple[Sample, ...]:
    return tuple(Sample(1e-3 * (1 + n), 1, 1.7e9 + n, session, n) for n in range(count))


def failure(number: int) -> Failure:
    return Failure("hang", f"no answer {number}", 1.7e9 + number, "session")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a store of 5000 samples of one key, one of another, and 50 failures, closed."""
    folder = tmp_path_factory.mktemp("whole")
    store = MeasurementStore(folder / "store.sqlite")
    store.add_many([(KEY, row) for row in samples(COUNT)], {KEY: "matmul"})
    for number in range(50):
        store.fail(replace(KEY, driver="2.0"), failure(number), "matmul")
    store.close()
    return folder


@pytest.fixture
def path(whole: Path, tmp_path: Path) -> Path:
    """A copy of that store, to be damaged."""
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    return tmp_path / "store.sqlite"


def aside_of(path: Path) -> Path:
    [aside] = path.parent.glob(f"{path.name}.damaged-*[0-9]")
    return aside


def overwritten(content: bytearray) -> None:
    for page in (20, 33, 34, 60):
        content[page * PAGE : (page + 1) * PAGE] = b"\xa5" * PAGE


def zeroed_pages(content: bytearray) -> None:
    content[40 * PAGE : 44 * PAGE] = bytes(4 * PAGE)


def truncated(content: bytearray) -> None:
    del content[len(content) * 6 // 10 :]


def cut_in_a_page(content: bytearray) -> None:
    del content[len(content) - 3 * PAGE - 1234 :]


def zeroed_header(content: bytearray) -> None:
    content[:100] = bytes(100)


def first_page_lost(content: bytearray) -> None:
    content[:PAGE] = b"\xff" * PAGE


def interior_page_lost(content: bytearray) -> None:
    for at in range(PAGE, len(content), PAGE):
        if content[at] == 0x05:
            content[at : at + 100] = bytes(100)


def changed_bytes(content: bytearray) -> None:
    random = np.random.default_rng(3)
    for at in random.integers(8 * PAGE, len(content), 40):
        content[at] ^= 0x55


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "at_least"),
    [
        (overwritten, COUNT - 600),
        (zeroed_pages, COUNT - 600),
        (truncated, COUNT // 3),
        (cut_in_a_page, COUNT - 400),
        (zeroed_header, COUNT),
        (first_page_lost, COUNT),
        (interior_page_lost, COUNT),
        (changed_bytes, COUNT - 300),
    ],
)
def test_what_is_whole_is_carried_over(path: Path, damage, at_least: int) -> None:
    content = bytearray(path.read_bytes())
    damage(content)
    path.write_bytes(content)
    assert verify(path).problems
    store = MeasurementStore(path)
    with pytest.warns(PerflexWarning, match="is damaged") as caught:
        kept = store.earlier(KEY)
    assert len(caught) == 1
    told = str(caught[0].message)
    assert f"it is now {aside_of(path)}; " in told
    found = re.search(r"a new one has what could be read of it: (\d+) samples and (\d+) failures$", told)
    assert found is not None
    assert aside_of(path).read_bytes()[: len(content)] == bytes(content)
    # Nothing that was not there, and, unless numbers are damaged, in the old order.
    assert set(kept) <= set(samples(COUNT))
    assert at_least <= len(kept) <= COUNT
    if damage is changed_bytes:
        assert len(kept) < COUNT
    else:
        assert list(kept) == sorted(kept, key=lambda row: row.round)
    assert len(kept) == int(found[1])
    assert int(found[2]) <= 50
    later = Sample(1.0, 1, 1.0, "later", 0)
    store.add(KEY, later)
    assert store.earlier(KEY) == (*kept, later)
    store.close()
    verdict = verify(path)
    assert (verdict.samples, verdict.failures, verdict.problems) == (len(kept) + 1, int(found[2]), ())


@pytest.mark.parametrize("seed", range(6))
def test_damage_at_random_places(path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    content = bytearray(path.read_bytes())
    pages = set()
    for at in random.integers(0, len(content), 12):
        length = int(random.choice([1, 8, 64, 3000]))
        content[at : at + length] = random.bytes(len(content[at : at + length]))
        pages |= {at // PAGE, (at + length - 1) // PAGE}
    path.write_bytes(content)
    store = MeasurementStore(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PerflexWarning)
        store.set_aside("for the test")
    kept = store.earlier(KEY)
    # A page has fewer than 90 samples; all other pages are read to the last row.
    assert COUNT - 90 * len(pages) <= len(kept) < COUNT + (not pages)
    assert set(kept) <= set(samples(COUNT))
    assert verify(path).problems == ()


def test_rows_on_both_sides_of_a_damaged_row(path: Path) -> None:
    content = bytearray(path.read_bytes())
    leaf = 50 * PAGE
    assert content[leaf] == 0x0D
    count = int.from_bytes(content[leaf + 3 : leaf + 5], "big")
    middle = leaf + 8 + 2 * (count // 2)
    content[middle : middle + 2] = b"\xff\xff"
    path.write_bytes(content)
    store = MeasurementStore(path)
    with pytest.warns(PerflexWarning, match="is damaged"):
        store.set_aside("for the test")
    # The rows next to it may be lost with it.
    assert COUNT - 3 <= len(store.earlier(KEY)) < COUNT
    assert set(store.earlier(KEY)) < set(samples(COUNT))


@pytest.mark.slow
def test_garbage_has_nothing_to_carry_over(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    garbage = np.random.default_rng(1).bytes(300_000)
    # Among it pages that look like those of a table.
    pages = [b"\x0d" + garbage[at + 1 : at + PAGE] for at in range(0, len(garbage), PAGE)]
    path.write_bytes(b"".join(pages))
    store = MeasurementStore(path)
    with pytest.warns(PerflexWarning, match=r"is damaged \(file is not a database\); .*; a new one was begun"):
        store.add(KEY, samples(1)[0])
    assert store.earlier(KEY) == samples(1)
    assert aside_of(path).read_bytes() == b"".join(pages)


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    path.touch()
    store = MeasurementStore(path)
    store.add(KEY, samples(1)[0])
    assert store.earlier(KEY) == samples(1)


@pytest.mark.slow
def test_damage_is_noticed_and_mended_while_writing(path: Path) -> None:
    store = MeasurementStore(path)
    assert len(store.earlier(KEY)) == COUNT
    store.close()
    content = bytearray(path.read_bytes())
    interior_page_lost(content)
    path.write_bytes(content)
    with pytest.warns(PerflexWarning, match="is damaged"):
        store.add(KEY, Sample(1.0, 1, 1.0, "later", 0))
    assert len(store.earlier(KEY)) == COUNT + 1


def test_a_wrong_value_is_noticed(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("UPDATE samples SET seconds = 12.5 WHERE number = 17")
    connection.commit()
    connection.close()
    assert verify(path).problems == ("row 17 of samples is not what was written",)
    with pytest.warns(PerflexWarning, match=r"a row's checksum is wrong\); it is now"):
        kept = MeasurementStore(path).earlier(KEY)
    assert kept == samples(COUNT)[:16] + samples(COUNT)[17:]


def test_the_overview_reads_no_wrong_value(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("UPDATE samples SET seconds = 12.5 WHERE number = 17")
    connection.commit()
    connection.close()
    with pytest.warns(PerflexWarning, match="is damaged"):
        [summary] = overview(MeasurementStore(path))
    assert (summary.measurements, summary.samples, summary.failures) == (2, COUNT - 1, 50)


def test_the_failure_after_the_last_sample_stays_so(path: Path) -> None:
    store = MeasurementStore(path)
    store.fail(KEY, failure(99))
    store.close()
    content = bytearray(path.read_bytes())
    zeroed_header(content)
    path.write_bytes(content)
    with pytest.warns(PerflexWarning, match=f"{COUNT} samples and 51 failures"):
        assert store.failure(KEY) == failure(99)
    store.add(KEY, Sample(1.0, 1, 1.0, "later", 0))
    assert store.failure(KEY) is None


def test_a_failure_from_before_a_sample_stays_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Older states of its row are still in the log, in which it is younger."""
    # The reader below is waited for in vain.
    monkeypatch.setattr("perflex.store.connection._BUSY_S", 0.2)
    store = MeasurementStore(tmp_path / "store.sqlite")
    for number, started in enumerate((1.8e9, 1.7e9, 1.7e9)):
        store.add(KEY, Sample(1e-3, 1, started, "session", number))
    store.fail(KEY, replace(failure(0), started=1.8e9))
    reader = sqlite3.connect(store.path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM samples").fetchall()  # keeps the log from being emptied
    remove(store, Selection(before=1.75e9))
    later = Sample(1.0, 1, 1.9e9, "later", 0)
    store.add(KEY, later)
    assert store.failure(KEY) is None
    with pytest.warns(PerflexWarning, match="is damaged"):
        store.set_aside("a test")
    assert later in store.earlier(KEY)
    assert store.failure(KEY) is None
    reader.close()


def test_a_lost_name_is_known_again_with_the_next_sample(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM measurement_keys")
    connection.commit()
    connection.execute("VACUUM")
    connection.close()
    store = MeasurementStore(path)
    with pytest.warns(PerflexWarning, match=r"kernels without their names: 2"):
        store.set_aside("the names are gone")
    assert store.earlier(KEY) == samples(COUNT)
    assert verify(path).nameless == 2
    store.add(KEY, Sample(1.0, 1, 1.0, "later", 0), "matmul")
    assert verify(path).nameless == 1
    assert len(store.earlier(KEY)) == COUNT + 1


def test_rows_longer_than_a_page(tmp_path: Path) -> None:
    store = MeasurementStore(tmp_path / "store.sqlite")
    long = replace(KEY, device="device " * 3000)
    store.add(long, samples(1)[0], "label")
    with pytest.warns(PerflexWarning, match="a new one has what could be read of it: 1 sample and 0 failures$"):
        store.set_aside("for the test")
    assert store.earlier(long) == samples(1)
    assert verify(store.path).nameless == 0


def test_counts_and_measurements_share_the_file(path: Path) -> None:
    content = bytearray(path.read_bytes())
    zeroed_header(content)
    path.write_bytes(content)
    counts = Store(path)
    with pytest.warns(PerflexWarning, match=f"{COUNT} samples and 50 failures"):
        assert counts.read("SELECT * FROM counts") == []
    assert MeasurementStore(counts).earlier(KEY) == samples(COUNT)


# The write-ahead log.

KILLED = """
import os, signal, sys
from pathlib import Path
from perflex.store.records import MeasurementKey, Sample
from perflex.store.samples import MeasurementStore
store = MeasurementStore(Path(sys.argv[1]))
key = MeasurementKey("digest", (("n", 512), ("m", 64)), "Some platform: some device", "1.0", "warmups=1")
for n in range(200):
    store.add(key, Sample(1e-3 * (1 + n), 1, 1.7e9 + n, "session", n), "matmul")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def with_log(tmp_path: Path) -> Path:
    """A store of 200 samples, all of them in the log of a process that was killed."""
    path = tmp_path / "store.sqlite"
    done = subprocess.run([sys.executable, "-W", "error", "-c", KILLED, str(path)], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert path.with_name("store.sqlite-wal").stat().st_size > 200 * PAGE
    return path


def test_a_whole_log_is_whole(with_log: Path) -> None:
    wal = with_log.with_name("store.sqlite-wal")
    assert not log_is_damaged(wal, PAGE)
    # A process that is killed leaves a part of a frame, or frames of a transaction that never ended.
    content = wal.read_bytes()
    for cut in (1, 100, PAGE, 3 * PAGE + 77):
        wal.write_bytes(content[:-cut])
        assert not log_is_damaged(wal, PAGE)
    wal.write_bytes(content)
    assert MeasurementStore(with_log).earlier(KEY) == samples(200)


@pytest.mark.parametrize("where", ["a byte", "a page", "several frames", "the header"])
def test_a_damaged_log(with_log: Path, where: str) -> None:
    wal = with_log.with_name("store.sqlite-wal")
    content = bytearray(wal.read_bytes())
    frame = WAL_HEADER + 150 * (FRAME_HEADER + PAGE)
    start, end = {
        "a byte": (frame + 2000, frame + 2001),
        "a page": (frame + FRAME_HEADER, frame + FRAME_HEADER + PAGE),
        "several frames": (frame, frame + 5 * PAGE),
        "the header": (8, 24),
    }[where]
    content[start:end] = bytes(byte ^ 0xFF for byte in content[start:end])
    wal.write_bytes(content)
    for suffix in ("", "-wal"):
        shutil.copy(f"{with_log}{suffix}", with_log.with_name(f"copy.sqlite{suffix}"))
    # SQLite sees nothing wrong.
    plain = sqlite3.connect(with_log.with_name("copy.sqlite"))
    found = plain.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    found = plain.execute("SELECT count(*) FROM samples").fetchone()[0] if found else 0
    assert plain.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    plain.close()
    assert found < 120
    assert log_is_damaged(wal, PAGE)
    assert "its write-ahead log is damaged" in verify(with_log).problems
    store = MeasurementStore(with_log)
    with pytest.warns(PerflexWarning, match="its write-ahead log is damaged"):
        kept = store.earlier(KEY)
    assert len(kept) >= 199
    assert list(kept) == sorted(kept, key=lambda row: row.round)
    assert set(kept) <= set(samples(200))
    assert aside_of(with_log).with_name(aside_of(with_log).name + "-wal").read_bytes() == content


def test_the_log_is_read_with_the_damaged_file(with_log: Path) -> None:
    """The file itself is lost, and the log does not belong to it any more."""
    with_log.write_bytes(b"lost" * 5000)
    wal = with_log.with_name("store.sqlite-wal")
    wal.write_bytes(bytes(32) + wal.read_bytes()[32:])
    store = MeasurementStore(with_log)
    with pytest.warns(PerflexWarning, match="200 samples and 0 failures"):
        assert store.earlier(KEY) == samples(200)


# Several processes, and processes that are killed.


def test_a_process_killed_while_setting_aside(with_log: Path, recwarn: pytest.WarningsRecorder) -> None:
    pending = with_log.with_name("store.sqlite.damaged-20260101-000000-1.pending")
    with_log.rename(pending)
    with_log.with_name("store.sqlite.new-1").write_bytes(b"half done")
    store = MeasurementStore(with_log)
    assert store.earlier(KEY) == samples(200)
    assert not pending.exists()
    assert aside_of(with_log).exists()
    assert not recwarn.list


LIVE = """
import sys, warnings
from pathlib import Path
from perflex.store.records import MeasurementKey, Sample
from perflex.store.samples import MeasurementStore
store = MeasurementStore(Path(sys.argv[1]))
key = MeasurementKey("digest", (("n", 512), ("m", 64)), "Some platform: some device", "1.0", "warmups=1")
for n in range(int(sys.argv[3])):
    store.add(key, Sample(1e-3 * (1 + n), 1, 1.7e9 + n, sys.argv[2], n), "matmul")
"""


def test_waiting_for_another_that_replaces_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perflex.store.lock._PATIENCE_S", 0.05)
    with folder_lock(path.parent, alone=True), pytest.raises(StoreError, match="locked"):
        MeasurementStore(Store(path)).earlier(KEY)
    with folder_lock(path.parent, alone=False), folder_lock(path.parent, alone=False):
        assert len(MeasurementStore(Store(path)).earlier(KEY)) == COUNT


UNTIL_TOLD = (
    LIVE.split("for n in", maxsplit=1)[0]
    + """
n = 0
while not Path(sys.argv[3]).exists():
    store.add(key, Sample(1e-3 * (1 + n), 1, 1.7e9 + n, sys.argv[2], n), "matmul")
    n += 1
print(n)
"""
)


def test_replacing_the_file_under_writers(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    enough = tmp_path / "enough"
    command = [sys.executable, "-W", "error", "-c", UNTIL_TOLD, str(path)]
    writers = [
        subprocess.Popen(
            [*command, f"session {i}", str(enough)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for i in range(3)
    ]
    # The writers write until told, so that the file is replaced as often on a slow machine as on a fast one.
    for _ in range(6):
        store = MeasurementStore(Store(path))
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
    assert [(process.returncode, error) for process, (_, error) in zip(writers, outputs, strict=True)] == [(0, "")] * 3
    kept = MeasurementStore(Store(path)).earlier(KEY)
    for i, (count, _) in enumerate(outputs):
        session = f"session {i}"
        assert tuple(row for row in kept if row.session == session) == samples(int(count), session)
    assert verify(path).problems == ()


SETTING_ASIDE = """
import sys, warnings
from pathlib import Path
from perflex.store.samples import MeasurementStore
warnings.simplefilter("ignore")
while True:
    store = MeasurementStore(Path(sys.argv[1]))
    store.use(lambda connection: connection.execute("SELECT count(*) FROM samples").fetchall())
    print("set aside", flush=True)
    store.set_aside("for the test")
"""


@pytest.mark.slow
def test_killing_what_sets_aside_loses_nothing(path: Path) -> None:
    random = np.random.default_rng(8)
    interrupted = 0
    for _ in range(12):
        process = subprocess.Popen([sys.executable, "-c", SETTING_ASIDE, str(path)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "set aside\n"
        time.sleep(float(random.uniform(0.0, 0.15)))
        process.kill()
        process.communicate(timeout=60)
        interrupted += not path.exists()
        store = MeasurementStore(Store(path))
        assert store.earlier(KEY) == samples(COUNT)
        store.close()
        for aside in path.parent.glob("*.damaged-*"):
            assert not aside.name.endswith(".pending") or path.exists()
            aside.unlink()
    assert interrupted > 0
    assert verify(path).failures == 50


def test_a_process_that_ends_leaves_the_new_log_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    code = LIVE + "print('ready', flush=True)\nsys.stdin.readline()\n"
    command = [sys.executable, "-W", "error", "-c", code, str(path), "session", "5"]
    other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    other.stdout.readline()
    store = MeasurementStore(path)
    store.earlier(KEY)
    with pytest.warns(PerflexWarning, match="5 samples and 0 failures"):
        store.set_aside("for the test")
    store.add(KEY, Sample(1.0, 1, 1.0, "later", 0))
    wal = path.with_name("store.sqlite-wal")
    assert wal.stat().st_size > 0
    other.communicate("end\n", timeout=60)
    assert other.returncode == 0
    assert wal.exists()
    assert len(MeasurementStore(Store(path)).earlier(KEY)) == 6


def test_a_forked_process_leaves_the_locks_alone(tmp_path: Path) -> None:
    code = (
        "import os, sys\n" + LIVE + "if not os.fork():\n    store.add(key, Sample(1.0, 1, 1.0, 'child', 0))\n"
        "    sys.exit()\nassert os.wait()[1] == 0\nstore.add(key, Sample(1.0, 1, 1.0, 'parent', 0))\n"
    )
    path = tmp_path / "store.sqlite"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, str(path), "session", "3"], capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    sessions = [row.session for row in MeasurementStore(path).earlier(KEY)]
    assert sessions == ["session"] * 3 + ["child", "parent"]
    assert os.environ["PERFLEX_STORE"] != str(path)
