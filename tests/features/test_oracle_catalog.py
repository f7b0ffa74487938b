"""Every generator of the catalog: counts per work-item against what Oclgrind executes."""

from __future__ import annotations

from math import prod

import pytest

from oracles import oclgrind
from perflex.features import count_features, extract_scop
from uipick import ALL_GENERATORS, KernelCollection

# Tags that make one or more small kernels of each generator.
SMALL = {
    "matmul_sq": [
        "dtype:float32,float64", "prefetch:True,False", "lsize_0:8", "lsize_1:8", "groups_fit:True", "n:16,24",
    ],
    "matmul_sq_mem": [
        "dtype:float32", "prefetch:True,False", "lsize_0:8", "lsize_1:8", "groups_fit:True", "n:16",
        "keep:aLD,bLD,cST,aLD_bLD",
    ],
    "flops_add_pattern": ["dtype:float32", "groups_fit:True", "lid_stride_1:16", "nelements:256", "m:64"],
    "flops_mul_pattern": ["dtype:float64", "groups_fit:True", "lid_stride_1:16", "nelements:256", "m:64", "nvars:16"],
    "flops_madd_pattern": ["dtype:float32", "groups_fit:True", "lid_stride_1:16", "nelements:256", "m:64"],
    "flops_add_chain": ["dtype:float32", "groups_fit:True,False", "lid_stride_1:16", "nelements:256", "m:5"],
    "flops_madd_chain": ["dtype:float64", "groups_fit:True", "lid_stride_1:16", "nelements:256", "m:5"],
    "gmem_pattern": [
        "dtype:float32,float64", "groups_fit:True,False", "lid_stride_1:32", "n_arrays:1,3", "nelements:512",
    ],
    "lmem_move": ["dtype:float32", "lid_stride_1:16", "nelements:256", "m:24"],
    "lmem_madd": ["dtype:float32", "lid_stride_1:16", "nelements:256", "m:3", "depth:16,32"],
    "barrier_local": ["dtype:float32", "lid_stride_1:16", "nelements:256", "m:3"],
    "empty": ["ngroups:4"],
    "overlap_ratio": ["dtype:float32", "lid_stride_1:16", "nelements:256", "m:4,16"],
    "overlap_madd": ["dtype:float32", "lsize_0:8", "lsize_1:8", "groups_fit:True,False", "n:16", "m:3", "chains:2"],
    "stencil2d": [
        "shape:star,box", "radius:2", "dtype:float64", "lsize_0:4", "lsize_1:2", "groups_fit:False", "nx:9", "ny:5",
    ],
    "stencil2d_mem": [
        "shape:box", "radius:2", "dtype:float64", "lsize_0:4", "lsize_1:2", "nx:8", "ny:4", "keep:uXLD,uYLD_uDLD_vST",
    ],
    "stencil3d": [
        "points:19,25", "variant:plain,column,tile", "dtype:float64", "lsize_0:4", "lsize_1:2", "chunk:3",
        "groups_fit:False", "nx:7", "ny:3", "nz:5",
    ],
    "stencil3d_mem": [
        "points:7", "variant:plain,tile", "lsize_0:4", "lsize_1:2", "chunk:2", "nx:8", "ny:4", "nz:4",
        "keep:uYLD,uTLD,uZLD_vST",
    ],
    "conv2d": [
        "filter_size:3", "tile_x:2", "tile_y:3", "local:True,False", "dtype:float32", "lsize_0:4", "lsize_1:2",
        "groups_fit:False", "nx:21", "ny:11",
    ],
    "conv2d_mem": [
        "filter_size:3", "tile_x:2", "tile_y:2", "dtype:float64", "lsize_0:4", "lsize_1:2", "groups_fit:False",
        "nx:13", "ny:7", "keep:inLD,inTLD_filterLD_outST",
    ],
    "lbm_d3q15": [
        "collide:bgk", "dtype:float64", "lsize_0:4", "lsize_1:2", "lsize_2:2", "chunk:2", "groups_fit:False",
        "nx:7", "ny:3", "nz:5",
    ],
    "lbm_d3q15_mem": [
        "collide:none", "dtype:float32", "lsize_0:4", "lsize_1:2", "chunk:2", "nx:8", "ny:4", "nz:4",
        "keep:fDLD,fXLD_fYLD_gST",
    ],
    "wave3d": [
        "radius:1,3", "speed:array", "variant:plain", "dtype:float32", "lsize_0:4", "lsize_1:2", "chunk:2", "nx:8",
        "ny:4", "nz:4",
    ],
    "wave3d_mem": [
        "radius:2", "speed:array", "variant:tile", "dtype:float64", "lsize_0:4", "lsize_1:2", "chunk:2", "nx:8",
        "ny:4", "nz:4", "keep:uTLD,uZLD_oldLD_speedLD_newST",
    ],
}  # fmt: skip
WIDTH = {"float32": 4, "float64": 8}


