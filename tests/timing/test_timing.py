"""How kernels are timed: rounds, trials, launches of a sample, failures, references, and how all of it went."""

import doctest
import warnings
from collections import Counter
from contextlib import closing
from dataclasses import replace

import loopy as lp
import numpy as np
import pytest

from perflex import TimingOptions, annotate
from perflex.errors import MeasurementError
from perflex.features import SizedKernel
from perflex.testing import FakeDevice
from perflex.timing.fake import FakeBackend
from perflex.timing.isolation.backend import IsolatedBackend
from perflex.timing.launch.request import LaunchRequest, request_for
from perflex.timing.measuring import measure
from perflex.timing.results import Measured, MeasurementFailure, Timing, TimingSummary
from perflex.timing.timer import open_backend
from support.scripted_device import ScriptedDevice, jobs, law

EIGHT_TIMES = TimingOptions(trials=8, min_trials=8, warmups=0)


def vector():
    kernel = lp.make_kernel("{[i]: 0<=i<n}", "b[i] = 2*a[i]", assumptions="n>=1", lang_version=(2018, 2))
    kernel = lp.add_dtypes(kernel, {"a": np.float32, "b": np.float32})
    return lp.split_iname(kernel, "i", 64, outer_tag="g.0", inner_tag="l.0")


def timings(outcomes):
    assert all(isinstance(outcome, Timing) for outcome in outcomes)
    return [outcome for outcome in outcomes if isinstance(outcome, Timing)]


def uneven(noise, runs):
    """Return a device on which only kernels of odd size are noisy, and that writes down which kernel runs when."""

    def on_run(request, launches, run):
        runs.append(request.label)
        times = run(launches)
        return times if request.sizes["n"] % 2 else (law("", request.sizes),) * launches

    return ScriptedDevice(law, noise=noise, on_run=on_run)


def test_times_follow_the_law_in_the_order_of_the_jobs():
    seen = []
    outcomes = timings(
        measure(jobs(300, 100, 200), FakeDevice(law), progress=lambda done, total, _: seen.append((done, total)))
    )
    assert [o.label for o in outcomes] == ["n=300", "n=100", "n=200"]
    assert [o.seconds for o in outcomes] == pytest.approx([3e-4, 1e-4, 2e-4])
    assert all(o.spread == 0 and o.launches == 1 and o.interval == (o.seconds, o.seconds) for o in outcomes)
    # Equal samples are known at the first look.
    assert all(o.precise and o.repeatability == 0 and len(o.samples) == 8 for o in outcomes)
    done = [step for step, _ in seen]
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0, 6)
    assert {total for _, total in seen} == {6}
    assert measure([], FakeDevice(law)) == []


def test_time_and_spread_come_from_the_samples_and_noise_from_the_seed():
    together, alone, other = (
        timings(measure(jobs(*sizes), FakeDevice(law, noise=0.2, seed=seed), TimingOptions(precision=0, trials=20)))
        for sizes, seed in (((100, 200), 1), ((200,), 1), ((200,), 2))
    )
    assert together[1] == alone[0]
    assert other[0].samples != alone[0].samples
    assert alone[0].seconds == np.median(alone[0].samples)
    low, high = np.percentile(alone[0].samples, [25, 75])
    assert alone[0].spread == pytest.approx((high - low) / alone[0].seconds)
    assert min(alone[0].samples) >= 2e-4


def test_long_kernels_get_fewer_trials():
    options = TimingOptions(trials=20, min_trials=3, warmups=1, budget_s=1.0, precision=0)
    outcomes = timings(measure(jobs(1_000, 50_000, 900_000), FakeDevice(law), options))
    # 1 ms: all trials fit; 50 ms with a warm-up each: 1 s / 0.1 s; 0.9 s: the fewest.
    assert [len(o.samples) for o in outcomes] == [20, 10, 3]
    # All launches count: 25 of 0.2 ms for a coarse timer, and a warm-up.
    [outcome] = timings(measure(jobs(200), FakeDevice(law, timer_resolution_s=0.999e-4), options))
    assert (outcome.launches, len(outcome.samples)) == (25, 20)
    [outcome] = timings(measure(jobs(20_000), FakeDevice(law, timer_resolution_s=0.999e-2), options))
    assert (outcome.launches, len(outcome.samples)) == (25, 3)


