"""What a calibration says of a kernel at given sizes: its time, limits, reasons to doubt it, and its costs."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from perflex.devices.listing import is_wall_time
from perflex.features.sized_kernel import sized_kernels
from perflex.html import shown_by
from perflex.tables import Table, number, percent, seconds, text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from perflex.calibration.built_target import Knowledge
    from perflex.calibration.interval import PredictionInterval
    from perflex.calibration.record import CalibrationRecord
    from perflex.progress import Progress
    from perflex.tables import Column
    from perflex.timing.launch.backend import TimedDevice
    from perflex.timing.results import Timing

# Costs with less of the time are not named where not all are.
_LEAST = 1e-3
# Letters of a term that are shown beside others: it may fill a page.
_LONGEST = 100
_DISTURBED = "the measured time rests on samples that others disturbed"


@dataclass(frozen=True, eq=False)
class Prediction:
    """What a calibration says of a kernel at given sizes; arrays where sizes are arrays.

    Attributes
    ----------
    kernel
        Its name.
    sizes
        Value of each size.
    seconds
        What is predicted, in the output feature's unit: seconds for a wall time.
    doubts
        Reasons not to rely on it, as short texts.
    knowledge
        What it has seen of the kernel beside its counts: ``"nothing"``, ``"code"`` or ``"timing on other devices"``.
    values
        Value of each input feature.
    calibration
        What predicted it.
    interval
        Where a measurement would lie; None where that was not asked for.
    timing, measured_on
        What was measured beside it, and the device; None where nothing was.
    failure
        Why it could not be measured; empty otherwise.
    """

    kernel: str
    sizes: Mapping[str, Any]
    seconds: float | NDArray[np.float64]
    doubts: tuple[str, ...]
    knowledge: Knowledge
    values: Mapping[str, Any] = field(repr=False)
    calibration: CalibrationRecord = field(repr=False)
    interval: PredictionInterval | None = field(default=None, repr=False)
    timing: Timing | None = None
    measured_on: str = ""
    failure: str = ""

    @property
    def low(self) -> float | NDArray[np.float64] | None:
        """Lower end of the interval, in the unit of `seconds`."""
        return None if self.interval is None else self.interval.low

    @property
    def high(self) -> float | NDArray[np.float64] | None:
        """Upper end of the interval, in the unit of `seconds`."""
        return None if self.interval is None else self.interval.high

    @property
    def confidence(self) -> float | None:
        """Share of measurements that lie in the interval."""
        return None if self.interval is None else self.interval.confidence

    @property
    def extrapolated(self) -> bool | NDArray[np.bool_] | None:
        """Whether the measurement kernels have nothing like it; None without an interval."""
        return None if self.interval is None else self.interval.extrapolated

    @property
    def measured(self) -> float | None:
        """Measured time of one launch in seconds."""
        return None if self.timing is None else self.timing.seconds

    @property
    def error(self) -> float | None:
        """Predicted over measured time, less 1."""
        return None if self.measured is None else float(self.seconds) / self.measured - 1

    @property
    def inside(self) -> bool | None:
        """Whether the measured time lies in the interval; None without one of both."""
        if self.low is None or self.high is None or self.measured is None:
            return None
        return bool(self.low <= self.measured <= self.high)

    @cached_property
    def terms(self) -> dict[str, float | NDArray[np.float64]]:
        """What each cost of the model adds, by its text; of costs that overlap, what is hidden adds nothing."""
        return self.calibration.model.terms(self.calibration.params, self.values)

    def cost_table(self, most: int | None = None) -> Table:
        """Return the costs, the largest first; beyond `most`, or with next to nothing, they stand together."""
        # A general model has dozens of costs, most of which a kernel does not have.
        costs = sorted(((name, cost) for name, cost in self.terms.items() if _sum(cost)), key=lambda one: -_sum(one[1]))
        if most is not None:
            whole = _sum(self.seconds)
            named = [(textwrap.shorten(name, _LONGEST, placeholder="..."), one) for name, one in costs[:most]]
            named = [(name, one) for name, one in named if _sum(one) >= _LEAST * whole]
            rest = costs[len(named) :]
            together = [(f"({len(rest)} other costs)", sum(one for _, one in rest))]
            costs = named + (together if len(rest) > 1 else rest)
        columns = [
            text("cost"),
            _amount(self, "predicted_s", "time"),
            percent("share", meaning="of the predicted time; costs that overlap with larger ones add little"),
        ]
        rows = [(name, cost, cost / self.seconds if _sum(self.seconds) else None) for name, cost in costs]
        return Table(f"Costs at {self.at}", columns, rows)

    @property
    def at(self) -> str:
        """Its sizes in words."""
        return ", ".join(f"{name}={value}" for name, value in self.sizes.items()) or "no sizes"

    def tables(self) -> list[Table]:
        """Return what notebooks show."""
        return [prediction_table([self]), self.cost_table()]

    _repr_html_ = shown_by("result.html")


def prediction_table(predictions: Sequence[Prediction]) -> Table:
    """Return a row for each prediction: sizes, what is predicted, limits, and what was measured beside."""
    first = predictions[0]
    columns = [
        text("sizes"),
        *(number(name, place="files") for name in first.sizes),
        _amount(first, "predicted_s", "predicted"),
        _amount(first, "low_s", "from", "lower end of the prediction's interval"),
        _amount(first, "high_s", "to", "upper end of the prediction's interval"),
        percent("confidence", digits=0, place="pages"),
        _amount(first, "measured_s", "measured"),
        percent("error", sign=True, meaning="predicted over measured time, less 1"),
        text("measured_on", place="pages"),
        text("knowledge", place="files"),
        text("doubts", place="files"),
    ]
    rows = [
        (one.at, *one.sizes.values(), one.seconds, one.low, one.high, one.confidence, one.measured,
         one.error, one.measured_on, one.knowledge, one.doubts)
        for one in predictions
    ]  # fmt: skip
    return Table(f"Predicted times of {first.kernel}", columns, rows)


def doubt_lines(predictions: Sequence[Prediction]) -> list[str]:
    """Return each reason to doubt predictions in a line; with the sizes where it is none to doubt all of them."""
    found: dict[str, list[str]] = {}
    for one in predictions:
        disturbed = [_DISTURBED] if one.timing is not None and one.timing.disturbed else []
        for doubt in (*one.doubts, *disturbed):
            found.setdefault(doubt, []).append(one.at)
    return [
        f"doubtful{'' if len(places) == len(predictions) else ' at ' + '; '.join(places)}: {doubt}"
        for doubt, places in found.items()
    ]


def _amount(of: Prediction, name: str, heading: str, meaning: str = "") -> Column:
    """Return a column of times; of numbers where the model's output is none."""
    column = seconds if is_wall_time(of.calibration.model.output_feature) else number
    return column(name, heading, meaning=meaning)


def _sum(value: Any) -> float:
    return float(value) if getattr(value, "shape", ()) == () else float(value.sum())


def timed(
    predictions: Sequence[Prediction], kernel: Any, device: TimedDevice, progress: Progress | None = None
) -> list[Prediction]:
    """Return predictions of a kernel with what timings say beside; raises why there is none, where there is none."""
    from perflex.timing.measuring import measure
    from perflex.timing.results import Timing

    outcomes = measure(sized_kernels([(kernel, one.sizes) for one in predictions]), device, None, progress)
    found = []
    for one, outcome in zip(predictions, outcomes, strict=True):
        if isinstance(outcome, Timing):
            found.append(replace(one, timing=outcome, measured_on=str(device)))
        elif len(predictions) == 1:
            raise outcome.error
        else:
            found.append(replace(one, failure=outcome.reason))
    return found
