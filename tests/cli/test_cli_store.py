"""``perflex store``: what it shows, writes, deletes, and how it ends."""

import csv
import json
import sqlite3
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from perflex.__main__ import main
from perflex.errors import PerflexWarning
from perflex.store.contents import COLUMNS, utc
from perflex.store.records import Failure, MeasurementKey, Sample, SystemActivity
from perflex.store.rows import insert
from perflex.store.store import Store

DAY = 86400.0
NOW = 1.7e9
SMALL = MeasurementKey("a" * 64, (("n", 16),), "Intel OpenCL: Some CPU", "1.0", "warmups=1")
LARGE = replace(SMALL, sizes=(("n", 64),))
ELSEWHERE = replace(SMALL, device="PoCL: Some CPU")


def sample(days_ago, number, milliseconds=1.0):
    return Sample(1e-3 * milliseconds, 2, NOW - days_ago * DAY, "session", number)


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "store.sqlite")
    store.add_many([(SMALL, sample(100 - 20 * n, n, 1.0 + n)) for n in range(5)], {SMALL: "square(n=16)"})
    store.add_many([(LARGE, sample(1, n, 8.0)) for n in range(3)], {LARGE: "square(n=64)"})
    store.add_many([(ELSEWHERE, sample(200, n)) for n in range(2)])
    store.fail(LARGE, Failure("hang", "no answer,\nnone", NOW - 95 * DAY, "session"), "square(n=64)")
    return store


@pytest.fixture(autouse=True)
def _clock(monkeypatch):
    monkeypatch.setattr("perflex.cli.store.time", SimpleNamespace(time=lambda: NOW))


def run(store, *words):
    return main(["store", *words, "--store", str(store.path)])


def test_list(store, capsys):
    store.write_made(lambda connection: insert(connection, "scops", ("digest", "twelve bytes")))
    # Times that no calendar has.
    store.add(replace(SMALL, device="Odd"), Sample(1e-3, 1, 1e18, "clock", 0))
    assert run(store, "list") == run(store, "export") == run(store, "verify") == 0
    shown = " ".join(capsys.readouterr().out.split())
    first, last = utc(NOW - 100 * DAY)[:10], utc(NOW - 20 * DAY)[:10]
    assert f"square(n=16) 5 0 0 {first} {last} 3.00" in shown
    assert "square(n=64) 3 0 1 " in shown
    assert "aaaaaaaaaaaa 2 0 0 " in shown
    assert shown.index("Intel OpenCL: Some CPU") < shown.index("PoCL: Some CPU")
    assert "11 samples and 1 failure," in shown
    assert "0 kernels, 1 descriptions, 0 portions" in shown
    assert "machine code, too: of 0 kernels, 0.0 MB" in shown


def rows_of(text):
    return list(csv.DictReader(text.splitlines(keepends=True)))


def lines_of(store):
    out = store.path.with_name("rows.jsonl")
    assert run(store, "export", "-o", str(out)) == 0
    return [json.loads(line) for line in out.read_text().splitlines()]


