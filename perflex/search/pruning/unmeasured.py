"""A promise before anything is measured: from how differently the kernels of one generator are mispredicted.

Which variant is the best depends on *differences* of errors. What is wrong with a cost that all variants have in common
shifts them alike, and so it does kernels of one generator: their errors differ by less than those of kernels at large.
Each generator in turn is left out, all of its kernels predicted by a fit to the others, and the variants given the
errors that those have (ln measured / predicted), drawn by chance. How often a set that begins with the variant
predicted fastest then holds one near the best, is known for each generator.

A new kernel's variants are taken for one more generator. That the promise is held for it as often as stated follows
if its own failures are reckoned as certain: ``G / (G + 1)`` times the mean over G generators must reach the confidence
(conformal risk control: Angelopoulos et al., ICLR 2024). Nothing is assumed of the distribution of errors.

Only kernels whose predicted times are alike are compared, since variants do the same work. Where there are more
variants than such kernels, errors are drawn repeatedly: larger ones than were seen are not foreseen.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from perflex.errors import CalibrationError
from perflex.search.pruning.promise import KeepDecision, ratio_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perflex.calibration.calibration import Calibration
    from perflex.calibration.left_out import LeftOutKernels
    from perflex.search.pruning.promise import Promise

    Array = NDArray[np.float64]
    Indices = NDArray[np.intp]

# Kernels of a generator are alike in time if the slowest is predicted to take this many times the fastest. Of variants
# predicted slower by more than that few matter.
_ALIKE = 5.0
# Draws of errors for each generator, and fewest where there are many variants.
_DRAWS, _FEWEST_DRAWS, _MOST_NUMBERS = 400, 40, 4_000_000
_SEED = 0
_ROUNDING = 1e-9
# What to do where a calibration carries no promise.
_INSTEAD = "give measured variants, or keep a number or a share"


def keep_unmeasured(predicted: Array, calibration: Calibration | None, promise: Promise) -> KeepDecision:
    """Return the fewest variants, those predicted fastest, that hold one near the best with the promised confidence.

    Parameters
    ----------
    predicted
        Times of all variants, shape ``(n,)``, in any one unit.
    calibration
        What predicted them.
    promise
        What to hold.

    Raises
    ------
    CalibrationError
        Learning corrects the predictions; or the calibration keeps no measured values; or too few of its generators
        have several kernels of similar times that the others can predict.
    """
    if calibration is not None and calibration.learned is not None and calibration.learned.helps:
        msg = f"no promise is known for predictions that learning corrects; {_INSTEAD}"
        raise CalibrationError(msg)
    found = None if calibration is None else calibration.left_out_kernels
    if found is None:
        msg = "the calibration's file keeps no measured values; calibrate again, or give measured variants"
        raise CalibrationError(msg)
    windows = similar_errors(found)
    if len(windows) < promise.batch:
        msg = (
            f"a confidence of {100 * promise.confidence:.4g} % needs {promise.batch} generators with several kernels "
            f"of similar times that the others can predict, the calibration has {len(windows)}; {_INSTEAD}"
        )
        raise CalibrationError(msg)
    ranked = np.argsort(predicted, kind="stable")
    logs = np.log(predicted[ranked])
    held = _shares_held(logs, windows, promise.loss)
    confidence = held * len(windows) / (len(windows) + 1)
    count = int(np.argmax(confidence >= promise.confidence - _ROUNDING)) + 1
    kept = ranked[:count]
    everything = count == predicted.size and count > 1
    ratio = ratio_of(float(logs[count - 1] - logs[0]))
    text = (
        f"{count} of {predicted.size}, predicted at most {ratio:.3g} times the fastest: {promise}, if their errors "
        f"differ by as much as those of a generator's kernels ({len(windows)} generators, each left out with all its "
        "kernels); a measured batch of variants would show it"
    )
    # A sure promise is one of everything.
    achieved = 1.0 if everything else float(confidence[count - 1])
    return KeepDecision(kept, ratio, achieved, met=not everything, explanation=text, promise=promise)


def similar_errors(found: LeftOutKernels) -> list[list[Array]]:
    """Return errors of left-out kernels that are alike in time: one list per generator that has such kernels.

    Each array has the errors of two kernels or more, all those between some time and five times as much, as predicted.
    Those that are part of another array are left out.
    """
    windows = []
    for name in dict.fromkeys(found.owners[found.known].tolist()):
        own = (found.owners == name) & found.known
        order = np.argsort(found.predicted[own], kind="stable")
        times, errors = found.predicted[own][order], found.errors[own][order]
        ends = np.searchsorted(times, _ALIKE * times, side="right")
        # What begins later and ends no later is part of another.
        whole = np.diff(ends, prepend=0) > 0
        alike = [errors[i : ends[i]] for i in np.flatnonzero(whole & (ends - np.arange(ends.size) > 1))]
        if alike:
            windows.append(alike)
    return windows


def _shares_held(logs: Array, windows: list[list[Array]], loss: float) -> Array:
    """Return how often the first k variants hold one near the best, shape ``(n,)``; every generator counts alike.

    Parameters
    ----------
    logs
        Logarithms of predicted times, ascending, shape ``(n,)``.
    windows
        From `similar_errors`.
    loss
        How much slower than the best is near enough, a fraction.
    """
    chance = np.random.default_rng(_SEED)
    widest = max(float(np.ptp(errors)) for own in windows for errors in own)
    # No difference of errors makes what lies beyond the best.
    count = int(np.searchsorted(logs, logs[0] + widest, side="right"))
    draws = min(_DRAWS, max(_FEWEST_DRAWS, _MOST_NUMBERS // count))
    held = np.zeros(count)
    for own in windows:
        each = math.ceil(draws / len(own))
        places = np.concatenate([_places(logs[:count], errors, each, loss, chance) for errors in own])
        held += np.cumsum(np.bincount(places, minlength=count)) / places.size
    shares = np.ones(logs.size)
    shares[:count] = held / len(windows)
    return shares


def _places(logs: Array, errors: Array, draws: int, loss: float, chance: np.random.Generator) -> Indices:
    """Return the place of the first variant that is near the best, in each draw of errors, shape ``(draws,)``."""
    if errors.size >= logs.size:
        drawn = np.argsort(chance.random((draws, errors.size)), axis=1)[:, : logs.size]
    else:
        drawn = chance.integers(0, errors.size, (draws, logs.size))
    times = logs + errors[drawn]
    near = times <= times.min(axis=1, keepdims=True) + math.log1p(loss)
    found: Indices = np.argmax(near, axis=1)
    return found
