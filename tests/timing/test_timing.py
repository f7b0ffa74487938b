from __future__ import annotations

import doctest
import pickle
import warnings
from collections import Counter
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import loopy as lp
import numpy as np
import pytest

from perflex import TimingOptions, annotate
from perflex.errors import MeasurementError, MissingSizeError
from perflex.features import SizedKernel
from perflex.testing import FakeDevice
from perflex.timing.fake import FakeBackend
from perflex.timing.isolation.backend import IsolatedBackend
from perflex.timing.launch.request import LaunchRequest, request_for
from perflex.timing.measuring import measure, open_backend
from perflex.timing.results import Drift, Measured, MeasurementFailure, Timing, TimingSummary

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex import Device


def vector() -> lp.TranslationUnit:
    kernel = lp.make_kernel("{[i]: 0<=i<n}", "b[i] = 2*a[i]", assumptions="n>=1", lang_version=(2018, 2))
    kernel = lp.add_dtypes(kernel, {"a": np.float32, "b": np.float32})
    return lp.split_iname(kernel, "i", 64, outer_tag="g.0", inner_tag="l.0")


# The fake device never looks at the kernel.
KERNEL: Any = None


def law(label: str, sizes: Mapping[str, int]) -> float:
    return 1e-6 * sizes["n"]


def jobs(*sizes: int) -> list[SizedKernel]:
    return [SizedKernel(KERNEL, {"n": n}, f"n={n}") for n in sizes]


def timings(outcomes: list[Timing | MeasurementFailure]) -> list[Timing]:
    assert all(isinstance(outcome, Timing) for outcome in outcomes)
    return [outcome for outcome in outcomes if isinstance(outcome, Timing)]


class Watched(FakeDevice):
    """A fake device that writes down which kernel runs when."""

    def backend(self) -> Any:
        outer = super().backend()
        runs = RUNS

        class Backend:
            device = self
            timer_resolution_s = outer.timer_resolution_s
            close = staticmethod(outer.close)

            def build(self, request: SizedKernel) -> Any:
                inner = outer.build(request)

                class Runnable:
                    def run(self, launches: int) -> tuple[float, ...]:
                        runs.append((request.label, launches))
                        return inner.run(launches)

                return Runnable()

        return Backend()


RUNS: list[tuple[str, int]] = []


def test_times_follow_the_law_in_the_order_of_the_jobs() -> None:
    outcomes = timings(measure(jobs(300, 100, 200), FakeDevice(law)))
    assert [o.label for o in outcomes] == ["n=300", "n=100", "n=200"]
    assert [o.seconds for o in outcomes] == pytest.approx([3e-4, 1e-4, 2e-4])
    assert all(o.spread == 0 and o.launches == 1 and o.interval == (o.seconds, o.seconds) for o in outcomes)
    # Equal samples are known at the first look.
    assert all(o.precise and o.repeatability == 0 and len(o.samples) == 8 for o in outcomes)


def test_time_and_spread_come_from_the_samples() -> None:
    device = FakeDevice(law, noise=0.2, seed=5)
    [median] = timings(measure(jobs(100), device, TimingOptions(precision=0)))
    assert median.seconds == np.median(median.samples)
    low, high = np.percentile(median.samples, [25, 75])
    assert median.spread == pytest.approx((high - low) / median.seconds)
    assert min(median.samples) >= 1e-4


def test_noise_of_a_kernel_depends_on_the_seed_only() -> None:
    options = TimingOptions(precision=0, trials=20)
    together = timings(measure(jobs(100, 200), FakeDevice(law, noise=0.1, seed=1), options))
    alone = timings(measure(jobs(200), FakeDevice(law, noise=0.1, seed=1), options))
    other = timings(measure(jobs(200), FakeDevice(law, noise=0.1, seed=2), options))
    assert together[1] == alone[0]
    assert other[0].samples != alone[0].samples


