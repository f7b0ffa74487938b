"""A calibration judged by times that it has not seen, beside trivial predictions: see docs/explanation/judging.md."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.calibration.times.named_kernels import label_key
from perflex.calibration.times.target import machine_for_times
from perflex.calibration.transfer_prior import USUAL
from perflex.devices.listing import is_wall_time
from perflex.errors import CalibrationError, MachineError, UnsupportedKernelError
from perflex.features.sized_kernel import sized_kernels
from perflex.features.target import using_machine
from perflex.features.tiles.tile_kernel import TileKernel
from perflex.html import shown_by
from perflex.machines.files import load_machine, machine_of_device
from perflex.search.accuracy import Accuracy
from perflex.studies.evaluation.baselines import Peaks, distinct_bytes_of, work_of
from perflex.tables import Table, fixed, percent, seconds, text
from perflex.timing.results import Timing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from perflex.calibration.calibration import Calibration
    from perflex.calibration.prediction import Prediction
    from perflex.calibration.times.table import TimedKernel, TimesTable
    from perflex.machines.machine import Machine
    from perflex.progress import Progress

    Array = NDArray[np.float64]

MODEL = "the model"
_OWN, _PEAKS, _THESE = "the calibration's times", "the machine's peaks", "these times"
_ONE, _ROOFLINE, _FITTED = "one cost", "roofline", "one cost, fitted to these times"


@dataclass(frozen=True, eq=False)
class Judgement:
    """Predictions of kernels that a calibration has not seen, with what was measured of them.

    Attributes
    ----------
    predictions
        With intervals, where there is one, and with the times that were measured.
    programs
        What each kernel is a variant of. Variants at equal sizes are what somebody chooses among.
    baselines
        What trivial methods predict, in seconds, shape ``(m,)``.
    knows
        What each method has seen beside the kernels' counts, by its name.
    left_out
        Label and reason of rows that are not judged.
    missing
        Name and reason of baselines that are missing.
    noise_floor
        Losses up to this fraction count as none.
    """

    predictions: tuple[Prediction, ...]
    programs: tuple[str, ...]
    baselines: Mapping[str, Array]
    knows: Mapping[str, str]
    left_out: tuple[tuple[str, str], ...] = ()
    missing: tuple[tuple[str, str], ...] = ()
    noise_floor: float = 0.0

    @property
    def predicted(self) -> Array:
        """Predicted times in seconds, shape ``(m,)``."""
        return np.array([float(one.seconds) for one in self.predictions])

    @property
    def measured(self) -> Array:
        """Measured times in seconds, shape ``(m,)``."""
        return np.array([one.measured for one in self.predictions], dtype=np.float64)

    @cached_property
    def accuracies(self) -> dict[str, Accuracy]:
        """How accurate the model and each baseline are, by name."""
        groups = [(name, one.at) for name, one in zip(self.programs, self.predictions, strict=True)]
        made = {MODEL: self.predicted, **self.baselines}
        return {name: Accuracy.of(predicted, self.measured, groups) for name, predicted in made.items()}

    @property
    def inside(self) -> float:
        """Share of the rows with an interval whose measured time lies in it; nan without any."""
        return _share(one.inside for one in self.predictions)

    @property
    def confidence(self) -> float | None:
        """Share of the times that should lie in the intervals; None without any."""
        return next((one.confidence for one in self.predictions if one.confidence), None)

    @property
    def better(self) -> bool | None:
        """Whether the model beats each baseline that has seen none of these times; None where there is none."""
        fair = [self._key(name) for name in self.baselines if self.knows[name] != _THESE]
        return self._key(MODEL) < min(fair) if fair else None

    def _key(self, name: str) -> tuple[float, float]:
        return self.accuracies[name].key(self.noise_floor)

    @property
    def heading(self) -> str:
        """What to conclude, in a sentence or two."""
        said = {
            True: "The model is better than the trivial predictions that have not seen these times",
            False: "Not recommended: a trivial prediction that has not seen these times is better",
            None: "There is no trivial prediction to compare with that has not seen these times",
        }[self.better]
        if self.confidence:
            said += f"; {100 * self.inside:.0f} % of the times lie in their {100 * self.confidence:g} % intervals"
        return f"{said}."

    @property
    def doubts(self) -> list[str]:
        """What is not judged, and why, as short texts."""
        reasons: dict[str, list[str]] = {}
        for label, reason in self.left_out:
            reasons.setdefault(reason, []).append(label)
        rows = [f"{len(names)} left out, for {reason}: {', '.join(names)}" for reason, names in reasons.items()]
        return rows + [f"no {name}: {reason}" for name, reason in self.missing]

    def method_table(self) -> Table:
        """Return how accurate the model is, and the baselines, with what each has seen beside the kernels' counts."""
        columns = [
            text("method"), text("knows", meaning="what was seen beside the kernels' counts"), fixed("rows"),
            percent("median"), percent("rms"), percent("maximum"),
            fixed("factor", "typical factor", 2, meaning="between predicted and measured time"),
            percent("loss_mean", "mean loss", meaning="by which the predicted best of a program's variants is slower"),
            percent("loss_worst", "worst loss"), percent("pairs_right"),
        ]  # fmt: skip
        rows = [
            (name, self.knows[name], one.cases, *(getattr(one, column.name) for column in columns[3:]))
            for name, one in self.accuracies.items()
        ]
        return Table("Accuracy for times that the calibration has not seen", columns, rows)

    def program_table(self) -> Table:
        """Return errors of each program's rows."""
        columns = [
            text("program"), fixed("rows"), percent("median"), percent("rms"), percent("maximum"),
            fixed("factor", "mean factor", 2, meaning="predicted over measured, geometric mean"),
            percent("inside", "in interval", 0), percent("doubtful", digits=0),
        ]  # fmt: skip
        rows = [self._program_row(name) for name in dict.fromkeys(self.programs)]
        return Table("Errors by program", columns, rows)

    def _program_row(self, name: str) -> tuple[Any, ...]:
        own = [place for place, program in enumerate(self.programs) if program == name]
        ratios, some = (self.predicted / self.measured)[own], [self.predictions[place] for place in own]
        errors = np.abs(ratios - 1)
        return (
            name, len(own), np.median(errors), np.sqrt(np.mean(errors**2)), errors.max(),
            np.exp(np.mean(np.log(ratios))), _share(one.inside for one in some),
            _share(bool(one.doubts) for one in some),
        )  # fmt: skip

    def row_table(self) -> Table:
        """Return the rows, the worst first."""
        columns = [
            text("kernel"), seconds("predicted_s"), seconds("low_s", "from"), seconds("high_s", "to"),
            seconds("measured_s"), percent("error", sign=True), text("outside", "outside of the interval"),
            text("doubts", place="files"),
        ]  # fmt: skip
        order = np.argsort(-np.abs(np.log(self.predicted / self.measured)), kind="stable")
        rows = [
            (one.timing and one.timing.label, float(one.seconds), one.low, one.high, one.measured, one.error,
             one.inside is False, one.doubts)
            for one in (self.predictions[place] for place in order)
        ]  # fmt: skip
        return Table("Rows, the worst first", columns, rows)

    def tables(self) -> list[Table]:
        """Return what notebooks show."""
        return [self.method_table(), self.program_table(), self.row_table()]

    def as_dict(self) -> dict[str, Any]:
        """Return it as dictionaries, lists, texts and numbers."""
        return {
            "better": self.better,
            "inside": self.inside,
            "confidence": self.confidence,
            "methods": self.method_table().records(),
            "programs": self.program_table().records(),
            "rows": self.row_table().records(),
            "left_out": [{"kernel": label, "reason": reason} for label, reason in self.left_out],
            "missing": [{"method": name, "reason": reason} for name, reason in self.missing],
        }

    def __repr__(self) -> str:
        return f"{self.heading}\n{self.method_table()}"

    _repr_html_ = shown_by("result.html")


