"""The variants that are measured first: spread over the features, and over what is expected to be fast."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

# Most variants among which gaps are looked for: each one chosen takes a distance to all of them.
_CANDIDATES = 4000


def first_batch(features: Array, size: int, prior: Array | None, seed: int) -> list[int]:
    """Return variants to begin with, in the order in which to measure them.

    Half are drawn by chance, for what a promise rests on is a sample like the space. Where times are expected
    (`prior`), that half comes from the whole range of them in equal parts. The other half fills the largest gaps: each
    is the one farthest from all before, among the faster half of what is expected.

    Parameters
    ----------
    features
        Shape ``(n, d)``, finite.
    size
        How many, at most n.
    prior
        Expected seconds, shape ``(n,)``.
    seed
        Of chance.
    """
    chance = np.random.default_rng(seed)
    count = len(features)
    by_chance = min(size, max(1, (size + 1) // 2))
    if prior is None:
        chosen = chance.permutation(count)[:by_chance].tolist()
    else:
        ranked = np.argsort(prior, kind="stable")
        parts = np.array_split(ranked, by_chance)
        chosen = [int(chance.choice(part)) for part in parts]
    pool = np.arange(count) if prior is None else np.argsort(prior, kind="stable")[: max(size, count // 2)]
    if pool.size > _CANDIDATES:
        pool = chance.permutation(pool)[:_CANDIDATES]
    points = _scaled(features)
    distance = np.full(pool.size, np.inf)
    for number in chosen:
        distance = np.minimum(distance, ((points[pool] - points[number]) ** 2).sum(axis=1))
    distance[np.isin(pool, chosen)] = -1.0
    # Greedy farthest points: Gonzalez, Theoretical Computer Science 38 (1985).
    while len(chosen) < size and distance.max() >= 0:
        place = int(np.argmax(distance))
        chosen.append(int(pool[place]))
        distance = np.minimum(distance, ((points[pool] - points[pool[place]]) ** 2).sum(axis=1))
        distance[np.isin(pool, chosen)] = -1.0
    # Where too many variants have the same features, no gap is left to fill.
    rest = np.setdiff1d(np.arange(count), chosen)
    return [*chosen, *chance.permutation(rest)[: size - len(chosen)].tolist()]


def _scaled(features: Array) -> Array:
    """Return each column's ranks, between 0 and 1: distances then do not depend on units or outliers."""
    columns = [np.unique(column, return_inverse=True)[1].astype(np.float64) for column in features.T]
    table = np.column_stack(columns)
    spread: Array = table / np.maximum(table.max(axis=0), 1.0)
    return spread
