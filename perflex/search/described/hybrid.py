"""A learned correction of the analytic model: what its residuals have in common, from features and tunables."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np

from perflex.errors import CalibrationError, MissingExtraError
from perflex.search.described.learners import boosted_trees, gaussian_process, random_trees

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perflex.search.described.space import DescribedSpace, ReadingFit

    Array = NDArray[np.float64]
    Indices = NDArray[np.intp]

MEMBERS = ("Gaussian process on the residual", "trees on the residual", "boosted trees on the residual", "trees")
# Shares of those on the residual. Trees without the analytic model's shape extrapolate worst: their share grows with
# the measurements, to at most _DIRECT, half of that at _DIRECT_AT of them.
_CORRECTIONS = (0.5, 0.25, 0.25)
_DIRECT = 0.3
_DIRECT_AT = 200
_FOLDS = 5
_TREES = 150
# The fits of the folds only judge, and there are five of them: fewer trees suffice.
_FOLD_TREES = 40
# Fewer measured configurations than this carry no correction.
_FEWEST = 15
# In the common order, places among the first few say little, and a place with the correction counts twice.
_EVEN = 3.0
_CORRECTED = 2.0


@dataclass(frozen=True)
class HybridPrediction:
    """Times predicted by the analytic model with its learned correction, beside those without.

    Attributes
    ----------
    analytic
        The analytic model alone.
    predicted
        With the correction, shape ``(n,)``, in the unit of the measured times.
    weights
        Share of each member: a Gaussian process, extremely randomised trees and boosted trees that predict the
        analytic model's residual, and trees that predict the time with the analytic prediction as one more column.
        All 0 where too little was measured for a correction.
    unseen
        Predictions of the measured configurations by models that did not see them, shape ``(m,)``; None if they were
        not asked for.
    """

    analytic: ReadingFit
    predicted: Array
    weights: dict[str, float]
    unseen: Array | None

    @cached_property
    def order(self) -> Indices:
        """Configurations, the most promising first, from their places in both predictions, shape ``(n,)``.

        Reciprocal rank fusion (Cormack, Clarke, Buettcher, SIGIR 2009): of ``n`` configurations one is the fastest,
        which is often one whose correction errs; what either prediction puts among its first stays among the first.
        """
        score = 1 / (_EVEN + _places(self.analytic.predicted)) + _CORRECTED / (_EVEN + _places(self.predicted))
        return np.argsort(-score, kind="stable")


def _places(predicted: Array) -> Array:
    places = np.empty(len(predicted))
    places[np.argsort(predicted, kind="stable")] = np.arange(len(predicted))
    return places


@dataclass(frozen=True)
class HybridPredictor:
    """The analytic model of a described space, fitted to what is measured, with its learned correction.

    Attributes
    ----------
    space
        The space.
    seed
        Of the trees and of the folds.
    learned
        Whether to correct the analytic model by what its residuals have in common (needs the extra ``learn``).

    Raises
    ------
    MissingExtraError
        `learned` is set and scikit-learn is not installed.
    """

    space: DescribedSpace
    seed: int = 0
    learned: bool = True

    def __post_init__(self) -> None:
        if self.learned and find_spec("sklearn") is None:
            msg = "the learned correction needs scikit-learn; install perflex[learn]"
            raise MissingExtraError(msg, extra="learn")

    def predict(self, index: Indices, times: Array, *, unseen: bool = False) -> HybridPrediction:
        """Predict the space from measured configurations.

        Parameters
        ----------
        index, times
            Which configurations were measured, and their times, shape ``(m,)``.
        unseen
            Whether to predict the measured configurations by models that did not see them, too; costs five more fits.

        Raises
        ------
        CalibrationError
            As `DescribedSpace.fit_analytic`.
        """
        space, place = self.space, np.asarray(index, dtype=np.intp)
        if not self.learned:
            analytic = space.fit_analytic(place, times)
            return HybridPrediction(analytic, analytic.predicted, {}, None)
        from threadpoolctl import threadpool_limits

        logs = np.log(np.asarray(times, dtype=np.float64))
        # Matrices of a few hundred rows lose time on several cores.
        with threadpool_limits(1):
            fit = space.fit_analytic(place, np.exp(logs))
            if len(place) < _FEWEST:
                none = dict.fromkeys(MEMBERS, 0.0)
                return HybridPrediction(fit, fit.predicted, none, _folds(space, place, logs, None) if unseen else None)
            made = _predict(space, fit, (place, logs), np.arange(len(space)), (_TREES, self.seed))
            held = _folds(space, place, logs, self.seed) if unseen else None
        weights = dict(zip(MEMBERS, _weights(len(place)).tolist(), strict=True))
        return HybridPrediction(fit, np.exp(made), weights, held)


def predictor_for(space: DescribedSpace, predictor: HybridPredictor | None, seed: int = 0) -> HybridPredictor:
    """Return the predictor that was given, or the usual one.

    Raises
    ------
    CalibrationError
        It was made for another space.
    """
    if predictor is None:
        return HybridPredictor(space, seed)
    if predictor.space is not space:
        msg = "the predictor is of another space; make it as HybridPredictor(space) of the space that you give"
        raise CalibrationError(msg, description=space.description.name)
    return predictor


def _weights(measured: int) -> Array:
    direct = _DIRECT * measured / (measured + _DIRECT_AT)
    return np.array([*((1 - direct) * share for share in _CORRECTIONS), direct])


def _predict(
    space: DescribedSpace, fit: ReadingFit, known: tuple[Indices, Array], wanted: Indices, trees: tuple[int, int]
) -> Array:
    """Return the logarithms of the times of the wanted configurations, with the correction."""
    index, logs = known
    base = np.log(fit.predicted)
    # The analytic prediction is a column too: what the model misses may depend on how slow it expects a configuration.
    columns = np.column_stack([space.inputs(fit.reading), base])
    seen, asked = columns[index], columns[wanted]
    residual = logs - base[index]
    members = [
        base[wanted] + gaussian_process(seen, residual, asked, logs, trees[1]),
        base[wanted] + random_trees(seen, residual, asked, *trees),
        base[wanted] + boosted_trees(seen, residual, asked, *trees),
        random_trees(seen, logs, asked, *trees),
    ]
    return np.asarray(_weights(len(index)) @ np.array(members))


def _folds(space: DescribedSpace, index: Indices, logs: Array, seed: int | None) -> Array:
    """Return predictions of the measured configurations from folds without them; without a seed uncorrected."""
    found = np.empty(len(index))
    fold = np.random.default_rng(seed or 0).permutation(len(index)) % min(_FOLDS, len(index))
    for number in np.unique(fold):
        seen, held = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
        # A single measurement: nothing is left to predict it from.
        if not seen.size:
            return np.exp(logs)
        # Fitted anew without the fold: parameters that saw its times would look better than they are.
        fit = space.fit_analytic(index[seen], np.exp(logs[seen]))
        if seed is None or seen.size < _FEWEST:
            found[held] = np.log(fit.predicted[index[held]])
        else:
            found[held] = _predict(space, fit, (index[seen], logs[seen]), index[held], (_FOLD_TREES, seed))
    return np.exp(found)
