"""Tuning on a device: what the tuner asks for is built, timed and told."""

from __future__ import annotations

import math
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.devices.device import Device
from perflex.errors import CalibrationError, MeasurementError, PerflexError
from perflex.features.sized_kernel import SizedKernel
from perflex.machines.choice import else_machine
from perflex.progress import progress_shown
from perflex.search.spaces.building import NotBuiltError
from perflex.search.spaces.extraction import ExtractedSpace
from perflex.search.tuning.checks import check_budgets
from perflex.search.tuning.code import generate_code
from perflex.search.tuning.timer import VariantTimer
from perflex.search.tuning.tuner import Tuner
from perflex.timing.results import MeasurementFailure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Executor
    from pathlib import Path

    from perflex.calibration.calibration import Calibration
    from perflex.machines import Machine
    from perflex.progress import Progress
    from perflex.search.pruning.promise import KeepDecision, Promise
    from perflex.search.spaces.space import VariantSpace
    from perflex.search.tuning.steps import Asked, TunerStep
    from perflex.store.store import StorePlace
    from perflex.timing.launch.backend import TimedDevice
    from perflex.timing.launch.request import LaunchRequest
    from perflex.timing.measuring import TimingOptions

__all__ = ["PLAIN_FEATURES", "TuningResult", "tune"]

# What every kernel has, and what most differ in; a calibration's model says more.
PLAIN_FEATURES = (
    "f_thread_groups",
    "f_sub_groups",
    "f_sync_barrier_local",
    "f_mem_access_global_load",
    "f_mem_access_global_store",
    "f_mem_access_local_load",
    "f_mem_access_local_store",
)
# Variants asked for at a time after the first batch: each is chosen knowing fewer times, and building a few together
# keeps the device warm. Twice as many where their code is generated side by side.
_TOGETHER = 2
_TOGETHER_CODED = 4
# The fastest of those measured are timed again, side by side: each was timed at another moment, and what looks fastest
# of many is the luckiest as well.
_FINALISTS = 12
_FINAL_TRIALS = 8
_FINAL_PRECISION = 0.005
_FIRST_LINE = 120


@dataclass(frozen=True, repr=False)
class TuningResult:
    """What tuning found.

    Attributes
    ----------
    best
        The fastest variant, its time in seconds as ``predicted``: of the few fastest measured, which are timed again
        side by side.
    history
        All measurements, in order; times as if the device had stayed as fast as it was with the first ones, which a few
        variants tell that are timed again with all others.
    promise
        Which variants would still have to be measured to keep the promise; its ``kept`` holds the best alone when the
        promise is kept.
    failures
        How many variants failed to build or run, by cause.
    cost_s
        Seconds of building and timing.
    extract_s
        Seconds of building and counting all variants of the space.
    space
        The variants with their features.
    """

    best: Asked
    history: tuple[TunerStep, ...]
    promise: KeepDecision | None
    failures: Mapping[str, int]
    cost_s: float
    extract_s: float
    space: ExtractedSpace = field(repr=False)

    @property
    def kept_promise(self) -> bool:
        """Whether the promise is kept: no variant is left that might be better by more than the loss."""
        return self.promise is not None and self.promise.met and len(self.promise.kept) <= 1

    def kernel(self) -> Any:
        """Return the fastest variant's kernel, built anew."""
        return self.space.kernel(self.best.number)

    def __repr__(self) -> str:
        tried, failed = len(self.history), sum(self.failures.values())
        tally = f"  {tried} of {len(self.space)} variants measured ({failed} failed) in {self.cost_s:.3g} s, "
        lines = [f"best: {self.best.name}: {1e3 * self.best.predicted:.4g} ms"]
        lines.append(tally + f"after {self.extract_s:.3g} s of describing them")
        if self.promise is not None:
            left = len(self.promise.kept) - 1
            state = "kept" if self.kept_promise else f"not yet kept: {left} more variants might be better"
            lines.append(f"  promise {state}; {self.promise.explanation}")
        lines += [f"  failed: {cause} ({count})" for cause, count in self.failures.items()]
        return "\n".join(lines)


