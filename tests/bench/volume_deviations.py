"""Deviations of the data volumes from reference outputs and hardware counters, and how long estimates take.

Run: python tests/bench/volume_deviations.py [--data DIR] [--table mi210.txt --machine MI210]

Cycles of the first cache are compared with the benchmark gpu-strides (github te42kyfo/gpu-benches): 1024 work-items of
one work-group load eight elements 4 apart, each from an address of its own. ``gpu_strides.csv`` in the data has an
A100; a table as that project publishes it, such as gpu-strides/mi210.txt at 0a45416, is given with --table. AMD's rules
have no fitted coefficient: what is looked up together was found from the strides up to 34 and the float block of
width 4 of that table, the rest is the maker's.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import sys
import time
from collections import defaultdict
from itertools import product
from math import ceil, prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

TOP = Path(__file__).resolve().parents[2]
# The tests have a folder called uipick, too: the package must come first.
sys.path[:0] = [str(TOP)]
sys.path.append(str(TOP / "tests"))

from perflex import estimate_volumes, load_machine  # noqa: E402
from perflex.analysis.roofline import limits_of  # noqa: E402
from perflex.features.gpu.l1 import l1_cycles, nvidia_cycles  # noqa: E402
from support.machines_for_tests import A100, MACHINES, RTX2080TI, V100  # noqa: E402
from support.volume_kernels import box, convolution, star, stencil  # noqa: E402

if TYPE_CHECKING:
    from perflex import Machine
    from perflex.features import Scop

CASES = {
    "star25_3d_r4_640x512x512": star(3, 4),
    "star7_3d_r1_256": star(3, 1),
    "star5_2d_r1_15000x15000": star(2, 1),
    "scale_1d_2M": [(0,)],
}
# Column of the reference, and what it is here per lattice update.
COLUMNS = {
    "l1_cycles_per_warp_lup": lambda t: 32 * t.l1_wavefronts,
    "l2l1_load_B_per_lup": lambda t: t.l2_l1_load,
    "l2l1_store_B_per_lup": lambda t: t.l2_l1_store,
    "dram_load_wave_B_per_lup": lambda t: t.wave_load,
    "dram_load_V4_B_per_lup": lambda t: t.dram_load,
    "dram_store_B_per_lup": lambda t: t.dram_store,
}


def numbers(row: dict[str, str], prefix: str, dims: int = 3) -> list[int]:
    return [int(row[f"{prefix}_{axis}"]) for axis in "xyz"][:dims]


def cruder(row: dict[str, str], dims: int) -> str:
    """Which rule of the reference, if any, leaves out what this estimate counts."""
    domain, items, fold = (numbers(row, name, dims) for name in ("domain", "block", "fold"))
    if row["block_exceeds_domain"] == "1":
        return "work-items outside the domain counted"
    at_once = int(row["wave_blocks"])
    there = [extent / width for extent, width in zip(domain, items, strict=True)]
    here = [quotient / times for quotient, times in zip(there, fold, strict=True)]
    for axis in range(1, dims):
        if min(ceil(at_once / prod(there[:axis])), ceil(here[axis])) != min(
            ceil(at_once / prod(here[:axis])), ceil(here[axis])
        ):
            return "wave's extent from the unfolded domain"
    if any(quotient % 1 for quotient in here):
        return "grid cut at its upper edge"
    return ""


def paper(data: Path) -> None:
    for case, offsets in CASES.items():
        dims = len(offsets[0])
        errors, times = defaultdict(list), []
        with (data / "warpspeed_reference" / f"{case}.csv").open() as file:
            rows = [row for row in csv.DictReader(file) if row["tool_commit"] == "827c681"]
        for row in rows:
            domain, shape = numbers(row, "domain", dims), numbers(row, "array", dims)
            scop = stencil(
                offsets,
                domain,
                numbers(row, "block"),
                fold=numbers(row, "fold"),
                shape=shape,
                itemsize=int(row["datatype_bytes"]),
            )
            shift = int(row["alignment_elems"]) * int(row["datatype_bytes"])
            start = time.perf_counter()
            result = estimate_volumes(
                scop,
                {},
                MACHINES[row["device"]],
                variant="paper2022",
                registers=32,
                offsets={"A": shift, "B": shift},
            )
            times.append(1e3 * (time.perf_counter() - start))
            why = cruder(row, dims)
            for column, value in COLUMNS.items():
                here, there = value(result.total) / prod(domain), float(row[column])
                errors[why, column].append(abs(here - there) / max(there, 1e-12) if there or here > 1e-9 else 0.0)
        for (why, column), found in sorted(errors.items()):
            report(f"{case} {why or 'same rules'}: {column}", found)
        print(f"{case}: {np.median(times):.1f} ms median, {max(times):.1f} ms at most")


def report(what: str, errors: Any) -> None:
    values = 100 * np.asarray(errors)
    print(
        f"{what}: median {np.median(values):.3f} %, 90th percentile {np.percentile(values, 90):.2f} %, "
        f"rms {np.sqrt(np.mean(values**2)):.2f} %, worst {values.max():.2f} % ({len(values)} rows)"
    )


def ranks(values: Any) -> np.ndarray:
    return np.argsort(np.argsort(values)).astype(float)


def volta(data: Path) -> None:
    with (data / "warpspeed_measured" / "v100_star25_3d_r4_640x512x512.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if int(row["block_z"]) <= 64]
    cells = 632 * 504 * 504
    pairs, limits, speeds = defaultdict(list), [], []
    for row in rows:
        items = numbers(row, "block")
        scop = stencil(star(3, 4), [632, 504, 504], items, shape=[640, 512, 512], shift=[0, 4, 4])
        total = estimate_volumes(scop, {}, V100, registers=64).total
        pairs["l2l1_load_B_per_lup"].append((total.l2_l1_load / cells, float(row["l2l1_load_B_per_lup"])))
        pairs["dram_load_B_per_lup"].append((total.dram_load / cells, float(row["dram_load_B_per_lup"])))
        pairs["dram_store_B_per_lup"].append((total.dram_store / cells, float(row["dram_store_B_per_lup"])))
        times = (
            total.l1_wavefronts / V100.compute_units / V100.clock_hz,
            (total.l2_l1_load + total.l2_l1_store) / V100.l2_bandwidth,
            (total.dram_load + total.dram_store) / V100.dram_bandwidth,
        )
        limits.append(max(times))
        speeds.append(float(row["perf_glups"]))
    for column, found in pairs.items():
        report(f"V100 star25 measured: {column}", [abs(here / there - 1) for here, there in found])
        here, there = zip(*found, strict=True)
        print(f"  rank correlation {np.corrcoef(ranks(here), ranks(there))[0, 1]:.4f}")
    best = speeds[int(np.argmin(limits))] / max(speeds)
    print(f"V100 star25: the shape predicted to be the best reaches {100 * best:.1f} % of the best")


def boxes(data: Path) -> None:
    """Box stencils: L2-L1 loads of work-groups of 32 x 8, and the work-group that the limits predict to be the best."""
    size, found = 15000, []
    with (data / "warpspeed_measured" / "v100_box2d_counters_15000x15000.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["kernel"] == "stream"]
    for row in rows:
        scop = _box(int(row["range"]), (32, 8), size)
        here = estimate_volumes(scop, {}, V100, registers=32).total.l2_l1_load / size**2
        found.append(abs(here / float(row["l2l1_load_B_per_lup"]) - 1))
    report("V100 boxes of range 0 to 9: l2l1_load_B_per_lup", found)
    speeds: dict[tuple[str, ...], dict[tuple[int, int], float]] = defaultdict(dict)
    with (data / "warpspeed_measured" / "v100_box2d_performance_15000x15000.csv").open() as file:
        for row in csv.DictReader(file):
            # A rate of zero was rounded to it.
            if row["kernel"] == "stream" and float(row["gflops"]):
                series = (row["range"], row["notebook_date"], row["notebook"])
                speeds[series][int(row["block_x"]), int(row["block_y"])] = float(row["gflops"])
    machine = load_machine("V100")
    losses = defaultdict(list)
    for (reach, *_), series in speeds.items():
        orders: dict[str, dict[tuple[int, int], float]] = defaultdict(dict)
        for items in series:
            scop = _box(int(reach), items, size)
            values = estimate_volumes(scop, {}, machine, registers=32).features()
            limits = limits_of(values, scop, {}, machine)
            orders["limits"][items] = limits.predicted_s
            orders["limits but of starts and latency"][items] = max(
                limits.seconds[name] for name in ("DRAM", "L2", "L1")
            )
            orders["trivial: most work-items, longest rows"][items] = -(prod(items) + items[0] / 1e4)
        for order, predicted in orders.items():
            chosen = min(predicted, key=predicted.__getitem__)
            losses[reach, order].append(max(series.values()) / series[chosen] - 1)
    for (reach, order), lost in sorted(losses.items()):
        report(f"V100 boxes of range {reach}, loss of the work-group chosen by {order}", lost)


def _box(reach: int, items: tuple[int, int], size: int) -> Scop:
    return stencil(box(2, reach), [size, size], items, shape=[size, size])


COUNTERS = {
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum": lambda t: t.local_wavefronts_load,
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum": lambda t: t.local_wavefronts_store,
    "lts__t_sectors_op_read.sum": lambda t: t.l2_l1_load / 32,
    "lts__t_sectors_op_write.sum": lambda t: t.l2_l1_store / 32,
    "dram__sectors_read.sum": lambda t: t.dram_load / 32,
    "dram__sectors_write.sum": lambda t: t.dram_store / 32,
}


def turing(data: Path) -> None:
    with gzip.open(data / "gpu_counters" / "convolution_RTX_2080_Ti.csv.gz", "rt") as file:
        rows = list(csv.DictReader(file))
    seen: dict[tuple[int, ...], dict[str, str]] = {}
    for row in rows:
        names = ("BLOCK_SIZE_X", "BLOCK_SIZE_Y", "TILE_SIZE_X", "TILE_SIZE_Y")
        seen.setdefault(tuple(int(row[name]) for name in names), row)
    errors = defaultdict(list)
    for (bx, by, tx, ty), row in seen.items():
        kind = "one output" if tx * ty == 1 else "several outputs"
        registers = int(row["registers_per_thread"])
        total = estimate_volumes(convolution((bx, by), (tx, ty)), {}, RTX2080TI, registers=registers).total
        for column, value in COUNTERS.items():
            here, there = value(total), float(row[column])
            errors[kind, column].append(abs(here / there - 1))
    for (kind, column), found in sorted(errors.items()):
        report(f"RTX 2080 Ti convolution, {kind}: {column}", found)


OFFSETS = (0, 4, 8, 12, 20, 16, 24, 28)
ITEMS = 1024


def published(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table as its project publishes it, as those of the shared data."""
    names = ("dtype", "pattern", "arg", "pitch_elements", "cycles_per_warp_load")
    lines = (line.split() for line in path.read_text(encoding="utf-8").splitlines())
    return [
        dict(zip(names, words, strict=False)) for words in lines if len(words) > 4 and words[1] in {"stride", "block"}
    ]


