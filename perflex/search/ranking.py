"""Ranking variants by predicted time, choosing those that are worth being compiled and run, and timing them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from perflex.calibration.device_match import timing_device
from perflex.calibration.row_predictions import resting_on
from perflex.errors import CalibrationError, MeasurementError, warn
from perflex.features.sized_kernel import SizedKernel, kernel_of
from perflex.html import shown_by
from perflex.search.accuracy import Accuracy
from perflex.search.costs import KINDS, dominating, variant_costs
from perflex.search.promise import KeepDecision, Promise, check_keep, decide, number_kept
from perflex.search.settings_table import LEAST, corrected
from perflex.search.variant_doubts import doubt_lines, doubts_of, warn_of_variants
from perflex.search.variants import variants_of
from perflex.tables import Table, fixed, percent, seconds, text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from perflex.calibration.built_target import Knowledge
    from perflex.calibration.calibration import Calibration
    from perflex.machines.machine import Machine
    from perflex.progress import Progress, RunOptions
    from perflex.search.promise import Keep
    from perflex.search.variants import Measured, Space, Variants
    from perflex.timing.launch.backend import TimedDevice
    from perflex.timing.options import TimingOptions

    Array = NDArray[np.float64]
    Indices = NDArray[np.intp]

# Kept variants whose kernels are built again to ask for doubts, which takes as long as counting does.
_LOOKED_AT = 20
_CONFIDENCE = 0.95
_SHOWN = 10


@dataclass(frozen=True)
class Ranked:
    """A variant's place among its rivals."""

    # 1 for the fastest: by measured time where all were to be timed, else by predicted time.
    rank: int
    name: str
    # Whether it is worth being compiled and run, and why.
    kept: bool
    reason: str
    # In the output feature's unit, seconds for a wall time; its 95 % interval is nan where there is none.
    predicted: float
    low: float
    high: float
    # The time that decides on the place, as a multiple of the fastest one's.
    ratio: float
    # The kind of cost that dominates (``"memory"``, ``"on-chip"``, ``"overhead"`` or ``"other"``), and its share of the
    # predicted time, a fraction.
    dominating: str
    share: float
    # Seconds of each kind of cost.
    costs: Mapping[str, float] = field(repr=False)
    # What each cost of the model contributes (`Model.terms`), in the same unit; where predictions are corrected by what
    # was learned, is known of other devices, or was measured of variants, multiplied by the same factor.
    terms: Mapping[str, float] = field(repr=False)
    # What the prediction rests on: ``"nothing"`` of the variant but counts, its compiled ``"code"``, or, of a
    # transferred calibration, a ``"timing on other devices"``; where measured variants correct it, a
    # ``"timing of other variants"``.
    knowledge: Knowledge
    # In seconds; nan where it was not timed or could not be.
    measured: float
    # Reasons not to rely on the prediction, as short texts. Those for which kernels are built again, such as conflict
    # misses, are looked for in the first 20 that are kept.
    doubts: tuple[str, ...]
    # Its settings, for variants of a space.
    settings: Mapping[str, Any] = field(repr=False)
    # Among the variants.
    number: int = field(repr=False)

    def __str__(self) -> str:
        """Return one line: place, name, the time that decides, how many times the fastest's it is; the prediction."""
        predicted, mark = f"{self.predicted:.4g}", " (doubtful)" if self.doubts else ""
        timed = not math.isnan(self.measured)
        shown = f"measured {self.measured:.4g}" if timed else "not measured" if math.isnan(self.ratio) else predicted
        ratio = "" if math.isnan(self.ratio) else f" ({self.ratio:.2f} times the fastest)"
        rest = "" if shown == predicted else f", predicted {predicted}"
        return f"{self.rank}. {self.name}: {shown}{ratio}{rest}{mark}"


