"""Cycles of the first cache over strides and block shapes, against micro-benchmarks of AMD's and NVIDIA's GPUs.

The benchmark (github te42kyfo/gpu-benches, gpu-strides): 1024 work-items of one work-group load eight elements 4 apart,
each from an address of its own; cycles are per load and 32 work-items. `gpu_strides.csv` in the data has an A100;
tables as that project publishes them, such as gpu-strides/mi210.txt at 0a45416, are given with --table.

AMD's rules have no fitted coefficient. Sizes of lines and 16 addresses per cycle are the maker's; what is looked up
together was found from the strides up to 34 and the float block of width 4; the other rows were not used, though they
stand in the same table. Bandwidths of `gpu_cache.csv` (elements of 16 bytes on the MI210) were not in view. Rows whose
loads do not fit the first cache are shown apart, too: there each line is loaded at 64 bytes
per cycle ("with misses").
Beside the rules: NVIDIA's on the same rows, and the data sheet's 64 bytes per cycle.

Run: python tests/bench/amd_strides.py [--data DIR] [--table mi210.txt --machine MI210] ...
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP)]

from perflex import load_machine  # noqa: E402
from perflex.features.gpu.l1_rules import l1_cycles, nvidia_cycles  # noqa: E402
from perflex.features.gpu.wavefronts import distinct  # noqa: E402

if TYPE_CHECKING:
    from perflex.machines.machine import Machine

ITEMS = 1024
SIZES = {"float": 4, "double": 8}
OFFSETS = (0, 4, 8, 12, 20, 16, 24, 28)
# Rules were derived from strides up to this.
USED = 34
# Between L2 and a compute unit, per cycle: AMD, CDNA 2 white paper.
BYTES_FROM_L2 = 64


@dataclass(frozen=True)
class Row:
    """A measurement: cycles per load and 32 work-items."""

    dtype: str
    pattern: str
    argument: int
    pitch: int
    cycles: float

    @property
    def part(self) -> str:
        if self.pattern == "block":
            return "blocks"
        return f"strides to {USED}" if self.argument <= USED else f"strides from {USED + 1}"

    def addresses(self) -> np.ndarray:
        """Byte addresses, shape (loads, work-items)."""
        items = np.arange(ITEMS)
        if self.pattern == "stride":
            first = (items % 64) * self.argument
        else:
            x, y = items % self.argument, (items // self.argument) % 32
            first = x % 64 + y * self.pitch + self.pitch
        return SIZES[self.dtype] * (first[None, :] + np.array(OFFSETS)[:, None])


def rows_of(data: Path) -> dict[str, list[Row]]:
    """The rows of the shared table, by GPU."""
    found: dict[str, list[Row]] = defaultdict(list)
    with (data / "gpu_microbench" / "gpu_strides.csv").open() as file:
        for row in csv.DictReader(file):
            pitch = int(row["pitch_elements"] or 0)
            cycles = float(row["cycles_per_warp_load"])
            found[row["gpu"]].append(Row(row["dtype"], row["pattern"], int(row["arg"]), pitch, cycles))
    return found


def published(path: Path) -> list[Row]:
    """The rows of a table as its project publishes it: dtype, pattern, argument, stride or pitch, cycles, ..."""
    found = []
    for line in path.read_text().splitlines():
        words = line.split()
        if len(words) >= 5 and words[0] in SIZES and words[1] in {"stride", "block"}:
            found.append(Row(words[0], words[1], int(words[2]), int(words[3]), float(words[4])))
    return found


def spearman(first: list[float], second: list[float]) -> float:
    from scipy.stats import rankdata

    return float(np.corrcoef(rankdata(first), rankdata(second))[0, 1])


def report(name: str, machine: Machine, rows: list[Row]) -> None:
    lanes, line = int(machine.need("sub_group_size")), int(machine.need("line_bytes"))
    own = l1_cycles(machine)
    parts: dict[tuple[str, str], list[tuple[float, ...]]] = defaultdict(list)
    for row in rows:
        addresses, size = row.addresses(), SIZES[row.dtype]
        split = addresses.reshape(len(OFFSETS), -1, lanes)
        warps = len(OFFSETS) * ITEMS / 32
        fits = len(np.unique(addresses // line)) * line <= machine.need("l1_bytes")
        nvidia = nvidia_cycles(addresses.reshape(len(OFFSETS), -1, 32), size).sum() / warps
        cycles = own(split, size).sum() / warps
        # Loads in turn over more lines than there are: with the oldest replaced, none is there when it is needed again.
        missed = 0.0 if fits else distinct(split, line).sum() * line / BYTES_FROM_L2 / warps
        values = (cycles, max(cycles, missed), nvidia, 32 * size / 64, row.cycles)
        which = [("all that fit", "all"), (row.dtype, row.part)] if fits else [("beyond L1", "all")]
        which.append(("all rows", "all"))
        if (
            fits
            and row.part != f"strides to {USED}"
            and (row.dtype, row.argument, row.pattern) != ("float", 4, "block")
        ):
            which.append(("not used for the rules", "all"))
        for key in which:
            parts[key].append(values)
    print(f"\n{name}, rules {machine.l1_rules}")
    print(f"{'':<44}{'rows':>6}{'median':>9}{'p90':>9}{'worst':>9}{'rms':>9}{'rank':>8}")
    for (first, second), found in sorted(parts.items()):
        columns = np.array(found).T
        for how, predicted in zip(("rules", "with misses", "NVIDIA's rules", "64 B/cycle"), columns, strict=False):
            errors = 100 * np.abs(predicted / columns[-1] - 1)
            numbers = (np.median(errors), np.quantile(errors, 0.9), errors.max(), np.sqrt(np.mean(errors**2)))
            constant = np.ptp(predicted) == 0 or np.ptp(columns[-1]) == 0
            rank = f"{'-':>8}" if constant else f"{spearman(predicted, columns[-1]):>8.2f}"
            cells = "".join(f"{number:>8.1f}%" for number in numbers)
            print(f"{f'{first}, {second}: {how}':<44}{len(found):>6}{cells}{rank}")


def bandwidths(data: Path) -> None:
    """Bandwidth of neighbours' loads from the first cache of the MI210, elements of 16 bytes."""
    machine = load_machine("MI210")
    lanes, size = int(machine.need("sub_group_size")), 16
    cycles = float(l1_cycles(machine)(size * np.arange(lanes).reshape(1, 1, lanes), size)[0])
    predicted = lanes * size / cycles * machine.need("compute_units") * machine.need("clock_hz") / 1e9
    with (data / "gpu_microbench" / "gpu_cache.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["gpu"] == "mi210" and int(row["element_bytes"]) == size]
    measured = [
        float(row["bandwidth_gbs"]) for row in rows if float(row["buffer_kb"]) <= machine.need("l1_bytes") / 1024
    ]
    print(f"\nMI210, 16-byte elements in L1: predicted {predicted:.0f} GB/s, "
          f"measured {min(measured):.0f} to {max(measured):.0f}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=TOP.parent / "shared" / "data")
    parser.add_argument("--table", type=Path, action="append", default=[], help="a table as published; again for more")
    parser.add_argument("--machine", action="append", default=[], help="the machine of each table")
    given = parser.parse_args()
    if len(given.table) != len(given.machine):
        parser.error("give a --machine for each --table")
    known = {"a100": "A100-40GB", "v100": "V100", "mi210": "MI210", "h200": "H200", "l40": "L40", "a40": "A40"}
    for gpu, rows in rows_of(given.data).items():
        report(gpu, load_machine(known[gpu]), rows)
    bandwidths(given.data)
    for path, machine in zip(given.table, given.machine, strict=True):
        report(path.name, load_machine(machine), published(path))


if __name__ == "__main__":
    main()
