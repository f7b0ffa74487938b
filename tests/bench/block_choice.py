"""Blocks that `choose_block` chooses against the best of a search: time on a CPU device.

    python tests/bench/block_choice.py MACHINE.yaml [--device NAME] [--points 7,25] [--lanes 16] [--minimum]
        [--csv FILE]

MACHINE.yaml is what ``perflex machine detect`` writes. Every block of the search and the chosen ones are timed in
interleaved rounds, each with a warm-up. Prints a line per grid, then the median loss. Run it on a machine that does
nothing else.
"""

from __future__ import annotations

import argparse
import csv
import statistics
from itertools import product
from pathlib import Path
from typing import Literal

from block_kernels import blocked_stencil

from perflex import choose_block, load_machine
from perflex._devices import find_device
from perflex._timing import Timing, TimingOptions, measure

# Planes from half a megabyte on; grids from 28 to 113 MB.
GRIDS = ((192, 96, 96), (384, 192, 48), (384, 384, 48), (768, 384, 24))
SEARCH = ((192, 384, 768), (4, 12, 48, 192), (6, 24))
# Criterion and fewest tiles per core: the paper's; and planes in the second level, with tiles to level cores out.
RULES = {"paper": (None, 1), "planes in L2": ({"L2": "plane"}, 8)}
RADIUS = {7: 1, 25: 4}


def blocks_of(grid: tuple[int, int, int], cores: int) -> list[tuple[int, int, int]]:
    """Return the blocks of the search that divide a grid and give each core at least one."""
    found = []
    for block in product(*SEARCH):
        fits = all(extent % size == 0 for extent, size in zip(grid, block, strict=True))
        tiles = (grid[0] * grid[1] * grid[2]) // (block[0] * block[1] * block[2])
        if fits and tiles >= cores:
            found.append(block)
    return found


def main() -> None:
    """Time all blocks and print what the chosen ones lose."""
    parser = argparse.ArgumentParser()
    parser.add_argument("machine", type=Path)
    parser.add_argument("--device", default=None)
    parser.add_argument("--points", default="7,25")
    parser.add_argument("--lanes", type=int, default=16)
    parser.add_argument("--minimum", action="store_true", help="fastest timing of each, on a machine that is shared")
    parser.add_argument("--csv", type=Path, default=None)
    arguments = parser.parse_args()
    device, machine = find_device(arguments.device), load_machine(arguments.machine)
    cases = []
    for points, grid in product(map(int, arguments.points.split(",")), GRIDS):
        sizes = dict(zip(("nx", "ny", "nz"), grid, strict=True))
        plain = blocked_stencil(RADIUS[points], (96, 12, 6), arguments.lanes)
        chosen = {
            name: choose_block(plain, sizes, machine, criterion, lanes=arguments.lanes, tiles_per_core=each).block
            for name, (criterion, each) in RULES.items()
        }
        for block in dict.fromkeys([*blocks_of(grid, machine.cores or 1), *chosen.values()]):
            rules = tuple(name for name, own in chosen.items() if own == block)
            cases.append((points, grid, block, rules, sizes))
    jobs = [(blocked_stencil(RADIUS[p], b, arguments.lanes), s, f"{p} {g} {b}") for p, g, b, _, s in cases]
    statistic: Literal["median", "minimum"] = "minimum" if arguments.minimum else "median"
    options = TimingOptions(trials=15, min_trials=7, budget_s=0.2, precision=0.01, statistic=statistic)
    times = [outcome.seconds if isinstance(outcome, Timing) else None for outcome in measure(jobs, device, options)]
    rows = [(p, g, b, rules, t) for (p, g, b, rules, _), t in zip(cases, times, strict=True) if t is not None]
    losses: dict[str, list[float]] = {name: [] for name in RULES}
    print(f"{device}; {len(rows)} of {len(cases)} timed", flush=True)
    for points, grid in dict.fromkeys((row[0], row[1]) for row in rows):
        of_grid = [row for row in rows if row[:2] == (points, grid)]
        best, worst = (which(of_grid, key=lambda row: row[4]) for which in (min, max))
        print(
            f"{points:2} points, grid {grid}: best of {len(of_grid)} {best[2]} {1e3 * best[4]:.3f} ms, "
            f"worst {worst[2]} {1e3 * worst[4]:.3f} ms"
        )
        for name, lost in losses.items():
            chosen = next(row for row in of_grid if name in row[3])
            lost.append(100 * (chosen[4] / best[4] - 1))
            print(f"     {name}: {chosen[2]} {1e3 * chosen[4]:.3f} ms, loss {lost[-1]:.1f} %")
    for name, lost in losses.items():
        print(f"{name}: median loss {statistics.median(lost):.1f} %, largest {max(lost):.1f} %")
    if arguments.csv is not None:
        with arguments.csv.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["device", "points", "nx", "ny", "nz", "bx", "by", "bz", "chosen", "seconds"])
            writer.writerows([str(device), p, *g, *b, " ".join(rules), t] for p, g, b, rules, t in rows)


if __name__ == "__main__":
    main()
