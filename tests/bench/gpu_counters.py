"""Instructions counted in compiled code, beside what the counters of a GPU say: the hub's convolution, RTX 2080 Ti.

    pip install --target DIR nvidia-cuda-nvrtc-cu11
    python tests/bench/gpu_counters.py --compiler DIR/nvidia/cuda_nvrtc/lib/libnvrtc.so.11.2 [--every N]
        [--counters FILE.csv.gz] [--source FILE.cu]

Each N-th configuration (124 by default) of the recorded ones, and two whose guards the ids of work-items decide, are
compiled by NVRTC for compute capability 7.5 without a GPU, and counted (``f_code_instructions`` and
``f_code_global_loads``). NVRTC 11 makes code of as many registers as was recorded; newer compilers, which perflex takes
without ``--compiler``, spill where it did not.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import gzip
import sys
import time
from pathlib import Path
from statistics import median

from perflex.compiled.control_flow import UnknownFlowError
from perflex.compiled.nvidia import cubin
from perflex.compiled.nvidia.counts import launch_counts
from perflex.compiled.nvidia.cubin import GpuCode, compile_cuda, kernel_facts

SHARED = Path(__file__).resolve().parents[3] / "shared/data"
TUNED = ("BLOCK_SIZE_X", "BLOCK_SIZE_Y", "TILE_SIZE_X", "TILE_SIZE_Y")
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
    ratios, loads = [], []
    for key in dict.fromkeys((*GUARDED, *list(rows)[:: arguments.every])):
        row = rows[key]
        begun = time.perf_counter()
        try:
            code = code_of(row, text)
            compiled = time.perf_counter()
            issued = launch_counts(code, [None] * 3)["instructions"]
            counted = time.perf_counter()
            loaded = launch_counts(code, [None] * 3, accesses=True)["global_loads"]
        except UnknownFlowError as error:
            print(key, error, flush=True)
            continue
        ratios.append(issued / float(row["smsp__inst_executed.sum"]))
        loads.append(loaded / float(row["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"]))
        print(
            f"{key}: instructions {ratios[-1]:.3f}, requests of global loads {loads[-1]:.3f} of the counters, "
            f"{kernel_facts(code).registers} registers ({row['registers_per_thread']}); seconds: compiled in "
            f"{compiled - begun:.1f}, counted in {counted - compiled:.1f} and {time.perf_counter() - counted:.1f}",
            flush=True,
        )
    for what, found in (("instructions", ratios), ("requests of global loads", loads)):
        worst = max(found, key=lambda ratio: abs(ratio - 1))
        print(f"{what} of {len(found)} configurations: median {median(found):.3f}, farthest {worst:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
