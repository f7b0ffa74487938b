"""CPU cache volumes, layer conditions and ECM cycles of kernels, from their access relations.

>>> estimate = estimate_ecm(scop, {"N": 1000}, "clx")
>>> estimate.level("L2").load_bytes, estimate.level("memory").cycles   # per iteration
"""

from __future__ import annotations

from perflex.features.cpu.estimate import estimate_ecm
from perflex.features.cpu.result import Condition, EcmEstimate, LevelTraffic

__all__ = ["Condition", "EcmEstimate", "LevelTraffic", "estimate_ecm"]
