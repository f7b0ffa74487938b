"""What pins a CPU device's workers is set in the process that runs kernels, only where it is safe, and is said."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from failing_kernels import good
from perflex import Device, TimingOptions
from perflex.features import SizedKernel
from perflex.timing.executors import portions as executor_worker
from perflex.timing.executors.rounds import measure_on
from perflex.timing.isolation import affinity
from perflex.timing.isolation.affinity import Affinity, affinity_of
from perflex.timing.isolation.backend import IsolatedBackend, WorkerProcess
from perflex.timing.key import measurement_key, with_affinity
from perflex.timing.launch.backend import RunLimits
from perflex.timing.measuring import measure
from support.building import built
from support.scripted_device import Kept

if TYPE_CHECKING:
    from collections.abc import Mapping

POCL = Device("Portable Computing Language", "AuthenticAMD", "cpu-znver4-AMD EPYC", "5.0", compute_units=4)
OLD_POCL = replace(POCL, name="pthread-AMD EPYC", driver="3.1")
INTEL = Device("Intel(R) OpenCL", "Intel(R) Corporation", "AMD EPYC", "2025", compute_units=4)
ORDINARY = {"PATH": "/bin"}
PINNED = {
    POCL: {"POCL_AFFINITY": "1"},
    OLD_POCL: {"POCL_AFFINITY": "1"},
    INTEL: {"DPCPP_CPU_CU_AFFINITY": "close", "DPCPP_CPU_PLACES": "threads"},
}


def given(device: Any, environment: Mapping[str, str] = ORDINARY, *, isolate: bool = True) -> Affinity:
    return affinity_of(device, isolate=isolate, environment=environment)


@pytest.fixture(autouse=True)
def four_processors(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of four processors, all of them this process's, but for tests of real devices."""
    if request.node.get_closest_marker("machine") is None:
        share(monkeypatch, {0, 1, 2, 3}, 4)


def share(monkeypatch: pytest.MonkeyPatch, allowed: set[int], present: int) -> None:
    monkeypatch.setattr(affinity, "_processors", lambda: (frozenset(allowed), present))


@pytest.mark.parametrize("device", PINNED, ids=["pocl", "pocl 3", "intel"])
def test_workers_are_pinned_where_they_have_all_processors(device: Device) -> None:
    found = given(device)
    assert found.variables == PINNED[device]
    assert found.said == found.setting == " ".join(f"{name}={value}" for name, value in PINNED[device].items())


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
def test_a_users_own_setting_wins(device: Device, own: dict[str, str]) -> None:
    for isolate in (True, False):
        found = given(device, ORDINARY | own, isolate=isolate)
        assert found.variables == {}
        assert found.setting == " ".join(f"{name}={value}" for name, value in own.items())
        assert found.said == f"{found.setting} (the user's own)"


def test_settings_of_one_runtime_mean_nothing_to_the_other() -> None:
    assert given(INTEL, {"POCL_AFFINITY": "0"}).variables == PINNED[INTEL]
    assert given(POCL, {"DPCPP_CPU_CU_AFFINITY": "spread"}).variables == PINNED[POCL]


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
def test_nothing_is_set_where_workers_would_leave_the_processes_share(
    monkeypatch: pytest.MonkeyPatch, allowed: set[int], present: int, workers: int
) -> None:
    share(monkeypatch, allowed, present)
    for device in (POCL, INTEL):
        found = given(replace(device, compute_units=workers))
        assert (found.variables, found.setting) == ({}, "")
        assert found.said == (
            f"none: the process may use {len(allowed)} of {present} processors, and the device has {workers} workers"
        )


def test_intels_runtime_ignores_the_setting_in_a_share_that_pocl_can_be_pinned_in(monkeypatch) -> None:
    share(monkeypatch, {0, 1}, 4)
    assert given(replace(POCL, compute_units=2)).variables == PINNED[POCL]
    assert given(replace(INTEL, compute_units=2)).variables == {}


def test_other_reasons_to_leave_workers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert given(POCL, isolate=False).said == "none: kernels ran in the user's own process (isolate=False)"
    assert given(replace(POCL, compute_units=1)).said == "none: the device has one worker"
    monkeypatch.setattr(affinity, "_processors", lambda: None)
    assert given(POCL) == Affinity({}, "", "none: the system does not report which processors a process may use")