@dataclass(frozen=True, repr=False, eq=False)
class Ranking(Sequence[Ranked]):
    """Ranked variants, fastest first: a sequence of `Ranked` that notebooks show as a table."""

    variants: Variants
    calibration: Calibration
    # Predicted times in seconds and their 95 % intervals, shape ``(n,)``; intervals are nan where there are none.
    predicted: Array
    low: Array
    high: Array
    # Measured times in seconds, shape ``(n,)``; nan elsewhere.
    measured: Array
    # How many are kept, and what that promises.
    decision: KeepDecision
    # Reasons not to rely on each prediction.
    doubts: Sequence[tuple[str, ...]]
    # Whether the order is that of measured times.
    timed: bool = False
    # Whether measured variants correct the predictions; a measured one's own time is not seen by its prediction.
    corrected: bool = False

    @overload
    def __getitem__(self, place: int) -> Ranked: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Ranked, ...]: ...
    def __getitem__(self, place: int | slice) -> Ranked | tuple[Ranked, ...]:
        """Return a place, or several."""
        return self._places[place]

    def __len__(self) -> int:
        """Return the number of variants."""
        return len(self.predicted)

    @property
    def kept(self) -> tuple[Ranked, ...]:
        """The variants worth being compiled and run, fastest first."""
        return tuple(place for place in self if place.kept)

    @property
    def dropped(self) -> tuple[Ranked, ...]:
        """The others, fastest first."""
        return tuple(place for place in self if not place.kept)

    @property
    def excluded(self) -> Mapping[str, int]:
        """How many variants could not be predicted, by cause; repeated kernels are among them."""
        return self.variants.excluded

    @property
    def doubt_lines(self) -> list[str]:
        """Reasons not to rely on the predictions of kept variants, in a few lines."""
        return doubt_lines([place.name for place in self.kept], [place.doubts for place in self.kept])

    @property
    def correction(self) -> str:
        """That measured variants correct the predictions, in words; empty where they do not."""
        return "predictions are corrected by the times of measured variants" if self.corrected else ""

    def kernel(self, place: Ranked) -> Any:
        """Return a variant's kernel; one of a space is built anew."""
        return self.variants.kernel(place.number)

    def with_times(self, times: Measured) -> Ranking:
        """Return the same with measured times in s by name; what is kept, and the order, stay as they are."""
        index, given = self.variants.measured_rows(times)
        measured = self.measured.copy()
        measured[index] = given
        return replace(self, measured=measured)

    @cached_property
    def _places(self) -> tuple[Ranked, ...]:
        variants, calibration = self.variants, self.calibration
        columns = variants.columns(calibration.model.input_features())
        labels = [label for label, _ in variants.known_as(calibration)] or [""] * len(self)
        with np.errstate(all="ignore"):
            factor = self.predicted / calibration.model.evaluate(calibration.fit, columns)
        terms = {
            name: np.broadcast_to(value * factor, (len(self),)).tolist()
            for name, value in calibration.model.terms(calibration.params, columns).items()
        }
        costs = {kind: factor * cost for kind, cost in variant_costs(variants, calibration).items()}
        (kinds, shares), kept = dominating(costs), set(self.decision.kept.tolist())
        deciding = self.measured if self.timed else self.predicted
        order = _order(self.predicted, deciding)
        knowledge = ["timing of other variants"] * len(self) if self.corrected else resting_on(calibration, labels)
        fastest = deciding[order[0]]
        return tuple(
            Ranked(
                rank=place,
                name=variants.names[number],
                kept=number in kept,
                reason=self._reason(number, kinds[number], shares[number], kept=number in kept),
                predicted=float(self.predicted[number]),
                low=float(self.low[number]),
                high=float(self.high[number]),
                ratio=float(deciding[number] / fastest),
                dominating=kinds[number],
                share=float(shares[number]),
                costs={kind: float(cost[number]) for kind, cost in costs.items()},
                terms={name: value[number] for name, value in terms.items()},
                knowledge=knowledge[number],
                measured=float(self.measured[number]),
                doubts=self.doubts[number],
                settings=variants.settings[number] if variants.settings else {},
                number=number,
            )
            for place, number in enumerate(order.tolist(), start=1)
        )

    def _reason(self, number: int, kind: str, share: float, *, kept: bool) -> str:
        if not math.isnan(self.measured[number]):
            times = self.measured[number] / np.nanmin(self.measured)
            return "the fastest measured" if times == 1 else f"measured {times:.3g} times the fastest"
        if kept:
            return "predicted among the fastest"
        promised = ", beyond what the promise needs" if math.isfinite(self.decision.threshold_ratio) else ""
        ratio = self.predicted[number] / self.predicted.min()
        return f"predicted {ratio:.3g} times the fastest{promised}; {kind} dominates ({100 * share:.0f} %)"

    def table(self, *, kept: bool = False) -> Table:
        """Return a row for each variant, or for those that are kept, fastest first; times in seconds."""
        chosen = "Kept variants" if kept and self.dropped else "Variants"
        unit = "in the output feature's unit: seconds for a wall time"
        return Table(
            f"{chosen} by {'measured' if self.timed else 'predicted'} time",
            [
                text("variant"),
                fixed("rank", meaning="1 for the fastest of all variants"),
                text("kept", place="files"),
                seconds("predicted_s", meaning=unit),
                seconds("low_s", meaning="lower end of the prediction's 95 % interval"),
                seconds("high_s", meaning="upper end of the prediction's 95 % interval"),
                seconds("measured_s"),
                fixed("ratio", digits=2, meaning="as a multiple of the fastest"),
                text("dominating", "dominates", meaning="the kind of cost with the largest share of predicted time"),
                percent("share", digits=0, meaning="share of the dominating cost in the predicted time"),
                text("doubtful"),
                *(seconds(f"{kind}_s", place="files") for kind in KINDS),
                text("knowledge", "rests on", place="files"),
                text("reason", place="pages"),
                text("doubts", place="files"),
            ],
            [
                (
                    *(one.name, one.rank, one.kept, one.predicted, one.low, one.high, one.measured, one.ratio),
                    *(one.dominating, one.share, bool(one.doubts), *one.costs.values()),
                    *(one.knowledge, one.reason, list(one.doubts)),
                )
                for one in (self.kept if kept else self)
            ],
        )

    def to_csv(self, path: Path | str) -> None:
        """Write every variant to a file; a `FileFormatError` where that cannot be written."""
        self.table().to_csv(path)

    def check(self, times: Measured | None = None) -> RankingCheck:
        """Compare with measured times in s by name, by default those that are known here.

        A CalibrationError where there are none, or a name or a time is wrong.
        """
        known = self if times is None else self.with_times(times)
        rows = np.flatnonzero(np.isfinite(known.measured))
        if not rows.size:
            msg = "no variant has a measured time to compare with; time some, or give times by name"
            raise CalibrationError(msg)
        measured, low, high = known.measured[rows], known.low[rows], known.high[rows]
        kept = measured[np.isin(rows, known.decision.kept)]
        inside = (low <= measured) & (measured <= high)
        return RankingCheck(
            Accuracy.of(known.predicted[rows], measured, [0] * rows.size),
            kept.size,
            float(kept.min() / measured.min() - 1) if kept.size else math.nan,
            float(inside[np.isfinite(low)].mean()) if np.isfinite(low).any() else math.nan,
        )

    def __repr__(self) -> str:
        lines = [f"{len(self.kept)} of {len(self)} variants kept ({100 * len(self.kept) / len(self):.3g} %)"]
        lines += [f"  {line}" for line in (self.decision.explanation, self.correction) if line]
        lines += [f"  {place}" for place in self.kept[:_SHOWN]]
        if len(self.kept) > _SHOWN:
            lines.append(f"  and {len(self.kept) - _SHOWN} more")
        lines += [f"  left out: {cause} ({count})" for cause, count in self.excluded.items()]
        lines += [f"  doubtful: {line}" for line in self.doubt_lines]
        return "\n".join(lines)

    _repr_html_ = shown_by("ranking.html")


