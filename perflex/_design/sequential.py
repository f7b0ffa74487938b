"""Measuring within a budget of device time: a pilot first, then batches chosen with what was learnt.

What a kernel costs, and which parameters of a nonlinear model it informs, depends on the parameters themselves. So a
small batch is chosen with rough values; the model is fitted to it; and each further batch is chosen with the fitted
values, until the budget is spent or further timings would tell little.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex._design.basis import cheapest_basis
from perflex._design.choose import Choice, choose
from perflex._design.guess import rough_parameters
from perflex._design.information import elasticities, information_share
from perflex._design.measured import Pool
from perflex._design.spending import expected_device_time, one_block
from perflex._fit import fit_model
from perflex._fit_roles import find_roles
from perflex._gather import DEFAULT_SUB_GROUP_SIZE, gather_feature_values, kernel_rows
from perflex._progress import progress_shown
from perflex._table import scale_features_by_output
from perflex._warnings import PerflexWarning
from perflex.errors import CalibrationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Executor

    from numpy.typing import NDArray

    from perflex._model import Model
    from perflex._store import StorePlace
    from perflex._table import FeatureTable
    from perflex._timing import Progress, TimingOptions

    Array = NDArray[np.float64]

__all__ = ["BudgetReport", "measure_within_budget"]

# Share of the budget that may be spent once each batch is done.
_SHARES = (0.1, 0.5, 1.0, 1.0, 1.0)
# Predicted costs are wrong by some percent; what is then left goes to the next batch, unless it is too little.
_MARGIN = 0.93
_TOO_LITTLE = 0.08
# A batch that lowers standard errors by less than this (geometric mean over the parameters) is not worth its time.
_LEAST_GAIN = 0.01
_FIRST_MISFIT, _LEAST_MISFIT = 0.1, 0.02
_FIRST_SPREAD = 0.05
_NORMAL = 1.4826  # standard deviations per median absolute deviation
_SILENT = 1e-9


@dataclass(frozen=True)
class BudgetReport:
    """What a budget was spent on.

    Attributes
    ----------
    budget_s, spent_s
        Device time in seconds: given, and spent on timings with their warm-ups and first launches.
    pool
        Number of measurement kernels to choose from, by generator.
    chosen
        Number of kernels that were timed.
    batches
        Number of batches.
    ended
        Why no more were timed.
    """

    budget_s: float
    spent_s: float
    pool: Mapping[str, int]
    chosen: int
    batches: int
    ended: str

    def facts(self) -> dict[str, Any]:
        """Return the content of a calibration's options."""
        return {
            "choice": "D-optimal on the scaled Jacobian, in batches",
            "device_time_budget_s": self.budget_s,
            "device_time_spent_s": round(self.spent_s, 6),
            "pool_kernels": sum(self.pool.values()),
            "pool": [f"{generator}: {count}" for generator, count in self.pool.items()],
            "chosen_kernels": self.chosen,
            "batches": self.batches,
            "ended": self.ended,
        }

    def __str__(self) -> str:
        return (
            f"{self.chosen} of {sum(self.pool.values())} measurement kernels chosen in {self.batches} batches; "
            f"{self.spent_s:.3g} s of device time spent of a budget of {self.budget_s:.3g} s; {self.ended}"
        )


