"""Stores that were damaged: ``python tests/bench/damaged_stores.py [--damages N] [--seed S] [--first N]``.

A store with samples, failures, counts and unfinished work is damaged in many ways, again and again from the same sound
file: random bytes of 1 to 200 at a random place of the file or of its log, truncation, pages exchanged, doubled,
zeroed, and each column of each table changed by SQL. With every damaged file all is done that reads it: verify, list,
export, resume, prune, reading of counts, and recovery, by the library and by the command line. Counted are

* wrong rows: a sample, failure, count or name that was used or exported and differs from what was written (a row that
  is lost is not wrong, nor is one whose kernel's name is lost and said to be so);
* escapes: exceptions other than perflex's own;
* damages that `store verify` did not notice although something was lost by them.

The exit status is 0 where there are none.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import random
import shutil
import sqlite3
import tempfile
import traceback
import warnings
from collections import Counter
from contextlib import closing, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perflex.errors import PerflexError
from perflex.store.overview import all_rows, overview
from perflex.store.records import Failure, MeasurementKey, Sample, SystemActivity
from perflex.store.removal import Selection, remove
from perflex.store.resume import RunRecorder
from perflex.store.samples import MeasurementStore
from perflex.store.store import Store, using_store
from perflex.store.verify import verify

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PAGE = 4096
KEY_FACTS = ("device", "driver", "kernel", "sizes", "conditions")
KEYS = [
    MeasurementKey(f"{name} " * 5, (("n", n),), f"Platform: {device}", "1.0", "warmups=1")
    for device in ("first device", "second device")
    for name in ("one", "two")
    for n in (256, 512)
]
# What is measured of each kernel, so that removing by device has something to be wrong about.
LABELS = {key: f"{key.kernel.split()[0]}(n={key.sizes[0][1]})" for key in KEYS}
WORK = "a piece of work"
TABLES = {
    "measurement_keys": ("number", "kernel", "sizes", "device", "driver", "conditions", "label", "label_checksum"),
    "samples": (
        "number", "key", "session", "round", "seconds", "launches", "started", "checksum", "activity",
        "activity_checksum", "seal",
    ),
    "failures": ("number", "key", "session", "kind", "message", "started", "after", "checksum", "seal"),
    "unfinished_work": ("number", "work", "session", "checksum"),
    "scops": ("digest", "text"),
    "kernels": ("key", "scop", "version", "checksum"),
    "counts": ("number", "scop", "version", "digest", "text"),
    "versions": ("version", "used"),
}  # fmt: skip


def samples(number: int) -> list[Sample]:
    """Return what is measured of the kernel of that number."""
    quiet = SystemActivity(0.5, 0.25, 0.001, switches=3, throttled=False)
    return [
        Sample(1e-3 * (1 + n + 100 * number), 1 + n % 3, 1.7e9 + 60 * n + number, ("early", "late")[n % 2], n,
               (None, quiet)[n % 2], n % 5 == 4)
        for n in range(25)
    ]  # fmt: skip


def kernels() -> list[Any]:
    """Return the Scops whose counts are kept."""
    from fuzz_parts.inputs import TRANSPOSE

    from perflex.features import scop_from_yaml

    return [scop_from_yaml(TRANSPOSE.replace("name: transpose", f"name: kernel_{n}")) for n in range(3)]


def made(path: Path, scops: list[Any]) -> None:
    """Make the sound store."""
    from perflex.features.kept.scops_and_counts import keep_counts, keep_scop

    store = MeasurementStore(Store(path))
    recorder = RunRecorder(store, WORK)
    for number, key in enumerate(KEYS):
        recorder.add_many([(key, sample) for sample in samples(number) if sample.session == "late"], LABELS)
        store.add_many([(key, sample) for sample in samples(number) if sample.session == "early"], LABELS)
        if number % 2:
            store.fail(key, Failure("hang", f"no answer from {key.device}", 1.7e9 + number, "late"), LABELS[key])
    other = RunRecorder(store, "other work")
    other.add(KEYS[0], Sample(9.0, 1, 1.7e9, "others", 0), LABELS[KEYS[0]])
    with using_store(path):
        for number, scop in enumerate(scops):
            keep_scop(f"key {number}", scop)
            keep_counts(scop, {"a count": {"value": number}})
    store.close()
    from perflex.store.store import store_at

    store_at(path).close()


# Damages.


def damage(path: Path, number: int, seed: str) -> str:
    """Damage a store's file and return what was done."""
    chance = random.Random(f"{seed}:{number}")  # noqa: S311 - not for secrets
    edits = [(table, column) for table, columns in TABLES.items() for column in columns]
    wal = path.with_name(path.name + "-wal")
    # Every column at least once in each 200 damages.
    if number % 4 == 1:
        return edited(path, *edits[number // 4 % len(edits)], chance)
    target = wal if wal.exists() and chance.random() < 0.4 else path
    content = bytearray(target.read_bytes())
    way = chance.choice(("bytes", "bytes", "bytes", "bytes", "cut", "swap", "double", "zero", "flip"))
    at = chance.randrange(len(content))
    page, other = (chance.randrange(max(1, len(content) // PAGE)) * PAGE for _ in range(2))
    if way == "bytes":
        length = chance.randrange(1, 201)
        content[at : at + length] = chance.randbytes(length)
    elif way == "cut":
        del content[at:]
    elif way == "swap":
        content[page : page + PAGE], content[other : other + PAGE] = (
            content[other : other + PAGE],
            content[page : page + PAGE],
        )
    elif way == "double":
        content[page : page + PAGE] = content[other : other + PAGE]
    elif way == "zero":
        content[page : page + PAGE] = bytes(PAGE)
    else:
        content[at] ^= 1 << chance.randrange(8)
    target.write_bytes(content)
    return f"{way} in {target.name}"


def edited(path: Path, table: str, column: str, chance: random.Random) -> str:
    """Change a column of a row by SQL: to that of another row, to another value, or to another type."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.create_function("seal", -1, lambda *_: 0)
        connection.execute("PRAGMA foreign_keys=OFF")
        rows = connection.execute(f"SELECT rowid, {column} FROM {table}").fetchall()  # noqa: S608
        row, value = chance.choice(rows)
        others = [other for _, other in rows if other != value]
        changed = chance.choice(
            (
                chance.choice(others) if others else "x",
                value + (1 if isinstance(value, (int, float)) else "x") if value is not None else 3,
                chance.choice((None, b"\xff\x00", "text", -1, 2**62, 1e300, "")),
            )
        )
        try:
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (changed, row))  # noqa: S608
        except sqlite3.IntegrityError:
            return f"no change of {table}.{column}"
    return f"{table}.{column} = {str(changed)[:30]!r}"


# What is read, and whether it is right.


class Truth:
    """What was written.

    Parameters
    ----------
    path
        The sound file.
    scops
        The kernels whose counts it has.
    """

    def __init__(self, path: Path, scops: list[Any]) -> None:
        store = MeasurementStore(Store(path))
        self.rows = [self._plain(row) for row in all_rows(store)]
        self.by_key = {key: set(store.earlier(key)) for key in KEYS}
        self.failures = {(row["message"], row["started"]) for row in self.rows if row["record"] == "failure"}
        self.scops = scops
        self.incomplete = False
        store.close()

    @staticmethod
    def _plain(row: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in row.items() if value is not None}

    def wrong_rows(self, rows: list[dict[str, Any]], *, renumbered: bool) -> list[str]:
        """Return rows that were not written, or come twice."""
        known = Counter(self._compared(row, renumbered=renumbered) for row in self.rows)
        # A name that was lost leaves empty places; what else the row says must be that of a row that was written.
        facts = Counter(self._compared(row, renumbered=renumbered, nameless=True) for row in self.rows)
        wrong = []
        for row in rows:
            nameless = not any(row.get(name) for name in KEY_FACTS)
            counter = facts if nameless else known
            compared = self._compared(row, renumbered=renumbered, nameless=nameless)
            counter[compared] -= 1
            labels = {known_row["label"] for known_row in self.rows if known_row["kernel"] == row.get("kernel")}
            if counter[compared] < 0 or row.get("label", "") not in {*labels, ""}:
                wrong.append(f"exported {row}")
            self.incomplete |= nameless or not row.get("label")
        self.incomplete |= len(rows) < len(self.rows)
        return wrong

    @staticmethod
    def _compared(row: dict[str, Any], *, renumbered: bool, nameless: bool = False) -> str:
        left_out = {"label"} | ({"number"} if renumbered else set()) | (set(KEY_FACTS) if nameless else set())
        return json.dumps({name: value for name, value in sorted(row.items()) if name not in left_out})


def checks(truth: Truth) -> dict[str, Callable[[Path], list[str]]]:  # noqa: C901 - one function for each reader
    """Return what is done with a damaged file, by name; each returns what was wrong."""

    def exported(path: Path) -> list[str]:
        rows = [truth._plain(row) for row in all_rows(MeasurementStore(Store(path)))]
        return truth.wrong_rows(rows, renumbered=_replaced(path))

    def listed(path: Path) -> list[str]:
        names = set(LABELS.values()) | {key.kernel[:12] for key in KEYS} | {"(unnamed)"}
        devices = {key.device for key in KEYS} | {""}
        found = overview(MeasurementStore(Store(path)))
        times = {sample.seconds for known in truth.by_key.values() for sample in known}
        return [
            f"listed {entry}"
            for entry in found
            if entry.label not in names or entry.device not in devices
            or (entry.median_s is not None and not min(times) <= entry.median_s <= max(times))
        ]  # fmt: skip

    def used(path: Path) -> list[str]:
        store, wrong = MeasurementStore(Store(path)), []
        for key in KEYS:
            kept = store.earlier(key)
            if len(set(kept)) < len(kept) or not set(kept) <= truth.by_key[key]:
                wrong.append(f"used {set(kept) - truth.by_key[key]}")
            failure = store.failure(key)
            if failure is not None and (failure.message, failure.started) not in truth.failures:
                wrong.append(f"used {failure}")
        return wrong

    def resumed(path: Path) -> list[str]:
        recorder = RunRecorder(MeasurementStore(Store(path)), WORK)
        found = {(key, sample) for key in KEYS for sample in recorder.earlier(key)}
        return [f"resumed {one}" for one in found if one[1].session != "late" or one[1] not in truth.by_key[one[0]]]

    def removed(path: Path) -> list[str]:
        store = MeasurementStore(Store(path))
        before = [truth._plain(row) for row in all_rows(store)]
        remove(store, Selection(device="first"))
        after = Counter(truth._compared(truth._plain(row), renumbered=True) for row in all_rows(store))
        stay = [row for row in before if "first" not in row["device"]]
        return [f"removed {row}" for row in stay if not after[truth._compared(row, renumbered=True)]]

    def recovered(path: Path) -> list[str]:
        store = MeasurementStore(Store(path))
        store.set_aside("for the benchmark")
        rows = [truth._plain(row) for row in all_rows(store)]
        return truth.wrong_rows(rows, renumbered=True) + [f"left {one}" for one in verify(path).problems] + used(path)

    def counted(path: Path) -> list[str]:
        from perflex.features import scop_to_yaml
        from perflex.features.kept.scops_and_counts import kept_counts, kept_scop

        wrong = []
        with using_store(Store(path)):
            for number, scop in enumerate(truth.scops):
                kept = kept_scop(f"key {number}")
                if kept is not None and scop_to_yaml(kept) != scop_to_yaml(scop):
                    wrong.append(f"kernel {number} became {kept.name}")
                counts = kept_counts(scop)
                if counts not in ({}, {"a count": {"value": number}}):
                    wrong.append(f"counts {counts}")
        return wrong

    def commands(path: Path) -> list[str]:
        wrong = []
        for words in (
            ["verify"],
            ["list", "--json"],
            ["list"],
            ["prune", "--device", "first"],
            ["export"],
            ["verify", "--mend"],
        ):
            code, out = _command(["store", *words, "--store", str(path)])
            if code not in {0, 1, 2}:
                wrong.append(f"{words}: exit status {code}")
            if words == ["export"] and code == 0:
                wrong += truth.wrong_rows(list(_csv_rows(out)), renumbered=_replaced(path))
        return wrong

    return {
        "export": exported, "list": listed, "use": used, "resume": resumed, "remove": removed, "recover": recovered,
        "counts": counted, "commands": commands,
    }  # fmt: skip


def _replaced(path: Path) -> bool:
    return any(path.parent.glob(f"{path.name}.damaged-*"))


def _command(words: list[str]) -> tuple[int, str]:
    from perflex.__main__ import main
    from perflex.store.store import store_at

    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="")
    with redirect_stdout(out), redirect_stderr(io.StringIO()):
        code = main(words)
        out.flush()
    store_at(words[-1]).close()
    return code, out.buffer.getvalue().decode()  # type: ignore[attr-defined]


def _csv_rows(text: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of an exported table, their values as they were."""
    for row in csv.DictReader(io.StringIO(text)):
        given: dict[str, Any] = {name: value for name, value in row.items() if value or name in {*KEY_FACTS, "label"}}
        for name, value in given.items():
            if name not in {
                "record",
                "device",
                "driver",
                "label",
                "kernel",
                "conditions",
                "session",
                "kind",
                "message",
                "started_utc",
            }:
                given[name] = json.loads(value) if value else {}
        yield given


def copied(sound: Path, folder: Path) -> Path:
    """Return a copy of a store's file with its log in a new folder."""
    folder.mkdir()
    for suffix in ("", "-wal"):
        if (source := sound.with_name(sound.name + suffix)).exists():
            shutil.copy(source, folder / source.name)
    return folder / sound.name


def main() -> None:
    """Damage, use and count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--damages", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", default="record")
    parser.add_argument("--only", type=int, help="this damage alone, with all that was wrong")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    numbers = range(given.first, given.first + given.damages) if given.only is None else [given.only]
    wrong: list[str] = []
    escapes: list[str] = []
    unnoticed: list[str] = []
    harmless = 0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        scops = kernels()
        (folder / "sound").mkdir()
        sound = folder / "sound" / "store.sqlite"
        made(sound, scops)
        truth = Truth(copied(sound, folder / "truth"), scops)
        for number in numbers:
            damaged = copied(with_log(sound, folder) if number % 3 == 0 else sound, folder / f"{number}")
            what = f"{number}: {damage(damaged, number, given.seed)}"
            lost = run_checks(damaged, truth, what, wrong, escapes, verbose=given.only is not None)
            noticed = _noticed(damaged)
            harmless += not lost and not noticed
            if lost and not noticed:
                unnoticed.append(what)
            shutil.rmtree(folder / f"{number}")
    for kind, found in (("wrong", wrong), ("escape", escapes), ("unnoticed", unnoticed)):
        for one in found[:20]:
            print(f"{kind}: {one}")
    print(
        f"seed {given.seed!r} from {given.first}: {len(numbers)} damages, {len(wrong)} wrong rows used or exported, "
        f"{len(escapes)} escapes, {len(unnoticed)} unnoticed by verify though something was lost; "
        f"{harmless} changed nothing that is read"
    )
    raise SystemExit(1 if wrong or escapes or unnoticed else 0)


def with_log(sound: Path, folder: Path) -> Path:
    """Return a copy of the store whose newest samples are in the log only, as a killed process leaves it."""
    place = folder / "logged" / "store.sqlite"
    if not place.exists():
        path = copied(sound, folder / "open")
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("PRAGMA wal_autocheckpoint=0")
        # Written anew, so that the log has pages of every table: the file then has older states of them.
        connection.execute("VACUUM")
        copied(path, folder / "logged")
        connection.close()
    return place


def run_checks(damaged: Path, truth: Truth, what: str, wrong: list[str], escapes: list[str], *, verbose: bool) -> bool:
    """Do everything with copies of a damaged file; return whether a row that was written is not read any more."""
    folder = damaged.parent.parent
    lost = truth.incomplete = False
    for name, check in checks(truth).items():
        path = copied(damaged, folder / "copy")
        try:
            wrong += [f"{what}: {name}: {one}"[:600] for one in check(path)]
        except PerflexError as error:
            lost = True
            if verbose:
                print(name, type(error).__name__, error)
        except Exception as error:  # noqa: BLE001 - exactly what is looked for
            last = traceback.extract_tb(error.__traceback__)[-1]
            escapes.append(f"{what}: {name}: {type(error).__name__} at {Path(last.filename).name}:{last.name}: {error}")
            if verbose:
                traceback.print_exc()
        # Recovery gives a new file in any case; the others do where they found damage.
        if name != "recover":
            lost = lost or truth.incomplete or _replaced(path)
        truth.incomplete = False
        shutil.rmtree(path.parent)
    return lost


def _noticed(path: Path) -> bool:
    try:
        return bool(verify(path).problems)
    except Exception:  # noqa: BLE001 - what cannot be opened is noticed
        return True


if __name__ == "__main__":
    main()
