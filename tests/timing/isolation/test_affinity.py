"""What pins a CPU device's workers is set in the process that runs kernels, only where it is safe, and is said."""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from failing_kernels import good
from perflex import Device, TimingOptions
from perflex.features import SizedKernel
from perflex.timing.isolation import affinity
from perflex.timing.isolation.affinity import Affinity, affinity_of
from perflex.timing.isolation.backend import IsolatedBackend, WorkerProcess
from perflex.timing.key import measurement_key
from perflex.timing.launch.backend import RunLimits
from perflex.timing.measuring import measure
from support.building import built
from support.elsewhere import measure_on

POCL = Device("Portable Computing Language", "AuthenticAMD", "cpu-znver4-AMD EPYC", "5.0", compute_units=4)
OLD_POCL = replace(POCL, name="pthread-AMD EPYC", driver="3.1")
INTEL = Device("Intel(R) OpenCL", "Intel(R) Corporation", "AMD EPYC", "2025", compute_units=4)
ORDINARY = {"PATH": "/bin"}
POCL_PINNED = {"POCL_AFFINITY": "1"}
INTEL_PINNED = {"DPCPP_CPU_CU_AFFINITY": "close", "DPCPP_CPU_PLACES": "threads"}


def words(variables):
    return " ".join(f"{name}={value}" for name, value in variables.items())


def share(monkeypatch, allowed, present):
    monkeypatch.setattr(affinity, "_processors", lambda: (frozenset(allowed), present))


@pytest.fixture(autouse=True)
def four_processors(request, monkeypatch):
    """A machine of four processors, all of them this process's, but for tests of real devices."""
    if request.node.get_closest_marker("machine") is None:
        share(monkeypatch, {0, 1, 2, 3}, 4)


@pytest.mark.parametrize(
    ("device", "given", "pinned"),
    [
        (POCL, {}, POCL_PINNED),
        (OLD_POCL, {}, POCL_PINNED),
        (INTEL, {}, INTEL_PINNED),
        # Settings of one runtime mean nothing to the other.
        (INTEL, {"POCL_AFFINITY": "0"}, INTEL_PINNED),
        (POCL, {"DPCPP_CPU_CU_AFFINITY": "spread"}, POCL_PINNED),
    ],
)
def test_workers_are_pinned_where_they_have_all_processors(device, given, pinned):
    found = affinity_of(device, isolate=True, environment=ORDINARY | given)
    assert found == Affinity(pinned, words(pinned), words(pinned))


@pytest.mark.parametrize(
    ("device", "own"),
    [
        (POCL, {"POCL_AFFINITY": "0"}),
        (POCL, {"POCL_AFFINITY": "1"}),
        (INTEL, {"DPCPP_CPU_CU_AFFINITY": "spread", "DPCPP_CPU_PLACES": "cores"}),
        (INTEL, {"SYCL_CPU_PLACES": "sockets"}),
        (INTEL, {"CL_CONFIG_CPU_NUM_CUS": "2"}),
    ],
)
def test_a_users_own_setting_wins(device, own):
    for isolate in (True, False):
        found = affinity_of(device, isolate=isolate, environment=ORDINARY | own)
        assert found == Affinity({}, words(own), f"{words(own)} (the user's own)")


@pytest.mark.parametrize(
    ("allowed", "present", "workers"),
    [
        ({1}, 4, 4),  # taskset -c 1, which PoCL does not look at
        ({0, 1}, 4, 4),
        ({2, 3}, 4, 2),  # a share of a batch system: PoCL's first worker would leave it
        ({0, 1, 3}, 3, 3),  # processor 2 is switched off
        ({0, 1, 2, 3}, 4, 2),  # the user wants fewer workers: they may be pinned to threads of one core
    ],
)
def test_nothing_is_set_where_workers_would_leave_the_processes_share(monkeypatch, allowed, present, workers):
    share(monkeypatch, allowed, present)
    why = f"none: the process may use {len(allowed)} of {present} processors, and the device has {workers} workers"
    for device in (POCL, INTEL):
        found = affinity_of(replace(device, compute_units=workers), isolate=True, environment=ORDINARY)
        assert found == Affinity({}, "", why)


