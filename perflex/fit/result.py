"""What a fit hands back: parameters with their units and the rates they stand for, and how well they fit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from perflex.fit.confidence import parameter_intervals
from perflex.fit.coordinates import coordinates_of
from perflex.html import shown_by
from perflex.tables import Table, fixed, number, percent, text
from perflex.yaml_file import Fields, Finite

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perflex.expression.model import Model
    from perflex.expression.roles import Monomial, ParameterRole, Roles
    from perflex.fit.coordinates import Coordinates
    from perflex.fit.options import Prior, Residual
    from perflex.fit.problem import Problem
    from perflex.fit.table import FeatureInfo

_LEAST_ERROR = 1e-6
# The 97.5 % quantile of a normal distribution: spreads of priors are widened for few devices already.
_NORMAL_95 = 1.959964


def geometric_mean_error(errors: object) -> float:
    """Return the geometric mean of the sizes of relative errors (paper Section 8), a fraction; nan if there are none.

    nan is left out. Errors below 1e-6 count as 1e-6, so that one chance hit does not make the mean zero.
    """
    sizes = _sizes(errors)
    return float(np.exp(np.mean(np.log(np.maximum(sizes, _LEAST_ERROR))))) if sizes.size else math.nan


def describe_errors(errors: object) -> str:
    """Return geometric mean, median, root mean square and maximum of the sizes of relative errors, in percent."""
    if not (measures := _measures(_sizes(errors))):
        return "no errors known"
    named = zip(("geometric mean", "median", "rms", "maximum"), measures, strict=True)
    return ", ".join(f"{name} {100 * size:.3g} %" for name, size in named)


def _measures(sizes: NDArray[np.float64]) -> list[float]:
    if not sizes.size:
        return []
    return [geometric_mean_error(sizes), *map(float, (np.median(sizes), np.sqrt(np.mean(sizes**2)), sizes.max()))]


def _sizes(errors: object) -> NDArray[np.float64]:
    sizes = np.abs(np.asarray(errors, dtype=np.float64)).ravel()
    known: NDArray[np.float64] = sizes[~np.isnan(sizes)]
    return known


class ParameterEstimate(Fields, frozen=True, omit_defaults=True):
    """A fitted parameter, as it stands in a calibration's file, too."""

    # E.g. ``"p_f32madd"``, ``3.1e-12``, ``"s per sub-group operation"``; the unit is ``"1"`` for a pure number and
    # empty where it is not known.
    name: str
    value: Finite
    unit: str
    # In the same unit; nan if there is none (no rows to spare, held at its bound, or not determined).
    standard_error: float
    # What a cost, or a rate, amounts to per second, e.g. ``1.0e13`` and ``"op/s"`` (paper Table 3); None where the
    # notion makes no sense.
    rate: Finite | None = None
    rate_unit: str = ""
    # ``"cost"`` for what multiplies features, ``"rate"`` for what divides them, ``"shape"`` for all else.
    kind: Literal["cost", "rate", "shape"] = "cost"
    # Whether its value is that of a bound which holds it: zero for a cost, 1 for all of a cost hidden.
    at_bound: bool = False
    # Whether the measurement kernels determine it.
    determined: bool = True

    @property
    def negative(self) -> bool:
        """Whether this is a cost below zero: not physical, a sign that the model or the kernels are lacking."""
        return self.kind != "shape" and self.value < 0 and self.determined

    @property
    def flags(self) -> str:
        """Its particularities in words."""
        # Such as of an edge or sharpness beyond which larger ones fit as well.
        vague = self.kind == "shape" and self.standard_error > abs(self.value)
        words = {
            "negative cost": self.negative,
            f"at bound {self.value:g}": self.at_bound,
            "undetermined": not self.determined,
            "error above value": vague,
        }
        return ", ".join(word for word, holds in words.items() if holds)


