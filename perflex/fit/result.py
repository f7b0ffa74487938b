"""What a fit hands back."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from perflex.html import shown_by
from perflex.text_table import table_lines

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perflex.fit.confidence import LinearisedFit
    from perflex.fit.loss import Loss
    from perflex.fit.prior import Prior

_LEAST_ERROR = 1e-6


def geometric_mean_error(errors: object) -> float:
    """Return the geometric mean of the sizes of relative errors, as in the paper's Section 8.

    Parameters
    ----------
    errors
        Relative errors, any shape; nan is left out. Errors below 1e-6 count as 1e-6, so that one chance
        hit does not make the mean zero.

    Returns
    -------
    float
        A fraction (0.043 is 4.3 %); nan if there are no errors.
    """
    sizes = np.abs(np.asarray(errors, dtype=np.float64)).ravel()
    sizes = sizes[~np.isnan(sizes)]
    return float(np.exp(np.mean(np.log(np.maximum(sizes, _LEAST_ERROR))))) if sizes.size else math.nan


def describe_errors(errors: object) -> str:
    """Return geometric mean, median, root mean square and maximum of the sizes of relative errors, in percent.

    Parameters
    ----------
    errors
        Relative errors, any shape; nan is left out.
    """
    sizes = np.abs(np.asarray(errors, dtype=np.float64)).ravel()
    sizes = sizes[~np.isnan(sizes)]
    if not sizes.size:
        return "no errors known"
    measures = {
        "geometric mean": geometric_mean_error(sizes),
        "median": float(np.median(sizes)),
        "rms": float(np.sqrt(np.mean(sizes**2))),
        "maximum": float(sizes.max()),
    }
    return ", ".join(f"{name} {100 * value:.3g} %" for name, value in measures.items())


@dataclass(frozen=True)
class ParameterEstimate:
    """A fitted parameter.

    Attributes
    ----------
    name, value, unit
        E.g. ``"p_f32madd"``, ``3.1e-12``, ``"s per sub-group operation"``; the unit is ``"1"`` for a pure
        number and empty where it is not known.
    standard_error
        In the same unit; nan if there is none (no rows to spare, held at its bound, or not determined).
    rate, rate_unit
        What a cost, or a rate, amounts to per second, e.g. ``1.0e13`` and ``"op/s"`` (paper Table 3); None where the
        notion makes no sense.
    kind
        ``"cost"`` for what multiplies features, ``"rate"`` for what divides them, ``"shape"`` for all else.
    negative
        Whether this is a cost below zero: not physical, a sign that the model or the kernels are lacking.
    at_bound
        Whether its value is that of a bound which holds it: zero for a cost, 1 for all of a cost hidden.
    determined
        Whether the measurement kernels determine it.
    """

    name: str
    value: float
    unit: str
    standard_error: float
    rate: float | None = None
    rate_unit: str = ""
    kind: str = "cost"
    negative: bool = False
    at_bound: bool = False
    determined: bool = True

    @property
    def flags(self) -> str:
        """Its particularities in words."""
        bound = f"at bound {self.value:g}"
        # Such as of an edge or sharpness beyond which larger ones fit as well.
        vague = self.kind == "shape" and self.standard_error > abs(self.value)
        words = {
            "negative cost": self.negative,
            bound: self.at_bound,
            "undetermined": not self.determined,
            "error above value": vague,
        }
        return ", ".join(word for word, holds in words.items() if holds)


@dataclass(frozen=True)
class FitStatus:
    """How the minimisation went.

    Attributes
    ----------
    valid
        Whether a minimum was reached.
    reason
        Why it ended.
    evaluations
        Evaluations of the residual, all starts together.
    starts
        Number of starts.
    starts_at_optimum
        How many of them reached the best minimum.
    """

    valid: bool
    reason: str
    evaluations: int
    starts: int
    starts_at_optimum: int


# Compared as the mapping it is: a generated comparison would fail on the covariance, for arrays have no truth value.
@dataclass(frozen=True, eq=False)
class FitResult(Mapping[str, float]):
    """Fitted parameters: a mapping from parameter to value, with everything needed to judge them.

    Attributes
    ----------
    parameters
        One estimate per parameter, in the model's order.
    residual_norm
        Euclidean norm of the residual at the solution (paper Section 7.2); of relative errors if the table
        was scaled by its output, else in the output's unit. Under the loss soft_l1 that is the norm of what the
        loss was taken of: logarithms of predicted over measured if the table was scaled by its output.
    scaled
        Whether it was.
    kernels, relative_errors
        Label and (predicted - measured) / measured of each row.
    status
        How the minimisation went.
    covariance
        Shape ``(n, n)``, in products of the parameters' units; nan where there is none.
    condition_number
        Of the Jacobian with columns of length one, over the determined parameters, those at bounds included: of the
        problem without bounds, which hide that features grow together.
    degrees_of_freedom
        Rows less the parameters determined by them.
    undetermined
        Parameters that the measurement kernels do not determine.
    sub_group_size
        Work-items per sub-group that the features were counted with.
    nonnegative
        Whether costs, edges and hidden fractions were kept at or above zero; None where that is not known, as
        in files of earlier versions.
    loss
        What was minimised, as for `fit_model`.
    loss_scale
        Size of residual beyond which the loss grows in proportion; None for the sum of squares.
    robust_deviation
        Standard deviation of the residuals that is right where they are normal, and that a few wrong rows raise
        little (Huber's Proposal 2); None for the sum of squares, or where it is not known.
    collinear
        Parameters that the rows hardly tell apart, one of them held by its bound.
    linearised
        What intervals follow from; None for fits from files.
    kept_intervals
        Intervals that were computed before, by parameter.
    no_overlap
        Edges, hidden fractions and sharpnesses of 0, which say that nothing is hidden: costs are those of their sum.
    bounds
        Smallest and largest values by parameter that were given to `fit_model` in place of those of its role.
    prior
        What was known of the parameters before; None for a fit to the rows alone. Parameters are then the mode of the
        posterior in their logarithms, and covariance and intervals are the posterior's.
    """

    parameters: tuple[ParameterEstimate, ...]
    residual_norm: float
    scaled: bool
    kernels: tuple[str, ...]
    relative_errors: tuple[float, ...]
    status: FitStatus
    covariance: NDArray[np.float64]
    condition_number: float
    degrees_of_freedom: int
    undetermined: tuple[str, ...] = ()
    sub_group_size: int = 32
    nonnegative: bool | None = None
    loss: Loss = "squared"
    loss_scale: float | None = None
    robust_deviation: float | None = None
    collinear: tuple[str, ...] = ()
    linearised: LinearisedFit | None = None
    kept_intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    no_overlap: tuple[str, ...] = ()
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
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
        """Return the estimate of a parameter.

        Raises
        ------
        KeyError
            There is no such parameter.
        """
        for parameter in self.parameters:
            if parameter.name == name:
                return parameter
        raise KeyError(name)

    def interval(self, name: str) -> tuple[float, float]:
        """Return the 95 % confidence interval of a parameter, in its unit; nan where there is none.

        It accounts for bounds (`perflex.fit.confidence`), as ``value +- t * standard_error`` does not: a bound that
        holds one of two costs at zero makes the other's standard error small.

        Raises
        ------
        KeyError
            There is no such parameter.
        """
        self.parameter(name)
        if self.linearised is None:
            return self.kept_intervals.get(name, (math.nan, math.nan))
        low, high = self.linearised.intervals[list(self).index(name)]
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

    def __repr__(self) -> str:
        rows = [("parameter", "value", "std. error", "unit", "rate", "")]
        for p in self.parameters:
            rate = "" if p.rate is None else f"{p.rate:.3g} {p.rate_unit}"
            rows.append((p.name, f"{p.value:.6g}", f"{p.standard_error:.2g}", p.unit or "?", rate, p.flags))
        lines = table_lines(rows, left={0, 3, 4, 5})
        kind = "relative residual" if self.scaled else "residual"
        kind += "" if self.loss == "squared" else f" ({self.loss})"
        lines.append(
            f"{kind} {self.residual_norm:.4g} over {len(self.kernels)} kernels, "
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

    _repr_html_ = shown_by("perflex.fit.fit_html:fit_html")