def test_where_nothing_can_be_set_it_is_said_why(monkeypatch):
    def said(device, isolate=True):
        found = affinity_of(device, isolate=isolate, environment=ORDINARY)
        assert (found.variables, found.setting) == ({}, "")
        return found.description

    assert said(POCL, isolate=False) == "none: kernels ran in the user's own process (isolate=False)"
    assert said(replace(POCL, compute_units=1)) == "none: the device has one worker"
    # Devices without such settings.
    for device in (
        replace(POCL, kind="gpu"),
        replace(POCL, name="cpu-tbb-znver4-AMD EPYC"),
        replace(POCL, name="cpu-minimal-znver4-AMD EPYC"),
        replace(INTEL, platform="Oclgrind"),
        replace(INTEL, platform="CUDA", kind="gpu", api="cuda"),
        object(),
    ):
        assert said(device) == ""
    # Intel's runtime ignores the setting in a share that PoCL can be pinned in.
    share(monkeypatch, {0, 1}, 4)
    assert said(replace(INTEL, compute_units=2)).startswith("none: ")
    assert affinity_of(replace(POCL, compute_units=2), isolate=True, environment=ORDINARY).variables == POCL_PINNED
    monkeypatch.setattr(affinity, "_processors", lambda: None)
    assert said(POCL) == "none: the system does not report which processors a process may use"


def test_the_process_gets_the_variables(monkeypatch):
    asked = []
    monkeypatch.setattr("perflex.devices.listing.list_devices", tuple)
    monkeypatch.setattr("perflex.timing.isolation.backend.RemoteProcess", asked.append)
    for name in affinity._RUNTIMES[0].known + affinity._RUNTIMES[1].known:
        monkeypatch.delenv(name, raising=False)
    for device in (POCL, INTEL):
        WorkerProcess(device)
    assert asked == [POCL_PINNED, INTEL_PINNED]


def test_samples_with_and_without_a_setting_are_apart(monkeypatch):
    monkeypatch.delenv("POCL_AFFINITY", raising=False)
    job = SizedKernel(good(), {"n": 1000}, "good")
    pinned = measurement_key(job, POCL, TimingOptions())
    free = measurement_key(job, POCL, TimingOptions(isolate=False))
    assert pinned != free
    assert pinned.conditions == f"{free.conditions} affinity=POCL_AFFINITY=1"
    assert measurement_key(job, POCL, TimingOptions(), "") == free
    monkeypatch.setenv("POCL_AFFINITY", "0")
    assert measurement_key(job, POCL, TimingOptions()) == measurement_key(job, POCL, TimingOptions(), "POCL_AFFINITY=0")


# with drivers

QUICK = TimingOptions(trials=2, min_trials=2)


def cpu_devices(real_devices):
    found = [device for device in real_devices if affinity_of(device, isolate=True).variables]
    if not found:
        pytest.skip("no driver here whose workers can be pinned: one processor, a share of them, or a user's setting")
    return found


def masks(pid):
    """Return the processors that each thread may run on."""
    status = [(task / "status").read_text().splitlines() for task in Path(f"/proc/{pid}/task").iterdir()]
    return [line.split()[1] for lines in status for line in lines if "Cpus_allowed_list" in line]


def test_real_workers_stay_on_processors_of_their_own(real_devices):
    for device in cpu_devices(real_devices):
        backend = IsolatedBackend(device, RunLimits(launch_s=1, build_s=60))
        try:
            built(backend, good(), {"n": 1 << 16}, "good").run(3)
            single = [mask for mask in masks(backend.worker()._process._process.pid) if mask.isdecimal()]
        finally:
            backend.close()
        assert sorted(map(int, single)) == list(range(device.compute_units)), device


def test_what_was_set_is_said(real_devices):
    job, device = SizedKernel(good(), {"n": 1 << 12}, "good"), cpu_devices(real_devices)[0]
    said = affinity_of(device, isolate=True).setting
    assert said
    assert measure([job], device, QUICK).summary().affinity == said
    with ThreadPoolExecutor(1) as executor:
        assert measure_on(executor, [job], device, QUICK).affinity == said


@pytest.mark.machine
def test_the_processors_of_this_machine_are_known():
    allowed, present = affinity._processors()
    assert allowed == os.sched_getaffinity(0)
    assert len(allowed) <= present
