"""The store: nothing acknowledged is lost, what is no measurement is refused, a place that cannot be used is named."""

import math
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from perflex import using_store
from perflex.errors import PerflexWarning, StoreError
from perflex.store.contents import COLUMNS, all_rows, overview, remove, size_of_made
from perflex.store.records import Failure, MeasurementKey, Sample, SystemActivity
from perflex.store.rows import APPLICATION, FORMAT, insert
from perflex.store.store import Store, current_store, required_store, store_at

KEY = MeasurementKey("digest", (("n", 512), ("m", 64)), "Some platform: some device", "1.0", "warmups=1")
OTHER = replace(KEY, driver="1.1")
FULL = SystemActivity(0.0125, 0.0249, 1 / 3, 0.01, 0.02, 17, throttled=True)
NUMPY = SystemActivity(np.float64(0.5), np.float32(0.25), switches=np.int64(3), throttled=np.bool_(False))
PLAIN = SystemActivity(0.5, 0.25, switches=3, throttled=False)


def sample(number, session="session", **changes):
    return replace(Sample(1e-3 * (1 + number), 1, 1.7e9 + number, session, number), **changes)


def samples(count, session="session"):
    return tuple(sample(number, session) for number in range(count))


def failure(kind="hang", **changes):
    return replace(Failure(kind, "no answer", 1.7e9, "session"), **changes)


def add_counts(store, *texts):
    store.write_made(lambda connection: [insert(connection, "counts", ("scop", "version", text)) for text in texts])


def counts(store):
    return [row[2] for row in store.read_made("counts", "ORDER BY rowid", ())]


@pytest.fixture
def store(tmp_path, monkeypatch):
    # Temporary folders may lie on any file system.
    monkeypatch.setattr("perflex.store.file.is_on_local_disk", lambda _: True)
    return Store(tmp_path / "store.sqlite")


