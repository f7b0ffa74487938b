"""Units of parameters, and the rates that costs stand for (paper Table 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.expression.roles import Monomial, Roles
    from perflex.fit.table import FeatureInfo


@dataclass(frozen=True)
class ParameterUnit:
    """Unit of a parameter.

    Attributes
    ----------
    unit
        E.g. ``"s per sub-group operation"``; ``"1"`` for a pure number, empty where it is not known.
    amount
        How much work one unit of cost pays for: the rate is amount / value; None where there is no rate.
    rate_unit
        E.g. ``"op/s"``; empty where there is no rate.
    """

    unit: str
    amount: float | None = None
    rate_unit: str = ""


def output_unit(output: str, info: Mapping[str, FeatureInfo]) -> str:
    """Return the unit of the output feature."""
    if output in info:
        return info[output].unit
    return "s" if output.startswith(("f_cl_wall_time", "f_cuda_wall_time")) else output


def parameter_units(
    parameters: list[str], roles: Roles, output: str, info: Mapping[str, FeatureInfo]
) -> dict[str, ParameterUnit]:
    """Return the unit of each parameter of a model.

    Parameters
    ----------
    parameters
        The model's parameters.
    roles
        What each of them is.
    output
        The output feature.
    info
        What each feature counts; features it lacks are named in the unit by themselves.
    """
    seconds = output_unit(output, info)
    units = {}
    for name in parameters:
        if name in roles.edges:
            units[name] = ParameterUnit(f"1/{seconds}")
        elif name in roles.shapes:
            units[name] = ParameterUnit("1")
        else:
            monomials = roles.monomials.get(name)
            rate = name in roles.rates
            units[name] = _cost_unit(monomials, seconds, info, rate=rate) if monomials else ParameterUnit("")
    return units


def _cost_unit(
    monomials: tuple[Monomial, ...], seconds: str, info: Mapping[str, FeatureInfo], *, rate: bool
) -> ParameterUnit:
    texts = {_monomial_unit(monomial, info) for monomial in monomials}
    # A cost of different things, such as loads and stores, has no one unit and no rate.
    if len(texts) != 1:
        return ParameterUnit("")
    text = texts.pop()
    unit = f"{seconds} per {text}" if text else seconds
    if rate:
        unit = f"{text or 1}/{seconds}"
    amounts = {_amount(monomial, info) for monomial in monomials}
    amount, amount_unit = amounts.pop() if len(amounts) == 1 else (None, "")
    if amount is None or not amount_unit:
        return ParameterUnit(unit)
    return ParameterUnit(unit, amount, f"{amount_unit}/{seconds}")


def _monomial_unit(monomial: Monomial, info: Mapping[str, FeatureInfo]) -> str:
    parts = []
    for feature, exponent in monomial.powers.items():
        part = info[feature].unit if feature in info else feature
        parts.append(part if exponent == 1 else f"{part}^{exponent:g}")
    return parts[0] if len(parts) == 1 else f"({' * '.join(parts)})" if parts else ""


def _amount(monomial: Monomial, info: Mapping[str, FeatureInfo]) -> tuple[float | None, str]:
    if len(monomial.powers) != 1:
        return None, ""
    ((feature, exponent),) = monomial.powers.items()
    if exponent != 1 or feature not in info or info[feature].amount is None or monomial.coefficient <= 0:
        return None, ""
    # In ``p * 2 * f`` a unit of f costs 2 p, so that its rate is amount / (2 p).
    amount = info[feature].amount
    return (None, "") if amount is None else (amount / monomial.coefficient, info[feature].amount_unit)
