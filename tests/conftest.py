"""What all tests share: the OpenCL loader sees the embedded runtime, and fixtures for devices."""

import atexit
import os
import signal
import sys
import tempfile
from pathlib import Path

import hypothesis
import pytest
from hypothesis.internal.conjecture import providers

from perflex import list_devices
from perflex.devices.drivers import find_drivers, set_icd_folder

# Before any test queries platforms: a loader looks for drivers only once per process.
set_icd_folder(find_drivers())

# A shell ignores interrupts in what it runs in the background; tests send some, to themselves and to their children.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Commands print as into a pipe, and Python as it does unless told otherwise. A test run that is spread over processes
# sets a width.
for _name in (
    *("COLUMNS", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"),
    *("PYTHONFAULTHANDLER", "PYTHONDEVMODE", "PYTHONWARNINGS"),
):
    os.environ.pop(_name, None)

# Tests, and the processes they start, remember counts in a file of their own.
_STORE_FOLDER = tempfile.TemporaryDirectory(prefix="perflex-tests-")
atexit.register(_STORE_FOLDER.cleanup)
os.environ["PERFLEX_STORE"] = str(Path(_STORE_FOLDER.name, "store.sqlite"))


# The same examples in each run, however long they take, and whatever modules were imported before.
hypothesis.settings.register_profile("same", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("same")
providers._get_local_constants = lambda: providers._local_constants

# Fixtures of real devices, and of a compiler in the place of one. Who asks for them needs a machine that has them.
OF_MACHINE = {"real_devices", "contexts", "cuda_device", "fake_cupy"}


def pytest_itemcollected(item):
    """Mark what depends on the machine by its nature: tests of real devices, and those that may skip."""
    asks = OF_MACHINE.intersection(getattr(item, "fixturenames", ()))
    if asks or item.get_closest_marker("skipif") or item.get_closest_marker("gpu"):
        item.add_marker(pytest.mark.machine)


def is_of_machine(item):
    """Return whether a test may depend on the machine it runs on."""
    return item.get_closest_marker("machine") is not None


@pytest.fixture(autouse=True)
def _same_on_each_machine(request, monkeypatch):
    """Hide devices, drivers and programs from tests that are the same on each machine; limits only end hangs."""
    if is_of_machine(request.node):
        return
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    monkeypatch.setattr("perflex.devices.listing._listed", lambda: ((), ()))
    monkeypatch.setattr("perflex.devices.cuda.linker_cache", dict)
    monkeypatch.setattr("perflex.devices.cuda.DRIVER_FOLDERS", ())
    monkeypatch.setattr("perflex.devices.probing.cupy_is_installed", lambda: False)
    monkeypatch.setattr("perflex.devices.probing._TIME_LIMIT_S", 120.0)
    monkeypatch.setattr("perflex.child_process._END_LIMIT_S", 120.0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """Let a test that is the same on each machine fail where it skips: nobody would see that it no longer runs."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and not is_of_machine(item):
        report.outcome = "failed"
        report.longrepr = f"skipped, but only tests marked 'machine' may: {report.longrepr}"
    return report


@pytest.fixture(scope="session")
def real_devices():
    """Every OpenCL device that works and keeps time, the default one first."""
    infos = [info for info in list_devices() if info.usable and not info.device.is_simulator]
    infos = [info for info in infos if info.device.api == "opencl"]
    if not infos:
        pytest.skip("no usable OpenCL device")
    return [info.device for info in sorted(infos, key=lambda info: not info.default)]


@pytest.fixture(scope="session")
def default_device(real_devices):
    """The OpenCL device that is taken when none is named."""
    return real_devices[0]


@pytest.fixture(scope="session")
def cuda_device():
    """A real device that is reached through CUDA."""
    for info in list_devices():
        if info.usable and info.device.api == "cuda":
            return info.device
    pytest.skip("no usable CUDA device")


@pytest.fixture(scope="session")
def contexts():
    """Return an OpenCL context on the first device of each platform; simulators are left out."""
    cl = pytest.importorskip("pyopencl")
    try:
        platforms = cl.get_platforms()
    except cl.Error:
        platforms = []
    devices = [p.get_devices()[0] for p in platforms if p.name != "Oclgrind" and p.get_devices()]
    if not devices:
        pytest.skip("no OpenCL platform on this machine")
    return [cl.Context([device]) for device in devices]
