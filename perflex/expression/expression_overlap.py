"""Smooth overlap of two costs: the composite functions of model strings.

Each takes the `tanh` to use, so that one definition serves numbers (numpy) and symbols (sympy), and its
derivatives follow from the same text.
"""

from __future__ import annotations

from typing import Any

__all__ = ["overlap", "partial_overlap"]

# Keeps the imbalance of two vanishing costs finite, together with its first derivatives (square below 1e308).
_VANISHING = 1e-140


def overlap(global_cost: Any, on_chip_cost: Any, edge: Any, tanh: Any) -> Any:
    """Return the cost when the smaller of two costs is hidden (paper Section 7.4, Eqs. 5 and 6).

    ``g * s(g - o) + o * s(o - g)`` with ``s(x) = (tanh(edge * x) + 1) / 2``. For a large edge this is
    ``max(g, o)``; for finite ones it is below that by at most ``0.14 / edge``, never below the mean of both.

    Parameters
    ----------
    global_cost, on_chip_cost
        The two costs g and o, in seconds (or whatever the output feature is).
    edge
        Abruptness of the step, in 1/[cost].
    tanh
        Hyperbolic tangent for the kind of the other arguments.
    """
    difference = global_cost - on_chip_cost

    def step(x: Any) -> Any:
        return (tanh(edge * x) + 1) / 2

    return global_cost * step(difference) + on_chip_cost * step(-difference)


def partial_overlap(global_cost: Any, on_chip_cost: Any, edge: Any, hidden: Any, tanh: Any) -> Any:
    """Return the cost when a fraction of the smaller of two costs is hidden.

    ``g + o - hidden * h`` with the smooth minimum ``h = g * s((o - g) / (g + o)) + o * s((g - o) / (g + o))``
    and ``s(x) = (tanh(edge * x) + 1) / 2``: a variation of the paper's Eq. 6 with one more parameter, as its
    Section 7.4 suggests. Unlike `overlap` it is homogeneous of degree one in the costs, so the same
    parameters hold for short and for long kernels. With ``hidden = 0`` it is ``g + o``; with ``hidden = 1``
    and a large edge it is ``max(g, o)``, below which it may fall by at most ``0.14 * (g + o) / edge``.

    Parameters
    ----------
    global_cost, on_chip_cost
        The two costs g and o, not negative, in seconds (or whatever the output feature is).
    edge
        Abruptness of the step, dimensionless; useful between about 1 and 100.
    hidden
        Fraction of the smaller cost that is hidden, between 0 and 1.
    tanh
        Hyperbolic tangent for the kind of the other arguments.
    """
    total = global_cost + on_chip_cost
    imbalance = (global_cost - on_chip_cost) / (total + _VANISHING)
    smaller = global_cost * (1 - tanh(edge * imbalance)) / 2 + on_chip_cost * (tanh(edge * imbalance) + 1) / 2
    return total - hidden * smaller
