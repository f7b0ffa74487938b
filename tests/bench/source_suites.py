"""How many kernels of public suites are understood from their source, whether they are counted right, and their times.

    python tests/bench/source_suites.py classes --data DIR [--suites NAME,...] [--only TEXT] [--oclgrind]
    python tests/bench/source_suites.py times --data DIR --device DEVICE [--calibration here.yaml] --out FILE

DIR holds checkouts of PolyBench-ACC, gpu-rodinia, shoc, Kernel Tuner (its examples), BAT and NVIDIA's cuda-samples, in
folders ``PolyBench-ACC``, ``gpu-rodinia``, ``shoc``, ``kernel_tuner``, ``BAT`` and ``cuda-samples``. All integer
arguments are numbers (`SIZES`, else 96, with ``--oclgrind`` 40). Each kernel is read in a process of its own, for 60 s
at most:

* exact: every loop, guard and subscript is known;
* bound: data decide guards alone, counts are upper bounds;
* gathered: data decide subscripts, too; operations and numbers of accesses are known, footprints need extents;
* stated: data decide trip counts, which have to be stated;
* refused: an error, with a line.

With ``--oclgrind`` OpenCL C kernels that are exact or bounds run under that simulator without optimisation. Loads,
stores and bytes by address space, barriers and float operations must be equal, or not below for bounds. Those of
PolyBench's kernels in CUDA C are compared with what their twins in OpenCL C executed.

``times`` compares counts, a roofline and another timing on a machine that does nothing else, for OpenCL C kernels, or
on CUDA devices CUDA C kernels: all integers 512, 256 or 64 on one, two or three axes, on GPUs 4096, 1024 or 128; those
of PolyBench, which use no local memory, with three shapes of work-groups. Without a calibration the one is taken that
comes with perflex for all GPUs. Each case is timed twice. Cases both timings of which differ by more than 8 % were not
steady; they are left out and counted, as are those that failed, by their reasons. A results file that is there is gone
on with.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import queue
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex import PerflexError, source_kernel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perflex.features.sized_kernel import SizedKernel

SUITES = {
    "PolyBench, OpenCL": ("PolyBench-ACC/OpenCL", "**/*.cl"),
    "PolyBench, CUDA": ("PolyBench-ACC/CUDA", "**/*.cu"),
    "Rodinia, OpenCL": ("gpu-rodinia/opencl", "**/*.cl"),
    "SHOC, OpenCL": ("shoc/src/opencl/level1", "**/*.cl"),
    "SHOC, S3D": ("shoc/src/opencl/level2", "**/*.cl"),
    "Kernel Tuner, CUDA": ("kernel_tuner/examples/cuda", "*.cu"),
    "Kernel Tuner, OpenCL": ("kernel_tuner/examples/opencl", "*.cl"),
    "BAT": ("BAT/batbench/benchmarks", "**/*.cu"),
    "NVIDIA samples": ("cuda-samples/Samples", "**/*.cu"),
}
LIMIT_S = 60.0
SIZES = {
    "iteration": 1, "iterations": 2, "shift": 4, "k": 3, "it": 1, "r": 4, "radius": 4, "offset": 0, "start": 0,
    "blk": 2, "i": 3, "t": 1, "dir": 1, "border_cols": 1, "border_rows": 1, "small_block_cols": 14,
    "small_block_rows": 14,
    "log2N": 10, "log2Stride": 8, "sharedLength": 256, "arrayLength": 1024, "stride": 64, "size": 256, "n": 1000,
}  # fmt: skip
SMALL = {"n": 40, "size": 64, "arrayLength": 64, "stride": 16}
# What the host programs define, and template arguments, by name.
DEFINES = {
    "Rodinia": "BLOCK_SIZE=16 RD_WG_SIZE=16 THREADS=256 FPTYPE=float NUMBER_THREADS=256 TYPE=float WIDTH=16 HEIGHT=16"
    " WG_SIZE_R=16 WG_SIZE_C=16 DEFAULT_ORDER=256 fp=float MCW=1 order=256 BLOCK_SIZE_0=64 GROUP_SIZE=64 BIN_COUNT=1024"
    " IN_SIZE=100000 HISTOGRAM_SIZE=1024",
    "SHOC, S3D": "SINGLE_PRECISION=1 DFTYPE=float N_GP=4096",
    "SHOC, OpenCL": "SINGLE_PRECISION=1 FPTYPE=float FPVECTYPE=float4 VECTORIZATION=4 POSVECTYPE=float4"
    " FORCEVECTYPE=float4 LROWS=16 LCOLS=16 BLOCK_SIZE=16 VECTYPE=float4 T=float K=0 UINT=uint",
    "Kernel": "block_size_x=32 block_size_y=8 read_only=1 loop_unroll_factor=2 loop_unroll_factor_0=2 vector=2"
    " loop_unroll_factor_1=2 tile_size_x=2 tile_size_y=2 use_padding=1 filter_width=17 filter_height=17 num_blocks=1024"
    " between_method=1 use_precomputed_slopes=1 use_method=1 size=10000000 nr_domains=1 vertices=600",
    "BAT": "block_size_x=32 block_size_y=8 read_only=1 tile_size_x=2 tile_size_y=2 use_padding=1 filter_width=15"
    " filter_height=15 image_width=4096 image_height=4096 use_shmem=1 use_cmem=1 between_method=1 MWG=64 NWG=64 KWG=32"
    " use_precomputed_slopes=1 use_method=1 use_shared_mem=1 use_separate_acc=1 n_y_blocks=4 block_size_z=1 nr_dms=2048"
    " nr_samples=25000 nr_channels=1536 max_shift=650 dm_step=0.02f loop_unroll_factor_channel=0 tile_stride_x=1"
    " tile_stride_y=1 blocks_per_sm=0 loop_unroll_factor_t=2 temporal_tiling_factor=2 sh_power=1 max_tfactor=10"
    " outer_unroll_factor=1 inner_unroll_factor1=4 inner_unroll_factor2=1 use_soa=1 local_mem=1 vector_type=1 MDIMC=16"
    " NDIMC=16 MDIMA=16 NDIMB=16 KWI=2 VWM=2 VWN=2 STRM=0 STRN=0 SA=1 SB=1 PRECISION=32 OUTER_UNROLL_FACTOR=1"
    " INNER_UNROLL_FACTOR1=4 INNER_UNROLL_FACTOR2=1 USE_SOA=1 LOCAL_MEM=1 USE_CONSTANT_MEMORY=0 VECTOR_TYPE=1"
    " BLOCK_SIZE_X=32 BLOCK_SIZE_Y=8 TILE_SIZE_X=2 TILE_SIZE_Y=2 TEMPORAL_TILING_FACTOR=2 MAX_TFACTOR=10 SH_POWER=1"
    " LOOP_UNROLL_FACTOR_T=2 BLOCKS_PER_SM=0 grid_width=4096 grid_height=4096 GRID_WIDTH=4096 GRID_HEIGHT=4096"
    " LOOP_UNROLL_REDUCE_1=1 LOOP_UNROLL_REDUCE_2=1 USE_CUDA=1 WORK_GROUP_SIZE_X=32 BLOCK_SIZE=256 LOOP_UNROLL_TRIAD=1"
    " WORK_PER_THREAD=2 UNROLL_LOOP_2=1 FFT_BLOCK_SIZE=64 TEXTURE_MEMORY=0 GRID_SIZE=64 UNROLL_REDUCE_LOOP=1"
    " FPTYPE=float LOOP_UNROLL_LSB=1 SCAN_DATA_SIZE=4 SORT_DATA_SIZE=4 INLINE_LSB=1 SCAN_BLOCK_SIZE=256"
    " SORT_BLOCK_SIZE=256 LOOP_UNROLL_LOAD_8=1 LOOP_UNROLL_LOADX_8=1 LOOP_UNROLL_LOADX_16=1 LOOP_UNROLL_LOADY_8=1"
    " LOOP_UNROLL_LOADY_16=1 LOOP_UNROLL_STORE_8=1 LOOP_UNROLL_STOREX_8=1 LOOP_UNROLL_STOREX_4X4=1"
    " LOOP_UNROLL_STOREY_8=1 LOOP_UNROLL_STOREY_4X4=1 LOOP_UNROLL_TWIDDLE_8=1 LOOP_UNROLL_ITWIDDLE_8=1",
    "NVIDIA": "BLOCK_DIM=16",
}
TYPES = {"C": "float4", "vec": "float4", "forceVecType": "float4", "posVecType": "float4", "ContextType": "int",
         "use_soa": "int", "block_size_x_": "int", "vecT": "float4"}  # fmt: skip
NUMBERS = {"blockSize": "256", "threadsPerBlock": "256", "size": "256", "ntid": "256", "n_blocks": "4", "vlen": "2",
           "multithreadBodies": "0", "lookAt": "0", "ofs": "0", "R": "4", "BLOCK_SIZE": "16", "BS": "16"}  # fmt: skip
HEADERS = ("PolyBench-ACC/common", "cuda-samples/Common", "cuda-samples/Samples/5_Domain_Specific/FDTD3d/inc")

Job = dict[str, Any]


def jobs_of(data: Path, suite: str, only: str) -> list[Job]:
    from perflex.features.from_source.kernel_function import kernels_in

    folder, pattern = SUITES[suite]
    words = DEFINES.get(suite) or DEFINES.get(re.split(r"[ ,]", suite)[0], "")
    defines = dict(word.split("=") for word in words.split())
    headers = [str(data / each) for each in HEADERS]
    found: dict[tuple[str, str], Job] = {}
    for path in sorted((data / folder).glob(pattern)):
        if only not in str(path):
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        own = {key: value for key, value in defines.items() if not ("pathfinder" in str(path) and key == "BLOCK_SIZE")}
        try:
            functions = kernels_in(path, text, own, headers)
        except PerflexError as error:
            print(f"{path}: {error}")
            continue
        for function in functions:
            # Of a function that begins with a macro, such as __global__, clang has no words.
            words = " ".join(word for part in function.children for word in part.words)
            axes = 1
            for axis, letter in ((1, "y"), (2, "z")):
                if re.search(rf"get_\w+ \( {axis} \)|(threadIdx|blockIdx|blockDim) \. {letter}\b", words):
                    axes = axis + 1
            names = function.template_parameters
            types = {each.spelling for each in function.children if each.kind == "TEMPLATE_TYPE_PARAMETER"}
            arguments = [
                TYPES.get(each, "float") if each in types else NUMBERS.get(each) or ("1" if each[0].islower() else "16")
                for each in names
            ]
            name = function.spelling + (f"<{', '.join(arguments)}>" if names else "")
            found.setdefault((str(path), function.spelling), {
                "suite": suite, "path": str(path), "name": name, "axes": axes, "defines": own, "headers": headers,
            })  # fmt: skip
    return list(found.values())


def launch_of(job: Job, *, small: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
    axes, path = job["axes"], job["path"]
    if small:
        local, groups = {1: ((64,), (2,)), 2: ((16, 16), (2, 3)), 3: ((8, 8, 2), (2, 2, 2))}[axes]
        if "shoc" in path and axes == 1:
            local = (64,) if "fft" in path else (256,)
        if axes == 1 and re.search("backprop|srad|kmeans|dwt|reduction", path):
            local = (256,)
        if re.search("lud|nw", path) and axes == 1:
            local = (32,) if "lud_perimeter" in job["name"] else (16,)
    else:
        local, groups = {1: ((256,), (8,)), 2: ((16, 16), (6, 6)), 3: ((8, 8, 4), (4, 4, 4))}[axes]
    if job["suite"].startswith(("Kernel", "BAT")):
        local = (16, 16) if "gemm.cu" in path else (32, 8, 1)[:axes]
        groups = groups[: len(local)] if len(groups) >= len(local) else (*groups, *(4,) * (len(local) - len(groups)))
    return local, groups


def read_kernel(job: Job, small: bool, answers: Any) -> None:
    """Read one kernel; answer its class, the seconds, and what is counted."""
    start = time.perf_counter()
    local, groups = launch_of(job, small=small)
    row = {**job, "local": local, "groups": groups, "class": "refused", "why": ""}
    try:
        kernel = source_kernel(
            Path(job["path"]), job["name"], local=local, groups=groups, defines=job["defines"], folders=job["headers"]
        )
        default, known = (40, SIZES | SMALL) if small else (96, SIZES)
        sizes = {name: known.get(name, default) for name in kernel.sizes}
        unstated = kernel.unstated(sizes)
        matters = {each.matter for each in unstated}
        bound = matters <= {"guard", "early exit"}
        gathered = "stated" if "trip count" in matters else "gathered"
        row["class"] = "exact" if not matters else "bound" if bound else gathered
        row["why"] = "; ".join(map(str, unstated[:2]))
        if row["class"] != "stated":
            scop = kernel.scop(sizes)
            row |= {"sizes": sizes, "seconds": time.perf_counter() - start}
            if small:
                row |= counted(scop, sizes)
    except PerflexError as error:
        row |= {"class": "refused", "why": str(error)}
    except Exception as error:  # noqa: BLE001 - what must not happen is counted, too
        row |= {"class": "escaped", "why": f"{type(error).__name__}: {error}"}
    row.setdefault("seconds", time.perf_counter() - start)
    answers.put(row)


def points(domain: Any, sizes: dict[str, int]) -> int:
    from perflex.isl import isl

    kind = isl.dim_type.param
    for place in range(domain.dim(kind)):
        domain = domain.fix_val(kind, place, isl.Val(sizes[domain.get_dim_name(kind, place)]))
    return int(domain.project_out(kind, 0, domain.dim(kind)).count_val().to_python())


def counted(scop: Any, sizes: dict[str, int]) -> Job:
    """Return executed accesses, bytes and operations of a Scop, and the extents of its arrays in bytes."""
    found: Counter[str] = Counter()
    for statement in scop.statements:
        times = points(statement.domain, sizes)
        for access in statement.accesses:
            array = scop.array(access.array)
            found[f"{access.direction} {array.space}"] += times // statement.lanes
            found[f"{access.direction} {array.space} bytes"] += times * array.itemsize
        for operation in statement.operations:
            if operation.dtype.startswith("float") and operation.kind in {"add", "mul", "madd", "div"}:
                found[operation.kind] += times * operation.count
    found["barrier"] = sum(points(barrier.domain, sizes) for barrier in scop.barriers)
    extents = {array.name: int(array.shape[0].evaluate(sizes)) * array.itemsize for array in scop.arrays}
    return {"counts": dict(found), "extents": extents}


def executed(row: Job) -> Job:
    """Return what Oclgrind executes of a kernel in the same words, or why it does not run."""
    sys.path.append(str(Path(__file__).parents[1]))
    from oracles.oclgrind import find_icd, parse_counts

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "oclgrind.icd").write_text(f"{find_icd()}\n", encoding="utf-8")
        environment = os.environ | {
            "OCL_ICD_VENDORS": folder, "OCL_ICD_FILENAMES": "", "OCLGRIND_INST_COUNTS": "1",
            "OCLGRIND_NUM_THREADS": "1",            "PYOPENCL_NO_CACHE": "1", "PYTHONWARNINGS": "ignore",
        }  # fmt: skip
        try:
            done = subprocess.run(
                [sys.executable, __file__, "run-one"], input=json.dumps(row), env=environment, capture_output=True,
                text=True, timeout=LIMIT_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return {"why": "the simulator does not end"}
    if done.returncode:
        return {"why": (done.stderr.strip().splitlines() or ["?"])[-1]}
    run = parse_counts(done.stdout)
    madds = sum(count for name, count in run.calls.items() if name.startswith("llvm.fmuladd"))
    counts = {"add": run.adds, "mul": run.muls, "div": run.divs, "barrier": run.barriers,
              "madd": madds + run.called("fma") + run.called("mad")}  # fmt: skip
    for space in ("global", "local", "constant"):
        for word, traffic in (("load", run.load(space)), ("store", run.store(space))):
            counts |= {f"{word} {space}": traffic.count, f"{word} {space} bytes": traffic.bytes}
    return {"executed": counts}


def run_one(row: Job) -> None:
    """Run one kernel in this process, which sees Oclgrind alone."""
    import pyopencl as cl
    import pyopencl.array as cla

    platform = next(each for each in cl.get_platforms() if each.name == "Oclgrind")
    device_queue = cl.CommandQueue(cl.Context(platform.get_devices()))
    options = ["-cl-opt-disable", *(f"-D{key}={value}" for key, value in row["defines"].items())]
    options.append(f"-I{Path(row['path']).parent}")
    text = Path(row["path"]).read_text(encoding="utf-8", errors="replace")
    program = cl.Program(device_queue.context, text).build(options=options)
    function = next(each for each in program.all_kernels() if each.function_name == row["name"])
    kernel = source_kernel(
        Path(row["path"]), row["name"], local=row["local"], groups=row["groups"], defines=row["defines"]
    )
    values: list[Any] = []
    for name, space, dtype, _ in kernel.arguments:
        size = row["extents"].get(name, 1 << 14)
        if space == "local":
            values.append(cl.LocalMemory(max(4, size)))
        elif space:
            count = max(1, size // np.dtype(dtype).itemsize + 4)
            host = np.zeros(count) if np.dtype(dtype).kind in "iu" else (np.arange(count) * 7 % 5 + 1) / 8
            values.append(cla.to_device(device_queue, host.astype(dtype)).data)
        else:
            values.append(np.dtype(dtype).type(row["sizes"].get(name, 0.5)))
    extent = [one * two for one, two in zip(row["groups"], row["local"], strict=True)]
    function(device_queue, extent, row["local"], *values)
    device_queue.finish()


def answered(job: Job, *, small: bool) -> Job:
    """Return what a process of its own says of a kernel."""
    answers: Any = multiprocessing.Queue()
    process = multiprocessing.Process(target=read_kernel, args=(job, small, answers))
    process.start()
    try:
        row: Job = answers.get(timeout=LIMIT_S)
    except queue.Empty:
        process.kill()
        row = {**job, "class": "escaped", "why": "does not end", "seconds": LIMIT_S}
    process.join()
    if small and row["class"] in {"exact", "bound"} and row["path"].endswith(".cl"):
        row |= executed(row)
    return row


# PolyBench's kernels in CUDA C that are other programs than their twins: they store zeros first, have other guards, or
# loop to constants.
OTHER_PROGRAMS = {
    "corr_kernel", "atax_kernel1", "atax_kernel2", "syr2k_kernel", "lu_kernel2", "convolution3D_kernel",
    "runJacobiCUDA_kernel1", "runJacobiCUDA_kernel2",
}  # fmt: skip


def with_twins(rows: list[Job]) -> None:
    """Give PolyBench's kernels in CUDA C what their twins executed: as many kernels, in the same order."""
    executed: dict[str, list[Job]] = {}
    for row in rows:
        if row["suite"] == "PolyBench, OpenCL":
            executed.setdefault(Path(row["path"]).stem, []).append(row)
    mine = [row for row in rows if row["suite"] == "PolyBench, CUDA"]
    for stem, twins in executed.items():
        own = [row for row in mine if Path(row["path"]).stem == stem]
        for row, twin in zip(own, twins, strict=True):
            if row["class"] in {"exact", "bound"} and "executed" in twin and row["name"] not in OTHER_PROGRAMS:
                row["executed"] = twin["executed"]


