"""Register reuse and local memory as a limiter, against hardware counters of a convolution on an RTX 2080 Ti.

968 configurations of work-groups and outputs per work-item. The rule of register reuse was written down from what
compilers do (common subexpressions, full unrolling, invariants) and checked with NVRTC and Oclgrind on other kernels
(``tests/features/instructions/test_register_reuse.py``); it has no coefficient, so none was fitted to these rows.

* local loads and L2 reads with register reuse, and beside it each load of the source;
* L2 reads with instruction fetches, by whether the unrolled code fits the instruction cache: counters of L2 have both,
  the estimate has the data alone. Fetches by first principles: code that is read in turn through a cache of 46 KiB (Jia
  et al., Dissecting the NVIDIA Turing T4 GPU via Microbenchmarking, 2019) misses by what does not fit, for each
  work-group;
* the configuration predicted to be the fastest, and Spearman's rank over all: with the limiters DRAM, L2, L1 and
  arithmetic, with local memory as well, and for two trivial orders, loads of the source and work-items.

Run: python tests/bench/register_reuse.py [--data DIR] [--every N]     (all rows: about four minutes)
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

TOP = Path(__file__).resolve().parents[2]
# The tests have a folder called uipick, too: the package must come first.
sys.path[:0] = [str(TOP)]
sys.path.append(str(TOP / "tests"))

from perflex import estimate_volumes, load_machine  # noqa: E402
from perflex.analysis.volumes.limiters import limits_of  # noqa: E402
from perflex.errors import PerflexWarning  # noqa: E402
from perflex.features import counts_of  # noqa: E402
from perflex.features.gpu.transactions import local_transactions  # noqa: E402
from perflex.features.scop.register_reuse import remaining_by_access  # noqa: E402
from support.roofline_counter_rows import TUNABLES, counter_rows, scop_of  # noqa: E402

if TYPE_CHECKING:
    from perflex.features import Scop

LOCAL = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"
L2 = "lts__t_sectors_op_read.sum"
INSTRUCTION_CACHE, INSTRUCTION_BYTES = 46 * 1024, 16
SPILLS = ("l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum", "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum")


def spearman(first: np.ndarray, second: np.ndarray) -> float:
    from scipy.stats import rankdata

    return float(np.corrcoef(rankdata(first), rankdata(second))[0, 1])


def kind_of(row: dict[str, str]) -> str:
    if any(float(row[column]) for column in SPILLS):
        return "spills"
    return "one output" if row["TILE_SIZE_X"] == row["TILE_SIZE_Y"] == "1" else "several outputs"


def code_bytes(scop: Scop, items: int) -> float:
    """Size of the code with all loops unrolled: multiply-adds and loads of a work-item, each executed once."""
    madds = float(counts_of(scop).operation_total("madd", "float32", None).evaluate({})) / items
    return INSTRUCTION_BYTES * (madds + sum(loads for loads, _ in remaining_by_access(scop).values()))


def errors_table(errors: dict[tuple[str, str, str], list[float]]) -> None:
    print(f"{'':<66}{'rows':>6}{'median':>9}{'p90':>9}{'worst':>9}{'rms':>9}")
    for (kind, quantity, how), found in sorted(errors.items()):
        size = 100 * np.abs(found)
        numbers = (np.median(size), np.quantile(size, 0.9), size.max(), np.sqrt(np.mean(size**2)))
        cells = "".join(f"{number:>8.2f}%" for number in numbers)
        print(f"{f'{kind}, {quantity}, {how}':<66}{len(size):>6}{cells}")


def choices_table(times: np.ndarray, predicted: dict[str, list[float]]) -> None:
    print(f"\n{'order by':<44}{'loss of the first':>18}{'rank':>8}")
    for name, values in predicted.items():
        order = np.array(values)
        best = np.flatnonzero(order == order.min())
        # Of configurations that are said to be equally fast, each may be chosen.
        loss = 100 * (times[best].mean() / times.min() - 1)
        print(f"{name:<44}{loss:>17.0f}%{spearman(order, times):>8.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=TOP.parent / "shared" / "data")
    parser.add_argument("--every", type=int, default=1, help="look at each so-manieth row")
    given = parser.parse_args()
    warnings.simplefilter("ignore", PerflexWarning)
    machine = load_machine("RTX-2080-Ti")
    rows = counter_rows(given.data / "gpu_counters" / "convolution_RTX_2080_Ti.csv.gz")[:: given.every]
    errors: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    predicted: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        scop, kind = scop_of(row), kind_of(row)
        volumes = estimate_volumes(scop, {}, machine, registers=int(row["registers_per_thread"]))
        of_source = local_transactions(scop, {}, machine, register_reuse=False)
        loads = {"each load": of_source["tile", "load"], "register reuse": volumes.total.local_wavefronts_load}
        for how, count in loads.items():
            errors[kind, "local loads", how].append(count / float(row[LOCAL]) - 1)
        groups, items = int(row["gx"]) * int(row["gy"]), int(row[TUNABLES[0]]) * int(row[TUNABLES[1]])
        code = code_bytes(scop, groups * items)
        data, counted = volumes.total.l2_l1_load / 32, float(row[L2])
        fetched = groups * max(0, code - INSTRUCTION_CACHE) / 32
        fits = "code fits" if code <= INSTRUCTION_CACHE else "code does not fit"
        for which in (kind, f"{kind}, {fits}"):
            errors[which, "L2 reads", "data"].append(data / counted - 1)
            errors[which, "L2 reads", "data and instructions"].append((data + fetched) / counted - 1)
        values = volumes.features()
        seconds = limits_of(values, scop, {}, machine).seconds
        others = [time for name, time in seconds.items() if name != "local memory"]
        rate = machine.need("compute_units") * machine.need("clock_hz")
        predicted["limiters without local memory"].append(max(others))
        predicted["limiters, local memory with each load"].append(max(*others, sum(of_source.values()) / rate))
        predicted["limiters, local memory with register reuse"].append(max(seconds.values()))
        predicted["trivial: loads of the source"].append(sum(of_source.values()))
        predicted["trivial: work-items"].append(groups * items)
    errors_table(errors)
    choices_table(np.array([float(row["time_ms"]) for row in rows]), predicted)


if __name__ == "__main__":
    main()
