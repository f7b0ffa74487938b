"""Kernels that a hostile but competent user of loopy would write; `NASTY` holds them all."""

from __future__ import annotations

from . import domains, expressions
from .collection import NASTY, NastyKernel

__all__ = ["NASTY", "NastyKernel", "domains", "expressions"]
