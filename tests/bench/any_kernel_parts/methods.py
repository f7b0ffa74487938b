"""Methods that predict the time of cases: the trivial ones, and calibrations.

A method says what it has seen of a variant before, and gets no more than that: those of knowledge ``timing`` get the
times of the smallest size, all others none. To judge another method, write a class with the members of `Method` and
add it to `methods_for`; to judge calibrations in another way (`Calibration.predict` with other arguments), add a line
to `WAYS`.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from perflex import Calibration, PerflexError, PerflexWarning
from perflex.studies.baselines import Work, distinct_bytes_of, scaled, work_of

from .cases import kernel_of, sizes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from perflex.studies.baselines import Knowledge, Peaks

    from .cases import Case

Times = Mapping["Case", float]


@dataclass
class Predictions:
    """What a method says of cases.

    Attributes
    ----------
    seconds
        Predicted time by case, of all that were not refused.
    refused
        Why the other cases have none.
    cost_s
        Seconds that it took, launches on the device included; a calibration itself is not.
    """

    seconds: dict[Case, float] = field(default_factory=dict)
    refused: dict[Case, str] = field(default_factory=dict)
    cost_s: float = 0.0


class Method(Protocol):
    """A way to predict times.

    Attributes
    ----------
    name
        Stands in tables.
    knowledge
        What it has seen of a variant.
    order_only
        Whether its predictions are places in an order and no seconds.
    """

    @property
    def name(self) -> str: ...
    @property
    def knowledge(self) -> Knowledge: ...
    @property
    def order_only(self) -> bool: ...

    def predict(self, cases: Sequence[Case], seen: Times) -> Predictions:
        """Predict cases; `seen` are the times in seconds that it is given."""
        ...


# A refusal is kept, too: of scattered subscripts it takes half a minute to find out that distinct bytes are too many.
_Kept = dict["Case", Any]
_WORK: _Kept = {}
_BYTES: _Kept = {}


def _once(kept: _Kept, case: Case, count: Callable[[Any, Mapping[str, int]], Any]) -> Any:
    """Return what a function counts of a case, counted once.

    Raises
    ------
    PerflexError
        The case cannot be counted; others of its family may be.
    """
    if case not in kept:
        try:
            kept[case] = count(kernel_of(case), sizes_of(case))
        except PerflexError as error:
            kept[case] = error
    if isinstance(kept[case], PerflexError):
        raise kept[case]
    return kept[case]


def _work(case: Case) -> Work:
    found: Work = _once(_WORK, case, work_of)
    return found


def _bytes(case: Case) -> float:
    found: float = _once(_BYTES, case, distinct_bytes_of)
    return found


def _each(cases: Sequence[Case], predict: Callable[[Case], float]) -> Predictions:
    """Predict one case after another; those that perflex refuses are kept with the reason."""
    found = Predictions()
    begun = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PerflexWarning)
        for case in cases:
            try:
                value = predict(case)
            except PerflexError as error:
                found.refused[case] = f"{type(error).__name__}: {error}".splitlines()[0]
                continue
            # No ratio to a measured time says anything of these; `Accuracy` takes none of them.
            if 0 < value < math.inf:
                found.seconds[case] = value
            else:
                found.refused[case] = f"{value:g} s is no time"
    found.cost_s = time.perf_counter() - begun
    return found


@dataclass(frozen=True)
class ScaledSmallest:
    """One timing of each variant at its family's smallest size, scaled by work-items or by counted operations."""

    by: Literal["items", "operations"]
    knowledge: Knowledge = "timing"
    order_only: bool = False

    @property
    def name(self) -> str:
        """Stands in tables."""
        return f"smallest size, scaled by {'work-items' if self.by == 'items' else 'operations'}"

    def predict(self, cases: Sequence[Case], seen: Times) -> Predictions:
        """Predict; what it costs is a launch of each variant at the smallest size, and counting."""
        found = _each(
            [case for case in cases if case.smallest in seen],
            lambda case: scaled(seen[case.smallest], _work(case.smallest), _work(case), self.by),
        )
        found.refused |= {case: "the smallest size has no time" for case in cases if case.smallest not in seen}
        found.cost_s += sum(seen[case] for case in {case.smallest for case in found.seconds})
        return found


