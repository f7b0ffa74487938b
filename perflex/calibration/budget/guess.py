"""Rough parameter values before anything was measured: what operations and bytes cost on any current device.

They only steer which kernels are timed first, so being wrong by a factor of ten is good enough.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perflex.errors import CalibrationError
from perflex.expression.roles import find_roles
from perflex.expression.tree import as_column, evaluate
from perflex.fit.problem import Problem
from perflex.fit.starts import start_points

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.expression.model import Model
    from perflex.expression.roles import Monomial, Roles
    from perflex.fit.table import FeatureInfo, FeatureTable

# Seconds; the first prefix that fits counts. Operations and bytes are those of a whole device.
_PER_UNIT = (
    ("f_sync_kernel_launch", 1e-5),
    ("f_chain", 1e-9),
    ("f_sync_barrier", 1e-8),
    ("f_thread_groups", 1e-8),
    ("f_sub_groups", 1e-9),
    ("f_thread_items", 1e-10),
)
# 100 Gop/s, 50 GB/s and 200 GB/s.
_PER_OPERATION = 1e-11
_PER_BYTE = 2e-11
_PER_LOCAL_BYTE = 5e-12
# A cost of unknown kind makes a typical kernel take this long, in seconds.
_TYPICAL = 1e-4


def rough_parameters(model: Model, table: FeatureTable, given: Mapping[str, float]) -> dict[str, float]:
    """Return a rough value for each parameter.

    Parameters
    ----------
    model
        Any differentiable model whose output is a time in seconds.
    table
        The kernels' features, with what they count.
    given
        Values that are known better; they are taken as they are.

    Raises
    ------
    CalibrationError
        A given name is no parameter of the model, or its value is not finite.
    """
    for name, value in given.items():
        if name not in model.params():
            msg = f"the guess contains {name}, which is not a parameter; they are {', '.join(model.params())}"
            raise CalibrationError(msg, parameter=name)
        if not np.isfinite(value):
            msg = f"the guess of {name} is {value}; it must be a finite number"
            raise CalibrationError(msg, parameter=name)
    roles = find_roles(model.tree)
    found = {name: _cost(model, roles, name, table) for name in roles.costs} | dict(given)
    others = [name for name in model.params() if name not in found]
    if others:
        found.update(_shapes(model, roles, table, found, others))
    return {name: float(found[name]) for name in model.params()}


def _cost(model: Model, roles: Roles, name: str, table: FeatureTable) -> float:
    monomials = roles.monomials[name] or ()
    rates = [rate for monomial in monomials if (rate := _rate(monomial, table.info)) is not None]
    if monomials and len(rates) == len(monomials):
        return min(rates)
    values = {feature: table.column(feature) for feature in model.input_features()}
    ones = dict.fromkeys(model.params(), 0.0) | {name: 1.0}
    with np.errstate(all="ignore"):
        column = np.abs(as_column(evaluate(roles.relaxed, {**values, **ones}), len(table)))
    column = column[np.isfinite(column) & (column > 0)]
    return _TYPICAL / float(np.median(column)) if column.size else _TYPICAL


def _rate(monomial: Monomial, info: Mapping[str, FeatureInfo]) -> float | None:
    """Return what one unit of a product of features costs in seconds; None where that is not known."""
    if not monomial.powers or any(exponent != 1.0 for exponent in monomial.powers.values()):
        return None
    known = [rate for feature in monomial.powers if (rate := _unit_cost(feature, info.get(feature))) is not None]
    # Of a product, such as barriers per work-item times work-groups, the cheaper factor sets the cost.
    return min(known) / abs(monomial.coefficient) if known else None


def _unit_cost(feature: str, info: FeatureInfo | None) -> float | None:
    for prefix, seconds in _PER_UNIT:
        if feature.startswith(prefix):
            return seconds
    if info is None or not info.amount:
        return None
    if info.amount_unit == "op":
        return info.amount * _PER_OPERATION
    if info.amount_unit == "B":
        local = feature.startswith(("f_mem_access_local", "f_lmem"))
        return info.amount * (_PER_LOCAL_BYTE if local else _PER_BYTE)
    return None


def _shapes(
    model: Model, roles: Roles, table: FeatureTable, costs: Mapping[str, float], others: list[str]
) -> dict[str, float]:
    """Return values for edges, hidden fractions and the like: where a fit to the costs' sum would start them."""
    values = {feature: table.column(feature) for feature in model.input_features()}
    known = dict.fromkeys(model.params(), 1.0) | dict(costs)
    with np.errstate(all="ignore"):
        output = np.abs(as_column(evaluate(roles.relaxed, {**values, **known}), len(table)))
    output = np.where(np.isfinite(output) & (output > 0), output, _TYPICAL)
    problem = Problem(model, table.kernels, values, output, 1.0 / output, np.ones_like(output))
    points = start_points(problem, roles, 1)
    start = dict(zip(model.params(), points[0], strict=True)) if points else known
    return {name: float(start[name]) for name in others}