def test_disturbed_samples(store, capsys):
    facts = SystemActivity(0.5, waited_s=0.25, switches=7, throttled=False)
    store.add(SMALL, replace(sample(1, 5, 9.0), activity=facts, disturbed=True), "square(n=16)")
    assert run(store, "list") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "kernel samples disturbed failures first last median (ms)" in shown
    assert "square(n=16) 6 1 0 " in shown
    assert run(store, "list", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    kernels = found["kernels"]
    assert (found["path"], found["set_aside"]) == (str(store.path), [])
    assert found["counts"] == {"kernels": 0, "scops": 0, "counts": 0, "code": 0, "text_bytes": 0, "code_bytes": 0}
    assert [(k["label"], k["samples"], k["disturbed"], k["failures"], k["median_s"]) for k in kernels] == [
        ("square(n=16)", 6, 1, 0, pytest.approx(3e-3)),
        ("square(n=64)", 3, 0, 1, pytest.approx(8e-3)),
        ("aaaaaaaaaaaa", 2, 0, 0, pytest.approx(1e-3)),
    ]
    assert run(store, "export") == 0
    rows = rows_of(capsys.readouterr().out)
    [row] = [row for row in rows if row["disturbed"] == "true"]
    names = ("seconds", "elapsed_s", "processor_s", "waited_s", "switches", "throttled")
    assert [row[name] for name in names] == ["0.009000000000000001", "0.5", "", "0.25", "7", "false"]
    assert [row["disturbed"] for row in rows].count("false") == 10
    assert [row["disturbed"] for row in rows if row["record"] == "failure"] == [""]
    lines = lines_of(store)
    [line] = [line for line in lines if line.get("disturbed")]
    assert {name: line[name] for name in vars(facts) if name in line} == {
        "elapsed_s": 0.5, "waited_s": 0.25, "switches": 7, "throttled": False,
    }  # fmt: skip
    assert ["disturbed" in line for line in lines if line["record"] == "failure"] == [False]


def test_the_store_in_use_is_the_default(store, monkeypatch, capsys):
    monkeypatch.setenv("PERFLEX_STORE", str(store.path))
    assert main(["store", "verify"]) == 0
    assert capsys.readouterr().out.strip() == f"{store.path} is sound: 10 samples and 1 failure"
    monkeypatch.setenv("PERFLEX_STORE", "off")
    assert main(["store", "verify"]) == 1
    assert "switched off" in capsys.readouterr().err


def test_export(store, tmp_path, capsys):
    assert run(store, "export") == 0
    printed = capsys.readouterr().out
    out = tmp_path / "rows.csv"
    assert run(store, "export", "--out", str(out)) == 0
    assert capsys.readouterr().out.strip() == str(out)
    assert out.read_text() == printed
    rows = rows_of(printed)
    assert tuple(rows[0]) == COLUMNS
    assert [row["record"] for row in rows] == ["sample"] * 10 + ["failure"]
    assert [float(row["seconds"]) for row in rows[:5]] == [sample(0, 0, 1.0 + n).seconds for n in range(5)]
    assert json.loads(rows[5]["sizes"]) == {"n": 64}
    assert rows[-1]["message"] == "no answer,\nnone"
    assert rows[-1]["seconds"] == rows[0]["kind"] == ""
    assert float(rows[0]["started"]) == NOW - 100 * DAY
    first, *_, last = lines = lines_of(store)
    assert (len(lines), first["sizes"], last["kind"]) == (11, {"n": 16}, "hang")
    assert "kind" not in first


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_export_to_a_full_disk(store, tmp_path, capsys):
    out = tmp_path / "rows.csv"
    out.symlink_to("/dev/full")
    assert run(store, "export", "--out", str(out)) == 2
    assert capsys.readouterr().err.strip() == (
        f"perflex: error: cannot write {out}: No space left on device; name another file"
    )


def damage(store):
    store.close()
    connection = sqlite3.connect(store.path)
    connection.execute("UPDATE records SET started = 3 WHERE number = 4")
    connection.execute("PRAGMA foreign_keys=OFF")
    connection.execute("DELETE FROM measurement_keys WHERE data LIKE '%PoCL%'")
    connection.commit()
    connection.close()


def test_verify_tells_what_is_wrong(store, capsys):
    damage(store)
    before = store.path.read_bytes()
    assert run(store, "verify") == 1
    shown = capsys.readouterr()
    assert f"{store.path} is damaged: 9 samples and 1 failure can be read in order" in shown.out
    assert "    row 4 of records is not what was written" in shown.out
    advice = "'perflex store export' writes what can be read; then delete or move"
    assert shown.err == f"{advice} {store.path}, and measure again\n"
    assert store.path.read_bytes() == before


def test_verify_of_what_is_no_whole_database(store, capsys):
    store.close()
    content = store.path.read_bytes()
    store.path.write_bytes(content[:100] + b"\xee" * 4000 + content[4100:])
    assert run(store, "verify") == 1
    assert "database disk image is malformed" in capsys.readouterr().out
    assert run(store, "list") == 1
    assert "database disk image is malformed" in capsys.readouterr().err
    with pytest.warns(PerflexWarning, match="is damaged"):
        store.add(SMALL, sample(0, 0))
    [aside] = store.set_asides()
    assert run(store, "list") == 0
    assert f"set aside: {aside}; delete it" in capsys.readouterr().out
    assert run(store, "verify") == 0


def test_prune_shows_before_it_deletes(store, capsys):
    assert run(store, "prune", "--older-than", "90d") == 0
    assert capsys.readouterr().out.splitlines() == [
        "Intel OpenCL: Some CPU: 1 sample and 1 failure",
        "PoCL: Some CPU: 2 samples and 0 failures",
        "would delete 3 samples and 1 failure",
        "nothing was deleted; give --yes to do it",
    ]
    assert len(store.earlier(SMALL)) == 5
    assert run(store, "prune", "--older-than", "90d", "--yes") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "deleted 3 samples and 1 failure"
    assert [row.round for row in store.earlier(SMALL)] == [1, 2, 3, 4]
    assert store.earlier(ELSEWHERE) == ()
    assert store.failure(LARGE) is None
    assert run(store, "verify") == 0
    keys = store.use(lambda connection: connection.execute("SELECT count(*) FROM measurement_keys").fetchone())
    assert keys == (2,)


@pytest.mark.parametrize(
    ("words", "left"),
    [
        (["--failures"], (5, 3, 2, 0)),
        (["--failures", "--older-than", "1y"], (5, 3, 2, 1)),
        (["--older-than", "1h"], (0, 0, 0, 0)),
    ],
    ids=lambda value: " ".join(map(str, value)),
)
def test_what_prune_takes(store, words, left):
    assert run(store, "prune", *words, "--yes") == 0
    kept = [store.earlier(key) for key in (SMALL, LARGE, ELSEWHERE)]
    failures = store.use(
        lambda connection: connection.execute("SELECT count(*) FROM records WHERE round IS NULL").fetchone()[0]
    )
    assert (*map(len, kept), failures) == left
    # Those added last stay.
    assert [row.round for row in kept[0]] == list(range(5 - left[0], 5))
    assert run(store, "verify") == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["prune"], "choose what to delete: --older-than"),
        (["prune", "--yes"], "choose what to delete: --older-than"),
        (["prune", "--older-than", "soon", "--yes"], "cannot read --older-than 'soon'"),
        (["prune", "--older-than", "30", "--yes"], "--older-than 30 has no unit; write e.g. 12h, 90d or 1y"),
        (["prune", "--older-than", "-5d", "--yes"], "cannot read --older-than '-5d'"),
    ],
)
def test_prune_wants_to_know_what(store, words, told, capsys):
    assert run(store, *words) == 2
    assert told in capsys.readouterr().err
    assert len(store.earlier(SMALL)) == 5


@pytest.mark.parametrize("command", ["list", "export", "verify", "prune"])
def test_files_that_are_no_store(command, tmp_path, capsys):
    words = ["store", command] + (["--failures", "--yes"] if command == "prune" else [])
    missing = tmp_path / "missing.sqlite"
    assert main([*words, "--store", str(missing)]) == 2
    assert f"there is no store at {missing}" in capsys.readouterr().err
    assert not missing.exists()
    assert main([*words, "--store", str(tmp_path)]) == 2
    assert f"{tmp_path} is a folder; name a regular file" in capsys.readouterr().err
    notes = tmp_path / "notes.txt"
    notes.write_text("something that was named by mistake\n" * 1000)
    assert main([*words, "--store", str(notes)]) == 2
    assert f"{notes} is no store of perflex" in capsys.readouterr().err
    foreign = tmp_path / "history.sqlite"
    connection = sqlite3.connect(foreign)
    connection.execute("CREATE TABLE visits (page TEXT)")
    connection.close()
    assert main([*words, "--store", str(foreign)]) == 1
    told = capsys.readouterr().err
    assert "is another program's SQLite file; name another file" in told
    assert told.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == [foreign, notes]
