"""Code of kernels generated ahead, in the workers of an executor."""

from concurrent.futures import Executor, Future, ThreadPoolExecutor

import pytest

from perflex.errors import MeasurementError
from perflex.testing import FakeDevice
from perflex.timing.launch.request import LaunchRequest, launch_request
from perflex.timing.measuring import measure
from perflex.timing.options import TimingOptions
from perflex.timing.results import Timing
from perflex.timing.rounds import TimingJob
from perflex.timing.timer import GeneratedAhead, SizedKernel
from uipick import ALL_GENERATORS, KernelCollection


def jobs(*tags):
    kernels = KernelCollection(ALL_GENERATORS).generate_kernels(tags)
    return [SizedKernel(kernel.kernel, kernel.sizes, kernel.name) for kernel in kernels]


class Broken(Executor):
    """Takes no work, or loses what it took."""

    def __init__(self, *, takes):
        self.takes = takes

    def submit(self, *_, **__):
        if not self.takes:
            msg = "cannot schedule new futures after shutdown"
            raise RuntimeError(msg)
        future = Future()
        future.set_exception(RuntimeError("lost"))
        return future


JOBS = jobs("axpy", "dtype:float32", "groups_fit:True", "n:1024,2048")
OPTIONS = TimingOptions(trials=2, min_trials=1, budget_s=0.01)


def test_requests_are_those_made_here(default_device):
    made = [TimingJob(job) for job in JOBS]
    with ThreadPoolExecutor(1) as executor:
        ahead = GeneratedAhead(made, default_device, executor)
        assert [ahead.take(entry) for entry in made] == [None, None]
    assert all(isinstance(entry.kernel, LaunchRequest) for entry in made)
    assert [entry.kernel for entry in made] == [launch_request(job, default_device) for job in JOBS]


def test_what_cannot_be_generated_fails_alone(default_device):
    bad = SizedKernel(JOBS[0].kernel, {"n": 1000}, "bad")
    with ThreadPoolExecutor(1) as executor:
        found, failed = measure([JOBS[0], bad], default_device, OPTIONS, executor=executor)
        assert isinstance(
            GeneratedAhead([entry := TimingJob(bad)], default_device, executor).take(entry), MeasurementError
        )
    assert isinstance(found, Timing)
    assert (failed.kind, failed.label) == ("prepare", "bad")


@pytest.mark.parametrize("takes", [True, False])
def test_without_workers_code_is_generated_here(default_device, takes):
    (found,) = measure(JOBS[:1], default_device, OPTIONS, executor=Broken(takes=takes))
    assert isinstance(found, Timing)


def test_devices_without_code_are_left_alone():
    entry = TimingJob(JOBS[0])
    assert GeneratedAhead([entry], FakeDevice(lambda *_: 1.0), Broken(takes=False)).take(entry) is None
    assert entry.kernel is JOBS[0]
