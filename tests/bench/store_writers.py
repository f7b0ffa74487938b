"""Many processes write to one store: ``python tests/bench/store_writers.py [--folder DIR]``.

8 processes write 10,000 samples each, first in a transaction per sample, then in batches of 20. Prints rows a second
(from the first write to the last, without the start of the processes), errors and rows lost. The exit code is not 0
when a process fails, a row is lost or changed, or fewer than 5,000 rows a second were written.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# The tests have a folder called uipick, too: the package must come first.
sys.path[:0] = [str(Path(__file__).parents[2])]

PROCESSES = 8
SAMPLES = 10_000
KERNELS = 100
BATCH = 20
WANTED_PER_S = 5_000


def key_of(writer: int, number: int):
    """Return one of the keys that writers share, or, every second time, that the writer has for itself."""
    from perflex.store.records import MeasurementKey

    owner = "" if number % 2 else f"writer{writer}"
    sizes = (("n", 16 * (number % KERNELS)), ("m", 64))
    return MeasurementKey(f"digest{owner}", sizes, "Some platform: some device", "1.0", "warmups=1")


def sample_of(writer: int, number: int):
    """Return the sample that a writer adds in a place."""
    from perflex.store.records import Sample

    return Sample(1e-6 * (1 + number) + writer, 1, 1.7e9 + number, f"session-{writer:04}", number)


def write(path: Path, writer: int, batch: int) -> None:
    """Add this process's samples; print when the first and the last were written."""
    from perflex.store.samples import MeasurementStore

    store = MeasurementStore(path)
    rows = [(key_of(writer, number), sample_of(writer, number)) for number in range(SAMPLES)]
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.time()
    if batch == 1:
        for key, sample in rows:
            store.add(key, sample, "matmul_sq(dtype=float32)")
    else:
        for at in range(0, SAMPLES, batch):
            store.add_many(rows[at : at + batch])
    print(began, time.time())


def lost_rows(path: Path) -> int:
    """Return how many rows are not in the file as they were written."""
    from perflex.store.samples import MeasurementStore

    store = MeasurementStore(path)
    lost = 0
    for writer in range(PROCESSES):
        expected: dict[object, list[object]] = {}
        for number in range(SAMPLES):
            expected.setdefault(key_of(writer, number), []).append(sample_of(writer, number))
        for key, samples in expected.items():
            found = [sample for sample in store.earlier(key) if sample.session == samples[0].session]
            lost += 0 if found == samples else len(set(samples) - set(found)) or 1
    store.close()
    return lost


def run(folder: Path, batch: int) -> bool:
    """Let the processes write, print what came of it, and return whether all is well."""
    path = folder / f"batch{batch}.sqlite"
    command = [sys.executable, __file__, "--write", str(path), "--batch", str(batch)]
    writers = [
        subprocess.Popen([*command, "--writer", str(i)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for i in range(PROCESSES)
    ]
    ready = [writer.stdout.readline().strip() == "ready" for writer in writers]
    ends = [writer.communicate("go\n")[0].split() for writer in writers]
    errors = sum(writer.returncode != 0 for writer in writers)
    if errors or not all(ready):
        print(f"batches of {batch:3}: {errors} processes failed")
        return False
    seconds = max(float(end) for _, end in ends) - min(float(began) for began, _ in ends)
    rate = PROCESSES * SAMPLES / seconds
    lost = lost_rows(path)
    print(
        f"transactions of {batch:3}: {PROCESSES} processes, {PROCESSES * SAMPLES} rows in {seconds:6.2f} s, "
        f"{rate:8.0f} rows/s, {errors} errors, {lost} rows lost, {path.stat().st_size / 1e6:.1f} MB"
    )
    return lost == 0 and rate >= WANTED_PER_S


def main() -> int:
    """Run both, or be one of the writers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="Where to make the store; a temporary folder by default.")
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--writer", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--batch", type=int, default=1, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.write is not None:
        write(given.write, given.writer, given.batch)
        return 0
    with tempfile.TemporaryDirectory(prefix="perflex-store-", dir=given.folder) as folder:
        fine = [run(Path(folder), batch) for batch in (1, BATCH)]
    return 0 if all(fine) else 1


if __name__ == "__main__":
    raise SystemExit(main())