def test_rounds_interleave_kernels_in_changing_order():
    runs, again, warmed = [], [], []
    measure(jobs(1, 2, 3, 4), uneven(0, runs), EIGHT_TIMES)
    timed = runs[8:]  # each kernel ran twice to begin with
    rounds = [tuple(timed[i : i + 4]) for i in range(0, len(timed), 4)]
    assert len(rounds) == 8
    assert all(sorted(r) == ["n=1", "n=2", "n=3", "n=4"] for r in rounds)
    assert len(set(rounds)) > 3
    measure(jobs(1, 2, 3, 4), uneven(0, again), EIGHT_TIMES)
    assert again == runs
    # Warm-ups come before each timing.
    measure(jobs(7), uneven(0, warmed), TimingOptions(trials=4, min_trials=4, warmups=2))
    assert len(warmed) == 2 + 4 * (2 + 1)


@pytest.mark.parametrize(
    ("kind", "n", "resolution_s", "launches"),
    [
        ("gpu", 10, 1e-9, 1),
        # 50 ticks of the timer.
        ("gpu", 2, 1e-6, 25),
        ("gpu", 100, 1e-6, 1),
        # A millisecond on the host's processors, but no more than 200 launches.
        ("cpu", 500, 1e-9, 2),
        ("cpu", 30, 1e-9, 34),
        ("cpu", 1000, 1e-9, 1),
        ("cpu", 1, 1e-9, 200),
        # A coarse timer wants more yet.
        ("cpu", 100, 1e-4, 50),
    ],
)
def test_kernels_too_short_to_be_timed_once_are_repeated(kind, n, resolution_s, launches):
    device = ScriptedDevice(law, kind=kind, timer_resolution_s=resolution_s)
    [timing] = timings(measure(jobs(n), device))
    assert timing.launches == launches
    assert timing.seconds == pytest.approx(1e-6 * n)


@pytest.mark.parametrize(("factors", "mean"), [((1.0, 2.0), 1.5), ((1, 100, 4), 35), ((1000, 2, 1, 4), 3)])
def test_the_middle_half_of_the_launches_is_averaged(factors, mean):
    """One launch of four may be interrupted."""
    device = ScriptedDevice(
        law,
        timer_resolution_s=1e-4 * len(factors) / 50,
        on_run=lambda _, launches, run: run(1) if launches == 1 else tuple(1e-4 * factor for factor in factors),
    )
    [timing] = timings(measure(jobs(100), device, EIGHT_TIMES))
    assert timing.launches == len(factors)
    assert timing.seconds == pytest.approx(mean * 1e-4)


def test_failures_are_kept_apart_and_the_rest_goes_on():
    runs = Counter()

    def sometimes(label, sizes):
        if sizes["n"] == 2:
            msg = "n=2: does not build: no such type"
            raise MeasurementError(msg, kernel=label)
        return {3: 100.0, 5: 0.0}.get(sizes["n"], law(label, sizes))

    def on_run(request, launches, run):
        runs[request.label] += 1
        if request.label == "n=4" and runs["n=4"] > 5:
            msg = "n=4: the launch failed (out of resources)"
            raise MeasurementError(msg)
        return run(launches)

    good, *failures = measure(jobs(1, 2, 3, 4, 5), ScriptedDevice(sometimes, on_run=on_run), TimingOptions(limit_s=5))
    assert isinstance(good, Timing)
    assert len(good.samples) == 8
    assert all(isinstance(failure.error, MeasurementError) for failure in failures)
    assert [(failure.label, failure.kind) for failure in failures] == [
        ("n=2", "prepare"), ("n=3", "limit"), ("n=4", "run"), ("n=5", "prepare"),
    ]  # fmt: skip
    broken, slow, _, timeless = (failure.reason for failure in failures)
    assert broken == "n=2: does not build: no such type"
    assert "100 s, the limit is 5 s" in slow
    assert runs["n=4"] == 6
    assert "must be positive" in timeless


def test_precise_kernels_drop_out_and_noisy_ones_go_on():
    runs = []
    outcomes = measure(jobs(100, 1001, 102, 104, 1003), uneven(0.2, runs), TimingOptions(warmups=0))
    found = {outcome.label: outcome for outcome in timings(outcomes)}
    for label in ("n=100", "n=102", "n=104"):
        assert found[label].precise
        assert len(found[label].samples) == 8  # the first look
        assert runs.count(label) == 2 + 8
    for label in ("n=1001", "n=1003"):
        assert len(found[label].samples) > 20