def test_every_generator_is_checked() -> None:
    assert set(SMALL) == {generator.name for generator in ALL_GENERATORS}


def counted(kernel) -> dict[str, int]:
    """Executed instances by what Oclgrind can tell apart."""
    entries = count_features(extract_scop(kernel.kernel), kernel.sizes, per_work_item=True)
    found = dict.fromkeys(("add", "mul", "madd", "div", "barrier"), 0)
    traffic = {(space, direction): [0, 0] for space in ("global", "local") for direction in ("load", "store")}
    for entry in entries:
        words = entry.identifier.split("_")
        if entry.identifier.startswith("f_op_float"):
            found[words[-1]] += int(entry.value)
        elif entry.identifier.startswith("f_mem_access"):
            space = next(word for word in words if word in {"global", "local"})
            direction = next(word for word in words if word in {"load", "store"})
            width = next(WIDTH[word] for word in words if word in WIDTH)
            traffic[space, direction][0] += int(entry.value)
            traffic[space, direction][1] += int(entry.value) * width
        elif entry.identifier == "f_sync_barrier_local":
            found["barrier"] += int(entry.value)
    return found | {f"{space} {direction}": tuple(pair) for (space, direction), pair in traffic.items()}


def signs(kernel) -> tuple[int, int]:
    """Differences a - b: loopy writes a + -1.0f * b, which counts as an addition, and -1 as a sign.

    To Oclgrind, which does not optimise here, it is a product, or one with a sum. Returns how many it takes for the
    first, because the sum is fused with another product already, and how many for the second.
    """
    points = prod(kernel.sizes.values())
    if kernel.generator == "wave3d":  # 2 u - old
        return points, 0
    if kernel.generator == "lbm_d3q15" and kernel.arguments["collide"] == "bgk":  # velocity, and diagonals
        return 0, 6 * points
    return 0, 0


def executed(run: oclgrind.Executed, kernel) -> dict[str, object]:
    """The same, as Oclgrind saw it, with signs as signs."""
    products, fused = signs(kernel)
    found: dict[str, object] = {
        "add": run.adds + fused, "mul": run.muls - products, "madd": run.madds() - fused, "div": run.divs,
        "barrier": run.barriers,
    }  # fmt: skip
    for space in ("global", "local"):
        found[f"{space} load"] = (run.load(space).count, run.load(space).bytes)
        found[f"{space} store"] = (run.store(space).count, run.store(space).bytes)
    return found


@oclgrind.needs_oclgrind
@pytest.mark.parametrize("generator", SMALL)
def test_counts_are_what_oclgrind_executes(generator: str) -> None:
    kernels = KernelCollection(ALL_GENERATORS).generate_kernels([generator, *SMALL[generator]])
    kernels = [kernel for kernel in kernels if kernel.generator == generator]
    assert kernels
    runs = oclgrind.run_jobs([(kernel.kernel, dict(kernel.sizes)) for kernel in kernels])
    for kernel, run in zip(kernels, runs, strict=True):
        assert counted(kernel) == executed(run, kernel), kernel.name
