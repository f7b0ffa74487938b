"""Executed instructions on Oclgrind after optimisation: no compiler removes, merges or adds to what is measured.

What kernels execute as written is compared with the symbolic counts of the whole catalog in `test_oracle_catalog.py`.
"""

import pytest

from oracles.oclgrind import needs_oclgrind, run_jobs
from uipick import ALL_GENERATORS, KernelCollection, remove_work
from uipick.generators.dg_diff import DG_DIFF_TAGS

pytestmark = [needs_oclgrind, pytest.mark.slow]

G, CUBE = 256, 32**3  # work-items of a pattern; multiply-adds of a matrix product
ROUNDS = G * 64 * 16
PLACE = "lid_stride_1:16 nelements:256"
# Grid of 16 by 8 (by 8) points, work-groups of 8 by 4, chunks of 4 planes.
PLANE, POINTS, CHUNKS = 16 * 8, 16 * 8 * 8, 16 * 8 * 2
GRID = "lsize_0:8 lsize_1:4 groups_fit:True nx:16 ny:8"
SPACE = f"{GRID} nz:8 chunk:4"
DG = "groups_fit:True lsize_0:8 lsize_1:8 nunit_nodes:16 nelements:16"
EVERY, TILES = 3 * 16**3, {"diff_mat": 3 * 16**2 * 2, "u": 16**2 * 2}
DG_LOADS = {tag: EVERY for tags in DG_DIFF_TAGS.values() for tag in tags[:2]} | {
    "uUpreLD": TILES["u"], "diffDpreLD": TILES["diff_mat"], "diffDtransLD": TILES["diff_mat"],
}  # fmt: skip


def moved(load, store, local_load=0, local_store=0, **more):
    """Return loads and stores of global and local memory, and what else is executed."""
    return {"load": load, "store": store, "local load": local_load, "local store": local_store} | more


def summed(loads, stores):
    """Return what a kernel with work removed executes: loads, a sum of them, and stores."""
    return moved(loads, stores, add=loads)


