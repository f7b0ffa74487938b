"""A learned correction of the analytic model: what its residuals have in common, from features and tunables."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.errors import MissingExtraError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perflex._described.space import DescribedSpace, ReadingFit

    Array = NDArray[np.float64]

__all__ = ["HybridPrediction", "check_learn", "predict_hybrid"]

MEMBERS = ("analytic", "trees on the residual", "Gaussian process on the residual", "trees")
_FOLDS = 5
_TREES = 100
_FOLD_TREES = 30
_PROCESS_ROWS = 600
# Fewer measured configurations than this carry no correction.
_FEWEST = 15
# How fast the weight of a configuration falls with its time when members are compared, as a power.
_NEARNESS = 2.0
# Shares of the members where their errors are equal: trees without the analytic model's shape extrapolate worst.
_TRUST = (1.0, 1.0, 1.0, 0.3)
_POWER = 1.0


@dataclass(frozen=True)
class HybridPrediction:
    """Times predicted by the analytic model with its learned correction, beside those without.

    Attributes
    ----------
    analytic
        The analytic model alone.
    predicted
        With the correction, shape ``(n,)``, in the unit of the measured times.
    deviation
        Standard deviation of the logarithm of a configuration's time, shape ``(n,)``.
    unseen
        Predictions of the measured configurations by models that did not see them, shape ``(m,)``.
    weights
        Share of each member: the analytic model alone, extremely randomised trees and a Gaussian process on its
        residual, and trees that see its prediction as one more column.
    direct
        Times predicted by those trees alone, shape ``(n,)``: the member that leans least on the analytic model.
    """

    analytic: ReadingFit
    predicted: Array
    deviation: Array
    unseen: Array
    weights: dict[str, float]
    direct: Array


def check_learn() -> None:
    """Stop unless scikit-learn is installed.

    Raises
    ------
    MissingExtraError
        It is not; the message names the extra.
    """
    if find_spec("sklearn") is None:
        msg = "the learned correction needs scikit-learn; install perflex[learn]"
        raise MissingExtraError(msg, extra="learn")


def predict_hybrid(
    space: DescribedSpace, index: NDArray[np.intp], times: Array, *, seed: int = 0, analytic: ReadingFit | None = None
) -> HybridPrediction:
    """Predict a space from measured configurations, by the analytic model and a learned correction.

    Each member's share falls with the square of its cross-validated squared error, in which fast configurations count
    most: it is they that have to be told apart. Where the correction does not help, the analytic model keeps most.

    Parameters
    ----------
    space
        The space.
    index, times
        Which configurations were measured, and their times, shape ``(m,)``.
    seed
        Of the trees and of the folds.
    analytic
        The analytic model fitted to the same measurements, if there is one already.

    Raises
    ------
    MissingExtraError
        scikit-learn is not installed.
    CalibrationError
        As `perflex._described.analytic.fit_analytic`.
    """
    check_learn()
    from threadpoolctl import threadpool_limits

    # Matrices of a few hundred rows lose time on several cores.
    with threadpool_limits(1):
        return _predict(space, np.asarray(index, dtype=np.intp), times, seed, analytic)


def _predict(
    space: DescribedSpace, index: NDArray[np.intp], times: Array, seed: int, analytic: ReadingFit | None
) -> HybridPrediction:
    logs = np.log(np.asarray(times, dtype=np.float64))
    whole = analytic if analytic is not None else space.fit_analytic(index, np.exp(logs))
    if len(index) < _FEWEST:
        spread = np.full(len(space), max(whole.fit.residual, 0.1))
        share = dict.fromkeys(MEMBERS, 0.0) | {MEMBERS[0]: 1.0}
        return HybridPrediction(whole, whole.predicted, spread, whole.predicted[index], share, whole.predicted)
    inputs = space.inputs(whole.reading)
    base = np.log(whole.predicted)
    kernel, made, deviation = _members(inputs, base, index, logs, (_TREES, seed), None)
    unseen = _unseen(space, inputs, index, logs, seed, kernel)
    weights = _weights(unseen, logs)
    miss = logs - unseen @ weights
    spread = np.sqrt((made - (made @ weights)[:, None]) ** 2 @ weights + deviation**2)
    # Deviations that the members state are scaled to the errors seen in cross-validation.
    spread *= np.sqrt(np.mean(miss**2) / np.mean(spread**2)) if spread.any() else 1.0
    named = dict(zip(MEMBERS, weights.tolist(), strict=True))
    return HybridPrediction(whole, np.exp(made @ weights), spread, np.exp(unseen @ weights), named, np.exp(made[:, 3]))


def _weights(unseen: Array, logs: Array) -> Array:
    near = np.exp(-_NEARNESS * (logs - logs.min()))
    error = (near[:, None] * (unseen - logs[:, None]) ** 2).sum(axis=0) / near.sum() + 1e-8
    shares = np.array(_TRUST) / error**_POWER
    return np.asarray(shares / shares.sum())


def _unseen(
    space: DescribedSpace, inputs: Array, index: NDArray[np.intp], logs: Array, seed: int, kernel: Any
) -> Array:
    """Return every member's predictions of the measured configurations, from folds without them."""
    found = np.empty((len(index), len(MEMBERS)))
    fold = np.random.default_rng(seed).permutation(len(index)) % _FOLDS
    for number in range(_FOLDS):
        seen, held = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
        base = np.log(space.fit_analytic(index[seen], np.exp(logs[seen])).predicted)
        rows = np.concatenate([index[seen], index[held]])
        _, made, _ = _members(inputs[rows], base[rows], np.arange(len(seen)), logs[seen], (_FOLD_TREES, seed), kernel)
        found[held] = made[len(seen) :]
    return found


