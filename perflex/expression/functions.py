"""The functions that model strings may call."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial, reduce
from importlib import import_module
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

# Keeps shares and imbalances of vanishing costs finite, with their first derivatives (its square is above 1e-308).
_VANISHING = 1e-140


def smooth_maximum(
    *arguments: Any, exp: Callable[[Any], Any], log: Callable[[Any], Any], largest: Callable[..., Any]
) -> Any:
    """Return the (1 + sharpness)-norm of costs that are not negative; the sharpness is the last argument.

    The sum at sharpness 0 (nothing is hidden), towards the maximum as it grows, above which it is by at most the
    factor ``n**(1/q)`` for n costs and ``q = 1 + sharpness``. Homogeneous of degree one in the costs, so the same
    sharpness holds for short and for long kernels. A derivative may take `largest` for a constant, since it cancels.
    """
    *costs, sharpness = arguments
    norm = 1 + sharpness
    # Powers are of shares of the largest, one of which is 1: their sum neither underflows nor overflows.
    scale = largest(*costs) + _VANISHING
    # The second summand keeps the logarithm of a vanishing share finite; its exponential vanishes all the same.
    shares = [(cost + _VANISHING) / scale + _VANISHING for cost in costs]
    powers = reduce(add, [exp(norm * log(share)) for share in shares])
    return scale * exp(log(powers) / norm)


def overlap(
    global_cost: Any, on_chip_cost: Any, edge: Any, *, tanh: Callable[[Any], Any], is_zero: Callable[[Any], Any]
) -> Any:
    """Return the cost when the smaller of two costs is hidden (paper Section 7.4, Eqs. 5 and 6); edge in 1/[cost].

    ``g * s(g - o) + o * s(o - g)`` with ``s(x) = (tanh(edge * x) + 1) / 2``. For a large edge this is
    ``max(g, o)``; for finite ones it is below that by at most ``0.14 / edge``, never below the mean of both.
    The equations' limit for a vanishing edge, half of the sum, is no overlap of anything. An edge of exactly zero
    stands for devices that do not overlap, as the paper's K40c and C2070: the value is then ``g + o``.
    """
    total, difference = global_cost + on_chip_cost, global_cost - on_chip_cost
    added = is_zero(edge)
    return total / 2 * (1 + added) + difference / 2 * tanh(edge * difference) * (1 - added)


def partial_overlap(global_cost: Any, on_chip_cost: Any, edge: Any, hidden: Any, *, tanh: Any) -> Any:
    """Return the cost when a fraction of the smaller of two costs is hidden.

    ``g + o - hidden * h`` with the smooth minimum ``h = g * s((o - g) / (g + o)) + o * s((g - o) / (g + o))``
    and ``s(x) = (tanh(edge * x) + 1) / 2``: a variation of the paper's Eq. 6 with one more parameter, as its
    Section 7.4 suggests. Unlike `overlap` it is homogeneous of degree one in the costs, so the same
    parameters hold for short and for long kernels. With ``hidden = 0`` it is ``g + o``; with ``hidden = 1``
    and a large edge it is ``max(g, o)``, below which it may fall by at most ``0.14 * (g + o) / edge``.
    """
    total = global_cost + on_chip_cost
    imbalance = (global_cost - on_chip_cost) / (total + _VANISHING)
    smaller = global_cost * (1 - tanh(edge * imbalance)) / 2 + on_chip_cost * (tanh(edge * imbalance) + 1) / 2
    return total - hidden * smaller


@dataclass(frozen=True)
class ShapeRole:
    """What an argument that is no cost says of how costs overlap, and so what a parameter in its place may be.

    Fits keep to `lower` and `upper` and begin at `starts`; those of an edge depend on the data. Costs are added where
    the parameter is `added`, which is None where no value does so.
    """

    name: str
    lower: float
    upper: float
    starts: tuple[float, ...] = ()
    added: float | None = None


EDGE = ShapeRole("edge", 0.0, math.inf, added=0.0)
# Below a steepness of 1 a part of each cost would be hidden behind itself.
STEEPNESS = ShapeRole("steepness", 1.0, 100.0, (5.0, 1.5, 20.0))
HIDDEN = ShapeRole("hidden", 0.0, 1.0, (0.8, 0.3, 0.97), added=0.0)
SHARPNESS = ShapeRole("sharpness", 0.0, 1000.0, (3.0, 0.5, 15.0), added=0.0)


@dataclass(frozen=True)
class Function:
    """One function of model strings: how it is called, and its value on numbers (arrays) and on sympy expressions.

    It takes so many `arguments`, or with None `least` or more. `shapes` are the roles of its last arguments where it
    lets costs overlap, and `after_costs` says how many arguments follow the costs; None where nothing is hidden.
    """

    signature: str
    arguments: int | None
    numeric: Callable[..., Any]
    symbolic: Callable[..., Any]
    smooth: bool = True
    least: int = 2
    shapes: tuple[ShapeRole, ...] = ()
    costs_at_least_zero: bool = False
    after_costs: int | None = None


def _sympy(name: str, module: str = "sympy") -> Callable[..., Any]:
    # Imported at the first call: numbers alone do not need sympy, which takes long to load.
    def call(*arguments: Any) -> Any:
        return getattr(import_module(module), name)(*arguments)

    return call


def _held(name: str) -> Callable[..., Any]:
    return _sympy(name, "perflex.expression.symbolic")


def _maximum(*arguments: Any) -> Any:
    return reduce(np.maximum, arguments)


def _is_zero(value: Any) -> Any:
    return np.where(np.equal(value, 0.0), 1.0, 0.0)[()]


_OF_NUMBERS: dict[str, Callable[..., Any]] = {"exp": np.exp, "log": np.log, "largest": _maximum}
_OF_SYMBOLS: dict[str, Callable[..., Any]] = {"exp": _sympy("exp"), "log": _sympy("log"), "largest": _held("largest")}

FUNCTIONS: dict[str, Function] = {
    "exp": Function("exp(x)", 1, np.exp, _sympy("exp")),
    "log": Function("log(x)", 1, np.log, _sympy("log")),
    "sqrt": Function("sqrt(x)", 1, np.sqrt, _sympy("sqrt")),
    "tanh": Function("tanh(x)", 1, np.tanh, _sympy("tanh")),
    "abs": Function("abs(x)", 1, np.abs, _sympy("Abs")),
    # Derivatives of min and max jump where another argument takes over; Levenberg-Marquardt relies on smooth ones.
    "min": Function("min(x, y, ...)", None, lambda *x: reduce(np.minimum, x), _sympy("Min"), smooth=False),
    "max": Function("max(x, y, ...)", None, _maximum, _sympy("Max"), smooth=False, after_costs=0),
    "smooth_max": Function(
        "smooth_max(x, y, ..., p_sharp)",
        None,
        partial(smooth_maximum, **_OF_NUMBERS),
        partial(smooth_maximum, **_OF_SYMBOLS),
        least=3,
        shapes=(SHARPNESS,),
        costs_at_least_zero=True,
        after_costs=1,
    ),
    "overlap": Function(
        "overlap(g, o, p_edge)",
        3,
        partial(overlap, tanh=np.tanh, is_zero=_is_zero),
        partial(overlap, tanh=_sympy("tanh"), is_zero=_held("is_zero")),
        shapes=(EDGE,),
        after_costs=1,
    ),
    "partial_overlap": Function(
        "partial_overlap(g, o, p_edge, p_hidden)",
        4,
        partial(partial_overlap, tanh=np.tanh),
        partial(partial_overlap, tanh=_sympy("tanh")),
        shapes=(STEEPNESS, HIDDEN),
        after_costs=2,
    ),
}