@dataclass(frozen=True)
class Roofline:
    """The nearer of two measured peaks, single-precision multiply-adds and copied bytes."""

    peaks: Peaks
    name: str = "roofline"
    knowledge: Knowledge = "nothing"
    order_only: bool = False

    def predict(self, cases: Sequence[Case], seen: Times) -> Predictions:  # noqa: ARG002 - protocol
        """Predict from counts alone."""
        return _each(cases, lambda case: self.peaks.roofline(_work(case), _bytes(case)))


@dataclass(frozen=True)
class AsEnumerated:
    """No prediction: variants in the order in which their family lists them."""

    name: str = "order as enumerated"
    knowledge: Knowledge = "nothing"
    order_only: bool = True

    def predict(self, cases: Sequence[Case], seen: Times) -> Predictions:  # noqa: ARG002 - protocol
        """Return places, from 1, in each family's list."""
        from .cases import family_of

        return _each(cases, lambda case: 1.0 + list(family_of(case).variants).index(case.variant))


@dataclass(frozen=True)
class SecondMeasurement:
    """The same cases measured once more: what no prediction can be expected to beat."""

    times: Times
    name: str = "a second measurement"
    knowledge: Knowledge = "timing"
    order_only: bool = False

    def predict(self, cases: Sequence[Case], seen: Times) -> Predictions:  # noqa: ARG002 - protocol
        """Return the second times; cases that were not measured twice are left out and not counted as refused."""
        found = Predictions({case: self.times[case] for case in cases if case in self.times})
        found.cost_s = sum(found.seconds.values())
        return found


@dataclass(frozen=True)
class Way:
    """One way to ask a calibration.

    Attributes
    ----------
    title
        Follows the calibration's name in tables.
    arguments
        Of `Calibration.predict`.
    knowledge
        What it then has seen of a variant; None for what the model's features need.
    """

    title: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    knowledge: Knowledge | None = None


# By the word that chooses them on the command line. Another way to ask a calibration is another line.
WAYS: Mapping[str, Way] = {
    "plain": Way(),
    "probe": Way(" with a short launch", {"probe": True}, "short launch"),
}


@dataclass(frozen=True)
class ByCalibration:
    """What a calibration predicts."""

    title: str
    calibration: Calibration
    way: Way
    order_only: bool = False

    @property
    def name(self) -> str:
        """Stands in tables."""
        return f"{self.title}{self.way.title}"

    @property
    def knowledge(self) -> Knowledge:
        """The compiled code if the model has features of it, else nothing but counts."""
        if self.way.knowledge is not None:
            return self.way.knowledge
        return "code" if any("f_code_" in name for name in self.calibration.model.input_features()) else "nothing"

    def predict(self, cases: Sequence[Case], seen: Times) -> Predictions:  # noqa: ARG002 - protocol
        """Predict one case after another, as a user would."""
        predict: Any = self.calibration.predict
        return _each(cases, lambda case: float(predict(kernel_of(case), sizes_of(case), **self.way.arguments)))


def methods_for(
    calibrations: Mapping[str, Calibration], ways: Sequence[str], peaks: Peaks | None, second: Times | None
) -> Iterator[Method]:
    """Return all methods that can be judged with what is given.

    Parameters
    ----------
    calibrations
        Of the device, by the name that tables give them.
    ways
        Keys of `WAYS`.
    peaks
        Of the device; without them there is no roofline.
    second
        Times of a second measurement, if there was one.
    """
    yield AsEnumerated()
    if peaks is not None:
        yield Roofline(peaks)
    for title, calibration in calibrations.items():
        for way in ways:
            yield ByCalibration(title, calibration, WAYS[way])
    yield ScaledSmallest("items")
    yield ScaledSmallest("operations")
    if second is not None:
        yield SecondMeasurement(second)