def show_classes(rows: list[Job]) -> None:
    from judging import table

    words, lines = ("exact", "bound", "gathered", "stated", "refused", "escaped"), []
    for suite in dict.fromkeys(row["suite"] for row in rows):
        own = [row for row in rows if row["suite"] == suite]
        found = Counter(row["class"] for row in own)
        understood = 100 * (found["exact"] + found["bound"] + found["gathered"]) / len(own)
        median, most = np.quantile([row["seconds"] for row in own], [0.5, 0.95])
        counts = [str(found[word]) for word in words]
        lines.append([suite, str(len(own)), *counts, f"{understood:.0f} %", f"{median:.2f}, {most:.2f}"])
    print(table(["suite", "kernels", *words, "without a statement", "seconds: median, 95 %"], lines))


def show_truth(rows: list[Job]) -> None:
    ran = [row for row in rows if "executed" in row]
    for word in ("exact", "bound"):
        own = [row for row in ran if row["class"] == word]
        wrong = {}
        for row in own:
            pairs = {key: (row["counts"].get(key, 0), there) for key, there in row["executed"].items()}
            bad = {key: (n, there) for key, (n, there) in pairs.items() if n < there or (n > there and word == "exact")}
            if bad:
                wrong[f"{Path(row['path']).name}:{row['name']}"] = bad
        print(f"\n{word}: {len(own) - len(wrong)} of {len(own)} kernels {'equal' if word == 'exact' else 'not below'}")
        for name, bad in wrong.items():
            print(f"- {name}: {bad}")
    for row in rows:
        if row["class"] in {"exact", "bound"} and row["path"].endswith(".cl") and "executed" not in row:
            print(f"- not run: {Path(row['path']).name}:{row['name']}: {row.get('why')}")


