"""The store beside many writers, and under kills: ``python tests/bench/stores.py [--writers 8] [--kills 10]``.

Writers: processes write samples into one store, each sample by itself; every one is there once.

Kills: children calibrate a shipped model on the default device and are killed (SIGKILL) at a random time; each goes on
where the one before was, and the last one comes to its end. Every sample that a child said it had kept is in the store,
once. Fewer kills than asked for, because a child ended before, are told.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from perflex import TimingOptions, calibrate, find_device, using_store
from perflex.models import load_model, measurement_kernels
from perflex.store.contents import all_rows
from perflex.store.records import MeasurementKey, Sample
from perflex.store.store import Store

MODEL, TRIALS = "dg_incore", 40
FACTS = ("label", "session", "round", "seconds")


def kept(place: Path) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row[fact] for fact in FACTS) for row in all_rows(Store(place)) if row["record"] == "sample")


def write(number: int, place: Path, rows: int) -> set[tuple[Any, ...]]:
    store, label = Store(place), f"kernel {number}"
    key = MeasurementKey(label, (("n", 512),), "Some platform: some device", "1.0", "warmups=1")
    for each in range(rows):
        store.add(key, Sample(1e-3 * (1 + each), 1, 1.7e9 + each, label, each), label)
    return {(label, label, each, 1e-3 * (1 + each)) for each in range(rows)}


def writers(processes: int, rows: int) -> dict[str, int]:
    """Let processes write, and return how much of what should not happen there was."""
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(processes) as pool:
        place = Path(folder, "store.sqlite")
        begun = time.perf_counter()
        written = set().union(*pool.map(partial(write, place=place, rows=rows), range(processes)))
        seconds, there = time.perf_counter() - begun, kept(place)
    print(f"{processes} writers, {len(written)} samples, {len(written) / seconds:.0f} a second", flush=True)
    return {"written and lost": len(written - {*there}), "written twice": sum(count > 1 for count in there.values())}


def child(place: str) -> None:
    """Calibrate for so long that there is time to be killed, and say of each sample that it was kept, after it was."""
    add_many = Store.add_many

    def add_and_say(self: Store, samples: Any, labels: Any = None) -> None:
        listed = list(samples)
        add_many(self, listed, labels)
        for key, sample in listed:
            os.write(1, f"{json.dumps([(labels or {})[key], sample.session, sample.round, sample.seconds])}\n".encode())

    Store.add_many = add_and_say  # type: ignore[method-assign]
    description = load_model(MODEL)
    timing = TimingOptions(trials=TRIALS, min_trials=TRIALS, budget_s=2.0, precision=1e-6)
    with using_store(place):
        calibrate(description.model(), measurement_kernels(description), device=find_device(None), timing=timing)


def kills(count: int, longest_s: float, chance: random.Random) -> dict[str, int]:
    """Kill children, let the last one finish, and return how much of what should not happen there was."""
    killed, status = 0, -signal.SIGKILL
    with tempfile.TemporaryDirectory() as folder:
        place, said_there = Path(folder, "store.sqlite"), Path(folder, "said")
        words = [sys.executable, "-W", "ignore", __file__, "--child", str(place)]
        while status:
            with said_there.open("a") as stream:
                before = stream.tell()
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
        lines, there = said_there.read_text(encoding="utf-8").splitlines(), kept(place)
    said = {tuple(json.loads(line)) for line in lines}
    print(f"{killed} kills, {len(said)} samples said to be kept", flush=True)
    return {"kept and lost": len(said - {*there}), "kept twice": sum(number > 1 for number in there.values())}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--rows", type=int, default=2000, help="of each writer")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--longest", type=float, default=6.0, help="seconds for which a child measures at most")
    parser.add_argument("--seed", default="record")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(given.child)
        return 0
    found = writers(given.writers, given.rows) if given.writers else {}
    if given.kills:
        found |= kills(given.kills, given.longest, random.Random(given.seed))  # noqa: S311 - no secret
    print(", ".join(f"{what}: {number}" for what, number in found.items()))
    return int(any(found.values()))


if __name__ == "__main__":
    sys.exit(main())
