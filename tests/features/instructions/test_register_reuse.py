"""Loads that compilers keep in registers, against code that they have optimised; counters of a convolution."""

import csv
import gzip
from pathlib import Path

import loopy as lp
import numpy as np
import pytest
from msgspec.structs import replace

from oracles.nvrtc import loads_in_ptx, nvrtc_library
from oracles.oclgrind import needs_oclgrind, run_jobs
from perflex import estimate_volumes, load_machine
from perflex.features import Operation, Target, extract_scop, parse_feature, source_kernel
from perflex.features.gpu.volume_estimate import cache_transactions, local_transactions
from perflex.features.instructions.instruction_counts import instructions_of
from support.volume_kernels import convolution

N = 256


def floats(shapes):
    return [lp.GlobalArg(name, dtype=np.float32, shape=shape) for name, shape in shapes.items()]


def made(domains, code, shapes, tags=""):
    """A kernel with a work-item for each i."""
    arrays = floats({name: shape for name, shape in shapes.items() if f"{name}[" in code})
    has_m = "m" in f"{domains}{shapes}"
    sizes = [lp.ValueArg("m", np.int32)] if has_m else []
    kernel = lp.make_kernel(domains, code, [*arrays, *sizes, ...], lang_version=(2018, 2), seq_dependencies=True)
    kernel = lp.split_iname(kernel, "i", 32, outer_tag="g.0", inner_tag="l.0")
    kernel = lp.tag_inames(kernel, tags) if tags else kernel
    return lp.assume(kernel, f"n mod 32 = 0 and n >= 32{' and m >= 1' if has_m else ''}")


LINE, LOOP = ["{[i]: 0<=i<n}"], ["{[i]: 0<=i<n}", "{[j]: 0<=j<m}"]
LINES = dict.fromkeys("xyzw", "n")
# Loads of global memory that remain per work-item, and why: domains, code, shapes of arrays, tags.
TEXTS = {
    "the same element twice": (1, LINE, "y[i] = x[i]*x[i]", LINES),
    "two statements": (2, LINE, "y[i] = x[i] + w[i] {id=a}\nz[i] = x[i] * w[i] {id=b, dep=a}", LINES),
    "what was stored": (1, LINE, "y[i] = 3*x[i] {id=a}\nz[i] = y[i] + x[i] {id=b, dep=a}", LINES),
    "a store somewhere in the same array": (2, "[n, m] -> {[i]: 0<=i<n}",
        "y[i] = x[i, 0]\nx[i, m] = 2.0\nz[i] = x[i, 0]", LINES | {"x": "n, m + 1"}),
    "unrolled neighbours": (6, [*LINE, "{[k]: 0<=k<4}"], "y[4*i + k] = x[4*i + k] + x[4*i + k + 1] + x[4*i + k + 2]",
        {"x": "4*n + 2", "y": "4*n"}, "k:unr"),
    "an unrolled filter with two outputs": (3 * 4 + 3 * 3, [*LINE, "{[u]: 0<=u<2}", "{[a, b]: 0<=a,b<3}"],
        "y[2*i + u] = sum([a, b], f[a, b] * x[a, 2*i + u + b])", {"x": "3, 2*n + 3", "y": "2*n", "f": "3, 3"},
        "u:unr,a:unr,b:unr"),
    "a load that does not depend on the loop": (1 + 8, LOOP, "y[i] = sum(j, x[i] * w[j])", LINES | {"w": "m"}),
    "neighbours along a loop that is not unrolled": (3 * 8, LOOP, "y[j, i] = x[j, i] + x[j + 1, i] + x[j + 2, i]",
        {"x": "m + 2, n", "y": "m, n"}),
    "a store in the loop": (2 * 8, LOOP, "x[j + 1, i] = x[j, i] + x[0, i]", {"x": "m + 1, n"}),
}  # fmt: skip
KERNELS = {name: (loads, made(*text)) for name, (loads, *text) in TEXTS.items()}
SIZES = {"n": N, "m": 8}


