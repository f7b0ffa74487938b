"""Pruning variants by predicted time, or measured spaces of described kernels by few times; measuring some of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from perflex.errors import CalibrationError, MeasurementError, warn
from perflex.features.scop.checks import is_number
from perflex.features.sized_kernel import SizedKernel, kernel_of
from perflex.fit.result import geometric_mean_error
from perflex.search.costs import Pruning, feature_kind, model_costs
from perflex.search.described.space import DescribedSpace
from perflex.search.gaussian_process import GaussianProcess
from perflex.search.promise import Promise, check_keep, decide
from perflex.search.variant_doubts import doubts_of, warn_of_variants
from perflex.search.variant_space import candidates_of
from perflex.search.variants import settings_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import ArrayLike, NDArray

    from perflex.calibration.calibration import Calibration
    from perflex.machines.machine import Machine
    from perflex.progress import Progress, RunOptions
    from perflex.search.described.space import ReadingFit
    from perflex.search.promise import Keep
    from perflex.search.variant_space import VariantSpace
    from perflex.search.variants import Candidates
    from perflex.timing.launch.backend import TimedDevice
    from perflex.timing.options import TimingOptions

    Array = NDArray[np.float64]
    Indices = NDArray[np.intp]


@dataclass(frozen=True, repr=False, eq=False)
class DescribedPruning(Pruning):
    """A pruning of a described space: what it is predicted by, and how known times judge it."""

    candidates: DescribedSpace
    # Alone, fitted to the batch.
    analytic: ReadingFit

    @property
    def batch(self) -> NDArray[np.bool_]:
        """Which configurations the prediction was made from, shape ``(n,)``."""
        return np.isfinite(self.measured)

    @property
    def parameters(self) -> dict[str, float]:
        """Parameters of the analytic model, fitted to the batch."""
        return dict(self.analytic.fit.parameters)

    @property
    def _judging(self) -> NDArray[np.bool_]:
        """Which configurations have known times that the prediction did not see."""
        return np.isfinite(self.candidates.known) & ~self.batch

    @property
    def errors(self) -> dict[str, float]:
        """Geometric mean of relative errors outside the batch: of the analytic model, and with the correction."""
        return {name: geometric_mean_error(errors) for name, errors in self.relative_errors.items()}

    @property
    def relative_errors(self) -> dict[str, Array]:
        """Relative errors outside the batch, shape ``(m,)``: of the analytic model, and with the correction."""
        rest, known = self._judging, self.candidates.known
        if not rest.any():
            return {}
        made = {"analytic": self.analytic.predicted, "with the correction": self.predicted}
        return {name: times[rest] / known[rest] - 1 for name, times in made.items()}

    @property
    def allowed_loss(self) -> float:
        """How much slower than the best a kept configuration may be, a fraction: a promise's loss, 0.05 without one."""
        return (self.decision.promise or Promise()).loss

    @property
    def keeps_near_best(self) -> bool | None:
        """Whether a kept configuration is within `allowed_loss` of the best known; None if only the batch is known."""
        if not self._judging.any():
            return None
        kept, best = self.candidates.known[self.decision.kept], np.nanmin(self.candidates.known)
        return bool(np.isfinite(kept).any() and np.nanmin(kept) <= (1 + self.allowed_loss) * best)

    @cached_property
    def _dominating(self) -> tuple[list[str], Array]:
        shares = self.analytic.fit.shares(self.candidates.readings[self.analytic.reading])
        names, parts = list(shares), np.array(list(shares.values()))
        return [names[place] for place in parts.argmax(axis=0)], parts.max(axis=0)

    def table(self) -> list[dict[str, Any]]:
        """Return one dictionary per kept configuration, the most promising first; times in seconds.

        ``dominates`` is the parameter whose cost has the largest ``share`` of the time in the analytic model.
        """
        kinds, shares = self._dominating
        return [
            {**self._row(number), "dominates": kinds[number], "share": float(shares[number])}
            for number in self.decision.kept.tolist()
        ]

    def _row(self, number: int) -> dict[str, float]:
        space = self.candidates
        row = {name: float(space.settings[name][number]) for name in space.told_apart_by}
        times = (self.predicted, self.analytic.predicted, space.known)
        names = ("predicted_s", "analytic_s", "measured_s")
        return row | {name: float(column[number]) for name, column in zip(names, times, strict=True)}

    def _file_rows(self) -> list[dict[str, Any]]:
        kept, batch = set(self.decision.kept.tolist()), self.batch
        rows: list[dict[str, Any]] = []
        for number in range(len(self.predicted)):
            row = {name: "" if np.isnan(value) else f"{value:g}" for name, value in self._row(number).items()}
            rows.append({**row, "batch": int(batch[number]), "kept": int(number in kept)})
        return rows


