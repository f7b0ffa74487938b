"""Measuring the most promising configurations next, and a tuner that learns from each batch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from perflex._described.hybrid import check_learn, predict_hybrid
from perflex.errors import CalibrationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from perflex._described.hybrid import HybridPrediction
    from perflex._described.space import DescribedSpace

    Array = NDArray[np.float64]
    Indices = NDArray[np.intp]

__all__ = ["DescribedTuner", "expected_improvement", "first_batch", "most_promising", "tune_described"]

_FIRST = 20
_BATCH = 5
# Candidates per configuration of the first batch.
_CANDIDATES = 20


def expected_improvement(predicted: Array, deviation: Array, best: float) -> Array:
    """Return by how much each configuration is expected to beat the best, in the logarithm of the time.

    Parameters
    ----------
    predicted
        Predicted times, shape ``(n,)``.
    deviation
        Standard deviations of their logarithms, shape ``(n,)``.
    best
        The fastest measured time.

    Notes
    -----
    Jones, Schonlau, Welch, Efficient Global Optimization of Expensive Black-Box Functions, Eq. 15.
    """
    from scipy.special import ndtr

    gain = np.log(best) - np.log(predicted)
    width = np.maximum(deviation, 1e-9)
    z = gain / width
    return np.asarray(gain * ndtr(z) + width * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi))


def most_promising(prediction: HybridPrediction, measured: Indices, best: float, count: int) -> Indices:
    """Return the configurations to measure next.

    In turn the one predicted fastest with the correction, the one of the largest expected improvement, the one that
    trees predict fastest, and the one that the analytic model does: models that err do not err alike.

    Parameters
    ----------
    prediction
        Predictions of the space.
    measured
        Configurations that were measured (or failed) already: none is chosen again.
    best
        The fastest measured time.
    count
        How many; fewer are returned where no more are left.
    """
    gain = expected_improvement(prediction.predicted, prediction.deviation, best)
    scores = (prediction.predicted, -gain, prediction.direct, prediction.analytic.predicted)
    orders = [np.argsort(score, kind="stable") for score in scores]
    taken = np.zeros(len(gain), dtype=np.bool_)
    taken[measured] = True
    chosen: list[int] = []
    places = [0] * len(orders)
    while len(chosen) < min(count, len(gain) - len(measured)):
        turn = len(chosen) % len(orders)
        while taken[orders[turn][places[turn]]]:
            places[turn] += 1
        found = int(orders[turn][places[turn]])
        taken[found] = True
        chosen.append(found)
    return np.array(chosen, dtype=np.intp)


def first_batch(space: DescribedSpace, count: int, seed: int) -> Indices:
    """Return configurations that fill the space of features evenly: each far from those before it.

    Every next one is, of some drawn at random, the one farthest from those chosen (Mitchell's best candidate), over
    features and tunables on even scales.
    """
    random = np.random.default_rng(seed)
    inputs = space.inputs(0)
    even = np.clip((inputs - inputs.mean(axis=0)) / inputs.std(axis=0), -3, 3)
    chosen = [int(random.integers(len(space)))]
    while len(chosen) < min(count, len(space)):
        drawn = np.setdiff1d(random.choice(len(space), min(_CANDIDATES, len(space)), replace=False), chosen)
        if drawn.size:
            apart = ((even[drawn][:, None] - even[chosen][None]) ** 2).sum(axis=2).min(axis=1)
            chosen.append(int(drawn[np.argmax(apart)]))
    return np.array(chosen, dtype=np.intp)


@dataclass
class DescribedTuner:
    """Ask for configurations to measure, tell their times.

    The first batch fills the space of features; then the analytic model and its learned correction are fitted to
    all that is known, and the most promising configurations come next.

    Attributes
    ----------
    space
        The space.
    seed
        Of the first batch and the correction.
    index, times
        What was measured so far, in that order; failed configurations have the time nan.
    prediction
        The latest predictions, None before the first batch is measured.
    """

    space: DescribedSpace
    seed: int = 0
    index: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    prediction: HybridPrediction | None = None

    def __post_init__(self) -> None:
        check_learn()

    @property
    def best(self) -> tuple[int, float] | None:
        """The fastest configuration measured and its time, None if there is none."""
        good = [(time, index) for index, time in zip(self.index, self.times, strict=True) if np.isfinite(time)]
        return (min(good)[1], min(good)[0]) if good else None

    def ask(self, count: int = _BATCH) -> Indices:
        """Return up to so many configurations to measure next; none if all were measured."""
        known = np.array(self.index, dtype=np.intp)
        good = np.isfinite(self.times)
        if len(known) < _FIRST or not good.any():
            filling = first_batch(self.space, min(len(self.space), len(known) + _FIRST), self.seed)
            fresh = filling[~np.isin(filling, known)]
            return fresh[: min(count, max(_FIRST - len(known), 1))]
        times = np.array(self.times)[good]
        self.prediction = predict_hybrid(self.space, known[good], times, seed=self.seed)
        return most_promising(self.prediction, known, float(times.min()), count)

    def tell(self, index: int, time: float) -> None:
        """Record a measured time, in any one unit; nan (or infinity) for a configuration that failed.

        Raises
        ------
        CalibrationError
            The configuration is not of the space, or its time is not positive.
        """
        if not 0 <= index < len(self.space) or time <= 0:
            msg = f"configuration {index} with time {time} is not of this space; tell an index that was asked for"
            raise CalibrationError(msg, description=self.space.description.name)
        self.index.append(int(index))
        self.times.append(float(time) if np.isfinite(time) else float("nan"))


def tune_described(
    space: DescribedSpace, measure: Callable[[int], float], budget: int, *, seed: int = 0, batch: int = _BATCH
) -> DescribedTuner:
    """Measure the most promising configurations of a space, learning from each batch.

    Parameters
    ----------
    space
        The space.
    measure
        Returns the time of a configuration given its index, nan if it fails.
    budget
        How many configurations may be measured.
    seed
        Of the first batch and the correction.
    batch
        Configurations between fits.

    Returns
    -------
    DescribedTuner
        With all that was measured.
    """
    tuner = DescribedTuner(space, seed)
    while len(tuner.index) < min(budget, len(space)):
        # Late batches are larger: a few more measurements change little by then.
        size = max(batch, len(tuner.index) // 6)
        for index in tuner.ask(min(size, budget - len(tuner.index))):
            tuner.tell(int(index), measure(int(index)))
    return tuner
