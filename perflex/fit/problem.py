"""What a fit minimises: a model's residuals over the rows of a table, squared, or under a robust loss.

The robust loss is ``soft_l1`` (the pseudo-Huber loss, scipy's ``least_squares(loss="soft_l1")``): a residual r counts
``2 s**2 (sqrt(1 + (r/s)**2) - 1)``. With ``s = 1.287 d``, d the standard deviation of good residuals, the estimates are
95 % as efficient as least squares when the residuals are normal (Huber's criterion for choosing such a constant).
Variances are Huber's for M-estimates in regression (Robust Statistics, 1981, section 7.6), written as those of least
squares on pseudo-residuals. The deviation is that of his Proposal 2 (section 7.7).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from perflex.errors import CalibrationError
from perflex.expression.roles import find_roles, roles_with_costs_for_rates
from perflex.expression.tree import as_column

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from perflex.expression.model import Model
    from perflex.expression.roles import Roles
    from perflex.fit.table import FeatureTable

    Array = NDArray[np.float64]

# Scale of the loss in standard deviations: (E psi')**2 / E psi**2 = 0.95 for a standard normal residual.
_SCALE_PER_DEVIATION = 1.2870992
# E psi(z)**2 = E z**2 / (1 + (z/c)**2) there: what makes the deviation right for normal residuals.
_MEAN_SQUARED_INFLUENCE = 0.4448450
_DEVIATION_STEPS = 200


@dataclass(frozen=True)
class SoftL1:
    """The loss soft_l1 with its scale."""

    # Size of residual where squares turn into sizes; in the residuals' unit, above zero.
    scale: float

    def signed_root(self, residual: Array) -> Array:
        """Return numbers whose squares are the losses of the residuals, with the residuals' signs."""
        # sqrt(1 + z) - 1 = z / (sqrt(1 + z) + 1), which keeps the digits of small residuals.
        # Of an infinite residual, where a step went too far, it is nan, which fits refuse as well.
        with np.errstate(invalid="ignore"):
            root: Array = residual * np.sqrt(2.0 / (np.hypot(1.0, residual / self.scale) + 1.0))
        return root

    def slope_of_root(self, residual: Array) -> Array:
        """Return the derivative of the signed root by the residual."""
        size = np.hypot(1.0, residual / self.scale)
        slope: Array = np.sqrt((size + 1.0) / 2.0) / size
        return slope

    def influence(self, residual: Array) -> Array:
        """Return psi, half of the loss's derivative: at most the scale, however large the residual."""
        influence: Array = residual / np.hypot(1.0, residual / self.scale)
        return influence

    def slope_of_influence(self, residual: Array) -> Array:
        """Return psi', the influence's derivative by the residual."""
        slope: Array = np.hypot(1.0, residual / self.scale) ** -3.0
        return slope

    def pseudo_residual(self, residual: Array, parameters: int) -> Array:
        """Return what least squares would have to see for the same estimates with the right variances.

        ``K psi(r) / mean(psi'(r))`` with Huber's correction ``K = 1 + (p/m) var(psi') / mean(psi')**2`` for p
        parameters and m residuals. They are orthogonal to the model's derivatives as residuals of least squares are.
        """
        slope = self.slope_of_influence(residual)
        mean = float(np.mean(slope))
        if mean**2 == 0:
            msg = f"the loss's scale, {self.scale:g}, is that of none of these residuals; calibrate again"
            raise CalibrationError(msg)
        correction = 1.0 + parameters / len(residual) * float(np.var(slope)) / mean**2
        pseudo: Array = correction / mean * self.influence(residual)
        return pseudo


def robust_loss(residual: Array, freedom: int, least: float) -> tuple[SoftL1, float]:
    """Return the loss that suits residuals, and the standard deviation of the good ones among them.

    The deviation d solves ``sum(psi(r)**2) = 0.4448 (m - p) d**2`` with psi's scale at 1.287 d (Huber's Proposal 2), so
    that it is the usual one for normal residuals, and far ones add no more than a bounded part.
    """
    freedom = max(freedom, 1)
    # That of all residuals is an upper limit; each step goes down towards the one solution, and none passes it.
    deviation = math.sqrt(float(residual @ residual) / freedom / _MEAN_SQUARED_INFLUENCE)
    for _ in range(_DEVIATION_STEPS):
        if not deviation > 0:
            break
        psi = SoftL1(_SCALE_PER_DEVIATION * deviation).influence(residual)
        smaller = math.sqrt(float(psi @ psi) / freedom / _MEAN_SQUARED_INFLUENCE)
        done = smaller >= deviation * (1 - 1e-9)
        deviation = smaller
        if done:
            break
    return SoftL1(_SCALE_PER_DEVIATION * max(deviation, least)), deviation