def _members(
    inputs: Array, base: Array, index: NDArray[np.intp], logs: Array, trees: tuple[int, int], kernel: Any
) -> tuple[Any, Array, Array]:
    """Return the Gaussian process's kernel, every member's prediction ``(n, members)``, and a deviation ``(n,)``."""
    known = np.column_stack([inputs, base])
    residual = logs - base[index]
    corrected, spread = _trees(known, index, residual, trees)
    direct, _ = _trees(known, index, logs, trees)
    # The cost of a Gaussian process grows with the cube of its rows: of many, the fastest and some of the others.
    ranked = np.argsort(logs, kind="stable")
    half = _PROCESS_ROWS // 2
    rest = np.random.default_rng(trees[1]).permutation(ranked[half:])
    rows = np.sort(np.concatenate([ranked[:half], rest[: _PROCESS_ROWS - half]]))
    kernel, smooth, width = _process(known, index[rows], residual[rows], kernel)
    return kernel, np.column_stack([base, base + corrected, base + smooth, direct]), (spread + width) / 2


def _trees(inputs: Array, index: NDArray[np.intp], target: Array, trees: tuple[int, int]) -> tuple[Array, Array]:
    from sklearn.ensemble import ExtraTreesRegressor

    forest = ExtraTreesRegressor(trees[0], random_state=trees[1], max_features=0.5, n_jobs=1)
    forest.fit(inputs[index], target)
    rows = np.ascontiguousarray(inputs, dtype=np.float32)
    total, squares = np.zeros(len(rows)), np.zeros(len(rows))
    for tree in forest.estimators_:
        made = tree.tree_.predict(rows)[:, 0]
        total += made
        squares += made**2
    mean = total / trees[0]
    return mean, np.sqrt(np.maximum(squares / trees[0] - mean**2, 0))


def _process(inputs: Array, index: NDArray[np.intp], target: Array, kernel: Any) -> tuple[Any, Array, Array]:
    import warnings

    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    center, scale = inputs[index].mean(axis=0), inputs[index].std(axis=0)
    varied = scale > 1e-9
    even = np.clip((inputs[:, varied] - center[varied]) / scale[varied], -4, 4)
    optimizer = "fmin_l_bfgs_b" if kernel is None else None
    if kernel is None:
        kernel = ConstantKernel(0.3, (1e-2, 10)) * Matern(8.0, (1, 100), nu=1.5) + WhiteKernel(0.05, (1e-3, 1))
    process = GaussianProcessRegressor(kernel, alpha=1e-6, normalize_y=True, optimizer=optimizer)
    with warnings.catch_warnings():
        # A hyperparameter at its bound is meant to stay there.
        warnings.simplefilter("ignore", ConvergenceWarning)
        process.fit(even[index], target)
    mean, deviation = process.predict(even, return_std=True)
    return process.kernel_, np.asarray(mean), np.asarray(deviation)