def prune_described(space: DescribedSpace, keep: Keep, measured: ArrayLike | None) -> DescribedPruning:
    """Do what `prune` says for a described space."""
    index = np.flatnonzero(np.isfinite(space.known)) if measured is None else _numbers(space, measured)
    known = space.known[index]
    if problems := [name for name in space.told_apart_by if name in space.description.constants]:
        names = ", ".join(problems)
        warn(f"configurations of several values of {names} are compared; choose among those of one problem at a time")
    analytic, process = space.fit_analytic(index, known), GaussianProcess()
    found = process.forecast(analytic, index, known)
    predicted = np.exp(found.logs)
    # Five more fits are worth it only for a promise, which rests on predictions of what the fit did not see.
    unseen = np.exp(process.unseen(space.fit_analytic, index, known)) if isinstance(keep, Promise) else None
    decision = decide(keep, predicted, index, known, order=found.order, unseen=unseen)
    times = np.full(len(space), np.nan)
    times[index] = known
    shares = analytic.fit.shares(space.readings[analytic.reading])
    costs = {name: analytic.predicted * share for name, share in shares.items()}
    unknown = np.full(len(space), np.nan)
    return DescribedPruning(space, predicted, unknown, unknown, times, costs, decision, analytic)


def _numbers(space: DescribedSpace, measured: ArrayLike) -> Indices:
    given = np.asarray(measured)
    whole = given.dtype.kind in "iu" or not given.size
    if not whole or not ((given >= 0) & (given < len(space))).all():
        shown = f"{measured!r:.60}{'; np.flatnonzero makes them of a mask' if given.dtype.kind == 'b' else ''}"
        msg = f"measured configurations are given by their numbers, 0 to {len(space) - 1}, not as {shown}"
        raise CalibrationError(msg, description=space.description.name)
    index = np.unique(given.astype(np.intp))
    known = np.isfinite(space.known[index])
    if not known.all():
        msg = f"configuration {index[~known][0]} has no time; give the space times, or leave it out"
        raise CalibrationError(msg, description=space.description.name)
    return index


_CONFIDENCE = 0.95


@overload
def prune(
    variants: Mapping[str, Any] | Sequence[Any] | VariantSpace | Candidates,
    calibration: Calibration,
    sizes: Mapping[str, Any] | None = None,
    *,
    keep: Keep = 0.1,
    machine: str | Path | Machine | None = None,
    measured: Mapping[str, float] | None = None,
    run: RunOptions | None = None,
) -> Pruning: ...


@overload
def prune(variants: DescribedSpace, *, keep: Keep = 0.1, measured: ArrayLike | None = None) -> DescribedPruning: ...


