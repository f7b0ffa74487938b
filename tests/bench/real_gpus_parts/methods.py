"""Ways to predict times of a GPU's rows from some of its times and from those of other GPUs.

To judge another one, write a function as those here and add it to `PREDICTORS`.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from msgspec import structs

from perflex import (
    Calibration,
    FeatureTable,
    FitOptions,
    PerflexError,
    PerflexWarning,
    fit_model,
    load_machine,
    transfer,
)
from perflex.calibration.gathering import info_of
from perflex.calibration.usual_prior import fit_about_usual, usual_description

from .counting import peaks_of
from .joint import MODEL, joint_fit, launch_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from perflex import Machine, Model

    from .rows import MeasuredRow

    Array = NDArray[np.float64]

# As f_peak_... features count: a launch takes no less than about this, so that logarithms of zeros stand apart.
_LEAST = 1e-12
_TREES, _SEED = 300, 0


@dataclass(frozen=True, eq=False)
class DataSet:
    """Rows of one data set, or of several, with their features, shape ``(rows, features)``, and seconds at the peaks of
    the machine, shape ``(rows,)``; `references` are the seconds of all rows that were read, short ones too, by GPU and
    label: what the one-factor baseline scales."""

    name: str
    model: Model
    rows: tuple[MeasuredRow, ...]
    values: Array
    roofline: Array
    references: Mapping[str, Mapping[str, float]]

    @property
    def gpus(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(row.gpu for row in self.rows))

    @property
    def seconds(self) -> Array:
        return np.array([row.seconds for row in self.rows])

    def of(self, gpu: str) -> tuple[int, ...]:
        return tuple(i for i, row in enumerate(self.rows) if row.gpu == gpu)

    def machine(self, gpu: str) -> Machine:
        return load_machine(next(row.machine for row in self.rows if row.gpu == gpu))

    def table(self, chosen: Sequence[int], *, output: bool = True) -> FeatureTable:
        """Return rows of one GPU as a feature table, with the measured times or without."""
        rows = [self.rows[i] for i in chosen]
        names, values = tuple(self.model.input_features()), self.values[list(chosen)]
        if output:
            names = (self.model.output_feature, *names)
            values = np.column_stack([self.seconds[list(chosen)], values])
        return FeatureTable(
            self.model.output_feature if output else None,
            names,
            tuple(row.label for row in rows),
            values,
            groups=tuple(row.program for row in rows),
            info=info_of(self.model.input_features()),
            sub_group_size=rows[0].sub_group_size,
            device=rows[0].gpu,
            machine=rows[0].machine,
        )

    def nearest_first(self, gpu: str) -> list[str]:
        """Return the other GPUs, that with the most similar peaks first (`distance`)."""
        own = peaks_of(self.machine(gpu))

        def distance(other: str) -> float:
            """Return the sum of what the logarithms of DRAM bandwidths and of peaks of arithmetic differ by."""
            there = peaks_of(self.machine(other))
            ratios = there.bytes_per_s / own.bytes_per_s, there.operations_per_s / own.operations_per_s
            return sum(abs(math.log(ratio)) for ratio in ratios)

        # By name where two are equally near.
        return sorted((other for other in self.gpus if other != gpu), key=lambda other: (distance(other), other))


@dataclass(frozen=True)
class Question:
    """Numbers of the GPU's rows whose times are given, and of those to predict; and rows of other GPUs whose times are
    given to those that make use of such."""

    gpu: str
    fitted: tuple[int, ...]
    judged: tuple[int, ...]
    elsewhere: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Answer:
    """Predicted times of the judged rows, nan where there is none, and the limits of 95 % intervals, if there are."""

    seconds: Array
    low: Array | None = None
    high: Array | None = None
    reason: str = ""


@dataclass(frozen=True)
class Predictor:
    """A way to predict: whether it is given times of other GPUs, cannot do without times of the GPU itself, and makes
    use of such at all; and the studies that it takes part in."""

    name: str
    answer: Callable[[DataSet, Question], Answer]
    studies: tuple[str, ...]
    elsewhere: bool = False
    needs_samples: bool = False
    uses_samples: bool = True


@lru_cache(maxsize=64)
def calibrated(data: DataSet, rows: tuple[int, ...]) -> Calibration:
    """Return the model, fitted to rows of one GPU as `calibrate` does; one without usual values in logarithms."""
    table, usual = data.table(rows), usual_description(data.model)
    logarithmic = FitOptions(residual="logarithmic", on_undetermined="warn")
    fit = fit_model(data.model, table, logarithmic) if usual is None else fit_about_usual(usual, table)
    return Calibration(data.model, fit, table, device={"name": table.device}, machine=table.machine)


def general_calibration(data: DataSet) -> Calibration:
    """Return what the GPUs' times say of other kernels on other GPUs."""
    return joint_fit(data, tuple(range(len(data.rows)))).calibration()


def _fitted(data: DataSet, question: Question) -> Answer:
    calibration = calibrated(data, question.fitted)
    table = data.table(question.judged, output=False)
    values = {name: table.column(name) for name in data.model.input_features()}
    found = data.model.evaluate(calibration.fit, values)
    return Answer(np.broadcast_to(found, len(table)).astype(np.float64))


def _joint(data: DataSet, question: Question) -> Answer:
    """Predict from one fit to the times of all other GPUs."""
    found = joint_fit(data, question.elsewhere)
    return _answered(found.calibration(), found.launches, data, question)


def _shipped(data: DataSet, question: Question) -> Answer:
    """Predict as the calibration does that comes with perflex."""
    made = Calibration.load(MODEL)
    assert made.transferred is not None
    assert made.transferred.launches is not None
    return _answered(made, structs.asdict(made.transferred.launches), data, question)


