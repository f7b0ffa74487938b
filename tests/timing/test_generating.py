"""Code of kernels generated ahead, in the workers of an executor."""

from __future__ import annotations

from concurrent.futures import Executor, Future, ThreadPoolExecutor

import pytest

from perflex.errors import MeasurementError
from perflex.testing import FakeDevice
from perflex.timing.launch.request import LaunchRequest, launch_request
from perflex.timing.measuring import GeneratedAhead, SizedKernel, measure
from perflex.timing.options import TimingOptions
from perflex.timing.results import Timing
from perflex.timing.rounds import Entry
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


def test_requests_are_those_made_here(default_device):
    wanted = jobs("axpy", "dtype:float32", "groups_fit:True", "n:1024,2048")
    entries = [Entry(job) for job in wanted]
    with ThreadPoolExecutor(1) as executor:
        ahead = GeneratedAhead(entries, default_device, executor)
        assert [ahead.take(entry) for entry in entries] == [None, None]
    for entry, job in zip(entries, wanted, strict=True):
        assert isinstance(entry.job, LaunchRequest)
        assert entry.job == launch_request(job, default_device)


def test_what_cannot_be_generated_fails_alone(default_device):
    good, *_ = jobs("axpy", "dtype:float32", "groups_fit:True", "n:1024")
    bad = SizedKernel(good.kernel, {"n": 1000}, "bad")
    with ThreadPoolExecutor(1) as executor:
        options = TimingOptions(trials=2, min_trials=1, budget_s=0.01)
        found, failed = measure([good, bad], default_device, options, executor=executor)
    assert isinstance(found, Timing)
    assert failed.kind == "prepare"
    assert failed.label == "bad"


@pytest.mark.parametrize("takes", [True, False])
def test_without_workers_code_is_generated_here(default_device, takes):
    (job,) = jobs("axpy", "dtype:float32", "groups_fit:True", "n:1024")
    options = TimingOptions(trials=2, min_trials=1, budget_s=0.01)
    (found,) = measure([job], default_device, options, executor=Broken(takes=takes))
    assert isinstance(found, Timing)


def test_devices_without_code_are_left_alone():
    (job,) = jobs("axpy", "dtype:float32", "groups_fit:True", "n:1024")
    entry = Entry(job)
    ahead = GeneratedAhead([entry], FakeDevice(lambda *_: 1.0), Broken(takes=False))
    assert ahead.take(entry) is None
    assert entry.job is job


def test_errors_are_handed_over(default_device):
    (job,) = jobs("axpy", "dtype:float32", "groups_fit:True", "n:1024")
    entry = Entry(SizedKernel(job.kernel, {"n": 1000}, "bad"))
    with ThreadPoolExecutor(1) as executor:
        error = GeneratedAhead([entry], default_device, executor).take(entry)
    assert isinstance(error, MeasurementError)
