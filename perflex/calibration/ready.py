"""Ready models by name, with their measurement kernels; ``general`` is that of the device's kind.

How fast a device is, from one short kernel, says which sizes of measurement kernels suit it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from perflex.calibration.gathering import info_of
from perflex.devices.device import Device
from perflex.devices.listing import is_device_specific, is_wall_time, wall_time_identifier
from perflex.errors import CalibrationError, warn
from perflex.expression.roles import roles_with_costs_for_rates
from perflex.features.sized_kernel import SizedKernel
from perflex.features.target import machine_in_use
from perflex.fit.options import FitOptions
from perflex.fit.result import parameter_units
from perflex.machines.files import machine_of_device
from perflex.machines.host import reported_cpu
from perflex.models import GENERAL, ModelDescription, load_model, measurement_kernels
from perflex.store.resume import current_recorder
from perflex.timing.executors.worker_device import WorkerDevice, device_of_workers
from perflex.timing.measuring import chosen_device
from perflex.timing.options import TimingOptions
from perflex.timing.results import MeasurementFailure

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from concurrent.futures import Executor

    from perflex.expression.model import Model
    from perflex.machines.host import ReportedCpu
    from perflex.timing.launch.backend import TimedDevice
    from perflex.timing.results import Timing
    from uipick import MeasurementKernel

# The shipped models' sizes suit a device of this many single-precision multiply-adds per second.
REFERENCE_RATE = 1.7e11
_PILOT = ("flops_madd_pattern", "dtype:float32", "lsize_0:16", "lsize_1:16", "groups_fit:True", "m:64")
# Multiply-adds of the pilot for each of its elements: 32 in each of m = 64 iterations.
_PER_ELEMENT = 32 * 64
# A fast device is done with few elements before its timer can tell, so more follow until a launch takes long enough.
_PILOT_ELEMENTS = (32768, 1048576, 16777216)
# A simulator of a device does not end with them: it gets one work-group.
_SHORTEST_PILOT, _LEAST_ELEMENTS = (*_PILOT, "lid_stride_1:16"), 256
_LONG_ENOUGH_S = 2e-4
# What may be a model's name or its file; else it is a model string.
_WORD = re.compile(r"(?!p_)[\w./\\:~-]+")
_TOO_SLOW = ("hang", "limit")


def multiply_add_rate(device: TimedDevice) -> float | None:
    """Return the device's multiply-adds per second, from one short measurement kernel, timed by workers if there are.

    None with a `PerflexWarning` where the kernel does not run on the device; others may. A `MeasurementError` where the
    shortest does not end within the time limit of a launch. A run that goes on finds the rate, and so the sizes, that
    it had.
    """
    rate = None
    for usual in _PILOT_ELEMENTS:
        elements, outcome = usual, _pilot(device, _PILOT, usual)
        if rate is None and isinstance(outcome, MeasurementFailure) and outcome.kind in _TOO_SLOW:
            elements, outcome = _LEAST_ELEMENTS, _pilot(device, _SHORTEST_PILOT, _LEAST_ELEMENTS)
        if isinstance(outcome, MeasurementFailure):
            # A device on which the shortest kernel does not end has hours of others before it.
            if rate is None and outcome.kind in _TOO_SLOW:
                raise outcome.error
            if rate is None:
                msg = f"{outcome.reason}; so the device's speed is not known, and kernels keep the model file's sizes"
                warn(msg)
            break
        rate = elements * _PER_ELEMENT / outcome.seconds
        if outcome.seconds >= _LONG_ENOUGH_S:
            break
    return rate


def _pilot(device: TimedDevice, tags: Sequence[str], elements: int) -> Timing | MeasurementFailure:
    from perflex.timing.measuring import measure
    from uipick import ALL_GENERATORS, KernelCollection

    (kernel,) = KernelCollection(ALL_GENERATORS).generate_kernels(tags, {"nelements": (elements,)})
    (outcome,) = measure(
        [SizedKernel(kernel.kernel, kernel.sizes, kernel.name)],
        device,
        # The rate only sets sizes, so a few trials are enough.
        TimingOptions(trials=5, min_trials=3, budget_s=1.0),
        recorder=current_recorder(),
    )
    return outcome


def scale_of(rate: float | None) -> float:
    """Return a rate of `multiply_add_rate` in multiples of `REFERENCE_RATE`; 1 where it is not known."""
    return 1.0 if rate is None else rate / REFERENCE_RATE


@dataclass(frozen=True)
class ReadyModel:
    """A ready model on a device."""

    description: ModelDescription
    # With the device's wall time as output.
    model: Model
    device: TimedDevice

    @property
    def timing(self) -> TimingOptions:
        """How its kernels are timed where nothing else is said: as its file says, else as usual."""
        usual, stated = TimingOptions(), self.description.timing
        trials = usual.trials if stated.trials is None else stated.trials
        return replace(
            usual,
            trials=trials,
            min_trials=min(usual.min_trials, trials),
            budget_s=usual.budget_s if stated.budget_s is None else stated.budget_s,
            precision=usual.precision if stated.precision is None else stated.precision,
        )

    @cached_property
    def scale(self) -> float:
        """The device's speed in multiples of what the kernels' sizes suit, from a short measurement.

        1 without a measurement where its file fixes the sizes, and where it fails.
        """
        if self.description.fixed_sizes:
            return 1.0
        return scale_of(multiply_add_rate(self.device))

    def kernels(self) -> list[MeasurementKernel]:
        """Return its measurement kernels, sized for the device."""
        return measurement_kernels(self.description, self.scale)


def _checked(description: ModelDescription) -> ModelDescription:
    """Return a description, if its units of costs are those of the expression, and more words where it has some."""
    model = description.model()
    if not is_wall_time(model.output_feature):
        return description
    units = parameter_units(model, roles_with_costs_for_rates(model.tree), info_of(model.input_features()))
    for name, found in units.items():
        # Of products of features there are better words.
        stated, named = description.parameters[name].unit, found.unit and not set("*^") & set(found.unit)
        if named and stated != found.unit and not stated.startswith(f"{found.unit} "):
            msg = (
                f"the model {description.name} states {stated!r} as the unit of {name}, which is {found.unit!r} by its "
                "expression; correct it"
            )
            raise CalibrationError(msg, parameter=name)
    return description


def usual_fit(description: ModelDescription, undetermined: Literal["error", "warn"] | None = None) -> FitOptions:
    """Return how a ready model is fitted where nothing else is said but what to do of undetermined parameters."""
    usual = description.fit
    return FitOptions(residual=usual.residual, on_undetermined=undetermined or usual.on_undetermined)


def described_model(name: str, kind: str | None) -> ModelDescription:
    """Return the description of a ready model; of a model string one without measurement kernels."""
    if _WORD.fullmatch(name) is None and not name.endswith((".yaml", ".yml")):
        return ModelDescription(name, "a model string", "f_cl_wall_time", name, fixed_sizes=True)
    if name != GENERAL:
        return _checked(load_model(name))
    if kind is None:
        msg = (
            f"{GENERAL} is {GENERAL}_cpu or {GENERAL}_gpu, and the device is not known; name one of these, or a machine"
        )
        raise CalibrationError(msg)
    return load_model(f"{GENERAL}_cpu" if kind == "cpu" else f"{GENERAL}_gpu")


def ready_model(name: str, device: str | TimedDevice | None = None, executor: Executor | None = None) -> ReadyModel:
    """Return a ready model on a device; one that is not given, or named, is an executor's workers' if there is one."""
    if name == GENERAL:
        where, output = found_device(device, None, executor)
        description = described_model(name, getattr(where, "kind", ""))
    else:
        description = described_model(name, None)
        # A device that is given comes before the one in the file; the model checks that its output is a wall time.
        stated = (not device and is_device_specific(description.output)) or not is_wall_time(description.output)
        where, output = found_device(None if stated else device, description.output if stated else None, executor)
        output = description.output if stated else output
    return ReadyModel(description, description.model(output), where)


def found_device(
    device: str | TimedDevice | None, output: str | None, executor: Executor | None = None
) -> tuple[TimedDevice, str]:
    """Return a device of this machine or, with an executor, of its workers, and its wall time."""
    where = chosen_device(device, output) if executor is None else device_of_workers(executor, device, output)
    if isinstance(where, WorkerDevice):
        return where, where.output
    # Devices of the user's own have no name among those of the machine.
    return where, wall_time_identifier(where) if isinstance(where, Device) else "f_cl_wall_time"


def own_cpu(device: TimedDevice | None, features: Iterable[str]) -> ReportedCpu | None:
    """Return what the operating system reports of the CPU that features need a machine of.

    None where no feature needs one, and as for `cpu_here`.
    """
    from perflex.features import parse_feature

    if not any(parse_feature(name).family.needs == "machine" for name in features):
        return None
    return cpu_here(device)


def cpu_here(device: TimedDevice | None) -> ReportedCpu | None:
    """Return what the operating system reports of a CPU, that of workers where the device is theirs.

    None where a machine is in use (`using_machine`) or comes with perflex under the device's name, and where the device
    is no CPU.
    """
    if isinstance(device, WorkerDevice) and machine_in_use() is None:
        return device.cpu
    if not isinstance(device, Device) or device.kind != "cpu" or machine_in_use() is not None:
        return None
    return None if machine_of_device(device.name) is not None else reported_cpu()
