"""The parent's side of the process that runs kernels on one device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perflex.child_process import AskedProcess, ChildLostError
from perflex.errors import DeviceError
from perflex.timing.isolation.affinity import affinity_of

if TYPE_CHECKING:
    from perflex.devices.device import Device

_START_LIMIT_S = 60.0
# Asked for its own warnings to stay quiet: what the user makes of warnings is not meant for drivers.
_WORDS = ("-P", "-W", "ignore", "-m", "perflex.timing.isolation.worker")


class WorkerProcess:
    """A process that builds and runs kernels on one device, whose workers stay on their processors if they can.

    Parameters
    ----------
    device
        Where it runs kernels.

    Raises
    ------
    DeviceError
        No process can be started.
    """

    def __init__(self, device: Device) -> None:
        from perflex.devices.listing import list_devices

        list_devices()  # finds the drivers that work; the process inherits their list
        self.device = device
        self._ready = False
        try:
            self._child = AskedProcess(_WORDS, affinity_of(device, isolate=True).variables)
        except OSError as error:
            raise self._not_started(str(error)) from error

    @property
    def alive(self) -> bool:
        """Whether the process can be asked anything."""
        return self._child.alive

    def ask(self, what: str, number: int, argument: object, limit_s: float) -> Any:
        """Have a command done and return its result.

        Raises
        ------
        ChildLostError
            The process crashed, or gave no answer within the limit and was ended.
        PerflexError
            The command failed.
        DeviceError
            The process did not start.
        """
        self._start()
        return self._result((what, number, argument), limit_s)

    def end(self) -> None:
        """End the process: one that is idle is given the time to end by itself, one that still starts is not."""
        self._child.end(at_once=not self._ready)

    def _start(self) -> None:
        """Have the process open the device; it has been starting since this object was made."""
        if self._ready:
            return
        try:
            self._result(self.device, _START_LIMIT_S)
        except ChildLostError as lost:
            raise self._not_started(lost.reason) from lost
        self._ready = True

    def _result(self, request: object, limit_s: float) -> Any:
        happened, result, sound = self._child.ask(request, limit_s)
        if not sound:  # the device is lost to that process
            self.end()
        if happened == "failed":
            raise result
        return result

    def _not_started(self, reason: str) -> DeviceError:
        msg = (
            f"the process that runs kernels on {self.device} did not start: {reason}; "
            "TimingOptions(isolate=False) runs them without one"
        )
        return DeviceError(msg, device=self.device)