class FitStatus(Fields, frozen=True):
    """How the minimisation went."""

    # Whether a minimum was reached.
    valid: bool
    reason: str
    # Evaluations of the residual, all starts together.
    evaluations: int
    starts: int
    # How many of them reached the best minimum.
    starts_at_optimum: int


# Compared as the mapping it is: a generated comparison would fail on the covariance, for arrays have no truth value.
@dataclass(frozen=True, eq=False)
class FitResult(Mapping[str, float]):
    """Fitted parameters: a mapping from parameter to value, with everything needed to judge them."""

    # One estimate per parameter, in the model's order.
    parameters: tuple[ParameterEstimate, ...]
    # What was fitted: the model, the rows, and which residual.
    problem: Problem
    status: FitStatus
    # Shape ``(n, n)``, in products of the parameters' units; nan where there is none. With a prior that of the
    # posterior.
    covariance: NDArray[np.float64]
    # Of the Jacobian with columns of length one, over the determined parameters, those at bounds included: of the
    # problem without bounds, which hide that features grow together.
    condition_number: float
    # Parameters that the rows hardly tell apart, one of them held by its bound.
    collinear: tuple[str, ...] = ()
    # Whether costs were kept at or above zero.
    nonnegative: bool = True
    # Work-items per sub-group that the features were counted with.
    sub_group_size: int = 32
    # What was known of the parameters before; None for a fit to the rows alone. Parameters are then the mode of the
    # posterior in their logarithms.
    prior: Prior | None = None

    def __getitem__(self, name: str) -> float:
        """Return the value of a parameter."""
        return self.parameter(name).value

    def __iter__(self) -> Iterator[str]:
        """Iterate over the parameters' names."""
        return (parameter.name for parameter in self.parameters)

    def __len__(self) -> int:
        """Return the number of parameters."""
        return len(self.parameters)

    def parameter(self, name: str) -> ParameterEstimate:
        """Return the estimate of a parameter; a KeyError where there is none."""
        for parameter in self.parameters:
            if parameter.name == name:
                return parameter
        raise KeyError(name)

    @cached_property
    def vector(self) -> NDArray[np.float64]:
        """The parameters' values, shape ``(n,)``."""
        return np.array([parameter.value for parameter in self.parameters], dtype=np.float64)

    @property
    def free(self) -> list[int]:
        """Columns of the parameters that the fit could move: determined, and not held at a bound."""
        return [i for i, parameter in enumerate(self.parameters) if parameter.determined and not parameter.at_bound]

    @property
    def kernels(self) -> tuple[str, ...]:
        """Label of each row."""
        return self.problem.kernels

    @property
    def residual(self) -> Residual:
        """Which errors were squared and added up: relative, logarithmic or absolute ones."""
        return self.problem.kind

    @cached_property
    def relative_errors(self) -> tuple[float, ...]:
        """(predicted - measured) / measured of each row."""
        with np.errstate(all="ignore"):
            ratio = self.problem.predict(self.vector) / self.problem.output
        return tuple(map(float, np.where(self.problem.output != 0, ratio - 1, np.nan)))

    @property
    def residual_norm(self) -> float:
        """Euclidean norm of the residual (paper Section 7.2); of absolute ones in the output's unit."""
        return float(np.linalg.norm(self.problem.residual(self.vector)))

    @property
    def degrees_of_freedom(self) -> int:
        """Rows less the parameters determined by them; with a prior all rows, for it counts as much as parameters."""
        return len(self.kernels) - (0 if self.prior is not None else len(self.free))

    @property
    def undetermined(self) -> tuple[str, ...]:
        """Parameters that the measurement kernels do not determine."""
        return tuple(parameter.name for parameter in self.parameters if not parameter.determined)

    @property
    def no_overlap(self) -> tuple[str, ...]:
        """Edges, hidden fractions and sharpnesses of 0, which say that costs are those of their sum."""
        roles = self.problem.roles.of
        return tuple(p.name for p in self.parameters if roles[p.name].added == p.value)

    @cached_property
    def coordinates(self) -> Coordinates:
        """What the fit moved: not the edges that were chosen, of costs that are added or of their maximum."""
        found = coordinates_of(self.problem, nonnegative=self.nonnegative)
        for index, parameter in enumerate(self.parameters):
            chosen = parameter.name in self.no_overlap or not parameter.determined
            if chosen and self.problem.roles.of[parameter.name].kind == "edge":
                found = found.with_fixed(index, parameter.value)
        return found

    @cached_property
    def intervals(self) -> NDArray[np.float64]:
        """The 95 % confidence interval of each parameter, shape ``(n, 2)``; nan where there is none."""
        if self.prior is not None:
            with np.errstate(all="ignore"):
                errors = np.array([parameter.standard_error for parameter in self.parameters]) / self.vector
            factor = np.exp(_NORMAL_95 * np.nan_to_num(errors))
            return np.column_stack([self.vector / factor, self.vector * factor])
        moving = zip(self.parameters, self.coordinates.moving, strict=True)
        determined = [i for i, (parameter, moves) in enumerate(moving) if moves and parameter.determined]
        return parameter_intervals(self.problem, self.vector, determined, self.coordinates)

    def interval(self, name: str) -> tuple[float, float]:
        """Return the 95 % confidence interval of a parameter, in its unit; nan where there is none.

        It accounts for bounds (`perflex.fit.confidence`), as ``value +- t * standard_error`` does not: a bound that
        holds one of two costs at zero makes the other's standard error small.
        """
        self.parameter(name)
        low, high = self.intervals[list(self).index(name)]
        return float(low), float(high)

    @property
    def negative_costs(self) -> tuple[str, ...]:
        """Costs that came out below zero."""
        return tuple(parameter.name for parameter in self.parameters if parameter.negative)

    @property
    def at_bound(self) -> tuple[str, ...]:
        """Parameters that a bound holds; it is their value."""
        return tuple(parameter.name for parameter in self.parameters if parameter.at_bound)

    @property
    def geometric_mean_error(self) -> float:
        """Geometric mean of the rows' relative errors, a fraction."""
        return geometric_mean_error(self.relative_errors)

    @property
    def correlation(self) -> NDArray[np.float64]:
        """Correlation of the parameters, shape ``(n, n)``; nan where there is none."""
        deviation = np.sqrt(np.diag(self.covariance))
        with np.errstate(all="ignore"):
            correlation: NDArray[np.float64] = self.covariance / np.outer(deviation, deviation)
        return correlation

    def parameter_table(self, *, intervals: bool = True) -> Table:
        """Return the parameters as a table; their 95 % confidence intervals take a while."""
        columns = [
            text("name", "parameter"),
            number("value"),
            number("standard_error", digits=2),
            number("low", "95 % from", meaning="lower end of the 95 % confidence interval"),
            number("high", "to", meaning="upper end of the 95 % confidence interval"),
            text("unit"),
            number("rate", digits=3, meaning="what the cost amounts to per second"),
            text("rate_unit", "rate's unit"),
            text("flags", "remarks"),
        ]
        ends = self.intervals.tolist() if intervals else [(math.nan, math.nan)] * len(self.parameters)
        return Table("Parameters", columns, [
            (p.name, p.value, p.standard_error, low, high, p.unit or "?", p.rate, p.rate_unit, p.flags)
            for p, (low, high) in zip(self.parameters, ends, strict=True)
        ])  # fmt: skip

    def notices(self) -> Iterator[tuple[str, str]]:
        """Yield severity and text of what to know before the numbers are used."""
        if not self.status.valid:
            yield "problem", f"the fit did not converge: {self.status.reason}"
        if self.undetermined:
            yield "problem", f"the kernels do not determine {', '.join(self.undetermined)}"
        if self.negative_costs:
            yield "problem", f"negative costs: {', '.join(self.negative_costs)}"
        if self.collinear:
            yield "warning", f"the kernels hardly tell {', '.join(self.collinear)} apart"

    def error_table(self) -> Table:
        """Return measures of the relative errors of the kernels that were fitted."""
        return error_table("Relative errors of the kernels that were fitted", {"the fit": self.relative_errors})

    def __repr__(self) -> str:
        lines = [str(self.parameter_table(intervals=False))]
        lines.append(
            f"{self.residual} residual {self.residual_norm:.4g} over {len(self.kernels)} kernels, "
            f"relative error: {describe_errors(self.relative_errors)}; "
            f"condition number {self.condition_number:.3g}"
        )
        if self.prior is not None:
            lines.append(f"with a prior of {len(self.prior.sources)} devices: {', '.join(self.prior.sources)}")
        if self.collinear:
            lines.append(
                f"hardly separated: {', '.join(self.collinear)}; a bound hides that; see their confidence intervals"
            )
        if self.no_overlap:
            lines.append(f"no overlap: all costs are added ({', '.join(self.no_overlap)} = 0)")
        state = "converged" if self.status.valid else "NOT CONVERGED"
        lines.append(
            f"{state}: {self.status.reason} "
            f"({self.status.starts_at_optimum} of {self.status.starts} starts reached the optimum)"
        )
        return "\n".join(lines)

    _repr_html_ = shown_by("fit.html")


