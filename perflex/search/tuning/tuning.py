"""Tuning on a device: what the tuner asks for is built, timed and told."""

from __future__ import annotations

import math
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.devices.device import Device
from perflex.errors import CalibrationError, MeasurementError, PerflexError
from perflex.features.sized_kernel import SizedKernel
from perflex.features.values import target_of
from perflex.progress import progress_shown
from perflex.search.described.space import DescribedSpace
from perflex.search.spaces.building import NotBuiltError
from perflex.search.spaces.candidates import columns_of
from perflex.search.spaces.extraction import ExtractedSpace, extract_space
from perflex.search.spaces.predicted import predicted_variants
from perflex.search.spaces.probes import probe_candidates
from perflex.search.tuning.checks import check_budgets
from perflex.search.tuning.code import generate_code
from perflex.search.tuning.timer import VariantTimer
from perflex.search.tuning.tuner import Proposal, Tuner, TunerStep
from perflex.timing.results import MeasurementFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Executor
    from pathlib import Path

    from perflex.calibration.calibration import Calibration
    from perflex.machines.machine import Machine
    from perflex.progress import Progress
    from perflex.search.pruning.promise import KeepDecision, Promise
    from perflex.search.spaces.space import VariantSpace
    from perflex.store.store import StorePlace
    from perflex.timing.launch.backend import TimedDevice
    from perflex.timing.launch.request import LaunchRequest
    from perflex.timing.options import TimingOptions

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
# Variants asked for at a time where their code is generated side by side: more than where it is made one by one.
_TOGETHER_CODED = 4
# The fastest of those measured are timed again, side by side: each was timed at another moment, and what looks fastest
# of many is the luckiest as well.
_FINALISTS = 12
_FINAL_TRIALS = 8
_FINAL_PRECISION = 0.005
_FIRST_LINE = 120
# What is left of a budget that short launches used up, in seconds: a budget is positive.
_LEAST_S = 1e-9


@dataclass(frozen=True, repr=False)
class TuningResult:
    """What tuning found.

    Attributes
    ----------
    best
        The fastest variant with its time: of those that `tune` timed itself, the few fastest are timed again side by
        side.
    history
        All measurements, in order; times as if the device had stayed as fast as it was with the first ones, which a few
        variants tell that are timed again with all others.
    promise
        Which variants would still have to be measured to keep the promise; its ``kept`` holds the best alone when the
        promise is kept.
    failures
        How many variants failed to build or run, by cause.
    cost_s
        Seconds of building and timing, short launches included.
    extract_s
        Seconds of building and counting all variants of the space.
    space
        The variants with their features, or the described space.
    """

    best: TunerStep
    history: tuple[TunerStep, ...]
    promise: KeepDecision | None
    failures: Mapping[str, int]
    cost_s: float
    extract_s: float
    space: ExtractedSpace | DescribedSpace = field(repr=False)

    @property
    def kept_promise(self) -> bool:
        """Whether the promise is kept: no variant is left that might be better by more than the loss."""
        return self.promise is not None and self.promise.met and len(self.promise.kept) <= 1

    def kernel(self) -> Any:
        """Return the fastest variant's kernel, built anew.

        Raises
        ------
        CalibrationError
            The kernel is described by formulas, and was never perflex's to build.
        """
        return self.space.kernel(self.best.number)

    def __repr__(self) -> str:
        tried, failed = len(self.history), sum(self.failures.values())
        tally = f"  {tried} of {len(self.space)} variants measured ({failed} failed) in {self.cost_s:.3g} s, "
        lines = [f"best: {self.best.name}: {1e3 * self.best.seconds:.4g} ms"]
        lines.append(tally + f"after {self.extract_s:.3g} s of describing them")
        if self.promise is not None:
            left = len(self.promise.kept) - 1
            state = "kept" if self.kept_promise else f"not yet kept: {left} more variants might be better"
            lines.append(f"  promise {state}; {self.promise.explanation}")
        lines += [f"  failed: {cause} ({count})" for cause, count in self.failures.items()]
        return "\n".join(lines)


