"""How much slower or faster a kernel becomes by a change, and what is not known of that."""

from __future__ import annotations

from dataclasses import dataclass
from math import isclose, sqrt
from typing import TYPE_CHECKING

import numpy as np

from perflex.calibration.interval import carried_by
from perflex.calibration.prediction_variance import gradient_at, student_quantile
from perflex.errors import CalibrationError
from perflex.fit.posterior import posterior_of_logarithms

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perflex.calibration.interval import PredictionInterval
    from perflex.calibration.prediction import Prediction

# Values that differ by less are equal: they may be summed in another order.
_EQUAL = 1e-9


@dataclass(frozen=True)
class Change:
    """Time of a new version of a kernel over that of the old one, and limits of what a measurement would give."""

    ratio: float
    low: float
    high: float
    confidence: float


def change_of(old: Prediction, new: Prediction, confidence: float = 0.95) -> Change:
    """Return how the time of a kernel changes from one version to another.

    Two versions share much of what a model does not know of a kernel: that is taken for a factor on each of its costs,
    the same in both. With the derivatives d of ln(new / old) by the logarithms of the parameters, the covariance C of
    these, and the deviation s of a kernel about the model, the variance of ln(new / old) is ``d' C d + s**2 d' d``
    (over costs alone in the second part); what both have alike cancels. Where anything is counted differently, each
    version has an error of its own beside, of deviation s: compilers make other code of both.

    Parameters
    ----------
    old, new
        Predictions of one calibration, each at one value of each size and with an interval.
    confidence
        Share of measured changes that shall lie inside, between 0 and 1.

    Raises
    ------
    CalibrationError
        A predicted time is not above zero.
    """
    if not min(old.seconds, new.seconds) > 0:
        msg = "a predicted time is not above zero, so that there is no ratio; calibrate again, without negative costs"
        raise CalibrationError(msg)
    fit, known = new.calibration.fit, carried_by(new.calibration)
    shares = _shares(new) - _shares(old)
    # The edge of an overlap is no cost.
    costs = shares[[parameter.kind == "cost" for parameter in fit.parameters]]
    residual = max(float(one.residual_deviation / one.predicted) for one in (_interval(old), _interval(new)))
    same = all(isclose(new.values[name], value, rel_tol=_EQUAL) for name, value in old.values.items())
    of_parameters = max(float(shares @ posterior_of_logarithms(fit) @ shares), 0.0)
    deviation = sqrt(of_parameters + residual**2 * (float(costs @ costs) + 2 * (not same)))
    if known is None:
        half_width = student_quantile((1 + confidence) / 2, float(_interval(new).degrees_of_freedom))
    else:
        half_width = known.half_width(confidence)
    ratio, factor = float(new.seconds / old.seconds), float(np.exp(half_width * deviation))
    return Change(ratio, ratio / factor, ratio * factor, confidence)


def _interval(one: Prediction) -> PredictionInterval:
    if one.interval is None:
        msg = "the prediction of a change needs intervals; explain both versions with a confidence"
        raise ValueError(msg)
    return one.interval


def _shares(one: Prediction) -> NDArray[np.float64]:
    """Return the derivatives of ln(predicted) by the logarithms of the parameters, shape ``(n,)``."""
    record = one.calibration
    found: NDArray[np.float64] = gradient_at(record.model, record.fit, one.values)[0] * record.fit.vector
    return found / float(record.evaluate(one.values))