def judge(
    calibration: Calibration,
    times: TimesTable,
    *,
    machine: str | Path | Machine | None = None,
    confidence: float = 0.95,
    progress: Progress | None = None,
) -> Judgement:
    """Compare what a calibration predicts with times that it has not seen.

    Rows that the calibration was fitted to are left out, and named. Trivial predictions stand beside: one cost, which
    is the feature of the model that explains the calibration's own times best with one factor (or one time for all,
    where none does better); the longer of operations and bytes at a machine's peaks; and, knowing more, one cost with a
    factor fitted to the very times that are to be predicted.

    Parameters
    ----------
    calibration
        The calibration.
    times
        Kernels with their measured times (`load_times`).
    machine
        For features that need one, as for `Calibration.predict`; for a calibration without a time of a device by
        default the one that the table's device is called.
    confidence
        Share of measurements that shall lie in the intervals.
    progress
        Called with (done, total, what).

    Raises
    ------
    CalibrationError
        The model's output is no time, or no row is left: of each the reason is named.
    MissingSizeError, MachineError
        As `Calibration.predict`.
    """
    output = calibration.model.output_feature
    if not is_wall_time(output):
        msg = f"the model's output {output} is no time, which times could be compared with"
        raise CalibrationError(msg, feature=output)
    if machine is None and not calibration.has_samples:
        machine = machine_for_times(times)
    target = calibration.target(machine)
    fitted = {label_key(label) for label in calibration.table.kernels} if len(calibration.table) else set()
    labels = [one.label for one in sized_kernels(times.rows)]
    found: list[tuple[TimedKernel, Prediction]] = []
    left_out: list[tuple[str, str]] = []
    for place, (label, row) in enumerate(zip(labels, times.rows, strict=True)):
        if progress is not None:
            progress(place, len(labels), label)
        if label_key(row.name) in fitted:
            left_out.append((label, "the calibration was fitted to it"))
            continue
        try:
            with using_machine(target.machine, registers=row.registers):
                made = _explained(calibration, row, confidence)
        except UnsupportedKernelError as error:
            left_out.append((label, error.message))
            continue
        timing = Timing(label, row.seconds, row.spread, ())
        found.append((row, replace(made, timing=timing, measured_on=str(times))))
    if not found:
        label, reason = left_out[0]
        msg = (
            f"no row of {times} is left to judge by; the first, {label}: {reason}; give times of other kernels or sizes"
        )
        raise CalibrationError(msg)
    where = load_machine(machine) if machine is not None else target.machine
    where = where or machine_of_device(str(calibration.device.get("name", "")))
    rows, predictions = zip(*found, strict=True)
    baselines, missing = _baselines(calibration, rows, predictions, where)
    return Judgement(
        predictions=predictions,
        programs=tuple(row.generator for row in rows),
        baselines={name: made for name, (_, made) in baselines.items()},
        knows={MODEL: _seen_by(calibration), **{name: seen for name, (seen, _) in baselines.items()}},
        left_out=tuple(left_out),
        missing=tuple(missing),
        noise_floor=calibration.noise_floor or 0.0,
    )


