"""How many variants to keep: a number, a share, or a promise."""

from __future__ import annotations

import math
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from perflex.errors import CalibrationError
from perflex.search.pruning.promise import KeepDecision, Promise, keep_by_promise

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perflex.calibration.calibration import Calibration

    Array = NDArray[np.float64]
    Indices = NDArray[np.intp]

Keep = float | int | Promise

# What to do where a calibration carries no promise.
_INSTEAD = "give measured variants, or keep a number or a share"


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
    ranked = np.argsort(predicted, kind="stable")
    if isinstance(keep, Promise):
        if measured_index.size:
            return keep_by_promise(
                predicted,
                measured_index=measured_index,
                measured=measured,
                predicted_of_measured=unseen,
                promise=keep,
            )
        return _by_calibration(predicted, ranked, keep, calibration)
    order = ranked if order is None else order
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


def _by_calibration(
    predicted: Array, ranked: Indices, promise: Promise, calibration: Calibration | None
) -> KeepDecision:
    """Keep what may be the best if variants are predicted as well as kernels of a generator that a fit did not see.

    The best variant has the time ``p exp(e)``, ``p`` its prediction and ``e`` its error, and is faster than that
    predicted fastest by the loss or more, else the promise is kept; so ``p`` exceeds the fastest prediction by no more
    than the difference of two errors. Kernels of one generator err alike: a fit that saw one of them predicts the
    others well, and a hundred of them are one observation. So generators are held out, and the bound is the conformal
    quantile, over pairs of generators, of the largest difference of two errors.
    """
    logs = [] if calibration is None else held_out_logs(calibration)
    # All pairs are used, but only disjoint ones are independent observations.
    pairs = len(logs) // 2
    # Split conformal prediction: of n exchangeable errors the ceil((n + 1) c)-th bounds the next with probability c.
    place = math.ceil((pairs + 1) * promise.confidence - 1e-9)
    if place > pairs:
        msg = (
            f"a confidence of {100 * promise.confidence:.4g} % needs {2 * promise.batch} generators of measurement "
            f"kernels that can be held out one by one, the calibration has {len(logs)}; {_INSTEAD}"
        )
        raise CalibrationError(msg)
    differences = [
        max(one.max() - other.min(), other.max() - one.min(), np.ptp(one), np.ptp(other))
        for one, other in combinations(logs, 2)
    ]
    quantile = float(np.quantile(differences, place / pairs, method="higher"))
    ratio = math.exp(quantile) / (1 + promise.loss)
    # What is kept at least: the variant predicted fastest.
    kept = ranked[predicted[ranked] <= max(ratio, 1.0) * predicted.min()]
    everything = kept.size == predicted.size and kept.size > 1
    text = (
        f"{kept.size} of {predicted.size}, predicted at most {max(ratio, 1.0):.3g} times the fastest: {promise}, if "
        f"variants are predicted as well as kernels of a generator that the fit did not see ({len(logs)} generators, "
        "each held out with all its kernels); a measured batch of variants would show it"
    )
    return KeepDecision(
        kept, max(ratio, 1.0), place / (pairs + 1), met=not everything, explanation=text, promise=promise
    )


def held_out_logs(calibration: Calibration) -> list[Array]:
    """Return log(measured / predicted) of each generator's kernels, predicted by a fit to those of all others.

    Raises
    ------
    CalibrationError
        The file keeps no measured values, or the kernels of some generator cannot be predicted by the others.
    """
    from perflex.calibration.held_out import held_out_by_generator

    table = calibration.table
    if table is None:
        msg = "the calibration's file keeps no measured values; calibrate again, or give measured variants"
        raise CalibrationError(msg)
    fit = calibration.fit
    found = held_out_by_generator(
        calibration.model, table, nonnegative=bool(fit.nonnegative), start=fit, loss=fit.loss, bounds=fit.bounds
    )
    # Errors are predicted / measured - 1; a prediction of zero or less has no logarithm.
    ratios = [np.array([1 + error for error in part.errors]) for part in found]
    sound = [bool(each.size and np.all(np.isfinite(each) & (each > 0))) for each in ratios]
    lost = [part for part, fine in zip(found, sound, strict=True) if not fine or part.undetermined]
    if lost:
        first = lost[0]
        why = (
            f"the others leave {', '.join(first.undetermined)} undetermined"
            if first.undetermined
            else first.reason or "a fit to the others predicts times that are not positive"
        )
        msg = (
            f"no promise rests on this calibration: {len(lost)} of {len(found)} generators cannot be held out "
            f"({first.generator}: {why}), and held-out parts of a generator would be predicted by its other kernels; "
            f"{_INSTEAD}"
        )
        raise CalibrationError(msg, generators=tuple(part.generator for part in lost))
    return [-np.log(each) for each in ratios]