def test_long_kernels_get_fewer_trials() -> None:
    options = TimingOptions(trials=20, min_trials=3, warmups=1, budget_s=1.0, precision=0)
    outcomes = timings(measure(jobs(1_000, 50_000, 900_000), FakeDevice(law), options))
    # 1 ms: all trials fit; 50 ms with a warm-up each: 1 s / 0.1 s; 0.9 s: the fewest.
    assert [len(o.samples) for o in outcomes] == [20, 10, 3]


def test_rounds_interleave_kernels_in_changing_order() -> None:
    RUNS.clear()
    measure(jobs(1, 2, 3, 4), Watched(law), TimingOptions(trials=10, min_trials=10, warmups=0))
    timed = [label for label, _ in RUNS[8:]]  # each kernel ran twice to begin with
    rounds = [tuple(timed[i : i + 4]) for i in range(0, len(timed), 4)]
    assert len(rounds) == 10
    assert all(sorted(r) == ["n=1", "n=2", "n=3", "n=4"] for r in rounds)
    assert len(set(rounds)) > 3
    first = list(RUNS)
    RUNS.clear()
    measure(jobs(1, 2, 3, 4), Watched(law), TimingOptions(trials=10, min_trials=10, warmups=0))
    assert first == RUNS


def test_warm_ups_come_before_each_timing() -> None:
    RUNS.clear()
    measure(jobs(7), Watched(law), TimingOptions(trials=4, min_trials=4, warmups=2))
    assert len(RUNS) == 2 + 4 * (2 + 1)


def test_kernels_too_short_for_the_timer_are_repeated() -> None:
    device = FakeDevice(law, timer_resolution_s=1e-6)
    short, long = timings(measure(jobs(2, 100), device))
    assert short.launches == 25  # 50 ticks of 1 us, 2 us each
    assert short.seconds == pytest.approx(2e-6)
    assert long.launches == 1


def test_failures_are_kept_apart_and_the_rest_goes_on() -> None:
    def sometimes(label: str, sizes: Mapping[str, int]) -> float:
        if sizes["n"] == 2:
            msg = "n=2: does not build: no such type"
            raise MeasurementError(msg, kernel=label)
        return 100.0 if sizes["n"] == 3 else law(label, sizes)

    good, broken, slow = measure(jobs(1, 2, 3), FakeDevice(sometimes), TimingOptions(limit_s=5))
    assert isinstance(good, Timing)
    assert isinstance(broken, MeasurementFailure)
    assert (broken.kind, broken.reason) == ("prepare", "n=2: does not build: no such type")
    assert isinstance(broken.error, MeasurementError)
    assert isinstance(slow, MeasurementFailure)
    assert slow.kind == "limit"
    assert "100 s, the limit is 5 s" in slow.reason


def test_failure_in_the_middle_drops_that_kernel_only() -> None:
    count: Counter[str] = Counter()

    class Flaky(FakeDevice):
        def backend(self) -> Any:
            backend = super().backend()
            build = backend.build

            def flaky(request: SizedKernel) -> Any:
                label = request.label
                runnable = build(request)
                run = runnable.run

                def counted(launches: int) -> tuple[float, ...]:
                    count[label] += 1
                    if label == "n=2" and count[label] > 5:
                        msg = "n=2: the launch failed (out of resources)"
                        raise MeasurementError(msg)
                    return run(launches)

                runnable.run = counted  # type: ignore[method-assign]
                return runnable

            backend.build = flaky  # type: ignore[method-assign]
            return backend

    fine, failed = measure(jobs(1, 2), Flaky(law))
    assert isinstance(fine, Timing)
    assert len(fine.samples) == 8
    assert isinstance(failed, MeasurementFailure)
    assert failed.kind == "run"
    assert count["n=2"] == 6


def test_law_must_be_positive() -> None:
    [outcome] = measure(jobs(1), FakeDevice(lambda *_: 0.0))
    assert isinstance(outcome, MeasurementFailure)
    assert "must be positive" in outcome.reason


