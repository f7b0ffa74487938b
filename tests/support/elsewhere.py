"""Workers on other machines, in this process: each sees its own devices, which take as long as a law says."""

from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from unittest import mock

from perflex.devices.device import DeviceInfo
from perflex.testing import FakeDevice
from perflex.timing.executors.worker_device import device_of_workers
from perflex.timing.isolation.affinity import Affinity
from perflex.timing.measuring import measure

PLACES = ("perflex.timing.executors.batches", "perflex.timing.executors.worker_device")


def measure_on(executor, kernels, device, *arguments, **options):
    """Time kernels on a device of an executor's workers."""
    return measure(kernels, device_of_workers(executor, device), *arguments, **options)


class Backend:
    """Takes the law's times for kernels, whatever they are built from."""

    timer_resolution_s = 1e-9

    def __init__(self, device, law):
        self.device = device
        self._plain = FakeDevice(law).backend()

    def build(self, request):
        return self._plain.build(request)

    def close(self):
        pass


@dataclass
class Worker:
    """A machine: its devices, the setting of its processors, and the law of their times."""

    name: str
    devices: tuple
    law: object
    setting: str = ""

    @contextmanager
    def here(self):
        """Make this process look like one of that machine."""
        infos = tuple(DeviceInfo(replace(each, host=self.name), True, "", "a test") for each in self.devices)
        infos = tuple(replace(info, default=number == 0) for number, info in enumerate(infos))
        settings = Affinity({}, self.setting, self.setting)
        with (
            mock.patch("perflex.devices.listing._listed", return_value=(infos, ())),
            mock.patch("socket.gethostname", return_value=self.name),
            mock.patch(f"{PLACES[0]}.affinity_of", return_value=settings),
            mock.patch(f"{PLACES[1]}.affinity_of", return_value=settings),
            mock.patch("perflex.timing.timer.open_backend", lambda device, _: Backend(device, self.law)),
        ):
            yield


class Cluster(Executor):
    """An executor that knows its workers, and does the work when it is handed in: each worker in turn."""

    def __init__(self, *workers):
        self.workers = {worker.name: worker for worker in workers}
        self.done = []

    def _by(self, worker, function, *arguments):
        future = Future()
        with worker.here():
            result = function(*arguments)
        self.done.append((worker.name, arguments[0].function.__name__))
        future.set_result(replace(result, worker=worker.name))
        return future

    def device(self, device=None):
        return device_of_workers(self, device)

    def measuring_slots(self):
        return len(self.workers)

    def submit_measuring(self, function, work):
        self.workers[name] = worker = self.workers.pop(name := next(iter(self.workers)))
        return self._by(worker, function, work)

    def submit_to_each(self, function, work):
        return [self._by(worker, function, work) for worker in self.workers.values()]

    def leave_out(self, worker):
        del self.workers[worker]

    def submit(self, function, /, *arguments, **options):
        future = Future()
        future.set_result(function(*arguments, **options))
        return future