def tune(  # noqa: PLR0913 - one parameter per choice
    space: VariantSpace | ExtractedSpace | DescribedSpace,
    sizes: Mapping[str, Any] | None = None,
    *,
    device: str | TimedDevice | None = None,
    measure: Callable[[Proposal], float] | None = None,
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
    probe: bool = False,
) -> TuningResult:
    """Search a space for its fastest variant: measure some, learn, measure the most promising, and so on.

    Parameters
    ----------
    space
        The variants; or configurations of a described kernel, which need `measure`.
    sizes
        Value of each size parameter.
    device
        Where variants are timed: a device, or parts of its name.
    measure
        Your own function that times a variant, instead of `device`: called with a `Proposal` (its ``settings``,
        ``name`` and ``number``), returns seconds, nan if it failed.
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
        Stop when it is kept; by default within 5 % with 95 % confidence, but a described space is searched until the
        budget is spent.
    timing
        How variants are timed; by default with few trials, for most variants are told apart by more than noise.
    machine, store, progress
        As for `prune`.
    executor
        Where variants are counted, and the code of those to be timed is generated: a pool of processes uses all cores.
    first, seed
        Variants in the first batch, and the seed of what is chosen by chance.
    probe
        Whether small parts of variants are launched on `device` before any is timed whole (`probe_kernel`): of those
        that the calibration predicts to be fastest, as many as the budget has measurements, and for no more than half
        of `budget_s`. What is expected of the variants is then what that shows, and its seconds count as building and
        timing.

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
        A budget is out of range, the calibration predicts no positive times, `measure` returns no time, not one of
        `device` and `measure` is given, or `probe` lacks a calibration or device.
    MissingExtraError
        A described space needs scikit-learn, which is not installed.
    DeviceError, MachineError, MissingSizeError, ExecutorError
        As `gather_feature_values`.
    """
    from perflex.timing.measuring import chosen_device
    from perflex.timing.options import TimingOptions

    check_budgets(budget, budget_s, first)
    _check_who_measures(space, device, measure, calibration)
    if probe and (device is None or calibration is None):
        msg = "short launches run on a device, and a calibration chooses the variants; give both, or leave out probe"
        raise CalibrationError(msg)
    if isinstance(space, DescribedSpace) and (sizes or features or machine is not None or timing is not None):
        msg = (
            "a described space states its sizes and device itself, and your function measures; "
            "leave out sizes, features, machine and timing"
        )
        raise CalibrationError(msg, description=space.description.name)
    begun = time.perf_counter()
    chosen = None if device is None else chosen_device(device)
    variants: ExtractedSpace | DescribedSpace
    if isinstance(space, (ExtractedSpace, DescribedSpace)):
        variants = space
    else:
        names = tuple(features) or (PLAIN_FEATURES if calibration is None else calibration.model.input_features())
        otherwise = "" if calibration is None else calibration.machine
        target = target_of(names, int(getattr(chosen, "sub_group_size", 32)), machine, otherwise=otherwise)
        variants = extract_space(
            space.enumerated(), names, sizes, target, executor=executor, store=store, progress=progress
        )
    described = time.perf_counter() - begun
    most = max(30, math.ceil(0.1 * len(variants))) if budget is None else budget
    begun = time.perf_counter()
    prior = None
    if calibration is not None and isinstance(variants, ExtractedSpace):
        prior = _prior(calibration, variants)
        if probe and chosen is not None:
            prior = _probed_prior(variants, prior, most, chosen, math.inf if budget_s is None else budget_s / 2)
    if budget_s is not None:
        budget_s = max(budget_s - (time.perf_counter() - begun), _LEAST_S)
    tuner = Tuner(variants, prior=prior, promise=promise, budget=most, budget_s=budget_s, first=first, seed=seed)
    failures: Counter[str] = Counter()
    with progress_shown(progress, "tune:") as report:
        if measure is not None:
            _drive(tuner, _MeasuredByUser(measure), failures, report)
            best = tuner.best
        elif chosen is not None and isinstance(variants, ExtractedSpace):
            options = timing or TimingOptions(trials=7, min_trials=3, budget_s=0.1)
            with VariantTimer(chosen, options) as timer:
                coder = executor if isinstance(chosen, Device) else None
                _drive(tuner, _MeasuredOnDevice(variants, timer, chosen, coder), failures, report)
                best = _winner(tuner, timer, options)
    spent = time.perf_counter() - begun
    if best is None:
        causes = "; ".join(f"{cause} ({count})" for cause, count in failures.most_common(3))
        msg = f"none of the {len(tuner.history)} variants that were tried could be timed: {causes}"
        raise MeasurementError(msg, device=str(chosen))
    return TuningResult(best, tuner.history, tuner.promise, dict(failures.most_common()), spent, described, variants)


def _check_who_measures(space: object, device: object, measure: object, calibration: object) -> None:
    """Stop unless there is one who measures, and one who can: perflex cannot build what is only described."""
    if isinstance(space, DescribedSpace) and (measure is None or calibration is not None):
        msg = f"{space.description.name} is a described kernel: give your own function as measure, and no calibration"
        raise CalibrationError(msg, description=space.description.name)
    if (device is None) == (measure is None):
        msg = "give either the device to time variants on, or your own function as measure"
        raise CalibrationError(msg)