@dataclass(frozen=True)
class RankingCheck:
    """What measurements say of a ranking."""

    # Of all that were measured, as one group.
    accuracy: Accuracy
    kept_measured: int
    # The fastest kept over the fastest of all measured, less 1; nan where none of the kept was measured.
    loss: float
    # Share of measured times inside the 95 % intervals; nan where there are no intervals.
    coverage: float

    def __str__(self) -> str:
        found = self.accuracy
        parts = {
            "geometric mean error": found.geometric_mean,
            "median": found.median,
            "rms": found.rms,
            "maximum": found.maximum,
            "fastest kept behind the fastest measured by": self.loss,
            "inside the 95 % interval": self.coverage,
        }
        said = [f"{name} {100 * value:.3g} %" for name, value in parts.items() if not math.isnan(value)]
        order = "" if math.isnan(found.spearman) else f"; rank correlation {found.spearman:.3f}"
        return f"{found.cases} variants measured, {self.kept_measured} of the kept; {'; '.join(said)}{order}"


def rank(
    variants: Mapping[str, Any] | Sequence[Any] | Space | Variants,
    calibration: Calibration,
    sizes: Mapping[str, Any] | None = None,
    *,
    keep: Keep = 1.0,
    measured: Measured | None = None,
    time: bool | str | TimedDevice = False,
    machine: str | Path | Machine | None = None,
    run: RunOptions | None = None,
) -> Ranking:
    """Order variants by predicted time, fastest first, and say which are kept; nothing is run but with `time`.

    Parameters
    ----------
    variants
        Loopy kernels or measurement kernels, by name or in a sequence; or a `VariantSpace`, or what its `extract` gave.
    calibration
        From `perflex.calibrate` or `Calibration.load`.
    sizes
        Value of each size parameter; measurement kernels bring their own if none are given.
    keep
        How many are worth being compiled and run: a number, a share such as 0.1, or a `Promise`, which keeps the
        smallest set that holds it.
    measured
        Seconds of variants that were measured, by name, or a tuner's file that knows them by their settings: a first
        batch, chosen by chance. Eight and more correct all predictions and their intervals. A promise rests on how well
        the measured are predicted. The fastest of them is kept, slower ones are dropped.
    time
        Whether to time each variant, too, as `calibrate` times kernels, and where: True on the device that the
        calibration belongs to, or a device, or parts of its name. The order is that of the times then, and variants
        that fail come last.
    machine
        For features that need one: a machine, its name, or its file; by default that of `using_machine`, else the
        calibration's.
    run
        Where variants are built and counted.

    Returns
    -------
    Ranking
        Places with predicted time, interval, dominating cost, and the reason why each is kept or dropped; equal times
        keep the order of `variants`.

    Warns
    -----
    DoubtfulPredictionWarning
        There are reasons not to rely on predictions (`Ranked.doubts`).
    PerflexWarning
        A variant cannot be described or timed.

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
    DeviceError, MeasurementError
        Only with `time`: there is no such device, or no variant can be timed.
    """
    # Before minutes of counting, on which these do not depend.
    check_keep(keep)
    if run is not None:
        run.refuse_measuring("rank and prune count variants, and time them here")
    device, timed = None if isinstance(time, bool) else time, time is not False
    if timed:
        if measured is not None:
            msg = "time= times all variants, so that times of some are not used; leave measured out"
            raise CalibrationError(msg)
        timing_device(calibration, device, machine=machine)
    found = variants_of(variants, calibration, sizes, machine=machine, run=run)
    predicted = found.predicted(calibration)
    _require_positive(predicted, found)
    if timed:
        measured = measure_variants(found, range(len(found)), calibration, device, machine=machine)
    index, given = found.measured_rows({} if measured is None else measured)
    order, least, learned = None, predicted, not timed and index.size >= LEAST
    if learned:
        forecast = corrected(found, predicted, index, given)
        # Fast variants unlike any of the batch are not learned: what either expects to be fast may be the fastest.
        least = np.minimum(np.exp(forecast.logs), predicted * np.median(given / predicted[index]))
        predicted, order, (low, high) = np.exp(forecast.logs), forecast.order, forecast.interval
    else:
        low, high = _intervals(calibration, found, predicted)
    seconds_of = np.full(len(found), np.nan)
    seconds_of[index] = given
    if timed and not isinstance(keep, Promise):
        kept = _order(predicted, seconds_of)[: number_kept(keep, len(found))]
        said = f"{kept.size} of {len(found)}: those measured fastest"
        decision = KeepDecision(kept, math.inf, math.nan, met=True, explanation=said)
    else:
        decision = decide(keep, least, index, given, order)
    doubts = doubts_of(calibration, found, machine, decision.kept[:_LOOKED_AT].tolist())
    warn_of_variants(found.names, doubts)
    return Ranking(found, calibration, predicted, low, high, seconds_of, decision, doubts, timed, learned)


