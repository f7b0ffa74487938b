"""Tuning on a device: what the tuner asks for is built, timed and told.

Variants are timed a few at a time, in one process that stays: starting one takes longer than timing a variant. For
large kernels loopy's code generation takes longer than building and timing what it gives: code is generated side by
side in an executor's workers, if there is one.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from perflex.calibration.device_match import device_of_machine, timing_device
from perflex.calibration.doubts import machine_doubts, value_doubts
from perflex.devices.device import Device
from perflex.errors import CalibrationError, DoubtfulPredictionWarning, MeasurementError, PerflexError, warn
from perflex.features.scop.checks import is_number
from perflex.features.sized_kernel import SizedKernel, kernel_of
from perflex.features.values import target_of
from perflex.file_io import saving
from perflex.isl import ISL_LOCK
from perflex.machines.files import load_machine
from perflex.progress import RunOptions, progress_shown
from perflex.search.compiled_variants import with_code
from perflex.search.counted_variants import Work, extract_space, variants_of
from perflex.search.tuner import Proposal, SearchOptions, Tuner, TunerStep
from perflex.search.variants import NotBuiltError, Space, Variants, built
from perflex.tables import Table, fixed, seconds, text
from perflex.timing.executors.worker_device import WorkerDevice
from perflex.timing.executors.workers import Workers
from perflex.timing.result_check import ResultCheck
from perflex.timing.results import MeasurementFailure
from perflex.timing.variant_timer import VariantTimer
from perflex.workers import made_by

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Executor
    from pathlib import Path

    from perflex.calibration.calibration import Calibration
    from perflex.features.from_triton.launches import TritonLaunch
    from perflex.machines.machine import Machine
    from perflex.progress import Progress
    from perflex.search.promise import KeepDecision
    from perflex.search.variants import Settings
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


@dataclass(frozen=True, repr=False)
class Tuning:
    """What tuning found."""

    # The fastest variant with its time: of those that `tune` timed itself, the few fastest are timed again side by
    # side.
    best: TunerStep
    # All measurements, in order; times as if the device had stayed as fast as it was with the first ones.
    history: tuple[TunerStep, ...]
    # Which variants would still have to be measured to keep the promise.
    promise: KeepDecision | None
    # How many variants failed to build or run, by cause.
    failures: Mapping[str, int]
    # Seconds of building and timing, and of counting all variants of the space before.
    cost_s: float
    extract_s: float
    # The variants with their features.
    space: Variants = field(repr=False)
    # Reasons not to rely on what the calibration says, which the search starts from.
    doubts: tuple[str, ...] = ()
    # Where variants were timed; empty where your own function did that.
    device: str = ""
    # The fastest few, timed again side by side, fastest first; empty where your own function timed them.
    again: tuple[TunerStep, ...] = field(default=(), repr=False)

    @property
    def kept_promise(self) -> bool:
        """Whether the promise is kept: no variant is left that might be better by more than the loss."""
        return self.promise is not None and self.promise.met and len(self.promise.kept) <= 1

    def kernel(self) -> Any:
        """Return the fastest variant's kernel, built anew."""
        return self.space.kernel(self.best.number)

    def table(self) -> Table:
        """Return a row for each measurement, fastest first; what was timed again leads. Times in seconds."""
        # The best may have been known before.
        alone = () if self.again else (self.best,)
        again, first = ({step.number: step.seconds for step in some} for some in (self.again, (*alone, *self.history)))
        place = {step.number: number for number, step in enumerate(self.history, start=1)}
        # Not a number is sorted last.
        rest = sorted(self.history, key=lambda step: (math.isnan(step.seconds), step.seconds))
        leading = {step.number for step in (*self.again, *alone)}
        steps = [*self.again, *alone, *(step for step in rest if step.number not in leading)]
        columns = [
            text("variant"), seconds("measured_s"), seconds("again_s", "timed again"),
            fixed("ratio", digits=2, meaning="as a multiple of the best"),
            fixed("measured_as", place="files", meaning="1 for what was measured first"),
        ]  # fmt: skip
        rows = [
            (
                *(step.name, first.get(step.number, math.nan), again.get(step.number, math.nan)),
                *(step.seconds / self.best.seconds, place.get(step.number)),
            )
            for step in steps
        ]
        return Table("Variants by measured time", columns, rows)

    def save(self, path: Path | str) -> None:
        """Write all measurements as a T4 result file, which `tune`, `rank` and `prune` take as `measured`.

        A `FileFormatError` where it cannot be written.
        """
        again = {step.number: step.seconds for step in self.again}
        results = []
        for step in self.history:
            found = again.get(step.number, step.seconds)
            failed = math.isnan(found)
            measured = {"name": "time", "value": found, "unit": "seconds"}
            results.append(
                {
                    "configuration": dict(step.settings),
                    "invalidity": "runtime" if failed else "correct",
                    "correctness": int(not failed),
                    "measurements": [] if failed else [measured],
                    "objectives": ["time"],
                }
            )
        document = {"schema_version": "1.0.0", "metadata": {"device": self.device}, "results": results}
        with saving(path) as stream:
            json.dump(document, stream, indent=1)

    def __repr__(self) -> str:
        tried, failed = len(self.history), sum(self.failures.values())
        tally = f"  {tried} of {len(self.space)} variants measured ({failed} failed) in {self.cost_s:.3g} s, "
        more = ", timed again beside the next fastest," if self.again else ""
        more += f" on {self.device}" if self.device else ""
        lines = [f"best: {self.best.name}: {1e3 * self.best.seconds:.4g} ms{more}"]
        lines.append(tally + f"after {self.extract_s:.3g} s of describing them")
        if self.promise is not None:
            left = len(self.promise.kept) - 1
            state = "kept" if self.kept_promise else f"not yet kept: {left} more variants might be better"
            lines.append(f"  promise {state}; {self.promise.explanation}")
        lines += [f"  failed: {cause} ({count})" for cause, count in self.failures.items()]
        lines += [f"  left out: {line}" for line in self.space.left_out]
        lines += [f"  doubtful start: {doubt}" for doubt in self.doubts]
        return "\n".join(lines)


