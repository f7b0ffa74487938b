"""What a search measures: a first batch that is spread over the space, then what is likely to be the fastest."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from perflex.search.gaussian_process import Forecast

    Array = NDArray[np.float64]
    Indices = NDArray[np.intp]

# Share of the space that the spread part of a first batch is drawn from: what is expected to be fast.
_PLAUSIBLE = 0.2
# Most variants among which gaps are looked for: each one chosen takes a distance to all of them.
_CANDIDATES = 20_000


def first_batch(points: Array, size: int, expected: Array | None, seed: int, *, sample: bool) -> list[int]:
    """Return variants to begin with, in the order in which to measure them.

    They are far from each other among the fifth that is expected to be fast, or all where nothing is expected. With
    `sample`, for a promise that rests on the batch, half of them are a sample of the whole space instead, from equal
    parts of the expected times. Points (settings or features) have shape ``(n, d)``, expected times ``(n,)``.
    """
    chance = np.random.default_rng(seed)
    ranked = np.arange(len(points)) if expected is None else np.argsort(expected, kind="stable")
    by_chance = (size + 1) // 2 if sample else 0
    if expected is None:
        chosen = chance.permutation(ranked)[:by_chance].tolist()
    else:
        chosen = [int(chance.choice(part)) for part in np.array_split(ranked, by_chance)] if by_chance else []
    pool = ranked if expected is None else ranked[: max(size, round(_PLAUSIBLE * len(points)))]
    if pool.size > _CANDIDATES:
        pool = chance.permutation(pool)[:_CANDIDATES]
    columns = _ranks(points)
    places = columns[pool]
    away = np.full(pool.size, np.inf)
    for number in chosen:
        away = np.minimum(away, ((places - columns[number]) ** 2).sum(axis=1))
    away[np.isin(pool, chosen)] = -1.0
    # Greedy farthest points: Gonzalez, Theoretical Computer Science 38 (1985).
    while len(chosen) < size and away.max() >= 0:
        # Seeds give different batches; the small power keeps each choice near the farthest.
        draw = chance.random(pool.size) ** 0.2
        place = int(np.argmax(np.where(np.isinf(away), draw, away * draw)))
        chosen.append(int(pool[place]))
        away = np.minimum(away, ((places - places[place]) ** 2).sum(axis=1))
        away[np.isin(pool, chosen)] = -1.0
    # Where too many variants have the same features, no gap is left to fill.
    rest = np.setdiff1d(np.arange(len(points)), chosen)
    return [*chosen, *chance.permutation(rest)[: size - len(chosen)].tolist()]


def _ranks(points: Array) -> Array:
    """Return each column's ranks, between 0 and 1: distances then do not depend on units or outliers."""
    from scipy.stats import rankdata

    places: Array = rankdata(points, method="dense", axis=0) - 1.0
    return np.asarray(places / np.maximum(places.max(axis=0), 1.0))


def changes(codes: NDArray[Any], fastest: Sequence[int]) -> Indices:
    """Return in how few tunables each variant differs from one of the fastest, shape ``(n,)``; codes are ``(n, d)``."""
    return np.asarray(np.min([(codes != codes[number]).sum(axis=1) for number in fastest], axis=0), dtype=np.intp)


def most_promising(
    forecast: Forecast, best: float, taken: set[int], turn: int, count: int, changed: Indices
) -> list[int]:
    """Return variants by turns: first in the forecast's order, of largest expected improvement, beside the fastest.

    The first alone stays where it found something fast, the second alone wanders where little is known. Where times
    were expected, both follow these, which may be wrong for the fastest: the third, as a local search, changes the
    fewest tunables of one of the fastest measured, `changed` says how many. `best` is the logarithm of the fastest
    time measured; what is `taken` is not chosen again; `turn` says how many were chosen before, so that turns alternate
    also where one variant is asked for at a time.
    """
    free = np.ones(len(forecast.logs), dtype=bool)
    free[list(taken)] = False
    gain = -_improvement(forecast, best)
    # Where nothing is expected to improve, the fastest predicted come first.
    orders = [forecast.order, np.lexsort((forecast.logs, gain))]
    if forecast.expected is not None:
        orders.append(np.lexsort((forecast.logs, gain, changed)))
    chosen: list[int] = []
    for number in range(turn, turn + min(count, int(free.sum()))):
        order = orders[number % len(orders)]
        chosen.append(int(order[np.argmax(free[order])]))
        free[chosen[-1]] = False
    return chosen


def _improvement(forecast: Forecast, best: float) -> Array:
    """Return by how much each variant is expected to lower the best time's logarithm, shape ``(n,)``.

    Source: Jones, Schonlau and Welch, Journal of Global Optimization 13 (1998), Section 4 (expected improvement).
    """
    from scipy.special import erfc

    deviations = np.maximum(forecast.deviations, 1e-9)
    gap = (best - forecast.logs) / deviations
    # erfc, not 1 + erf, which cancels to 0 far below the mean.
    likely, beyond = 0.5 * erfc(-gap / math.sqrt(2)), np.exp(-0.5 * gap**2) / math.sqrt(2 * math.pi)
    return np.asarray(deviations * (gap * likely + beyond))
