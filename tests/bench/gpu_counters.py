"""Instructions counted in compiled code, beside what the counters of a GPU say: the hub's convolution, RTX 2080 Ti.

    pip install --target DIR nvidia-cuda-nvrtc-cu11
    python tests/bench/gpu_counters.py --compiler DIR/nvidia/cuda_nvrtc/lib/libnvrtc.so.11.2 [--every N]
        [--counters FILE.csv.gz] [--source FILE.cu]

Each N-th configuration (124 by default) of the recorded ones, and two whose guards the ids of work-items decide, are
compiled by NVRTC for compute capability 7.5 without a GPU, and counted: all instructions that sub-groups issue, their
requests of global loads, and instructions by class. Counters of these tell of work-items that take part, so that 32 of
each counted one are as many at least; only full sub-groups are compared. NVRTC 11 makes code of as many registers as
was recorded; newer compilers, which perflex takes without ``--compiler``, spill where it did not.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import gzip
import sys
import time
from math import prod
from pathlib import Path
from statistics import median

from perflex.compiled.control_flow import UnknownFlowError
from perflex.compiled.nvidia import cubin
from perflex.compiled.nvidia.counts import launch_counts
from perflex.compiled.nvidia.cubin import GpuCode, compile_cuda, kernel_facts

SHARED = Path(__file__).resolve().parents[3] / "shared/data"
TUNED = ("BLOCK_SIZE_X", "BLOCK_SIZE_Y", "TILE_SIZE_X", "TILE_SIZE_Y")
SUB_GROUP = 32
# Counters of work-items that a predicate lets take part, and what is counted for them beside one exit of each.
BY_CLASS = {
    "fp32": ["float32"],
    "integer": ["integer"],
    "control": ["branches", "barriers"],
    "memory": ["global_loads", "global_stores", "local_loads", "local_stores", "spills"],
}
GUARDED = ((32, 16, 1, 3), (48, 16, 1, 5))


def code_of(row: dict[str, str], source: str) -> GpuCode:
    values = {name.lower(): int(row[name]) for name in (*TUNED, "READ_ONLY")}
    # Rows of local memory are not padded in the recorded runs.
    size = 2 * int(row["HFS"]) + 1
    values |= {"use_padding": 0, "filter_width": size, "filter_height": size}
    options = (*(f"-D{name}={value}" for name, value in values.items()), "--std=c++11")
    compiled = compile_cuda(source, "sm_75", options)
    if not compiled.cubin:
        raise SystemExit(compiled.log)
    groups, work_group = (int(row["gx"]), int(row["gy"])), (values["block_size_x"], values["block_size_y"])
    return GpuCode("sm_75", compiled.cubin, "convolution_kernel", groups, work_group)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=124)
    parser.add_argument("--counters", type=Path, default=SHARED / "gpu_counters/convolution_RTX_2080_Ti.csv.gz")
    source = SHARED / "kernel_sources/hub/currently_unused/kernels/convolution.cu"
    parser.add_argument("--source", type=Path, default=source)
    parser.add_argument("--compiler", type=Path)
    arguments = parser.parse_args()
    if arguments.compiler is not None:
        library = ctypes.CDLL(str(arguments.compiler))
        cubin._libraries = lambda: (library,)
    with gzip.open(arguments.counters, "rt", encoding="utf-8") as stream:
        rows = {tuple(int(row[name]) for name in TUNED): row for row in csv.DictReader(stream)}
    text = arguments.source.read_text(encoding="utf-8")
    found = {what: [] for what in ("instructions", "requests of global loads", "registers", *BY_CLASS)}
    for key in dict.fromkeys((*GUARDED, *list(rows)[:: arguments.every])):
        row = rows[key]
        begun = time.perf_counter()
        try:
            code = code_of(row, text)
            compiled = time.perf_counter()
            counts = launch_counts(code, [None] * 3)
            counted = time.perf_counter()
            counts |= launch_counts(code, [None] * 3, accesses=True)
        except UnknownFlowError as error:
            print(key, error, flush=True)
            continue
        ratios = {
            "instructions": counts["instructions"] / float(row["smsp__inst_executed.sum"]),
            "requests of global loads": counts["global_loads"]
            / float(row["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"]),
            "registers": kernel_facts(code).registers / float(row["registers_per_thread"]),
        }
        items = prod(code.work_group)
        if items % SUB_GROUP == 0:
            exits = {"control": prod(code.groups) * items}
            for what, names in BY_CLASS.items():
                took = SUB_GROUP * sum(counts.get(name, 0.0) for name in names) + exits.get(what, 0)
                ratios[what] = took / float(row[f"smsp__sass_thread_inst_executed_op_{what}_pred_on.sum"])
        for what, ratio in ratios.items():
            found[what].append(ratio)
        print(
            f"{key}: {', '.join(f'{what} {ratio:.3f}' for what, ratio in ratios.items())} of the counters; seconds: "
            f"compiled in {compiled - begun:.1f}, counted in {counted - compiled:.1f} and "
            f"{time.perf_counter() - counted:.1f}",
            flush=True,
        )
    for what, ratios in found.items():
        worst = max(ratios, key=lambda ratio: abs(ratio - 1))
        exact = sum(abs(ratio - 1) < 5e-4 for ratio in ratios)
        print(f"{what}, {len(ratios)} configurations: median {median(ratios):.3f}, farthest {worst:.3f}, exact {exact}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