def tune(  # noqa: PLR0913 - one parameter per choice
    space: VariantSpace | ExtractedSpace,
    sizes: Mapping[str, Any] | None = None,
    *,
    device: str | TimedDevice,
    calibration: Calibration | None = None,
    features: Sequence[str] = (),
    budget: int | None = None,
    budget_s: float | None = None,
    promise: Promise | None = None,
    timing: TimingOptions | None = None,
    machine: str | Path | Machine | None = None,
    executor: Executor | None = None,
    store: StorePlace | None = None,
    progress: bool | Progress | None = None,
    first: int | None = None,
    seed: int = 0,
) -> TuningResult:
    """Search a space for its fastest variant: measure some, learn, measure the most promising, and so on.

    Parameters
    ----------
    space
        The variants.
    sizes
        Value of each size parameter.
    device
        Where variants are timed: a device, or parts of its name.
    calibration
        What is expected of each variant; what is measured corrects it. Without one, counts and settings alone are
        learned from.
    features
        Counted features to learn from beside the settings; by default the calibration's, or a few plain ones.
    budget
        Most variants to measure; by default a tenth of the space, and at least 30.
    budget_s
        Most seconds of building and timing.
    promise
        Stop when it is kept; by default within 5 % with 95 % confidence.
    timing
        How variants are timed; by default with few trials, for most variants are told apart by more than noise.
    machine, store, progress
        As for `prune`.
    executor
        Where variants are counted, and the code of those to be timed is generated: a pool of processes uses all cores.
    first, seed
        Variants in the first batch, and the seed of its choice.

    Returns
    -------
    TuningResult
        The fastest variant measured, all measurements, and what became of the promise.

    Raises
    ------
    SpaceError
        No variant is valid.
    MeasurementError
        No variant could be built and timed.
    CalibrationError
        A budget is out of range, or the calibration predicts no positive times.
    DeviceError, MachineError, MissingSizeError, ExecutorError
        As `gather_feature_values`.
    """
    from perflex.devices.listing import find_device
    from perflex.timing.measuring import TimingOptions

    check_budgets(budget, budget_s, first)
    begun = time.perf_counter()
    chosen: Any = find_device(device) if isinstance(device, str) else device
    names = tuple(features) or (PLAIN_FEATURES if calibration is None else tuple(calibration.model.input_features()))
    if isinstance(space, ExtractedSpace):
        extracted = space
    else:
        with else_machine("" if calibration is None else calibration.machine):
            extracted = space.extract(
                names,
                sizes,
                sub_group_size=int(getattr(chosen, "sub_group_size", 32)),
                executor=executor,
                store=store,
                machine=machine,
                progress=progress,
            )
    described = time.perf_counter() - begun
    most = max(30, math.ceil(0.1 * len(extracted))) if budget is None else budget
    prior = None if calibration is None else _prior(calibration, extracted)
    tuner = Tuner(extracted, prior=prior, promise=promise, budget=most, budget_s=budget_s, first=first, seed=seed)
    failures: Counter[str] = Counter()
    options = timing or TimingOptions(trials=7, min_trials=3, budget_s=0.1)
    begun = time.perf_counter()
    with progress_shown(progress, "tune:") as report, VariantTimer(chosen, options) as timer:
        coder = executor if isinstance(chosen, Device) else None
        _drive(tuner, _Measuring(extracted, timer, chosen, coder), failures, report)
        best = _winner(tuner, timer, options)
    spent = time.perf_counter() - begun
    if best is None:
        causes = "; ".join(f"{cause} ({count})" for cause, count in failures.most_common(3))
        msg = f"none of the {len(tuner.history)} variants that were tried could be timed: {causes}"
        raise MeasurementError(msg, device=str(chosen))
    return TuningResult(best, tuner.history, tuner.promise, dict(failures.most_common()), spent, described, extracted)


