"""What is kept of measuring: each sample once, failures, what is known already; disturbed samples are taken again."""

import random
from collections import Counter
from dataclasses import replace

import loopy as lp
import numpy as np
import pytest

from failing_kernels import good
from perflex import TimingOptions
from perflex.errors import MeasurementError
from perflex.features import SizedKernel
from perflex.testing import FakeDevice
from perflex.timing.key import measurement_key
from perflex.timing.launch.plan import plan_launch
from perflex.timing.measuring import measure
from perflex.timing.results import MeasurementFailure, Timing
from perflex.timing.rounds import Session, TimingJob, time_in_rounds
from support.scripted_device import Kept, ScriptedDevice, jobs, law
from support.timing_samples import device_beside_others

EXACT = TimingOptions(precision=0, trials=20, budget_s=100, warmups=0)


def closed():
    """Return a device that nobody may use."""
    return ScriptedDevice(law, on_build=lambda _: pytest.fail("built in vain"))


def test_every_sample_is_recorded_with_its_round():
    kept = Kept()
    outcomes = measure(jobs(100, 200, 3000), FakeDevice(law, noise=0.1), TimingOptions(trials=12), recorder=kept)
    by_size = {dict(key.sizes)["n"]: samples for key, samples in kept.samples.items()}
    assert len(kept.samples) == len(by_size) == 3
    for n, outcome in zip((100, 200, 3000), outcomes, strict=True):
        assert tuple(sample.seconds for sample in by_size[n]) == outcome.samples
        assert [sample.round for sample in by_size[n]] == list(range(kept.labels[f"n={n}"]))
        # The device reports nothing.
        assert {sample.activity for sample in by_size[n]} == {None}
    assert len({sample.session for samples in by_size.values() for sample in samples}) == 1


def test_what_is_known_is_not_measured_again():
    kept = Kept()
    options = TimingOptions(trials=12)
    first = measure(jobs(100, 200), FakeDevice(law, noise=0.1), options, recorder=kept)
    assert first.summary().samples_resumed == 0
    known = measure(jobs(100, 200), closed(), options, recorder=kept)
    assert known == first
    assert known.summary().samples_resumed == sum(len(timing.samples) for timing in first.timings)
    more = measure(jobs(100, 200), FakeDevice(law, noise=0.1), replace(options, trials=15), recorder=kept)
    assert all(isinstance(outcome, Timing) and len(outcome.samples) == 15 for outcome in more)
    assert set(kept.labels.values()) == {15}


def test_what_was_not_built_fails():
    entry = TimingJob(jobs(100)[0])
    time_in_rounds([entry], Session(EXACT, "s"))
    assert entry.failure.reason == "n=100 is to be timed but was not built"


def test_a_new_kernel_among_known_ones_alone_is_measured():
    kept = Kept()
    measure(jobs(100, 200, 2000, 90_000), FakeDevice(law), recorder=kept)
    before = kept.labels.copy()
    measure(jobs(100, 200, 2000, 90_000, 300), FakeDevice(law), recorder=kept)
    assert dict(kept.labels - before) == {"n=300": 8}


@pytest.mark.parametrize("others", [0.0, 0.3])
def test_interrupted_at_any_moment_ends_like_an_undisturbed_run(others):
    """Beside other work, too, that disturbs so many of the samples."""
    kept = Kept()
    moments, beside = random.Random(1), random.Random(5)  # noqa: S311
    sizes = (100, 200, 300, 1500, 4000, 9000, 20_000)
    options = TimingOptions(trials=25, precision=0.01)
    interrupted = 0
    while True:
        kept.left = moments.randrange(25)
        device = device_beside_others(lambda _: beside.random() < others, noise=0.1)
        try:
            resumed = measure(jobs(*sizes), device, options, recorder=kept)
        except KeyboardInterrupt:
            interrupted += 1
            continue
        break
    assert interrupted >= 3
    assert (resumed.summary().disturbed_samples > 0) == (others > 0)
    again = measure(jobs(*sizes), closed(), options, recorder=kept)
    assert again == resumed


def test_failures_are_recorded_and_crashes_are_not_tried_again():
    kept = Kept()
    tried = Counter()

    def failing(label, sizes):
        tried[sizes["n"]] += 1
        if sizes["n"] < 4:
            kind = ("hang", "crash", "memory")[sizes["n"] - 1]
            msg = f"{label}: {kind}!"
            raise MeasurementError(msg, kind=kind)
        if sizes["n"] == 4:
            msg = f"{label}: no such type"
            raise MeasurementError(msg)
        return 1e-3

    device = FakeDevice(failing)
    outcomes = measure(jobs(1, 2, 3, 4, 5), device, recorder=kept)
    kinds = [outcome.kind for outcome in outcomes if isinstance(outcome, MeasurementFailure)]
    assert kinds == ["hang", "crash", "memory", "prepare"]
    assert {failure.kind for failures in kept.failures.values() for failure in failures} == set(kinds)
    again = measure(jobs(1, 2, 3, 4, 5), device, recorder=kept)
    assert tried == {1: 1, 2: 1, 3: 2, 4: 2, 5: 1}
    assert (again[0].kind, again[0].label) == ("hang", "n=1")
    assert again[0].reason.startswith("n=1: hang! (in an earlier run; ")
    measure(jobs(1), device, TimingOptions(retry_failures=True), recorder=kept)
    assert tried[1] == 2
    twice = measure([*jobs(4), *(replace(job, label="again") for job in jobs(4))], device)
    assert [failure.reason for failure in twice] == ["n=4: no such type", "again: no such type"]


