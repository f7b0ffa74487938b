"""What a measurement kernel tells about a model's parameters: its row of the scaled Jacobian."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perflex.errors import CalibrationError
from perflex.expression.tree import as_column

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from perflex.expression.model import Model
    from perflex.fit.table import FeatureTable

    Array = NDArray[np.float64]

# A median of n timings has this times the standard error of their mean; an interquartile range is so many
# standard deviations (both for normally distributed timings).
# sqrt(pi / 2), and twice the normal distribution's upper quartile, 0.6745.
_MEDIAN = 1.2533
_QUARTILES = 1.349


def elasticities(model: Model, params: Mapping[str, float], table: FeatureTable) -> tuple[Array, Array]:
    """Return each kernel's predicted output and its relative change per relative change of each parameter.

    A fit of relative errors (paper Section 7.2) has the Jacobian ``(df_i/dp_j) / f_i``; with its columns times
    ``p_j`` the entries have no units. For a cost at zero the derivative itself is returned: a design does not
    depend on how long columns are.

    Parameters
    ----------
    model, params
        The model and a value per parameter.
    table
        The kernels' features, one row each.

    Returns
    -------
    tuple
        Predicted outputs in the output's unit, shape ``(m,)``, and the scaled Jacobian, shape ``(m, n)``.

    Raises
    ------
    CalibrationError
        The model is not positive and finite, or has no finite derivative, for some kernel.
    """
    names = model.params()
    values: dict[str, Array | float] = {feature: table.column(feature) for feature in model.input_features()}
    values.update({name: float(params[name]) for name in names})
    with np.errstate(all="ignore"):
        predicted = as_column(model.compiled.value(values), len(table))
        derivatives = model.compiled.derivatives(values, len(table))
        scale = np.array([abs(params[name]) or 1.0 for name in names])
        rows: Array = derivatives * scale / predicted[:, None]
    bad = np.flatnonzero(~(np.isfinite(rows).all(axis=1) & np.isfinite(predicted) & (predicted > 0)))
    if len(bad):
        msg = (
            f"the model gives {table.kernels[bad[0]]} no positive time with finite derivatives at the parameters "
            "guessed so far; give better ones with guess={parameter: value}, or calibrate without a budget"
        )
        raise CalibrationError(msg, kernel=table.kernels[bad[0]], model=model)
    return predicted, rows


def information_share(spread: Array, trials: Array, misfit: float) -> Array:
    """Return how much of a kernel's information so many timings give, between 0 and 1.

    The error of a row is that of its timing, which more trials reduce, and that of the model, which they do not:
    ``misfit**2 / (misfit**2 + (1.2533 spread / 1.349)**2 / trials)``.

    Parameters
    ----------
    spread
        Interquartile range of the timings over their median, shape ``(m,)``.
    trials
        Timings of each kernel, shape ``(m,)``; none give nothing.
    misfit
        Relative error that the model itself has, a fraction above 0.
    """
    noise = (_MEDIAN / _QUARTILES * spread / misfit) ** 2
    share: Array = np.where(trials > 0, 1.0 / (1.0 + noise / np.maximum(trials, 1)), 0.0)
    return share
