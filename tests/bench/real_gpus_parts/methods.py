"""Methods that predict times of a GPU's rows from some of its times and from those of other GPUs.

To judge another one, write a class with the members of `Method` and add it to `METHODS`.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

import numpy as np

from perflex import (
    Calibration,
    PerflexError,
    PerflexWarning,
    fit_model,
    scale_features_by_output,
    weigh_generators_alike,
)

from .table import peaks_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from perflex import FeatureTable

    from .table import DataSet

    Array = NDArray[np.float64]

# As f_peak_... features count: a launch takes no less than about this, so that logarithms of zeros stand apart.
_LEAST = 1e-12
_TREES, _SEED = 300, 0


@dataclass(frozen=True)
class Question:
    """What a method is asked.

    Attributes
    ----------
    gpu
        Whose rows are predicted.
    fitted
        Numbers of its rows whose times the method is given.
    judged
        Numbers of its rows to predict.
    elsewhere
        Numbers of rows of other GPUs whose times the method is given, if it makes use of such.
    """

    gpu: str
    fitted: tuple[int, ...]
    judged: tuple[int, ...]
    elsewhere: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Answer:
    """What a method says, shape ``(judged,)`` each.

    Attributes
    ----------
    seconds
        Predicted times; nan where there is none.
    low, high
        Limits of intervals that are to hold 95 % of measurements; None from methods that give none.
    reason
        Why there are no predictions, or no intervals.
    """

    seconds: Array
    low: Array | None = None
    high: Array | None = None
    reason: str = ""


class Method(Protocol):
    """A way to predict times.

    Attributes
    ----------
    name
        Stands in tables.
    elsewhere
        Whether it is given times of other GPUs.
    needs_samples
        Whether it cannot do without times of the GPU itself.
    uses_samples
        Whether it makes use of such times at all.
    """

    @property
    def name(self) -> str: ...
    @property
    def elsewhere(self) -> bool: ...
    @property
    def needs_samples(self) -> bool: ...
    @property
    def uses_samples(self) -> bool: ...

    def answer(self, data: DataSet, question: Question) -> Answer:
        """Predict."""
        ...


def none_of(question: Question, reason: str) -> Answer:
    """Return an answer without predictions."""
    return Answer(np.full(len(question.judged), math.nan), reason=reason)


@dataclass(frozen=True)
class Calibrated:
    """The model, fitted to the GPU's own times alone.

    Intervals take a further fit for each program that is fitted, so that they are only computed where asked for.
    """

    intervals: bool = False
    name: str = "perflex"
    elsewhere: bool = False
    needs_samples: bool = True
    uses_samples: bool = True

    def answer(self, data: DataSet, question: Question) -> Answer:
        """Fit relative residuals with a loss that few wrong rows do not move, and costs not below zero."""
        try:
            calibration = calibrated(data, data.table(question.fitted))
        except PerflexError as error:
            return none_of(question, f"no fit: {error}")
        return _predicted(data, calibration, question, intervals=self.intervals)


def calibrated(data: DataSet, table: FeatureTable) -> Calibration:
    """Return the model of a data set, calibrated with a table of one GPU.

    Raises
    ------
    CalibrationError
        The table does not determine it.
    """
    table = scale_features_by_output(table)
    table = weigh_generators_alike(table) if data.programs_alike else table
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PerflexWarning)
        fit = fit_model(data.model, table, nonnegative=True, loss="soft_l1", on_undetermined="warn")
    return Calibration(data.model, fit, device={"name": table.device}, machine=table.machine, table=table)


def _predicted(data: DataSet, calibration: Calibration, question: Question, *, intervals: bool) -> Answer:
    """Evaluate the model with the calibration's parameters, and its intervals where they are wanted and exist."""
    # Imported here: no name for users, who ask `Calibration.predict_interval` kernel by kernel.
    from perflex.calibration.interval import interval_at

    table = data.table(question.judged, output=False)
    values = {name: table.column(name) for name in data.model.input_features()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PerflexWarning)
        seconds = np.broadcast_to(data.model.evaluate(calibration.fit, values), (len(table),)).astype(np.float64)
        if not intervals:
            return Answer(seconds)
        try:
            found = interval_at(calibration, values)
        except PerflexError as error:
            return Answer(seconds, reason=f"no interval: {error}")
    return Answer(seconds, np.asarray(found.low), np.asarray(found.high))


