"""Fitting with a prior: the mode of the posterior, in the parameters' logarithms.

With rows i of output y_i, the model f and priors of log p_j, the fit minimises ::

    sum_i loss((log f_i - log y_i) / s_i) + sum_j ((log p_j - mean_j) / spread_j)**2

(maximum a posteriori; under the sum of squares with ``f_i / y_i - 1`` for the logarithm of the ratio, as without a
prior). The deviations s_i of rows are known beforehand: few rows do not tell their own noise. The covariance is the
inverse of the Hessian at the mode (Laplace's approximation; MacKay, Information Theory, Inference, and Learning
Algorithms, 2003, chapter 27).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from perflex.errors import CalibrationError
from perflex.expression.roles import roles_with_costs_for_rates
from perflex.fit.loss import standard_loss
from perflex.fit.minimise import minimise
from perflex.fit.problem import pose
from perflex.fit.result import FitResult, FitStatus, ParameterEstimate
from perflex.fit.units import parameter_units

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from perflex.expression.model import Model
    from perflex.fit.loss import Loss
    from perflex.fit.prior import Prior
    from perflex.fit.problem import Problem
    from perflex.fit.scaled import Solution
    from perflex.fit.table import FeatureTable

    Array = NDArray[np.float64]

# The 97.5 % quantile of a normal distribution: spreads of priors are widened for few devices already.
_NORMAL_95 = 1.959964


def fit_with_prior(
    model: Model,
    table: FeatureTable,
    prior: Prior,
    *,
    deviations: Array | None = None,
    starts: Sequence[Mapping[str, float]] = (),
    loss: Loss = "squared",
    precise: bool = True,
) -> FitResult:
    """Return the mode of the posterior.

    Parameters
    ----------
    model
        The model.
    table
        Any number of rows, none included, scaled by their output (`scale_features_by_output`).
    prior
        The prior of each of the model's parameters.
    deviations
        Standard deviation of each row's residual, relative to its output, shape ``(m,)``; by default ``prior.noise``.
    starts
        Further starts beside the prior's medians.
    loss
        As for `fit_model`.
    precise
        Whether to go on to the last digits.

    Raises
    ------
    CalibrationError
        The prior lacks a parameter, the rows are not scaled by their output, or the model is not finite at any start.
    """
    posed = _posed(model, table, prior)
    moving = np.array([not prior[name].held_at_zero for name in posed.parameters])
    known = np.full(len(posed.kernels), prior.noise) if deviations is None else np.asarray(deviations, dtype=np.float64)
    posterior = _Posterior(posed, prior, moving, known, loss)
    points = [posterior.mean, *(posterior.point(start) for start in starts)]
    solutions, causes = [], []
    for point in points:
        try:
            solutions.append(minimise(posterior.residual, posterior.jacobian, point, precise=precise))
        except ArithmeticError as error:
            causes.append(str(error))
    if not solutions:
        msg = f"the fit of {model.expression!r} cannot begin at the prior's medians: {causes[0]}; correct the prior"
        raise CalibrationError(msg, model=model)
    best = min(solutions, key=lambda solution: solution.norm)
    return _result(posterior, table, best, solutions)


def _posed(model: Model, table: FeatureTable, prior: Prior) -> Problem:
    if table.weights is not None:
        msg = "with a prior, rows weigh as its noise says; leave out the table's weights, or the prior"
        raise CalibrationError(msg, model=model)
    posed = pose(model, table, few=True)
    missing = [name for name in posed.parameters if name not in prior]
    if missing:
        msg = f"the prior says nothing of {', '.join(missing)}; make it of calibrations of the same model"
        raise CalibrationError(msg, parameters=tuple(missing), model=model)
    posed = posed.under(standard_loss())
    if not posed.logarithmic:
        msg = "a prior weighs relative errors; call scale_features_by_output on the table first"
        raise CalibrationError(msg, model=model)
    return posed


@dataclass(frozen=True, eq=False)
class _Posterior:
    """Residuals whose sum of squares is twice the negative logarithm of the posterior, over logarithms u."""

    problem: Problem
    prior: Prior
    moving: NDArray[np.bool_]
    deviations: Array
    loss: Loss

    @property
    def names(self) -> list[str]:
        return [name for name, moves in zip(self.problem.parameters, self.moving, strict=True) if moves]

    @property
    def mean(self) -> Array:
        return np.array([self.prior[name].mean for name in self.names])

    @property
    def spread(self) -> Array:
        return np.array([self.prior[name].spread for name in self.names])

    def point(self, start: Mapping[str, float]) -> Array:
        """Return a start's logarithms; the prior's mean where it says nothing, or nothing positive."""
        pairs = zip(self.names, self.mean, strict=True)
        return np.array([np.log(start[n]) if start.get(n, 0.0) > 0 else mean for n, mean in pairs])

    def parameters(self, u: Array) -> Array:
        """Return all parameters, shape ``(n,)``."""
        x = np.zeros(len(self.moving))
        with np.errstate(over="ignore"):
            x[self.moving] = np.exp(u)
        return x

    def residual(self, u: Array) -> Array:
        rows = self._standardised(u)
        rows = rows if self.loss == "squared" else standard_loss().signed_root(rows)
        return np.concatenate([rows, (u - self.mean) / self.spread])

    def jacobian(self, u: Array) -> Array:
        rows = self._derivatives(u)
        if self.loss != "squared":
            rows = standard_loss().slope_of_root(self._standardised(u))[:, None] * rows
        return np.vstack([rows, np.diag(1.0 / self.spread)])

    def covariance(self, u: Array) -> Array:
        """Return the posterior's covariance of the logarithms."""
        rows = self._derivatives(u)
        if self.loss != "squared":
            # Rows far off say little: the loss is flat there.
            weight = standard_loss().slope_of_influence(self._standardised(u))
            rows = np.sqrt(weight)[:, None] * rows
        whole = np.vstack([rows, np.diag(1.0 / self.spread)]) * self.spread
        root = np.linalg.pinv(whole) * self.spread[:, None]
        covariance: Array = root @ root.T
        return covariance

    def _standardised(self, u: Array) -> Array:
        problem = self._problem
        return problem.plain_residual(self.parameters(u)) / self.deviations

    def _derivatives(self, u: Array) -> Array:
        x = self.parameters(u)
        derivatives = self._problem.plain_jacobian(x)[:, self.moving]
        rows: Array = derivatives * x[self.moving] / self.deviations[:, None]
        return rows

    @property
    def _problem(self) -> Problem:
        return self.problem.under(None) if self.loss == "squared" else self.problem


