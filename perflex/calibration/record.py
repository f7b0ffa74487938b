"""What a calibration holds, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

from perflex.html import shown_by
from perflex.timing.results import TimingSummary

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from perflex.calibration.calibrated_range import CalibratedRange, Extrapolation
    from perflex.calibration.cross_validation import BetweenGenerators
    from perflex.calibration.prediction_variance import PredictionVariance
    from perflex.calibration.transfer_prior import TransferPrior
    from perflex.expression.model import Model
    from perflex.fit.result import FitResult
    from perflex.fit.table import FeatureTable
    from perflex.machines.host import ReportedCpu


# Its file, intervals and diagnosis read the record; the calibration that users hold adds what rests on those.
# No generated comparison: it would ask arrays in the fit and the table for a truth value.
@dataclass(frozen=True, eq=False)
class CalibrationRecord:
    """A model with its parameters on one device.

    Attributes
    ----------
    model
        The model.
    fit
        Its parameters and how well they fit.
    table
        The values that were fitted, a row per measurement kernel.
    device
        Facts about the device: ``name``, ``platform``, ``driver`` and more.
    date
        When it was made, ISO 8601 in UTC.
    versions
        Versions of the software that made it.
    options
        How the measurement kernels were timed: trials, precision and so on.
    noise_floor
        By which fraction the time of a kernel differs from one such measurement to the next, the median over the
        measurement kernels: smaller errors are not significant. None if not known. The relative spread of single
        timings where less than half of the kernels have four timings.
    dropped
        Label and reason of each measurement kernel that was left out.
    machine
        Name of the machine that the features were computed for; empty if none needs one.
    cpu
        What the operating system reported of the CPU, where the machine was made of that (`host_machine`), or doubts
        rest on its caches; None where it was named, or none is needed.
    transferred
        What was carried over from other devices (`transfer`); None for a calibration of its own measurements alone.
    kept_between
        What a calibration's file keeps of `between_generators`; None where it was not computed yet.
    launches, caches
        What predictions assume (`Calibration.assuming`); a file does not keep it.
    """

    model: Model
    fit: FitResult
    table: FeatureTable
    device: Mapping[str, Any] = field(default_factory=dict)
    date: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    noise_floor: float | None = None
    dropped: tuple[tuple[str, str], ...] = ()
    machine: str = ""
    cpu: ReportedCpu | None = None
    transferred: TransferPrior | None = None
    kept_between: BetweenGenerators | None = None
    launches: str = "gpu"
    caches: str = "warm"

    @property
    def params(self) -> Mapping[str, float]:
        """Value of each parameter, in the units of ``fit.parameters``."""
        return self.fit

    @property
    def has_samples(self) -> bool:
        """Whether it rests on times of its device; a transferred one may rest on those of others alone."""
        return self.transferred is None or self.transferred.samples > 0

    @property
    def timing(self) -> TimingSummary | None:
        """How measuring went; None where that is not known."""
        known = {entry.name: self.options[entry.name] for entry in fields(TimingSummary) if entry.name in self.options}
        # Calibrations within a budget keep some of it: their batches have no precision in common.
        return TimingSummary(**known) if "kernels_precise" in known else None

    @cached_property
    def between_generators(self) -> BetweenGenerators:
        """What predictions of generators by the others say of the model: a refit for each generator, once."""
        from perflex.calibration.cross_validation import between_generators

        known = self.kept_between
        return between_generators(self.fit, self.table.generators) if known is None else known

    def evaluate(self, values: Mapping[str, Any]) -> float | NDArray[np.float64]:
        """Return the model's output at feature values, a number or array per input feature."""
        return self.model.evaluate(self.fit, values)

    @cached_property
    def prediction_variance(self) -> PredictionVariance:
        """The variance of predictions; a `CalibrationError` without measurement kernels to spare."""
        from perflex.calibration.prediction_variance import PredictionVariance

        return PredictionVariance(self.fit, self.table.generators)

    @cached_property
    def _range(self) -> CalibratedRange:
        from perflex.calibration.calibrated_range import CalibratedRange

        return CalibratedRange(self.fit)

    def place_of(self, values: Mapping[str, Any]) -> Extrapolation:
        """Return where predictions lie, seen from the measurement kernels."""
        return self._range.of(values)

    @property
    def sub_group_size(self) -> int:
        """Work-items per sub-group that the features are counted with."""
        return self.fit.sub_group_size

    def __repr__(self) -> str:
        name = self.device.get("name", "unknown device")
        driver = self.device.get("driver", "")
        heading = f"{self.model}\non {name}{f' ({driver})' if driver else ''}, {self.date or 'no date'}"
        floor = "" if self.noise_floor is None else f"\nnoise floor {100 * self.noise_floor:.2g} %"
        carried = ""
        if self.transferred is not None:
            samples = self.transferred.samples
            carried = f"\ntransferred from {', '.join(self.transferred.sources)}, {samples} samples of this device"
            carried += "".join(f"\n{remark}" for remark in self.transferred.remarks)
        return f"{heading}\n{self.fit!r}{floor}{carried}"

    _repr_html_ = shown_by("calibration.html", times_warnings="perflex.calibration.acceptance:times_warnings")
