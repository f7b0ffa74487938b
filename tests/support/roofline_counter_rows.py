"""Rows of the hardware counters of a convolution, and what the instruction roofline estimates for them."""

from __future__ import annotations

import csv
import gzip
from dataclasses import replace
from typing import TYPE_CHECKING

from perflex import estimate_volumes, load_machine
from perflex.features import Operation
from perflex.features.gpu.volume_estimate import cache_transactions, global_transactions, local_transactions
from perflex.features.instructions.instruction_counts import instructions_of
from support.volume_kernels import convolution

if TYPE_CHECKING:
    from pathlib import Path

    from perflex.features import Scop

TUNABLES = ("BLOCK_SIZE_X", "BLOCK_SIZE_Y", "TILE_SIZE_X", "TILE_SIZE_Y")
_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op"
_THREADS = "smsp__sass_thread_inst_executed_op"
# What is estimated, and the counters that add up to it.
COUNTERS = {
    "local transactions, loads": (f"{_WAVEFRONTS}_ld.sum",),
    "local transactions, stores": (f"{_WAVEFRONTS}_st.sum",),
    "local transactions": (f"{_WAVEFRONTS}_ld.sum", f"{_WAVEFRONTS}_st.sum"),
    "L2 read sectors": ("lts__t_sectors_op_read.sum",),
    "L2 write sectors": ("lts__t_sectors_op_write.sum",),
    "L2 sectors (f_txn_l2)": ("lts__t_sectors_op_read.sum", "lts__t_sectors_op_write.sum"),
    "DRAM sectors (f_txn_dram)": ("dram__sectors_read.sum", "dram__sectors_write.sum"),
    "warp-level instructions": ("smsp__inst_executed.sum",),
}


def counter_rows(path: Path) -> list[dict[str, str]]:
    """Rows without repeats: padding has no effect, and of read-only rows and others the latter are kept."""
    with gzip.open(path, "rt") as file:
        rows = list(csv.DictReader(file))
    plain = {tuple(row[name] for name in TUNABLES): row for row in rows if row["READ_ONLY"] == "0"}
    return list(plain.values())


def scop_of(row: dict[str, str]) -> Scop:
    bx, by, tx, ty = (int(row[name]) for name in TUNABLES)
    scop = convolution((bx, by), (tx, ty))
    madd = (Operation("madd", "float32"),)
    statements = tuple(
        replace(statement, operations=madd) if statement.name == "filter" else statement
        for statement in scop.statements
    )
    return replace(scop, statements=statements)


def estimates(row: dict[str, str]) -> dict[str, float]:
    scop, machine = scop_of(row), load_machine("RTX-2080-Ti")
    local = local_transactions(scop, {}, machine)
    cache = cache_transactions(scop, {}, machine, None)
    volumes = estimate_volumes(scop, {}, machine).total
    warps = {kind: float(count.evaluate({})) for kind, count in instructions_of(scop, 32).items()}
    threads = {kind: float(count.evaluate({})) for kind, count in instructions_of(scop, None).items()}
    return {
        "local transactions, loads": local["tile", "load"],
        "local transactions, stores": local["tile", "store"],
        "local transactions": sum(local.values()),
        "L2 read sectors": volumes.l2_l1_load / 32,
        "L2 write sectors": volumes.l2_l1_store / 32,
        "L2 sectors (f_txn_l2)": cache["f_txn_l2"],
        "DRAM sectors (f_txn_dram)": cache["f_txn_dram"],
        "warp-level instructions": sum(warps.values()),
        "global transactions": sum(global_transactions(scop, {}, machine).values()),
        "predication": sum(threads.values()) / sum(warps.values()) / 32,
        **{f"thread {kind}": number for kind, number in threads.items()},
    }


def classes_of(row: dict[str, str], found: dict[str, float]) -> dict[str, tuple[float, float]]:
    """(estimated, counted) thread-level instructions by class, and the active work-items per warp instruction."""
    memory = found["thread ldst_global"] + found["thread ldst_local"]
    active = float(row["smsp__thread_inst_executed_per_inst_executed.ratio"]) / 32
    return {
        "fp32": (found["thread fp32"], float(row[f"{_THREADS}_fp32_pred_on.sum"])),
        "integer": (found["thread int"], float(row[f"{_THREADS}_integer_pred_on.sum"])),
        "control": (found["thread control"], float(row[f"{_THREADS}_control_pred_on.sum"])),
        "loads and stores": (memory, float(row[f"{_THREADS}_memory_pred_on.sum"])),
        "active work-items per instruction": (found["predication"], active),
    }
