"""Stores under kills and damage: ``python tests/bench/stores.py [--kills 10] [--damages 200] [--seed S] [--first N]``.

Kills: children calibrate a shipped model on the default device and are killed (SIGKILL) at a random time; each goes on
where the one before was, and the last one comes to its end. Every sample that a child said it had kept is in the store,
once, and the parameters equal, bit for bit, those of an undisturbed run with the same samples.

Damages: a store with samples, failures, counts and unfinished work, with and without a write-ahead log, gets bits
flipped, bytes overwritten, pages zeroed, doubled and exchanged, is cut, or has a value changed by SQL. Counted are

* wrong rows: exported, resumed or used, and not what was written (a kernel's name may be lost, and then is empty);
* lost rows: SQLite still reads them, by scans or by number, and they are not exported;
* escapes: exceptions other than perflex's own, and exit statuses that are none of perflex's.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from contextlib import closing, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perflex import using_store
from perflex.errors import PerflexError
from perflex.features.kept import keep_counts, keep_scop, kept_counts, kept_scop
from perflex.store.contents import all_rows
from perflex.store.records import TABLES, Failure, MeasurementKey, Sample, SystemActivity
from perflex.store.resume import RunRecorder
from perflex.store.store import Store, store_at

if TYPE_CHECKING:
    from collections.abc import Iterator

MODEL, TRIALS = "dg_incore", 40
PAGE = 4096
WORK = "a piece of work"
LABELS = {
    MeasurementKey(f"{name} " * 5, (("n", n),), f"Platform: {device} device", "1.0", "warmups=1"): f"{name}(n={n})"
    for device in ("first", "second")
    for name in ("one", "two")
    for n in (256, 512)
}
OF_KEY = ("device", "driver", "kernel", "sizes", "conditions", "label")


# Kills.


def child(place: str, out: str, sessions: str) -> None:
    """Calibrate, and say of each sample that it was kept, after it was; at the end, of which sessions the run was."""
    add_many, finish = Store.add_many, RunRecorder.finish

    def add_and_say(self, samples, labels=None):
        listed = list(samples)
        add_many(self, listed, labels)
        for key, sample in listed:
            os.write(1, f"{json.dumps([(labels or {})[key], sample.session, sample.round, sample.seconds])}\n".encode())

    def say_and_finish(self):
        Path(sessions).write_text(json.dumps(sorted(self._sessions)), encoding="utf-8")
        finish(self)

    Store.add_many, RunRecorder.finish = add_and_say, say_and_finish  # type: ignore[method-assign]
    with using_store(place):
        calibrated().save(Path(out))


def calibrated() -> Any:
    """Calibrate for so long that there is time to be killed."""
    from perflex import TimingOptions, calibrate, find_device
    from perflex.devices.listing import wall_time_identifier
    from perflex.models import load_model, measurement_kernels

    device, description = find_device(None), load_model(MODEL)
    timing = TimingOptions(trials=TRIALS, min_trials=TRIALS, budget_s=2.0, precision=1e-6)
    model = description.model(wall_time_identifier(device))
    return calibrate(model, measurement_kernels(description), device=device, timing=timing)


class Given(RunRecorder):
    """Gives back the samples of some sessions; new ones are an error: nothing is to be measured."""

    add_many = None  # type: ignore[assignment]

    def __init__(self, place: str, sessions: set[str]) -> None:
        super().__init__(Store(Path(place)), "")
        self._sessions = {*sessions}


def kills(count: int, longest_s: float, chance: random.Random) -> dict[str, int]:
    """Kill children, let the last one finish, and return how much of what should not happen there was."""
    from perflex import Calibration
    from perflex.store import resume

    killed, status = 0, -signal.SIGKILL
    with tempfile.TemporaryDirectory() as folder:
        files = place, out, sessions = [str(Path(folder, name)) for name in ("store.sqlite", "out.yaml", "sessions")]
        words = [sys.executable, "-W", "ignore", __file__, "child", *files]
        said_there = Path(folder, "said")
        said_there.touch()
        while status:
            before = said_there.stat().st_size
            with said_there.open("a") as stream:
                process = subprocess.Popen(words, stdout=stream, start_new_session=True)
            # Most of the time goes by before it measures.
            while process.poll() is None and said_there.stat().st_size == before:
                time.sleep(0.02)
            with suppress(subprocess.TimeoutExpired):
                process.wait(chance.uniform(0, longest_s) if killed < count else None)
            process.kill()
            status = process.wait()
            if status not in {0, -signal.SIGKILL}:
                msg = f"a child ended with {status}"
                raise RuntimeError(msg)
            killed += status != 0
        said = {tuple(json.loads(line)) for line in said_there.read_text(encoding="utf-8").splitlines()}
        facts = ("label", "session", "round", "seconds")
        stored = Counter(tuple(row[fact] for fact in facts) for row in all_rows(Store(Path(place))))
        whole = {*json.loads(Path(sessions).read_text(encoding="utf-8"))}
        resume.RunRecorder = lambda *_: Given(place, whole)  # type: ignore[misc,assignment]
        with using_store(place):
            differing = dict(calibrated().params) != dict(Calibration.load(Path(out)).params)
        resume.RunRecorder = RunRecorder  # type: ignore[misc]
    print(f"{killed} kills, {len(said)} samples said to be kept, {len(whole)} sessions in the last run", flush=True)
    twice = sum(number > 1 for number in stored.values())
    return {"samples lost": len(said - {*stored}), "samples twice": twice, "parameters differ": int(differing)}


# Damages.


def samples(number: int) -> list[Sample]:
    """Return what is measured of the kernel of that number."""
    quiet = SystemActivity(0.5, 0.25, 0.001, switches=3, throttled=False)
    return [
        Sample(1e-3 * (1 + n + 100 * number), 1, 1.7e9 + 60 * n, ("early", "late")[n % 2], n, (None, quiet)[n % 2])
        for n in range(60)
    ]


SCOP = """\
schema: perflex-scop/1
name: {name}
parameters: [n]
assumptions: "[n] -> {{ : n >= 1 }}"
launches:
- {{groups: [n], items: [16]}}
arrays:
- {{name: a, space: global, dtype: float32, shape: [16*n], strides: [1]}}
statements:
- name: put
  domain: "[n] -> {{ [g, l] : 0 <= g < n and 0 <= l < 16 }}"
  accesses:
  - {{array: a, direction: store, relation: "{{ [g, l] -> [16g + l] }}"}}
  schedule: [0]