def prune(
    variants: Mapping[str, Any] | Sequence[Any] | VariantSpace | Candidates | DescribedSpace,
    calibration: Calibration | None = None,
    sizes: Mapping[str, Any] | None = None,
    *,
    keep: Keep = 0.1,
    machine: str | Path | Machine | None = None,
    measured: Any = None,
    run: RunOptions | None = None,
) -> Pruning:
    """Choose the few variants that are worth being compiled and run; nothing is run here.

    Parameters
    ----------
    variants
        Loopy kernels or measurement kernels, by name or in a sequence; or a `VariantSpace`, or what its `extract` gave.
        Or a `DescribedSpace`, which is predicted from its own measured configurations.
    calibration
        From `perflex.calibrate` or `Calibration.load`; a described space needs none.
    sizes
        Value of each size parameter; measurement kernels bring their own if none are given.
    keep
        How many: a number, a share such as 0.1, or a `Promise`, which keeps the smallest set that holds it.
    measured
        Seconds of variants that were measured, by name: a first batch, chosen by chance. A promise rests on how well
        these are predicted. The fastest of them is kept, slower ones are dropped.

        Of a described space, the numbers of the configurations whose known times may be used, e.g. of its `sample`;
        all others then judge the result. By default all that are known.
    machine
        For features that need one, as for `rank`.
    run
        Where variants are built and counted.

    Returns
    -------
    Pruning
        Kept and dropped variants with predicted time, interval, dominating cost, and the reason; a `DescribedPruning`
        for a described space.

    Warns
    -----
    DoubtfulPredictionWarning
        There are reasons not to rely on predictions (`PrunedVariant.doubts`).

    Raises
    ------
    CalibrationError
        There are no variants, sizes or times are missing or wrong, a promise has no measured variants to rest on, or
        variants were extracted at other sizes, or for other sub-groups or another machine.
    SpaceError
        The space has no valid variant.
    UnsupportedKernelError
        No variant can be described, or built where the model reads compiled code.
    FeatureError, MachineError, MissingSizeError, ExecutorError
        As for predictions and counting.
    """
    # Before minutes of counting, on which a wrong share does not depend.
    check_keep(keep)
    if run is not None:
        run.refuse_measuring("prune times nothing")
    if isinstance(variants, DescribedSpace):
        if calibration is not None or sizes is not None or machine is not None:
            msg = "a described space states its sizes and device itself and needs no calibration; leave them out"
            raise CalibrationError(msg, description=variants.description.name)
        return prune_described(variants, keep, measured)
    if calibration is None:
        msg = "variants of loopy kernels are predicted by a calibration; give one"
        raise CalibrationError(msg)
    found = candidates_of(variants, calibration, sizes, machine=machine, run=run)
    columns = found.columns(calibration.model.input_features())
    predicted = found.predicted(calibration)
    _require_positive(predicted, found)
    index, seconds = _batch(found, {} if measured is None else measured)
    times = np.full(len(found), np.nan)
    times[index] = seconds
    low, high = _intervals(calibration, columns, predicted, found.known_as(calibration))
    costs = model_costs(calibration.model, calibration.params, columns, lambda name: _kind_of(name, found, columns))
    decision = decide(keep, predicted, index, seconds)
    doubts = doubts_of(calibration, found, machine, decision.kept.tolist())
    warn_of_variants(found.names, doubts)
    return Pruning(found, predicted, low, high, times, costs, decision, doubts=doubts)


def random_batch(candidates: Candidates, count: int, seed: int = 0) -> list[int]:
    """Return the numbers of variants drawn by chance, each as likely as any other."""
    order = np.random.default_rng(seed).permutation(len(candidates))
    return [int(number) for number in order[:count]]


