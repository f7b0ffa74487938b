"""Measuring in workers: as here, and going on when workers die."""

from __future__ import annotations

import os
import signal
from collections import Counter
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from multiprocessing import get_context
from typing import TYPE_CHECKING

import pytest

from failing_kernels import crashing, good, not_compiling
from perflex import TimingOptions
from perflex.errors import DeviceError, ExecutorError, MeasurementError
from perflex.features import SizedKernel
from perflex.store.records import SystemActivity
from perflex.store.store import Store
from perflex.testing import FakeDevice
from perflex.timing.executors.batches import devices_here, divide
from perflex.timing.executors.workers import Work, done
from perflex.timing.key import measurement_key
from perflex.timing.launch.launch_times import LaunchTimes
from perflex.timing.measuring import measure
from perflex.timing.results import MeasurementFailure, Timing
from support.elsewhere import device_of_workers, measure_on
from support.scripted_device import ScriptedDevice
from support.scripted_device import jobs as jobs_of

if TYPE_CHECKING:
    from pathlib import Path

OPTIONS = TimingOptions(trials=12, min_trials=5)
EXACT = TimingOptions(trials=9, precision=0)
SIZES = tuple(range(10, 60))
jobs = partial(jobs_of, kernel=good())


class HereExecutor(Executor):
    """The least an executor can be: does the work when it is handed in. It may end, as a whole, after some work."""

    def __init__(self, lasts=inf):
        self.lasts = lasts
        self.works = 0

    def submit(self, function, /, *arguments, **options):
        self.works += 1
        if self.works > self.lasts + 1:
            msg = "no more"
            raise BrokenExecutor(msg)
        future = Future()
        if self.works > self.lasts:
            future.set_exception(BrokenExecutor("no more"))
        else:
            future.set_result(function(*arguments, **options))
        return future


@dataclass
class Law:
    """A cost law that can be sent; with a folder it ends the process in which it is asked for some sizes."""

    folder: Path | None = None
    deaths: int = 0
    deadly: int = -1

    def __call__(self, label, sizes):
        if sizes["n"] == self.deadly and self.folder is not None:
            for number in range(self.deaths):
                mark = self.folder / f"death {number}"
                if not mark.exists():
                    mark.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
        if sizes["n"] == 13:
            msg = f"{label}: does not build"
            raise MeasurementError(msg, kernel=label)
        return 1e-5 * sizes["n"]


@pytest.fixture(scope="module")
def processes():
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        yield pool


@pytest.fixture(params=["threads", "here", "processes"])
def executor(request):
    if request.param == "processes":
        yield request.getfixturevalue("processes")
    else:
        with ThreadPoolExecutor(3) if request.param == "threads" else HereExecutor() as pool:
            yield pool


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path / "store.sqlite")
    yield made
    made.close()


def sample_rows(store):
    """Return what each sample in the store belongs to; none is there twice."""
    query = "SELECT key, session, round FROM records WHERE round NOT NULL"
    rows = store.use(lambda connection: connection.execute(query).fetchall())
    assert len(rows) == len(set(rows))
    return rows


def samples_of_keys(store):
    return Counter(key for key, _, _ in sample_rows(store))


# results as of measuring here


def test_outcomes_as_measured_here(executor):
    device = FakeDevice(Law())
    told = []
    here = measure(jobs(*SIZES), device, OPTIONS)
    there = measure_on(executor, jobs(*SIZES), device, OPTIONS, progress=lambda *step: told.append(step))
    assert [outcome.label for outcome in there] == [f"n={n}" for n in SIZES]
    for mine, theirs in zip(here, there, strict=True):
        assert type(mine) is type(theirs)
        if isinstance(mine, Timing) and isinstance(theirs, Timing):
            assert replace(theirs, samples=mine.samples) == mine
    [failure] = [outcome for outcome in there if isinstance(outcome, MeasurementFailure)]
    assert (failure.label, failure.kind, failure.reason) == ("n=13", "prepare", "n=13: does not build")
    assert isinstance(failure.error, MeasurementError)
    done = [step[0] for step in told]
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0, 2 * len(SIZES))
    assert {step[1] for step in told} == {2 * len(SIZES)}
    assert list(measure_on(executor, [], device)) == []


# the recorder