def measure_within_budget(  # noqa: PLR0913 - one parameter per choice
    model: Model,
    kernels: Sequence[Any],
    budget_s: float,
    *,
    device: Any,
    timing: TimingOptions,
    guess: Mapping[str, float] | None = None,
    relative: bool = True,
    nonnegative: bool = True,
    sub_group_size: int | None = None,
    executor: Executor | None = None,
    store: StorePlace | None = None,
    progress: bool | Progress | None = None,
) -> tuple[FeatureTable, BudgetReport]:
    """Count all kernels, and time those that tell most about the model for their device time.

    Parameters
    ----------
    model
        A differentiable model whose output is a wall time.
    kernels
        The pool to choose from: measurement kernels, or pairs ``(loopy kernel, sizes)``.
    budget_s
        Device time in seconds, warm-ups included. Building kernels takes no device time and is not limited.
    device
        Where to time them.
    timing
        A chosen kernel gets ``min_trials`` timings at a time, and more of them, up to ``trials``, where that
        tells more than another kernel.
    guess
        Parameter values to choose the first batch with, for those that are known better than roughly.
    relative, nonnegative, sub_group_size, executor, store, progress
        As `perflex.calibrate`.

    Returns
    -------
    tuple
        The table of the chosen kernels, as `gather_feature_values` makes it, and what the budget was spent on.

    Raises
    ------
    CalibrationError
        The budget is not positive, or no choice within it determines every parameter; they are named.
    NoMatchError, MissingSizeError, ExecutorError
        As `gather_feature_values`.
    """
    if not (np.isfinite(budget_s) and budget_s > 0):
        msg = f"the budget must be a positive number of seconds, not {budget_s}"
        raise CalibrationError(msg)
    size = sub_group_size or int(getattr(device, "sub_group_size", DEFAULT_SUB_GROUP_SIZE))
    with progress_shown(progress, "calibrate:") as report:
        counted = gather_feature_values(
            model.input_features(), kernels, sub_group_size=size, executor=executor, store=store, progress=report
        )
        rows = {row.label: row for row in kernel_rows(kernels)}
        jobs = [(rows[label].kernel, rows[label].sizes, label) for label in counted.kernels]
        pool = Pool(counted, jobs, device)
        course = _Course(model, pool, timing, budget_s, relative=relative, nonnegative=nonnegative)
        course.parameters = rough_parameters(model, counted, guess or {})
        batches, ended = course.run(report)
    if not pool.done:
        reasons = "; ".join(f"{counted.kernels[row]}: {reason}" for row, reason in list(pool.failed.items())[:3])
        msg = f"none of the kernels could be timed within {budget_s:.3g} s ({reasons}); give a larger budget"
        raise CalibrationError(msg)
    table = pool.table(model.output_feature)
    return table, BudgetReport(budget_s, pool.spent_s, pool.generators(), len(table), batches, ended)


