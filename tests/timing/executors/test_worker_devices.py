"""All about the device is asked of workers, their samples are found again, and one unlike the others is left out."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from perflex import Device, TimingOptions
from perflex.errors import DeviceError, PerflexWarning
from perflex.timing import device_lock as locks
from perflex.timing.executors.worker_device import device_of_workers
from perflex.timing.key import measurement_key
from support.elsewhere import Backend, Cluster, Worker, measure_on
from support.scripted_device import Kept, jobs, law

EXACT = TimingOptions(trials=3, min_trials=3, precision=0)
GPU = Device("CUDA", "NVIDIA Corporation", "NVIDIA H100", "CUDA 13.0", kind="gpu", api="cuda")
CPU = Device("Intel(R) OpenCL", "Intel(R) Corporation", "AMD EPYC 9999", "2025", kind="cpu")
NEWER = replace(GPU, driver="CUDA 13.1")


@pytest.fixture(autouse=True)
def _no_code(monkeypatch, tmp_path):
    """Requests are the kernels themselves, and locks the test's own."""
    for place in ("perflex.timing.executors.on_workers", "perflex.timing.rounds"):
        monkeypatch.setattr(f"{place}.request_for", lambda job, _: job)
    monkeypatch.setattr(locks.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr("perflex.timing.key._digest", lambda *_: "digest")


def equal(count):
    return tuple(replace(GPU, ordinal=n, pci_address=f"0000:{n}7:00.0") for n in range(count))


def test_the_device_is_the_workers_not_this_machines():
    """This machine has none (see conftest.py)."""
    cluster = Cluster(Worker("node1", equal(4), law), Worker("node2", equal(1), law))
    for wanted in (None, "h100", "cuda:0", GPU, replace(GPU, host="node3", pci_address="0000:99:00.0")):
        found = device_of_workers(cluster, wanted)
        assert found.device == GPU
    assert device_of_workers(cluster, None, "f_cuda_wall_time_h100").device == GPU
    with pytest.raises(DeviceError, match="no device fits 'imagined'"):
        device_of_workers(cluster, "imagined")


def test_samples_of_workers_are_found_again():
    kept, options = Kept(), replace(EXACT, min_trials=2)
    workers = [Worker(f"node{n}", (CPU,), law, "THEIRS=2") for n in range(2)]
    first = measure_on(Cluster(*workers), jobs(*range(10, 60)), CPU, options, recorder=kept)
    assert {key.conditions.partition("affinity=")[2] for key in kept.samples} == {"THEIRS=2"}
    assert {key.device for key in kept.samples} == {"Intel(R) OpenCL / Intel(R) Corporation / AMD EPYC 9999 #0"}
    count = sum(map(len, kept.samples.values()))
    again = measure_on(Cluster(*workers), jobs(*range(10, 60)), CPU, options, recorder=kept)
    assert again == first
    assert again.summary().samples_resumed == count == 150
    assert again.affinity == "THEIRS=2"
    assert measurement_key(jobs(10)[0], CPU, options, "THEIRS=2") in kept.samples


@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        (Worker("node0", (NEWER,), law), r"node0 measures on NVIDIA H100 .*driver CUDA 13\.1, others on .*CUDA 13\.0"),
        (Worker("node0", (GPU,), law, "THEIRS=2"), r"CUDA 13\.0 and THEIRS=2, others on .*CUDA 13\.0: times of both"),
        (Worker("node0", (CPU,), law), "the worker on node0 has no|node0 measures on AMD EPYC"),
    ],
)
@pytest.mark.parametrize("device", [GPU, None])
def test_a_worker_unlike_the_others_is_left_out(odd, reason, device):
    """It answers first, as one of twenty."""
    cluster = Cluster(odd, *(Worker(f"node{n}", (GPU,), law) for n in range(1, 20)))
    if device is not None and odd.devices == (NEWER,):
        reason = r"has driver CUDA 13\.0 for the client, but the worker on node0 has driver CUDA 13\.1"
    with pytest.warns(PerflexWarning, match=rf"({reason}).*that worker is left out") as caught:
        measured = measure_on(cluster, jobs(*range(10, 60)), device, EXACT)
    assert len(caught) == 1
    assert len(measured.timings) == 50
    assert {name for name, function in cluster.done if function == "time_batch"} <= set(cluster.workers)
    assert "node0" not in cluster.workers


def test_a_worker_that_comes_later_is_left_out_too():
    cluster = Cluster(Worker("node1", (GPU,), law))
    asked = cluster.submit_to_each

    def ask(*work):
        answers = asked(*work)
        cluster.workers = {"late": Worker("late", (NEWER,), law), **cluster.workers}
        return answers

    cluster.submit_to_each = ask
    with pytest.warns(PerflexWarning, match="the worker on late has driver .*that worker is left out"):
        measured = measure_on(cluster, jobs(*range(10, 60)), GPU, EXACT)
    assert len(measured.timings) == 50
    assert list(cluster.workers) == ["node1"]
    # Where nobody else is left it is an error.
    with pytest.raises(DeviceError, match="the worker on node1 has driver"):
        measure_on(Cluster(Worker("node1", (NEWER,), law)), jobs(10), GPU, EXACT)


class Threads(ThreadPoolExecutor):
    """Workers of one machine, all of which see all its devices."""

    def __init__(self, count):
        super().__init__(count)
        self.count = count

    def measuring_slots(self):
        return self.count

    def submit_measuring(self, function, work):
        return self.submit(function, work)

    def submit_to_each(self, function, work):
        return [self.submit(function, work)]

    def leave_out(self, _):
        pytest.fail("all are alike")


def run_on_threads(monkeypatch, run, workers=4, devices=4):
    """Time 32 kernels on equal devices of a machine; `run` is called for each launch with the device."""

    class Running(Backend):
        def build(self, request):
            plain = super().build(request)
            plain.run = lambda launches: (run(self.device), (1e-3,) * launches)[1]
            return plain

    monkeypatch.setattr("perflex.timing.timer.open_backend", lambda device, _: Running(device, law))
    with Worker("node1", equal(devices), law).here(), Threads(workers) as executor:
        monkeypatch.setattr("perflex.timing.timer.open_backend", lambda device, _: Running(device, law))
        return measure_on(executor, jobs(*range(10, 42)), GPU, TimingOptions(trials=2, min_trials=2, warmups=0))


def test_each_of_four_workers_takes_a_gpu_of_its_own(monkeypatch):
    at_work, met = set(), threading.Barrier(4, timeout=60)
    seen = threading.local()

    def run(device):
        at_work.add(device.pci_address)
        # All four have to be here at once, each for the first time.
        if not hasattr(seen, "met"):
            seen.met = met.wait()

    assert len(run_on_threads(monkeypatch, run).timings) == 32
    assert len(at_work) == 4


@pytest.mark.machine
def test_four_workers_with_four_devices_take_a_quarter_of_the_time(monkeypatch):
    """A launch sleeps, so that four of them need no processor."""

    def seconds(workers, devices):
        begun = time.perf_counter()
        run_on_threads(monkeypatch, lambda _: time.sleep(0.02), workers, devices)
        return time.perf_counter() - begun

    one, four, shared = seconds(1, 1), seconds(4, 4), seconds(4, 1)
    told = f"one worker {one:.2f} s, four with a GPU each {four:.2f} s, four with one GPU {shared:.2f} s"
    assert one > 32 * 4 * 0.02
    assert four < 0.4 * one, told
    assert shared > 0.9 * one, told