def test_noisy_kernels_end_when_they_are_known_or_out_of_trials():
    [known] = timings(measure(jobs(1001), FakeDevice(law, noise=0.05), TimingOptions(precision=0.01, trials=500)))
    assert known.precise
    assert 10 < len(known.samples) < 500
    low, high = known.interval
    assert (high - low) / 2 <= 0.01 * known.seconds
    [spent] = timings(measure(jobs(1001), FakeDevice(law, noise=0.5), TimingOptions(precision=0.001, trials=30)))
    assert (len(spent.samples), spent.precise) == (30, False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trials": 3, "min_trials": 4}, "min_trials <= trials .*got 4, 3"),
        ({"min_trials": 0}, "1 <= min_trials"),
        ({"warmups": -1}, "warmups must be a whole number of zero or more, not -1"),
        ({"seed": -1}, "seed must be a whole number of zero or more, not -1"),
        ({"trials": "5"}, "trials must be a whole number of zero or more, not '5'"),
        ({"trials": 60.5}, "trials must be a whole number of zero or more, not 60.5"),
        ({"budget_s": 0}, "budget_s, limit_s and build_limit_s must be positive, got 0"),
        ({"precision": 1}, "precision must be a fraction .*got 1"),
        ({"precision": float("nan")}, "precision must be a fraction .*got nan"),
        ({"build_limit_s": -1}, "must be positive, got 0.5, 10.0 and -1"),
        ({"limit_s": float("nan")}, "must be positive, got .* nan"),
    ],
)
def test_senseless_options_are_refused(options, message):
    with pytest.raises(MeasurementError, match=message):
        TimingOptions(**options)


def test_example_of_the_fake_device():
    (example,) = doctest.DocTestFinder(recurse=False).find(FakeDevice, "FakeDevice", globs={"kernel": vector()})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert doctest.DocTestRunner().run(example) == (0, len(example.examples))


FAST = Timing(
    "fast", 1e-6, 0.01, (1e-6, 1e-6, 9e-6),
    launches=100, outliers=1, precise=True, repeatability=0.01, disturbed_samples=1,
)  # fmt: skip
SLOW = Timing("slow", 2.0, 0.3, (2.0, 2.5), outliers=3, disturbed_samples=2, disturbed=True)
FAILED = MeasurementFailure("bad", "does not build", "prepare", MeasurementError("bad: does not build"))


def test_the_summary_adds_up_the_kernels_that_did_not_fail():
    another = replace(FAST, samples=tuple(map(float, FAST.samples)))
    measured = Measured([FAST, FAILED, SLOW, another], samples_resumed=12)
    assert measured.timings == [FAST, SLOW, another]
    assert measured.summary() == TimingSummary(
        outliers=5, kernels_precise=2, samples_resumed=12, samples=8, disturbed_samples=4, kernels=3,
        kernels_disturbed=1, repeatability=0.01,
    )  # fmt: skip
    assert Measured([FAILED]).summary() == Measured().summary() == TimingSummary()
    # Few kernels do not speak for all of how times repeat.
    assert Measured([FAST, SLOW]).summary().repeatability == 0.01
    assert Measured([FAST, SLOW, SLOW]).summary().repeatability is None


def test_devices_of_ones_own_bring_their_backends():
    fake = FakeDevice(law)
    assert isinstance(open_backend(fake, TimingOptions()), FakeBackend)
    job = SizedKernel(annotate(vector(), trip_counts={"j": 2}), {"n": 64}, "x")
    assert request_for(job, fake) is job


def test_real_devices_get_code_in_a_process_of_their_own(default_device):
    job = SizedKernel(annotate(vector(), trip_counts={"j": 2}), {"n": 64}, "x")
    request = request_for(job, default_device)
    assert isinstance(request, LaunchRequest)
    assert request_for(request, default_device) is request
    for isolate in (True, False):
        with closing(open_backend(default_device, TimingOptions(isolate=isolate))) as backend:
            assert isinstance(backend, IsolatedBackend) == isolate
            assert backend.build(request).run(1).seconds[0] > 0
