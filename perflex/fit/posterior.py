"""Fitting with a prior: the mode of the posterior, in the parameters' logarithms.

With rows i of output y_i, the model f and priors of log p_j, the fit minimises ::

    sum_i ((log f_i - log y_i) / s_i)**2 + sum_j ((log p_j - mean_j) / spread_j)**2

(maximum a posteriori). The deviations s_i of rows are known beforehand: few rows do not tell their own noise. The
covariance is the inverse of the Hessian at the mode (Laplace's approximation; MacKay, Information Theory, Inference,
and Learning Algorithms, 2003, chapter 27).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from perflex.errors import CalibrationError
from perflex.fit.minimise import minimise
from perflex.fit.problem import pose
from perflex.fit.result import FitResult, FitStatus, parameter_estimate, parameter_units

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from perflex.expression.model import Model
    from perflex.fit.minimise import Solution
    from perflex.fit.options import Prior
    from perflex.fit.problem import Problem
    from perflex.fit.table import FeatureTable

    Array = NDArray[np.float64]


def fit_with_prior(
    model: Model,
    table: FeatureTable,
    prior: Prior,
    *,
    deviations: Array | None = None,
    starts: Sequence[Mapping[str, float]] = (),
    precise: bool = True,
) -> FitResult:
    """Return the mode of the posterior; `deviations` of the rows' residuals are by default the prior's."""
    posed = pose(model, table, "logarithmic", few=True)
    missing = [name for name in posed.parameters if name not in prior]
    if missing:
        msg = f"the prior says nothing of {', '.join(missing)}; make it of calibrations of the same model"
        raise CalibrationError(msg, parameters=tuple(missing), model=model)
    moving = np.array([not prior[name].held_at_zero for name in posed.parameters])
    known = np.full(len(posed.kernels), prior.noise) if deviations is None else np.asarray(deviations, dtype=np.float64)
    posterior = _Posterior(posed, prior, moving, known)
    solutions, causes = [], []
    for point in [posterior.mean, *(posterior.point(start) for start in starts)]:
        try:
            solutions.append(minimise(posterior.residual, posterior.jacobian, point, precise=precise))
        except ArithmeticError as error:
            causes.append(str(error))
    if not solutions:
        msg = f"the fit of {model.expression!r} cannot begin at the prior's medians: {causes[0]}; correct the prior"
        raise CalibrationError(msg, model=model)
    return _result(posterior, table, solutions)


@dataclass(frozen=True, eq=False)
class _Posterior:
    """Residuals whose sum of squares is twice the negative logarithm of the posterior, over logarithms u."""

    problem: Problem
    prior: Prior
    moving: NDArray[np.bool_]
    deviations: Array

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
        rows = self.problem.residual(self.parameters(u)) / self.deviations
        return np.concatenate([rows, (u - self.mean) / self.spread])

    def jacobian(self, u: Array) -> Array:
        return np.vstack([self._derivatives(u), np.diag(1.0 / self.spread)])

    def covariance(self, u: Array) -> Array:
        """Return the posterior's covariance of the logarithms."""
        whole = self.jacobian(u) * self.spread
        root = np.linalg.pinv(whole) * self.spread[:, None]
        covariance: Array = root @ root.T
        return covariance

    def _derivatives(self, u: Array) -> Array:
        x = self.parameters(u)
        rows: Array = self.problem.jacobian(x)[:, self.moving] * x[self.moving] / self.deviations[:, None]
        return rows


def _result(posterior: _Posterior, table: FeatureTable, solutions: Sequence[Solution]) -> FitResult:
    problem, best = posterior.problem, min(solutions, key=lambda solution: solution.norm)
    names, x = problem.parameters, posterior.parameters(best.x)
    places = np.flatnonzero(posterior.moving)
    logs = np.zeros((len(names), len(names)))
    logs[np.ix_(places, places)] = posterior.covariance(best.x)
    units = parameter_units(problem.model, problem.roles, table.info)
    errors = x * np.sqrt(np.diag(logs))
    estimates = tuple(
        parameter_estimate(
            problem.roles.of[name], name, float(x[i]), units[name], float(errors[i]), at_bound=not posterior.moving[i]
        )
        for i, name in enumerate(names)
    )
    jacobian = posterior.jacobian(best.x)
    singular = np.linalg.svd(jacobian / np.linalg.norm(jacobian, axis=0), compute_uv=False)
    as_good = [end for end in solutions if end.norm <= best.norm * (1 + 1e-6) + 1e-9]
    evaluations = sum(end.evaluations for end in solutions)
    return FitResult(
        estimates,
        problem,
        FitStatus(best.converged, best.reason, evaluations, len(solutions), len(as_good)),
        logs * np.outer(x, x),
        float(singular[0] / singular[-1]) if len(singular) else float("nan"),
        sub_group_size=table.sub_group_size,
        prior=posterior.prior,
    )


def posterior_of_logarithms(fit: FitResult) -> Array:
    """Return the covariance of the parameters' logarithms, shape ``(n, n)``; zero for those that are held at zero."""
    size = np.where(fit.vector > 0, fit.vector, 1.0)
    # Of a value next to zero it is infinite.
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        found: Array = np.nan_to_num(fit.covariance, nan=0.0) / np.outer(size, size)
    return found