def measure_variants(
    candidates: Candidates,
    numbers: Sequence[int],
    calibration: Calibration,
    device: str | TimedDevice | None = None,
    progress: Progress | None = None,
    timing: TimingOptions | None = None,
    *,
    machine: str | Path | Machine | None = None,
) -> dict[str, float]:
    """Time some of the variants on a device, by default as `timing_device` says; return the seconds of each by name.

    Those that fail are not in it, with a warning; it is a MeasurementError if all do.
    """
    from perflex.calibration.device_match import timing_device
    from perflex.timing.measuring import measure
    from perflex.timing.results import MeasurementFailure

    if not numbers:
        return {}
    names = candidates.names
    jobs = [SizedKernel(kernel_of(candidates.kernel(n)), candidates.sizes[n], names[n]) for n in numbers]
    found = timing_device(calibration, device, machine=machine, kernels=[job.kernel for job in jobs])
    times: dict[str, float] = {}
    reason = ""
    for outcome in measure(jobs, found, timing, progress):
        if isinstance(outcome, MeasurementFailure):
            reason = outcome.reason
            warn(f"{reason}; the variant is not timed")
        else:
            times[outcome.label] = outcome.seconds
    if not times:
        msg = f"none of the {len(numbers)} variants could be timed; the last: {reason}"
        raise MeasurementError(msg, device=str(found))
    return times


def _require_positive(predicted: Array, found: Candidates) -> None:
    wrong = np.flatnonzero(~((predicted > 0) & np.isfinite(predicted)))
    if wrong.size:
        msg = (
            f"variant {found.names[wrong[0]]!r} is predicted to take {predicted[wrong[0]]:g} s; calibrate with "
            "nonnegative finite costs, and with measurement kernels that contain what the variants do"
        )
        raise CalibrationError(msg, variant=found.names[wrong[0]])


def _batch(found: Candidates, measured: object) -> tuple[NDArray[np.intp], Array]:
    names = found.names
    number = {name: place for place, name in enumerate(names)}
    # Settings that give the same kernel are measured under any of their names.
    for place, others in found.same.items():
        number.update(dict.fromkeys(map(settings_text, others), place))
    times: dict[int, list[float]] = {}
    if not isinstance(measured, Mapping):
        msg = f"measured times are given by name, e.g. {{{names[0]!r}: 0.001}}, not as {type(measured).__name__}"
        raise CalibrationError(msg)
    for name, seconds in measured.items():
        if name not in number:
            msg = f"a time is given for {name!r}, which is none of the {len(names)} variants; names must be theirs"
            raise CalibrationError(msg, variant=name)
        if not (is_number(seconds) and 0 < seconds < math.inf):
            msg = f"the time of {name!r} is {seconds!r}; it must be positive, and failed variants be left out"
            raise CalibrationError(msg, variant=name)
        times.setdefault(number[name], []).append(float(seconds))
    index = np.array(list(times), dtype=np.intp)
    # One kernel may have been timed under several of its settings.
    return index, np.array([float(np.median(values)) for values in times.values()])


def _intervals(
    calibration: Calibration, columns: Mapping[str, Array], predicted: Array, known: Sequence[tuple[str, str]]
) -> tuple[Array, Array]:
    from perflex.calibration.interval import interval_at

    try:
        interval = interval_at(calibration, columns, _CONFIDENCE, known)
    # No kernels to spare, or an undetermined parameter: predictions stand without intervals.
    except CalibrationError as error:
        warn(f"the predictions have no intervals: {error.message}")
        unknown = np.full(predicted.shape, np.nan)
        return unknown, unknown
    return (
        np.broadcast_to(np.asarray(interval.low), predicted.shape),
        np.broadcast_to(np.asarray(interval.high), predicted.shape),
    )


def _kind_of(name: str, found: Candidates, columns: Mapping[str, Array]) -> str:
    """Return a feature's kind of cost; what an access tag stands for is looked up in a kernel that has it."""
    from perflex.features import counts_of, extract_scop, parse_feature

    feature, place = parse_feature(name), int(np.argmax(columns[name]))
    if feature.cost or not columns[name][place] > 0:
        return feature_kind(name)
    scop = extract_scop(found.kernel(place), found.sizes[place])
    sizes = scop.checked(found.sizes[place])
    spaces = {item.array.space for item in counts_of(scop).accesses if feature.covers(item, sizes)}
    return "on-chip" if spaces <= {"local", "private"} else "memory"
