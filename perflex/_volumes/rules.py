"""How the variants of the estimator count wavefronts, and their capacity curves.

All curves have the form a exp(-b exp(-c O)) in an oversubscription O (Ernst, Holzer, Hager, Knorr, Wellein: Analytical
Performance Estimation during Code Generation on Modern GPUs, Section 4.5).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp

__all__ = ["PAPER_CURVES", "VARIANTS", "gompertz"]

VARIANTS = ("current", "paper2022")


def gompertz(curve: tuple[float, float, float], oversubscription: float) -> float:
    """Return a exp(-b exp(-c O))."""
    a, b, c = curve
    return a * exp(-b * exp(min(-c * oversubscription, 700.0)))


@dataclass(frozen=True)
class PaperCurves:
    """The curves of the paper's tool at the time of the paper; two predict misses, three hits."""

    l1_miss: tuple[float, float, float] = (0.73, 4.6, 0.34)
    y_hit: tuple[float, float, float] = (1.0, 0.06347897995, -1.03)
    z_hit: tuple[float, float, float] = (1.0, 0.0036, -3.97)
    load_miss: tuple[float, float, float] = (0.5, 13.0, 1.8)
    store_hit: tuple[float, float, float] = (1.0, 0.044, -0.61)


PAPER_CURVES = PaperCurves()