def staged(before, after):
    """Loads of a tile in local memory around a barrier; each element of the tile has been stored by another one."""
    kernel = lp.make_kernel(
        "[n] -> {[g, l]: 0<=32*g<n and 0<=l<32}",
        f"""
        t[l] = x[32*g + l]        {{id=fill}}
        y[32*g + l] = {before}    {{id=first, dep=fill}}
        ... lbarrier              {{id=again, dep=first}}
        z[32*g + l] = {after}     {{id=last, dep=again}}
        """,
        [
            *floats(dict.fromkeys("xyzc", "n")),
            lp.ValueArg("n", np.int32),
            lp.TemporaryVariable("t", np.float32, shape=(32,), address_space=lp.AddressSpace.LOCAL),
        ],
        lang_version=(2018, 2),
        seq_dependencies=False,
    )
    kernel = lp.assume(kernel, "n mod 32 = 0 and n >= 32")
    return lp.tag_inames(kernel, "g:g.0,l:l.0")


def counted(kernel, space):
    """Loads that all work-items execute."""
    scop = extract_scop(kernel)
    sizes = {name: SIZES[name] for name in scop.parameters}
    both = parse_feature(f"f_inst_ldst_{space}").value(scop, sizes, Target(1))
    stores = [
        access
        for statement in scop.statements
        for access in statement.accesses
        if access.direction == "store" and scop.array(access.array).space == space
    ]
    return both - (parse_feature(f"f_mem_access_{space}_store").value(scop, sizes, Target(1)) if stores else 0)


@pytest.mark.parametrize("name", KERNELS)
def test_loads_that_remain(name):
    wanted, kernel = KERNELS[name]
    assert counted(kernel, "global") == wanted * N


BARRIERS = {
    "local memory": (2, 1, staged("t[31 - l] * t[31 - l]", "t[31 - l]")),
    "arrays that are only loaded": (1, 2, staged("t[31 - l] * c[32*g + l]", "c[32*g + l]")),
    "arrays that are stored to": (1, 2, staged("t[31 - l]", "y[32*g + l]")),
}


STRAIGHT = [name for name, (_, kernel) in KERNELS.items() if "m" not in kernel.default_entrypoint.arg_dict]


@pytest.mark.skipif(nvrtc_library() is None, reason="no NVRTC: pip install nvidia-cuda-nvrtc")
def test_nvidias_compiler_leaves_as_many_loads():
    for name in STRAIGHT:
        assert loads_in_ptx(cuda(KERNELS[name][1])) == {"global": KERNELS[name][0]}, name
    for name, (local, of_global, kernel) in BARRIERS.items():
        # Pointers that nothing else points to keep even what a local barrier could change: ours is more there.
        wanted = of_global - (name == "arrays that are stored to")
        assert loads_in_ptx(cuda(kernel)) == {"global": wanted, "shared": local}, name


# Bodies of kernels for work-groups of 32: loads in the code, and those that the work-items of one execute.
CONDITIONS = {
    "a stronger one later": (1, 32, "x[i] = a[i]; if (t < 4) y[i] = 2*a[i];"),
    "one in another": (1, 8, "if (t < 8) { x[i] = a[i]; if (t < 4) y[i] = 2*a[i]; }"),
    "the same one at once": (1, 4, "if (t < 4) x[i] = a[i]; if (t < 4) y[i] = 2*a[i];"),
    "the same one again": (2, 8, "if (t < 4) x[i] = a[i]; z[i] = 3; if (t < 4) y[i] = 2*a[i];"),
    "a stronger one after the first has ended": (2, 12, "if (t < 8) x[i] = a[i]; z[i] = 3; if (t < 4) y[i] = 2*a[i];"),
    "a weaker one later": (2, 36, "if (t < 4) x[i] = a[i]; y[i] = 2*a[i];"),
    "unrolled loops": (60, 40 * 32 + 20 * 4, """
        float s = 0; for (int j = 0; j < 20; j++) s += a[20*i + j] * b[j]; x[i] = s;
        if (t < 4) { s = 0; for (int j = 0; j < 20; j++) s += a[20*i + j] * b[j + 40]; y[i] = s; }"""),
}  # fmt: skip
HEAD = """
extern "C" __global__ void k(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ x,
                             float* __restrict__ y, float* __restrict__ z, int n)
{ int t = threadIdx.x, i = 32*blockIdx.x + t; """


