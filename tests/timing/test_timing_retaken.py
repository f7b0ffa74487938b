"""Disturbed samples are taken again within limits, kept, and not used."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from perflex import TimingOptions
from perflex.features import SizedKernel
from perflex.testing import FakeDevice
from perflex.timing.measuring import measure
from perflex.timing.rounds import _launches, _midmean
from support.timing_samples import device_beside_others

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from support.timing_samples import Failure, MeasurementKey, Sample

KERNEL: Any = None


def law(_: str, sizes: Mapping[str, int]) -> float:
    return 1e-6 * sizes["n"]


def jobs(*sizes: int) -> list[SizedKernel]:
    return [SizedKernel(KERNEL, {"n": n}, f"n={n}") for n in sizes]


def shared(disturbs: Callable[[int], bool], noise: float = 0.0) -> FakeDevice:
    return device_beside_others(law, disturbs, noise=noise)


class Kept:
    """A recorder in memory, which may be interrupted after some samples."""

    def __init__(self) -> None:
        self.samples: dict[MeasurementKey, list[Sample]] = defaultdict(list)
        self.left: int | None = None

    def earlier(self, key: MeasurementKey) -> tuple[Sample, ...]:
        return tuple(self.samples.get(key, ()))

    def failure(self, key: MeasurementKey) -> Failure | None:  # noqa: ARG002
        return None

    def add(self, key: MeasurementKey, sample: Sample, label: str = "") -> None:  # noqa: ARG002
        if self.left == 0:
            raise KeyboardInterrupt
        self.left = self.left and self.left - 1
        self.samples[key].append(sample)

    def fail(self, key: MeasurementKey, failure: Failure, label: str = "") -> None:
        pytest.fail(f"{key} {failure} {label}")


EXACT = TimingOptions(precision=0, trials=20, budget_s=100, warmups=0)


def test_disturbed_samples_are_taken_again_and_kept_and_not_used() -> None:
    kept = Kept()
    measured = measure(jobs(1000), shared(lambda number: number % 3 == 1), EXACT, recorder=kept)
    [timing] = measured.timings
    # Twenty undisturbed ones, and one in three beside them.
    assert (len(timing.samples), timing.disturbed_samples, timing.disturbed) == (30, 10, False)
    assert timing.seconds == pytest.approx(1e-3)
    assert timing.interval == pytest.approx((1e-3, 1e-3))
    assert timing.spread == timing.repeatability == 0
    assert sorted(set(np.round(timing.samples, 9))) == [1e-3, 2e-3]
    [recorded] = kept.samples.values()
    assert [one.seconds for one in recorded] == list(timing.samples)
    assert [one.activity is not None and (one.activity.waited_s or 0) > 0 for one in recorded] == [
        number % 3 == 1 for number in range(30)
    ]
    summary = measured.summary()
    assert (summary.samples, summary.disturbed_samples, summary.kernels_disturbed) == (30, 10, 0)
    assert summary.repeatability == 0


def test_without_reports_the_same_times_cannot_be_told_apart() -> None:
    # Half of the samples twice as long, as another way in which the kernel runs: kept, for nothing is known of them.
    [timing] = measure(jobs(1000), FakeDevice(law, noise=0.5), EXACT).timings
    assert (len(timing.samples), timing.disturbed_samples, timing.disturbed) == (20, 0, False)


def test_retaking_ends_at_twice_the_trials() -> None:
    measured = measure(jobs(1000), shared(lambda number: number % 5 > 0), EXACT)
    [timing] = measured.timings
    assert (len(timing.samples), timing.disturbed_samples) == (40, 32)
    # Eight undisturbed samples are enough to go by.
    assert not timing.disturbed
    assert timing.seconds == pytest.approx(1e-3)


def test_where_all_is_disturbed_it_is_said() -> None:
    measured = measure(jobs(1000, 3000), shared(lambda _: True), EXACT)
    for timing, seconds in zip(measured.timings, (2e-3, 6e-3), strict=True):
        assert (len(timing.samples), timing.disturbed_samples, timing.disturbed) == (40, 40, True)
        assert timing.seconds == pytest.approx(seconds)
        assert not timing.precise
    assert measured.summary().kernels_disturbed == 2


@pytest.mark.parametrize(("disturbs", "budgets"), [(lambda number: number % 2 == 0, 1), (lambda _: True, 2)])
def test_retaking_ends_with_the_budget(disturbs: Callable[[int], bool], budgets: int) -> None:
    """Where enough samples are undisturbed the budget is what it is, else up to twice that."""
    options = TimingOptions(precision=0, trials=1000, min_trials=5, budget_s=1.0, warmups=0)
    [timing] = measure(jobs(10_000), shared(disturbs), options).timings
    assert timing.disturbed == (budgets == 2)
    assert budgets - 0.05 < sum(timing.samples) <= budgets + 1e-9


def test_interrupted_runs_beside_other_work_end_like_uninterrupted_ones() -> None:
    kept = Kept()
    stops = random.Random(4)  # noqa: S311
    beside = random.Random(5)  # noqa: S311
    options = TimingOptions(trials=25, precision=0.01)
    sizes = (300, 1500, 4000, 9000)
    interrupted = 0
    while True:
        kept.left = stops.randrange(25)
        try:
            resumed = measure(jobs(*sizes), shared(lambda _: beside.random() < 0.3, 0.05), options, recorder=kept)
        except KeyboardInterrupt:
            interrupted += 1
            continue
        break
    assert interrupted >= 3
    assert resumed.summary().disturbed_samples > 0

    def closed() -> Any:
        pytest.fail("opened in vain")

    nothing = FakeDevice(law)
    object.__setattr__(nothing, "backend", closed)
    again = measure(jobs(*sizes), nothing, options, recorder=kept)
    assert again == resumed
    assert again.drift == resumed.drift


def test_launches_of_a_sample_on_the_hosts_processors_take_a_millisecond() -> None:
    def launches(kind: str, seconds: float, resolution: float = 1e-9) -> int:
        backend: Any = SimpleNamespace(device=SimpleNamespace(kind=kind), timer_resolution_s=resolution)
        return _launches(seconds, backend)

    assert launches("cpu", 5e-4) == 2
    assert launches("cpu", 3e-5) == 34
    assert launches("cpu", 1e-3) == launches("cpu", 1.0) == 1
    assert launches("cpu", 1e-8) == 200
    # A coarse timer wants more yet.
    assert launches("cpu", 1e-4, 1e-4) == 50
    assert launches("cpu", 0.0, 1e-4) == 50
    assert launches("gpu", 1e-5) == 1
    fake: Any = FakeDevice(law).backend()
    assert _launches(1e-6, fake) == 1


def test_the_middle_half_of_the_launches_is_averaged() -> None:
    assert _midmean((3.0,)) == 3
    assert _midmean((1.0, 2.0)) == 1.5
    assert _midmean((1.0, 100.0, 4.0)) == 35
    # One in four may be interrupted.
    assert _midmean((1000.0, 2.0, 1.0, 4.0)) == 3
    values = np.random.default_rng(0).random(40)
    assert _midmean(tuple(values)) == pytest.approx(np.sort(values)[10:30].mean())


def test_activity_travels_with_the_samples_only_where_it_is_known() -> None:
    kept = Kept()
    measure(jobs(100), FakeDevice(law), replace(EXACT, trials=8), recorder=kept)
    [recorded] = kept.samples.values()
    assert all(one.activity is None for one in recorded)