@dataclass(frozen=True)
class OneFactor:
    """The same configuration's time on the nearest other GPU, times one factor.

    The factor is the median of measured over borrowed times of the rows that the method is given; without any, the
    geometric mean of the ratios of both peaks (DRAM bandwidth and single precision).
    """

    name: str = "one factor"
    elsewhere: bool = True
    needs_samples: bool = False
    uses_samples: bool = True

    def answer(self, data: DataSet, question: Question) -> Answer:
        """Scale; rows that the nearest GPU lacks are taken from the next one that has them, with its own factor."""
        seconds = np.full(len(question.judged), math.nan)
        for source in data.nearest_first(question.gpu):
            known = data.references.get(source, {})
            factor = self._factor(data, question, source, known)
            for place, number in enumerate(question.judged):
                there = known.get(data.rows[number].label)
                if there is not None and math.isnan(seconds[place]):
                    seconds[place] = factor * there
        if np.isnan(seconds).all():
            return none_of(question, "no other GPU of the data has these configurations")
        return Answer(seconds)

    def _factor(self, data: DataSet, question: Question, source: str, known: Mapping[str, float]) -> float:
        ratios = [
            data.rows[i].seconds / known[data.rows[i].label] for i in question.fitted if data.rows[i].label in known
        ]
        if ratios:
            return float(np.median(ratios))
        here, there = peaks_of(data.machine(question.gpu)), peaks_of(data.machine(source))
        faster = (here.bytes_per_s / there.bytes_per_s) * (here.operations_per_s / there.operations_per_s)
        return 1.0 / math.sqrt(faster)


@dataclass(frozen=True)
class Roofline:
    """The nearer of both peaks of the machine's file; no time is used."""

    name: str = "roofline"
    elsewhere: bool = False
    needs_samples: bool = False
    uses_samples: bool = False

    def answer(self, data: DataSet, question: Question) -> Answer:
        """Return what was computed of counts."""
        seconds = data.roofline[list(question.judged)]
        missing = int(np.isnan(seconds).sum())
        return Answer(seconds, reason=f"{missing} rows have no counted bytes or operations" if missing else "")


@dataclass(frozen=True)
class Trees:
    """Extremely randomised trees on the logarithms of the model's features."""

    name: str
    elsewhere: bool
    needs_samples: bool
    uses_samples: bool = True

    def answer(self, data: DataSet, question: Question) -> Answer:
        """Train on the rows that the model is fitted to; with those of other GPUs if it is given them."""
        from sklearn.ensemble import ExtraTreesRegressor

        rows = [*question.fitted, *question.elsewhere]
        if not rows:
            return none_of(question, "nothing to learn from")
        logs = np.log(np.maximum(data.values, _LEAST))
        trees = ExtraTreesRegressor(n_estimators=_TREES, random_state=_SEED, n_jobs=1)
        trees.fit(logs[rows], np.log(data.seconds[rows]))
        return Answer(np.exp(trees.predict(logs[list(question.judged)])))


@dataclass(frozen=True)
class Transferred:
    """The model with what the other GPUs' calibrations say of its parameters, and the GPU's few times."""

    name: str = "perflex, transfer"
    elsewhere: bool = True
    needs_samples: bool = False
    uses_samples: bool = True

    def answer(self, data: DataSet, question: Question) -> Answer:
        """Calibrate each other GPU with all of its rows, and transfer."""
        from perflex import transfer

        sources = list(_sources(data, question.elsewhere))
        if not sources:
            return none_of(question, "no other GPU")
        machine = data.machine(question.gpu)
        table = data.table(question.judged, output=False)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PerflexWarning)
                samples = scale_features_by_output(data.table(question.fitted)) if question.fitted else None
                found = transfer(sources, samples, machine=machine).predict_rows(table, confidence=0.95)
        except PerflexError as error:
            return none_of(question, f"no transfer: {error}")
        return Answer(np.asarray(found.predicted), np.asarray(found.low), np.asarray(found.high))


@lru_cache(maxsize=32)
def _sources(data: DataSet, elsewhere: tuple[int, ...]) -> tuple[Calibration, ...]:
    """Return a calibration of each GPU among rows; the same for any number of samples of another GPU."""
    by_gpu: dict[str, list[int]] = {}
    for number in elsewhere:
        by_gpu.setdefault(data.rows[number].gpu, []).append(number)
    return tuple(_source(data, tuple(own)) for own in by_gpu.values())


@lru_cache(maxsize=64)
def _source(data: DataSet, own: tuple[int, ...]) -> Calibration:
    return calibrated(data, data.table(own))


METHODS: Mapping[str, Method] = {
    "perflex": Calibrated(),
    "transfer": Transferred(),
    "factor": OneFactor(),
    "roofline": Roofline(),
    "trees": Trees("ExtraTrees", elsewhere=False, needs_samples=True),
    "trees_elsewhere": Trees("ExtraTrees, other GPUs too", elsewhere=True, needs_samples=False),
}
"""By the name that chooses them on the command line."""


def methods_named(names: Sequence[str], *, intervals: bool = False) -> list[Method]:
    """Return methods by name; all if none is named.

    Parameters
    ----------
    names
        Keys of `METHODS`.
    intervals
        Whether those of the model fitted to the GPU alone are wanted, which take long.

    Raises
    ------
    PerflexError
        There is no such method.
    """
    for name in names:
        if name not in METHODS:
            msg = f"no method is called {name!r}; there are {', '.join(METHODS)}"
            raise PerflexError(msg)
    known = {**METHODS, "perflex": Calibrated(intervals=intervals)}
    return [known[name] for name in names or METHODS]