def tune(
    variants: Space | TritonLaunch | Variants,
    sizes: Mapping[str, Any] | None = None,
    *,
    calibration: Calibration | None = None,
    device: str | TimedDevice | None = None,
    measure: Callable[[Proposal], float] | None = None,
    machine: str | Path | Machine | None = None,
    options: SearchOptions | None = None,
    run: RunOptions | None = None,
) -> Tuning:
    """Search variants for the fastest: measure some, learn, measure the most promising, and so on.

    Parameters
    ----------
    variants
        A `VariantSpace`, or what its `extract` gave; or a Triton launch (`perflex.triton.capture`), with a calibration
        and a function of yours that times its configurations.
    sizes
        Value of each size parameter.
    calibration
        What is expected of each variant; what is measured corrects it. Without one, a few plain counts and the settings
        alone are learned from.
    device
        Where variants are timed: a device, one of workers too (`DaskExecutor.device`), or parts of its name; by default
        the calibration's device or that of `machine`, else, without both, the preferred one.
    measure
        Your own function that times a variant instead: it is called with a `Proposal` (its ``settings``, ``name`` and
        ``number``) and returns seconds, nan if it failed.
    machine
        For features that need one, as for `rank`.
    options
        Budgets, the promise to keep, the first batch, times that are known before, and how variants are timed.
    run
        Where variants are counted, and the code of those to be timed is generated: a pool of processes uses all cores.

    Returns
    -------
    Tuning
        The fastest variant measured, all measurements, and what became of the promise.

    Warns
    -----
    DoubtfulPredictionWarning
        There are reasons not to rely on what the calibration says (`Tuning.doubts`).

    Raises
    ------
    SpaceError
        No variant is valid.
    MeasurementError
        No variant could be built and timed.
    CalibrationError
        The calibration predicts no positive times, your function returns no time, variants were extracted at other
        sizes or for another target, a device is given beside your own function, or results cannot be compared.
    FileFormatError
        A file of known times has none of the variants.
    DeviceError, MachineError, MissingSizeError, ExecutorError
        As `gather_feature_values`.
    """
    from perflex.timing.options import TimingOptions

    options, run = options or SearchOptions(), run or RunOptions()
    if measure is not None and any(each is not None for each in (device, options.timing, options.answer)):
        msg = "your own function times variants; device=, timing= and answer= say where and how else; leave one out"
        raise CalibrationError(msg)
    if options.compiled and calibration is None:
        msg = "only what a calibration expects to be fast is compiled; give a calibration or a machine, or compile none"
        raise CalibrationError(msg)
    begun = time.perf_counter()
    # Before minutes of counting, on which a device that is not there does not depend.
    chosen = None if measure is not None else _device(device, calibration, machine)
    found = _counted(variants, sizes, calibration or int(getattr(chosen, "sub_group_size", 32)), machine, run)
    if calibration is not None and options.compiled:
        found = with_code(found, calibration, options.compiled, machine=machine, run=run)
    if chosen is not None:
        chosen = _device(device, calibration, machine, [kernel_of(found.kernel(0))])
    spent = time.perf_counter() - begun
    begun = time.perf_counter()
    most = max(30, math.ceil(0.1 * len(found))) if options.measurements is None else options.measurements
    prior, doubts = None, tuple[str, ...]()
    if calibration is not None:
        prior, doubts = found.predicted(calibration), _doubts(calibration, found, machine)
    tuner = Tuner(found, prior=prior, options=replace(options, measurements=most))
    failures: Counter[str] = Counter()
    again: tuple[TunerStep, ...] = ()
    with progress_shown(run.progress, "tune:") as report:
        if measure is not None:
            failures = _drive(tuner, partial(_by_user, measure), report)
        elif chosen is not None:
            how = options.timing or TimingOptions(trials=7, min_trials=3, budget_s=0.1)
            check = None if options.answer is None else ResultCheck(options.answer, options.tolerance)
            with VariantTimer(chosen, how, check) as timer:
                measuring = _MeasuredOnDevice(found, timer, chosen, run.executor)
                failures = _drive(tuner, measuring.timed, report, measuring.together)
                again = _finals(tuner, measuring, timer, how)
    # Where none runs again, the earlier measurement stands.
    best = again[0] if again else tuner.best
    if best is None:
        told = "; ".join(f"{cause} ({count})" for cause, count in failures.most_common(3))
        msg = f"none of the {len(tuner.history)} variants that were tried could be timed: {told}"
        raise MeasurementError(msg, device=str(chosen))
    cost = time.perf_counter() - begun
    causes, place = dict(failures.most_common()), "" if chosen is None else str(chosen)
    return Tuning(best, tuner.history, tuner.promise, causes, cost, spent, found, doubts, place, again)


