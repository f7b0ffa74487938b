"""Whether a GPU lowers its clock is told by NVIDIA's driver, faked here, and by nobody else."""

import sys
from types import ModuleType, SimpleNamespace

import loopy as lp
import numpy as np
import pytest

from perflex.timing.launch import watch as module
from perflex.timing.launch.cuda import CudaBackend
from perflex.timing.launch.launch_times import LaunchTimes, joined_activity
from perflex.timing.launch.opencl import OpenCLBackend
from perflex.timing.launch.watch import SystemActivity, clock_watch, opencl_bus_ids
from support.building import built
from support.cuda_for_tests import fake_cupy, fake_gpu

__all__ = ["fake_cupy", "fake_gpu"]

HERE = "0000:01:00.0"
# nvml.h's names of bits.
IDLE, APPLICATION_CLOCKS, POWER_CAP, HW_SLOWDOWN, SYNC_BOOST = 0x1, 0x2, 0x4, 0x8, 0x10
SW_THERMAL, HW_THERMAL, POWER_BRAKE, DISPLAY_CLOCKS = 0x20, 0x40, 0x80, 0x100


class FakeNvml(ModuleType):
    """What perflex uses of nvidia-ml-py, with its names and errors; readings come one after another, the last stays."""

    class NVMLError(Exception):
        pass

    class NVMLError_FunctionNotFound(NVMLError):  # noqa: N801, N818
        pass

    def __init__(self):
        super().__init__("pynvml")
        self.places = {HERE: "first"}
        self.readings = [0]
        self.asked = []
        self.open = 0
        self.old_driver = self.no_driver = False
        # As importlib.util.find_spec looks for it among loaded modules.
        self.__spec__ = SimpleNamespace(name="pynvml")

    def nvmlInit(self):  # noqa: N802
        if self.no_driver:
            msg = "NVML Shared Library Not Found"
            raise self.NVMLError(msg)
        self.open += 1

    def nvmlShutdown(self):  # noqa: N802
        if not self.open:
            msg = "Uninitialized"
            raise self.NVMLError(msg)
        self.open -= 1

    def nvmlDeviceGetHandleByPciBusId(self, place):  # noqa: N802
        if place not in self.places:
            msg = "Not Found"
            raise self.NVMLError(msg)
        return self.places[place]

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle):  # noqa: N802
        if self.old_driver:
            msg = "Function Not Found"
            raise self.NVMLError_FunctionNotFound(msg)
        return self.nvmlDeviceGetCurrentClocksThrottleReasons(handle)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle):  # noqa: N802
        self.asked.append(handle)
        found = self.readings.pop(0) if len(self.readings) > 1 else self.readings[0]
        if isinstance(found, Exception):
            raise found
        return found


@pytest.fixture
def nvml(monkeypatch):
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    yield fake
    assert fake.open == 0


SILENT = FakeNvml.NVMLError("Not Supported")


@pytest.mark.parametrize("old_driver", [False, True])
@pytest.mark.parametrize(
    ("before", "after", "throttled"),
    [
        # Heat and power count, before or after the launches.
        *((reason, 0, True) for reason in (POWER_CAP, HW_SLOWDOWN, SW_THERMAL, HW_THERMAL, POWER_BRAKE)),
        (IDLE, HW_THERMAL | SYNC_BOOST, True),
        # One reading is enough to know that the clock was lowered.
        (SILENT, POWER_CAP, True),
        (POWER_CAP, SILENT, True),
        # Other reasons do not count.
        *((reason, reason, False) for reason in (0, IDLE, APPLICATION_CLOCKS, SYNC_BOOST, DISPLAY_CLOCKS)),
        # What the driver does not tell is not guessed.
        (SILENT, SILENT, None),
        (0, SILENT, None),
        (SILENT, 0, None),
    ],
)
def test_what_the_driver_tells_before_and_after_the_launches(before, after, throttled, old_driver, nvml):
    nvml.readings, nvml.old_driver = [before, after], old_driver
    watch = clock_watch([HERE])
    found = watch.activity_since(watch.reading())
    watch.close()
    assert nvml.asked[-2:] == ["first", "first"]
    assert found == (None if throttled is None else SystemActivity(throttled=throttled))