def _prior(calibration: Calibration, extracted: ExtractedSpace) -> np.ndarray[Any, np.dtype[np.float64]]:
    columns = columns_of(extracted, calibration.model.input_features())
    return np.array(predicted_variants(calibration, extracted, columns))


def _probed_prior(
    variants: ExtractedSpace,
    prior: np.ndarray[Any, np.dtype[np.float64]],
    count: int,
    device: TimedDevice,
    limit_s: float = math.inf,
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return what is expected of variants after short launches of those predicted fastest."""
    fastest = np.argsort(prior, kind="stable")[:count].tolist()
    found = probe_candidates(variants, fastest, prior, device, limit_s).predicted
    # What fails as a short launch is not worth a measurement, and a prior is finite.
    return np.where(np.isfinite(found), found, found[np.isfinite(found)].max())


class _MeasuredByUser:
    """Calls the user's own function."""

    together: int | None = None

    def __init__(self, measure: Callable[[Proposal], float]) -> None:
        self._measure = measure

    def seconds(self, proposals: Sequence[Proposal], failures: Counter[str]) -> dict[int, float]:
        """Return times by number; those that fail have none."""
        found: dict[int, float] = {}
        for each in proposals:
            seconds: object = self._measure(each)
            if not isinstance(seconds, Real):
                msg = f"measure returned {seconds!r} for {each.name!r}; it must be a number, nan if it failed"
                raise CalibrationError(msg, variant=each.name)
            if math.isfinite(seconds):
                found[each.number] = float(seconds)
            else:
                failures["measure returned no time"] += 1
        return found


class _MeasuredOnDevice:
    """Builds and times variants, their code generated in an executor's workers if there are any.

    Workers are idle while something is timed.
    """

    def __init__(self, extracted: ExtractedSpace, timer: VariantTimer, device: Any, executor: Executor | None) -> None:
        self._extracted = extracted
        self._timer = timer
        self._device = device
        self._executor = executor
        self.together = None if executor is None else _TOGETHER_CODED

    def seconds(self, proposals: Sequence[Proposal], failures: Counter[str]) -> dict[int, float]:
        """Return times by number; those that fail have none, and are counted by cause."""
        ready: dict[int, Any] = {}
        for each, made in zip(proposals, self._made(proposals), strict=True):
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

    def _made(self, proposals: Sequence[Proposal]) -> Sequence[SizedKernel | LaunchRequest | PerflexError]:
        """Return kernels, or code; or why there is none: what was built when it was counted may fail now."""
        space, sizes = self._extracted, self._extracted.sizes
        if self._executor is not None:
            variants = [(each.name, each.settings) for each in proposals]
            return generate_code(space.build, variants, sizes, self._device, self._executor)
        made: list[SizedKernel | LaunchRequest | PerflexError] = []
        for each in proposals:
            try:
                made.append(SizedKernel(space.kernel(each.number), sizes, each.name))
            except NotBuiltError as error:
                made.append(error)
        return made


def _drive(
    tuner: Tuner, measuring: _MeasuredByUser | _MeasuredOnDevice, failures: Counter[str], report: Progress | None
) -> None:
    """Measure what the tuner asks for until it is done."""
    while proposals := tuner.ask(measuring.together or tuner.method.together(len(tuner.history))):
        if report is not None:
            report(len(tuner.history), tuner.budget, proposals[0].name)
        start = time.perf_counter()
        found = measuring.seconds(proposals, failures)
        # Built and timed side by side, none has a cost of its own.
        cost = (time.perf_counter() - start) / len(proposals)
        for each in proposals:
            tuner.tell(each, found.get(each.number), cost)


def _cause(label: str, kind: str, reason: str) -> str:
    # Causes are counted: with a variant's name in it each would be a cause of its own.
    lines = reason.removeprefix(f"{label}: ").strip().splitlines()
    return f"{kind}: {lines[0][:_FIRST_LINE] if lines else 'no reason given'}"


def _winner(tuner: Tuner, timer: VariantTimer, options: TimingOptions) -> TunerStep | None:
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
        replace(each, seconds=found.seconds) for found, each in outcomes if not isinstance(found, MeasurementFailure)
    ]
    # Where none runs again, the earlier measurement stands.
    return min(again, key=lambda each: each.seconds, default=tuner.best)
