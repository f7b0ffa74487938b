"""Blocks that `choose_block` chooses against the best of a search: time on a CPU device.

    python tests/bench/block_choice.py MACHINE.yaml [--device NAME] [--points 7,25] [--lanes 16] [--out FOLDER]
        [--seconds 150]

MACHINE.yaml is what ``perflex machine detect`` writes. First calibrates costs of blocks on grids of other sizes than
those that are judged. For each of these, every block of the search and the chosen ones are timed in interleaved rounds;
then the fastest three of the search and the chosen ones again, since the fastest of many noisy timings is faster than
it is. Losses are against the fastest in the second timing. Results are kept in FOLDER: a run that stops after its
seconds goes on where it was. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import time
from itertools import product
from pathlib import Path

from block_kernels import blocked_stencil

from perflex import Calibration, TimingOptions, calibrate_blocks, choose_block, find_device, load_machine
from perflex.features import SizedKernel
from perflex.timing.measuring import measure
from perflex.timing.results import Timing

# Planes from half a megabyte on; grids from 28 to 113 MB.
GRIDS = ((192, 96, 96), (384, 192, 48), (384, 384, 48), (768, 384, 24))
# Smaller than the last cache, about as large, and larger.
CALIBRATION_GRIDS = ((128, 64, 48), (256, 128, 96), (640, 320, 24))
CALIBRATION_BLOCKS = ((1, 24), (4, 1), (4, 24), (16, 3), (0, 1), (0, 6))
ROWS, PLANES = (4, 12, 48, 0), (1, 3, 6, 24)
# Criterion, fewest tiles per core, and whether costs are known: the paper's; planes in the second level, with tiles to
# level cores out; and the calibrated choice, of all blocks and of those that the second rule allows.
RULES = {
    "paper": (None, 1, False),
    "planes in L2": ({"L2": "plane"}, 8, False),
    "calibrated": (None, 1, True),
    "calibrated, planes in L2": ({"L2": "plane"}, 8, True),
}
RADIUS = {7: 1, 25: 4}
Block = tuple[int, int, int]


def calibration_of(path: Path, arguments: argparse.Namespace, device, machine) -> Calibration:
    """Return the costs of blocks, from a file if it is there."""
    if not path.exists():
        jobs = []
        for points, grid in product(RADIUS, CALIBRATION_GRIDS):
            sizes = dict(zip(("nx", "ny", "nz"), grid, strict=True))
            blocks = [(grid[0], y or grid[1], z) for y, z in CALIBRATION_BLOCKS]
            jobs += [(blocked_stencil(RADIUS[points], block, arguments.lanes), sizes, block) for block in blocks]
        timing = TimingOptions(min_trials=15, trials=40, budget_s=0.3, precision=0.0)
        calibrate_blocks(jobs, machine, device=device, timing=timing).save(path)
    return Calibration.load(path)


def search(grid: Block, cores: int) -> list[Block]:
    """Return the blocks of the search that divide a grid and give each core at least one."""
    found = [(grid[0] // part, y or grid[1], z) for part, y, z in product((1, 2), ROWS, PLANES)]
    return [b for b in found if (grid[0] // b[0]) * (grid[1] // b[1]) * (grid[2] // b[2]) >= cores]


def timed(points: int, grid: Block, blocks: list[Block], lanes: int, device, rounds: int) -> dict[Block, float]:
    """Return the median seconds of each block; all are timed in each round."""
    sizes = dict(zip(("nx", "ny", "nz"), grid, strict=True))
    jobs = [SizedKernel(blocked_stencil(RADIUS[points], block, lanes), sizes, str(block)) for block in blocks]
    options = TimingOptions(trials=rounds, min_trials=min(rounds, 15), budget_s=rounds / 40, precision=0.0)
    outcomes = measure(jobs, device, options)
    return {b: o.seconds for b, o in zip(blocks, outcomes, strict=True) if isinstance(o, Timing)}


def judged(points: int, grid: Block, chosen: dict[str, Block], arguments, device, machine) -> list[tuple]:
    """Return a row per timing of one grid."""
    blocks = list(dict.fromkeys([*search(grid, machine.cores or 1), *chosen.values()]))
    first = timed(points, grid, blocks, arguments.lanes, device, 25)
    of_search = [block for block in sorted(first, key=first.__getitem__) if block in search(grid, machine.cores or 1)]
    again = timed(
        points, grid, list(dict.fromkeys([*of_search[:3], *chosen.values()])), arguments.lanes, device, 60
    )  # fmt: skip
    rows = []
    for phase, times in (("search", first), ("again", again)):
        for block, seconds in times.items():
            rules = " / ".join(name for name, own in chosen.items() if own == block)
            rows.append((str(device), points, *grid, *block, phase, rules, seconds))
    return rows


def report(rows: list[list[str]]) -> None:
    """Print the loss of each rule for each grid, and the medians."""
    losses: dict[str, list[float]] = {name: [] for name in RULES}
    for case in dict.fromkeys(tuple(row[1:5]) for row in rows):
        times = {phase: {} for phase in ("search", "again")}
        chosen = {}
        for row in (row for row in rows if tuple(row[1:5]) == case):
            block = tuple(map(int, row[5:8]))
            times[row[8]][block] = float(row[10])
            chosen |= {name: block for name in row[9].split(" / ") if name}
        again = times["again"]
        best, worst = min(again, key=again.__getitem__), max(times["search"].values())
        print(
            f"{case[0]:>2} points, grid {'x'.join(case[1:])}: best of {len(times['search'])} "
            f"{'x'.join(map(str, best))} {1e3 * again[best]:.3f} ms; worst {1e3 * worst:.3f} ms"
        )
        for name, block in chosen.items():
            losses[name].append(100 * (again[block] / again[best] - 1))
            print(
                f"     {name}: {'x'.join(map(str, block))} {1e3 * again[block]:.3f} ms, loss {losses[name][-1]:.1f} %"
            )
    for name, lost in losses.items():
        if lost:
            print(f"{name}: median loss {statistics.median(lost):.1f} %, largest {max(lost):.1f} % of {len(lost)}")


def main() -> None:
    """Time all blocks and print what the chosen ones lose."""
    parser = argparse.ArgumentParser()
    parser.add_argument("machine", type=Path)
    parser.add_argument("--device", default=None)
    parser.add_argument("--points", default="7,25")
    parser.add_argument("--lanes", type=int, default=16)
    parser.add_argument("--out", type=Path, default=Path("block-choice"))
    parser.add_argument("--seconds", type=float, default=150.0)
    arguments = parser.parse_args()
    stop = time.monotonic() + arguments.seconds
    device, machine = find_device(arguments.device), load_machine(arguments.machine)
    arguments.out.mkdir(parents=True, exist_ok=True)
    calibration = calibration_of(arguments.out / "calibration.yaml", arguments, device, machine)
    print(calibration, flush=True)
    path = arguments.out / "block_choice.csv"
    rows = list(csv.reader(path.open(encoding="utf-8", newline=""))) if path.exists() else []
    for points, grid in product(map(int, arguments.points.split(",")), GRIDS):
        if any(row[1:5] == [str(points), *map(str, grid)] for row in rows):
            continue
        if time.monotonic() > stop:
            break
        sizes = dict(zip(("nx", "ny", "nz"), grid, strict=True))
        plain = blocked_stencil(RADIUS[points], (arguments.lanes, 4, 1), arguments.lanes)
        chosen = {
            name: choose_block(
                plain, sizes, machine, criterion, lanes=arguments.lanes, tiles_per_core=each,
                calibration=calibration if known else None,
            ).block
            for name, (criterion, each, known) in RULES.items()
        }  # fmt: skip
        new = judged(points, grid, chosen, arguments, device, machine)
        rows += [list(map(str, row)) for row in new]
        with path.open("a", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(new)
    print(device)
    report(rows)


if __name__ == "__main__":
    main()