def test_clock_temperature_and_processes_are_recorded(nvml, monkeypatch):
    clocks = iter([1980, 1410])
    facts = {
        "nvmlDeviceGetClockInfo": lambda _handle, kind: {1: next(clocks)}[kind],
        "nvmlDeviceGetTemperature": lambda _handle, _sensor: 61,
        "nvmlDeviceGetComputeRunningProcesses": lambda _handle: [SimpleNamespace(pid=pid) for pid in (1, 7, 7, 9)],
    }
    for name, function in facts.items():
        monkeypatch.setattr(nvml, name, function, raising=False)
    watch = clock_watch([HERE])
    found = watch.activity_since(watch.reading())
    watch.close()
    assert found == SystemActivity(throttled=False, clock_hz=1.41e9, temperature_c=61, other_processes=2)
    assert joined_activity([found, SystemActivity(throttled=True, clock_hz=1e9, temperature_c=70)]) == SystemActivity(
        throttled=True, clock_hz=1e9, temperature_c=70
    )


def test_without_the_package_or_the_library_there_is_no_watch(monkeypatch, nvml):
    nvml.no_driver = True
    assert clock_watch([HERE]) is None
    nvml.no_driver = False
    with monkeypatch.context() as earlier:  # versions that do not know the question
        earlier.delattr(FakeNvml, "nvmlDeviceGetCurrentClocksEventReasons")
        assert clock_watch([HERE]) is None
    monkeypatch.setitem(sys.modules, "pynvml", None)  # as where it is not installed
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda _: None)
    assert clock_watch([HERE]) is None


def test_a_device_that_is_not_found_or_not_the_only_one_is_not_watched(nvml):
    nvml.places["00000000:08:01.0"] = nvml.places["00000000:08:08.0"] = "other"
    for places in ([], ["0000:07:00.0"], ["00000000:08:01.0", "00000000:08:08.0"]):
        assert clock_watch(places) is None
    clock_watch(["0000:07:00.0", HERE, HERE]).close()


def test_nvidias_opencl_says_where_a_device_is():
    def found(domain, bus, slot):
        device = SimpleNamespace(pci_domain_id_nv=domain, pci_bus_id_nv=bus, pci_slot_id_nv=slot)
        return opencl_bus_ids(device, RuntimeError)

    assert found(0, 0x3B, 0) == ("00000000:3b:00.0",)
    # Number 5 on the bus, with that of the function or without.
    assert found(1, 2, 5 << 3) == ("00000001:02:05.0", "00000001:02:28.0")
    assert found(1, 2, 5) == ("00000001:02:00.0", "00000001:02:05.0")


def test_opencl_devices_of_others_are_not_asked_for(nvml, default_device):
    class Other:
        @property
        def pci_domain_id_nv(self):
            raise RuntimeError

    assert opencl_bus_ids(Other(), RuntimeError) == ()
    opened = OpenCLBackend(default_device)
    assert opened._clock_watch() is None
    opened.close()
    assert not nvml.asked


def kernel():
    made = lp.make_kernel("{[i]: 0<=i<n}", "b[i] = 2*a[i]", assumptions="n>=1", lang_version=(2018, 2))
    return lp.split_iname(lp.add_dtypes(made, {"a": np.float32, "b": np.float32}), "i", 32, outer_tag="g.0")


def test_launches_through_cuda_carry_what_the_driver_says(nvml, fake_gpu):
    backend = CudaBackend(fake_gpu)
    runnable = built(backend, kernel(), {"n": 64}, "x")
    found = []
    for readings in ([IDLE, 0], [0, SW_THERMAL], [FakeNvml.NVMLError("GPU is lost")]):
        nvml.readings = list(readings)
        times = runnable.run(2)
        assert isinstance(times, LaunchTimes)
        assert len(times.seconds) == 2
        found.append(times.activity)
    assert found == [SystemActivity(throttled=False), SystemActivity(throttled=True), None]
    assert set(nvml.asked) == {"first"}
    backend.close()


@pytest.mark.gpu
def test_a_real_driver_tells(cuda_device):
    pytest.importorskip("pynvml")
    backend = CudaBackend(cuda_device)
    times = built(backend, kernel(), {"n": 1 << 20}, "x").run(3)
    backend.close()
    assert isinstance(times.activity.throttled, bool)
