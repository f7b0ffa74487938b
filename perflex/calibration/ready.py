"""Ready models by name, with their measurement kernels; ``general`` is that of the device's kind."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from perflex.calibration.device_speed import REFERENCE_RATE, multiply_add_rate
from perflex.devices.device import Device
from perflex.devices.wall_time import device_of, is_device_specific, is_wall_time, wall_time_identifier
from perflex.errors import CalibrationError
from perflex.models import GENERAL, load_model
from perflex.models.kernel_sets import measurement_kernels
from perflex.timing.measuring import chosen_device

if TYPE_CHECKING:
    from perflex.expression.model import Model
    from perflex.models import ModelDescription
    from perflex.store.records import Recorder
    from perflex.timing.launch.backend import TimedDevice
    from perflex.timing.options import TimingOptions
    from uipick import MeasurementKernel


@dataclass(frozen=True)
class ReadyModel:
    """A ready model on a device.

    Attributes
    ----------
    description
        As its file has it.
    model
        With the device's wall time as output.
    device
        Where it is calibrated.
    """

    description: ModelDescription
    model: Model
    device: TimedDevice

    def timing(self, usual: TimingOptions) -> TimingOptions:
        """Return how its kernels are timed where nothing else is said: as its file says, else as usual."""
        stated = self.description.timing
        trials = usual.trials if stated.trials is None else stated.trials
        return replace(
            usual,
            trials=trials,
            min_trials=min(usual.min_trials, trials),
            budget_s=usual.budget_s if stated.budget_s is None else stated.budget_s,
            precision=usual.precision if stated.precision is None else stated.precision,
        )

    def scale(self, recorder: Recorder | None = None) -> float:
        """Return the device's speed in multiples of what the kernels' sizes suit, from a short measurement.

        1 without a measurement where its file fixes the sizes. Arguments and errors as `multiply_add_rate`.
        """
        if self.description.fixed_sizes:
            return 1.0
        return multiply_add_rate(self.device, recorder) / REFERENCE_RATE

    def kernels(self, scale: float | None = None) -> list[MeasurementKernel]:
        """Return its measurement kernels, sized for the device."""
        return measurement_kernels(self.description, self.scale() if scale is None else scale)


def described_model(name: str, kind: str | None) -> ModelDescription:
    """Return the description of a ready model.

    Parameters
    ----------
    name
        As for `ready_model`.
    kind
        ``"cpu"`` or ``"gpu"``, or None where it is not known.

    Raises
    ------
    FileFormatError
        There is no such model, or its file is wrong.
    CalibrationError
        It is ``"general"``, and the kind is not known.
    """
    if name != GENERAL:
        return load_model(name)
    if kind is None:
        msg = (
            f"{GENERAL} is {GENERAL}_cpu or {GENERAL}_gpu, and the device is not known; name one of these, or a machine"
        )
        raise CalibrationError(msg)
    return load_model(f"{GENERAL}_cpu" if kind == "cpu" else f"{GENERAL}_gpu")


def ready_model(name: str, device: str | TimedDevice | None = None) -> ReadyModel:
    """Return a ready model on a device.

    Parameters
    ----------
    name
        Name or file, as for `load_model`, or ``"general"`` for ``general_cpu`` or ``general_gpu``.
    device
        A device, or parts of its name; by default the one that the model's output names, or the default device.

    Raises
    ------
    FileFormatError
        There is no such model, or its file is wrong.
    DeviceError
        No working device fits, or several do.
    """
    if name == GENERAL:
        where = chosen_device(device)
        description = described_model(name, getattr(where, "kind", ""))
        output = _output(where)
    else:
        description = load_model(name)
        # A device that is given comes before the one in the file; the model checks that its output is a wall time.
        stated = (not device and is_device_specific(description.output)) or not is_wall_time(description.output)
        where = device_of(description.output) if stated else chosen_device(device)
        output = description.output if stated else _output(where)
    return ReadyModel(description, description.model(output), where)


def _output(device: TimedDevice) -> str:
    # Devices of the user's own have no name among those of the machine.
    return wall_time_identifier(device) if isinstance(device, Device) else "f_cl_wall_time"