def test_nothing_to_measure() -> None:
    assert measure([], FakeDevice(law)) == []


def test_progress_grows_to_its_total() -> None:
    seen: list[tuple[int, int]] = []
    measure(jobs(1, 2, 3), FakeDevice(law), progress=lambda done, total, _: seen.append((done, total)))
    done = [d for d, _ in seen]
    assert done == sorted(done)
    assert seen[0][0] == 0
    assert seen[-1][0] == seen[-1][1]
    assert len({total for _, total in seen}) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trials": 3, "min_trials": 4}, "min_trials <= trials .*got 4, 3"),
        ({"min_trials": 0}, "1 <= min_trials"),
        ({"warmups": -1}, "warmups >= 0"),
        ({"budget_s": 0}, "budget_s, limit_s and build_limit_s must be positive, got 0"),
        ({"precision": 1}, "precision must be a fraction .*got 1"),
        ({"precision": float("nan")}, "precision must be a fraction .*got nan"),
        ({"build_limit_s": -1}, "must be positive, got 0.5, 10.0 and -1"),
        ({"limit_s": float("nan")}, "must be positive, got .* nan"),
    ],
)
def test_senseless_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(MeasurementError, match=message):
        TimingOptions(**options)


def test_how_measuring_went_in_all() -> None:
    def law(label: str, sizes: Mapping[str, int]) -> float:
        if label == "n=2":
            msg = "n=2: does not build"
            raise MeasurementError(msg)
        return 1e-3 * sizes["n"]

    measured = measure(jobs(1, 2, 3), FakeDevice(law))
    assert [timing.label for timing in measured.timings] == ["n=1", "n=3"]
    told = TimingSummary(kernels_precise=2, kernels=2, samples=16, repeatability=0.0)
    assert measured.summary() == told
    drifting = Measured(measured, Drift(found=True, size=1.2, corrected=True), samples_resumed=7)
    assert drifting.summary() == replace(told, drift_ratio=1.2, drift_corrected=True, samples_resumed=7)


def test_example_of_the_fake_device() -> None:
    (example,) = doctest.DocTestFinder(recurse=False).find(FakeDevice, "FakeDevice", globs={"kernel": vector()})
    assert len(example.examples) >= 6
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = doctest.DocTestRunner().run(example)
    assert result.failed == 0


def test_devices_of_ones_own_bring_their_backends() -> None:
    fake = FakeDevice(law)
    assert isinstance(open_backend(fake, TimingOptions()), FakeBackend)
    job = SizedKernel(annotate(vector(), trip_counts={"j": 2}), {"n": 64}, "x")
    assert request_for(job, fake) is job


def test_real_devices_get_code_in_a_process_of_their_own(default_device: Device) -> None:
    job = SizedKernel(annotate(vector(), trip_counts={"j": 2}), {"n": 64}, "x")
    request = request_for(job, default_device)
    assert isinstance(request, LaunchRequest)
    assert request_for(request, default_device) is request
    for isolate in (True, False):
        with closing(open_backend(default_device, TimingOptions(isolate=isolate))) as backend:
            assert isinstance(backend, IsolatedBackend) == isolate
            assert backend.build(request).run(1)[0] > 0


def test_real_device_times_several_sizes(default_device: Device) -> None:
    kernel = vector()
    options = TimingOptions(trials=3, min_trials=2)
    real: list[SizedKernel] = [SizedKernel(kernel, {"n": n}, f"n={n}") for n in (1000, 100_000)]
    first, second, failed = measure([*real, SizedKernel(kernel, {}, "no size")], default_device, options)
    assert isinstance(first, Timing)
    assert isinstance(second, Timing)
    assert first.seconds > 0
    # Disturbed samples are taken again, up to as many.
    assert 3 <= len(second.samples) <= 6
    assert isinstance(failed, MeasurementFailure)
    assert isinstance(failed.error, MissingSizeError)
    copy = pickle.loads(pickle.dumps(failed))
    assert copy.reason == failed.reason