def waited(request, launches, run):
    """Return times of launches of which the system reports that they waited n seconds."""
    return LaunchTimes(run(launches), SystemActivity(waited_s=float(request.sizes["n"]), throttled=False))


def test_what_the_system_reported_comes_with_samples(executor, store):
    device = ScriptedDevice(Law(), on_run=waited)
    measure_on(executor, jobs(*range(20, 60)), device, OPTIONS, recorder=store)
    for job in jobs(*range(20, 60)):
        kept = store.earlier(measurement_key(job, device, OPTIONS))
        assert len(kept) >= OPTIONS.min_trials
        assert {one.activity for one in kept} == {SystemActivity(waited_s=float(job.sizes["n"]), throttled=False)}


def test_the_client_keeps_all_samples_once(executor, store):
    device = FakeDevice(Law(), noise=0.2)
    measured = measure_on(executor, jobs(*SIZES), device, EXACT, recorder=store)
    rows = sample_rows(store)
    assert {len(outcome.samples) for outcome in measured if isinstance(outcome, Timing)} == {9}
    assert len(rows) == 9 * (len(SIZES) - 1)
    for job, outcome in zip(jobs(*SIZES), measured, strict=True):
        earlier = store.earlier(measurement_key(job, device, EXACT))
        assert tuple(sample.seconds for sample in earlier) == getattr(outcome, "samples", ())
    # Only what is missing is measured.
    more = measure_on(executor, jobs(*SIZES, 70), device, EXACT, recorder=store)
    assert more.timings[:-1] == measured.timings
    assert len(sample_rows(store)) == len(rows) + 9
    rows = sample_rows(store)
    again = measure_on(executor, jobs(*SIZES), device, EXACT, recorder=store)
    assert again.timings == measured.timings == measure(jobs(*SIZES), device, EXACT, recorder=store).timings
    assert sample_rows(store) == rows


@pytest.mark.parametrize("method", [measure, partial(measure_on, HereExecutor())])
def test_a_kernel_under_two_labels_is_measured_once_and_nothing_is_lost(store, method):
    device = FakeDevice(Law(), noise=0.1)
    named = [*jobs(20, 30), replace(jobs(20)[0], label="another name")]
    found = method(named, device, EXACT, recorder=store)
    assert [outcome.label for outcome in found] == ["n=20", "n=30", "another name"]
    assert found[0] == replace(found[2], label="n=20")
    assert len(sample_rows(store)) == found.summary().samples == 2 * EXACT.trials
    again = method(named, device, EXACT, recorder=store)
    assert again == found
    assert again.summary().samples_resumed == len(sample_rows(store)) == 2 * EXACT.trials


class FirstRun:
    """A check that only notes whose results would be compared with."""

    def __init__(self):
        self.first = None

    @property
    def lacks_first(self):
        return self.first is None

    def take_first(self, other):
        self.first = self.first or other.first

    def require_right(self, kernel, _):
        self.first = self.first or kernel.label


def test_all_are_compared_with_the_first_kernel_that_runs():
    sent = []

    class Sizes(HereExecutor):
        def submit(self, function, work, /):
            sent.append(len(getattr(work.argument, "kernels", ())))
            return super().submit(function, work)

    check = FirstRun()
    device = device_of_workers(Sizes(), FakeDevice(Law()))
    found = measure(jobs(13, *range(20, 60)), device, OPTIONS, check=check)
    assert (check.first, len(found.failures)) == ("n=20", 1)
    assert sent == [1, 1, 20, 19]