def _result(posterior: _Posterior, table: FeatureTable, best: Solution, solutions: Sequence[Solution]) -> FitResult:
    problem, prior = posterior.problem, posterior.prior
    names, x = problem.parameters, posterior.parameters(best.x)
    places = np.flatnonzero(posterior.moving)
    logs = np.zeros((len(names), len(names)))
    logs[np.ix_(places, places)] = posterior.covariance(best.x)
    roles = roles_with_costs_for_rates(problem.model.tree)
    units = parameter_units(names, roles, problem.model.output_feature, table.info)
    estimates, intervals = [], {}
    for index, name in enumerate(names):
        value, unit = float(x[index]), units[name]
        cost = value if name not in roles.rates or value == 0 else 1.0 / value
        rate = unit.amount / cost if unit.amount is not None and cost > 0 else None
        deviation = float(np.sqrt(logs[index, index]))
        intervals[name] = (
            value * float(np.exp(-_NORMAL_95 * deviation)),
            value * float(np.exp(_NORMAL_95 * deviation)),
        )
        kind = "rate" if name in roles.rates else "cost" if name in roles.costs else "shape"
        estimates.append(
            ParameterEstimate(
                name,
                value,
                unit.unit,
                value * deviation,
                rate,
                unit.rate_unit if rate is not None else "",
                kind,
                at_bound=not posterior.moving[index],
            )
        )
    jacobian = posterior.jacobian(best.x)
    singular = np.linalg.svd(jacobian / np.linalg.norm(jacobian, axis=0), compute_uv=False)
    as_good = [end for end in solutions if end.norm <= best.norm * (1 + 1e-6) + 1e-9]
    evaluations = sum(end.evaluations for end in solutions)
    seen = problem.under(None) if posterior.loss == "squared" else problem
    plain = seen.plain_residual(x)
    squared = posterior.loss == "squared"
    return FitResult(
        tuple(estimates),
        float(np.linalg.norm(plain)),
        scaled=True,
        kernels=problem.kernels,
        relative_errors=tuple(map(float, problem.predict(x) / problem.output - 1)),
        status=FitStatus(best.converged, best.reason, evaluations, len(solutions), len(as_good)),
        covariance=logs * np.outer(x, x),
        condition_number=float(singular[0] / singular[-1]) if len(singular) else float("nan"),
        # Rows and priors, less the parameters that both determine.
        degrees_of_freedom=len(plain),
        sub_group_size=table.sub_group_size,
        nonnegative=True,
        loss=posterior.loss,
        loss_scale=None if squared else standard_loss().scale * prior.noise,
        kept_intervals=intervals,
        prior=prior,
    )


def posterior_of_logarithms(fit: FitResult) -> Array:
    """Return the covariance of the parameters' logarithms, shape ``(n, n)``; zero for those that are held at zero."""
    x = np.array(list(fit.values()))
    size = np.where(x > 0, x, 1.0)
    found: Array = np.nan_to_num(fit.covariance, nan=0.0) / np.outer(size, size)
    return found
