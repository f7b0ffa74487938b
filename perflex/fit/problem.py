"""The least-squares problem that a model and a feature table pose."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from perflex.errors import CalibrationError
from perflex.expression.tree import as_column

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perflex.expression.model import Model
    from perflex.fit.loss import SoftL1
    from perflex.fit.table import FeatureTable

# Below this share of the output the logarithm goes on as its tangent: it has no value at zero and below, where the
# way to the minimum may lead. No kernel whose prediction is worth anything lies there.
_LEAST_RATIO = 1e-3
# Scaling by the output is told from other factors to rounding.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Problem:
    """Residuals of a model over the rows of a table (paper Section 7.2), as its loss sees them.

    Least squares takes model minus output, times the weight. A loss takes that, too, or, where rows are divided by
    their output, the logarithm of their ratio: a ratio of measured outputs to half and to double is then as far off
    either way, so that noise in the output does not pull predictions down.

    Attributes
    ----------
    model
        The model to fit.
    kernels
        A label per row.
    inputs
        Values of each input feature, shape ``(m,)`` each.
    output
        Values of the output feature, shape ``(m,)``.
    weight
        Factor on each row's residual, shape ``(m,)``: the table's scale times the root.
    root
        Square root of how much each row counts (`FeatureTable.weights`), shape ``(m,)``. Under a loss that is how often
        the row's loss counts: what the loss is taken of lacks it.
    loss
        What is minimised; None for the sum of squares.
    """

    model: Model
    kernels: tuple[str, ...]
    inputs: dict[str, NDArray[np.float64]]
    output: NDArray[np.float64]
    weight: NDArray[np.float64]
    root: NDArray[np.float64]
    loss: SoftL1 | None = None

    @property
    def parameters(self) -> list[str]:
        """The model's parameters, in the order of the columns."""
        return self.model.params()

    @property
    def size(self) -> float:
        """Euclidean norm of the weighted output."""
        return float(np.linalg.norm(self.weight * self.output))

    def values(self, x: NDArray[np.float64]) -> dict[str, NDArray[np.float64] | float]:
        """Return features and the parameters of a vector, by name."""
        return {**self.inputs, **dict(zip(self.parameters, map(float, x), strict=True))}

    def predict(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the model's output for each row, shape ``(m,)``."""
        return as_column(self.model.compiled.value(self.values(x)), len(self.kernels))

    @cached_property
    def logarithmic(self) -> bool:
        """Whether residuals under a loss are logarithms: rows are divided by their output, which is positive."""
        scaled = self.weight / self.root * self.output
        return bool((self.output > 0).all()) and bool(np.all(np.abs(scaled - 1) <= _ROUNDING))

    def under(self, loss: SoftL1 | None) -> Problem:
        """Return the same problem with another loss."""
        return replace(self, loss=loss)

    def residual(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the residual whose sum of squares is minimised, shape ``(m,)``."""
        if self.loss is None:
            residual: NDArray[np.float64] = self.weight * (self.predict(x) - self.output)
            return residual
        return self.root * self.loss.signed_root(self.plain_residual(x))

    def jacobian(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return its derivatives, shape ``(m, n)``."""
        if self.loss is None:
            return self._derivatives(x, self.weight)
        slope = self.loss.slope_of_root(self.plain_residual(x))
        return self._derivatives(x, self.root * slope * self._slope_of_plain(x))

    def plain_residual(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what the loss is taken of, shape ``(m,)``: without a loss, the residual itself."""
        if self.loss is None or not self.logarithmic:
            residual: NDArray[np.float64] = self._plain_weight * (self.predict(x) - self.output)
            return residual
        ratio = self.predict(x) / self.output
        low = ratio < _LEAST_RATIO
        tangent = np.log(_LEAST_RATIO) + (ratio / _LEAST_RATIO - 1)
        logarithm: NDArray[np.float64] = np.where(low, tangent, np.log(np.where(low, 1.0, ratio)))
        return logarithm

    def plain_jacobian(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the derivatives of the plain residual by the parameters, shape ``(m, n)``."""
        return self._derivatives(x, self._slope_of_plain(x))

    def regression(self, x: NDArray[np.float64], used: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return Jacobian and residual of the linear least-squares problem with the same estimates and variances.

        At a solution from which `used` parameters were determined; under a loss its pseudo-residuals.
        """
        residual = self.plain_residual(x)
        jacobian = self.plain_jacobian(x)
        if self.loss is None:
            return jacobian, residual
        return self.root[:, None] * jacobian, self.root * self.loss.pseudo_residual(residual, used)

    def scatter(self, x: NDArray[np.float64]) -> float:
        """Return the sum of squares that the gain of a further parameter is compared with: of residuals at `x`.

        Under a loss the sum of squared influences over their mean slope.
        """
        residual = self.plain_residual(x)
        if self.loss is None:
            return float(residual @ residual)
        influence = self.root * self.loss.influence(residual)
        return float(influence @ influence) / float(np.mean(self.loss.slope_of_influence(residual)))

    @property
    def _plain_weight(self) -> NDArray[np.float64]:
        return self.weight if self.loss is None else self.weight / self.root

    def _slope_of_plain(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the derivative of each plain residual by the model's value, shape ``(m,)``."""
        if self.loss is None or not self.logarithmic:
            return self._plain_weight
        slope: NDArray[np.float64] = 1.0 / np.maximum(self.predict(x), _LEAST_RATIO * self.output)
        return slope

    def _derivatives(self, x: NDArray[np.float64], factor: NDArray[np.float64]) -> NDArray[np.float64]:
        rows = len(self.kernels)
        jacobian: NDArray[np.float64] = factor[:, None] * self.model.compiled.derivatives(self.values(x), rows)
        return jacobian


def require_fittable(model: Model) -> None:
    """Make sure that a model can be fitted, whatever the measurements say.

    Raises
    ------
    CalibrationError
        The model cannot be differentiated by its parameters, or has none.
    """
    if nonsmooth := model.nonsmooth_calls():
        cause = f"{nonsmooth[0]} cannot be differentiated by its parameters, so the model cannot be fitted"
        msg = f"{cause}; write overlap(g, o, p_edge) instead of max(g, o)"
        raise CalibrationError(msg, model=model)
    if not model.params():
        msg = f"the model {model.expression!r} has no parameters to fit; add factors such as p_madd"
        raise CalibrationError(msg, model=model)


def pose(model: Model, table: FeatureTable, *, few: bool = False) -> Problem:
    """Return the problem of fitting a model to a table; with `few` of any number of rows.

    Raises
    ------
    CalibrationError
        The model cannot be differentiated, has no parameters, or a column is missing; a value is not
        finite; there are fewer rows than parameters, unless few will do.
    """
    require_fittable(model)
    parameters = model.params()
    columns = {feature: table.column(feature) for feature in model.all_features()}
    weight = np.ones(len(table)) if table.scale is None else np.asarray(table.scale, dtype=np.float64)
    counts = np.ones(len(table)) if table.weights is None else np.asarray(table.weights, dtype=np.float64)
    if (counts <= 0).any():
        label = table.kernels[int(np.argmin(counts))]
        msg = (
            f"the weight of {label} is {counts.min():g}; weights must be positive, leave out rows that shall not count"
        )
        raise CalibrationError(msg, kernel=label)
    for feature, column in {**columns, "scale": weight, "weights": counts}.items():
        bad = [table.kernels[i] for i in np.flatnonzero(~np.isfinite(column))]
        if bad:
            listed = ", ".join(bad[:5])
            msg = f"{feature} is not a finite number for {listed}; leave out or correct these kernels"
            raise CalibrationError(msg, feature=feature, kernel=bad[0])
    # Not only ambiguous: Levenberg-Marquardt needs as many rows as parameters.
    if len(table) < len(parameters) and not few:
        msg = (
            f"{len(table)} kernels cannot determine {len(parameters)} parameters ({', '.join(parameters)}); "
            "add measurement kernels"
        )
        raise CalibrationError(msg, model=model)
    output = columns.pop(model.output_feature)
    root = np.sqrt(counts)
    return Problem(model, table.kernels, columns, output, weight * root, root)