class _Course:
    """What is known of the parameters while batches are chosen and measured."""

    def __init__(
        self, model: Model, pool: Pool, timing: TimingOptions, budget_s: float, *, relative: bool, nonnegative: bool
    ) -> None:
        self.model = model
        self.pool = pool
        self.timing = timing
        self.budget_s = budget_s
        self.relative = relative
        self.nonnegative = nonnegative
        self.parameters: dict[str, float] = {}
        self.misfit = _FIRST_MISFIT
        roles = find_roles(model.tree)
        self._shapes = {*roles.edges, *roles.shapes}

    @property
    def left_s(self) -> float:
        return self.budget_s - self.pool.spent_s

    def run(self, report: Progress | None) -> tuple[int, str]:
        """Measure batch after batch; return how many there were, and why no more."""
        batches = 0
        for share in _SHARES:
            if self.left_s < _TOO_LITTLE * self.budget_s:
                break
            allowed = _MARGIN * (share * self.budget_s - self.pool.spent_s)
            block = one_block(self.timing, self.left_s, batches)
            rows, choice = self._batch(block, allowed, pilot=batches == 0)
            if not rows:
                return batches, self._why(choice)
            batches += 1
            self.pool.measure(rows, block, self._reporting(report, batches, len(rows)))
            self._learn()
        return batches, "the budget is spent"

    def _why(self, choice: Choice | None) -> str:
        if choice is None:
            return "every kernel was timed as often as asked for"
        return "further timings would tell little more" if choice.rows else "no further timing fits into what is left"

    def _batch(self, block: TimingOptions, allowed: float, *, pilot: bool) -> tuple[list[int], Choice | None]:
        """Return the rows to measure next, none if that is not worth it."""
        pool = self.pool
        predicted, scaled = elasticities(self.model, self.parameters, pool.counted)
        if not self.relative:
            scaled = scaled * predicted[:, None]
        loud = [
            j
            for j, name in enumerate(self.model.params())
            # As in a fit, an edge on which nothing depends stops nobody.
            if name not in self._shapes or np.abs(scaled[:, j]).max() > _SILENT
        ]
        names = [self.model.params()[j] for j in loud]
        scaled = scaled[:, loud]
        # Predictions are as wrong as the model; erring on the slow side keeps within the budget.
        seconds = np.where(pool.trials > 0, pool.seconds, predicted * (1 + min(self.misfit, 1.0)))
        typical = np.nanmedian(pool.spread) if np.isfinite(pool.spread).any() else _FIRST_SPREAD
        spread = np.where(np.isfinite(pool.spread), pool.spread, typical)
        share = information_share(spread, pool.trials, self.misfit)
        more = information_share(spread, pool.trials + block.trials, self.misfit) - share
        done = pool.done
        open_ = [i for i in range(len(seconds)) if i not in pool.failed and pool.trials[i] < self.timing.trials]
        if not open_:
            return [], None
        known = scaled[done] * np.sqrt(share[done])[:, None]
        rows = scaled[open_] * np.sqrt(more[open_])[:, None]
        cost = expected_device_time(seconds[open_], block)
        if pilot:
            return [open_[i] for i in _pilot(rows, cost, allowed, self.left_s, names)], None
        try:
            choice = choose(rows, cost, max(allowed, 0.0), known=known, parameters=names)
        except CalibrationError:
            # Whatever it takes to determine every parameter, as long as the budget allows it.
            choice = choose(rows, cost, _MARGIN * self.left_s, known=known, parameters=names)
        if choice.gain < 2 * len(names) * _LEAST_GAIN:
            return [], choice
        return [open_[i] for i in choice.rows], choice

    def _learn(self) -> None:
        """Fit the model to what was measured; where that is too little, only the costs' common scale."""
        table = self.pool.table(self.model.output_feature)
        if not len(table):
            return
        measured = table.column(self.model.output_feature)
        predicted, _ = elasticities(self.model, self.parameters, table)
        ratio = float(np.median(measured / predicted))
        roles = find_roles(self.model.tree)
        rough = {
            name: value * ratio if name in roles.costs else value / ratio if name in roles.edges else value
            for name, value in self.parameters.items()
        }
        self.parameters = rough
        scaled = scale_features_by_output(table) if self.relative else table
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PerflexWarning)
                fit = fit_model(
                    self.model, scaled, nonnegative=self.nonnegative, starts=[rough], on_undetermined="warn"
                )
        except CalibrationError:
            return
        for name, value in fit.items():
            if name not in fit.undetermined and np.isfinite(value):
                # A cost at zero leaves kernels that consist of nothing else without any time.
                self.parameters[name] = max(value, 1e-3 * abs(rough[name])) if name in roles.costs else value
        spare = max(1, len(table) - len(fit))
        errors = np.abs(np.array(fit.relative_errors))
        misfit = _NORMAL * float(np.nanmedian(errors)) * (len(table) / spare) ** 0.5
        self.misfit = max(_LEAST_MISFIT, misfit)

    def _reporting(self, report: Progress | None, batch: int, kernels: int) -> Progress | None:
        if report is None:
            return None
        before, steps = self.pool.spent_s / self.budget_s, 1000

        def show(done: int, total: int, what: str) -> None:
            # How much of its share of the budget a batch has spent is not known before its end.
            part = before + (1 - before) * done / max(1, total) if batch >= len(_SHARES) else before
            report(min(steps, round(steps * part)), steps, f"batch {batch}, {kernels} kernels: {what}")

        return show


def _pilot(rows: Array, cost: Array, allowed: float, left_s: float, names: Sequence[str]) -> list[int]:
    """Return the first batch: few rows for certain, since neither costs nor parameters are more than guessed."""
    try:
        return list(choose(rows, cost, allowed, parameters=names).rows)
    except CalibrationError:
        basis = cheapest_basis(rows, cost, np.zeros((0, rows.shape[1])))
        half = [row for place, row in enumerate(basis) if cost[basis[: place + 1]].sum() <= 0.5 * left_s]
        return half or basis[:1]