def _answered(calibration: Calibration, launches: Mapping[str, float], data: DataSet, question: Question) -> Answer:
    """Predict rows, each with the launch cost of what its time means.

    Where that cost is not known, it is the GPU's own for a graph, and else that of launches that the host waits for.
    """
    launches = {"graph": launches["gpu"], **launches} if "gpu" in launches else launches
    table = data.table(question.judged, output=False)
    names = list(data.model.input_features())
    usual = calibration.params["p_launch"]
    rows = [data.rows[i] for i in question.judged]
    costs = np.array([launches.get(row.timed, launches.get("host", usual)) for row in rows])
    values, launched = table.values.copy(), names.index("f_sync_kernel_launch")
    # In launches of the cost that the calibration states.
    values[:, launched] = launch_seconds(rows, values[:, launched], costs) / usual
    found = calibration.predict_rows(replace(table, values=values), confidence=0.95)
    return Answer(np.asarray(found.predicted), np.asarray(found.low), np.asarray(found.high))


def _transferred(data: DataSet, question: Question) -> Answer:
    by_gpu: dict[str, list[int]] = {}
    for number in question.elsewhere:
        by_gpu.setdefault(data.rows[number].gpu, []).append(number)
    sources = _sources(data, tuple(map(tuple, by_gpu.values())))
    samples = data.table(question.fitted) if question.fitted else None
    made = transfer(sources, samples, machine=data.machine(question.gpu))
    found = made.predict_rows(data.table(question.judged, output=False), confidence=0.95)
    return Answer(np.asarray(found.predicted), np.asarray(found.low), np.asarray(found.high))


@lru_cache(maxsize=32)
def _sources(data: DataSet, rows: tuple[tuple[int, ...], ...]) -> tuple[Calibration, ...]:
    """Return a calibration of each GPU; the same for any number of samples of another GPU, which `transfer` keeps."""
    return tuple(calibrated(data, own) for own in rows)


def _one_factor(data: DataSet, question: Question) -> Answer:
    """Scale the times of the nearest GPU; rows that it lacks come from the next one that has them, with its factor.

    The factor is the median of measured over borrowed times of the rows that are given; without any, the geometric mean
    of the ratios of both peaks.
    """
    seconds = np.full(len(question.judged), math.nan)
    here = peaks_of(data.machine(question.gpu))
    for source in data.nearest_first(question.gpu):
        known, given = data.references.get(source, {}), [data.rows[i] for i in question.fitted]
        ratios = [row.seconds / known[row.label] for row in given if row.label in known]
        there = peaks_of(data.machine(source))
        faster = (here.bytes_per_s / there.bytes_per_s) * (here.operations_per_s / there.operations_per_s)
        factor = float(np.median(ratios)) if ratios else 1.0 / math.sqrt(faster)
        for place, number in enumerate(question.judged):
            timed = known.get(data.rows[number].label)
            if timed is not None and math.isnan(seconds[place]):
                seconds[place] = factor * timed
    return Answer(seconds, reason="no other GPU of the data has this configuration")


def _roofline(data: DataSet, question: Question) -> Answer:
    return Answer(data.roofline[list(question.judged)], reason="its bytes or operations cannot be counted")


def _median(data: DataSet, question: Question) -> Answer:
    """Say of each kernel that it takes as long as the middle one of those that are known."""
    return Answer(np.full(len(question.judged), np.median(data.seconds[list(question.elsewhere)])))


def _trees(data: DataSet, question: Question) -> Answer:
    """Train extremely randomised trees on logarithms of features, with rows of other GPUs if there are any."""
    from sklearn.ensemble import ExtraTreesRegressor

    rows = [*question.fitted, *question.elsewhere]
    if not rows:
        return Answer(np.full(len(question.judged), math.nan), reason="nothing to learn from")
    logs = np.log(np.maximum(data.values, _LEAST))
    trees = ExtraTreesRegressor(n_estimators=_TREES, random_state=_SEED, n_jobs=1)
    trees.fit(logs[rows], np.log(data.seconds[rows]))
    return Answer(np.exp(trees.predict(logs[list(question.judged)])))


# Studies: one program left out, few samples, other programs, program and GPU left out, the calibration as it comes.
_ALL = ("program", "samples", "others", "both", "comes")
PREDICTORS: Mapping[str, Predictor] = {
    "perflex": Predictor("perflex", _fitted, ("program", "samples", "others"), needs_samples=True),
    "joint": Predictor("perflex", _joint, ("both",), elsewhere=True, uses_samples=False),
    "shipped": Predictor("perflex", _shipped, ("comes",), uses_samples=False),
    "transfer": Predictor("perflex, transfer", _transferred, ("samples", "others"), elsewhere=True),
    "factor": Predictor("one factor", _one_factor, _ALL, elsewhere=True),
    "roofline": Predictor("roofline", _roofline, _ALL, uses_samples=False),
    "median": Predictor("median of all", _median, ("both",), elsewhere=True, uses_samples=False),
    "trees": Predictor("ExtraTrees", _trees, ("program", "samples", "others"), needs_samples=True),
    "trees_elsewhere": Predictor("ExtraTrees, other GPUs too", _trees, ("samples", "others", "both"), elsewhere=True),
}


def answer(predictor: Predictor, data: DataSet, question: Question) -> Answer:
    """Return what a predictor says; no predictions, and the reason, where perflex refuses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PerflexWarning)
        try:
            return predictor.answer(data, question)
        except PerflexError as error:
            return Answer(np.full(len(question.judged), math.nan), reason=str(error).splitlines()[0])
