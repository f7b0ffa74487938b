"""Loads below the L1 caches of a GPU against a simulation of the caches, for sweeping and sharing work-groups.

The simulated caches replace the least recently used line; real ones lose lines earlier, which the estimate expects. The
baseline beside it is what each work-group needs at least, as if nothing were lost or shared.

Run: python tests/bench/l1_reuse.py
"""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP)]
sys.path.append(str(TOP / "tests"))

from oracles.l1_lru import loads_below_l1  # noqa: E402
from perflex import estimate_volumes  # noqa: E402
from support.l1_kernels import matmul, sweep  # noqa: E402
from support.machines_for_tests import V100  # noqa: E402
from support.volume_kernels import box, star  # noqa: E402


def cases():
    """Yield name, kernel, its loads, and resident work-groups."""
    for nz, (name, offsets) in product(
        (4, 16, 48), (("7 points", star(3, 1)), ("13 points", star(3, 2)), ("27 points", box(3, 1)))
    ):
        for items in ((32, 8), (64, 4)):
            yield f"sweep {name} {items[0]}x{items[1]}, {nz} planes", *sweep(offsets, (128, 64, nz), items)
    for n, tile in product((64, 128), (8, 16)):
        yield f"product {n}, groups of {tile}x{tile}", *matmul(n, tile)


def main() -> None:
    ratios = {"estimate": [], "each work-group alone": []}
    print(f"{'case':42} {'units':>5} {'L1 KiB':>6} {'simulated B':>12} {'estimate':>9} {'alone':>7}")
    for name, scop, grid, loads_of in cases():
        for units, kib in product((2, 20), (64, 128)):
            machine = replace(V100, compute_units=units, l1_bytes=kib * 1024, max_items_per_unit=1024)
            found = estimate_volumes(scop, {}, machine)
            truth = loads_below_l1(grid, loads_of, units=units, resident=found.resident_groups, capacity=kib * 1024)
            here = (found.total.l2_l1_load / truth, found.total.l2_l1_compulsory / truth)
            for key, ratio in zip(ratios, here, strict=True):
                ratios[key].append(ratio)
            print(f"{name:42} {units:5} {kib:6} {truth:12} {here[0]:9.2f} {here[1]:7.2f}")
    for key, values in ratios.items():
        factors = np.exp(np.abs(np.log(values)))
        print(
            f"{key}: factor off, median {np.median(factors):.2f}, 90th percentile {np.percentile(factors, 90):.2f}, "
            f"worst {factors.max():.2f}; within 1.3 in {np.mean(factors <= 1.3):.0%} of {len(factors)}"
        )


if __name__ == "__main__":
    main()