def test_portions():
    assert divide([], 4) == []
    for number in (1, 7, 24, 25, 139, 500):
        for workers in (1, 2, 9):
            portions = divide(range(number), workers)
            assert [one for portion in portions for one in portion] == list(range(number))
            assert max(map(len, portions)) <= 24
            assert max(map(len, portions)) - min(map(len, portions)) <= 1
            assert len(portions) >= min(workers, number // 8)


# real devices


@pytest.mark.slow
def test_kernels_that_fail_on_a_real_device(default_device, processes):
    bad = {"crashing": (crashing(), {"n": 64}), "not_compiling": (not_compiling(), {"n": 64}), "no size": (good(), {})}
    mixed = [*jobs(2**14, 2**15, 2**16), *(SizedKernel(*given, label) for label, given in bad.items())]
    measured = measure_on(processes, mixed, default_device, OPTIONS)
    assert all(isinstance(outcome, Timing) and outcome.seconds > 0 for outcome in measured[:3])
    failures = [outcome for outcome in measured if isinstance(outcome, MeasurementFailure)]
    assert [(failure.label, failure.kind) for failure in failures] == [
        ("crashing", "crash"), ("not_compiling", "prepare"), ("no size", "prepare"),
    ]  # fmt: skip
    assert "no_such_function" in failures[1].reason


def test_a_device_with_another_driver(default_device):
    assert devices_here(default_device) == [default_device]
    other = replace(default_device, driver="0.1 (imagined)")
    with pytest.raises(DeviceError, match=r"driver 0\.1 \(imagined\) for the client, but the worker on .* has driver"):
        measure_on(HereExecutor(), jobs(64), other, OPTIONS)
    with pytest.raises(DeviceError, match=r"has no imagined .*start workers only where the device is"):
        measure_on(HereExecutor(), jobs(64), replace(default_device, name="imagined"), OPTIONS)
    answer = done(Work(len, (), version="0.0"))
    assert isinstance(answer.error, ExecutorError)
    assert "install the same version on both" in answer.error.message


# workers that die


@pytest.mark.machine
def test_a_pool_that_dies_is_told_and_what_was_timed_is_kept(tmp_path, store):
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        device = FakeDevice(Law(tmp_path, deaths=1, deadly=55))
        with pytest.raises(ExecutorError, match=r"the ProcessPoolExecutor ended .* what was timed is kept"):
            measure_on(pool, jobs(*SIZES), device, EXACT, recorder=store)
    assert min(samples_of_keys(store).values()) == 9
    assert len(samples_of_keys(store)) >= 15


class LosesOne(HereExecutor):
    """Loses its second piece of work, and goes on."""

    def submit(self, function, /, *arguments, **options):
        future = super().submit(function, *arguments, **options)
        if self.works == 2:
            future = Future()
            future.set_exception(BrokenExecutor("a worker is gone"))
        return future


def test_a_batch_whose_worker_is_gone_is_timed_again(store):
    executor = LosesOne()
    measured = measure_on(executor, jobs(*range(20, 120)), FakeDevice(Law()), EXACT, recorder=store)
    assert len(measured.timings) == 100
    assert executor.works == len(divide(range(100), 1)) + 1
    assert set(samples_of_keys(store).values()) == {9}


def test_what_was_timed_before_an_executor_or_a_device_ends_is_kept(store):
    with pytest.raises(ExecutorError, match=r"the HereExecutor ended before all kernels were timed .* timed is kept"):
        measure_on(HereExecutor(lasts=-1), jobs(10), FakeDevice(Law()), OPTIONS)
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    with pytest.raises(ExecutorError, match="takes no more work"):
        measure_on(pool, jobs(10), FakeDevice(Law()), OPTIONS)
    with pytest.raises(ExecutorError, match="the HereExecutor ended"):
        measure_on(HereExecutor(lasts=2), jobs(*range(20, 120)), FakeDevice(Law()), EXACT, recorder=store)
    assert len(samples_of_keys(store)) == 40
    assert min(samples_of_keys(store).values()) == 9
    runs = iter(range(100))

    def vanishing(_, launches, run):
        if next(runs, None) is None:
            msg = "the device is gone; plug it in"
            raise DeviceError(msg)
        return run(launches)

    device = ScriptedDevice(Law(), on_run=vanishing, name="another")
    with pytest.raises(DeviceError, match="plug it in"):
        measure_on(HereExecutor(), jobs(*range(20, 30)), device, EXACT, recorder=store)
    assert len(sample_rows(store)) == 9 * 40 + 40  # 20 first runs, then a warm-up before each


def test_what_cannot_be_sent(processes):
    device = FakeDevice(lambda _, sizes: 1e-5 * sizes["n"])
    with pytest.raises(ExecutorError, match=r"cannot be sent to the workers .*or use a ThreadPoolExecutor"):
        measure_on(processes, jobs(10), device, OPTIONS)
    with ThreadPoolExecutor(1) as threads:
        assert measure_on(threads, jobs(10), device, OPTIONS).timings[0].seconds == pytest.approx(1e-4)
    assert measure_on(processes, jobs(10), FakeDevice(Law()), OPTIONS).timings