# Tags, and all that is executed: what is not named is not executed at all. Of ... the compiler may make what it likes.
EXECUTED = {
    "matmul_sq prefetch:True groups_fit:True n:32": moved(CUBE // 8, 32**2, 2 * CUBE, CUBE // 8, madd=CUBE,
        barrier=4 * 32**2),
    "matmul_sq prefetch:False groups_fit:True n:32": moved(2 * CUBE, 32**2, madd=CUBE),
    "matmul_sq_mem prefetch:True groups_fit:True keep:aLD_bLD n:32": summed(CUBE // 8, 32**2),
    "matmul_sq_mem prefetch:False groups_fit:True keep:bLD n:32": summed(CUBE, 32**2),
    "matmul_rb groups_fit:True rows:2 columns:4 lsize:4 n:32": moved(CUBE // 8 + CUBE // 16, 32**2,
        CUBE // 4 + CUBE // 2, 3 * CUBE // 16, madd=CUBE, barrier=2 * 8 * 128),
    "matmul_rb_mem groups_fit:True rows:2 columns:4 lsize:4 n:32 keep:aLD": summed(CUBE // 16, 32**2 // 8),
    "transpose groups_fit:True variant:naive lsize:4 n:16": moved(G, G),
    "transpose groups_fit:True variant:padded lsize:4 n:16": moved(G, G, G, G, barrier=G),
    "gemv groups_fit:True layout:rows prefetch:True lsize_0:8 n:16 m:24": moved(16 * 24 + 16 * 3, 16, 16 * 24, 16 * 3,
        madd=16 * 24, barrier=2 * 3 * 16),
    "gemv_mem groups_fit:True layout:columns prefetch:True lsize_0:8 n:16 m:24 keep:aLD": summed(16 * 24, 16),
    "axpy groups_fit:True lsize_0:8 n:40": moved(80, 40, madd=40),
    # The tree of a reduction differs between the stages and holds stores that are overwritten at once.
    "dot groups_fit:True lsize_0:8 ngroups:4 n:256": moved(2 * 256 + 4, 4 + 1, ..., ..., madd=256, add=...,
        barrier=...),
    "dot_mem groups_fit:True lsize_0:8 ngroups:4 n:256 keep:xLD": summed(256, 32),
    "matmul_batch groups_fit:True order:4 per_group:2 prefetch:True nbatch:6": moved(2 * 96, 96, 8 * 96, 2 * 96,
        madd=4 * 96, barrier=96),
    "nbody_mem groups_fit:True prefetch:False lsize_0:8 n:24 keep:bodyLD": summed(4 * 24 * 24, 24),
    # How the arithmetic of a pair is put together is the compiler's choice.
    "nbody groups_fit:True prefetch:True lsize_0:8 n:24": moved(3 * 24 + 4 * 24 * 3, 3 * 24, 4 * 24 * 24, 4 * 24 * 3,
        barrier=2 * 3 * 24, rsqrt=24 * 24, add=..., mul=..., madd=...),
    **{
        f"flops_{op}_pattern groups_fit:True {PLACE} m:64 nvars:16": moved(0, G) | {"add": 15 * G, op: ROUNDS}
        for op in ("mul", "madd", "div", "sqrt", "rsqrt", "exp", "sin", "cos")
    },
    f"flops_add_pattern groups_fit:True {PLACE} m:64 nvars:32": moved(0, G, add=2 * ROUNDS + 31 * G),
    "gmem_pattern groups_fit:True n_arrays:3 lid_stride_1:32 nelements:1024": moved(3 * 1024, 1024, add=2 * 1024),
    "gmem_load lsize_0:64 lid_stride_0:2 nelements:4096 m:8": moved(8 * G, G, add=8 * G + 3 * G),
    "gmem_store lsize_0:64 lid_stride_0:2 nelements:4096 m:8": moved(0, 8 * G),
    "gmem_uniform lsize_0:64 by:launch ngroups:4 m:8": moved(8 * G, G, add=8 * G + 3 * G),
    "gmem_reuse lsize_0:16 by:items afr:4 nelements:512 m:8": moved(8 * G, G, add=8 * G + 3 * G),
    "gmem_working_set lsize_0:64 working_set:512 ngroups:4 m:3": moved(3 * 8 * G, G, add=3 * 8 * G + 3 * G,
        barrier=3 * G),
    # Vectors move in one access.
    "gmem_triad lsize_0:64 groups_fit:True width:4 nelements:1024": moved(2 * G, G, madd=...,
        **{"load bytes": 16 * 2 * G, "store bytes": 16 * G}),
    f"lmem_move {PLACE} m:24": moved(0, G, 25 * G, 32 * G),
    f"overlap_ratio {PLACE} m:16": moved(G, G, 17 * G, 24 * G),
    "lmem_load lsize_0:64 lid_stride_0:4 ngroups:4 m:48": moved(0, G, 48 * G, 16 * G, add=49 * G),
    "lmem_broadcast lsize_0:64 ngroups:4 m:48": moved(0, G, 48 * G, G, add=49 * G, barrier=G),
    "barrier_local lid_stride_1:16 nelements:512 m:5": moved(0, 512, barrier=5 * 512),
    "empty ngroups:3": moved(0, 0, launches=1),
    "overlap_madd load:both m:6 chains:3 groups_fit:True n:16": moved(32 * G, G, madd=16 * 6 * G, add=2 * G),
    # One sum within each group of neighbours and one product for each; all products but one join a sum.
    f"stencil2d shape:star radius:3 {GRID}": moved(13 * PLANE, PLANE, add=9 * PLANE, mul=PLANE, madd=3 * PLANE),
    f"stencil2d shape:box radius:2 {GRID}": moved(25 * PLANE, PLANE, add=22 * PLANE, mul=PLANE, madd=2 * PLANE),
    f"stencil2d_mem shape:box radius:2 keep:uDLD {GRID}": summed(16 * PLANE, PLANE),
    **{
        f"stencil3d points:{points} variant:plain {SPACE}": moved(
            points * POINTS, POINTS, add=(points - groups) * POINTS, mul=POINTS, madd=(groups - 1) * POINTS
        )
        for points, groups in ((7, 2), (19, 3), (27, 4), (25, 5))
    },
    # Columns load each value along z once; tiles are fetched plane by plane.
    f"stencil3d points:25 variant:column {SPACE}": moved(16 * POINTS + 12 * CHUNKS, POINTS, add=20 * POINTS, mul=POINTS,
        madd=4 * POINTS),
    f"stencil3d points:25 variant:tile {SPACE}": moved(6 * POINTS + 8 * POINTS, POINTS, 17 * POINTS, 6 * POINTS,
        add=20 * POINTS, mul=POINTS, madd=4 * POINTS, barrier=2 * POINTS),
    f"stencil3d points:19 variant:tile {SPACE}": moved(3 * 60 / 32 * POINTS, POINTS, 19 * POINTS, 3 * 60 / 32 * POINTS,
        add=16 * POINTS, mul=POINTS, madd=2 * POINTS, barrier=2 * POINTS),
    **{
        f"stencil3d_mem points:{points} variant:{variant} keep:{keep} {SPACE}": summed(loads, CHUNKS)
        for points, variant, keep, loads in (
            (7, "plain", "uCLD_uXLD_uYLD_uZLD", 7 * POINTS), (25, "plain", "uZLD", 8 * POINTS),
            (25, "column", "uZLD", 12 * CHUNKS), (25, "tile", "uTLD", 6 * POINTS), (27, "plain", "uDLD", 20 * POINTS),
        )
    },
    f"stencil3d_mem points:27 variant:plain keep:vST {SPACE}": moved(0, POINTS),
    # Two sums of six; 2 centre - old, and the three terms of the Laplacian: all but one product join a sum.
    f"wave3d radius:2 speed:constant variant:plain {SPACE}": moved(14 * POINTS, POINTS, add=10 * POINTS,
        madd=4 * POINTS, mul=...),
    f"wave3d radius:2 speed:array variant:column {SPACE}": moved(10 * POINTS + 8 * CHUNKS, POINTS, add=..., madd=...,
        mul=...),
    f"wave3d_mem radius:2 speed:array variant:plain keep:oldLD_speedLD {SPACE}": summed(2 * POINTS, CHUNKS),
    f"lbm_d3q15 collide:none {SPACE}": moved(15 * POINTS, 15 * POINTS),
    f"lbm_d3q15 collide:bgk {SPACE}": moved(15 * POINTS, 15 * POINTS, div=POINTS, add=..., mul=..., madd=...),
    f"lbm_d3q15_mem collide:none keep:fDLD {SPACE}": summed(8 * POINTS, CHUNKS),
    # Each weight is loaded once for all results of a work-item.
    f"conv2d filter_size:5 tile_x:2 tile_y:1 local:False {GRID}": moved((25 + 25 / 2) * PLANE, PLANE, madd=25 * PLANE),
    f"conv2d filter_size:5 tile_x:2 tile_y:2 local:True {GRID}": moved(20 * 12 + 25 / 4 * PLANE, PLANE, 25 * PLANE,
        20 * 12, madd=25 * PLANE, barrier=PLANE / 4),
    f"conv2d_mem filter_size:5 tile_x:2 tile_y:1 local:False keep:inLD {GRID}": summed(25 * PLANE, PLANE / 2),
    f"conv2d_mem filter_size:5 tile_x:2 tile_y:2 local:True keep:filterLD {GRID}": summed(25 / 4 * PLANE, PLANE / 4),
    f"conv2d_mem filter_size:5 tile_x:2 tile_y:2 local:True keep:inTLD {GRID}": summed(20 * 12, PLANE / 4),
    **{
        f"dg_diff variant:{variant} {DG}": moved(
            DG_LOADS[d] + DG_LOADS[u], EVERY // 16, ..., ..., madd=EVERY, add=..., barrier=...
        )
        for variant, (d, u, _) in DG_DIFF_TAGS.items()
    },
    **{
        f"dg_diff_mem variant:{variant} keep:{keep} {DG}": moved(
            sum(DG_LOADS[tag] for tag in keep.split("_")), ..., add=sum(DG_LOADS[tag] for tag in keep.split("_"))
        )
        for variant, (d, u, _) in DG_DIFF_TAGS.items()
        for keep in (d, u, f"{d}_{u}")
    },
    "fdiff groups_fit:True tile:10 n:16": moved(400, G, 5 * G, 400, madd=G, add=..., barrier=...),
    "fdiff_mem groups_fit:True tile:10 n:16 keep:uLD": summed(400, ...),
}  # fmt: skip


def counted(run):
    return {
        "load": run.load("global").count, "store": run.store("global").count, "launches": len(run.launches),
        "local load": run.load("local").count, "local store": run.store("local").count, "barrier": run.barriers,
        "load bytes": run.load("global").bytes, "store bytes": run.store("global").bytes,
        "add": run.adds, "mul": run.muls, "madd": run.madds(), "div": run.divs,
        **{function: run.called(function) for function in ("sqrt", "rsqrt", "exp", "sin", "cos")},
    }  # fmt: skip


def kernel_of(tags):
    dtype = [] if tags.startswith(("empty", "iops")) else ["dtype:float32"]
    return KernelCollection(ALL_GENERATORS).generate_kernels([*tags.split(), *dtype])[0]


def test_optimised_code_executes_what_is_measured():
    kernels = [kernel_of(tags) for tags in EXECUTED]
    runs = run_jobs([(kernel.kernel, kernel.sizes) for kernel in kernels], options=[], timeout=600.0)
    wrong = {}
    for (tags, wanted), run in zip(EXECUTED.items(), runs, strict=True):
        found = counted(run)
        loose = {name for name, value in wanted.items() if value is ...}
        loose |= {"load bytes", "store bytes", "launches"} - set(wanted)
        differing = {name: value for name, value in found.items() if name not in loose and value != wanted.get(name, 0)}
        if differing:
            wrong[tags] = differing
    assert wrong == {}


INTEGERS = {"add": ["add"], "mul": ["mul"], "madd": ["mul", "add"], "bit": ["xor", "and"], "shift": ["shl"]}


def test_integer_operations_are_executed():
    kernels = [kernel_of(f"iops_{op}_pattern groups_fit:True {PLACE} m:64 dtype:int32 nvars:16") for op in INTEGERS]
    runs = run_jobs([(kernel.kernel, kernel.sizes) for kernel in kernels], options=[])
    for opcodes, run in zip(INTEGERS.values(), runs, strict=True):
        for opcode in opcodes:
            # The rest makes starting values, the sum at the end, and subscripts.
            assert 0 <= run.instructions[opcode] - ROUNDS <= 50 * G, opcode
        assert run.adds == run.muls == run.madds() == 0


def test_work_removal_keeps_the_loads_of_the_guarded_kernel():
    kernel = kernel_of("matmul_sq prefetch:False groups_fit:False n:21")
    (found,) = run_jobs([(remove_work(kernel.kernel, keep_tags=["bLD"]), kernel.sizes)])
    assert (found.load("global").count, found.store("global").count) == (21**3, 21**2)
