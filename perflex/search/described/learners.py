"""The learners of the correction: each fitted to rows of columns, each predicting others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

# The cost of a Gaussian process grows with the cube of its rows.
_PROCESS_ROWS = 600
# Columns that a split chooses from, as a share.
_COLUMNS = 0.4


def random_trees(seen: Array, target: Array, wanted: Array, count: int, seed: int) -> Array:
    """Return predictions of the wanted rows by extremely randomised trees fitted to the seen ones."""
    from sklearn.ensemble import ExtraTreesRegressor

    forest = ExtraTreesRegressor(count, random_state=seed, max_features=_COLUMNS, n_jobs=1)
    return np.asarray(forest.fit(seen, target).predict(wanted))


def boosted_trees(seen: Array, target: Array, wanted: Array, count: int, seed: int) -> Array:
    """Return predictions of the wanted rows by gradient-boosted trees fitted to the seen ones."""
    from sklearn.ensemble import GradientBoostingRegressor

    boosted = GradientBoostingRegressor(
        n_estimators=count, max_depth=4, max_features=_COLUMNS, learning_rate=0.08, subsample=0.7, random_state=seed
    )
    return np.asarray(boosted.fit(seen, target).predict(wanted))


def gaussian_process(seen: Array, target: Array, wanted: Array, logs: Array, seed: int) -> Array:
    """Return predictions of the wanted rows by a Gaussian process, Matern 3/2 with one length for all columns.

    Of many seen rows, the fastest and some of the others are taken; ``logs`` are the logarithms of their times.
    """
    import warnings

    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    half = _PROCESS_ROWS // 2
    ranked = np.argsort(logs, kind="stable")
    rest = np.random.default_rng(seed).permutation(ranked[half:])
    rows = np.sort(np.concatenate([ranked[:half], rest[: _PROCESS_ROWS - half]]))
    center, scale = seen[rows].mean(axis=0), seen[rows].std(axis=0)
    # A column without spread in the seen rows does not tell them apart, and would be divided by zero.
    varied = scale > 1e-9
    if not varied.any():
        return np.full(len(wanted), target.mean())
    # Clipped, so that one outlying column does not decide all distances.
    known, asked = (
        np.clip((table[:, varied] - center[varied]) / scale[varied], -4, 4) for table in (seen[rows], wanted)
    )
    # Variances are relative to the target's, which normalize_y makes 1; lengths are in deviations of the columns.
    kernel = ConstantKernel(0.3, (1e-2, 10)) * Matern(8.0, (1, 100), nu=1.5) + WhiteKernel(0.05, (1e-3, 1))
    process = GaussianProcessRegressor(kernel, alpha=1e-6, normalize_y=True)
    with warnings.catch_warnings():
        # A hyperparameter at its bound is meant to stay there.
        warnings.simplefilter("ignore", ConvergenceWarning)
        process.fit(known, target[rows])
    return np.asarray(process.predict(asked))