def _seen_by(calibration: Calibration) -> str:
    """Return what a calibration has seen beside the counts of what it predicts."""
    if calibration.has_samples or calibration.transferred is None:
        return _OWN
    return "usual values" if calibration.transferred.sources == (USUAL,) else "other devices' times"


def _explained(calibration: Calibration, row: TimedKernel, confidence: float) -> Prediction:
    """Return what is predicted of a row, without an interval where there is none."""
    try:
        return calibration.explain(row.kernel, row.sizes, confidence, name=row.generator)
    except CalibrationError:
        return calibration.explain(row.kernel, row.sizes, None, name=row.generator)


def _baselines(
    calibration: Calibration, rows: Sequence[TimedKernel], predictions: Sequence[Prediction], machine: Machine | None
) -> tuple[dict[str, tuple[str, Array]], list[tuple[str, str]]]:
    """Return by name what trivial methods know and predict, and why others are missing."""
    names = calibration.model.input_features()
    now = {name: np.array([float(one.values[name]) for one in predictions]) for name in names}
    found: dict[str, tuple[str, Array]] = {}
    missing = []
    if calibration.has_samples and len(calibration.table):
        before, known = calibration.table.columns(names), calibration.table.column(calibration.model.output_feature)
        found[_ONE] = _OWN, _one_cost(before, known, now)
    else:
        missing.append((_ONE, "the calibration has no time of its device"))
    try:
        found[_ROOFLINE] = _PEAKS, _roofline(rows, machine)
    except (CalibrationError, MachineError, UnsupportedKernelError) as error:
        missing.append((_ROOFLINE, error.message))
    more = {_ROOFLINE: found[_ROOFLINE][1]} if _ROOFLINE in found else {}
    measured = np.array([row.seconds for row in rows])
    found[_FITTED] = _THESE, _one_cost(now | more, measured, now | more)
    return found, missing


def _one_cost(before: Mapping[str, Array], known: Array, now: Mapping[str, Array]) -> Array:
    """Return times by the one amount that, with a factor, is nearest to known times; or by none, one time for all."""
    best, found = np.std(np.log(known)), np.full(len(next(iter(now.values()))), np.exp(np.mean(np.log(known))))
    for name in before:
        if (before[name] > 0).all() and (now[name] > 0).all():
            ratios = np.log(known / before[name])
            if (scatter := np.std(ratios)) < best:
                best, found = scatter, np.exp(np.mean(ratios)) * now[name]
    return found


def _roofline(rows: Sequence[TimedKernel], machine: Machine | None) -> Array:
    """Return the longer of operations and distinct bytes at the peaks of a machine."""
    if machine is None:
        msg = "no machine is known; name one"
        raise MachineError(msg)
    if any(isinstance(row.kernel, TileKernel) for row in rows):
        msg = "programs of tiles have no work-items, whose operations a roofline is of"
        raise UnsupportedKernelError(msg)
    # A multiply-add, which peaks count as two operations, is counted as one.
    operations = machine.need("fp32_per_cycle") / 2 * machine.need("compute_units") * machine.need("clock_hz")
    peaks = Peaks(operations, machine.need("dram_bandwidth"))
    return np.array([
        peaks.roofline(work_of(row.kernel, row.sizes), distinct_bytes_of(row.kernel, row.sizes)) for row in rows
    ])  # fmt: skip


def _share(held: Iterable[bool | None]) -> float:
    """Return the share of what is true, of what is known; nan where nothing is."""
    known = [one for one in held if one is not None]
    return float(np.mean(known)) if known else float("nan")
