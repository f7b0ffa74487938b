"""The smallest set of variants that holds a near-best one with a stated confidence.

A batch of variants is measured, all are predicted. The promise fails only if the space's fastest variant is dropped
and nothing that is kept comes near it. Its own time is known from above: where the promise is not kept already, it
is below ``b / (1 + loss)``, ``b`` being the fastest measured. What is not known is how much too slow the model
predicts it: the best of many variants is often one that the model misjudges (the winner's curse), so errors of
ordinary variants say little. Two bounds on its prediction are taken, each from the fast measured variants alone,
with predictions that did not see the measurement, and the looser of the two decides:

* split conformal prediction on the fastest ``c / (1 - c)`` measured (19 for 95 %): its prediction is too slow by no
  more than the worst of theirs;
* the regression of prediction on measurement over the faster half, extrapolated to ``b``, with the conformal
  quantile of its residuals: where fast variants are predicted too slow by more the faster they are, the fastest is
  predicted too slow by more than any of them.

Nothing is assumed about the distribution of errors. What is assumed: the batch is a random sample (or one at least as
rich in fast variants), and the space's fastest is misjudged like the fast ones of the batch. A small group of
variants that behaves like none in the batch is beyond any method that sees only the batch.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from perflex.errors import CalibrationError
from perflex.features.scop.checks import is_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    Array = NDArray[np.float64]
    Indices = NDArray[np.intp]

# Level that the conformal quantile must not miss by rounding: 0.95 * 20 is 19, not 20.
_ROUNDING = 1e-9
_LARGEST_LOG = math.log(sys.float_info.max)


@dataclass(frozen=True)
class Promise:
    """What a pruned set shall hold: a variant within ``loss`` of the best, with the stated confidence.

    Attributes
    ----------
    loss
        How much slower than the space's best the best kept variant may be, a fraction: 0.05 for 5 %.
    confidence
        Share of cases in which that shall be so, between 0 and 1.

    Raises
    ------
    ValueError
        A number is out of range.
    """

    loss: float = 0.05
    confidence: float = 0.95

    def __post_init__(self) -> None:
        if not (is_number(self.loss) and 0 <= self.loss < math.inf):
            msg = f"the loss must be a number of at least 0, e.g. 0.05 for 5 %, not {self.loss!r}"
            raise ValueError(msg)
        if not (is_number(self.confidence) and 0 < self.confidence < 1):
            msg = f"the confidence must be a number between 0 and 1, e.g. 0.95, not {self.confidence!r}"
            raise ValueError(msg)

    @property
    def batch(self) -> int:
        """Fewest measured variants that can carry the confidence: ``c / (1 - c)``, 19 for 95 %."""
        return max(1, math.ceil(self.confidence / (1 - self.confidence) - _ROUNDING))

    def __str__(self) -> str:
        return f"within {100 * self.loss:.3g} % of the best with {100 * self.confidence:.4g} % confidence"


@dataclass(frozen=True)
class KeepDecision:
    """Which variants are kept, and what that promises."""

    # Numbers of the kept variants, fastest predicted first, shape ``(k,)``; of the measured ones only the fastest.
    kept: Indices = field(repr=False)
    # What is predicted slower than this multiple of the fastest measured time is dropped; infinite if nothing is.
    threshold_ratio: float
    # That the batch carries, at least what was asked for where ``met``; 1 where everything is kept.
    achieved_confidence: float
    # False if nothing but keeping everything would do.
    met: bool
    explanation: str


Keep = float | int | Promise


def decide(
    keep: Keep, predicted: Array, measured_index: Indices, measured: Array, order: Indices | None = None
) -> KeepDecision:
    """Return which variants are kept: a number of them, a share above 0 (1.0 for all), or a promise.

    Times have shape ``(n,)`` and ``(m,)``. `order` has all variants, the one to be kept first before the others, for a
    number or a share; by default that of `predicted`, where those of measured variants are by models that did not see
    their times. A promise without measured variants is a CalibrationError.
    """
    if isinstance(keep, Promise):
        if not measured_index.size:
            msg = (
                "a promise rests on measured variants: give the times of a few that were drawn by chance as measured, "
                f"at least {keep.batch} of them, or keep a number or a share"
            )
            raise CalibrationError(msg)
        return keep_by_promise(predicted, measured_index, measured, keep)
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
    """Stop where `keep` is out of range, before the work that it does not depend on."""
    if not isinstance(keep, Promise):
        number_kept(keep, 1)


def number_kept(keep: float, total: int) -> int:
    """Return how many of so many are kept, at least one; a CalibrationError where `keep` is out of range."""
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


def keep_by_promise(
    predicted: Array,
    measured_index: Indices,
    measured: Array,
    promise: Promise,
    unseen: Array | None = None,
    judges: NDArray[np.bool_] | None = None,
) -> KeepDecision:
    """Return the smallest set of variants that holds one near the best with the promised confidence.

    Predicted times have shape ``(n,)``, all others ``(m,)``. `judges` says which of the measured variants tell how well
    the model predicts, by default all: a random batch, or one at least as rich in fast variants; others were measured
    because they were expected to be fast, and count for the fastest measured alone. `unseen` is what models that did
    not see their times predict of the measured; without it `predicted` is taken, which is right only for a model that
    was not fitted to them.
    """
    judges = np.ones(measured.size, dtype=bool) if judges is None else judges
    unseen = predicted[measured_index] if unseen is None else unseen
    best = measured_index[[np.argmin(measured)]] if measured.size else measured_index
    chosen = np.ones(predicted.size, dtype=bool)
    chosen[measured_index] = False
    left, ratio = int(chosen.sum()), math.inf
    enough = int(judges.sum()) >= promise.batch
    if enough:
        logs, guesses, fastest = np.log(measured[judges]), np.log(unseen[judges]), math.log(measured.min())
        few = np.argsort(logs, kind="stable")[: promise.batch]
        threshold = max(
            fastest - math.log1p(promise.loss) + float((guesses - logs)[few].max()),
            _regressed(logs, guesses, fastest, promise),
        )
        # An infinite ratio would say that nothing is dropped.
        ratio = math.exp(min(threshold - fastest, _LARGEST_LOG))
        chosen &= np.log(predicted) <= threshold
    dropped = left - int(chosen.sum())
    chosen[best] = True
    ranked = np.argsort(predicted, kind="stable")
    kept = ranked[chosen[ranked]]
    if dropped:
        text = (
            f"{kept.size} of {predicted.size} hold a variant {promise}: a variant predicted slower than {ratio:.3g} "
            f"times the fastest of {measured.size} measured is not the best"
        )
        return KeepDecision(kept, ratio, promise.batch / (promise.batch + 1), met=True, explanation=text)
    cause = f"the model is wrong for fast variants by a factor of up to {ratio:.3g}"
    if not enough:
        need = f"{promise.batch} measured variants are needed for a confidence of {100 * promise.confidence:.4g} %"
        cause = f"{need}, there are {int(judges.sum())}"
    text = f"no variant is excluded without measuring it: {cause}" if left else "all variants are measured"
    return KeepDecision(kept, math.inf, 1.0, met=not left, explanation=text)


def kept_ratio(predicted: ArrayLike, measured: ArrayLike, spaces: Sequence[str], promise: Promise) -> float:
    """Return up to which multiple of the fastest prediction variants of a further space are kept, whatever its times.

    Predicted and measured times, shape ``(n,)``, are of whole spaces that were measured, `spaces` names that of each.
    Each needs some multiple, up to which a variant near its best is kept. Split conformal prediction: where a further
    space is drawn as these were, it needs no more than the quantile of theirs with the confidence, over all draws of
    the spaces and of the further one. Fewer than `promise.batch` spaces are a CalibrationError.
    """
    guesses, seconds, names = np.asarray(predicted), np.asarray(measured), np.asarray(spaces)
    needed = []
    for name in np.unique(names):
        own = names == name
        near = seconds[own] <= (1 + promise.loss) * seconds[own].min()
        needed.append(float(guesses[own][near].min() / guesses[own].min()))
    if len(needed) < promise.batch:
        msg = f"a promise {promise} needs {promise.batch} measured spaces, there are {len(needed)}; measure more"
        raise CalibrationError(msg)
    return sorted(needed)[_conformal_place(len(needed), promise)]


def _conformal_place(count: int, promise: Promise) -> int:
    """Return the conformal quantile's place; a batch of c / (1 - c) is the least where it is not beyond the last."""
    return min(count, math.ceil((count + 1) * promise.confidence - _ROUNDING)) - 1


