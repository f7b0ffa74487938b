"""Batch after batch: choosing kernels with what is known of the parameters, and learning from their times."""

from __future__ import annotations

import math
import warnings
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, repeat
from typing import TYPE_CHECKING

import numpy as np

from perflex.calibration.budget.basis import cheapest_basis, require_affordable, undetermined
from perflex.calibration.budget.choose import ChosenRows, choose
from perflex.calibration.budget.everything import everything_s, probe
from perflex.calibration.budget.information import elasticities, information_share
from perflex.calibration.budget.spending import expected_device_time, one_block
from perflex.errors import CalibrationError, PerflexWarning
from perflex.expression.roles import find_roles
from perflex.fit.fitting import fit_model
from perflex.fit.table import scale_features_by_output
from perflex.timing.rounds import shortest_sample_s

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from perflex.calibration.budget.measured import KernelPool
    from perflex.expression.model import Model
    from perflex.fit.loss import Loss
    from perflex.fit.table import FeatureTable
    from perflex.progress import Progress
    from perflex.timing.options import TimingOptions

    Array = NDArray[np.float64]

# Share of the budget that may be spent once each batch is done.
_SHARES = (0.1, 0.5)
# Predicted costs are wrong by some percent; what is then left goes to the next batch, unless it is too little.
_MARGIN = 0.93
_TOO_LITTLE = 0.08
# A batch that lowers standard errors by less than this (geometric mean over the parameters) is not worth its time.
_LEAST_GAIN = 0.01
# Share of the budget that improving the choice of one batch may take.
_DESIGN_SHARE = 0.05
# Relative error of the model itself, before a fit tells and at least: a fit to few kernels looks better than it is.
_FIRST_MISFIT, _LEAST_MISFIT = 0.1, 0.02
# Relative spread of timings before any was taken.
_FIRST_SPREAD = 0.05
_NORMAL = 1.4826  # standard deviations per median absolute deviation
# Elasticity below which nothing depends on a parameter.
_NO_EFFECT = 1e-9


@dataclass(frozen=True)
class _Batch:
    rows: list[int]
    timing: TimingOptions
    expected_s: float


