"""Searching a described space: a spread first batch, then the most promising configurations of every kind of code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perflex.errors import CalibrationError
from perflex.search.described.hybrid import HybridPredictor, predictor_for
from perflex.search.tuning.predictors import Forecast

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from perflex.search.described.hybrid import HybridPrediction
    from perflex.search.described.space import DescribedSpace

    Array = NDArray[np.float64]
    Indices = NDArray[np.intp]

_FIRST = 25
_BATCH = 5
# Share of a batch that looks elsewhere than the predicted best, and how fast the chance to be looked at falls with the
# logarithm of the time that is expected there.
_ELSEWHERE = 0.6
_REACH = 0.1
# Measurements without a faster one after which the search looks farther away, and as far again after each so many more.
_PATIENCE = 10
_WIDER = 25
# Share of the space that the first batch is drawn from: what the model expects to be fast before any measurement.
_PLAUSIBLE = 0.2


class DescribedSearch:
    """Chooses configurations of a described space by its hybrid prediction; has the members of `FeatureSearch`.

    Parameters
    ----------
    space, predictor
        The space, and what predicts it; by default with the learned correction.
    first
        Configurations in the first batch, by default 25.
    seed
        Of the first batch, of the groups that are drawn later, and of the default predictor.
    unseen
        Whether forecasts are to say how well measured configurations are predicted unseen, which a promise rests on.
    """

    # Priors make one measurement enough for a forecast.
    fewest = 1

    def __init__(
        self, space: DescribedSpace, predictor: HybridPredictor | None, first: int | None, seed: int, *, unseen: bool
    ) -> None:
        self._space = space
        self._predictor = predictor_for(space, predictor, seed)
        self._seed = seed
        self._unseen = unseen
        self._latest: HybridPrediction | None = None
        self.first: list[int] = spread_batch(space, _FIRST if first is None else first, seed).tolist()

    def together(self, measured: int) -> int:
        """Return how many to ask for at a time: late, a few more measurements change little."""
        return max(_BATCH, measured // 8)

    def forecast(self, measured: Indices, seconds: Array) -> Forecast:
        """Do what `Predictor.forecast` says; deviations are not known."""
        found = self._latest = self._predictor.predict(measured, seconds, unseen=self._unseen)
        logs = np.log(found.predicted)
        # Without a learned correction there are no held-out predictions: the fit has few parameters, with priors.
        unseen = logs[measured] if found.unseen is None else np.log(found.unseen)
        return Forecast(logs, np.zeros(len(logs)), unseen)

    def following(self, forecast: Forecast, times: Mapping[int, float], pending: set[int], count: int) -> list[int]:
        """Return what to measure next, see `most_promising`; the longer nothing faster is found, the farther away."""
        del forecast  # made from the latest prediction, which has the analytic one beside it
        if self._latest is None:
            msg = "there is no prediction yet; call forecast first"
            raise CalibrationError(msg)
        numbers = list(times)
        best = min((time, number) for number, time in times.items() if np.isfinite(time))[1]
        fruitless = len(numbers) - 1 - numbers.index(best)
        reach = _REACH * (1 + max(0, fruitless - _PATIENCE) / _WIDER)
        known = np.array([*numbers, *pending], dtype=np.intp)
        # Another seed at each step, or the same groups would be drawn again.
        chosen = most_promising(self._space, self._latest, known, count, self._seed + len(known), reach=reach)
        return [int(number) for number in chosen]

    def spare(self, known: set[int], count: int) -> list[int]:
        """Return what to measure while nothing can be predicted, because the whole first batch failed."""
        wider = spread_batch(self._space, len(known) + _FIRST, self._seed).tolist()
        return [number for number in wider if number not in known][: min(count, 1)]


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
        # A group of which all is measured has the time inf, and so the chance 0.
        chance = np.exp(-(fastest - fastest.min()) / reach)
        picked = random.choice(len(chance), p=chance / chance.sum())
        chosen.append(int(order[(group[order] == picked) & np.isfinite(left[order])][0]))
        left[chosen[-1]] = np.inf
    return np.array(chosen, dtype=np.intp)


def _groups(space: DescribedSpace) -> Indices:
    """Return the number of the group of each configuration."""
    switches = _switches(space)
    if not switches:
        return np.zeros(len(space), dtype=np.intp)
    # numpy 2.0.0 gives the inverse a second axis, which ravel undoes.
    _, number = np.unique(np.column_stack(switches), axis=0, return_inverse=True)
    return np.asarray(number, dtype=np.intp).ravel()


def _switches(space: DescribedSpace) -> list[Array]:
    known = {**space.settings, **space.readings[0]}
    return [np.asarray(known[name], dtype=np.float64) for name in space.description.switches]


def spread_batch(space: DescribedSpace, count: int, seed: int) -> Indices:
    """Return configurations that are far from each other in their settings and switches.

    They come from the fifth of the space that the model expects to be fast before any measurement; each next one is
    about the farthest from those before it.
    """
    random = np.random.default_rng(seed)
    expected = space.expected()
    rows = np.argsort(expected, kind="stable")[: max(count, round(_PLAUSIBLE * len(space)))]
    # Values are powers of two more often than not; 1 is added because some are 0.
    tunables = [np.log2(1 + np.asarray(space.settings[name])) for name in space.description.tunables]
    places = np.column_stack([*tunables, *_switches(space)])[rows]
    places = (places - places.mean(axis=0)) / np.maximum(places.std(axis=0), 1e-9)
    chosen = [int(random.integers(len(rows)))]
    away = ((places - places[chosen[0]]) ** 2).sum(axis=1)
    while len(chosen) < min(count, len(rows)):
        # Seeds give different batches; the small power keeps each choice near the farthest.
        chosen.append(int(np.argmax(away * random.random(len(rows)) ** 0.2)))
        away = np.minimum(away, ((places - places[chosen[-1]]) ** 2).sum(axis=1))
        # Squared distances are at least 0: what is chosen is never the farthest again.
        away[chosen] = -1.0
    return rows[chosen]