def strides(title: str, machine: Machine, rows: list[dict[str, str]]) -> None:
    lanes, line = int(machine.need("sub_group_size")), int(machine.need("line_bytes"))
    found = defaultdict(list)
    for row in rows:
        size, arg, items = {"float": 4, "double": 8}[row["dtype"]], int(row["arg"]), np.arange(ITEMS)
        first = (items % 64) * arg
        if row["pattern"] == "block":
            pitch = int(row["pitch_elements"])
            first = items % arg % 64 + (items // arg) % 32 * pitch + pitch
        addresses = size * (first[None, :] + np.array(OFFSETS)[:, None])
        fits = len(np.unique(addresses // line)) * line <= machine.need("l1_bytes")
        own = l1_cycles(machine)(addresses.reshape(len(OFFSETS), -1, lanes), size).sum()
        nvidia = nvidia_cycles(addresses.reshape(len(OFFSETS), -1, 32), size).sum()
        there = float(row["cycles_per_warp_load"]) * len(OFFSETS) * ITEMS / 32
        found["that fit L1" if fits else "beyond L1"].append((own, nvidia, there))
    for part, values in found.items():
        own, nvidia, there = np.array(values).T
        for rules, here in ((machine.l1_rules, own), ("NVIDIA's", nvidia)):
            report(f"{title}, L1 cycles of loads {part}, rules {rules}", np.abs(here / there - 1))
            print(f"  rank correlation {np.corrcoef(ranks(here), ranks(there))[0, 1]:.2f}")


def speeds() -> None:
    powers = [1 << n for n in range(11)]
    shapes = [(x, y, z) for x, y, z in product(powers, powers, powers[:7]) if x * y * z == 1024]
    folds = [(1, 1, 1), (1, 2, 1), (1, 1, 2)]
    # Every second shape, as in the reference.
    shapes = [shape for shape in shapes if shape[1].bit_length() % 2]
    for variant, domain in product(("paper2022", "current"), ((640, 512, 512), (2560, 2048, 2048))):
        times = []
        for shape, fold in product(shapes, folds):
            scop = stencil(star(3, 4), domain, shape, fold=fold)
            start = time.perf_counter()
            estimate_volumes(scop, {}, A100, variant=variant, registers=32)
            times.append(1e3 * (time.perf_counter() - start))
        shown_times = f"{np.median(times):.1f} ms median, {max(times):.1f} ms at most"
        print(f"25 points, {variant}, {domain}: {shown_times} ({len(times)} rows)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=TOP.parent / "shared" / "data")
    parser.add_argument("--table", type=Path, help="of gpu-strides, as published")
    parser.add_argument("--machine", help="of the table")
    arguments = parser.parse_args()
    if not arguments.data.is_dir():
        parser.error(f"there is no folder {arguments.data}; name the one with the reference data: --data DIR")
    for part in (paper, volta, boxes, turing):
        part(arguments.data)
    with (arguments.data / "gpu_microbench" / "gpu_strides.csv").open(encoding="utf-8") as file:
        strides("A100", load_machine("A100-40GB"), [row for row in csv.DictReader(file) if row["gpu"] == "a100"])
    if arguments.table:
        strides(arguments.table.name, load_machine(arguments.machine), published(arguments.table))
    speeds()


if __name__ == "__main__":
    main()
