"""Ranking variants by predicted time."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.calibration.device_match import timing_device
from perflex.calibration.row_predictions import resting_on
from perflex.html import shown_by
from perflex.search.pruning import measure_variants
from perflex.search.variant_doubts import doubt_lines, doubts_of, warn_of_variants
from perflex.search.variant_space import candidates_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from perflex.calibration.built_target import Knowledge
    from perflex.calibration.calibration import Calibration
    from perflex.machines.machine import Machine
    from perflex.search.variant_space import VariantSpace
    from perflex.search.variants import Candidates
    from perflex.timing.launch.backend import TimedDevice


# Variants whose kernels are built again to ask for doubts, which takes as long as counting does.
_LOOKED_AT = 20


@dataclass(frozen=True)
class RankedVariant:
    """A variant's place among its rivals."""

    rank: int
    name: str
    # In the output feature's unit: seconds for a wall time.
    predicted: float
    # The time that decides on the place, as a multiple of the fastest variant's: measured, if any was, else predicted.
    ratio: float
    # What each cost of the model contributes (`Model.terms`), in the same unit; where predictions are corrected by what
    # was learned or is known of other devices, multiplied by the same factor.
    terms: Mapping[str, float] = field(repr=False)
    # The variant itself: what was given, or its settings in a space.
    kernel: Any = field(repr=False, compare=False)
    # What the prediction rests on: ``"nothing"`` of the variant but counts, its compiled ``"code"``, or, of a
    # transferred calibration, a ``"timing on other devices"``.
    knowledge: Knowledge = "nothing"
    # In seconds; nan where it was not timed or could not be.
    measured: float = math.nan
    # Reasons not to rely on the prediction, as short texts. Those for which kernels are built again, such as conflict
    # misses, are looked for in the first 20 places.
    doubts: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return one line: place, name, the time that decides, how many times the fastest's it is; the prediction."""
        predicted, mark = f"{self.predicted:.4g}", " (doubtful)" if self.doubts else ""
        timed = not math.isnan(self.measured)
        shown = (
            f"measured {self.measured:.4g}" if timed else predicted if not math.isnan(self.ratio) else "not measured"
        )
        ratio = "" if math.isnan(self.ratio) else f" ({self.ratio:.2f} times the fastest)"
        rest = "" if shown == predicted else f", predicted {predicted}"
        return f"{self.rank}. {self.name}: {shown}{ratio}{rest}{mark}"


class Ranking(list[RankedVariant]):
    """Ranked variants: a list that notebooks show as a table.

    Parameters
    ----------
    variants
        In their order.
    excluded
        How many settings of a space have no place, by cause.
    """

    def __init__(self, variants: Iterable[RankedVariant] = (), excluded: Mapping[str, int] | None = None) -> None:
        super().__init__(variants)
        self.excluded: Mapping[str, int] = dict(excluded or {})

    @property
    def timed(self) -> bool:
        """Whether the order is that of measured times."""
        return not all(math.isnan(place.measured) for place in self)

    @property
    def doubt_lines(self) -> list[str]:
        """Reasons not to rely on the predictions, in a few lines."""
        return doubt_lines([place.name for place in self], [place.doubts for place in self])

    _repr_html_ = shown_by("ranking.html")


def rank(
    variants: Mapping[str, Any] | Sequence[Any] | VariantSpace | Candidates,
    calibration: Calibration,
    sizes: Mapping[str, Any] | None = None,
    *,
    machine: str | Path | Machine | None = None,
    time: bool | str | TimedDevice = False,
) -> Ranking:
    """Order variants by predicted time, fastest first; nothing is run but with `time`.

    Parameters
    ----------
    variants
        Loopy kernels or measurement kernels, by name or in a sequence; or a `VariantSpace`, or what its `extract` gave.
    calibration
        From `perflex.calibrate` or `Calibration.load`.
    sizes
        Value of each size parameter; measurement kernels bring their own if none are given.
    machine
        For features that need one: a machine, its name, or its file; by default that of `using_machine`, else the
        calibration's.
    time
        Whether to time each variant, too, as `calibrate` times kernels, and where: True on the device that the
        calibration belongs to, or a device, or parts of its name. The order is that of the times then, and variants
        that fail come last.

    Returns
    -------
    Ranking
        A list of RankedVariant; equal times keep the order of `variants`.

    Warns
    -----
    DoubtfulPredictionWarning
        There are reasons not to rely on predictions (`RankedVariant.doubts`).
    PerflexWarning
        A variant cannot be timed.

    Raises
    ------
    CalibrationError
        There are no variants, sizes are needed and missing, or variants were extracted at other sizes, or for other
        sub-groups or another machine.
    FeatureError, MachineError, MissingSizeError, UnsupportedKernelError
        As for predictions.
    DeviceError, MeasurementError
        Only with `time`: there is no such device, or no variant can be timed.
    """
    device = None if isinstance(time, bool) else time
    if time is not False:
        timing_device(calibration, device, machine=machine)
    found = candidates_of(variants, calibration, sizes, machine=machine, refuse=True)
    columns = found.columns(calibration.model.input_features())
    count, names = len(found), found.names
    labels = [label for label, _ in found.known_as(calibration)] or [""] * count
    knowledge = resting_on(calibration, labels)
    predicted = found.predicted(calibration)
    with np.errstate(all="ignore"):
        factor = predicted / calibration.model.evaluate(calibration.fit, columns)
    # A model's time of zero has terms of zero, whatever corrects it.
    factor = np.where(np.isfinite(factor), factor, 1.0)
    times = {} if time is False else measure_variants(found, range(count), calibration, device, machine=machine)
    measured = np.array([times.get(name, math.nan) for name in names])
    terms = {
        text: np.broadcast_to(value * factor, (count,))
        for text, value in calibration.model.terms(calibration.params, columns).items()
    }
    deciding = measured if times else predicted
    # Not a number is sorted last.
    order = np.lexsort((predicted, deciding)).tolist()
    doubts = doubts_of(calibration, found, machine, order[:_LOOKED_AT])
    warn_of_variants(names, doubts)
    fastest = float(deciding[order[0]])
    ranked = (
        RankedVariant(
            rank=place,
            name=names[number],
            predicted=float(predicted[number]),
            # A prediction of no time at all has no multiples.
            ratio=float(deciding[number]) / fastest if fastest else math.nan,
            terms={text: float(value[number]) for text, value in terms.items()},
            kernel=found.settings[number] if found.settings else found.kernel(number),
            knowledge=knowledge[number],
            measured=float(measured[number]),
            doubts=doubts[number],
        )
        for place, number in enumerate(order, start=1)
    )
    return Ranking(ranked, found.excluded)