"""


def made(path: Path) -> list[Any]:
    """Make the sound store, and return the Scops whose counts are kept."""
    from perflex.features import scop_from_yaml

    store = Store(path)
    recorder = RunRecorder(store, WORK)
    for number, (key, label) in enumerate(LABELS.items()):
        for session, keeper in (("late", recorder), ("early", store)):
            keeper.add_many([(key, sample) for sample in samples(number) if sample.session == session], LABELS)
        recorder.fail(key, Failure("hang", f"no answer from {key.device}", 1.7e9 + number, "late"), label)
    scops = [scop_from_yaml(SCOP.format(name=f"kernel_{n}")) for n in range(3)]
    with using_store(store):
        for number, scop in enumerate(scops):
            keep_scop(f"key {number}", scop)
            keep_counts(scop, {"a count": {"value": number}})
    return scops


def damage(path: Path, chance: random.Random) -> str:
    """Damage a store's file, or its log, and return what was done."""
    way = chance.choice(("flip", "bytes", "bytes", "cut", "zero", "swap", "double", "edit"))
    if way == "edit":
        return edited(path, chance)
    wal = path.with_name(path.name + "-wal")
    target = wal if wal.exists() and chance.random() < 0.4 else path
    content = bytearray(target.read_bytes())
    at = chance.randrange(len(content))
    page, other = (
        slice(place * PAGE, (place + 1) * PAGE) for place in chance.choices(range(len(content) // PAGE), k=2)
    )
    if way == "flip":
        content[at] ^= 1 << chance.randrange(8)
    elif way == "bytes":
        length = min(chance.randrange(1, 201), len(content) - at)
        content[at : at + length] = chance.randbytes(length)
    elif way == "cut":
        del content[at:]
    elif way == "zero":
        content[page] = bytes(PAGE)
    elif way == "double":
        content[page] = content[other]
    else:
        content[page], content[other] = content[other], content[page]
    target.write_bytes(content)
    return f"{way} in {target.name}"


def edited(path: Path, chance: random.Random) -> str:
    """Change a value of a row: to that of another row, to another number or text, or to another type."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        table = chance.choice([*TABLES])
        column = chance.choice([row[1] for row in connection.execute(f"PRAGMA table_info({table})")])
        rows = connection.execute(f"SELECT rowid, {column} FROM {table}").fetchall()  # noqa: S608
        row, value = chance.choice(rows)
        more = 3 if value is None else value + (1 if isinstance(value, (int, float)) else "x")
        changed = chance.choice((chance.choice(rows)[1], more, chance.choice((b"\xff\x00", "text", -1, 2**62, 1e300))))
        with suppress(sqlite3.IntegrityError):
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (changed, row))  # noqa: S608
    return f"{table}.{column} = {str(changed)[:30]!r}"


def readable_rows(path: Path, last: int) -> set[tuple[Any, ...]]:
    """Return the rows of samples and failures that SQLite itself can read, by scans or by number up to the last."""
    found: set[tuple[Any, ...]] = set()
    with closing(sqlite3.connect(path)) as connection:
        connection.text_factory = lambda text: text.decode("utf-8", "replace")
        for table in ("samples", "failures"):
            for rest in ("", "ORDER BY number DESC", *(f"WHERE number = {number}" for number in range(1, last + 1))):
                with suppress(sqlite3.DatabaseError, UnicodeDecodeError):
                    found.update(connection.execute(f"SELECT * FROM {table} {rest}"))  # noqa: S608
    return found


class Truth:
    """What was written, and what is wrong with what a damaged store gives of it."""

    def __init__(self, path: Path, scops: list[Any]) -> None:
        self.scops = scops
        self.rows = list(all_rows(Store(path)))
        self.in_tables = readable_rows(path, 0)

    @staticmethod
    def _facts(row: dict[str, Any], *, named: bool) -> str:
        left_out = {"number", *(() if named else OF_KEY)}
        return json.dumps({name: value for name, value in sorted(row.items()) if name not in left_out})

    def exported(self, store: Store) -> Iterator[str]:
        """Yield what is wrong with exported rows: another one, one twice, one less than SQLite reads."""
        still = readable_rows(store.path, len(self.rows)) & self.in_tables
        rows = list(all_rows(store))
        # A kernel's name may be lost.
        left = {named: Counter(self._facts(row, named=named) for row in self.rows) for named in (True, False)}
        for row in rows:
            named = bool(row["kernel"])
            left[named][self._facts(row, named=named)] -= 1
            if left[named][self._facts(row, named=named)] < 0:
                yield f"wrong row: {row}"
        numbers = {row["number"] for row in rows}
        yield from (f"lost row: {row}" for row in still if row[0] not in numbers)

    def used(self, store: Store) -> Iterator[str]:
        """Yield samples that were not measured so."""
        recorder = RunRecorder(store, WORK)
        for number, key in enumerate(LABELS):
            resumed = recorder.earlier(key)
            wrong = [sample for sample in (*store.earlier(key), *resumed) if sample not in samples(number)]
            yield from (f"wrong row: {one}" for one in (*wrong, *(one for one in resumed if one.session != "late")))

    def counted(self, store: Store) -> Iterator[str]:
        """Yield kernels and counts that are others."""
        from perflex.features import scop_to_yaml

        with using_store(store):
            for number, scop in enumerate(self.scops):
                kept = kept_scop(f"key {number}")
                if kept is not None and scop_to_yaml(kept) != scop_to_yaml(scop):
                    yield f"wrong row: kernel {number} became {kept.name}"
                if kept_counts(scop) not in ({}, {"a count": {"value": number}}):
                    yield f"wrong row: counts of kernel {number}"

    def commands(self, store: Store) -> Iterator[str]:
        """Yield commands that end as none of perflex's does."""
        from perflex.__main__ import main as perflex

        for words in (["verify"], ["list", "--json"], ["prune", "--device", "first"], ["verify", "--mend"], ["export"]):
            with redirect_stdout(io.TextIOWrapper(io.BytesIO())), redirect_stderr(io.StringIO()):
                status = perflex(["store", *words, "--store", str(store.path)])
            if status not in {0, 1, 2}:
                yield f"escape: {words} ends with {status}"
        store_at(store.path).close()  # type: ignore[union-attr]

    def faults(self, path: Path) -> Iterator[str]:
        """Yield what goes wrong with a damaged store; each way of using it gets a copy of its own."""
        for use in (self.exported, self.used, self.counted, self.commands):
            own = path.parent.with_name(use.__name__)
            shutil.copytree(path.parent, own)
            store = Store(own / path.name)
            try:
                yield from use(store)
            except PerflexError:
                continue
            except Exception:  # noqa: BLE001 - whatever it is, it escaped
                yield f"escape: {traceback.format_exc()}"
            finally:
                store.close()


def damages(count: int, seed: str, first: int = 0) -> dict[str, int]:
    """Damage stores in so many ways, and return how often what went wrong."""
    warnings.simplefilter("ignore")
    found: Counter[str] = Counter({"wrong row": 0, "lost row": 0, "escape": 0})
    with tempfile.TemporaryDirectory() as top:
        sound = Path(top, "sound", "store.sqlite")
        scops = made(sound)
        # Two states: with all that was written in the log, and with all of it in the file.
        shutil.copytree(sound.parent, Path(top, "log"))
        store_at(sound).close()  # type: ignore[union-attr]
        truth = Truth(sound, scops)
        for number in range(first, first + count):
            folder = Path(top, str(number))
            state = "log" if number % 3 == 0 else "sound"
            shutil.copytree(Path(top, state), folder / "damaged")
            path = folder / "damaged" / "store.sqlite"
            what = damage(path, random.Random(f"{seed}:{number}"))  # noqa: S311 - not for secrets
            for fault in truth.faults(path):
                found[fault.partition(":")[0]] += 1
                print(f"{number} ({what}): {fault}", flush=True)
            shutil.rmtree(folder)
    print(f"{count} damages of {len(truth.rows)} rows, seed {seed!r} from {first}", flush=True)
    return dict(found)


def main() -> int:
    """Do both, and print what went wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--longest", type=float, default=6.0, help="seconds for which a child measures at most")
    parser.add_argument("--damages", type=int, default=200)
    parser.add_argument("--seed", default="record")
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    found = damages(given.damages, given.seed, given.first) if given.damages else {}
    if given.kills:
        found |= kills(given.kills, given.longest, random.Random(given.seed))  # noqa: S311 - no secret
    print(", ".join(f"{what}: {number}" for what, number in found.items()))
    return int(any(found.values()))


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        child(*sys.argv[2:])
    else:
        sys.exit(main())
