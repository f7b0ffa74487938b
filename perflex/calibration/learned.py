"""What a model leaves out, learned: the logarithm of measured / predicted, from what predicted times are made of.

The inputs are the square roots of the shares that each cost has in the predicted time, as in Hellinger's distance: they
have no unit, and are between 0 and 1 for any kernel. Learners are a Gaussian process (Rasmussen and Williams, Gaussian
Processes for Machine Learning, 2006), which says nothing far from what it has seen, and boosted trees with few leaves
(Friedman, Ann. Stat. 29, 1189, 2001). Their correction is shrunk by a factor, which may be zero.

Whether that helps is judged by generators that neither the fit nor the learner has seen: nested cross-validation
(Varma and Simon, BMC Bioinformatics 7, 91, 2006). Learner and factor are chosen within the others, so that what was
chosen is not judged by what chose it.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from perflex.calibration.left_out import TermShares, left_out_rows
from perflex.calibration.prediction_variance import gradient_at
from perflex.calibration.uncertainty import student_quantile
from perflex.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray

    from perflex.calibration.left_out import LeftOutErrors, LeftOutKernels
    from perflex.expression.model import Model
    from perflex.fit.result import FitResult
    from perflex.fit.table import FeatureTable

    Array = NDArray[np.float64]
    Owners = NDArray[np.str_]

LearnerName = Literal["gaussian_process", "boosted_trees"]
SHRINKAGES = (0.25, 0.5, 0.75, 1.0)
"""Factors of the correction that are tried."""
# Beyond a factor of e, a row tells that something is wrong, not by how much others are off.
_LARGEST_TARGET = 1.0
_INNER_FOLDS = 6
# The gain must be this sure to be above zero, one-sided.
_SURE = 0.975
# Of the Gaussian process: variances of the logarithm, and length in root mean square distances of inputs.
_SIGNAL, _NOISE, _LENGTH = 0.05, 0.05, 0.5
_LEAST_SPREAD = 1e-9


class _Learner(Protocol):
    def fit(self, inputs: Array, target: Array) -> object: ...
    def predict(self, inputs: Array) -> Array: ...


@dataclass(frozen=True)
class LeftOutAccuracy:
    """How well kernels of left-out generators are predicted.

    Attributes
    ----------
    factor
        exp of the mean |ln(measured / predicted)|, each generator counting alike.
    median, rms, maximum
        Of the kernels' relative errors, fractions.
    """

    factor: float
    median: float
    rms: float
    maximum: float

    @classmethod
    def of(cls, errors: Array, owners: Owners) -> LeftOutAccuracy:
        """Return that of ln(measured / predicted), shape ``(m,)``, of kernels of these generators."""
        relative = np.abs(np.expm1(-errors))
        factor = float(np.exp(np.mean(_by_generator(np.abs(errors), owners))))
        return cls(factor, float(np.median(relative)), float(np.sqrt(np.mean(relative**2))), float(relative.max()))

    def __str__(self) -> str:
        """Return the figures in words."""
        rest = ", ".join(f"{100 * value:.3g}" for value in (self.median, self.rms, self.maximum))
        return f"factor {self.factor:.3f} (median, rms, maximum {rest} %)"


@dataclass(frozen=True)
class LearnedResiduals:
    """What was learned of a calibration's residuals, and whether it is used.

    Attributes
    ----------
    learner, shrinkage
        What learns from all measurement kernels, and by how much its correction is multiplied; 0 for none.
    helps
        Whether the correction lowers the error of left-out generators beyond doubt; only then it is used.
    gain, gain_error
        By how much it lowers a generator's mean |ln(measured / predicted)|, the mean over generators, and the standard
        error of that.
    without, learned
        How well left-out generators are predicted without the correction, and with it.
    left_out
        How far they lie off with it: what prediction intervals are made of where it is used.
    """

    learner: LearnerName
    shrinkage: float
    helps: bool
    gain: float
    gain_error: float
    without: LeftOutAccuracy
    learned: LeftOutAccuracy
    left_out: LeftOutErrors

    def __str__(self) -> str:
        """Return in one line what learning did."""
        found = f"left-out generators: {self.without} without, {self.learned} with"
        if not self.helps:
            return f"learning did not help and is not used; {found}"
        return f"learning helped and is used ({self.learner.replace('_', ' ')} times {self.shrinkage:g}); {found}"


def require_learners() -> None:
    """Make sure that the learners are installed.

    Raises
    ------
    MissingExtraError
        scikit-learn is not.
    """
    if importlib.util.find_spec("sklearn") is None:
        msg = "learning residuals needs scikit-learn; install it with: pip install 'perflex[learn]'"
        raise MissingExtraError(msg, extra="learn")


def learn_residuals(model: Model, fit: FitResult, table: FeatureTable | None) -> LearnedResiduals | None:
    """Learn what a fitted model leaves out of its measurement kernels, and judge whether that helps.

    Parameters
    ----------
    model, fit, table
        The model, its fit, and what was fitted; None where that is not known.

    Returns
    -------
    LearnedResiduals or None
        None where generators cannot be left out, as for `left_out_rows`.

    Raises
    ------
    MissingExtraError
        scikit-learn is not installed.
    """
    require_learners()
    rows = left_out_rows(model, fit, table)
    if rows is None:
        return None
    with _one_thread():
        return _judged(rows)


def _one_thread() -> AbstractContextManager[object]:
    # Of a few hundred rows, threads cost more than they save; and sums in one order come out alike.
    from threadpoolctl import threadpool_limits

    limits: AbstractContextManager[object] = threadpool_limits(1)
    return limits


class LearnedCorrection:
    """The correction of predictions, learned anew from a calibration's rows: always the same.

    Parameters
    ----------
    model, fit, table
        The model, its fit, and what was fitted.
    learned
        What learns.

    Raises
    ------
    MissingExtraError
        scikit-learn is not installed.
    """

    def __init__(self, model: Model, fit: FitResult, table: FeatureTable, learned: LearnedResiduals) -> None:
        require_learners()
        self._model, self._fit = model, fit
        values = {name: table.column(name) for name in model.input_features()}
        with np.errstate(all="ignore"):
            residuals = np.log(table.column(model.output_feature) / model.evaluate(fit, values))
        self._mixtures = TermShares(model, fit, values, len(table))
        known, choice = np.isfinite(residuals), _Choice(learned.learner, learned.shrinkage)
        with _one_thread():
            self._log_factors = choice.trained(self._mixtures.shares[known], residuals[known])

    def factors(self, values: Mapping[str, Any]) -> float | Array:
        """Return what predictions at feature values are multiplied by, of their shape."""
        predicted = np.asarray(self._model.evaluate(self._fit, values), dtype=np.float64)
        shares = self._mixtures.of_gradient(gradient_at(self._model, self._fit, values, predicted))
        found: Array = np.exp(self._log_factors(shares)).reshape(predicted.shape)
        return found if found.shape else float(found)


def _judged(rows: LeftOutKernels) -> LearnedResiduals:
    """Judge the correction by left-out generators, and choose the one that all kernels are learned with."""
    nothing = np.zeros(len(rows.owners), dtype=bool)
    errors = _corrected(rows, lambda own: _chosen(rows, own))
    used, owners = rows.known, rows.owners[rows.known]
    before, after = (_by_generator(np.abs(part[used]), owners) for part in (rows.errors, errors))
    gains = before - after
    gain, gain_error = float(gains.mean()), float(gains.std(ddof=1) / np.sqrt(len(gains)))
    choice = _chosen(rows, nothing)
    sure = gain > student_quantile(_SURE, float(len(gains) - 1)) * gain_error
    return LearnedResiduals(
        learner=choice.learner,
        shrinkage=choice.shrinkage,
        helps=bool(sure and choice.shrinkage > 0),
        gain=gain,
        gain_error=gain_error,
        without=LeftOutAccuracy.of(rows.errors[used], owners),
        learned=LeftOutAccuracy.of(errors[used], owners),
        left_out=rows.summary(errors),
    )


def corrected_errors(rows: LeftOutKernels, learner: LearnerName, shrinkage: float) -> Array:
    """Return ln(measured / predicted) of left-out rows, corrected by a learner and factor that are the same for all.

    Rows that are no test keep their errors.
    """
    with _one_thread():
        return _corrected(rows, lambda _: _Choice(learner, shrinkage))


def _corrected(rows: LeftOutKernels, choose: Callable[[NDArray[np.bool_]], _Choice]) -> Array:
    errors = rows.errors.copy()
    for name in dict.fromkeys(rows.owners[rows.known].tolist()):
        own = rows.owners == name
        found = rows.refits.without(own)
        assert found is not None  # noqa: S101 - rows that are not predicted are not used
        residuals, shares = found
        seen = ~own & np.isfinite(residuals)
        errors[own] -= choose(own).trained(shares[seen], residuals[seen])(shares[own])
    return errors


@dataclass(frozen=True)
class _Choice:
    learner: LearnerName
    shrinkage: float

    def trained(self, shares: Array, target: Array) -> Callable[[Array], Array]:
        """Return the correction as a function of shares."""
        if self.shrinkage == 0:
            return lambda asked: np.zeros(len(asked))
        inputs = _Inputs(shares)
        learner = _LEARNERS[self.learner]()
        learner.fit(inputs.of(shares), np.clip(target, -_LARGEST_TARGET, _LARGEST_TARGET))
        return lambda asked: self.shrinkage * np.asarray(learner.predict(inputs.of(asked)), dtype=np.float64)


def _chosen(rows: LeftOutKernels, hidden: NDArray[np.bool_]) -> _Choice:
    """Return the learner and factor with the least error of generators left out in folds; some rows nobody sees."""
    names = np.unique(rows.owners[~hidden])
    # Neighbours in the alphabet are often alike, and belong into one fold no more than others.
    fold_of = dict(zip(np.random.default_rng(0).permutation(names), np.arange(len(names)) % _INNER_FOLDS, strict=True))
    folds = np.array([fold_of.get(name, -1) for name in rows.owners])
    errors = np.full(len(folds), np.nan)
    corrections = {learner: np.zeros(len(folds)) for learner in _LEARNERS}
    for fold in range(_INNER_FOLDS):
        own = folds == fold
        found = rows.refits.without(own | hidden)
        if found is None:
            continue
        residuals, shares = found
        seen = ~(own | hidden) & np.isfinite(residuals)
        errors[own] = residuals[own]
        for learner, correction in corrections.items():
            correction[own] = _Choice(learner, 1.0).trained(shares[seen], residuals[seen])(shares[own])
    judged = rows.known & ~hidden & np.isfinite(errors)
    errors, owners = errors[judged], rows.owners[judged]
    best, least = _Choice("gaussian_process", 0.0), float(_by_generator(np.abs(errors), owners).mean())
    for learner, correction in corrections.items():
        for shrinkage in SHRINKAGES:
            error = float(_by_generator(np.abs(errors - shrinkage * correction[judged]), owners).mean())
            if error < least:
                best, least = _Choice(learner, shrinkage), error
    return best


def _by_generator(sizes: Array, owners: Owners) -> Array:
    """Return the mean of each generator, shape ``(g,)``."""
    _, place = np.unique(owners, return_inverse=True)
    found: Array = np.bincount(place, sizes) / np.bincount(place)
    return found


class _Inputs:
    """What learners see of shares: their square roots, standardised as those that are learned from."""

    def __init__(self, shares: Array) -> None:
        roots = np.sqrt(shares)
        self._middle, self._spread = roots.mean(axis=0), roots.std(axis=0)
        # A cost that all kernels have alike tells nothing, and would be divided by zero.
        self._varied = self._spread > _LEAST_SPREAD

    def of(self, shares: Array) -> Array:
        """Return the inputs, shape ``(r, k)``, of unit mean square length for what is learned from."""
        if not self._varied.any():
            return np.zeros((len(shares), 1))
        away = (np.sqrt(shares) - self._middle)[:, self._varied] / self._spread[self._varied]
        found: Array = away / np.sqrt(self._varied.sum())
        return found


def _gaussian_process() -> _Learner:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern

    # Fixed: with shared errors of generators, likelihood takes noise that kernels have in common for signal.
    kernel = ConstantKernel(_SIGNAL, "fixed") * Matern(_LENGTH, "fixed", nu=1.5)
    made: _Learner = GaussianProcessRegressor(kernel, alpha=_NOISE, optimizer=None)
    return made


def _boosted_trees() -> _Learner:
    from sklearn.ensemble import HistGradientBoostingRegressor

    made: _Learner = HistGradientBoostingRegressor(
        max_leaf_nodes=4,
        max_iter=60,
        learning_rate=0.05,
        min_samples_leaf=15,
        l2_regularization=5.0,
        early_stopping=False,
        random_state=0,
    )
    return made


_LEARNERS: dict[LearnerName, Callable[[], _Learner]] = {
    "gaussian_process": _gaussian_process,
    "boosted_trees": _boosted_trees,
}
