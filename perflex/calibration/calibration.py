"""Calibrations: fitted parameters, the device they belong to, and how they were obtained."""

from __future__ import annotations

import os
from dataclasses import replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from perflex.calibration.assumed_facts import assumed_facts
from perflex.calibration.built_target import built_target
from perflex.calibration.calibration_file import FORMAT, calibration_content, read_calibration_parts
from perflex.calibration.doubts import (
    doubted_deviation,
    kernel_doubts,
    machine_doubts,
    value_doubts,
    warn_of_prediction,
)
from perflex.calibration.interval import interval_at
from perflex.calibration.prediction import Prediction
from perflex.calibration.record import CalibrationRecord
from perflex.calibration.row_predictions import knowledge_of, known_as, row_predictions
from perflex.calibration.transfer_prior import LaunchCosts
from perflex.errors import CalibrationError, FileFormatError, MachineError
from perflex.features.sized_kernel import kernel_name, with_own_sizes
from perflex.features.target import CACHES
from perflex.features.tiles.tile_kernel import TileKernel
from perflex.features.values import target_of
from perflex.machines.host import host_machine
from perflex.models import load_model
from perflex.yaml_file import read_yaml, write_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from perflex.calibration.interval import PredictionInterval
    from perflex.calibration.row_predictions import RowPredictions
    from perflex.features.target import Target
    from perflex.fit.table import FeatureTable
    from perflex.machines.machine import Machine