def copies():
    """Rows of 20 by 8 work-items: three copies, of which the last is for four of them."""
    kernel = lp.make_kernel(
        "{[e, j, k, p, q]: 0<=e<n and 0<=j,k<20 and 0<=p,q<6}",
        "y[e, j] = sum(p, u[e, p] * w[j, p]) {id=a}\nz[e, k] = sum(q, v[e, q] * w[k, q]) {id=b, dep=a}",
        [*floats({"u": "n, 6", "v": "n, 6", "w": "20, 6", "y": "n, 20", "z": "n, 20"}), lp.ValueArg("n", np.int32)],
        lang_version=(2018, 2),
    )
    for name in "jk":
        kernel = lp.split_iname(kernel, name, 8, inner_tag="l.0", outer_tag="unr")
    return lp.assume(lp.tag_inames(kernel, "e:g.0"), "n >= 1")


def test_values_are_kept_while_their_condition_holds():
    for name, (_, executed, body) in CONDITIONS.items():
        assert counted(source_kernel(HEAD + body + "}", "k", local=32, groups="n"), "global") == executed * N, name
    # The rows of w: three copies, of which the first two are for all, and the third once more under its condition.
    assert counted(copies(), "global") == (2 * 6 * 8 + 6 * 20 + 6 * 4) * N


@pytest.mark.skipif(nvrtc_library() is None, reason="no NVRTC: pip install nvidia-cuda-nvrtc")
def test_nvidias_compiler_keeps_values_while_their_condition_holds():
    for name, (loads, _, body) in CONDITIONS.items():
        assert loads_in_ptx(HEAD + body + "}") == {"global": loads}, name
    assert loads_in_ptx(cuda(copies())) == {"global": 2 * 6 + 3 * 6 + 6}


def cuda(kernel):
    return lp.generate_code_v2(kernel.copy(target=lp.CudaTarget())).device_code()


# Oclgrind's compiler neither sorts sums of subscripts nor moves loads out of loops; it keeps values over barriers, too.
OTHERWISE = {"unrolled neighbours": 12, "a load that does not depend on the loop": 16, "arrays that are stored to": 1}


@needs_oclgrind
def test_executed_loads_of_optimised_code():
    both = {name: kernel for name, (*_, kernel) in (KERNELS | BARRIERS).items()}
    jobs = [(kernel, {name: SIZES[name] for name in extract_scop(kernel).parameters}) for kernel in both.values()]
    for (name, kernel), executed in zip(both.items(), run_jobs(jobs, []), strict=True):
        wanted = OTHERWISE[name] * N if name in OTHERWISE else counted(kernel, "global")
        assert executed.load("global").count == wanted, name
        assert executed.load("local").count == counted(kernel, "local"), name


PATH = Path(__file__).resolve().parents[4] / "shared" / "data" / "gpu_counters" / "convolution_RTX_2080_Ti.csv.gz"

needs_counters = pytest.mark.skipif(not PATH.is_file(), reason=f"no {PATH.name} in ../shared/data/gpu_counters")

