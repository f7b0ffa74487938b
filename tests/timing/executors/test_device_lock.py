"""One process at a time measures on a device."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import pytest

from failing_kernels import good
from perflex import Device, TimingOptions, tune
from perflex.errors import DeviceError, PerflexWarning
from perflex.features import SizedKernel
from perflex.testing import FakeDevice
from perflex.timing import device_lock as locks
from perflex.timing.device_lock import device_lock, lock_path
from perflex.timing.key import measurement_key
from perflex.timing.measuring import measure
from support.elsewhere import Backend
from support.scripted_device import jobs
from support.spaces_for_tests import small_space


def refused(device):
    """Return why another thread does not get a device's lock at once; nothing where it does."""

    def take():
        try:
            with device_lock(device, patience_s=0):
                return ""
        except DeviceError as error:
            return str(error)

    with ThreadPoolExecutor(1) as other:
        return other.submit(take).result()


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
    with device_lock(device):
        assert "others have been measuring on fake device" in refused(device)
        # Who has it does not wait for himself.
        with device_lock(device, patience_s=0) as again:
            assert again is device
        assert "end it" in refused(device)
    assert not refused(device)
    another = replace(device, name="another")
    with device_lock(device), device_lock(another, patience_s=0):
        pass
    # A lock that is a link is not followed.
    lock_path(another).unlink()
    lock_path(another).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DeviceError, match="cannot lock another"), device_lock(another):
        pass


def has_open(inode):
    """Return whether this process has a file open."""
    for handle in range(1024):
        with suppress(OSError):
            if os.fstat(handle).st_ino == inode:
                return True
    return False


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forked_processes_have_no_part_in_a_lock(tmp_path, monkeypatch):
    """Else those that a killed run leaves behind would keep all others from the device."""
    monkeypatch.setattr(locks.tempfile, "gettempdir", lambda: str(tmp_path))
    with device_lock(GPU):
        inode = lock_path(GPU).stat().st_ino
        assert has_open(inode)
        child = os.fork()
        if not child:
            os._exit(has_open(inode))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert refused(GPU)


def test_cpu_devices_of_a_machine_are_one():
    first, second = (Device("a platform", "v", name, "1", kind="cpu") for name in ("x", "y"))
    assert lock_path(first) == lock_path(second)
    assert lock_path(replace(first, kind="gpu")) != lock_path(replace(second, kind="gpu"))
    assert lock_path(replace(first, kind="gpu")) != lock_path(replace(first, kind="gpu", ordinal=1))


def test_equal_gpus_are_told_apart_by_their_place():
    """A process that sees one of several calls it number 0."""
    one = Device("CUDA", "NVIDIA Corporation", "H100", "13", kind="gpu", api="cuda", pci_address="0000:17:00.0")
    assert lock_path(one) != lock_path(replace(one, pci_address="0000:65:00.0"))
    through_opencl = replace(one, platform="NVIDIA CUDA", driver="580", api="opencl", ordinal=3)
    assert lock_path(one) == lock_path(through_opencl)


GPU = Device("a platform", "v", "card", "1", kind="gpu", pci_address="0000:17:00.0")


def test_tuning_holds_the_lock_until_it_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(locks.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr("perflex.timing.rounds.request_for", lambda job, _: job)
    held = []

    def law(_, sizes):
        assert "end it" in refused(GPU)
        held.append(sizes)
        return 1e-3

    monkeypatch.setattr("perflex.timing.timer.open_backend", lambda device, _: Backend(device, law))
    assert len(tune(small_space(), {"n": 1024}, device=GPU).history) == len(held) > 0
    with device_lock(GPU, patience_s=0):
        pass


def test_who_measures_beside_another_waits_and_says_for_whom(tmp_path, monkeypatch):
    monkeypatch.setattr(locks.tempfile, "gettempdir", lambda: str(tmp_path))
    at_work = []

    class Alone:
        timer_resolution_s = 1e-9

        def __init__(self, device, _):
            self.device = device
            at_work.append(len(at_work))

        def build(self, _):
            return self

        def run(self, launches):
            assert len(at_work) == 1
            return (1e-3,) * launches

        def close(self):
            at_work.pop()

    monkeypatch.setattr("perflex.timing.timer.open_backend", Alone)
    monkeypatch.setattr("perflex.timing.rounds.request_for", lambda job, _: job)
    held, release = threading.Event(), threading.Event()

    def hold():
        with device_lock(GPU):
            held.set()
            release.wait()

    def waits(*_):
        release.set()
        return False

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    monkeypatch.setattr(locks.time, "sleep", waits)
    # Not every system tells it.
    monkeypatch.setattr(locks, "_holder", lambda _: "process 7 (a command)")
    with pytest.warns(PerflexWarning, match=r"process 7 \(a command\) is measuring on card .*; waiting until"):
        measured = measure(jobs(10, 20), GPU, TimingOptions(trials=2, min_trials=2))
    holder.join()
    assert [timing.seconds for timing in measured.timings] == [1e-3, 1e-3]


INSTANCE = Device(
    "CUDA", "NVIDIA Corporation", "NVIDIA H100 MIG 1g.10gb", "13", kind="gpu", api="cuda", pci_address="0000:17:00.0",
    uuid="11111111-0000-0000-0000-000000000000", host="node1",
)  # fmt: skip
ANOTHER = replace(INSTANCE, uuid="22222222-0000-0000-0000-000000000000")
# Through OpenCL nobody knows whether the UUID is the GPU's.
INSTANCE_THROUGH_OPENCL = replace(INSTANCE, platform="NVIDIA CUDA", driver="580", api="opencl", uuid="")


def test_instances_of_one_gpu_are_measured_on_at_the_same_time(tmp_path, monkeypatch):
    monkeypatch.setattr(locks.tempfile, "gettempdir", lambda: str(tmp_path))
    with device_lock(INSTANCE):
        assert "end it" in refused(INSTANCE)
        assert not refused(ANOTHER)
        # What stands for the whole GPU has to wait.
        assert "end it" in refused(INSTANCE_THROUGH_OPENCL)
        with device_lock(INSTANCE_THROUGH_OPENCL, patience_s=0):
            pass
    with device_lock(INSTANCE_THROUGH_OPENCL):
        assert "end it" in refused(INSTANCE)
    # Who is refused the GPU's has not kept the instance's.
    assert not refused(INSTANCE)


def test_one_gpu_has_one_lock_through_opencl_and_cuda():
    whole = replace(INSTANCE, name="NVIDIA H100")
    for uuid in ("", whole.uuid):
        through_opencl = replace(whole, platform="NVIDIA CUDA", driver="580", api="opencl", uuid=uuid)
        assert lock_path(whole) == lock_path(through_opencl)


def test_samples_of_instances_are_kept_apart():
    job = SizedKernel(good(), {"n": 64}, "x")
    keys = {measurement_key(job, device, TimingOptions()).device for device in (INSTANCE, ANOTHER)}
    assert len(keys) == 2
    assert len({lock_path(device) for device in (INSTANCE, ANOTHER)}) == 2
