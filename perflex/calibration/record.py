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
    from perflex.calibration.carried_over import CarriedOver
    from perflex.calibration.generator_term import GeneratorTerm
    from perflex.calibration.learned import LearnedCorrection, LearnedResiduals
    from perflex.calibration.left_out import LeftOutErrors, LeftOutKernels, TermShares
    from perflex.calibration.prediction_variance import PredictionVariance
    from perflex.expression.model import Model
    from perflex.fit.result import FitResult
    from perflex.fit.table import FeatureTable
    from perflex.machines.reported import ReportedCpu


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
        Its parameters and how well they fit; holds the measurement kernels with their relative errors.
    device
        Facts about the device: ``name``, ``platform``, ``driver`` and more.
    date
        When it was made, ISO 8601 in UTC.
    versions
        Versions of the software that made it.
    options
        How the measurement kernels were timed: trials, statistic and so on.
    noise_floor
        By which fraction the time of a kernel differs from one such measurement to the next, the median over the
        measurement kernels: smaller errors are not significant. None if not known. The relative spread of single
        timings where only that is known, as in files of earlier versions and where less than half of the kernels have
        four timings.
    dropped
        Label and reason of each measurement kernel that was left out.
    machine
        Name of the machine that the features were computed for; empty if none needs one.
    cpu
        What the operating system reported of the CPU, where the machine was made of that (`host_machine`); None where
        it was named, or none is needed.
    table
        The values that were fitted, a row per measurement kernel; None where they were not kept, as in files of
        earlier versions.
    left_out
        How far kernels of generators that were left out lie from their predictions; None where there are few
        generators, and in files of earlier versions (`known_left_out` then computes it).
    learned
        What was learned of the residuals, and whether predictions use it; None where nothing was.
    transferred
        What was carried over from other devices (`transfer`); None for a calibration of its own measurements alone.
    kept_generator_term
        What a calibration's file keeps of `generator_term`; None where nothing asks for it, and in files of earlier
        versions.
    """

    model: Model
    fit: FitResult
    device: Mapping[str, Any] = field(default_factory=dict)
    date: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    noise_floor: float | None = None
    dropped: tuple[tuple[str, str], ...] = ()
    machine: str = ""
    cpu: ReportedCpu | None = None
    table: FeatureTable | None = None
    left_out: LeftOutErrors | None = None
    learned: LearnedResiduals | None = None
    transferred: CarriedOver | None = None
    kept_generator_term: GeneratorTerm | None = field(default=None, compare=False)

    @property
    def params(self) -> Mapping[str, float]:
        """Value of each parameter, in the units of ``fit.parameters``."""
        return self.fit

    @property
    def timing(self) -> TimingSummary | None:
        """How measuring went; None where that is not known, as in files of earlier versions."""
        known = {entry.name: self.options[entry.name] for entry in fields(TimingSummary) if entry.name in self.options}
        if "outliers_excluded" in self.options:  # as files of earlier versions call them
            known.setdefault("stray_samples", self.options["outliers_excluded"])
        # Calibrations within a budget keep some of it: their batches have no drift and no precision in common.
        return TimingSummary(**known) if "kernels_precise" in known else None

    @cached_property
    def generator_term(self) -> GeneratorTerm:
        """What predictions of generators by the others say of the model: a refit for each generator, once."""
        if self.kept_generator_term is not None:
            return self.kept_generator_term
        from perflex.calibration.generator_term import generator_term

        return generator_term(self.model, self.fit, self.table)

    @cached_property
    def known_left_out(self) -> LeftOutErrors | None:
        """How far kernels of left-out generators lie off: as predictions are, or computed once; None with few."""
        from perflex.calibration.left_out import left_out_errors

        if self.learned is not None and self.learned.helps:
            return self.learned.left_out
        return left_out_errors(self.model, self.fit, self.table) if self.left_out is None else self.left_out

    def evaluate(self, values: Mapping[str, Any]) -> float | NDArray[np.float64]:
        """Return the prediction at feature values: the model's, corrected by what was learned where that is used.

        Parameters
        ----------
        values
            A number or array per input feature.

        Raises
        ------
        MissingExtraError
            What was learned is used, and scikit-learn is not installed.
        """
        return self.model.evaluate(self.fit, values) * self.correction(values)

    def correction(self, values: Mapping[str, Any]) -> float | NDArray[np.float64]:
        """Return the factor by which learning corrects the model, 1 where it is not used; as `evaluate`."""
        return 1.0 if self._corrected is None else self._corrected.factors(values)

    @cached_property
    def _corrected(self) -> LearnedCorrection | None:
        if self.learned is None or not self.learned.helps or self.table is None:
            return None
        from perflex.calibration.learned import LearnedCorrection

        return LearnedCorrection(self.model, self.fit, self.table, self.learned)

    @cached_property
    def left_out_kernels(self) -> LeftOutKernels | None:
        """Each measurement kernel as predicted without its generator; None where the rows are not known."""
        from perflex.calibration.left_out import left_out_kernels

        return None if self.table is None else left_out_kernels(self.model, self.fit, self.table)

    @cached_property
    def term_shares(self) -> TermShares | None:
        """The shares of costs in the measurement kernels' times; None where these are not known."""
        from perflex.calibration.left_out import TermShares

        table = self.table
        if table is None:
            return None
        values = {name: table.column(name) for name in self.model.input_features()}
        return TermShares(self.model, self.fit, values, len(table))

    @cached_property
    def prediction_variance(self) -> PredictionVariance:
        """The variance of predictions; a `CalibrationError` without measurement kernels to spare."""
        from perflex.calibration.held_out import generators_of
        from perflex.calibration.prediction_variance import PredictionVariance

        return PredictionVariance(self.model, self.fit, self.table, generators_of(self.fit.kernels, self.table))

    @cached_property
    def _range(self) -> CalibratedRange | None:
        from perflex.calibration.calibrated_range import CalibratedRange

        return None if self.table is None else CalibratedRange(self.model, self.fit, self.table)

    def place_of(self, values: Mapping[str, Any]) -> Extrapolation | None:
        """Return where predictions lie, seen from the measurement kernels; None where these are not known.

        Parameters
        ----------
        values
            A number or array per input feature; arrays are taken as flat.
        """
        return None if self._range is None else self._range.of(values)

    @property
    def sub_group_size(self) -> int:
        """Work-items per sub-group that the features are counted with."""
        return self.fit.sub_group_size

    def __repr__(self) -> str:
        name = self.device.get("name", "unknown device")
        driver = self.device.get("driver", "")
        heading = f"{self.model}\non {name}{f' ({driver})' if driver else ''}, {self.date or 'no date'}"
        floor = "" if self.noise_floor is None else f"\nnoise floor {100 * self.noise_floor:.2g} %"
        learned = "" if self.learned is None else f"\n{self.learned}"
        carried = ""
        if self.transferred is not None:
            samples = self.transferred.samples
            carried = f"\ntransferred from {', '.join(self.transferred.sources)}, {samples} samples of this device"
            carried += "".join(f"\n{remark}" for remark in self.transferred.remarks)
        return f"{heading}\n{self.fit!r}{floor}{learned}{carried}"

    _repr_html_ = shown_by("perflex.calibration.calibration_html:calibration_html")
