"""A benchmark of `f_traffic_bytes_*`: random kernels that are dealt to cores, against a simulation of their caches.

    python tests/bench/core_traffic.py [--kernels 100] [--first 0] [--workers 2] [--out cases.csv]

Each kernel (`support/dealt_kernels.py`) runs on 1, 2, 4, 6 and 16 cores that have an L1 and an L2 of their own, and an
L3 for each four. The truth: all accesses of each core's part, enumerated, go through caches that replace what was least
recently used, in one run after another; cores that share a cache take turns, an access each. As a real cache goes over
gradually from holding a reuse to losing it, a volume counts as right between those of caches 0.7 and 1.45 times as
large, and within a quarter byte per access.

Prints how far the volumes are off, and ends with 1 if fewer than 95 % are within 12 % or one is beyond 35 %. Kernels of
more than 150,000 accesses are left out. Nothing is timed. About 5 minutes.
"""

from __future__ import annotations

import argparse
import csv
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from oracles.traces import scop_trace
from perflex.features import Target, extract_scop, parse_feature
from support.dealt_kernels import AROUND, CACHES, LEAST, cpu, crossings, off_by, random_dealt_kernel

CORES = (1, 2, 4, 6, 16)
MOST_ACCESSES = 150_000
WITHIN, FURTHEST, PART = 1.12, 1.35, 0.95


class Case(NamedTuple):
    """A volume: what is estimated, and the least and most that is right, in bytes."""

    seed: int
    kernel: str
    cores: int
    level: str
    estimated: float
    least: float
    most: float
    off: float


def cases_of(seed: int) -> list[Case]:
    """Return the volumes of a random kernel; none where it is too long."""
    kernel, sizes, lanes = random_dealt_kernel(seed)
    scop = extract_scop(kernel)
    accesses = len(scop_trace(scop, sizes, lanes=lanes)[0])
    if accesses > MOST_ACCESSES:
        return []
    found = []
    for cores in CORES:
        target = Target(sub_group_size=lanes, machine=cpu(cores))
        around = [
            crossings(scop, sizes, cores, lanes, [(int(size * factor) // 64 * 64, users) for size, users in CACHES])
            for factor in AROUND
        ]
        for level, one, other in zip(("l2", "l3", "mem"), *around, strict=True):
            estimated = float(parse_feature(f"f_traffic_bytes_{level}").value(scop, sizes, target))
            least, most = sorted((one, other))
            off = off_by(estimated, least, most, LEAST * accesses)
            text = "; ".join(str(insn) for insn in kernel.default_entrypoint.instructions)
            found.append(Case(seed, text, cores, level, estimated, least, most, off))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, help="CSV file of all volumes")
    given = parser.parse_args()
    cases: list[Case] = []
    kernels = 0
    with ProcessPoolExecutor(given.workers) as executor:
        # Some are too long.
        for found in executor.map(cases_of, range(given.first, given.first + 2 * given.kernels)):
            cases += found
            kernels += bool(found)
            if kernels == given.kernels:
                break
        executor.shutdown(cancel_futures=True)
    if given.out is not None:
        with given.out.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(Case._fields)
            writer.writerows(cases)
    for label, chosen in [("all", cases), *((f"{n} cores", [c for c in cases if c.cores == n]) for n in CORES)]:
        off = np.array([case.off for case in chosen])
        right, within = np.mean(off == 1), np.mean(off <= WITHIN)
        print(
            f"{label:8} {len(off):5} volumes: {right:6.1%} right, {within:6.1%} within 12 %, "
            f"{np.sum(off > FURTHEST)} beyond 35 %, furthest {off.max():.2f}"
        )
    for case in sorted(cases, key=lambda one: -one.off)[:10]:
        if case.off > WITHIN:
            print(f"  {case.off:.2f} {case}")
    off = np.array([case.off for case in cases])
    return int(np.mean(off <= WITHIN) < PART or off.max() > FURTHEST)


if __name__ == "__main__":
    sys.exit(main())