# Work-groups, and work-items along each axis of the grid, by the number of axes.
SHAPES = {1: ((256,), (64,), (32,)), 2: ((32, 8), (16, 16), (64, 1)), 3: ((8, 8, 4),)}
EXTENTS = {"cpu": {1: 512, 2: 256, 3: 64}, "gpu": {1: 4096, 2: 1024, 3: 128}}
STEADY = 1.08


def cases_of(given: argparse.Namespace, device: Any) -> Iterator[tuple[str, dict[str, SizedKernel]]]:
    """Yield the name of each kernel of the suites that is understood, with the shapes of its work-groups."""
    from perflex.features.sized_kernel import SizedKernel

    ending = ".cu" if device.api == "cuda" else ".cl"
    suites = [name for name, (_, pattern) in SUITES.items() if pattern.endswith(ending) and given.suites in name]
    for job in (job for suite in suites for job in jobs_of(given.data, suite, "")):
        found, axes = {}, job["axes"]
        for shape in SHAPES[axes] if "PolyBench" in job["suite"] else [launch_of(job, small=False)[0]]:
            text, extent = "x".join(map(str, shape)), EXTENTS[device.kind][axes]
            kernel = source_kernel(
                Path(job["path"]), job["name"], local=shape, global_size=[extent] * len(shape),
                defines=job["defines"], folders=job["headers"],
            )  # fmt: skip
            try:
                sizes = {name: SIZES.get(name, extent) for name in kernel.sizes}
                if not {each.matter for each in kernel.unstated(sizes)} & {"trip count", "subscript"}:
                    found[text] = SizedKernel(kernel, sizes, f"{job['name']} {text}")
            except PerflexError as error:
                print(error)
        if found:
            yield f"{job['suite']}: {Path(job['path']).stem} {job['name']}", found


