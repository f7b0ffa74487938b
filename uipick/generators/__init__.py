"""The generators that come with uipick, one measurement kernel each."""

from __future__ import annotations

from uipick.generators.flops_pattern import FLOPS_ADD_PATTERN, FLOPS_MADD_PATTERN, FLOPS_MUL_PATTERN
from uipick.generators.gmem_pattern import GMEM_PATTERN
from uipick.generators.matmul import MATMUL_SQ

__all__ = ["ALL_GENERATORS"]

ALL_GENERATORS = (MATMUL_SQ, FLOPS_ADD_PATTERN, FLOPS_MUL_PATTERN, FLOPS_MADD_PATTERN, GMEM_PATTERN)
