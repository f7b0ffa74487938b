"""Measured tuning spaces for benchmarks: which there are, and many runs over them that go on where a file ends."""

from __future__ import annotations

import csv
import sys
import time
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from functools import lru_cache
from itertools import islice
from pathlib import Path

from perflex import DescribedSpace, load_described_space, load_description
from perflex.errors import FileFormatError

KEY = ("kernel", "gpu", "method", "samples", "seed")


def one_core():
    """Keep linear algebra of a worker on one core."""
    import scipy.linalg  # noqa: F401  # brings its own library, which must be there to be limited
    import sklearn.ensemble  # noqa: F401
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)


@lru_cache(maxsize=2)
def space_of(path):
    """Return a measured space and its times, shape ``(n,)``, one per kernel."""
    description = load_description(Path(path).parent.name)
    measured = load_described_space(path, description)
    space = DescribedSpace(description, measured.settings, Path(path).name.split(".")[0])
    return space, measured.times


def kernel_and_gpu(path):
    return Path(path).parent.name, Path(path).name.split(".")[0]


def spaces(folder):
    """Return the files ``<kernel>/<gpu>.csv``, ``.json``, or ``.gz`` of them, whose kernel has a description."""
    found = []
    for path in sorted(folder.glob("*/*")):
        if path.name.removesuffix(".gz").endswith((".csv", ".json")):
            try:
                load_description(path.parent.name)
            except FileFormatError:
                print(f"{path}: its kernel has no description", file=sys.stderr)
            else:
                found.append(str(path))
    if not found:
        sys.exit(f"there is no measured space of a described kernel in {folder}; give --data")
    return found


def read_rows(out):
    if not out.exists():
        return []
    with out.open(newline="") as stream:
        return list(csv.DictReader(stream))


def known_keys(out):
    """Return what a file of results holds: kernel, GPU, method, samples and seed of each row."""
    return {tuple(row[name] for name in KEY) for row in read_rows(out)}


def run_all(task, jobs, out, fields, workers, limit_s):
    """Run jobs in processes and append the rows that each returns, but for those that the file holds already."""
    known = known_keys(out)
    started = time.perf_counter()
    waiting, running = iter(jobs), set()
    with ProcessPoolExecutor(workers, initializer=one_core) as pool, out.open("a", newline="") as stream:
        writer = csv.writer(stream)
        if stream.tell() == 0:
            writer.writerow(fields)
        while True:
            late = time.perf_counter() - started > limit_s
            running |= {pool.submit(task, job) for job in islice(waiting, 0 if late else workers + 1 - len(running))}
            if not running:
                break
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                writer.writerows(row for row in future.result() if tuple(map(str, row[: len(KEY)])) not in known)
            stream.flush()