def _counted(
    variants: Space | TritonLaunch | Variants,
    sizes: Mapping[str, Any] | None,
    by: Calibration | int,
    machine: str | Path | Machine | None,
    run: RunOptions,
) -> Variants:
    """Return variants with a calibration's features, or with plain ones, counted for so large sub-groups."""
    if not isinstance(by, int):
        return variants_of(variants, by, sizes, machine=machine, run=run)
    if isinstance(variants, Variants):
        variants.require_sizes(sizes)
        return variants
    if not isinstance(variants, Space):
        msg = "a Triton launch is predicted before it is tuned; give calibration=Calibration.load('general_tile')"
        raise CalibrationError(msg)
    work = Work(variants.build, PLAIN_FEATURES, target_of(PLAIN_FEATURES, by, machine))
    return extract_space(variants.enumerated(), work, sizes, run)


def _doubts(calibration: Calibration, variants: Variants, machine: str | Path | Machine | None) -> tuple[str, ...]:
    """Return reasons not to rely on what the search starts from, and warn of them."""
    doubts = value_doubts(calibration, variants.columns(calibration.model.input_features()))
    doubts += machine_doubts(calibration, calibration.target(machine).machine)
    if doubts:
        msg = f"the search starts from doubtful predictions: {'; '.join(doubts)}; give it measurements enough"
        warn(msg, DoubtfulPredictionWarning)
    return doubts


def _device(
    device: str | TimedDevice | None,
    calibration: Calibration | None,
    machine: str | Path | Machine | None,
    kernels: Sequence[Any] = (),
) -> TimedDevice:
    """Return where variants are timed: what is named, else of the calibration, else of the machine, else preferred."""
    from perflex.timing.measuring import chosen_device

    if calibration is not None:
        return timing_device(calibration, device, machine=machine, kernels=kernels)
    if device is None and machine is not None:
        return device_of_machine(load_machine(machine))
    return chosen_device(device)


def _by_user(measure: Callable[[Proposal], float], proposals: Sequence[Proposal]) -> dict[int, float | str]:
    """Return times by number, by the user's own function, or why there are none."""
    found: dict[int, float | str] = {}
    for each in proposals:
        seconds: object = measure(each)
        if not is_number(seconds):
            msg = f"measure returned {seconds!r} for {each.name!r}; it must be a number, nan if it failed"
            raise CalibrationError(msg, variant=each.name)
        found[each.number] = float(seconds) if math.isfinite(seconds) else "measure returned no time"
    return found