def test_samples_come_back_in_the_order_added(store):
    assert store.earlier(KEY) == ()
    store.add(KEY, sample(3))
    store.add(OTHER, sample(1))
    store.add(KEY, sample(1), "matmul")
    store.add_many([(KEY, sample(2)), (OTHER, sample(0))], {KEY: "matmul"})
    store.close()
    again = Store(store.path)
    assert again.earlier(KEY) == (sample(3), sample(1), sample(2))
    assert again.earlier(OTHER) == (sample(1), sample(0))
    with closing(sqlite3.connect(store.path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


@pytest.mark.parametrize(
    "change",
    [{"kernel": "x"}, {"sizes": (("n", 513), ("m", 64))}, {"sizes": (("n", 512),)}, {"device": "x"}, {"driver": "x"},
     {"conditions": ""}],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_everything_in_a_key_matters_but_the_order_of_sizes(store, change):
    store.add(KEY, sample(0))
    assert store.earlier(replace(KEY, **change)) == ()
    assert store.earlier(replace(KEY, sizes=KEY.sizes[::-1])) == (sample(0),)


def test_numbers_of_numpy_are_numbers(store):
    key = replace(KEY, sizes=(("n", np.int64(512)), ("m", np.int32(64))))
    store.add(key, Sample(np.float64(1e-3), np.int64(1), np.float64(1.7e9), "session", np.int64(0)))
    assert store.earlier(KEY) == (sample(0),)


def test_nothing_is_kept_twice(store):
    for _ in range(2):
        store.add_many([(KEY, row) for row in samples(5)])
    store.add(KEY, sample(2, seconds=7.0))
    assert store.earlier(KEY) == samples(5)
    store.add(KEY, sample(2, "another"))
    assert len(store.earlier(KEY)) == 6


@pytest.mark.parametrize("disturbed", [False, True], ids=["quiet", "disturbed"])
@pytest.mark.parametrize(
    ("given", "kept"),
    [(None, None), (FULL, FULL), (NUMPY, PLAIN), (SystemActivity(others_s=0.0), SystemActivity(others_s=0.0)),
     (SystemActivity(throttled=False), SystemActivity(throttled=False)), (SystemActivity(), SystemActivity())],
    ids=["none", "all", "numpy", "zero", "false", "nothing known"],
)  # fmt: skip
def test_what_the_system_reported_comes_back(store, given, kept, disturbed):
    store.add(KEY, sample(0, activity=given, disturbed=disturbed))
    store.close()
    [found] = Store(store.path).earlier(KEY)
    assert found == sample(0, activity=kept, disturbed=disturbed)
    types = {type(value) for value in vars(found.activity or SystemActivity()).values() if value is not None}
    assert types <= {float, int, bool}
    assert store.examine().problems == ()


def test_fields_may_come_and_go(store):
    """Facts of a sample that another version knows are left out, those that it does not know have their defaults."""
    store.add(KEY, sample(0))
    data = '{"seconds":0.002,"launches":1,"started":1700000001,"session":"session","round":1,"clock_hz":1e9'
    store.use(add_row(2, 1, f'{data},"activity":{{"waited_s":0.5,"temperature":60}}}}'), writes=True)
    assert store.earlier(KEY) == (sample(0), sample(1, activity=SystemActivity(waited_s=0.5)))


def add_row(number, turn, data):
    """Add a row beside the first."""

    def write(connection):
        ((key, session),) = connection.execute("SELECT key, session FROM records").fetchall()
        insert(connection, "records", (number, key, session, turn, 1.7e9, data))

    return write


def test_a_failure_counts_until_a_sample_comes(store):
    """Whatever the clock does: the order is that of adding."""
    assert store.failure(KEY) is None
    store.add(KEY, sample(0))
    store.fail(KEY, failure(started=1.0), "matmul")
    assert store.failure(KEY) == failure(started=1.0)
    assert store.failure(OTHER) is None
    store.add(OTHER, sample(9))
    store.fail(KEY, failure("crash", started=0.5, message="SIGSEGV"))
    assert store.failure(KEY) == failure("crash", started=0.5, message="SIGSEGV")
    store.add(KEY, sample(1, started=-5.0))
    assert store.failure(KEY) is None
    store.fail(KEY, failure("memory", started=2.0))
    assert store.failure(KEY) == failure("memory", started=2.0)


def test_long_and_odd_messages(store):
    store.fail(KEY, failure(message="begin " + "x" * 9000 + " end"))
    kept = store.failure(KEY)
    assert kept is not None
    assert len(kept.message) < 2100
    assert (kept.message[:5], kept.message[-3:]) == ("begin", "end")
    store.fail(KEY, failure("run", message="bytes \udcff and \0 and ü"))
    assert store.failure(KEY) == failure("run", message="bytes ? and \0 and ü")


@pytest.mark.parametrize(
    "wrong",
    [{"seconds": math.nan}, {"seconds": math.inf}, {"seconds": -1.0}, {"started": math.nan}, {"launches": 2**70},
     *({"activity": SystemActivity(**fact)} for fact in (
         {"elapsed_s": math.nan}, {"waited_s": math.inf}, {"others_s": -0.01}, {"switches": -1}, {"switches": 2**70}))],
    ids=str,
)  # fmt: skip
def test_what_is_no_measurement_is_refused(store, wrong):
    store.add(KEY, sample(0))
    with pytest.raises(StoreError, match=r"a measurement cannot be kept in .*store\.sqlite: .* out of range"):
        store.add_many([(KEY, sample(1)), (KEY, sample(2, **wrong))])
    assert store.earlier(KEY) == (sample(0),)


def test_exported_rows_and_the_overview(store):
    other = replace(KEY, kernel="other")
    store.add_many([(KEY, sample(n)) for n in range(3)], {KEY: "early name"})
    store.add(KEY, sample(10, activity=FULL, disturbed=True), "matmul")
    store.add_many([(other, sample(n, disturbed=True)) for n in (10, 11)])
    store.fail(KEY, failure())
    rows = list(all_rows(store))
    assert all(tuple(row) == COLUMNS for row in rows)
    assert [row["record"] for row in rows] == ["sample"] * 6 + ["failure"]
    assert {row["label"] for row in rows} == {"matmul", ""}
    assert {name: rows[3][name] for name in vars(FULL)} == vars(FULL)
    assert [row["disturbed"] for row in rows] == [False] * 3 + [True] * 3 + [None]
    assert rows[0]["sizes"] == {"m": 64, "n": 512}
    known, unnamed = overview(store)
    assert (known.label, known.samples, known.disturbed, known.failures) == ("matmul", 4, 1, 1)
    assert known.median_s == pytest.approx(2e-3)
    assert (unnamed.label, unnamed.samples, unnamed.disturbed, unnamed.median_s) == ("other", 2, 2, None)
    assert unnamed.last == sample(11).started


# Places.


def test_which_store_is_used(tmp_path, monkeypatch):
    monkeypatch.setenv("PERFLEX_STORE", str(tmp_path / "a.sqlite"))
    named = current_store()
    assert named is current_store() is store_at(tmp_path / "a.sqlite") is required_store()
    with using_store(None):
        assert current_store() is named
    with using_store(tmp_path / "b.sqlite"):
        assert current_store() is store_at(str(tmp_path / "b.sqlite"))
        with using_store("off"):
            assert current_store() is None
    assert current_store() is named
    monkeypatch.delenv("PERFLEX_STORE")
    default = required_store()
    assert (default.path.parent.name, default.path.name) == ("perflex", "store.sqlite")
    monkeypatch.setenv("PERFLEX_STORE", "off")
    with pytest.raises(StoreError, match=r"switched off; give PERFLEX_STORE a file"):
        required_store()


def test_counts_go_without_a_store(tmp_path):
    (tmp_path / "file").write_text("in the way")
    store = Store(tmp_path / "file" / "store.sqlite")
    with pytest.warns(PerflexWarning, match=r"cannot be made .*; this process keeps no counts"):
        add_counts(store, "one")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert counts(store) == []  # told once


@pytest.mark.parametrize(
    "use",
    [
        lambda store: store.add(KEY, sample(1)),
        lambda store: store.earlier(KEY),
        lambda store: store.fail(KEY, failure()),
    ],
    ids=["add", "read", "fail"],
)
def test_a_place_below_a_file(tmp_path, use):
    (tmp_path / "file").write_text("in the way")
    message = r"cannot be made \(File exists: .*file\); name another file \(PERFLEX_STORE"
    with pytest.raises(StoreError, match=message):
        use(Store(tmp_path / "file" / "store.sqlite"))


def test_a_folder_in_place_of_the_file(tmp_path):
    with pytest.raises(StoreError, match="is no regular file"):
        Store(tmp_path).add(KEY, sample(0))


def test_files_of_a_newer_version_and_of_other_programs_are_left_alone(store):
    store.add(KEY, sample(0))
    store.close()
    with closing(sqlite3.connect(store.path)) as connection:
        connection.execute(f"PRAGMA user_version={FORMAT + 1}")
    before = store.path.read_bytes()
    with pytest.raises(StoreError, match=r"written by a newer perflex .*; update perflex, or name another file"):
        store.add(KEY, sample(1))
    with closing(sqlite3.connect(store.path)) as connection:
        connection.execute(f"PRAGMA application_id={APPLICATION + 1}")
    before = store.path.read_bytes()
    with pytest.raises(StoreError, match=r"is another program's SQLite file; name another file"):
        Store(store.path).add(KEY, sample(1))
    assert store.path.read_bytes() == before
    assert [path.name for path in store.path.parent.iterdir()] == [store.path.name]


def test_a_store_of_an_earlier_format_is_set_aside_where_it_is_used(store):
    with closing(sqlite3.connect(store.path)) as connection:
        connection.execute("CREATE TABLE samples (number INTEGER PRIMARY KEY, seconds REAL)")
        connection.execute(f"PRAGMA application_id={APPLICATION}")
        connection.execute("PRAGMA user_version=4")
    before = store.path.read_bytes()
    for read in (overview, size_of_made, Store.examine, remove, lambda one: list(all_rows(one))):
        with pytest.raises(
            StoreError, match=r"written by an older perflex \(format 4, this one knows \d\); the next com"
        ):
            read(store)
    assert [path.read_bytes() for path in store.path.parent.iterdir()] == [before]
    with pytest.warns(PerflexWarning, match=r"an older perflex \(format 4, .*\); it is now .*\.aside-"):
        store.add(KEY, sample(0))
    assert store.earlier(KEY) == samples(1)
    [aside] = store.set_asides()
    assert aside.read_bytes() == before


@pytest.mark.parametrize(("local", "mode"), [(True, "wal"), (False, "delete")])
def test_hosts_that_share_a_file_need_no_shared_memory(store, monkeypatch, local, mode):
    """A write-ahead log is for the processes of one host."""
    store.add(KEY, sample(0))
    store.close()
    # It was copied to, or mounted from, elsewhere.
    monkeypatch.setattr("perflex.store.file.is_on_local_disk", lambda _: local)
    store.add(KEY, sample(1))
    assert store.use(lambda connection: connection.execute("PRAGMA journal_mode").fetchone()) == (mode,)
    assert store.path.with_name(f"{store.path.name}-shm").exists() is local
    assert store.earlier(KEY) == samples(2)


@pytest.mark.machine
def test_a_locked_file(store, monkeypatch):
    monkeypatch.setattr("perflex.store.file.BUSY_S", 0.02)
    store.add(KEY, sample(0))
    add_counts(store, "one")
    with closing(sqlite3.connect(store.path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match=r"has been locked for 0 s; end the process that holds it"):
            store.add(KEY, sample(1))
        assert store.earlier(KEY) == (sample(0),)  # readers do not wait for writers
        assert counts(store) == ["one"]
    store.add(KEY, sample(1))
    assert store.earlier(KEY) == samples(2)


def test_a_file_that_was_replaced_or_removed_is_opened_anew(store):
    store.add(KEY, sample(0))
    store.path.rename(store.path.with_name("moved.sqlite"))
    for suffix in ("-wal", "-shm"):
        store.path.with_name(store.path.name + suffix).rename(store.path.with_name(f"moved.sqlite{suffix}"))
    Store(store.path).add(KEY, sample(1))
    store.add(KEY, sample(2))
    assert store.earlier(KEY) == (sample(1), sample(2))


@pytest.mark.machine
def test_what_only_reads_needs_no_folder_that_can_be_written(tmp_path):
    store = Store(tmp_path / "folder" / "store.sqlite")
    store.add(KEY, sample(0))
    store.close()
    script = "import os, sys; from pathlib import Path; from perflex.store.store import Store\n"
    script += "if os.geteuid() == 0: os.seteuid(65534)\n"
    script += "print(Store(Path(sys.argv[1])).examine().sound['samples'])"
    with tempfile.TemporaryDirectory() as place:
        moved = shutil.move(store.path.parent, place)
        Path(place).chmod(0o755)
        Path(moved).chmod(0o555)
        words = [sys.executable, "-c", script, f"{moved}/store.sqlite"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        Path(moved).chmod(0o755)
    assert (done.stdout, done.stderr) == ("1\n", "")


LIMITED = """
import resource, sys
from pathlib import Path
from perflex.store.records import MeasurementKey, Sample
from perflex.store.store import Store
from perflex.errors import StoreError
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
store = Store(Path(sys.argv[1]))
key = MeasurementKey("digest", (("n", 512), ("m", 64)), "Some platform: some device", "1.0", "warmups=1")
for number in range(3000):
    try:
        store.add(key, Sample(1e-3 * (1 + number), 1, 1.7e9 + number, "session", number))
    except StoreError as error:
        print(number, error)
        break
"""


@pytest.mark.machine
@pytest.mark.parametrize("limit", [30_000, 300_000])
def test_a_full_disk(store, limit):
    command = [sys.executable, "-W", "error", "-c", LIMITED, str(store.path), str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == ""
    count, _, told = done.stdout.strip().partition(" ")
    assert "cannot grow: " in told
    kept = store.earlier(KEY)
    assert kept[: int(count)] == samples(int(count))
    store.add(KEY, sample(5000))
    assert store.earlier(KEY) == (*kept, sample(5000))


READER_ONLY = """
import os, sys
from pathlib import Path
from perflex.store.records import MeasurementKey, Sample
from perflex.store.store import Store
from perflex.errors import StoreError
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    Store(Path(sys.argv[1])).add(MeasurementKey("digest", (), "device", "1.0"), Sample(1.0, 1, 1.0, "session", 7))
except StoreError as error:
    print(error)
"""


def folder_for_all():
    """A folder for temporary files that every user may enter; pytest's and homes' are their owner's alone."""
    for name in (tempfile.gettempdir(), "/tmp", "/var/tmp"):  # noqa: S108
        folder = Path(name).resolve()
        if folder.is_dir() and all(place.stat().st_mode & 0o001 for place in (folder, *folder.parents)):
            return folder
    pytest.skip("there is no folder that another user may enter")


@pytest.mark.machine
@pytest.mark.parametrize("exists", [False, True], ids=["new", "old"])
def test_a_folder_and_file_that_may_only_be_read(exists):
    with tempfile.TemporaryDirectory(prefix="perflex-read-only-", dir=folder_for_all()) as folder:
        store = Store(Path(folder) / "store.sqlite")
        if exists:
            store.add(KEY, sample(0))
            store.close()
            store.path.chmod(0o444)
        Path(folder).chmod(0o555)
        command = [sys.executable, "-W", "error", "-c", READER_ONLY, str(store.path)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, cwd="/")
        Path(folder).chmod(0o755)
        assert f"the store {store.path} cannot be written: " in done.stdout, done.stderr


# Many writers at once.

WRITER = """
import os, sys
from pathlib import Path
from perflex.store.records import MeasurementKey, Sample
from perflex.store.store import Store
store = Store(Path(sys.argv[1]))
key = MeasurementKey("digest", (("n", 512), ("m", 64)), "Some platform: some device", "1.0", "warmups=1")
def add(first, count):
    for number in range(first, first + count):
        store.add(key, Sample(1e-3 * (1 + number), 1, 1.7e9 + number, sys.argv[2], number), "matmul")
"""


@pytest.mark.machine
def test_processes_add_at_once(store):
    command = [sys.executable, "-W", "error", "-c", f"{WRITER}add(0, 100)", str(store.path)]
    writers = [subprocess.Popen([*command, f"session {i}"], stderr=subprocess.PIPE, text=True) for i in range(4)]
    assert [(process.communicate(timeout=60)[1], process.returncode) for process in writers] == [("", 0)] * 4
    kept = store.earlier(KEY)
    assert len(kept) == 400
    for i in range(4):
        assert tuple(row for row in kept if row.session == f"session {i}") == samples(100, f"session {i}")


@pytest.mark.machine
def test_threads_add_at_once(store):
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: store.add(KEY, sample(number)), range(200)))
    assert sorted(store.earlier(KEY), key=lambda row: row.round) == list(samples(200))


@pytest.mark.machine
def test_a_forked_process_opens_the_file_itself(store):
    code = f"{WRITER}add(0, 1)\nif not os.fork():\n    add(1, 1)\n    sys.exit()\nassert os.wait()[1] == 0\nadd(2, 1)"
    command = [sys.executable, "-W", "error", "-c", code, str(store.path), "session"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert store.earlier(KEY) == samples(3)