def standard_loss() -> SoftL1:
    """Return the loss that suits residuals whose standard deviation is one."""
    return SoftL1(_SCALE_PER_DEVIATION)


# Below this share of the output the logarithm goes on as its tangent: it has no value at zero and below, where the
# way to the minimum may lead. No kernel whose prediction is worth anything lies there.
_LEAST_RATIO = 1e-3


@dataclass(frozen=True, eq=False)
class Problem:
    """Residuals of a model over the rows of a table (paper Section 7.2), as its loss sees them.

    Least squares takes model minus output, relative to the output unless errors are absolute. A loss takes that, too,
    or of relative errors the logarithm of model over output: measured outputs of half and double are then as far off
    either way, so that noise in the output does not pull predictions down.
    """

    model: Model
    # A label per row, and values of the features, shape ``(m,)`` each.
    kernels: tuple[str, ...]
    inputs: Mapping[str, NDArray[np.float64]]
    output: NDArray[np.float64]
    relative: bool = True
    # Measured relative noise of each row (`FeatureTable.noise`), shape ``(m,)``; None where it is not known.
    noise: NDArray[np.float64] | None = None
    # None for the sum of squares.
    loss: SoftL1 | None = None

    @property
    def parameters(self) -> list[str]:
        """The model's parameters, in the order of the columns."""
        return self.model.params()

    @cached_property
    def roles(self) -> Roles:
        """What each parameter is, with costs for rates."""
        return roles_with_costs_for_rates(self.model.tree)

    @cached_property
    def weight(self) -> NDArray[np.float64]:
        """Factor on each row's residual, shape ``(m,)``."""
        return 1.0 / self.output if self.relative else np.ones(len(self.output))

    @property
    def size(self) -> float:
        """Euclidean norm of the weighted output."""
        return float(np.linalg.norm(self.weight * self.output))

    def under(self, loss: SoftL1 | None) -> Problem:
        """Return the same problem with another loss."""
        found = replace(self, loss=loss)
        found.__dict__["roles"] = self.roles
        return found

    def take(self, rows: NDArray[np.bool_]) -> Problem:
        """Return the problem of some rows, shape ``(m,)``."""
        found = replace(
            self,
            kernels=tuple(label for label, taken in zip(self.kernels, rows, strict=True) if taken),
            inputs={name: column[rows] for name, column in self.inputs.items()},
            output=self.output[rows],
            noise=None if self.noise is None else self.noise[rows],
        )
        found.__dict__["roles"] = self.roles
        return found

    def values(self, x: Array) -> dict[str, Array | float]:
        """Return features and the parameters of a vector, by name."""
        return {**self.inputs, **dict(zip(self.parameters, map(float, x), strict=True))}

    def predict(self, x: Array) -> Array:
        """Return the model's output for each row, shape ``(m,)``."""
        return as_column(self.model.compiled.value(self.values(x)), len(self.kernels))

    def derivatives(self, x: Array) -> Array:
        """Return the derivatives of the model's output by the parameters, shape ``(m, n)``."""
        return self.model.compiled.derivatives(self.values(x), len(self.kernels))

    def residual(self, x: Array) -> Array:
        """Return the residual whose sum of squares is minimised, shape ``(m,)``."""
        plain = self.plain_residual(x)
        return plain if self.loss is None else self.loss.signed_root(plain)

    def jacobian(self, x: Array) -> Array:
        """Return its derivatives, shape ``(m, n)``."""
        plain = self.plain_jacobian(x)
        return plain if self.loss is None else self.loss.slope_of_root(self.plain_residual(x))[:, None] * plain

    def plain_residual(self, x: Array) -> Array:
        """Return what the loss is taken of, shape ``(m,)``: without a loss, the residual itself."""
        if self.loss is None or not self.relative:
            residual: Array = self.weight * (self.predict(x) - self.output)
            return residual
        ratio = self.predict(x) / self.output
        low = ratio < _LEAST_RATIO
        tangent = np.log(_LEAST_RATIO) + (ratio / _LEAST_RATIO - 1)
        logarithm: Array = np.where(low, tangent, np.log(np.where(low, 1.0, ratio)))
        return logarithm

    def plain_jacobian(self, x: Array) -> Array:
        """Return the derivatives of the plain residual by the parameters, shape ``(m, n)``."""
        slope = self.weight
        if self.loss is not None and self.relative:
            slope = 1.0 / np.maximum(self.predict(x), _LEAST_RATIO * self.output)
        jacobian: Array = slope[:, None] * self.derivatives(x)
        return jacobian

    def regression(self, x: Array, used: int) -> tuple[Array, Array]:
        """Return Jacobian and residual of the linear least-squares problem with the same estimates and variances.

        At a solution from which `used` parameters were determined; under a loss its pseudo-residuals.
        """
        residual = self.plain_residual(x)
        return self.plain_jacobian(x), residual if self.loss is None else self.loss.pseudo_residual(residual, used)

    def scatter(self, x: Array) -> float:
        """Return the sum of squares that the gain of a further parameter is compared with: of residuals at `x`.

        Under a loss the sum of squared influences over their mean slope.
        """
        residual = self.plain_residual(x)
        if self.loss is None:
            return float(residual @ residual)
        influence = self.loss.influence(residual)
        return float(influence @ influence) / float(np.mean(self.loss.slope_of_influence(residual)))


