"""How many variants to keep: a number, a share, or a promise."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from perflex.errors import CalibrationError
from perflex.search.pruning.promise import KeepDecision, Promise, keep_by_promise
from perflex.search.pruning.unmeasured import keep_unmeasured

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perflex.calibration.calibration import Calibration

    Array = NDArray[np.float64]
    Indices = NDArray[np.intp]

Keep = float | int | Promise


def decide(
    keep: Keep,
    predicted: Array,
    measured_index: Indices,
    measured: Array,
    *,
    calibration: Calibration | None = None,
    order: Indices | None = None,
    unseen: Array | None = None,
) -> KeepDecision:
    """Return which variants are kept.

    Parameters
    ----------
    keep
        A number of variants, a share of them above 0 and below 1 (1.0 for all), or a promise.
    predicted
        Times of all variants, shape ``(n,)``, in any one unit.
    measured_index, measured
        Which were measured, and their times; may be empty.
    calibration
        Whose errors carry a promise where nothing was measured.
    order
        All variants, the one to be kept first before the others, for a number or a share; by default by `predicted`.
    unseen
        Predictions of the measured variants by models that did not see them; by default those in `predicted`, which
        is right only for a model that was not fitted to them.

    Raises
    ------
    CalibrationError
        `keep` is out of range, or a promise has nothing to go by.
    """
    if isinstance(keep, Promise):
        if measured_index.size:
            return keep_by_promise(
                predicted,
                measured_index=measured_index,
                measured=measured,
                predicted_of_measured=unseen,
                promise=keep,
            )
        return keep_unmeasured(predicted, calibration, keep)
    order = np.argsort(predicted, kind="stable") if order is None else order
    count = number_kept(keep, predicted.size)
    # Of those measured only the fastest may be worth running again: the others are known to be slower.
    best = measured_index[[np.argmin(measured)]] if measured_index.size else measured_index
    left = order[~np.isin(order, measured_index)][: count - best.size]
    kept = order[np.isin(order, np.concatenate([best, left]))].astype(np.intp)
    what = "the fastest measured and those" if best.size else "those"
    text = f"{kept.size} of {predicted.size}: {what} predicted fastest"
    return KeepDecision(kept, math.inf, math.nan, met=True, explanation=text)


def check_keep(keep: Keep) -> None:
    """Stop where `keep` is out of range, before the work that it does not depend on.

    Raises
    ------
    CalibrationError
        As `number_kept`.
    """
    if not isinstance(keep, Promise):
        number_kept(keep, 1)


def number_kept(keep: float, total: int) -> int:
    """Return how many of so many are kept, at least one.

    Raises
    ------
    CalibrationError
        It is neither a positive whole number, nor a share above 0 and at most 1.
    """
    if isinstance(keep, bool) or not isinstance(keep, (int, float, np.integer, np.floating)):
        msg = f"keep must be a number of variants, a share such as 0.1, or a Promise, not {keep!r}"
        raise CalibrationError(msg)
    if isinstance(keep, (int, np.integer)):
        if keep < 1:
            msg = f"at least one variant must be kept, not {keep}"
            raise CalibrationError(msg)
        return min(int(keep), total)
    if not 0 < keep <= 1:
        msg = f"the share to keep must be above 0 and at most 1, e.g. 0.1; write {keep:g} as an int for a number"
        raise CalibrationError(msg)
    # Rounding alone may lift a product above a whole number.
    return max(1, math.ceil(keep * total - 1e-9))