def run_times(given: argparse.Namespace) -> None:
    """Time the kernels that the results file does not hold, predict all, and judge by the second timing."""
    from judging import OPTIONS, Method, judged, measured_peaks, predicted, record, recorded

    from perflex import Calibration, find_device
    from perflex.studies.evaluation.baselines import Peaks, distinct_bytes_of, work_of
    from perflex.timing.measuring import measure
    from perflex.timing.results import Timing

    device = find_device(given.device)
    calibration = Calibration.load(given.calibration) if given.calibration else Calibration.load("general_gpu")
    machine = None if given.calibration else device.name
    kernels = {(name, shape): job for name, jobs in cases_of(given, device) for shape, job in jobs.items()}
    if not given.out.exists():
        record(given.out, [{"peaks": vars(measured_peaks(device))}])
    known = {row.get("kernel") for row in recorded(given.out)}
    for name in dict.fromkeys(name for name, _ in kernels if name not in known):
        own = {shape: job for (other, shape), job in kernels.items() if other == name}
        before, after = (measure(list(own.values()), device, OPTIONS) for _ in range(2))
        for shape, *pair in zip(own, before, after, strict=True):
            named = zip(("before_s", "after_s"), pair, strict=True)
            times = {when: each.seconds for when, each in named if isinstance(each, Timing)}
            failed = [each.reason for each in pair if not isinstance(each, Timing)]
            why = {"reason": failed[0].removeprefix(f"{own[shape].label}: ")} if failed else {}
            record(given.out, [{"kernel": name, "shape": shape, **times, **why}])
        print(f"{name}: {len(own)} cases", flush=True)
    [peaks], rows = [Peaks(**row["peaks"]) for row in recorded(given.out) if "peaks" in row], recorded(given.out)[1:]
    both = {
        (row["kernel"], row["shape"]): (row["before_s"], row["after_s"])
        for row in rows
        if {"before_s", "after_s"} <= row.keys()
    }
    steady = {case: times for case, times in both.items() if 1 / STEADY < times[0] / times[1] < STEADY}
    print(f"{len(both) - len(steady)} of {len(rows)} cases were not steady, {len(rows) - len(both)} failed")
    # Numbers and names differ from kernel to kernel.
    reasons = Counter(re.sub(r"'[^']*'|\"[^\"]*\"|\d+", "...", row["reason"]) for row in rows if "reason" in row)
    for reason, count in reasons.most_common(12):
        print(f"- {count} failed: {reason[:200]}")

    def counts(case: tuple[str, str]) -> Any:
        return calibration.predict_interval(kernels[case].kernel, kernels[case].sizes, machine=machine)

    def roofline(case: tuple[str, str]) -> float:
        job = kernels[case]
        return float(peaks.roofline(work_of(job.kernel, job.sizes), distinct_bytes_of(job.kernel, job.sizes)))

    methods = [
        predicted("counts", "nothing", steady, counts),
        predicted("roofline", "nothing", steady, roofline),
        Method("timed", "timing", {case: before for case, (before, _) in steady.items()}),
    ]
    print(f"\n{judged(methods, {case: after for case, (_, after) in steady.items()}, lambda case: case[0])}")


