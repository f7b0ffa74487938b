"""What a fit minimises: the sum of squares of a model's residuals over the rows of a table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from perflex.errors import CalibrationError
from perflex.expression.roles import find_roles, roles_with_costs_for_rates
from perflex.expression.tree import as_column, evaluate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from perflex.expression.model import Model
    from perflex.expression.roles import Roles
    from perflex.fit.options import Residual
    from perflex.fit.table import FeatureTable

    Array = NDArray[np.float64]

# Below this share of the output the logarithm goes on as its tangent: it has no value at zero and below, where the
# way to the minimum may lead. No kernel whose prediction is worth anything lies there.
_LEAST_RATIO = 1e-3


@dataclass(frozen=True, eq=False)
class Problem:
    """Residuals of a model over the rows of a table.

    Model minus output, absolute or relative to the output (paper Section 7.2), or the logarithm of model over output:
    predictions of half and double are then as far off either way, so that large errors do not pull predictions down.
    """

    model: Model
    # A label per row, and values of the features, shape ``(m,)`` each.
    kernels: tuple[str, ...]
    inputs: Mapping[str, NDArray[np.float64]]
    output: NDArray[np.float64]
    kind: Residual = "relative"
    # Measured relative noise of each row (`FeatureTable.noise`), shape ``(m,)``; None where it is not known.
    noise: NDArray[np.float64] | None = None

    @property
    def relative(self) -> bool:
        """Whether residuals are without unit."""
        return self.kind != "absolute"

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
        return as_column(evaluate(self.model.tree, self.values(x)), len(self.kernels))

    def derivatives(self, x: Array) -> Array:
        """Return the derivatives of the model's output by the parameters, shape ``(m, n)``."""
        return self.model.derivatives(self.values(x), len(self.kernels))

    def residual(self, x: Array) -> Array:
        """Return the residual whose sum of squares is minimised, shape ``(m,)``."""
        if self.kind != "logarithmic":
            residual: Array = self.weight * (self.predict(x) - self.output)
            return residual
        ratio = self.predict(x) / self.output
        low = ratio < _LEAST_RATIO
        tangent = np.log(_LEAST_RATIO) + (ratio / _LEAST_RATIO - 1)
        logarithm: Array = np.where(low, tangent, np.log(np.where(low, 1.0, ratio)))
        return logarithm

    def jacobian(self, x: Array) -> Array:
        """Return its derivatives, shape ``(m, n)``."""
        slope = self.weight
        if self.kind == "logarithmic":
            slope = 1.0 / np.maximum(self.predict(x), _LEAST_RATIO * self.output)
        jacobian: Array = slope[:, None] * self.derivatives(x)
        return jacobian


def require_fittable(model: Model) -> None:
    """Make sure that a model can be fitted, whatever the measurements say."""
    if nonsmooth := model.nonsmooth_calls():
        cause = f"{nonsmooth[0]} cannot be differentiated by its parameters, so the model cannot be fitted"
        msg = f"{cause}; write smooth_max(x, y, ..., p_sharp) instead of max"
        if nonsmooth[0].startswith("min"):
            msg = f"{cause}; keep parameters out of min"
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
        terms = [list(monomial.powers) for monomial in roles.of[name].monomials or ()]
        absent = [[f for f in features if f in columns and not columns[f].any()] for features in terms]
        if absent and all(absent):
            missing[name] = ", ".join(dict.fromkeys(f for features in absent for f in features))
    if missing:
        reasons = "; ".join(
            f"{name} is determined by no kernel ({zero} is zero in all of them)" for name, zero in missing.items()
        )
        msg = f"{reasons}; add kernels that contain it, or drop parameters from the model"
        raise CalibrationError(msg, parameters=tuple(missing), model=model)


def pose(model: Model, table: FeatureTable, residual: Residual = "relative", *, few: bool = False) -> Problem:
    """Return the problem of fitting a model to a table; with `few` of any number of rows."""
    require_fittable(model)
    parameters = model.params()
    columns = table.columns(model.all_features())
    for feature, column in columns.items():
        _refuse(table, ~np.isfinite(column), f"{feature} is not a finite number", feature)
    output = columns.pop(model.output_feature)
    if residual != "absolute":
        _refuse(table, output <= 0, f"errors are relative to {model.output_feature}, which is not positive")
    # Not only ambiguous: Levenberg-Marquardt needs as many rows as parameters.
    if len(table) < len(parameters) and not few:
        msg = (
            f"{len(table)} kernels cannot determine {len(parameters)} parameters ({', '.join(parameters)}); "
            "add measurement kernels"
        )
        raise CalibrationError(msg, model=model)
    return Problem(model, table.kernels, columns, output, residual, table.noise)


def _refuse(table: FeatureTable, rows: NDArray[np.bool_], cause: str, feature: str = "") -> None:
    bad = [table.kernels[i] for i in np.flatnonzero(rows)]
    if bad:
        msg = f"{cause} for {', '.join(bad[:5])}; leave out or correct these kernels"
        raise CalibrationError(msg, feature=feature, kernel=bad[0])
