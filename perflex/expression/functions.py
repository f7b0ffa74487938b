"""The functions that model strings may call."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce
from operator import add
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

# Keeps shares and imbalances of vanishing costs finite, with their first derivatives (its square is above 1e-308).
_VANISHING = 1e-140


# What formulas are written in, of numbers and `Dual`; `perflex.expression.symbolic` has the same of symbols.
NUMBERS: Any = SimpleNamespace(
    exp=np.exp, log=np.log, sqrt=np.sqrt, tanh=np.tanh, abs=np.abs,
    min=lambda *arguments: reduce(np.minimum, arguments),
    max=lambda *arguments: reduce(np.maximum, arguments),
    is_zero=lambda value: np.where(np.equal(value, 0.0), 1.0, 0.0)[()],
)  # fmt: skip


def smooth_maximum(of: Any, *arguments: Any) -> Any:
    """Return the norm of costs that are not negative, with exponent 1 + sharpness, which is the last argument."""
    *costs, sharpness = arguments
    norm = 1 + sharpness
    # Powers are of shares of the largest, one of which is 1: their sum neither underflows nor overflows.
    scale = of.max(*costs) + _VANISHING
    # The second summand keeps the logarithm of a vanishing share finite; its exponential vanishes all the same.
    shares = [(cost + _VANISHING) / scale + _VANISHING for cost in costs]
    powers = reduce(add, [of.exp(norm * of.log(share)) for share in shares])
    return scale * of.exp(of.log(powers) / norm)


def overlap(of: Any, global_cost: Any, on_chip_cost: Any, edge: Any) -> Any:
    """Return the cost when the smaller of two is hidden (paper Section 7.4, Eqs. 5 and 6); edge in 1/[cost]."""
    # The equations' limit for a vanishing edge, half of the sum, is no overlap of anything: exactly zero stands for
    # devices that do not overlap, as the paper's K40c and C2070.
    total, difference = global_cost + on_chip_cost, global_cost - on_chip_cost
    added = of.is_zero(edge)
    return total / 2 * (1 + added) + difference / 2 * of.tanh(edge * difference) * (1 - added)


def partial_overlap(of: Any, global_cost: Any, on_chip_cost: Any, edge: Any, hidden: Any) -> Any:
    """Return the cost when a fraction of the smaller of two is hidden, a smooth minimum without unit."""
    total = global_cost + on_chip_cost
    step = of.tanh(edge * ((global_cost - on_chip_cost) / (total + _VANISHING)))
    smaller = global_cost * (1 - step) / 2 + on_chip_cost * (step + 1) / 2
    return total - hidden * smaller


@dataclass(frozen=True)
class ShapeRole:
    """What an argument that is no cost says of how costs overlap, and so what a parameter in its place may be."""

    name: str
    # Fits keep to this range, and begin at these values; those of an edge depend on the data.
    lower: float
    upper: float
    starts: tuple[float, ...] = ()
    # The value at which costs are added.
    added: float | None = None

    @property
    def range(self) -> str:
        """The numbers that mean something, in words."""
        return f"{self.lower:g} or more" if self.name != "hidden" else f"{self.lower:g} to {self.upper:g}"

    def allows(self, value: float) -> bool:
        """Return whether a number means something in its place; ranges of fits may end before."""
        return self.lower <= value and (self.name != "hidden" or value <= self.upper)


EDGE = ShapeRole("edge", 0.0, math.inf, added=0.0)
# Below a steepness of 1 a part of each cost would be hidden behind itself.
STEEPNESS = ShapeRole("steepness", 1.0, 100.0, (5.0, 1.5, 20.0))
HIDDEN = ShapeRole("hidden", 0.0, 1.0, (0.8, 0.3, 0.97), added=0.0)
SHARPNESS = ShapeRole("sharpness", 0.0, 1000.0, (3.0, 0.5, 15.0), added=0.0)


@dataclass(frozen=True)
class Function:
    """One function of model strings: how it is called, and its formula, where there is none of its own name."""

    signature: str
    # Two costs or more where it is None.
    arguments: int | None = 1
    formula: Callable[..., Any] | None = None
    # The roles of its last arguments where it lets costs overlap; `hides` where it does so without any.
    shapes: tuple[ShapeRole, ...] = ()
    smooth: bool = True
    hides: bool = False
    costs_at_least_zero: bool = False

    @property
    def name(self) -> str:
        """The name that it is called by."""
        return self.signature.partition("(")[0]

    def __call__(self, of: Any, *arguments: Any) -> Any:
        """Return the value of numbers, `of` being `NUMBERS`, or of what else has their functions."""
        return getattr(of, self.name)(*arguments) if self.formula is None else self.formula(of, *arguments)

    def costs(self, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments that hide one another; none where nothing is hidden."""
        return arguments[: len(arguments) - len(self.shapes)] if self.shapes or self.hides else ()


# Derivatives of min and max jump where another argument takes over; Levenberg-Marquardt relies on smooth ones.
FUNCTIONS = {
    function.name: function
    for function in (
        *map(Function, ("exp(x)", "log(x)", "sqrt(x)", "tanh(x)", "abs(x)")),
        Function("min(x, y, ...)", None, smooth=False),
        Function("max(x, y, ...)", None, smooth=False, hides=True),
        Function("smooth_max(x, y, ..., p_sharp)", None, smooth_maximum, (SHARPNESS,), costs_at_least_zero=True),
        Function("overlap(g, o, p_edge)", 3, overlap, (EDGE,)),
        Function("partial_overlap(g, o, p_edge, p_hidden)", 4, partial_overlap, (STEEPNESS, HIDDEN)),
    )
}
