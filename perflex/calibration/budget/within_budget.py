"""Measuring within a budget of device time: a few kernels first, then all, or those that tell most for their time.

What a kernel costs, and which parameters of a nonlinear model it informs, depends on the parameters themselves. So
kernels are timed in batches, and each batch is chosen with the parameters that the model has by those before.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.calibration.budget.choose import cheapest_basis, choose, elasticities, rough_parameters, undetermined
from perflex.calibration.gathering import gather
from perflex.devices.device import Device, identity
from perflex.errors import CalibrationError, warn
from perflex.expression.roles import find_roles
from perflex.features.sized_kernel import sized_kernels
from perflex.fit.options import ParameterPrior, Prior
from perflex.fit.posterior import fit_with_prior
from perflex.fit.table import FeatureInfo
from perflex.store.resume import RecordOnly, resumable
from perflex.timing.measuring import measure
from perflex.timing.results import Measured, MeasurementFailure, Timing
from perflex.timing.rounds import shortest_sample_s

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from perflex.calibration.gathering import Measuring
    from perflex.expression.model import Model
    from perflex.features.sized_kernel import SizedKernel
    from perflex.fit.table import FeatureTable
    from perflex.progress import Progress
    from perflex.timing.options import TimingOptions

    Array = NDArray[np.float64]

# Timings of one kernel where not all kernels can be timed: further kernels tell more than further timings.
_FEW = 3
# Launches that are not timed when a kernel is started.
_FIRST = 2
# A launch counts for as long at least: shorter ones are repeated within a timing, and starting them costs as well.
_LEAST_S = 5e-5


def clock_of(device: Any) -> Callable[[], float]:
    """Return the clock that says how long work for a device takes, in seconds.

    For a `Device` that is the host's. A device of the user's own may simulate, and the host's time then says nothing:
    its clock is its method `clock` if it has one, and else stands still.
    """
    clock: Callable[[], float] = getattr(device, "clock", lambda: 0.0)
    return time.perf_counter if isinstance(device, Device) else clock


def few_trials(timing: TimingOptions, seconds_left: float, number: int = 0) -> TimingOptions:
    """Return options for the fewest trials of each kernel, none of which may cost more than is left."""
    few = min(timing.min_trials, _FEW)
    limit = min(timing.limit_s, seconds_left / (_FIRST + few * (1 + timing.warmups)))
    # The seed shuffles the order of timings: each batch gets another order.
    return replace(timing, trials=few, min_trials=few, seed=timing.seed + number, limit_s=limit)


def expected_device_time(launch_s: Array, timing: TimingOptions, sample_s: float = 0.0) -> Array:
    """Return the device time of timing kernels in seconds, from that of one launch; shape ``(m,)`` both.

    Each gets its trials unless its own budget ends them; that its time may be known earlier is not relied on. A sample
    takes `sample_s` seconds at least (`perflex.timing.rounds.shortest_sample_s`).
    """
    launch = np.maximum(launch_s, _LEAST_S)
    each = launch * timing.warmups + np.maximum(launch, sample_s)
    trials = np.clip(np.floor(timing.budget_s / each), timing.min_trials, timing.trials)
    expected: Array = _FIRST * launch + trials * each
    return expected


def device_time(outcome: Timing | MeasurementFailure, timing: TimingOptions) -> float:
    """Return the device time that a measurement has taken in seconds, warm-ups and first launches included.

    Only timed launches are known exactly; each warm-up is taken to last as long as the timing that follows it, and
    the launches that start a kernel as long as its time. Of a kernel that was given up as too slow or that did not
    end, the limit counts.
    """
    if isinstance(outcome, MeasurementFailure):
        return timing.limit_s if outcome.kind in {"limit", "hang"} else 0.0
    return math.fsum(outcome.samples) * (outcome.launches + timing.warmups) + _FIRST * outcome.seconds


class KernelPool:
    """Kernels with their counted features, and what has been measured of them."""

    def __init__(
        self, counted: FeatureTable, jobs: Sequence[SizedKernel], measuring: Measuring, recorder: RecordOnly | None
    ) -> None:
        self.counted = counted
        self.jobs = jobs
        self.clock = clock_of(measuring.device)
        self.outcomes: dict[int, Timing | MeasurementFailure] = {}
        self.spent_s = self.waited_s = 0.0
        self.opening_s = self.building_s = self.timing_s = 0.0
        self.built = 0
        self._measuring = measuring
        self._recorder = recorder
        self._affinity = ""

    @property
    def seconds(self) -> dict[int, float]:
        """Time of one launch in seconds of each row that has been timed."""
        return {row: one.seconds for row, one in self.outcomes.items() if isinstance(one, Timing)}

    @property
    def pace(self) -> float:
        """How long timing takes, in terms of its device time."""
        return 1.0 + self.waited_s / self.spent_s if self.spent_s > 0 else 1.0

    @property
    def build_all_s(self) -> float:
        """Seconds that building all kernels takes, by those that were built."""
        return len(self.jobs) * self.building_s / self.built if self.built else 0.0

    def measure(self, rows: Sequence[int], timing: TimingOptions, progress: Progress | None) -> Measured:
        """Time kernels, and note what that takes."""
        building: float | None = None
        started: float | None = None

        def watch(done: int, total: int, what: str) -> None:
            nonlocal building, started
            building = self.clock() if building is None else building
            # The first half of the steps are kernels that are started.
            if started is None and done >= len(rows):
                started = self.clock()
            if progress is not None:
                progress(done, total, what)

        began, jobs = self.clock(), [self.jobs[row] for row in rows]
        device = self._measuring.device
        assert device is not None  # noqa: S101 - times of others have no budget
        found = measure(jobs, device, timing, watch, self._recorder, self._measuring.executor)
        ended = self.clock()
        self._affinity = found.affinity
        self.outcomes |= dict(zip(rows, found, strict=True))
        spent = math.fsum(device_time(outcome, timing) for outcome in found)
        building = began if building is None else building
        started = ended if started is None else started
        self.spent_s += spent
        self.opening_s += building - began
        self.building_s += started - building
        self.built += len(rows)
        self.timing_s += ended - started
        # Starting launches takes time, too, and so does whoever else is at work.
        self.waited_s += max(0.0, ended - started - spent)
        return found

    def table(self, output: str, together: Measured | None = None) -> FeatureTable:
        """Return the timed rows as `gather_feature_values` does; `together` says how it went where all were timed."""
        rows = sorted(self.seconds)
        timings = [outcome for row in rows if isinstance(outcome := self.outcomes[row], Timing)]
        chosen = self.counted.take(rows)
        return replace(
            chosen,
            output=output,
            features=(output, *chosen.features),
            values=np.column_stack([[one.seconds for one in timings], chosen.values]),
            spread=np.array([one.spread for one in timings]),
            repeatability=np.array([one.repeatability for one in timings]),
            info={**chosen.info, output: FeatureInfo("s")},
            device=str(self._measuring.device),
            dropped=(*self.counted.dropped, *self.failures()),
            timing=(together or Measured(timings, affinity=self._affinity)).summary(),
        )

    def failures(self) -> list[tuple[str, str]]:
        """Return the label of each kernel that could not be timed, and the reason."""
        failed = [one for one in self.outcomes.values() if isinstance(one, MeasurementFailure)]
        return [(one.label, one.reason.removeprefix(f"{one.label}: ")) for one in failed]

    def warn_of_failures(self) -> None:
        """Warn of each kernel that could not be timed, at the line of who called `calibrate`."""
        for label, reason in self.failures():
            warn(f"{label} is left out: {reason}")


# Kernels that are timed to tell what all of them take: cheap ones first, then some drawn by chance.
_CHEAP, _DRAWN = 4, 20
# Share of what is left that each of the two may take, and the first batch, whose parameters are no more than guessed.
_FIRST_SHARE = 0.1
# Share of what is left that a further batch takes: the later ones are chosen with what the earlier ones tell.
_SHARE = 0.6
# Standard errors that a mean of the drawn kernels may be too low.
_STANDARD_ERRORS = 2.0
# Predicted times are wrong by some percent; what is then left goes to the next batch, unless it is too little.
_MARGIN = 0.93
_TOO_LITTLE = 0.08
# Guesses are wrong by a factor of ten; rows differ from the model by a tenth.
_GUESSED, _NOISE = math.log(10.0), 0.1


def measure_within_budget(
    model: Model, kernels: Sequence[Any], budget_s: float, measuring: Measuring
) -> tuple[FeatureTable, dict[str, Any]]:
    """Count all kernels; time all of them where that fits into the budget, else those that tell most for their time."""
    if not (np.isfinite(budget_s) and budget_s > 0):
        msg = f"the budget must be a positive number of seconds, not {budget_s}"
        raise CalibrationError(msg)
    clock = clock_of(measuring.device)
    began = clock()
    # Counting takes no device time, so that all kernels can be weighed against one another.
    counted = gather(tuple(model.input_features()), kernels, measuring)
    counting_s = clock() - began
    # Some kernels may have been left out while counting, so labels, not positions, tie rows to kernels.
    rows = {row.label: row for row in sized_kernels(kernels)}
    jobs = [rows[label] for label in counted.kernels]
    with resumable(identity(measuring.device), counted.kernels) as recorder:
        pool = KernelPool(counted, jobs, measuring, None if recorder is None else RecordOnly(recorder))
        batches = _Batches(model, pool, measuring, budget_s)
        everything_s = batches.probe()
        everything = everything_s <= batches.left_s
        if everything:
            ended = "everything fits into the budget"
            pool.outcomes.clear()
            together = pool.measure(range(len(jobs)), measuring.timing, measuring.progress)
        else:
            ended, together = batches.run(), None
        pool.warn_of_failures()
        if not pool.seconds and pool.failures():
            reasons = "; ".join(f"{label}: {reason}" for label, reason in pool.failures()[:3])
            msg = f"none of the kernels could be timed within {budget_s:.3g} s ({reasons}); give a larger budget"
            raise CalibrationError(msg)
        if not everything:
            batches.require_determined()
        table = pool.table(model.output_feature, together)
    return table, {
        "choice": "everything" if everything else "D-optimal on the scaled Jacobian, in batches",
        "device_time_budget_s": budget_s,
        "device_time_spent_s": round(pool.spent_s, 6),
        "everything_estimate_s": round(everything_s, 3) if math.isfinite(everything_s) else None,
        "counting_s": round(counting_s, 3),
        "opening_s": round(pool.opening_s, 3),
        "building_s": round(pool.building_s, 3),
        "timing_s": round(pool.timing_s, 3),
        "choosing_s": round(batches.choosing_s, 3),
        "pool_kernels": len(counted),
        "pool": [f"{generator}: {count}" for generator, count in Counter(counted.groups).items()],
        "chosen_kernels": len(table),
        "batches": batches.number,
        "ended": ended,
    }


class _Batches:
    """Kernels in batches: each is chosen with the parameters that the model has by those before."""

    def __init__(self, model: Model, pool: KernelPool, measuring: Measuring, budget_s: float) -> None:
        self.number = 0
        self.choosing_s = 0.0
        self._model = model
        self._pool = pool
        self._timing = measuring.timing
        self._report = measuring.progress
        self._budget_s = budget_s
        self._sample_s = shortest_sample_s(measuring.device) if measuring.device is not None else 0.0
        self._guess = self._parameters = rough_parameters(model, pool.counted)
        # What determines a linear model does not depend on its parameters: that is known before anything is measured.
        if find_roles(model.tree).linear and not measuring.may_lack:
            open_ = undetermined(elasticities(model, self._parameters, pool.counted)[1])
            if open_:
                names = [model.params()[column] for column in open_]
                msg = f"no choice of kernels determines {', '.join(names)}; add kernels that vary them independently"
                raise CalibrationError(msg, parameters=tuple(names))

    @property
    def left_s(self) -> float:
        """Seconds that may still be spent."""
        return self._budget_s - self._pool.spent_s - self._pool.waited_s - self.choosing_s

    def probe(self) -> float:
        """Time some kernels, and return the seconds that building and timing all of them takes, or infinity.

        The mean of kernels drawn by chance tells that of all, with a standard error, whatever the model is worth.
        Infinity is returned as soon as everything is out of reach.
        """
        pool, timing = self._pool, self._timing
        guessed = elasticities(self._model, self._parameters, pool.counted)[0]
        by_cost = np.argsort(guessed, kind="stable")
        # Cheap ones first, for guesses may be far too low; what they tell of guesses decides on the others.
        cheap = sorted({int(by_cost[len(by_cost) * place // 10]) for place in range(1, 1 + _CHEAP)})
        order = np.random.default_rng(timing.seed).permutation(len(guessed))
        drawn = [int(row) for row in order[: min(_DRAWN, max(2, len(order) // 4))]]
        factor, known = 1.0, np.zeros(1)
        for rows in (cheap, drawn):
            # No kernel may take more than where all are measured; guesses of single kernels are often far too high.
            block = few_trials(timing, min(max(self.left_s, 1e-9), timing.budget_s))
            cost = np.minimum(expected_device_time(factor * guessed[rows], block, self._sample_s), timing.budget_s)
            if float(cost.sum()) > _FIRST_SHARE * self.left_s:
                return math.inf
            outcomes = pool.measure(rows, block, self._report)
            # What failed may be tried again.
            pool.outcomes = {row: one for row, one in pool.outcomes.items() if isinstance(one, Timing)}
            slow = any(isinstance(one, MeasurementFailure) and one.kind in {"limit", "hang"} for one in outcomes)
            done = np.array([row for row in rows if row in pool.outcomes], dtype=np.intp)
            if len(done) < min(2, len(rows)) or slow:
                return math.inf
            seconds = np.array([pool.seconds[row] for row in done])
            factor = float(np.median(seconds / guessed[done]))
            known = expected_device_time(seconds, timing, self._sample_s)
        error = float(np.std(known, ddof=1)) / math.sqrt(len(known)) if len(known) > 1 else float(known[0])
        device = len(pool.jobs) * (float(known.mean()) + _STANDARD_ERRORS * error)
        return device * pool.pace + pool.build_all_s

    def run(self) -> str:
        """Measure batch after batch; return why no more."""
        while self.left_s >= _TOO_LITTLE * self._budget_s:
            began = self._pool.clock()
            self._learn()
            batch, timing, expected_s = self._next()
            self.choosing_s += self._pool.clock() - began
            if not batch:
                return "no further kernel fits into the budget"
            self._pool.measure(batch, timing, self._progress(len(batch), expected_s))
            self.number += 1
        return "the budget is spent"

    def _next(self) -> tuple[list[int], TimingOptions, float]:
        """Return the rows to measure next, how they are timed, and the seconds that this is expected to take."""
        pool = self._pool
        predicted, rows, _ = self._known()
        untimed = [row for row in range(len(rows)) if row not in pool.outcomes]
        left = _MARGIN * self.left_s / pool.pace
        timing = few_trials(self._timing, self.left_s, self.number)
        while 2 * timing.trials <= self._timing.trials:
            more = replace(timing, trials=2 * timing.trials, min_trials=2 * timing.trials)
            if expected_device_time(predicted[untimed], more, self._sample_s).sum() > left:
                break
            timing = more
        cost = expected_device_time(predicted[untimed], timing, self._sample_s)
        chosen = choose(rows[untimed], cost, left, rows[sorted(pool.seconds)])
        share = _FIRST_SHARE if self.number == 0 else _SHARE
        fitting = sum(np.cumsum(cost[chosen]) <= share * left)
        batch = chosen[: max(1, fitting)]
        return [untimed[place] for place in batch], timing, float(cost[batch].sum())

    def _known(self) -> tuple[Array, Array, list[str]]:
        """Return the predicted seconds of all kernels, their rows of the scaled Jacobian, and its columns' names.

        Of columns that no kernel tells apart one is left; an edge on which nothing depends stops nobody.
        """
        predicted, rows = elasticities(self._model, self._parameters, self._pool.counted)
        columns = list(range(rows.shape[1]))
        while open_ := undetermined(rows[:, columns]):
            columns.remove(columns[open_[-1]])
        names = self._model.params()
        return predicted, rows[:, columns], [names[column] for column in columns]

    def require_determined(self) -> None:
        """Make sure that the kernels timed determine every parameter that all of them do."""
        predicted, rows, names = self._known()
        pool, done = self._pool, sorted(self._pool.seconds)
        missing = tuple(names[column] for column in undetermined(rows[done]))
        if not missing:
            return
        untimed = [row for row in range(len(rows)) if row not in pool.outcomes]
        failed = pool.failures()
        also = f" ({len(failed)} kernels could not be timed; the first: {': '.join(failed[0])})" if failed else ""
        hopeless = tuple(names[column] for column in undetermined(rows[[*done, *untimed]]))
        if hopeless:
            cause = f"{', '.join(hopeless)} is determined by no kernel that can be timed{also}"
            msg = f"{cause}; add kernels that contain it, or drop parameters from the model"
            raise CalibrationError(msg, parameters=hopeless)
        cost = expected_device_time(predicted[untimed], few_trials(self._timing, math.inf), self._sample_s)
        lacking = float(cost[cheapest_basis(rows[untimed], cost, rows[done])].sum())
        msg = (
            f"a budget of {self._budget_s:.3g} s of device time is too small to determine {', '.join(missing)}: the "
            f"cheapest kernels that do take about {(pool.spent_s + lacking) / _MARGIN:.2g} s; give a larger budget, "
            f"smaller kernels, or fewer trials{also}"
        )
        raise CalibrationError(msg, parameters=missing)

    def _learn(self) -> None:
        """Fit the model to what was measured; the guess, scaled as the times are, is the prior."""
        if not self._pool.seconds:
            return
        table, output = self._pool.table(self._model.output_feature), self._model.output_feature
        # Guesses are often wrong by one factor for all costs, which a few kernels show already.
        ratio = float(np.median(table.column(output) / elasticities(self._model, self._guess, table)[0]))
        roles = find_roles(self._model.tree)
        guess = {
            # Edges are in 1/[cost], so they scale the other way.
            name: value * ratio if name in roles.costs else value / ratio if roles.of[name].kind == "edge" else value
            for name, value in self._guess.items()
        }
        prior = Prior({name: ParameterPrior(math.log(value), _GUESSED) for name, value in guess.items()}, _NOISE)
        try:
            self._parameters = dict(fit_with_prior(self._model, table, prior, precise=False))
            elasticities(self._model, self._parameters, self._pool.counted)
        except CalibrationError:
            # Few kernels can lead to shapes that make no sense for others.
            self._parameters = guess

    def _progress(self, kernels: int, expected_s: float) -> Progress | None:
        """Return what shows a batch as a share of the budget."""
        report, before, number, steps = self._report, self._pool.spent_s, self.number + 1, 1000
        if report is None:
            return None

        def show(done: int, total: int, what: str) -> None:
            spent = (before + expected_s * done / max(1, total)) / self._budget_s
            report(min(steps, round(steps * spent)), steps, f"batch {number}, {kernels} kernels: {what}")

        return show
