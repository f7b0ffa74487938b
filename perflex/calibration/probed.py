"""Predictions by a short launch instead of the model: what is asked of a calibration, run on its device."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from perflex.calibration.interval import PredictionInterval
from perflex.calibration.its_device import device_of_calibration
from perflex.devices.wall_time import is_wall_time
from perflex.errors import CalibrationError
from perflex.timing.measuring import chosen_device
from perflex.timing.short_launch import probe_kernel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.calibration.record import CalibrationRecord
    from perflex.timing.launch.backend import TimedDevice
    from perflex.timing.short_launch import Probe

# Whether to launch, or where: True is the device that the calibration belongs to.
ProbeOn: TypeAlias = "bool | str | TimedDevice"


def probing_device(calibration: CalibrationRecord, probe: ProbeOn) -> TimedDevice:
    """Return where short launches run.

    Parameters
    ----------
    calibration
        The calibration.
    probe
        True for the device that it belongs to; a device, or parts of its name.

    Raises
    ------
    CalibrationError
        The output of the calibration's model is no wall time.
    DeviceError
        The calibration's device is not here, no working device fits, or several do.
    """
    output = calibration.model.output_feature
    if not is_wall_time(output):
        msg = f"a short launch measures a time, but the model's output {output} is not a time; predict without probe"
        raise CalibrationError(msg, feature=output)
    if isinstance(probe, bool):
        return device_of_calibration(output, calibration.device)
    return chosen_device(probe)


def probed_kernel(
    calibration: CalibrationRecord, kernel: Any, sizes: Mapping[str, Any], probe: ProbeOn, machine: object = None
) -> Probe:
    """Return what a short launch says of a kernel.

    Raises
    ------
    CalibrationError
        Sizes are arrays, the output of the calibration's model is no wall time, or a machine is given.
    DeviceError, MeasurementError, MissingSizeError
        As for `probe_kernel`, and the calibration's device is not here.
    """
    if machine is not None:
        msg = "a short launch evaluates no model, so it uses no machine; leave out machine or probe"
        raise CalibrationError(msg)
    if any(np.ndim(value) for value in sizes.values()):
        msg = "a short launch has one value for each size, not an array of them; probe one after another"
        raise CalibrationError(msg)
    return probe_kernel(getattr(kernel, "kernel", kernel), sizes, probing_device(calibration, probe))


def probed_interval(probe: Probe, confidence: float) -> PredictionInterval:
    """Return where a measurement of a probed kernel would lie: normal deviations of the logarithm.

    Raises
    ------
    CalibrationError
        The confidence is not between 0 and 1.
    """
    if not 0 < confidence < 1:
        msg = f"confidence must be a share between 0 and 1, e.g. 0.95, not {confidence}"
        raise CalibrationError(msg)
    factor = math.exp(statistics.NormalDist().inv_cdf((1 + confidence) / 2) * probe.deviation)
    return PredictionInterval(
        predicted=probe.seconds,
        low=probe.seconds / factor,
        high=probe.seconds * factor,
        confidence=confidence,
        standard_error=0.0,
        residual_deviation=probe.seconds * probe.deviation,
        degrees_of_freedom=math.inf,
    )
