"""Calibrations: fitted parameters, the device they belong to, and how they were obtained."""

from __future__ import annotations

import warnings
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from perflex.calibration.built_target import built_target, with_cycles
from perflex.calibration.calibration_file import FORMAT, calibration_content, read_calibration_parts
from perflex.calibration.doubts import kernel_doubts, range_doubts, warn_of_prediction
from perflex.calibration.interval import interval_at
from perflex.calibration.probed import probed_interval, probed_kernel
from perflex.calibration.record import CalibrationRecord
from perflex.calibration.row_predictions import known_as, row_predictions
from perflex.errors import CalibrationError, PerflexWarning
from perflex.features.values import target_of
from perflex.machines.host import host_machine
from perflex.yaml_file import read_yaml, write_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from perflex.calibration.carried_over import RowPredictions
    from perflex.calibration.interval import PredictionInterval
    from perflex.calibration.probed import ProbeOn
    from perflex.features.target import Target
    from perflex.fit.table import FeatureTable
    from perflex.machines.machine import Machine


class Calibration(CalibrationRecord):
    """A model with its parameters on one device; the attributes are those of `CalibrationRecord`."""

    def predict(
        self,
        kernel: Any,
        sizes: Mapping[str, Any],
        *,
        machine: str | Path | Machine | None = None,
        probe: ProbeOn = False,
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
        probe
            Whether to launch small parts of the kernel instead of evaluating the model (`probe_kernel`): True on the
            device that the calibration belongs to, or a device, or parts of its name. Sizes are then numbers.

        Returns
        -------
        float
            In the output feature's unit: seconds for a wall time.

        Warns
        -----
        PerflexWarning
            The calibration has no measurement kernels like it, or there is another reason not to rely on the
            prediction (`doubts`).

        Raises
        ------
        MissingSizeError
            A size parameter has no value.
        UnsupportedKernelError
            The kernel cannot be described exactly.
        MachineError
            A feature needs a machine that is not known, or lacks a fact of it.
        MissingExtraError
            Predictions use what was learned of the residuals (`learned`), and scikit-learn is not installed.
        CalibrationError, DeviceError, MeasurementError
            Only with `probe`: the output is no time, sizes are arrays or a machine is given; the device is not here;
            the launch fails.
        """
        if probe is not False:
            return probed_kernel(self, kernel, sizes, probe, machine).seconds
        values = self.feature_values(kernel, sizes, machine=machine)
        predicted = self.evaluate(values)
        if self.transferred is not None:
            predicted = interval_at(self, values, kernels=known_as(self, kernel, sizes)).predicted
        warn_of_prediction(self.doubts(kernel, sizes, values, machine=machine))
        return predicted

    def predict_interval(
        self,
        kernel: Any,
        sizes: Mapping[str, Any],
        confidence: float = 0.95,
        *,
        machine: str | Path | Machine | None = None,
        probe: ProbeOn = False,
    ) -> PredictionInterval:
        """Predict the output feature of a kernel, and where a measurement of it would lie.

        The interval holds what is not known of the parameters (their covariance, carried through the model's
        derivatives: the delta method), the noise of measurement kernels with similar times, and what kernels of a
        generator are predicted worse by when it is not among those fitted: the kernel is taken for one of another
        generator. With twenty generators or more of two kernels each on average it is made of how far off those were
        that were left out. It is wider outside of the range of the measurement kernels, and says so (``doubts``).

        Parameters
        ----------
        kernel
            A loopy translation unit, or a measurement kernel.
        sizes
            Value of each size parameter of the kernel: numbers, or arrays of one shape.
        confidence
            Share of measurements that shall lie inside, between 0 and 1.
        machine
            For features that need one, as for `predict`.
        probe
            Whether to launch small parts of the kernel, and where, as for `predict`; the interval is then that of short
            launches.

        Returns
        -------
        PredictionInterval
            ``predicted``, ``low`` and ``high`` in the output feature's unit: seconds for a wall time.

        Warns
        -----
        PerflexWarning
            As `predict`.

        Raises
        ------
        CalibrationError
            There were no more measurement kernels than parameters, or the prediction depends on a parameter
            that they do not determine.
        MissingSizeError
            A size parameter has no value.
        UnsupportedKernelError
            The kernel cannot be described exactly.
        MachineError
            A feature needs a machine that is not known, or lacks a fact of it.
        MissingExtraError, DeviceError, MeasurementError
            As for `predict`.
        """
        if probe is not False:
            return probed_interval(probed_kernel(self, kernel, sizes, probe, machine), confidence)
        values = self.feature_values(kernel, sizes, machine=machine)
        known = () if self.transferred is None else known_as(self, kernel, sizes)
        found = interval_at(self, values, confidence, known)
        found = found.doubted(*kernel_doubts(self, kernel, sizes, self.target(machine)))
        warn_of_prediction(found.doubts)
        return found

    def predict_rows(self, table: FeatureTable, confidence: float = 0.95) -> RowPredictions:
        """Predict the rows of a table, and where measurements of them would lie.

        Of a transferred calibration a row whose label sources have timed is predicted with what they say of it.

        Parameters
        ----------
        table
            A column for each of the model's input features; groups are generators or programs.
        confidence
            Share of measurements that shall lie inside, between 0 and 1.

        Returns
        -------
        RowPredictions
            ``predicted``, ``low`` and ``high``, shape ``(m,)``, and what each rests on (``knowledge``).

        Raises
        ------
        ValueError
            The confidence is out of range.
        CalibrationError
            A column is missing, or as `predict_interval`.
        """
        return row_predictions(self, table, confidence)

    def doubts(
        self,
        kernel: Any,
        sizes: Mapping[str, Any],
        values: Mapping[str, Any] | None = None,
        *,
        machine: str | Path | Machine | None = None,
    ) -> tuple[str, ...]:
        """Return reasons not to rely on a prediction, as short texts; none where there are none.

        That the calibration has no measurement kernels like it, and conflict misses in a CPU's caches. Arguments and
        errors as `predict`; `values` are its feature values, if they are known.
        """
        if values is None:
            values = self.feature_values(kernel, sizes, machine=machine)
        # Few samples have no range of their own: what other devices timed is within it, too.
        own = range_doubts(self, values) if self.transferred is None else self.transferred.remarks
        found = (*own, *kernel_doubts(self, kernel, sizes, self.target(machine)))
        return tuple(dict.fromkeys(found))

    def feature_values(
        self, kernel: Any, sizes: Mapping[str, Any], *, machine: str | Path | Machine | None = None
    ) -> dict[str, Any]:
        """Return the value of each input feature, as predictions take it; arguments, warnings and errors as `predict`.

        Numbers, or arrays where sizes are arrays; ``evaluate`` and ``model.terms`` take them.
        """
        features, output = self.model.input_features(), self.model.output_feature
        target = built_target(features, kernel, sizes, self.target(machine), output, self.device)
        return self.model.feature_values(kernel, sizes, target)

    def target(self, machine: str | Path | Machine | None = None) -> Target:
        """Return what predictions count features for; `machine` and errors as `predict`."""
        otherwise = self.machine if self.cpu is None else host_machine(self.cpu)
        features = self.model.input_features()
        found = target_of(features, self.sub_group_size, machine, otherwise=otherwise)
        return with_cycles(found, features, self.options)

    def with_learning(self) -> Calibration:
        """Return the same with what can be learned of its residuals, used where that helps (`learned`).

        Nothing is measured: it is learned from the measurement kernels, and judged by generators that are left out.
        For the general models that takes half a minute.

        Warns
        -----
        PerflexWarning
            Generators cannot be left out: there are fewer than twenty, they have less than two kernels on average, or
            errors were not fitted relatively. Then nothing is learned.

        Raises
        ------
        MissingExtraError
            scikit-learn is not installed: ``pip install 'perflex[learn]'``.
        CalibrationError
            The calibration was transferred, which corrects its predictions already.
        """
        from perflex.calibration.learned import learn_residuals

        if self.transferred is not None:
            msg = (
                "residuals of other devices correct this calibration already; "
                "learn from a calibration of the device's own times"
            )
            raise CalibrationError(msg)
        learned = learn_residuals(self.model, self.fit, self.table)
        if learned is None:
            reason = "learning needs a relative fit and at least twenty generators with two kernels each"
            warnings.warn(f"residuals were not learned: {reason}", PerflexWarning, stacklevel=2)
        # Another version of it may learn otherwise.
        versions = {**self.versions, "scikit-learn": version("scikit-learn")}
        return replace(self, learned=learned, versions=versions)

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
