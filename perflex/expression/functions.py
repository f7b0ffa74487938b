"""The functions that model strings may call."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

# Keeps shares and imbalances of vanishing costs finite, with their first derivatives (its square is above 1e-308).
_VANISHING = 1e-140


def smooth_maximum(*arguments: Any, exp: Callable[[Any], Any], log: Callable[[Any], Any]) -> Any:
    """Return a cost between the sum of costs and the largest of them.

    The (1 + sharpness)-norm ``(x**q + y**q + ...)**(1/q)`` with ``q = 1 + sharpness``: the sum at sharpness 0 (nothing
    is hidden), towards the maximum as it grows (all but the largest is hidden), above which it is by at most the
    factor ``n**(1/q)`` for n costs. Homogeneous of degree one in the costs, so the same sharpness holds for short and
    for long kernels; a cost of zero adds nothing.

    Parameters
    ----------
    arguments
        Two or more costs, not negative, in seconds (or whatever the output feature is), then the sharpness:
        dimensionless, zero or more, useful up to about 100.
    exp, log
        Exponential and logarithm for the kind of the arguments.
    """
    *costs, sharpness = arguments
    norm = 1 + sharpness
    # Powers are of shares of the sum: powers of seconds would leave the range of floating point numbers.
    total = reduce(add, costs) + _VANISHING
    # The summand inside the logarithm keeps that of a zero cost finite; its exponential vanishes all the same.
    powers = reduce(add, [exp(norm * log(cost / total + _VANISHING)) for cost in costs])
    return total * exp(log(powers) / norm)


def overlap(global_cost: Any, on_chip_cost: Any, edge: Any, *, tanh: Any) -> Any:
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


def partial_overlap(global_cost: Any, on_chip_cost: Any, edge: Any, hidden: Any, *, tanh: Any) -> Any:
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


@dataclass(frozen=True)
class Function:
    """One function of model strings.

    Attributes
    ----------
    signature
        How it is called, for messages.
    arguments
        Number of arguments; None for `least` or more.
    numeric
        Its value on numbers and arrays.
    symbolic
        Its value on sympy expressions.
    smooth
        Whether it can be differentiated with respect to parameters in its arguments.
    least
        Smallest number of arguments where any number will do.
    copies
        How often an argument appears in the written-out function; bounds the size of written-out models.
    """

    signature: str
    arguments: int | None
    numeric: Callable[..., Any]
    symbolic: Callable[..., Any]
    smooth: bool = True
    copies: int = 1
    least: int = 2


def _sympy(name: str) -> Callable[..., Any]:
    # Imported at the first call: numbers alone do not need sympy, which takes long to load.
    def call(*arguments: Any) -> Any:
        import sympy

        return getattr(sympy, name)(*arguments)

    return call


def _saturate(single: Any, memory: Any, cores: Any, *, maximum: Callable[..., Any]) -> Any:
    # Time on some cores that share a memory (YaskSite, Equation 7a).
    return maximum(single / cores, memory)


def _smooth_saturate(single: Any, memory: Any, cores: Any, sharpness: Any, **exp_and_log: Callable[..., Any]) -> Any:
    return smooth_maximum(single / cores, memory, sharpness, **exp_and_log)


def _minimum(*arguments: Any) -> Any:
    return reduce(np.minimum, arguments)


def _maximum(*arguments: Any) -> Any:
    return reduce(np.maximum, arguments)


_EXP_LOG = {"exp": np.exp, "log": np.log}
_SYMBOLIC_EXP_LOG = {"exp": _sympy("exp"), "log": _sympy("log")}

FUNCTIONS: dict[str, Function] = {
    "exp": Function("exp(x)", 1, np.exp, _sympy("exp")),
    "log": Function("log(x)", 1, np.log, _sympy("log")),
    "sqrt": Function("sqrt(x)", 1, np.sqrt, _sympy("sqrt")),
    "tanh": Function("tanh(x)", 1, np.tanh, _sympy("tanh")),
    "abs": Function("abs(x)", 1, np.abs, _sympy("Abs")),
    # Derivatives of min and max jump where another argument takes over; Levenberg-Marquardt relies on smooth ones.
    "min": Function("min(x, y, ...)", None, _minimum, _sympy("Min"), smooth=False),
    "max": Function("max(x, y, ...)", None, _maximum, _sympy("Max"), smooth=False),
    "smooth_max": Function(
        "smooth_max(x, y, ..., p_sharp)",
        None,
        partial(smooth_maximum, **_EXP_LOG),
        partial(smooth_maximum, **_SYMBOLIC_EXP_LOG),
        copies=8,
        least=3,
    ),
    "saturate": Function(
        "saturate(t_single, t_mem, cores)",
        3,
        partial(_saturate, maximum=_maximum),
        partial(_saturate, maximum=_sympy("Max")),
        smooth=False,
    ),
    "smooth_saturate": Function(
        "smooth_saturate(t_single, t_mem, cores, p_sharp)",
        4,
        partial(_smooth_saturate, **_EXP_LOG),
        partial(_smooth_saturate, **_SYMBOLIC_EXP_LOG),
        copies=8,
    ),
    "overlap": Function(
        "overlap(g, o, p_edge)",
        3,
        partial(overlap, tanh=np.tanh),
        partial(overlap, tanh=_sympy("tanh")),
        copies=6,
    ),
    "partial_overlap": Function(
        "partial_overlap(g, o, p_edge, p_hidden)",
        4,
        partial(partial_overlap, tanh=np.tanh),
        partial(partial_overlap, tanh=_sympy("tanh")),
        copies=10,
    ),
}
