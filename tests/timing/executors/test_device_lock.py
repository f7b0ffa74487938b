"""One process at a time measures on a device."""

import threading
import time
from dataclasses import replace

import pytest

from perflex import Device
from perflex.errors import DeviceError
from perflex.testing import FakeDevice
from perflex.timing.executors import portions as locks
from perflex.timing.executors.portions import device_lock, lock_path


def test_one_process_at_a_time_measures_on_a_device(tmp_path, monkeypatch):
    monkeypatch.setattr(locks.tempfile, "gettempdir", lambda: str(tmp_path))
    device = FakeDevice(lambda _, sizes: 1e-5 * sizes["n"])
    inside = 0
    most = 0

    def hold():
        nonlocal inside, most
        with device_lock(device):
            inside += 1
            most = max(most, inside)
            time.sleep(0.02)
            inside -= 1

    threads = [threading.Thread(target=hold) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    with (
        device_lock(device),
        pytest.raises(DeviceError, match=r"other processes have been measuring on fake device .*end them"),
        device_lock(device, patience_s=0),
    ):
        pass
    another = replace(device, name="another")
    with device_lock(device), device_lock(another, patience_s=0):
        pass
    # A lock that is a link is not followed.
    lock_path(another).unlink()
    lock_path(another).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DeviceError, match="cannot lock another"), device_lock(another):
        pass


def test_cpu_devices_of_a_machine_are_one():
    first, second = (Device("a platform", "v", name, "1", kind="cpu") for name in ("x", "y"))
    assert lock_path(first) == lock_path(second)
    assert lock_path(replace(first, kind="gpu")) != lock_path(replace(second, kind="gpu"))
    assert lock_path(replace(first, kind="gpu")) != lock_path(replace(first, kind="gpu", ordinal=1))
