"""What the workers of an executor measure on: asked before anything is, so that nothing is about the machine here."""

from __future__ import annotations

import socket
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from perflex.devices.device import Device, anywhere
from perflex.devices.listing import wall_time_identifier
from perflex.errors import DeviceError, PerflexError
from perflex.machines.files import machine_of_device
from perflex.machines.host import reported_cpu
from perflex.timing.executors.pool import Pool
from perflex.timing.executors.portions import devices_here, require_version
from perflex.timing.isolation.affinity import Affinity, affinity_of
from perflex.timing.measuring import chosen_device
from perflex.version import __version__

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from perflex.machines.host import ReportedCpu
    from perflex.timing.launch.backend import TimedDevice


@dataclass(frozen=True)
class WorkerDevice:
    """What workers measure on.

    Attributes
    ----------
    device
        The device; one of any host but in a local pool.
    output
        Its wall-time feature.
    cpu
        What the operating system there reports of a CPU that no machine file of perflex is about; None for others, and
        where it was not asked for.
    affinity
        What decides on the processors of its workers.
    """

    device: TimedDevice
    output: str
    cpu: ReportedCpu | None
    affinity: Affinity

    @property
    def kind(self) -> tuple[object, ...]:
        """What all workers have to agree in: their times are mixed."""
        return *getattr(self.device, "names", ()), self.affinity.setting


@dataclass(frozen=True)
class Question:
    """What device is meant: one as it is known here, or what to look for there; and how kernels are run."""

    version: str
    device: str | Device | None
    output: str | None
    isolate: bool
    # Whether the machine's CPU is wanted, too.
    cpu: bool


@dataclass(frozen=True)
class Answer:
    """What a worker found, or why it found nothing; `worker` is its address where the executor knows one."""

    found: WorkerDevice | None
    error: PerflexError | None = None
    host: str = ""
    worker: str = ""


def device_of_workers(
    executor: Executor,
    device: str | TimedDevice | None,
    output: str | None = None,
    *,
    isolate: bool = True,
    cpu: bool = False,
) -> WorkerDevice:
    """Return what the workers of an executor measure on.

    Parameters
    ----------
    executor
        Each worker that may measure is asked; those that answer otherwise than most are left out, with a warning.
    device
        A device, or parts of its name; None for the one that `output` names.
    output
        A wall-time feature; where it is None, too, the default device is meant.
    isolate
        As of `TimingOptions`.
    cpu
        Whether to tell of the machine's CPU.

    Raises
    ------
    DeviceError
        No worker has such a device, or all that have one differ in what cannot be mixed.
    ExecutorError
        The executor failed.
    """
    if not (device is None or isinstance(device, (str, Device))):
        # One that brings a backend goes to workers as it is.
        return WorkerDevice(device, "f_cl_wall_time", None, affinity_of(device, isolate=isolate))
    with closing(Pool(executor)) as pool:
        wanted = device if pool.is_local or device is None or isinstance(device, str) else anywhere(device)
        answers = pool.ask(_answer, Question(__version__, wanted, output, isolate, cpu))
    found = [answer.found for answer in answers if answer.found is not None]
    if not found:
        raise next(answer.error for answer in answers if answer.error is not None)
    kind, _ = Counter(each.kind for each in found).most_common(1)[0]
    chosen = next(each for each in found if each.kind == kind)
    for answer in answers:
        if answer.found is None or answer.found.kind != kind:
            error = answer.error or _other(answer, chosen)
            if not pool.leave_out(answer.worker, error.message):
                raise error
    return chosen if pool.is_local else replace(chosen, device=anywhere(chosen.device))


def _other(answer: Answer, chosen: WorkerDevice) -> DeviceError:
    words = [_in_words(each) for each in (answer.found, chosen) if each is not None]
    msg = f"the worker on {answer.host} measures on {words[0]}, others on {words[1]}: times of both cannot be mixed"
    return DeviceError(msg, device=chosen.device)


def _in_words(found: WorkerDevice) -> str:
    setting = found.affinity.setting
    driver = getattr(found.device, "driver", "")
    return f"{found.device} with driver {driver}{f' and {setting}' if setting else ''}"


def _answer(question: Question) -> Answer:
    """Answer in a worker."""
    host = socket.gethostname()
    try:
        require_version(question.version)
        device = _meant(question)
        # As for a calibration that is measured here; see `perflex.calibration.ready.cpu_here`.
        wanted = question.cpu and device.kind == "cpu" and machine_of_device(device.name) is None
        cpu = reported_cpu() if wanted else None
        affinity = affinity_of(device, isolate=question.isolate)
        return Answer(WorkerDevice(device, wall_time_identifier(device), cpu, affinity), host=host)
    except PerflexError as error:
        return Answer(None, error.alone(), host=host)


def _meant(question: Question) -> Device:
    found: TimedDevice
    try:
        wanted = question.device
        found = devices_here(wanted)[0] if isinstance(wanted, Device) else chosen_device(wanted, question.output)
    except DeviceError as error:
        # Equal ones that a name fits are one choice: any worker takes that which is free.
        fitting = error.context.get("devices", ())
        if not isinstance(fitting, tuple) or len({each.names for each in fitting}) != 1:
            raise
        found = fitting[0]
    assert isinstance(found, Device)  # noqa: S101 - one was looked for
    return found
