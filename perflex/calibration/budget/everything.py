"""Everything: what it takes to build and time all kernels of a pool, and doing so in the ordinary way."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from perflex.calibration.budget.spending import expected_device_time, one_block, ordinary_device_time
from perflex.errors import PerflexWarning
from perflex.fit.table import FeatureInfo
from perflex.timing.results import MeasurementFailure
from perflex.timing.rounds import shortest_sample_s

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perflex.calibration.budget.measured import KernelPool
    from perflex.fit.table import FeatureTable
    from perflex.progress import Progress
    from perflex.timing.options import TimingOptions

    Array = NDArray[np.float64]

# Kernels that are timed to tell what all of them take: cheap ones first, then some drawn by chance.
_FIRST, _DRAWN = 4, 20
# Share of the budget that each of the two may take, as far as that is known.
_PROBE_SHARE = 0.1
# Standard errors that a mean of the probed kernels may be too low.
_STANDARD_ERRORS = 2.0


def everything_s(pool: KernelPool, seconds: Array, timing: TimingOptions) -> float:
    """Return the time in seconds to build all kernels and time them as without a budget.

    Parameters
    ----------
    pool
        What was measured tells how long a build takes, and timing in terms of device time.
    seconds
        Time of one launch of each kernel in seconds, shape ``(m,)``.
    timing
        How kernels are timed.
    """
    device = float(ordinary_device_time(seconds, timing, shortest_sample_s(pool.device)).sum())
    return device * pool.pace + _build_s(pool) * len(pool.jobs)


def _build_s(pool: KernelPool) -> float:
    return pool.building_s / pool.built if pool.built else 0.0


def probe(pool: KernelPool, guessed: Array, timing: TimingOptions, left_s: float, report: Progress | None) -> float:
    """Time some kernels, drawn by chance, and return what building and timing all of them takes in seconds.

    The mean of kernels drawn by chance tells that of all, with a standard error, whatever the model is worth.

    Parameters
    ----------
    pool
        The kernels; what is timed counts as spent.
    guessed
        Time of one launch of each kernel in seconds, by the guessed parameters; shape ``(m,)``.
    timing
        How kernels are timed where everything is measured.
    left_s
        What may be spent; infinity is returned as soon as everything is out of its reach.
    report
        Called as work proceeds.
    """
    sample_s = shortest_sample_s(pool.device)
    by_cost = np.argsort(guessed, kind="stable")
    # Cheap ones first, for guesses may be far too low; what they tell of guesses decides on the others.
    cheap = [int(by_cost[len(by_cost) * place // 10]) for place in range(1, 1 + _FIRST)]
    order = np.random.default_rng(timing.seed).permutation(len(pool.jobs))
    drawn = [int(row) for row in order[: min(_DRAWN, max(2, len(order) // 4))]]
    factor, known = 1.0, np.zeros(0)
    for rows in (sorted(set(cheap)), drawn):
        # No kernel may take more than where all are measured; guesses of single kernels are often far too high.
        block = one_block(timing, min(left_s, timing.budget_s), 0)
        cost = np.minimum(expected_device_time(factor * guessed[rows], block, sample_s), timing.budget_s)
        if float(cost.sum()) > _PROBE_SHARE * left_s:
            return math.inf
        with warnings.catch_warnings():
            # Which kernels are left out is said by whoever measures all of them, or chooses others.
            warnings.simplefilter("ignore", PerflexWarning)
            fast = pool.measure(rows, block, report)
        pool.failed.clear()
        done = [row for row in rows if pool.trials[row]]
        if len(done) < min(2, len(rows)) or not fast:
            return math.inf
        factor = float(np.median(pool.seconds[done] / guessed[done]))
        known = ordinary_device_time(pool.seconds[done], timing, sample_s)
    error = float(np.std(known, ddof=1)) / math.sqrt(len(known)) if len(known) > 1 else float(known[0])
    device = len(pool.jobs) * (float(known.mean()) + _STANDARD_ERRORS * error)
    return device * pool.pace + _build_s(pool) * len(pool.jobs)


def measure_everything(pool: KernelPool, output: str, timing: TimingOptions, report: Progress | None) -> FeatureTable:
    """Build and time all kernels as without a budget; return the table that `gather_feature_values` gives."""
    outcomes = pool.timed(range(len(pool.jobs)), timing, report)
    measured = np.full((len(pool.jobs), 3), np.nan)
    failures = []
    for row, outcome in enumerate(outcomes):
        if isinstance(outcome, MeasurementFailure):
            failures.append((outcome.label, outcome.reason.removeprefix(f"{outcome.label}: ")))
            warnings.warn(f"{outcome.label} is left out: {failures[-1][1]}", PerflexWarning, stacklevel=4)
        else:
            measured[row] = outcome.seconds, outcome.spread, outcome.repeatability
    kept = [int(row) for row in np.flatnonzero(np.isfinite(measured[:, 0]))]
    chosen = pool.counted.take(kept)
    return replace(
        chosen,
        output=output,
        features=(output, *chosen.features),
        values=np.column_stack([measured[kept, 0], chosen.values]),
        spread=measured[kept, 1],
        repeatability=measured[kept, 2],
        info={**chosen.info, output: FeatureInfo("s")},
        device=str(pool.device),
        dropped=(*pool.counted.dropped, *failures),
        timing=outcomes.summary(),
    )
