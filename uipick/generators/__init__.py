"""The generators that come with uipick, one measurement kernel each."""

from __future__ import annotations

from uipick.generators._declared import in_core, work_removed
from uipick.generators.applications import CONV2D, CONV2D_MEM, NBODY, TRANSPOSE
from uipick.generators.arithmetic import FLOPS_CHAINS, FLOPS_PATTERNS, IOPS_PATTERNS
from uipick.generators.dense import AXPY, DOT, GEMV, MATMUL_BATCH, MATMUL_RB, MATMUL_SQ
from uipick.generators.dg_diff import DG_DIFF, DG_DIFF_MEM, FDIFF
from uipick.generators.global_memory import (
    GMEM_GATHER,
    GMEM_LOAD,
    GMEM_PATTERN,
    GMEM_REUSE,
    GMEM_STORE,
    GMEM_STREAMS,
    GMEM_UNIFORM,
    GMEM_WORKING_SET,
    LOOP_SUM,
)
from uipick.generators.grids import GSRB, LBM_D3Q15, LBM_D3Q15_MEM, PIRK
from uipick.generators.launches import EMPTY, GRID_SCALE, LAUNCHES, OVERLAP_MADD, OVERLAP_RATIO, SMALL_GROUPS
from uipick.generators.local_memory import BARRIER_LOCAL, LMEM_BROADCAST, LMEM_EXCHANGE, LMEM_LOAD, LMEM_MADD, LMEM_MOVE
from uipick.generators.operations import OP_CHAIN, OP_MAP
from uipick.generators.stencils import STENCIL2D, STENCIL2D_MEM, STENCIL3D, STENCIL3D_MEM, WAVE3D, WAVE3D_MEM

__all__ = ["ALL_GENERATORS"]

ALL_GENERATORS = (
    MATMUL_SQ, work_removed(MATMUL_SQ, ("aLD", "bLD", "cST")), in_core(MATMUL_SQ),
    MATMUL_RB, work_removed(MATMUL_RB, ("aLD", "bLD", "cST")),
    DG_DIFF, DG_DIFF_MEM, in_core(DG_DIFF),
    FDIFF, work_removed(FDIFF, ("uLD", "resST")), in_core(FDIFF),
    TRANSPOSE, work_removed(TRANSPOSE, ("aLD", "outST")),
    GEMV, work_removed(GEMV, ("aLD", "xLD", "yST")),
    AXPY, work_removed(AXPY, ("xLD", "yLD", "yST")),
    # The partial sums are computed: they cannot be kept, and without them nothing is left of the second launch.
    DOT, work_removed(DOT, ("xLD", "yLD")),
    MATMUL_BATCH, work_removed(MATMUL_BATCH, ("aLD", "bLD", "cST")),
    NBODY, work_removed(NBODY, ("ownLD", "bodyLD", "accST")),
    *FLOPS_PATTERNS, *IOPS_PATTERNS, *FLOPS_CHAINS, OP_CHAIN, OP_MAP,
    GMEM_PATTERN, GMEM_LOAD, GMEM_STORE, *GMEM_STREAMS, GMEM_REUSE, GMEM_UNIFORM, GMEM_WORKING_SET, GMEM_GATHER,
    GRID_SCALE, LOOP_SUM,
    LMEM_MOVE, LMEM_LOAD, LMEM_BROADCAST, LMEM_MADD, LMEM_EXCHANGE, BARRIER_LOCAL,
    EMPTY, LAUNCHES, SMALL_GROUPS, OVERLAP_RATIO, OVERLAP_MADD,
    # Grids.
    STENCIL2D, STENCIL2D_MEM, STENCIL3D, STENCIL3D_MEM, WAVE3D, WAVE3D_MEM,
    GSRB, CONV2D, CONV2D_MEM, LBM_D3Q15, LBM_D3Q15_MEM, PIRK,
)  # fmt: skip
