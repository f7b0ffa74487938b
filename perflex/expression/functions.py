"""The functions that model strings may call."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.expression.expression_maximum import smooth_maximum
from perflex.expression.expression_overlap import overlap, partial_overlap

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FUNCTIONS", "Function"]


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
    def call(*arguments: Any) -> Any:
        import sympy

        return getattr(sympy, name)(*arguments)

    return call


def _with_tanh(form: Callable[..., Any], tanh: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        return form(*arguments, tanh=tanh)

    return call


def _with_exp_log(form: Callable[..., Any], exp: Callable[..., Any], log: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        return form(*arguments, exp=exp, log=log)

    return call


def _saturate(maximum: Callable[..., Any]) -> Callable[..., Any]:
    def call(single: Any, memory: Any, cores: Any) -> Any:
        return maximum(single / cores, memory)

    return call


def _smooth_saturate(exp: Callable[..., Any], log: Callable[..., Any]) -> Callable[..., Any]:
    def call(single: Any, memory: Any, cores: Any, sharpness: Any) -> Any:
        return smooth_maximum(single / cores, memory, sharpness, exp=exp, log=log)

    return call


def _minimum(*arguments: Any) -> Any:
    return reduce(np.minimum, arguments)


def _maximum(*arguments: Any) -> Any:
    return reduce(np.maximum, arguments)


FUNCTIONS: dict[str, Function] = {
    "exp": Function("exp(x)", 1, np.exp, _sympy("exp")),
    "log": Function("log(x)", 1, np.log, _sympy("log")),
    "sqrt": Function("sqrt(x)", 1, np.sqrt, _sympy("sqrt")),
    "tanh": Function("tanh(x)", 1, np.tanh, _sympy("tanh")),
    "abs": Function("abs(x)", 1, np.abs, _sympy("Abs")),
    "min": Function("min(x, y, ...)", None, _minimum, _sympy("Min"), smooth=False),
    "max": Function("max(x, y, ...)", None, _maximum, _sympy("Max"), smooth=False),
    "smooth_max": Function(
        "smooth_max(x, y, ..., p_sharp)",
        None,
        _with_exp_log(smooth_maximum, np.exp, np.log),
        _with_exp_log(smooth_maximum, _sympy("exp"), _sympy("log")),
        copies=8,
        least=3,
    ),
    # Time on some cores that share a memory (YaskSite, Equation 7a).
    "saturate": Function(
        "saturate(t_single, t_mem, cores)", 3, _saturate(_maximum), _saturate(_sympy("Max")), smooth=False
    ),
    "smooth_saturate": Function(
        "smooth_saturate(t_single, t_mem, cores, p_sharp)",
        4,
        _smooth_saturate(np.exp, np.log),
        _smooth_saturate(_sympy("exp"), _sympy("log")),
        copies=8,
    ),
    "overlap": Function(
        "overlap(g, o, p_edge)",
        3,
        _with_tanh(overlap, np.tanh),
        _with_tanh(overlap, _sympy("tanh")),
        copies=6,
    ),
    "partial_overlap": Function(
        "partial_overlap(g, o, p_edge, p_hidden)",
        4,
        _with_tanh(partial_overlap, np.tanh),
        _with_tanh(partial_overlap, _sympy("tanh")),
        copies=10,
    ),
}