def require_fittable(model: Model) -> None:
    """Make sure that a model can be fitted, whatever the measurements say."""
    if nonsmooth := model.nonsmooth_calls():
        cause = f"{nonsmooth[0]} cannot be differentiated by its parameters, so the model cannot be fitted"
        msg = f"{cause}; write overlap(g, o, p_edge) instead of max(g, o)"
        raise CalibrationError(msg, model=model)
    if not model.params():
        msg = f"the model {model.expression!r} has no parameters to fit; add factors such as p_madd"
        raise CalibrationError(msg, model=model)


def require_informed(model: Model, columns: Mapping[str, Array]) -> None:
    """Make sure that counted features leave no cost out, whatever the measurements will say."""
    roles = find_roles(model.tree)
    missing = {}
    for name in roles.costs:
        # A product is zero where one of its factors is; a cost counts where one of its products does.
        terms = [list(monomial.powers) for monomial in roles.monomials.get(name) or ()]
        absent = [[f for f in features if f in columns and not columns[f].any()] for features in terms]
        if absent and all(absent):
            missing[name] = ", ".join(dict.fromkeys(f for features in absent for f in features))
    if missing:
        reasons = "; ".join(
            f"{name} is determined by no kernel ({zero} is zero in all of them)" for name, zero in missing.items()
        )
        msg = f"{reasons}; add kernels that contain it, or drop parameters from the model"
        raise CalibrationError(msg, parameters=tuple(missing), model=model)


def pose(model: Model, table: FeatureTable, *, relative: bool = True, few: bool = False) -> Problem:
    """Return the problem of fitting a model to a table; with `few` of any number of rows."""
    require_fittable(model)
    parameters = model.params()
    columns = table.columns(model.all_features())
    for feature, column in columns.items():
        _refuse(table, ~np.isfinite(column), f"{feature} is not a finite number", feature)
    output = columns.pop(model.output_feature)
    if relative:
        _refuse(table, output <= 0, f"errors are relative to {model.output_feature}, which is not positive")
    # Not only ambiguous: Levenberg-Marquardt needs as many rows as parameters.
    if len(table) < len(parameters) and not few:
        msg = (
            f"{len(table)} kernels cannot determine {len(parameters)} parameters ({', '.join(parameters)}); "
            "add measurement kernels"
        )
        raise CalibrationError(msg, model=model)
    return Problem(model, table.kernels, columns, output, relative, table.noise)


def _refuse(table: FeatureTable, rows: NDArray[np.bool_], cause: str, feature: str = "") -> None:
    bad = [table.kernels[i] for i in np.flatnonzero(rows)]
    if bad:
        msg = f"{cause} for {', '.join(bad[:5])}; leave out or correct these kernels"
        raise CalibrationError(msg, feature=feature, kernel=bad[0])
