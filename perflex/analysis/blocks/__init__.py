"""Choosing block sizes of a stencil analytically, from what has to stay in which cache (YaskSite, Section V-A)."""

from __future__ import annotations

from perflex.analysis.blocks.calibrated import calibrate_blocks
from perflex.analysis.blocks.choice import BlockChoice, BlockCondition, choose_block
from perflex.analysis.blocks.grids import Grid, GridStencil, read_grids

__all__ = ["BlockChoice", "BlockCondition", "Grid", "GridStencil", "calibrate_blocks", "choose_block", "read_grids"]
