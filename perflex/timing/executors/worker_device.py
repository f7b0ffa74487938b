"""What the workers of an executor measure on: asked before anything is, so that nothing is about the machine here."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from perflex.devices.device import Device, anywhere
from perflex.devices.listing import device_of, find_device, wall_time_identifier
from perflex.errors import DeviceError, MachineError
from perflex.machines.files import machine_of_device
from perflex.machines.host import reported_cpu
from perflex.timing.executors.batches import devices_here
from perflex.timing.executors.workers import Workers
from perflex.timing.isolation.affinity import Affinity, affinity_of

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from perflex.machines.host import ReportedCpu
    from perflex.timing.executors.workers import Answer
    from perflex.timing.launch.backend import TimedDevice


@dataclass(frozen=True)
class WorkerDevice:
    """A device of an executor's workers, which stands wherever one of this machine would: kernels are timed there.

    Attributes
    ----------
    device
        The device, whose facts are this one's, too; one of any host but in a local pool.
    output
        Its wall-time feature.
    cpu
        What the operating system there reports of a CPU that no machine file of perflex is about; None for others.
    affinity
        What decides on the processors of its workers.
    executor
        Whose workers have it.
    """

    device: TimedDevice
    output: str
    cpu: ReportedCpu | None
    affinity: Affinity
    executor: Executor = field(repr=False)

    def __str__(self) -> str:
        return str(self.device)

    def backend(self) -> NoReturn:
        """Refuse to run kernels in this process."""
        msg = f"kernels are timed on {self} by the workers of {type(self.executor).__name__}, not here"
        raise DeviceError(msg, device=self)

    def __getattr__(self, name: str) -> Any:
        # Before the fields are set, as while it is unpickled, there is no device to ask.
        if name == "device" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.device, name)


@dataclass(frozen=True)
class _Question:
    """What device is meant: one as it is known here, or what to look for there; and how kernels are run."""

    device: str | Device | None
    output: str | None
    isolate: bool


@dataclass(frozen=True)
class _Found:
    """What a worker found."""

    device: TimedDevice
    output: str
    cpu: ReportedCpu | None
    affinity: Affinity

    @property
    def kind(self) -> tuple[object, ...]:
        """What all workers have to agree in: their times are mixed."""
        return *getattr(self.device, "names", ()), self.affinity.setting

    def __str__(self) -> str:
        setting = self.affinity.setting
        driver = getattr(self.device, "driver", "")
        return f"{self.device} with driver {driver}{f' and {setting}' if setting else ''}"


def device_of_workers(
    executor: Executor, device: str | TimedDevice | None = None, output: str | None = None, *, isolate: bool = True
) -> WorkerDevice:
    """Return the device that the workers of an executor measure on.

    Parameters
    ----------
    executor
        Each worker that may measure is asked; those that answer otherwise than most are left out, with a warning.
    device
        A device, or parts of its name; None for the one that `output` names.
    output
        A wall-time feature; where it is None, too, the workers' default device is meant.
    isolate
        As of `TimingOptions`.

    Raises
    ------
    DeviceError
        No worker has such a device, or all that have one differ in what cannot be mixed.
    ExecutorError
        The executor failed.
    """
    if isinstance(device, WorkerDevice):
        return device
    if not (device is None or isinstance(device, (str, Device))):
        # One that brings a backend goes to workers as it is.
        return WorkerDevice(device, "f_cl_wall_time", None, affinity_of(device, isolate=isolate), executor)
    workers = Workers(executor)
    wanted = device if workers.are_local or device is None or isinstance(device, str) else anywhere(device)
    answers = workers.ask(_answer, _Question(wanted, output, isolate))
    found: list[_Found] = [answer.value for answer in answers if answer.error is None]
    if not found:
        raise next(answer.error for answer in answers if answer.error is not None)
    kind, _ = Counter(each.kind for each in found).most_common(1)[0]
    chosen = next(each for each in found if each.kind == kind)
    for answer in answers:
        if answer.error is not None or answer.value.kind != kind:
            error = answer.error or _other(answer, chosen)
            if not workers.leave_out(answer.worker, error.message):
                raise error
    there = chosen.device if workers.are_local else anywhere(chosen.device)
    return WorkerDevice(there, chosen.output, chosen.cpu, chosen.affinity, executor)


def _other(answer: Answer, chosen: _Found) -> DeviceError:
    msg = f"the worker on {answer.host} measures on {answer.value}, others on {chosen}: times of both cannot be mixed"
    return DeviceError(msg, device=chosen.device)


def _answer(question: _Question) -> _Found:
    """Answer in a worker."""
    device = _meant(question)
    # As for a calibration that is measured here; see `perflex.calibration.ready.cpu_here`.
    cpu = None
    with suppress(MachineError):  # not every system reports it, and not every model needs it
        cpu = reported_cpu() if device.kind == "cpu" and machine_of_device(device.name) is None else None
    return _Found(device, wall_time_identifier(device), cpu, affinity_of(device, isolate=question.isolate))


def _meant(question: _Question) -> Device:
    wanted = question.device
    try:
        if isinstance(wanted, Device):
            found = devices_here(wanted)[0]
            assert isinstance(found, Device)  # noqa: S101 - one was looked for
            return found
        return find_device(wanted) if wanted is not None or question.output is None else device_of(question.output)
    except DeviceError as error:
        # Equal ones that a name fits are one choice: any worker takes that which is free.
        fitting = error.context.get("devices", ())
        if not isinstance(fitting, tuple) or len({each.names for each in fitting}) != 1:
            raise
        return next(each for each in fitting if isinstance(each, Device))
