"""Volumes of the 25-point stencil over work-group shapes, as CSV for ``perflex compare``.

Every shape X, Y, Z with X Y Z = 1024 in powers of two (Ernst et al., Equation 6), 632 x 504 x 504 updates of arrays of
640 x 512 x 512 elements, double precision, 64 registers; bytes per lattice update. For example::

    python tests/bench/stencil_volumes.py --machine V100 --out predicted.csv
    perflex compare predicted.csv counters.csv --key block_x --key block_y --key block_z \
        --value f_vol_l2_l1_load=l2l1_load_B_per_lup --value f_vol_dram_load=dram_load_B_per_lup \
        --shape block_x,block_y,block_z --picture volumes.png
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
import time
from math import prod
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
# The tests have a folder called uipick, too: the package must come first.
sys.path[:0] = [str(TOP)]
sys.path.append(str(TOP / "tests"))

from perflex import estimate_volumes, load_machine  # noqa: E402
from support.volume_kernels import star, stencil  # noqa: E402

DOMAIN, ARRAY = (632, 504, 504), (640, 512, 512)
VALUES = ("f_l1_wavefronts", "f_vol_l2_l1_load", "f_vol_l2_l1_store", "f_vol_dram_load", "f_vol_dram_store")
THREADS, REGISTERS = 1024, 64


def shapes() -> list[tuple[int, int, int]]:
    """All shapes of 1024 work-items that OpenCL and CUDA allow, at least two of them along x."""
    powers = [2**exponent for exponent in range(11)]
    found = [(x, y, THREADS // (x * y)) for x in powers for y in powers if x * y <= THREADS]
    return [shape for shape in found if shape[0] >= 2 and shape[2] <= 64]


def main() -> None:
    """Estimate, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--machine", default="V100")
    parser.add_argument("--variant", default="current", choices=("current", "paper2022"))
    parser.add_argument("--out", type=Path, default=Path("predicted.csv"))
    arguments = parser.parse_args()
    machine = load_machine(arguments.machine)
    rows, seconds = [], []
    for shape in shapes():
        scop = stencil(star(3, 4), DOMAIN, shape, shape=ARRAY, shift=(0, 4, 4))
        started = time.perf_counter()
        features = estimate_volumes(scop, {}, machine, variant=arguments.variant, registers=REGISTERS).features()
        seconds.append(time.perf_counter() - started)
        rows.append([*shape, *(features[name] / prod(DOMAIN) for name in VALUES)])
    with arguments.out.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["block_x", "block_y", "block_z", *VALUES])
        writer.writerows(rows)
    print(f"{len(rows)} shapes, {1e3 * statistics.median(seconds):.1f} ms each (median); {arguments.out}")


if __name__ == "__main__":
    main()
