"""Measuring the most promising configurations next, and a tuner that learns from each batch."""

from __future__ import annotations

from dataclasses import dataclass, field
from numbers import Real
from typing import TYPE_CHECKING

import numpy as np

from perflex.errors import CalibrationError
from perflex.search.described.hybrid import check_learn, predict_hybrid

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from perflex.search.described.hybrid import HybridPrediction
    from perflex.search.described.space import DescribedSpace

    Array = NDArray[np.float64]
    Indices = NDArray[np.intp]

__all__ = ["DescribedTuner", "first_batch", "most_promising", "tune_described"]

_FIRST = 25
_BATCH = 5
# Share of a batch that looks elsewhere than the predicted best, and how fast the chance to be looked at falls with the
# logarithm of the time that is expected there.
_ELSEWHERE = 0.6
_REACH = 0.1
# Measurements without a faster one after which the tuner looks farther away, and as far again after each so many more.
_PATIENCE = 10
_WIDER = 25
# Share of the space that the first batch is drawn from: what the model expects to be fast before any measurement.
_PLAUSIBLE = 0.2


def most_promising(
    space: DescribedSpace,
    prediction: HybridPrediction,
    measured: Indices,
    count: int,
    seed: int,
    *,
    reach: float = _REACH,
) -> Indices:
    """Return the configurations to measure next.

    Two fifths are the most promising of all. The others are the most promising of groups that are drawn at random,
    fast ones rather: a group has one setting of the description's switches. What a compiler makes of a switch is what
    the model may have wrong for all of a group, and only a measurement there can show it.

    Parameters
    ----------
    space
        The space.
    prediction
        Predictions of it.
    measured
        Configurations that were measured (or failed) already: none is chosen again.
    count
        How many; fewer are returned where no more are left.
    seed
        Of the drawn groups.
    reach
        How far behind the fastest group others are drawn, in the logarithm of the time.
    """
    random = np.random.default_rng(seed)
    left = np.log(prediction.predicted)
    left[measured] = np.inf
    wanted = min(count, int(np.isfinite(left).sum()))
    group = _groups(space)
    order = prediction.order
    chosen = order[np.isfinite(left[order])][: wanted - round(_ELSEWHERE * wanted)].tolist()
    left[chosen] = np.inf
    while len(chosen) < wanted:
        fastest = np.full(group.max() + 1, np.inf)
        np.minimum.at(fastest, group, left)
        chance = np.exp(-(fastest - fastest.min()) / reach)
        drawn = random.choice(len(chance), p=chance / chance.sum())
        chosen.append(int(order[(group[order] == drawn) & np.isfinite(left[order])][0]))
        left[chosen[-1]] = np.inf
    return np.array(chosen, dtype=np.intp)


def _groups(space: DescribedSpace) -> Indices:
    """Return the number of the group of each configuration."""
    switches = _switches(space)
    if not switches:
        return np.zeros(len(space), dtype=np.intp)
    _, number = np.unique(np.column_stack(switches), axis=0, return_inverse=True)
    return np.asarray(number, dtype=np.intp).ravel()


def _switches(space: DescribedSpace) -> list[Array]:
    known = {**space.settings, **space.readings[0]}
    return [np.asarray(known[name], dtype=np.float64) for name in space.description.switches]


def first_batch(space: DescribedSpace, count: int, seed: int) -> Indices:
    """Return configurations that are far from each other in their settings and switches.

    They come from the fifth of the space that the model expects to be fast before any measurement; each next one is
    about the farthest from those before it.
    """
    random = np.random.default_rng(seed)
    expected = space.expected()
    rows = np.argsort(expected, kind="stable")[: max(count, round(_PLAUSIBLE * len(space)))]
    tunables = [np.log2(1 + np.asarray(space.settings[name])) for name in space.description.tunables]
    places = np.column_stack([*tunables, *_switches(space)])[rows]
    places = (places - places.mean(axis=0)) / np.maximum(places.std(axis=0), 1e-9)
    chosen = [int(random.integers(len(rows)))]
    away = ((places - places[chosen[0]]) ** 2).sum(axis=1)
    while len(chosen) < min(count, len(rows)):
        chosen.append(int(np.argmax(away * random.random(len(rows)) ** 0.2)))
        away = np.minimum(away, ((places - places[chosen[-1]]) ** 2).sum(axis=1))
        away[chosen] = -1.0
    return rows[chosen]


@dataclass
class DescribedTuner:
    """Ask for configurations to measure, tell their times.

    The first batch is spread over what may be fast; then the analytic model and its learned correction are fitted to
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
            filling = first_batch(self.space, len(known) + _FIRST, self.seed)
            fresh = filling[~np.isin(filling, known)]
            return fresh[: min(count, max(_FIRST - len(known), 1))]
        times = np.array(self.times)[good]
        self.prediction = predict_hybrid(self.space, known[good], times, seed=self.seed)
        reach = _REACH * (1 + max(0, self._stale() - _PATIENCE) / _WIDER)
        return most_promising(self.space, self.prediction, known, count, self.seed + len(known), reach=reach)

    def _stale(self) -> int:
        """Return how many measurements ago the best was found."""
        best = self.best
        return 0 if best is None else len(self.index) - 1 - self.index.index(best[0])

    def tell(self, index: int, time: float) -> None:
        """Record a measured time, in any one unit; nan (or infinity) for a configuration that failed.

        Raises
        ------
        CalibrationError
            The configuration is not of the space or was told before, or its time is no positive number.
        """
        given: object = time
        if not isinstance(given, (float, Real)):
            msg = f"the time of configuration {index} is {time!r}; it must be a number, nan if it failed"
            raise CalibrationError(msg, description=self.space.description.name)
        if not 0 <= index < len(self.space) or time <= 0:
            msg = f"configuration {index} with time {time} is not of this space; tell an index that was asked for"
            raise CalibrationError(msg, description=self.space.description.name)
        if index in self.index:
            msg = f"configuration {index} was told before; tell each once"
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

    Raises
    ------
    CalibrationError
        The budget or the batch is no positive whole number, or `measure` returns no positive time.
    """
    counts: dict[str, object] = {"budget": budget, "batch": batch}
    for name, given in counts.items():
        if isinstance(given, bool) or not isinstance(given, (int, np.integer)) or given < 1:
            msg = f"the {name} must be a positive whole number of configurations, not {given!r}"
            raise CalibrationError(msg)
    tuner = DescribedTuner(space, seed)
    while len(tuner.index) < min(budget, len(space)):
        # Late batches are larger: a few more measurements change little by then.
        size = max(batch, len(tuner.index) // 8)
        for index in tuner.ask(min(size, budget - len(tuner.index))):
            tuner.tell(int(index), measure(int(index)))
    return tuner
