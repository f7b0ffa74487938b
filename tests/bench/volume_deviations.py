"""Deviations of the data volumes from hardware counters: ``python tests/bench/volume_deviations.py [--data DIR]``.

Counters are those of stencils on a V100 and of a convolution on an RTX 2080 Ti. Cycles of the first cache are compared
with the benchmark gpu-strides (github te42kyfo/gpu-benches): 1024 work-items of one work-group load eight elements 4
apart, each from an address of its own. ``gpu_strides.csv`` in the data has an A100; a table as that project publishes
it, such as gpu-strides/mi210.txt at 0a45416, is given with ``--table FILE --machine MI210``. AMD's rules have no fitted
coefficient: what is looked up together was found from the strides up to 34 and the float block of width 4 of that
table, the rest is the maker's.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import sys
from collections import defaultdict
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from judging import percents, table

TOP = Path(__file__).resolve().parents[2]
# The tests have a folder called uipick, too: the package must come first.
sys.path[:0] = [str(TOP)]
sys.path.append(str(TOP / "tests"))

from perflex import estimate_volumes, load_machine  # noqa: E402
from perflex.analysis.roofline import limits_of  # noqa: E402
from perflex.features.gpu.l1 import l1_cycles, nvidia_cycles  # noqa: E402
from support.machines_for_tests import RTX2080TI, V100  # noqa: E402
from support.volume_kernels import box, convolution, star, stencil  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perflex import Machine

Rows = list[dict[str, str]]
# What is compared, and pairs of computed and measured values.
Compared = tuple[str, list[tuple[float, float]]]


def rows_of(path: Path) -> Rows:
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        return list(csv.DictReader(file))


def ranks(values: Any) -> np.ndarray:
    return np.argsort(np.argsort(values)).astype(float)


def line(what: str, pairs: list[tuple[float, float]]) -> list[str]:
    here, there = np.array(pairs).T
    errors = np.abs(here / there - 1)
    spread = percents(np.median(errors), np.percentile(errors, 90), np.sqrt(np.mean(errors**2)), errors.max())
    correlation = np.corrcoef(ranks(here), ranks(there))[0, 1] if len(pairs) > 1 else 1.0
    return [what, str(len(pairs)), spread, f"{correlation:.2f}"]


def volta(data: Path) -> Iterator[Compared]:
    """A star of 25 points; the last pairs are times, by limits and measured."""
    found, cells = defaultdict(list), 632 * 504 * 504
    for row in rows_of(data / "warpspeed_measured" / "v100_star25_3d_r4_640x512x512.csv"):
        items = [int(row[f"block_{axis}"]) for axis in "xyz"]
        if items[2] > 64:
            continue
        scop = stencil(star(3, 4), [632, 504, 504], items, shape=[640, 512, 512], shift=[0, 4, 4])
        total = estimate_volumes(scop, {}, V100, registers=64).total
        for name, here in (
            ("l2l1_load", total.l2_l1_load), ("dram_load", total.dram_load), ("dram_store", total.dram_store),
        ):  # fmt: skip
            found[name].append((here / cells, float(row[f"{name}_B_per_lup"])))
        limit = max(
            total.l1_wavefronts / V100.compute_units / V100.clock_hz,
            (total.l2_l1_load + total.l2_l1_store) / V100.l2_bandwidth,
            (total.dram_load + total.dram_store) / V100.dram_bandwidth,
        )
        found["time by the limits"].append((limit, 1e-9 * cells / float(row["perf_glups"])))
    yield from ((f"V100 star25: {name}", pairs) for name, pairs in found.items())
    times = found["time by the limits"]
    yield "V100 star25: the best shape, and that which is predicted to be", [(min(times)[1], min(t for _, t in times))]


def boxes(data: Path) -> Iterator[Compared]:
    """Box stencils: L2-L1 loads of work-groups of 32 x 8, and the work-group that the limits predict to be the best."""
    size, machine, folder = 15000, load_machine("V100"), data / "warpspeed_measured"

    def made(reach: str, items: tuple[int, int]) -> Any:
        return stencil(box(2, int(reach)), [size, size], items, shape=[size, size])

    yield (
        "V100 boxes of range 0 to 9: l2l1_load",
        [
            (
                estimate_volumes(made(row["range"], (32, 8)), {}, V100, registers=32).total.l2_l1_load / size**2,
                float(row["l2l1_load_B_per_lup"]),
            )
            for row in rows_of(folder / "v100_box2d_counters_15000x15000.csv")
            if row["kernel"] == "stream"
        ],
    )
    speeds: dict[tuple[str, ...], dict[tuple[int, int], float]] = defaultdict(dict)
    for row in rows_of(folder / "v100_box2d_performance_15000x15000.csv"):
        # A rate of zero was rounded to it.
        if row["kernel"] == "stream" and float(row["gflops"]):
            series = (row["range"], row["notebook_date"], row["notebook"])
            speeds[series][int(row["block_x"]), int(row["block_y"])] = float(row["gflops"])
    losses = defaultdict(list)
    for (reach, *_), series in speeds.items():
        orders: dict[str, dict[tuple[int, int], float]] = defaultdict(dict)
        for items in series:
            scop = made(reach, items)
            limits = limits_of(estimate_volumes(scop, {}, machine, registers=32), scop, {}, machine)
            orders["limits"][items] = limits.predicted_s
            orders["limits but of starts and latency"][items] = max(
                limits.seconds[each] for each in ("DRAM", "L2", "L1")
            )
            orders["trivial: most work-items, longest rows"][items] = -(prod(items) + items[0] / 1e4)
        for order, predicted in orders.items():
            losses[reach, order].append((max(series.values()), series[min(predicted, key=predicted.__getitem__)]))
    for (reach, order), pairs in sorted(losses.items()):
        yield f"V100 boxes of range {reach}, loss of the work-group chosen by {order}", pairs


COUNTERS = {
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum": lambda t: t.local_wavefronts_load,
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum": lambda t: t.local_wavefronts_store,
    "lts__t_sectors_op_read.sum": lambda t: t.l2_l1_load / 32,
    "lts__t_sectors_op_write.sum": lambda t: t.l2_l1_store / 32,
    "dram__sectors_read.sum": lambda t: t.dram_load / 32,
    "dram__sectors_write.sum": lambda t: t.dram_store / 32,
}


def turing(data: Path) -> Iterator[Compared]:
    seen: dict[tuple[int, ...], dict[str, str]] = {}
    for row in rows_of(data / "gpu_counters" / "convolution_RTX_2080_Ti.csv.gz"):
        shape = tuple(int(row[f"{name}_SIZE_{axis}"]) for name in ("BLOCK", "TILE") for axis in "XY")
        seen.setdefault(shape, row)
    found = defaultdict(list)
    for (bx, by, tx, ty), row in seen.items():
        registers = int(row["registers_per_thread"])
        total = estimate_volumes(convolution((bx, by), (tx, ty)), {}, RTX2080TI, registers=registers).total
        for column, value in COUNTERS.items():
            kind = "one output" if tx * ty == 1 else "several outputs"
            found[f"RTX 2080 Ti convolution, {kind}: {column}"].append((value(total), float(row[column])))
    yield from sorted(found.items())


OFFSETS = (0, 4, 8, 12, 20, 16, 24, 28)
ITEMS = 1024


def published(path: Path) -> Rows:
    names = ("dtype", "pattern", "arg", "pitch_elements", "cycles_per_warp_load")
    lines = (each.split() for each in path.read_text(encoding="utf-8").splitlines())
    found = (words for words in lines if len(words) > 4 and words[1] in {"stride", "block"})
    return [dict(zip(names, words, strict=False)) for words in found]


def strides(title: str, machine: Machine, rows: Rows) -> Iterator[Compared]:
    lanes, bytes_of_line = int(machine.need("sub_group_size")), int(machine.need("line_bytes"))
    found = defaultdict(list)
    for row in rows:
        size, arg, items = {"float": 4, "double": 8}[row["dtype"]], int(row["arg"]), np.arange(ITEMS)
        first = (items % 64) * arg
        if row["pattern"] == "block":
            pitch = int(row["pitch_elements"])
            first = items % arg % 64 + (items // arg) % 32 * pitch + pitch
        addresses = size * (first[None, :] + np.array(OFFSETS)[:, None])
        fits = len(np.unique(addresses // bytes_of_line)) * bytes_of_line <= machine.need("l1_bytes")
        part = f"{title}, L1 cycles of loads {'that fit L1' if fits else 'beyond L1'}, rules"
        there = float(row["cycles_per_warp_load"]) * len(OFFSETS) * ITEMS / 32
        own = l1_cycles(machine)(addresses.reshape(len(OFFSETS), -1, lanes), size).sum()
        found[f"{part} {machine.l1_rules}"].append((own, there))
        found[f"{part} NVIDIA's"].append((nvidia_cycles(addresses.reshape(len(OFFSETS), -1, 32), size).sum(), there))
    yield from found.items()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=TOP.parent / "shared" / "data")
    parser.add_argument("--table", type=Path, help="of gpu-strides, as published")
    parser.add_argument("--machine", help="of the table")
    given = parser.parse_args()
    if not given.data.is_dir():
        parser.error(f"there is no folder {given.data}; name the one with the reference data: --data DIR")
    a100 = [row for row in rows_of(given.data / "gpu_microbench" / "gpu_strides.csv") if row["gpu"] == "a100"]
    compared = [*volta(given.data), *boxes(given.data), *turing(given.data)]
    compared += strides("A100", load_machine("A100-40GB"), a100)
    if given.table:
        compared += strides(given.table.name, load_machine(given.machine), published(given.table))
    print(
        table(
            ["quantity", "rows", "error: median, p90, rms, worst", "rank correlation"], [line(*one) for one in compared]
        )
    )


if __name__ == "__main__":
    main()