def prune(
    variants: Mapping[str, Any] | Sequence[Any] | Space | Variants,
    calibration: Calibration,
    sizes: Mapping[str, Any] | None = None,
    *,
    keep: Keep = 0.1,
    **options: Any,
) -> Ranking:
    """Choose the few variants that are worth being compiled and run: `rank`, of which a tenth is kept by default."""
    return rank(variants, calibration, sizes, keep=keep, **options)


def _order(predicted: Array, deciding: Array) -> Indices:
    """Return the numbers of variants, the fastest first; not a number is sorted last."""
    return np.lexsort((predicted, deciding))


def random_batch(variants: Variants, count: int, seed: int = 0) -> list[int]:
    """Return the numbers of variants drawn by chance, each as likely as any other."""
    order = np.random.default_rng(seed).permutation(len(variants))
    return [int(number) for number in order[:count]]


def measure_variants(
    variants: Variants,
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
    from perflex.timing.measuring import measure
    from perflex.timing.results import MeasurementFailure

    if not numbers:
        return {}
    names = variants.names
    jobs = [SizedKernel(kernel_of(variants.kernel(n)), variants.sizes[n], names[n]) for n in numbers]
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


def _require_positive(predicted: Array, found: Variants) -> None:
    wrong = np.flatnonzero(~((predicted > 0) & np.isfinite(predicted)))
    if wrong.size:
        msg = (
            f"variant {found.names[wrong[0]]!r} is predicted to take {predicted[wrong[0]]:g} s; calibrate with "
            "nonnegative finite costs, and with measurement kernels that contain what the variants do"
        )
        raise CalibrationError(msg, variant=found.names[wrong[0]])


def _intervals(calibration: Calibration, variants: Variants, predicted: Array) -> tuple[Array, Array]:
    from perflex.calibration.interval import interval_at

    columns = variants.columns(calibration.model.input_features())
    try:
        interval = interval_at(calibration, columns, _CONFIDENCE, variants.known_as(calibration))
    # No kernels to spare, or an undetermined parameter: predictions stand without intervals.
    except CalibrationError as error:
        warn(f"the predictions have no intervals: {error.message}")
        unknown = np.full(predicted.shape, np.nan)
        return unknown, unknown
    return (
        np.broadcast_to(np.asarray(interval.low), predicted.shape),
        np.broadcast_to(np.asarray(interval.high), predicted.shape),
    )
