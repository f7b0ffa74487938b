"""Calibrations: fitted parameters, the device they belong to, and how they were obtained."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from perflex.calibration.calibration_file import FORMAT, calibration_content, read_calibration_parts
from perflex.machines.choice import else_machine, using_machine
from perflex.yaml_file import read_yaml, write_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from perflex.calibration.interval import PredictionInterval
    from perflex.expression.model import Model
    from perflex.fit.result import FitResult
    from perflex.fit.table import FeatureTable
    from perflex.machines import Machine

__all__ = ["Calibration"]


@dataclass(frozen=True, eq=False)
class Calibration:
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
        Relative spread of repeated timings, a fraction: errors below it mean nothing; None if not known.
    dropped
        Label and reason of each measurement kernel that was left out.
    machine
        Name of the machine that the features were computed for; empty if none needs one.
    table
        The values that were fitted, a row per measurement kernel; None where they were not kept, as in files of
        earlier versions.
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
    table: FeatureTable | None = None

    @property
    def params(self) -> Mapping[str, float]:
        """Value of each parameter, in the units of ``fit.parameters``."""
        return self.fit

    @property
    def sub_group_size(self) -> int:
        """Work-items per sub-group that the features are counted with."""
        return self.fit.sub_group_size

    def predict(
        self, kernel: Any, sizes: Mapping[str, Any], *, machine: str | Path | Machine | None = None
    ) -> float | NDArray[np.float64]:
        """Predict the output feature of a kernel, usually its run time (paper Section 7.3).

        Parameters
        ----------
        kernel
            A loopy translation unit, or a measurement kernel.
        sizes
            Value of each size parameter of the kernel.
        machine
            For features that need one: a machine, its name, or its file; by default that of `using_machine`, else the
            calibration's.

        Returns
        -------
        float
            In the output feature's unit: seconds for a wall time.

        Raises
        ------
        MissingSizeError
            A size parameter has no value.
        UnsupportedKernelError
            The kernel cannot be described exactly.
        MachineError
            A feature needs a machine that is not known, or lacks a fact of it.
        """
        with using_machine(machine), else_machine(self.machine):
            return self.model.eval_with_kernel(self.fit, kernel, sizes)

    def predict_interval(self, kernel: Any, sizes: Mapping[str, Any], confidence: float = 0.95) -> PredictionInterval:
        """Predict the output feature of a kernel, and where a measurement of it would lie.

        The interval holds what is not known of the parameters (their covariance, carried through the model's
        derivatives: the delta method) and the residuals of the measurement kernels, which stand for what the
        model leaves out and for noise. It is right for kernels that the model describes as well as it does
        the measurement kernels.

        Parameters
        ----------
        kernel
            A loopy translation unit, or a measurement kernel.
        sizes
            Value of each size parameter of the kernel: numbers, or arrays of one shape.
        confidence
            Share of measurements that shall lie inside, between 0 and 1.

        Returns
        -------
        PredictionInterval
            ``predicted``, ``low`` and ``high`` in the output feature's unit: seconds for a wall time.

        Raises
        ------
        CalibrationError
            There were no more measurement kernels than parameters, or the prediction depends on a parameter
            that they do not determine.
        MissingSizeError
            A size parameter has no value.
        UnsupportedKernelError
            The kernel cannot be described exactly.
        """
        from perflex.calibration.interval import interval_at
        from perflex.features.coverage import warn_uncounted
        from perflex.features.values import kernel_feature_values, with_own_sizes

        kernel, sizes = with_own_sizes(kernel, sizes)
        features = self.model.input_features()
        with else_machine(self.machine):
            values = kernel_feature_values(features, kernel, sizes, self.sub_group_size)
        warn_uncounted(features, kernel, sizes)
        return interval_at(self, values, confidence)

    def save(self, path: Path | str) -> None:
        """Write the calibration to a YAML file, replacing it in one step.

        Raises
        ------
        FileFormatError
            The file cannot be written.
        """
        write_yaml(path, calibration_content(self))

    @classmethod
    def load(cls, path: Path | str) -> Calibration:
        """Read a calibration from a YAML file that `save` wrote.

        Raises
        ------
        FileFormatError
            The file cannot be read, is damaged, foreign or of a newer version; names the line and field.
        """
        return cls(**read_calibration_parts(read_yaml(path, FORMAT)))

    def __repr__(self) -> str:
        name = self.device.get("name", "unknown device")
        driver = self.device.get("driver", "")
        heading = f"{self.model}\non {name}{f' ({driver})' if driver else ''}, {self.date or 'no date'}"
        floor = "" if self.noise_floor is None else f"\nnoise floor {100 * self.noise_floor:.2g} %"
        return f"{heading}\n{self.fit!r}{floor}"