class _MeasuredOnDevice:
    """Builds and times variants, their code generated in an executor's workers if there are any.

    Workers are idle while something is timed.
    """

    def __init__(self, extracted: Variants, timer: VariantTimer, device: Any, executor: Executor | None) -> None:
        self._extracted = extracted
        self._timer = timer
        self._device = device.device if isinstance(device, WorkerDevice) else device
        # Code is generated for devices alone.
        self._executor = executor if isinstance(self._device, Device) else None
        self.together = None if self._executor is None else _TOGETHER_CODED
        if isinstance(device, WorkerDevice):
            self.together = _TOGETHER_CODED * max(1, Workers(device.executor).slots())

    def timed(self, proposals: Sequence[Proposal]) -> dict[int, float | str]:
        """Return times by number, or why there are none."""
        found: dict[int, float | str] = {}
        ready: dict[int, Any] = {}
        for each, made in zip(proposals, self._made(proposals), strict=True):
            if isinstance(made, NotBuiltError):
                found[each.number] = str(made.cause)
            elif isinstance(made, PerflexError):
                found[each.number] = _cause(each.name, str(made.context.get("kind", "prepare")), made.message)
            else:
                ready[each.number] = made
        for number, outcome in zip(ready, self._timer.timed(list(ready.values())) if ready else (), strict=True):
            if isinstance(outcome, MeasurementFailure):
                found[number] = _cause(outcome.label, outcome.kind, outcome.reason)
            else:
                # What is learned and compared are times as if the device were as fast as at the start.
                found[number] = outcome.seconds / self._timer.slowdown
        return found

    def _made(self, proposals: Sequence[Proposal]) -> Sequence[SizedKernel | LaunchRequest | PerflexError]:
        """Return kernels, or code; or why there is none: what was built when it was counted may fail now."""
        space = self._extracted
        if self._executor is not None and space.build is not None:
            works = ((space.build, each.name, each.settings, space.sizes[0], self._device) for each in proposals)
            return list(made_by(self._executor, _generated, works))
        made: list[SizedKernel | LaunchRequest | PerflexError] = []
        for each in proposals:
            try:
                made.append(SizedKernel(space.kernel(each.number), space.sizes[each.number], each.name))
            except NotBuiltError as error:
                made.append(error)
        return made


def _drive(
    tuner: Tuner,
    timed: Callable[[Sequence[Proposal]], dict[int, float | str]],
    report: Progress | None,
    together: int | None = None,
) -> Counter[str]:
    """Measure what the tuner asks for until it is done; return how many variants failed, by cause."""
    failures: Counter[str] = Counter()
    while proposals := tuner.ask(together):
        if report is not None:
            report(len(tuner.history), tuner.measurements, proposals[0].name)
        start = time.perf_counter()
        found = timed(proposals)
        # Built and timed side by side, none has a cost of its own.
        cost = (time.perf_counter() - start) / len(proposals)
        for each in proposals:
            outcome = found[each.number]
            if isinstance(outcome, str):
                failures[outcome] += 1
            tuner.tell(each, None if isinstance(outcome, str) else outcome, cost)
    return failures


def _cause(label: str, kind: str, reason: str) -> str:
    # Causes are counted: with a variant's name in it each would be a cause of its own.
    lines = reason.removeprefix(f"{label}: ").strip().splitlines()
    return f"{kind}: {lines[0][:_FIRST_LINE] if lines else 'no reason given'}"


def _finals(
    tuner: Tuner, measuring: _MeasuredOnDevice, timer: VariantTimer, options: TimingOptions
) -> tuple[TunerStep, ...]:
    """Time the fastest few again, all in the same rounds, and return them, fastest first; none of fewer than two."""
    few = tuner.fastest(_FINALISTS)
    if new := [Proposal(each.number, each.name, each.settings) for each in few if each.number in tuner.given]:
        # What was known before is not built yet; what fails now is no finalist.
        built_now = measuring.timed(new)
        few = [each for each in few if not isinstance(built_now.get(each.number), str)]
    if len(few) < 2:
        return ()
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
    return tuple(sorted(again, key=lambda each: each.seconds))


def _generated(
    build: Callable[..., Any], name: str, settings: Settings, sizes: Mapping[str, Any], device: Device
) -> LaunchRequest | PerflexError:
    """Work in a worker: another process, or a thread that must not disturb others' use of isl."""
    from perflex.timing.launch.request import launch_request

    try:
        with ISL_LOCK:
            return launch_request(SizedKernel(built(build, settings), dict(sizes), name), device)
    # Returned, not raised: the code of the other variants is wanted all the same.
    except PerflexError as error:
        return error
