"""The least-squares problem that a model and a feature table pose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from perflex.errors import CalibrationError
from perflex.expression.tree import as_column

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perflex.expression.model import Model
    from perflex.fit.table import FeatureTable


@dataclass(frozen=True)
class Problem:
    """Residuals of a model over the rows of a table (paper Section 7.2).

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
        Factor on each row's residual, shape ``(m,)``.
    """

    model: Model
    kernels: tuple[str, ...]
    inputs: dict[str, NDArray[np.float64]]
    output: NDArray[np.float64]
    weight: NDArray[np.float64]

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

    def residual(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the weighted residual, shape ``(m,)``."""
        residual: NDArray[np.float64] = self.weight * (self.predict(x) - self.output)
        return residual

    def jacobian(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return its derivatives, shape ``(m, n)``."""
        rows = len(self.kernels)
        jacobian: NDArray[np.float64] = self.weight[:, None] * self.model.compiled.derivatives(self.values(x), rows)
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


def pose(model: Model, table: FeatureTable) -> Problem:
    """Return the problem of fitting a model to a table.

    Raises
    ------
    CalibrationError
        The model cannot be differentiated, has no parameters, or a column is missing; a value is not
        finite; there are fewer rows than parameters.
    """
    require_fittable(model)
    parameters = model.params()
    columns = {feature: table.column(feature) for feature in model.all_features()}
    weight = np.ones(len(table)) if table.scale is None else np.asarray(table.scale, dtype=np.float64)
    for feature, column in {**columns, "scale": weight}.items():
        bad = [table.kernels[i] for i in np.flatnonzero(~np.isfinite(column))]
        if bad:
            listed = ", ".join(bad[:5])
            msg = f"{feature} is not a finite number for {listed}; leave out these kernels or mend them"
            raise CalibrationError(msg, feature=feature, kernel=bad[0])
    # Not only ambiguous: Levenberg-Marquardt needs as many rows as parameters.
    if len(table) < len(parameters):
        msg = (
            f"{len(table)} kernels cannot determine {len(parameters)} parameters ({', '.join(parameters)}); "
            "add measurement kernels"
        )
        raise CalibrationError(msg, model=model)
    output = columns.pop(model.output_feature)
    return Problem(model, table.kernels, columns, output, weight)
