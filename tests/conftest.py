"""What all tests share: the OpenCL loader sees the embedded runtime, and fixtures for devices."""

from __future__ import annotations

import atexit
import os
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from perflex import list_devices
from perflex.devices.survey import find_vendors, show_to_loader

if TYPE_CHECKING:
    from perflex import Device

# Before any test queries platforms: a loader looks for drivers only once per process.
show_to_loader(find_vendors())

# A shell ignores interrupts in what it runs in the background; tests send some, to themselves and to their children.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A test run that is spread over processes sets a width; commands are to print as into a pipe.
os.environ.pop("COLUMNS", None)

# Tests, and the processes they start, remember counts in a file of their own.
_STORE_FOLDER = tempfile.TemporaryDirectory(prefix="perflex-tests-")
atexit.register(_STORE_FOLDER.cleanup)
os.environ["PERFLEX_STORE"] = str(Path(_STORE_FOLDER.name, "store.sqlite"))


# What tests ask for that run on each OpenCL platform there is, and folders whose tests list devices.
ON_PLATFORMS = {"real_devices", "contexts"}
OF_DEVICES = {"devices", "launch", "isolation"}


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests that see more where more OpenCL platforms or a simulator are installed."""
    asks = ON_PLATFORMS.intersection(getattr(item, "fixturenames", ()))
    simulated = any("Oclgrind" in str(mark.kwargs.get("reason")) for mark in item.iter_markers("skipif"))
    if asks or simulated or item.get_closest_marker("device") or item.path.parent.name in OF_DEVICES:
        item.add_marker(pytest.mark.platform)


@pytest.fixture(scope="session")
def real_devices() -> list[Device]:
    """Every OpenCL device that works and keeps time, the default one first."""
    infos = [info for info in list_devices() if info.usable and not info.device.is_simulator]
    infos = [info for info in infos if info.device.api == "opencl"]
    if not infos:
        pytest.skip("no usable OpenCL device")
    return [info.device for info in sorted(infos, key=lambda info: not info.default)]


@pytest.fixture(scope="session")
def default_device(real_devices: list[Device]) -> Device:
    """The OpenCL device that is taken when none is named."""
    return real_devices[0]


@pytest.fixture(scope="session")
def cuda_device() -> Device:
    """A real device that is reached through CUDA."""
    for info in list_devices():
        if info.usable and info.device.api == "cuda":
            return info.device
    pytest.skip("no usable CUDA device")


@pytest.fixture(scope="session")
def contexts() -> list[Any]:
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