TUNABLES = ("BLOCK_SIZE_X", "BLOCK_SIZE_Y", "TILE_SIZE_X", "TILE_SIZE_Y")
WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op"
THREADS = "smsp__sass_thread_inst_executed_op"
# What is estimated, and the counters that add up to it.
COUNTERS = {
    "local loads": (f"{WAVEFRONTS}_ld.sum",),
    "local": (f"{WAVEFRONTS}_ld.sum", f"{WAVEFRONTS}_st.sum"),
    "L2 read": ("lts__t_sectors_op_read.sum",),
    "L2 write": ("lts__t_sectors_op_write.sum",),
    "f_txn_l2": ("lts__t_sectors_op_read.sum", "lts__t_sectors_op_write.sum"),
    "f_txn_dram": ("dram__sectors_read.sum", "dram__sectors_write.sum"),
    **{f"thread {kind}": (f"{THREADS}_{counter}_pred_on.sum",)
       for kind, counter in (("fp32", "fp32"), ("int", "integer"), ("control", "control"), ("memory", "memory"))},
}  # fmt: skip


def counter_rows():
    """Rows without repeats: padding has no effect, and of read-only rows and others the latter are kept."""
    with gzip.open(PATH, "rt") as file:
        rows = list(csv.DictReader(file))
    return list({tuple(row[name] for name in TUNABLES): row for row in rows if row["READ_ONLY"] == "0"}.values())


def outputs(row):
    return int(row["TILE_SIZE_X"]) * int(row["TILE_SIZE_Y"])


def ratios(row):
    """What is estimated over what was counted."""
    bx, by, tx, ty = (int(row[name]) for name in TUNABLES)
    scop, machine = convolution((bx, by), (tx, ty)), load_machine("RTX-2080-Ti")
    madd = (Operation("madd", "float32"),)
    statements = (replace(one, operations=madd) if one.name == "filter" else one for one in scop.statements)
    scop = replace(scop, statements=tuple(statements))
    local, volumes = local_transactions(scop, {}, machine), estimate_volumes(scop, {}, machine).total
    warps, threads = (
        {kind: float(count.evaluate({})) for kind, count in instructions_of(scop, lanes).items()}
        for lanes in (32, None)
    )
    found = {
        "local loads": local["tile", "load"],
        "local": sum(local.values()),
        "L2 read": volumes.l2_l1_load / 32,
        "L2 write": volumes.l2_l1_store / 32,
        **cache_transactions(scop, {}, machine, None),
        **{f"thread {kind}": number for kind, number in threads.items()},
        "thread memory": threads["ldst_global"] + threads["ldst_local"],
    }
    over = {name: found[name] / sum(float(row[column]) for column in columns) for name, columns in COUNTERS.items()}
    active = float(row["smsp__thread_inst_executed_per_inst_executed.ratio"]) / 32
    return over | {"active": sum(threads.values()) / sum(warps.values()) / 32 / active}


@pytest.mark.slow
@needs_counters
def test_one_output_per_work_item():
    found = [ratios(row) for row in counter_rows() if outputs(row) == 1]
    assert len(found) == 27
    errors = {name: np.abs(np.array([one[name] for one in found]) - 1) for name in found[0]}
    assert max(errors["local"].max(), errors["local loads"].max()) < 0.01
    for name in ("L2 read", "L2 write", "f_txn_l2", "f_txn_dram"):
        assert np.median(errors[name]) < 0.05, name
    for name in ("thread fp32", "thread memory", "active"):
        assert errors[name].max() < 0.03, name
    # A rule for what a compiler makes of subscripts and loops: the right size, and no more.
    assert 0.4 < np.median([one["thread int"] for one in found]) < 1.0
    assert 0.2 < np.median([one["thread control"] for one in found]) < 1.0


@needs_counters
def test_several_outputs_per_work_item():
    rows = [row for row in counter_rows() if outputs(row) > 1]
    unspilt = [row for row in rows if not float(row["l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum"])]
    errors = np.abs([ratios(row)["local loads"] - 1 for row in unspilt[::67]])
    assert np.median(errors) < 0.01
    assert np.quantile(errors, 0.9) < 0.05
    # With more outputs the unrolled code outgrows the instruction cache, and its fetches are L2 reads, too.
    few = [row for row in rows if outputs(row) <= 16]
    assert np.median(np.abs([ratios(row)["L2 read"] - 1 for row in few[::97]])) < 0.10
