"""The store file: made when needed, shared by processes, never in the way."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from perflex import using_store
from perflex.__main__ import main
from perflex.errors import PerflexWarning
from perflex.store import connection as _store_connection
from perflex.store.schema import MIGRATIONS
from perflex.store.store import Store, current_store, store_at

if TYPE_CHECKING:
    from pathlib import Path

ROW = "INSERT INTO counts (scop, version, digest, text) VALUES (?, ?, ?, ?)"
QUERY = "SELECT scop, text FROM counts ORDER BY number"


def add(store: Store, *texts: str) -> None:
    store.write([(ROW, ("scop", "version", "digest", text)) for text in texts])


def test_rows_stay_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "store.sqlite"
    first = Store(path)
    assert first.read(QUERY) == []
    add(first, "one", "two")
    first.close()
    assert Store(path).read(QUERY) == [("scop", "one"), ("scop", "two")]
    assert first.read(QUERY) == Store(path).read(QUERY)  # opened again
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def test_a_failed_write_changes_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.sqlite")
    add(store, "one")
    with pytest.warns(PerflexWarning, match="no such table: nonsense"):
        store.write([(ROW, ("scop", "version", "digest", "two")), ("INSERT INTO nonsense VALUES (1)", ())])
    assert Store(store.path).read(QUERY) == [("scop", "one")]


@pytest.mark.parametrize("place", ["", "off"])
def test_no_store(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert store_at(place) is None
    monkeypatch.setenv("PERFLEX_STORE", place)
    assert current_store() is None


def test_which_store_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFLEX_STORE", str(tmp_path / "a.sqlite"))
    named = current_store()
    assert named is not None
    assert named is current_store() is store_at(tmp_path / "a.sqlite")
    with using_store(None):
        assert current_store() is named
    with using_store(tmp_path / "b.sqlite"):
        assert current_store() is store_at(str(tmp_path / "b.sqlite"))
        with using_store("off"):
            assert current_store() is None
    assert current_store() is named
    monkeypatch.delenv("PERFLEX_STORE")
    default = current_store()
    assert default is not None
    assert (default.path.parent.name, default.path.name) == ("perflex", "store.sqlite")


def test_a_damaged_file_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    path.write_bytes(b"this is no database, but it is long enough to be taken for one" * 100)
    store = Store(path)
    with pytest.warns(PerflexWarning, match=r"is damaged \(file is not a database\); it is now .*damaged-") as caught:
        assert store.read(QUERY) == []
    (aside,) = tmp_path.glob("store.sqlite.damaged-*")
    assert str(aside) in str(caught[0].message)
    assert aside.read_bytes().startswith(b"this is no database")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        add(store, "kept")
        add(Store(path), "too")
        assert store.read(QUERY) == [("scop", "kept"), ("scop", "too")]


def test_damage_in_the_middle(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    with_rows = Store(path)
    add(with_rows, *("x" * 3000 for _ in range(50)))
    with_rows.close()
    content = bytearray(path.read_bytes())
    content[8192:] = b"\xff" * (len(content) - 8192)
    path.write_bytes(content)
    with pytest.warns(PerflexWarning, match="is damaged"):
        assert Store(path).read(QUERY) == []
    assert len(list(tmp_path.glob("store.sqlite.damaged-*[0-9]"))) == 1


def test_damage_that_comes_again(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.sqlite")
    add(store, "one")
    with pytest.warns(PerflexWarning, match=r"is damaged \(wrong\); it is now .*; a new one was begun"):
        store.set_aside("wrong")
    add(store, "two")
    assert store.read(QUERY) == [("scop", "two")]
    with pytest.warns(PerflexWarning, match=r"is damaged again \(wrong\); this process keeps no measurements"):
        store.set_aside("wrong")
    assert store.read(QUERY) == []
    assert Store(store.path).read(QUERY) == [("scop", "two")]


def test_a_file_that_another_process_replaced_stays(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    store = Store(path)
    add(store, "one")
    path.rename(tmp_path / "moved.sqlite")
    add(Store(path), "two")
    store.set_aside("something is wrong")
    assert store.read(QUERY) == Store(path).read(QUERY) == [("scop", "two")]


def test_what_is_written_goes_to_the_file_of_that_name(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    store = Store(path)
    add(store, "one")
    path.rename(tmp_path / "moved.sqlite")
    add(Store(path), "two")
    add(store, "three")
    assert Store(path).read(QUERY) == [("scop", "two"), ("scop", "three")]
    path.unlink()
    add(store, "four")
    assert Store(path).read(QUERY) == [("scop", "four")]


def test_a_store_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    add(Store(path), "one")
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version={len(MIGRATIONS) + 1}")
    connection.close()
    with pytest.warns(PerflexWarning, match=r"written by a newer perflex .*update perflex"):
        assert Store(path).read(QUERY) == []
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT text FROM counts").fetchall() == [("one",)]
    connection.close()


def test_another_programs_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE visits (page TEXT)")
    connection.close()
    before = path.read_bytes()
    with pytest.warns(PerflexWarning, match="is another program's SQLite file"):
        add(Store(path), "one")
    assert path.read_bytes() == before


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    store = Store(tmp_path / "file" / "store.sqlite")
    with pytest.warns(PerflexWarning, match=r"cannot be made .*name another file with PERFLEX_STORE"):
        add(store, "one")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert store.read(QUERY) == []  # told once


def test_a_folder_in_place_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "store.sqlite").mkdir()
    with pytest.warns(PerflexWarning, match="is no regular file"):
        assert Store(tmp_path / "store.sqlite").read(QUERY) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.warns(PerflexWarning, match="cannot be used"):
            add(Store(tmp_path / "store.sqlite"), "one")
    finally:
        tmp_path.chmod(0o700)


def test_a_file_that_may_only_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "store.sqlite"
    store = Store(path)
    add(store, "one")
    store.close()
    original = sqlite3.connect
    monkeypatch.setattr(
        sqlite3, "connect", lambda place, **more: original(f"file:{place}?mode=ro", uri=True, **more)
    )  # fmt: skip
    assert store.read(QUERY) == [("scop", "one")]
    with pytest.warns(PerflexWarning, match="attempt to write a readonly database"):
        add(store, "two")


def test_a_locked_file_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_store_connection, "_BUSY_S", 0.02)
    monkeypatch.setattr("perflex.store.store._PATIENCE_S", 0.02)
    store = Store(tmp_path / "store.sqlite")
    add(store, "one")
    holder = sqlite3.connect(store.path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    assert store.read(QUERY) == [("scop", "one")]  # readers do not wait for writers
    with pytest.warns(PerflexWarning, match="database is locked"):
        add(store, "two")
    holder.close()


@pytest.mark.slow
def test_the_command_line_tells_it_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "kernel.py").write_text(
        "import loopy as lp\n"
        "def knl():\n"
        "    return lp.make_kernel('{[i]: 0<=i<32}', 'out[i] = 2.5f', lang_version=(2018, 2))\n"
    )
    monkeypatch.setenv("PERFLEX_STORE", str(tmp_path / "kernel.py" / "store.sqlite"))
    command = ["features", f"{tmp_path / 'kernel.py'}:knl", "-f", "f_thread_items"]
    assert main(command) == 0
    output, told = capsys.readouterr()
    assert "f_thread_items" in output
    assert told.startswith("warning: the store ")
    assert told.count("\n") == 1
    assert main(["-q", *command]) == 0
    assert capsys.readouterr().err == ""


WRITER = """
import sys
from pathlib import Path
from perflex.store.store import Store
store = Store(Path(sys.argv[1]))
row = "INSERT INTO counts (scop, version, digest, text) VALUES (?, '', '', ?)"
for number in range(100):
    store.write([(row, (sys.argv[2], str(number)))])
"""


def test_processes_write_at_once(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    writers = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", WRITER, str(path), f"writer {i}"], stderr=subprocess.PIPE
        )
        for i in range(4)
    ]
    for writer in writers:
        _, told = writer.communicate(timeout=60)
        assert (writer.returncode, told) == (0, b"")
    rows = Store(path).read(QUERY)
    for i in range(4):
        assert [text for who, text in rows if who == f"writer {i}"] == [str(number) for number in range(100)]


def test_threads_write_at_once(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.sqlite")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: add(store, str(number)), range(200)))
    assert sorted(int(text) for _, text in store.read(QUERY)) == list(range(200))


FORKER = """
import os, sys
from pathlib import Path
from perflex.store.store import Store
store = Store(Path(sys.argv[1]))
row = "INSERT INTO counts (scop, version, digest, text) VALUES ('', '', '', ?)"
store.write([(row, ("before",))])
child = os.fork()
if not child:
    store.write([(row, ("child",))])
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
store.write([(row, ("after",))])
print([text for (text,) in store.read("SELECT text FROM counts ORDER BY number")])
"""


def test_a_forked_process_opens_the_file_itself(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", FORKER, str(tmp_path / "store.sqlite")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "['before', 'child', 'after']"
