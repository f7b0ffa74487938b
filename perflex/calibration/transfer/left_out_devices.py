"""Sources left out one at a time: each is predicted from the others and as few samples as the target has.

This says what no fit to the target could: how far predictions of a device lie off that is not among the sources, and
whether the model, or other devices' times with one factor, predicts kernels better that the sources have timed.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from perflex.calibration.carried_over import LEVELS, carried_predictions
from perflex.calibration.transfer.devices import counted_samples, fit_target, programs_of
from perflex.calibration.transfer.terms import carried_terms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from perflex.calibration.transfer.devices import Sources
    from perflex.fit.loss import Loss

    Array = NDArray[np.float64]

# Draws of samples of each source.
_DRAWS = 4
# Rows of a source that are predicted for each draw: more say the same.
_MOST_ROWS = 240
_FEWEST_SOURCES = 2
_WEIGHTS = np.linspace(0.0, 1.0, 11)
_LEAST_LIMIT = 0.2


@dataclass(frozen=True)
class LeftOutDevices:
    """What sources say that were left out.

    Attributes
    ----------
    weight
        Of the model beside other devices' times, in the logarithm.
    limits
        Quantiles, at `LEVELS`, of errors over predicted standard deviations; empty with one source.
    surprise
        Median of the samples' squared distance from what the prior predicts, per sample.
    """

    weight: float
    limits: tuple[float, ...]
    surprise: float


@dataclass(frozen=True, eq=False)
class _Draw:
    """Errors of a source's rows that were no samples: of the model, of one factor, and the predicted deviation."""

    source: int
    model: Array
    factor: Array
    deviation: Array
    surprise: float


def left_out_devices(sources: Sources, samples: int, loss: Loss, seed: int) -> LeftOutDevices:
    """Return what leaving out each source says of predictions with so many samples."""
    with_rows = [i for i, table in enumerate(sources.tables) if table is not None and len(table) > 1]
    if len(with_rows) < _FEWEST_SOURCES:
        return LeftOutDevices(1.0, (), 1.0)
    generator = np.random.default_rng(seed)
    draws = [
        _draw(sources, source, samples, loss, generator)
        for source in with_rows
        for _ in range(_DRAWS if samples else 1)
    ]
    weight = _best_weight(draws)
    errors = [np.abs(_mixed(draw, weight)) / draw.deviation for draw in draws]
    # Each source counts alike, however many rows it has.
    mass = np.concatenate([np.full(len(part), 1.0 / max(len(part), 1)) for part in errors])
    sizes = np.concatenate(errors)
    order = np.argsort(sizes)
    share = np.cumsum(mass[order]) / mass.sum()
    limits = [max(float(np.interp(level, share, sizes[order])), _LEAST_LIMIT * level) for level in LEVELS]
    if not samples:
        # What is not known of the device moves all its rows alike, and few devices were left out: never nearer than
        # deviations of a normal distribution.
        limits = [
            max(limit, NormalDist().inv_cdf((1.0 + level) / 2.0)) for limit, level in zip(limits, LEVELS, strict=True)
        ]
    surprise = float(np.median([draw.surprise for draw in draws])) if samples else 1.0
    return LeftOutDevices(weight, tuple(np.maximum.accumulate(limits).tolist()), surprise)


def _draw(sources: Sources, source: int, count: int, loss: Loss, generator: np.random.Generator) -> _Draw:
    table = sources.tables[source]
    assert table is not None  # noqa: S101 - only sources with rows are left out
    order = generator.permutation(len(table))
    few = min(count, len(table) // 2)
    samples, rest = table.take(order[:few].tolist()), table.take(order[few : few + _MOST_ROWS].tolist())
    others = [i for i in range(len(sources.fits)) if i != source]
    target = fit_target(sources, others, samples, source, loss, precise=False)
    asked = list(zip(programs_of(rest), rest.kernels, strict=True))
    carried = carried_terms(sources, others, target, samples, source, asked)
    values = {name: rest.column(name) for name in sources.model.input_features()}
    pairs = list(zip(rest.kernels, programs_of(rest), strict=True))
    found = carried_predictions(sources.model, target.fit, carried, values, pairs)
    measured = np.log(rest.column(sources.model.output_feature))
    times = [carried.kernels[label].log_time if label in carried.kernels else None for label in rest.kernels]
    factor = np.array([np.nan if time is None else time for time in times])
    return _Draw(
        source, measured - found.mean, measured - factor, found.deviation, target.surprise / counted_samples(few)
    )


def _mixed(draw: _Draw, weight: float) -> Array:
    both = weight * draw.model + (1.0 - weight) * np.nan_to_num(draw.factor)
    return np.where(np.isfinite(draw.factor), both, draw.model)


def _best_weight(draws: Sequence[_Draw]) -> float:
    """Return the model's weight with the least mean error of sources' rows, each source alike."""
    if not any(np.isfinite(draw.factor).any() for draw in draws):
        return 1.0

    def size(weight: float) -> float:
        return float(np.mean([np.mean(np.abs(_mixed(draw, weight))) for draw in draws if len(draw.model)]))

    return float(min(_WEIGHTS, key=size))