class SequentialDesign:
    """A design in batches: each is chosen with what is known of the parameters, and its times add to that.

    Parameters
    ----------
    model
        A differentiable model whose output is a wall time.
    pool
        The kernels to choose from; keeps what is measured of them.
    timing
        How kernels are timed.
    budget_s
        Seconds for timings and for choosing them, all batches together.
    relative, nonnegative, loss
        As `perflex.calibrate`.
    strict
        Whether parameters that no choice of kernels determines are an error; else they are left out.
    """

    def __init__(
        self,
        model: Model,
        pool: KernelPool,
        timing: TimingOptions,
        budget_s: float,
        *,
        relative: bool,
        nonnegative: bool,
        loss: Loss,
        strict: bool = True,
    ) -> None:
        self.model = model
        self.pool = pool
        self.timing = timing
        self.budget_s = budget_s
        self.relative = relative
        self.nonnegative = nonnegative
        self.loss = loss
        self.strict = strict
        self.parameters: dict[str, float] = {}
        self.misfit = _FIRST_MISFIT
        self.design_s = 0.0
        self.everything_s = math.inf
        roles = find_roles(model.tree)
        self._shapes = {*roles.edges, *roles.shapes}
        self._sample_s = shortest_sample_s(pool.device)
        # What determines a linear model does not depend on its parameters.
        self._linear = len(roles.costs) == len(model.params()) and roles.relaxed == model.tree

    @property
    def left_s(self) -> float:
        """Seconds that may still be spent."""
        return self.budget_s - self.pool.spent_s - self.pool.waited_s - self.design_s

    @property
    def everything_fits(self) -> bool:
        """Whether what is left suffices to build and time all kernels."""
        return self.everything_s <= self.left_s

    def estimate(self, report: Progress | None) -> None:
        """Estimate what it takes to build and time all kernels, from some that are timed to tell, if that may be.

        Raises
        ------
        CalibrationError
            The model is linear, and no choice of kernels determines every parameter.
        """
        names, scaled, seconds = self._expected()
        if self._linear:
            require_affordable(scaled, np.zeros(len(scaled)), math.inf, scaled[:0], [], names)
        self.everything_s = probe(self.pool, seconds, self.timing, self.left_s, report)
        self._learn(fit=False)

    def run(self, report: Progress | None) -> tuple[int, str]:
        """Measure batch after batch; return how many there were, and why no more."""
        batches, thought, learnt = 0, 0.0, 0.0
        for share in chain(_SHARES, repeat(1.0)):
            enough = _TOO_LITTLE * self.budget_s
            # The next choice and fit take about as long as those before.
            if self.left_s < max(enough, thought):
                break
            used = self.budget_s - self.left_s
            last = share == 1.0 or self.left_s < 3 * (thought + learnt)
            allowed = _MARGIN * ((1.0 if last else share) * self.budget_s - used - thought) / self.pool.pace
            # Too little for a batch, but the next share may be enough.
            if allowed < enough and not last:
                continue
            began = self.pool.clock()
            batch = self._next(max(allowed, 0.0), batches)
            thought = self.pool.clock() - began
            self.design_s += thought
            if isinstance(batch, str):
                return batches, batch
            batches += 1
            self.pool.measure(batch.rows, batch.timing, self._reporting(report, batches, batch))
            # A fit takes about twice as long as a choice, as far as is known. What the last batch tells, the fit to all
            # will tell.
            fit = self.left_s >= enough + thought + max(learnt, 2 * thought)
            began = self.pool.clock()
            self._learn(fit=fit)
            if fit:
                learnt = self.pool.clock() - began
            self.design_s += self.pool.clock() - began
            if batches == 1:
                self.everything_s = everything_s(self.pool, self._expected()[2], self.timing)
                if self.everything_fits:
                    break
        return batches, "the budget is spent"

    def _next(self, allowed: float, number: int) -> _Batch | str:
        """Return what to measure next, or why nothing more."""
        pool = self.pool
        names, scaled, seconds = self._expected()
        per_trial = seconds * (1 + self.timing.warmups)
        # As where everything is measured: the number of trials, or the time that one kernel may take.
        enough = (pool.trials >= self.timing.trials) | (pool.trials * per_trial >= self.timing.budget_s)
        candidates = [i for i in range(len(seconds)) if i not in pool.failed and not (pool.trials[i] and enough[i])]
        if not candidates:
            return "every kernel has all its trials"
        block = self._block(seconds[candidates], allowed, number)
        typical = np.nanmedian(pool.spread) if np.isfinite(pool.spread).any() else _FIRST_SPREAD
        spread = np.where(np.isfinite(pool.spread), pool.spread, typical)
        share = information_share(spread, pool.trials, self.misfit)
        gained = information_share(spread, pool.trials + block.trials, self.misfit) - share
        # Square roots, for a row enters the information matrix squared.
        rows = scaled[candidates] * np.sqrt(gained[candidates])[:, None]
        cost = expected_device_time(seconds[candidates], block, self._sample_s)
        in_time = self._limit()
        if number == 0:
            chosen = self._pilot(rows, cost, allowed, names, in_time)
        else:
            known = scaled[pool.done] * np.sqrt(share[pool.done])[:, None]
            choice = self._choice(rows, cost, allowed, known, names, in_time)
            if not choice.rows:
                return "no further timing fits into the rest of the budget"
            # If all n standard errors fall by this share, the logarithm of the determinant rises by 2 n times it.
            if choice.gain < 2 * len(names) * _LEAST_GAIN:
                return "further timings would reduce the standard errors little"
            chosen = list(choice.rows)
        return _Batch([candidates[i] for i in chosen], block, float(cost[chosen].sum()))

    def _limit(self) -> Callable[[], bool]:
        """Return what tells whether there is time to improve the choice of the next batch."""
        until = self.pool.clock() + _DESIGN_SHARE * self.budget_s
        return lambda: self.pool.clock() < until

    def _expected(self) -> tuple[list[str], Array, Array]:
        """Return parameters, the scaled Jacobian by them, and the seconds of one launch, of all kernels."""
        predicted, scaled = elasticities(self.model, self.parameters, self.pool.counted)
        # Elasticities are of relative errors; for absolute ones long kernels tell more.
        if not self.relative:
            scaled = scaled * predicted[:, None]
        names = self.model.params()
        # As in a fit, an edge on which nothing depends stops nobody.
        effective = [j for j, n in enumerate(names) if n not in self._shapes or np.abs(scaled[:, j]).max() > _NO_EFFECT]
        if not self.strict:
            effective = _determined(scaled, effective, names)
        # Predictions are as wrong as the model; erring on the slow side keeps within the budget.
        slow = predicted * (1 + min(self.misfit, 1.0))
        return (
            [names[j] for j in effective],
            scaled[:, effective],
            np.where(self.pool.trials > 0, self.pool.seconds, slow),
        )

    def _block(self, seconds: Array, allowed: float, number: int) -> TimingOptions:
        """Return how kernels are timed next: the fewest trials, or as many as all kernels can have."""
        block = one_block(self.timing, self.left_s, number)
        while 2 * block.trials <= self.timing.trials:
            double = replace(block, trials=2 * block.trials, min_trials=2 * block.trials)
            if expected_device_time(seconds, double, self._sample_s).sum() > allowed:
                break
            block = double
        return block

    def _pilot(
        self, rows: Array, cost: Array, allowed: float, names: Sequence[str], in_time: Callable[[], bool]
    ) -> list[int]:
        """Return the first batch: few rows for certain, since neither costs nor parameters are more than guessed."""
        try:
            return list(choose(rows, cost, allowed, parameters=names, in_time=in_time).rows)
        except CalibrationError as error:
            # What leaves a linear model undetermined does so at any parameters; in others, better values may help.
            if self._linear and "needed" not in error.context:
                raise
        basis = cheapest_basis(rows, cost, np.zeros((0, rows.shape[1])))
        half = [row for place, row in enumerate(basis) if cost[basis[: place + 1]].sum() <= 0.5 * self.left_s]
        return half or basis[:1]

    def _choice(
        self,
        rows: Array,
        cost: Array,
        allowed: float,
        known: Array,
        names: Sequence[str],
        in_time: Callable[[], bool],
    ) -> ChosenRows:
        # Where the share does not determine every parameter: whatever it takes, as long as the budget allows it.
        with suppress(CalibrationError):
            return choose(rows, cost, allowed, known=known, parameters=names, in_time=in_time)
        try:
            most = max(0.0, _MARGIN * self.left_s / self.pool.pace)
            return choose(rows, cost, most, known=known, parameters=names, in_time=in_time)
        except CalibrationError as error:
            if "needed" not in error.context:
                raise self._with_failures(error) from error
            needed = (self.pool.spent_s + float(error.context["needed"])) / _MARGIN  # type: ignore[arg-type]
            concerned = ", ".join(error.context["parameters"])  # type: ignore[arg-type]
            msg = (
                f"a budget of {self.budget_s:.3g} s of device time is too small to determine {concerned}: the cheapest "
                f"kernels that do take about {needed:.2g} s; give a larger budget, smaller kernels, or fewer trials"
            )
            raise self._with_failures(CalibrationError(msg, parameters=error.context["parameters"])) from error

    def _with_failures(self, error: CalibrationError) -> CalibrationError:
        failed = [f"{self.pool.counted.kernels[row]}: {reason}" for row, reason in self.pool.failed.items()]
        if not failed:
            return error
        msg = f"{error.message} ({len(failed)} kernels could not be timed; the first: {failed[0]})"
        return CalibrationError(msg, **error.context)

    def _learn(self, *, fit: bool) -> None:
        """Fit the model to what was measured; where that or the time is too little, only the costs' common scale."""
        table = self.pool.table(self.model.output_feature)
        if not len(table):
            return
        measured = table.column(self.model.output_feature)
        predicted, _ = elasticities(self.model, self.parameters, table)
        # Guesses are often wrong by one factor for all costs, which a few kernels show already.
        ratio = float(np.median(measured / predicted))
        roles = find_roles(self.model.tree)
        rough = {
            # Edges are in 1/[cost], so they scale the other way.
            name: value * ratio if name in roles.costs else value / ratio if name in roles.edges else value
            for name, value in self.parameters.items()
        }
        self.parameters = rough
        if fit:
            self._fit(table, rough)

    def _fit(self, table: FeatureTable, rough: Mapping[str, float]) -> None:
        """Fit the model to what was measured, if these are enough kernels, and take on what it finds."""
        roles = find_roles(self.model.tree)
        scaled = scale_features_by_output(table) if self.relative else table
        try:
            with warnings.catch_warnings():
                # That few kernels leave parameters open is expected here, and no news to the user.
                warnings.simplefilter("ignore", PerflexWarning)
                fit = fit_model(
                    self.model,
                    scaled,
                    nonnegative=self.nonnegative,
                    starts=[rough],
                    on_undetermined="warn",
                    loss=self.loss,
                )
        except CalibrationError:
            # Too few kernels for a fit as yet: the rescaled guess chooses the next batch.
            return
        # A cost of zero would predict no time at all for a kernel of that cost alone, and no error is relative to that.
        least = {name: 1e-3 * abs(rough[name]) if name in roles.costs else -np.inf for name in rough}
        fitted = {name: max(fit[name], least[name]) for name in rough if name not in fit.undetermined}
        try:
            elasticities(self.model, {**rough, **fitted}, self.pool.counted)
        except CalibrationError:
            # Few kernels can lead to shapes that make no sense for others.
            return
        self.parameters = {**rough, **fitted}
        # Few kernels beyond the parameters leave residuals that are too small.
        spare = max(1, len(table) - len(fit))
        misfit = _NORMAL * float(np.nanmedian(np.abs(fit.relative_errors))) * (len(table) / spare) ** 0.5
        self.misfit = max(_LEAST_MISFIT, misfit)

    def _reporting(self, report: Progress | None, number: int, batch: _Batch) -> Progress | None:
        if report is None:
            return None
        before, steps = self.pool.spent_s, 1000

        def show(done: int, total: int, what: str) -> None:
            spent = (before + batch.expected_s * done / max(1, total)) / self.budget_s
            report(min(steps, round(steps * spent)), steps, f"batch {number}, {len(batch.rows)} kernels: {what}")

        return show


def _determined(rows: Array, columns: Sequence[int], names: Sequence[str]) -> list[int]:
    """Return the columns without those that no choice of rows determines; of several that go together one is left."""
    left, none = list(columns), np.zeros((0, len(columns)))
    while missing := undetermined(rows[:, left], none[:, : len(left)], range(len(rows)), [names[j] for j in left]):
        left.remove(names.index(missing[-1]))
    return left