@pytest.mark.parametrize(
    "device",
    [
        replace(POCL, kind="gpu"),
        replace(POCL, name="cpu-tbb-znver4-AMD EPYC"),
        replace(POCL, name="cpu-minimal-znver4-AMD EPYC"),
        replace(INTEL, platform="Oclgrind"),
        replace(INTEL, platform="CUDA", kind="gpu", api="cuda"),
        object(),
    ],
)
def test_nothing_is_said_of_devices_without_such_settings(device: Any) -> None:
    assert given(device) == Affinity()


def test_the_process_gets_the_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Mapping[str, str]] = []
    monkeypatch.setattr("perflex.devices.listing.list_devices", tuple)
    monkeypatch.setattr("perflex.timing.isolation.backend.AskedProcess", lambda _, variables: asked.append(variables))
    for name in affinity._RUNTIMES[0].known + affinity._RUNTIMES[1].known:
        monkeypatch.delenv(name, raising=False)
    for device in PINNED:
        WorkerProcess(device)
    assert asked == list(PINNED.values())


def test_keys_follow_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POCL_AFFINITY", raising=False)
    job = SizedKernel(good(), {"n": 1000}, "good")
    pinned = measurement_key(job, POCL, TimingOptions())
    free = measurement_key(job, POCL, TimingOptions(isolate=False))
    assert pinned == with_affinity(free, "POCL_AFFINITY=1") != free
    monkeypatch.setenv("POCL_AFFINITY", "0")
    assert measurement_key(job, POCL, TimingOptions()) == with_affinity(free, "POCL_AFFINITY=0")


# with drivers


def cpu_devices(real_devices: list[Device]) -> list[Device]:
    found = [device for device in real_devices if affinity_of(device, isolate=True).variables]
    if not found:
        pytest.skip("no driver here whose workers can be pinned: one processor, a share of them, or a user's setting")
    return found


def masks(pid: int) -> dict[int, str]:
    """By thread the processors that it may run on."""
    return {
        int(task.name): next(
            line.split()[1] for line in (task / "status").read_text().splitlines() if "Cpus_allowed_list" in line
        )
        for task in Path(f"/proc/{pid}/task").iterdir()
    }


def test_real_workers_stay_on_processors_of_their_own(real_devices: list[Device]) -> None:
    for device in cpu_devices(real_devices):
        backend = IsolatedBackend(device, RunLimits(launch_s=1, build_s=60))
        try:
            built(backend, good(), {"n": 1 << 16}, "good").run(3)
            process = backend.worker()._child._process
            single = [mask for mask in masks(process.pid).values() if mask.isdecimal()]
        finally:
            backend.close()
        assert sorted(map(int, single)) == list(range(device.compute_units)), device


def test_what_was_set_is_said(real_devices: list[Device]) -> None:
    job, quick = SizedKernel(good(), {"n": 1 << 12}, "good"), TimingOptions(trials=2, min_trials=2)
    device = cpu_devices(real_devices)[0]
    said = affinity_of(device, isolate=True).setting
    assert said
    assert measure([job], device, quick).summary().affinity == said
    with ThreadPoolExecutor(1) as executor:
        assert measure_on(executor, [job], device, quick).affinity == said


def test_samples_of_other_machines_are_kept_under_their_setting(real_devices, monkeypatch) -> None:
    job, quick = SizedKernel(good(), {"n": 1 << 12}, "good"), TimingOptions(trials=2, min_trials=2)
    theirs = Affinity({}, "THEIRS=2", "THEIRS=2 (the user's own)")
    monkeypatch.setattr(executor_worker, "affinity_of", lambda *_, **__: theirs)
    kept = Kept()
    with ThreadPoolExecutor(1) as executor:
        found = measure_on(executor, [job], real_devices[0], quick, recorder=kept)
    assert found.summary().affinity == theirs.said
    [(key, samples)] = kept.samples.items()
    # Disturbed samples are taken again, up to as many.
    assert 2 <= len(samples) <= 4
    assert key == with_affinity(measurement_key(job, real_devices[0], quick), "THEIRS=2")


@pytest.mark.machine
def test_the_processors_of_this_machine_are_known() -> None:
    known = affinity._processors()
    assert known is not None
    assert known[0] == os.sched_getaffinity(0)
    assert len(known[0]) <= known[1]