def run_classes(given: argparse.Namespace) -> None:
    import judging  # noqa: F401 - the tests' folder, which is needed for Oclgrind, has a folder uipick, too

    rows: list[Job] = []
    for suite in [each for each in SUITES if not given.suites or any(one in each for one in given.suites.split(","))]:
        jobs = jobs_of(given.data, suite, given.only)
        if given.oclgrind:
            jobs = [job for job in jobs if job["path"].endswith(".cl") or suite == "PolyBench, CUDA"]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            rows += pool.map(lambda job: answered(job, small=given.oclgrind), jobs)
        print(f"{suite}: {len(jobs)} kernels", file=sys.stderr)
    if given.details:
        for row in (row for row in rows if row["class"] != "exact"):
            print(f"- {row['class']}: {Path(row['path']).name}:{row['name']}: {row['why']}")
    show_classes(rows)
    if given.oclgrind:
        with_twins(rows)
        show_truth(rows)
    print(f"\n{math.fsum(row['seconds'] for row in rows):.0f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    commands.add_parser("run-one").set_defaults(run=lambda _: run_one(json.load(sys.stdin)))
    classes, times = commands.add_parser("classes"), commands.add_parser("times")
    for command in (classes, times):
        command.add_argument("--data", type=Path, required=True, help="folder of the suites")
        command.add_argument("--suites", default="")
    classes.add_argument("--only", default="", help="text that paths must have")
    classes.add_argument("--oclgrind", action="store_true")
    classes.add_argument("--details", action="store_true", help="also why kernels are not exact")
    classes.set_defaults(run=run_classes)
    times.add_argument("--device", required=True)
    times.add_argument("--calibration", type=Path)
    times.add_argument("--out", type=Path, required=True)
    times.set_defaults(run=run_times)
    given = parser.parse_args()
    given.run(given)


if __name__ == "__main__":
    main()
