"""The generators that come with uipick, one measurement kernel each."""

from __future__ import annotations

from uipick.generators._in_core import in_core
from uipick.generators._work_removed import work_removed
from uipick.generators.axpy import AXPY
from uipick.generators.barrier_local import BARRIER_LOCAL
from uipick.generators.conv2d import CONV2D, CONV2D_MEM
from uipick.generators.dg_diff import DG_DIFF, DG_DIFF_MEM
from uipick.generators.dot import DOT
from uipick.generators.empty import EMPTY
from uipick.generators.fdiff import FDIFF
from uipick.generators.flops_chain import FLOPS_ADD_CHAIN, FLOPS_MADD_CHAIN
from uipick.generators.flops_mixed import FLOPS_MIXED_PATTERN
from uipick.generators.flops_pattern import (
    FLOPS_ADD_PATTERN,
    FLOPS_COS_PATTERN,
    FLOPS_DIV_PATTERN,
    FLOPS_EXP_PATTERN,
    FLOPS_MADD_PATTERN,
    FLOPS_MUL_PATTERN,
    FLOPS_RSQRT_PATTERN,
    FLOPS_SIN_PATTERN,
    FLOPS_SQRT_PATTERN,
)
from uipick.generators.gemv import GEMV
from uipick.generators.gmem_gather import GMEM_GATHER
from uipick.generators.gmem_load import GMEM_LOAD
from uipick.generators.gmem_pattern import GMEM_PATTERN
from uipick.generators.gmem_reuse import GMEM_REUSE, GMEM_UNIFORM
from uipick.generators.gmem_store import GMEM_STORE
from uipick.generators.gmem_stream import GMEM_ADD, GMEM_COPY, GMEM_SCALE, GMEM_TRIAD
from uipick.generators.gmem_working_set import GMEM_WORKING_SET
from uipick.generators.grid_scale import GRID_SCALE
from uipick.generators.gsrb import GSRB
from uipick.generators.iops_pattern import (
    IOPS_ADD_PATTERN,
    IOPS_BIT_PATTERN,
    IOPS_MADD_PATTERN,
    IOPS_MUL_PATTERN,
    IOPS_SHIFT_PATTERN,
)
from uipick.generators.launches import LAUNCHES, SMALL_GROUPS
from uipick.generators.lbm_d3q15 import LBM_D3Q15, LBM_D3Q15_MEM
from uipick.generators.lmem_exchange import LMEM_EXCHANGE
from uipick.generators.lmem_load import LMEM_BROADCAST, LMEM_LOAD
from uipick.generators.lmem_madd import LMEM_MADD
from uipick.generators.lmem_move import LMEM_MOVE
from uipick.generators.loop_sum import LOOP_SUM
from uipick.generators.matmul import MATMUL_SQ
from uipick.generators.matmul_batch import MATMUL_BATCH
from uipick.generators.matmul_rb import MATMUL_RB
from uipick.generators.nbody import NBODY
from uipick.generators.op_chain import OP_CHAIN
from uipick.generators.op_map import OP_MAP
from uipick.generators.overlap_madd import OVERLAP_MADD
from uipick.generators.overlap_ratio import OVERLAP_RATIO
from uipick.generators.pirk import PIRK
from uipick.generators.stencil2d import STENCIL2D, STENCIL2D_MEM
from uipick.generators.stencil3d import STENCIL3D, STENCIL3D_MEM
from uipick.generators.transpose import TRANSPOSE
from uipick.generators.wave3d import WAVE3D, WAVE3D_MEM

__all__ = ["ALL_GENERATORS"]

ALL_GENERATORS = (
    MATMUL_SQ,
    work_removed(MATMUL_SQ, ("aLD", "bLD", "cST")),
    in_core(MATMUL_SQ),
    MATMUL_RB,
    work_removed(MATMUL_RB, ("aLD", "bLD", "cST")),
    DG_DIFF,
    DG_DIFF_MEM,
    in_core(DG_DIFF),
    FDIFF,
    work_removed(FDIFF, ("uLD", "resST")),
    in_core(FDIFF),
    TRANSPOSE,
    work_removed(TRANSPOSE, ("aLD", "outST")),
    GEMV,
    work_removed(GEMV, ("aLD", "xLD", "yST")),
    AXPY,
    work_removed(AXPY, ("xLD", "yLD", "yST")),
    DOT,
    # The partial sums are computed: they cannot be kept, and without them nothing is left of the second launch.
    work_removed(DOT, ("xLD", "yLD")),
    MATMUL_BATCH,
    work_removed(MATMUL_BATCH, ("aLD", "bLD", "cST")),
    NBODY,
    work_removed(NBODY, ("ownLD", "bodyLD", "accST")),
    FLOPS_ADD_PATTERN,
    FLOPS_MUL_PATTERN,
    FLOPS_MADD_PATTERN,
    FLOPS_DIV_PATTERN,
    FLOPS_SQRT_PATTERN,
    FLOPS_RSQRT_PATTERN,
    FLOPS_EXP_PATTERN,
    FLOPS_SIN_PATTERN,
    FLOPS_COS_PATTERN,
    IOPS_ADD_PATTERN,
    IOPS_MUL_PATTERN,
    IOPS_MADD_PATTERN,
    IOPS_BIT_PATTERN,
    IOPS_SHIFT_PATTERN,
    FLOPS_MIXED_PATTERN,
    FLOPS_ADD_CHAIN,
    FLOPS_MADD_CHAIN,
    OP_CHAIN,
    OP_MAP,
    GMEM_PATTERN,
    GMEM_LOAD,
    GMEM_STORE,
    GMEM_COPY,
    GMEM_SCALE,
    GMEM_ADD,
    GMEM_TRIAD,
    GMEM_REUSE,
    GMEM_UNIFORM,
    GMEM_WORKING_SET,
    GMEM_GATHER,
    GRID_SCALE,
    LOOP_SUM,
    LMEM_MOVE,
    LMEM_LOAD,
    LMEM_BROADCAST,
    LMEM_MADD,
    LMEM_EXCHANGE,
    BARRIER_LOCAL,
    EMPTY,
    LAUNCHES,
    SMALL_GROUPS,
    OVERLAP_RATIO,
    OVERLAP_MADD,
    # Grids.
    STENCIL2D,
    STENCIL2D_MEM,
    STENCIL3D,
    STENCIL3D_MEM,
    WAVE3D,
    WAVE3D_MEM,
    GSRB,
    CONV2D,
    CONV2D_MEM,
    LBM_D3Q15,
    LBM_D3Q15_MEM,
    PIRK,
)