def _regressed(logs: Array, guesses: Array, goal: float, promise: Promise) -> float:
    """Return an upper bound of the prediction of a variant with the time `goal`, all of them logarithms."""
    half = np.argsort(logs, kind="stable")[: max(promise.batch, logs.size // 2)]
    x, y = logs[half], guesses[half]
    count, centre, offset = x.size, x.mean(), y.mean()
    spread = float(((x - centre) ** 2).sum())
    # 1: all are mispredicted by the same factor; 0: predictions do not tell fast ones apart. Beyond is noise.
    slope = 0.0 if spread == 0 else float(np.clip(((x - centre) * (y - offset)).sum() / spread, 0, 1))
    away = goal - centre
    # Residuals at the ends of the line are small because it was drawn through them.
    leverage = 1 / count + ((x - centre) ** 2 / spread if spread else 0.0)
    residuals = (y - offset - slope * (x - centre)) / np.sqrt(np.maximum(1 - leverage, 1 / count))
    bound = float(np.sort(residuals)[_conformal_place(count, promise)])
    deviation = math.sqrt(float((residuals**2).mean()))
    # The larger of the two: a quantile of few residuals may be too small by chance.
    half_width = max(bound, deviation * NormalDist().inv_cdf(promise.confidence))
    # The root widens the bound away from the centre as a regression's prediction interval is.
    return float(offset + slope * away + half_width * math.sqrt(1 + 1 / count + (away**2 / spread if spread else 0.0)))
