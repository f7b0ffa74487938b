"""The smooth maximum of costs in model strings."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["smooth_maximum"]

# Keeps the share of a cost that is zero finite under a logarithm, together with its derivatives.
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
    powers = reduce(add, [exp(norm * log(cost / total + _VANISHING)) for cost in costs])
    return total * exp(log(powers) / norm)
