"""Searching a table of features: a first batch for information, then what is likely to be faster than the best."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from perflex.errors import CalibrationError
from perflex.search.tuning.first_batch import first_batch
from perflex.search.tuning.predictors import GaussianPredictor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike, NDArray

    from perflex.search.spaces.extraction import ExtractedSpace
    from perflex.search.tuning.predictors import Forecast, Predictor

    Array = NDArray[np.float64]
    Indices = NDArray[np.intp]

_NO_TABLE = "features must be a finite table of numbers with a row per variant and a column per feature"
# Variants asked for at a time after the first batch: each is chosen knowing fewer times, and building a few together
# keeps the device warm.
_TOGETHER = 2


class FeatureSearch:
    """Chooses variants by their features, a predictor's forecast and its deviations.

    Parameters
    ----------
    features
        Shape ``(n, d)``, finite.
    predictor
        What learns from measurements; by default a Gaussian process over the features.
    prior
        Expected seconds of each variant, shape ``(n,)``.
    first
        Variants in the first batch.
    seed
        Of the first batch.

    Attributes
    ----------
    first
        The first batch, in the order in which to measure it.
    fewest
        How many measured variants a forecast needs.
    """

    # The times of a single variant have no spread to learn from.
    fewest = 2

    def __init__(
        self, features: Array, predictor: Predictor | None, prior: Array | None, first: int, seed: int
    ) -> None:
        # A variant alone has nothing to be told from: it is measured, nothing is predicted.
        self._predictor = predictor or (GaussianPredictor(features, prior) if len(features) > 1 else None)
        self._count = len(features)
        self.first = first_batch(features, first, prior, seed)

    def together(self, measured: int) -> int:  # noqa: ARG002 - as other searches
        """Return how many to ask for at a time."""
        return _TOGETHER

    def forecast(self, measured: Indices, seconds: Array) -> Forecast:
        """Do what `Predictor.forecast` says."""
        if self._predictor is None:
            msg = "there is one variant, and nothing to predict it from; measure it"
            raise CalibrationError(msg)
        return self._predictor.forecast(measured, seconds)

    def following(self, forecast: Forecast, times: Mapping[int, float], pending: set[int], count: int) -> list[int]:
        """Return variants by turns: that predicted fastest, that of largest expected improvement.

        The former alone stays where it found something fast, the latter alone wanders where little is known.

        Parameters
        ----------
        forecast
            The latest.
        times
            Of what was measured, in that order; nan for what failed.
        pending
            What is being measured: like what was, it is not chosen.
        count
            How many.
        """
        unmeasured = np.ones(self._count, dtype=bool)
        unmeasured[[*times, *pending]] = False
        fastest = np.argsort(forecast.logs, kind="stable")
        best = math.log(float(np.nanmin(list(times.values()))))
        # Where nothing is expected to improve, the fastest predicted come first.
        improving = np.lexsort((forecast.logs, -_improvement(forecast, best)))
        chosen: list[int] = []
        # Counted from all measurements, so that turns alternate also where one variant is asked for at a time.
        for turn in range(len(times), len(times) + min(count, int(unmeasured.sum()))):
            order = improving if turn % 2 else fastest
            number = int(order[np.argmax(unmeasured[order])])
            unmeasured[number] = False
            chosen.append(number)
        return chosen

    def spare(self, known: set[int], count: int) -> list[int]:
        """Return what to measure while nothing can be predicted, because nearly the whole first batch failed."""
        left = [number for number in range(self._count) if number not in known]
        chosen: list[int] = np.random.default_rng(len(known)).permutation(left)[:count].tolist()
        return chosen


def _improvement(forecast: Forecast, best: float) -> Array:
    """Return by how much each variant is expected to lower the best time's logarithm, shape ``(n,)``.

    Source: Jones, Schonlau and Welch, Journal of Global Optimization 13 (1998), Section 4 (expected improvement).
    """
    from scipy.special import erfc

    # Predictors that know no deviations give 0: the improvement is then the gap itself.
    deviations = np.maximum(forecast.deviations, 1e-9)
    gap = (best - forecast.logs) / deviations
    # erfc, not 1 + erf, which cancels to 0 far below the mean.
    likely, beyond = 0.5 * erfc(-gap / math.sqrt(2)), np.exp(-0.5 * gap**2) / math.sqrt(2 * math.pi)
    return np.asarray(deviations * (gap * likely + beyond))


def features_of(space: ExtractedSpace | ArrayLike) -> Array:
    """Return features, and settings as numbers beside them: texts and truth values one column for each value.

    Raises
    ------
    CalibrationError
        They are no finite table of numbers.
    """
    settings = getattr(space, "settings", None)
    if settings is None:
        return _table(space)
    columns: list[Array] = list(np.asarray(getattr(space, "values", None), dtype=np.float64).T)
    for name in settings[0]:
        values = [each[name] for each in settings]
        if all(isinstance(value, (int, float)) for value in values):
            columns.append(np.array(values, dtype=np.float64))
        else:
            columns += [np.array([float(value == other) for value in values]) for other in dict.fromkeys(values)]
    return _finite(np.column_stack(columns))


def _table(given: object) -> Array:
    try:
        table = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise CalibrationError(_NO_TABLE) from error
    return _finite(table[:, None] if table.ndim == 1 else table)


def _finite(table: Array) -> Array:
    if table.ndim != 2 or not table.shape[1] or not np.isfinite(table).all():
        raise CalibrationError(_NO_TABLE)
    return table