def test_key_holds_all_that_a_time_depends_on(monkeypatch):
    class Second(FakeDevice):
        ordinal = 1

    class OfAnotherSlot(FakeDevice):
        pci_address = "0000:65:00.0"

    class OfAnotherHost(FakeDevice):
        host = "node2"

    class Larger(FakeDevice):
        compute_units = 16

    def key(kernel=None, sizes=None, device=None, **options):
        job = SizedKernel(kernel or good(), sizes or {"n": 64}, "x")
        return measurement_key(job, device or FakeDevice(law), TimingOptions(**options))

    assert key() == key(good(), {"n": np.int64(64)}, FakeDevice(law, noise=0.5), trials=9)
    keys = [
        key(),
        key(good(3.0)),
        key(lp.assume(good(), "n>=64")),
        *(
            key(sizes=sizes)
            for sizes in ({"n": 65}, {"n": 64, "m": 1}, {"n": 64, "alpha": 0.5}, {"n": 64, "alpha": 0.25})
        ),
        *(key(device=FakeDevice(law, **{name: "1"})) for name in ("name", "platform", "vendor", "driver")),
        *(key(device=another(law)) for another in (Second, OfAnotherSlot, OfAnotherHost, Larger)),
        key(warmups=2),
    ]
    monkeypatch.setattr("perflex.timing.key.version", lambda _: "0")
    keys.append(key())
    assert len(set(keys)) == len(keys)


def preamble(_):
    yield "factor", "#define FACTOR 2"


def test_key_of_a_kernel_with_own_functions_holds_their_code(monkeypatch):
    def keys():
        kernels = (good(name="told_apart"), lp.register_preamble_generators(good(name="told_apart"), [preamble]))
        jobs = (SizedKernel(kernel, {"n": 64}, "x") for kernel in kernels)
        return [measurement_key(job, FakeDevice(law), TimingOptions()) for job in jobs]

    plain, with_function = keys()
    assert keys() == [plain, with_function]
    # The function is the same by name, and what it gives is another.
    monkeypatch.setattr(
        "perflex.timing.key.plan_launch", lambda kernel, api: replace(plan_launch(kernel, api), source="other")
    )
    again = keys()
    assert again[0] == plain
    assert again[1] != with_function


# Disturbed samples


def test_disturbed_samples_are_taken_again_and_kept_and_not_used():
    kept = Kept()
    measured = measure(jobs(1000), device_beside_others(lambda number: number % 3 == 1), EXACT, recorder=kept)
    [timing] = measured.timings
    # Twenty undisturbed ones, and one in three beside them.
    assert (len(timing.samples), timing.disturbed_samples, timing.disturbed) == (30, 10, False)
    assert timing.seconds == pytest.approx(1e-3)
    assert timing.interval == pytest.approx((1e-3, 1e-3))
    assert timing.spread == timing.repeatability == 0
    assert sorted(set(np.round(timing.samples, 9))) == [1e-3, 2e-3]
    [recorded] = kept.samples.values()
    assert [one.seconds for one in recorded] == list(timing.samples)
    assert [one.activity.waited_s > 0 for one in recorded] == [number % 3 == 1 for number in range(30)]
    summary = measured.summary()
    assert (summary.samples, summary.disturbed_samples, summary.kernels_disturbed) == (30, 10, 0)
    assert summary.repeatability == 0


def test_without_reports_the_same_times_cannot_be_told_apart():
    # Half of the samples twice as long, as another way in which the kernel runs: kept, for nothing is known of them.
    [timing] = measure(jobs(1000), FakeDevice(law, noise=0.5), EXACT).timings
    assert (len(timing.samples), timing.disturbed_samples, timing.disturbed) == (20, 0, False)


@pytest.mark.parametrize(
    ("disturbs", "disturbed_samples", "seconds"),
    [(lambda number: number % 5 > 0, 32, 1e-3), (lambda _: True, 40, 2e-3)],
    ids=["most", "all"],
)
def test_retaking_ends_at_twice_the_trials(disturbs, disturbed_samples, seconds):
    measured = measure(jobs(1000), device_beside_others(disturbs), EXACT)
    [timing] = measured.timings
    assert (len(timing.samples), timing.disturbed_samples) == (40, disturbed_samples)
    assert timing.seconds == pytest.approx(seconds)
    # Eight undisturbed samples are enough to go by; where there are none, it is said.
    poor = disturbed_samples == 40
    assert (timing.disturbed, measured.summary().kernels_disturbed) == (poor, int(poor))
    # Where enough samples are undisturbed the budget is what it is, else up to twice that.
    options = TimingOptions(precision=0, trials=1000, min_trials=5, budget_s=1.0, warmups=0)
    [timing] = measure(jobs(10_000), device_beside_others(disturbs), options).timings
    assert timing.disturbed == poor
    assert 1 + poor - 0.05 < sum(timing.samples) <= 1 + poor + 1e-9