class Calibration(CalibrationRecord):
    """A model with its parameters on one device; the attributes are those of `CalibrationRecord`."""

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

        Warns
        -----
        DoubtfulPredictionWarning
            The calibration has no measurement kernels like it, or there is another reason not to rely on the
            prediction (`doubts`).

        Raises
        ------
        MissingSizeError
            A size parameter has no value.
        UnsupportedKernelError
            The kernel cannot be described exactly.
        MachineError
            A feature needs a machine that is not known, or lacks a fact of it; or the machine is a GPU and the
            calibration of a CPU, or the other way round.
        """
        found = self.explain(kernel, sizes, None, machine=machine)
        warn_of_prediction(found.doubts)
        return found.seconds

    def predict_interval(
        self,
        kernel: Any,
        sizes: Mapping[str, Any],
        confidence: float = 0.95,
        *,
        machine: str | Path | Machine | None = None,
    ) -> PredictionInterval:
        """Predict the output feature of a kernel, and where a measurement of it would lie.

        The interval holds what is not known of the parameters (their covariance, carried through the model's
        derivatives: the delta method), the noise of measurement kernels with similar times, and what kernels of a
        generator are predicted worse by when it is not among those fitted: the kernel is taken for one of another
        generator. It is wider outside of the range of the measurement kernels, and says so (``doubts``).

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

        Returns
        -------
        PredictionInterval
            ``predicted``, ``low`` and ``high`` in the output feature's unit: seconds for a wall time.

        Warns
        -----
        DoubtfulPredictionWarning
            As `predict`.

        Raises
        ------
        CalibrationError
            There were no more measurement kernels than parameters, or the prediction depends on a parameter
            that they do not determine.
        MissingSizeError, UnsupportedKernelError, MachineError
            As `predict`.
        """
        found = self.explain(kernel, sizes, confidence, machine=machine)
        warn_of_prediction(found.doubts)
        return cast("PredictionInterval", found.interval)

    def explain(
        self,
        kernel: Any,
        sizes: Mapping[str, Any],
        confidence: float | None = 0.95,
        *,
        machine: str | Path | Machine | None = None,
        name: str = "",
    ) -> Prediction:
        """Predict the output feature of a kernel, with all that is known of the prediction, and no warning.

        Parameters
        ----------
        kernel
            As for `predict`; also what a function launches by Triton (`perflex.triton.LaunchedKernel`).
        sizes
            Value of each size parameter of the kernel: numbers, or arrays of one shape.
        confidence
            Share of measurements that shall lie inside the interval; None for none, which takes less time.
        machine
            For features that need one, as for `predict`.
        name
            By which other devices' times know the kernel; by default its own.

        Returns
        -------
        Prediction
            What is predicted, limits, doubts, and what each cost adds.

        Raises
        ------
        CalibrationError
            As `predict_interval`, with a confidence; or the model is not one for Triton's kernels, and this is one.
        MissingSizeError, UnsupportedKernelError, MachineError
            As `predict`.
        """
        target = self.target(machine)
        kernel = self.compiled_for(target, kernel)
        values = self._values(kernel, sizes, target)
        unit, sizes = with_own_sizes(kernel, sizes)
        known = [] if self.transferred is None else known_as(self.transferred, kernel, sizes, name)
        more = (*kernel_doubts(self, unit, sizes, target), *assumed_facts(self, values, target.machine))
        interval, seconds, doubts = None, self.evaluate(values), value_doubts(self, values)
        if confidence is not None or self.transferred is not None:
            interval = interval_at(self, values, confidence or 0.95, known).doubted(*more)
            # The logarithms that a transferred calibration predicts are its parameters' with those of other devices.
            seconds, doubts = seconds if self.transferred is None else interval.predicted, interval.doubts
            if deviation := doubted_deviation(unit, sizes, target):
                interval = interval.widened(deviation)
        return Prediction(
            name or kernel_name(kernel),
            sizes,
            seconds,
            tuple(dict.fromkeys((*doubts, *more))),
            knowledge_of(self, unit, [label for label, _ in known]),
            values,
            self,
            interval if confidence is not None else None,
        )

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
        self, kernel: Any, sizes: Mapping[str, Any], *, machine: str | Path | Machine | None = None
    ) -> tuple[str, ...]:
        """Return reasons not to rely on a prediction, as short texts; none where there are none.

        That the calibration has no measurement kernels like it, conflict misses in a CPU's caches, and that large costs
        rest on facts of a GPU that its machine file assumes. Arguments and errors as `predict`.
        """
        return self.explain(kernel, sizes, None, machine=machine).doubts

    def feature_values(
        self, kernel: Any, sizes: Mapping[str, Any], *, machine: str | Path | Machine | None = None
    ) -> dict[str, Any]:
        """Return the value of each input feature, as predictions take it; arguments, warnings and errors as `predict`.

        Numbers, or arrays where sizes are arrays; ``evaluate`` and ``model.terms`` take them.
        """
        target = self.target(machine)
        return self._values(self.compiled_for(target, kernel), sizes, target)

    def compiled_for(self, target: Target, kernel: Any) -> Any:
        """Return the kernel as it is on the target's machine; an error where the model knows nothing of its kind."""
        if not isinstance(kernel, TileKernel):
            return kernel
        self.require_tiles()
        return kernel if target.machine is None else kernel.compiled_for(target.machine)

    def require_tiles(self) -> None:
        """Stop where the model knows nothing of Triton's kernels."""
        if not any(name.startswith(_OF_TILES) for name in self.model.input_features()):
            msg = (
                f"the calibration is of another model than {USUAL_TILES}, which predicts Triton kernels; leave it out, "
                f"or make one with: perflex calibrate {USUAL_TILES} --times"
            )
            raise CalibrationError(msg, model=self.model)

    def _values(self, kernel: Any, sizes: Mapping[str, Any], target: Target) -> dict[str, Any]:
        features, output = self.model.input_features(), self.model.output_feature
        values = self.model.feature_values(
            kernel, sizes, built_target(features, kernel, sizes, target, output, self.device)
        )
        if self.transferred is not None and (costs := self.transferred.launches) is not None:
            # In launches of the cost that the parameter has.
            values[_LAUNCH] = values[_LAUNCH] * getattr(costs, self.launches) / costs.gpu
        return values

    def assuming(self, *, launches: str | None = None, caches: str | None = None) -> Calibration:
        """Return the calibration with other assumptions for what it predicts.

        Parameters
        ----------
        launches
            What a time is of, where the calibration comes from times of other devices: ``"gpu"``, the GPU's own
            duration as profilers show it; ``"queued"``, launches back to back; ``"host"``, launches that the host waits
            for. None leaves it as it is.
        caches
            What a launch finds in a GPU's L2 cache: ``"warm"``, what the same run before has left; ``"cold"``, nothing.
            None leaves it as it is.

        Raises
        ------
        CalibrationError
            The calibration knows one kind of launches only, or its model has no feature that L2 caches matter for.
        """
        words = (launches, LaunchCosts.__struct_fields__, "launches"), (caches, CACHES, "caches")
        for given, known, name in words:
            if given is not None and given not in known:
                msg = f"{name} are one of {', '.join(known)}, not {given!r}"
                raise CalibrationError(msg)
        if launches is not None and (self.transferred is None or self.transferred.launches is None):
            msg = (
                "the calibration knows launches as its own times have them, and no others; leave out launches "
                "(--launches), which are for general_gpu without a calibration of the device"
            )
            raise CalibrationError(msg)
        if caches is not None and not any(name.startswith(_OF_CACHES) for name in self.model.input_features()):
            msg = "the model has no feature that depends on what a GPU's L2 holds; leave out caches (--caches)"
            raise CalibrationError(msg, model=self.model)
        return replace(self, launches=launches or self.launches, caches=caches or self.caches)

    def target(self, machine: str | Path | Machine | None = None) -> Target:
        """Return what predictions count features for; `machine` and errors as `predict`."""
        otherwise = self.machine if self.cpu is None else host_machine(self.cpu)
        features = self.model.input_features()
        platform = str(self.device.get("platform", ""))
        try:
            target = target_of(features, self.sub_group_size, machine, otherwise=otherwise, platform=platform)
        except MachineError as error:
            if machine is not None or otherwise != error.context.get("machine"):
                raise
            msg = f"the calibration rests on facts of {otherwise}, a file of yours; name it with --machine (machine=)"
            raise MachineError(msg, machine=otherwise) from error
        machine_doubts(self, target.machine)  # refuses machines of another kind
        # Without times of a device the counts are of no device either.
        size = None if self.has_samples or target.machine is None else target.machine.sub_group_size
        return replace(target, sub_group_size=size or target.sub_group_size, caches=self.caches)

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
        """Read a calibration from a YAML file that `save` wrote, or one that comes with perflex, by its name.

        ``general_gpu``, and ``general_tile`` for Triton's kernels, rest on no time of a device: name a machine where
        they predict.

        Raises
        ------
        FileFormatError
            The file cannot be read, is damaged, foreign or of a newer version: names the line and field. Or no
            calibration has that name: lists those there are.
        """
        # Unlike Path's, this says no of names that the system does not take.
        missing = not os.path.exists(path)  # noqa: PTH110
        if missing and str(path) == USUAL_TILES:
            from perflex.calibration.usual_prior import usual_parts

            return cls(**usual_parts(load_model(USUAL_TILES)))
        if missing and str(path) in calibration_names():
            # The package may lie in a zip archive, from which as_file unpacks the file for as long as it is read.
            with as_file(files(_HOME) / "calibrations" / f"{path}{_SUFFIX}") as shipped:
                return cls.load(shipped)
        if missing and Path(path).suffix not in {".yaml", ".yml"}:
            msg = f"no calibration is called {str(path)!r}; there are {', '.join(calibration_names())}, or name a file"
            raise FileFormatError(msg, path=path)
        return cls(**read_calibration_parts(read_yaml(path, FORMAT)))


USUAL_TILES = "general_tile"
"""The model of Triton's kernels, whose usual values are a calibration."""
_OF_TILES = "f_tile_"
_HOME = "perflex.calib_data"
_LAUNCH = "f_sync_kernel_launch"
_OF_CACHES = ("f_peak_dram", "f_peak_latency", "f_vol_dram_", "f_txn_dram")
_SUFFIX = ".yaml"


def calibration_names() -> list[str]:
    """Return the names of the calibrations that come with perflex, sorted."""
    folder = files(_HOME) / "calibrations"
    return sorted([USUAL_TILES, *(Path(one.name).stem for one in folder.iterdir() if one.name.endswith(_SUFFIX))])