def _prior(calibration: Calibration, extracted: ExtractedSpace) -> np.ndarray[Any, np.dtype[np.float64]]:
    missing = [name for name in calibration.model.input_features() if name not in extracted.features]
    if missing:
        msg = f"the space was extracted without {', '.join(missing)}; extract it with model.input_features()"
        raise CalibrationError(msg, feature=missing[0])
    predicted = calibration.model.evaluate(calibration.params, extracted.columns)
    return np.array(np.broadcast_to(predicted, (len(extracted),)), dtype=np.float64)


class _Measuring:
    """Builds and times variants, their code generated in an executor's workers if there are any.

    Workers are idle while something is timed.
    """

    def __init__(self, extracted: ExtractedSpace, timer: VariantTimer, device: Any, executor: Executor | None) -> None:
        self._extracted = extracted
        self._timer = timer
        self._device = device
        self._executor = executor

    @property
    def together(self) -> int:
        """How many variants to ask for at a time."""
        return _TOGETHER if self._executor is None else _TOGETHER_CODED

    def seconds(self, asked: Sequence[Asked], failures: Counter[str]) -> dict[int, float]:
        """Return times by number; those that fail have none, and are counted by cause."""
        ready: dict[int, Any] = {}
        for each, made in zip(asked, self._made(asked), strict=True):
            if isinstance(made, NotBuiltError):
                failures[str(made.cause)] += 1
            elif isinstance(made, PerflexError):
                failures[_cause(each.name, str(made.context.get("kind", "prepare")), made.message)] += 1
            else:
                ready[each.number] = made
        found: dict[int, float] = {}
        for number, outcome in zip(ready, self._timer.timed(list(ready.values())) if ready else (), strict=True):
            if isinstance(outcome, MeasurementFailure):
                failures[_cause(outcome.label, outcome.kind, outcome.reason)] += 1
            else:
                found[number] = outcome.seconds
        # What is learned and compared are times as if the device were as fast as at the start.
        return {number: seconds / self._timer.slowdown for number, seconds in found.items()}

    def _made(self, asked: Sequence[Asked]) -> Sequence[SizedKernel | LaunchRequest | PerflexError]:
        """Return kernels, or code; or why there is none: what was built when it was counted may fail now."""
        space, sizes = self._extracted, self._extracted.sizes
        if self._executor is not None:
            variants = [(each.name, each.settings) for each in asked]
            return generate_code(space.space.build, variants, sizes, self._device, self._executor)
        made: list[SizedKernel | LaunchRequest | PerflexError] = []
        for each in asked:
            try:
                made.append(SizedKernel(space.kernel(each.number), sizes, each.name))
            except NotBuiltError as error:
                made.append(error)
        return made


def _drive(tuner: Tuner, measuring: _Measuring, failures: Counter[str], report: Progress | None) -> None:
    """Measure what the tuner asks for until it is done."""
    while asked := tuner.ask(measuring.together):
        if report is not None:
            report(len(tuner.history), tuner.budget, asked[0].name)
        start = time.perf_counter()
        found = measuring.seconds(asked, failures)
        cost = (time.perf_counter() - start) / len(asked)
        for each in asked:
            tuner.tell(each, found.get(each.number), cost)


def _cause(label: str, kind: str, reason: str) -> str:
    lines = reason.removeprefix(f"{label}: ").strip().splitlines()
    return f"{kind}: {lines[0][:_FIRST_LINE] if lines else 'no reason given'}"


def _winner(tuner: Tuner, timer: VariantTimer, options: TimingOptions) -> Asked | None:
    """Time the fastest few again, all in the same rounds, and return the fastest of them; None if nothing was timed."""
    few = tuner.fastest(_FINALISTS)
    if len(few) < 2:
        return tuner.best
    longer = replace(
        options,
        trials=_FINAL_TRIALS * options.trials,
        min_trials=options.trials,
        budget_s=_FINAL_TRIALS * options.budget_s,
        precision=min(options.precision, _FINAL_PRECISION),
    )
    outcomes = zip(timer.again([each.name for each in few], longer), few, strict=True)
    again = [
        replace(each, predicted=found.seconds) for found, each in outcomes if not isinstance(found, MeasurementFailure)
    ]
    return min(again, key=lambda each: each.predicted, default=tuner.best)