def error_table(caption: str, errors: Mapping[str, object]) -> Table:
    """Return number, geometric mean, median, root mean square and maximum of relative errors by what predicted."""
    columns = [
        text("name", "predicted by"), fixed("cases"), percent("geometric_mean"), percent("median"), percent("rms"),
        percent("maximum"),
    ]  # fmt: skip
    found = [(name, _sizes(some)) for name, some in errors.items()]
    rows = [(name, sizes.size, *(_measures(sizes) or [math.nan] * 4)) for name, sizes in found]
    return Table(caption, columns, rows)


@dataclass(frozen=True)
class ParameterUnit:
    """Unit of a parameter."""

    # E.g. ``"s per sub-group operation"``; ``"1"`` for a pure number, empty where it is not known.
    unit: str
    # How much work one unit of cost pays for: the rate is amount / value; None where there is no rate.
    amount: float | None = None
    rate_unit: str = ""


def output_unit(output: str, info: Mapping[str, FeatureInfo]) -> str:
    """Return the unit of the output feature."""
    if output in info:
        return info[output].unit
    return "s" if output.startswith(("f_cl_wall_time", "f_cuda_wall_time")) else output


def parameter_units(model: Model, roles: Roles, info: Mapping[str, FeatureInfo]) -> dict[str, ParameterUnit]:
    """Return the unit of each parameter of a model; features that `info` lacks are named in it by themselves."""
    seconds = output_unit(model.output_feature, info)
    units = {}
    for name, role in roles.of.items():
        if role.monomials:
            units[name] = _cost_unit(role.monomials, seconds, info, rate=role.kind == "rate")
        else:
            unit = {"edge": f"1/{seconds}"} | dict.fromkeys(("cost", "rate", "other"), "")
            units[name] = ParameterUnit(unit.get(role.kind, "1"))
    return units


def parameter_estimate(
    role: ParameterRole,
    name: str,
    value: float,
    unit: ParameterUnit,
    error: float,
    *,
    at_bound: bool,
    determined: bool = True,
) -> ParameterEstimate:
    """Return the estimate of a parameter; a rate is an amount over a cost (paper Table 3), if that is above zero."""
    cost = value if role.kind != "rate" or value == 0 else 1.0 / value
    rate = unit.amount / cost if unit.amount is not None and cost > 0 else None
    kinds: dict[str, Literal["cost", "rate"]] = {"cost": "cost", "rate": "rate"}
    unit_of_rate = unit.rate_unit if rate is not None else ""
    return ParameterEstimate(
        name, value, unit.unit, error, rate, unit_of_rate, kinds.get(role.kind, "shape"), at_bound, determined
    )


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
