"""Drift of a device's speed: found, measured, corrected where other kernels bear it out."""

from __future__ import annotations

import math
import pickle
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from perflex import TimingOptions
from perflex.testing import FakeDevice
from perflex.timing.disturbance import assess_drift, reference_count
from perflex.timing.measuring import measure
from support.scripted_device import ScriptedDevice, jobs, law
from support.timing_samples import Sample

if TYPE_CHECKING:
    from collections.abc import Callable

KERNELS = 9
LABELS = [f"k{index}" for index in range(KERNELS)]


def series(speed: Callable[[int], float], noise: float, rounds: int = 40, seed: int = 0) -> list[list[Sample]]:
    """Samples of nine kernels, the last of which are longest, on a device whose times follow `speed` by round."""
    rng = np.random.default_rng(seed)
    return [
        [
            Sample((1 + index) * 1e-3 * speed(r) * (1 + noise * rng.standard_normal()), 1, float(r), "s", r)
            for r in range(rounds)
        ]
        for index in range(KERNELS)
    ]


def test_a_third_of_the_kernels_are_references_but_three_at_most() -> None:
    assert [reference_count(n) for n in (1, 2, 4, 5, 7, 8, 100)] == [1, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize(
    "speed",
    [lambda r: 1 + 0.01 * r, lambda r: 1.3 if r >= 17 else 1.0, lambda r: 1.15 + 0.15 * math.sin(r / 4)],
    ids=["slope", "step", "wave"],
)
def test_drift_is_found_measured_and_corrected(speed: Callable[[int], float]) -> None:
    found = assess_drift(LABELS, series(speed, 0.01))
    drift = found.drift
    speeds = [speed(r) for r in range(40)]
    assert drift.found
    assert drift.corrected
    assert drift.size == pytest.approx(max(speeds) / min(speeds), rel=0.05)
    assert drift.references == ("k8", "k7", "k6")
    assert drift.rounds == 40
    assert drift.held_out is not None
    assert drift.held_out < 0.5
    # Kernels that had no part in finding the drift come out at the speed of the middle round.
    for index in range(6):
        values = found.samples[index] / ((1 + index) * 1e-3 * np.median(speeds))
        assert np.median(values) == pytest.approx(1, rel=0.02)
        assert np.ptp(np.quantile(values, (0.1, 0.9))) < 0.06


def test_noise_alone_is_seldom_taken_for_drift_and_never_divided_away() -> None:
    found = [assess_drift(LABELS, series(lambda _: 1.0, 0.05, seed=seed)).drift for seed in range(200)]
    assert sum(drift.found for drift in found) <= 6
    assert not any(drift.corrected for drift in found)


def test_drift_of_the_references_alone_is_reported_only() -> None:
    samples = series(lambda r: 1 + 0.01 * r, 0.01)
    steady = series(lambda _: 1.0, 0.01)
    found = assess_drift(LABELS, [*steady[:6], *samples[6:]])
    assert found.drift.found
    assert not found.drift.corrected
    assert found.drift.held_out is not None
    assert found.drift.held_out > 1
    np.testing.assert_array_equal(found.samples[0], [sample.seconds for sample in steady[0]])


def test_outliers_of_the_references_are_no_drift() -> None:
    samples = series(lambda r: 5.0 if r % 11 == 3 else 1.0, 0.01)
    drift = assess_drift(LABELS, samples).drift
    assert not drift.found
    assert drift.size < 1.05


def test_few_rounds_tell_nothing() -> None:
    drift = assess_drift(LABELS, series(lambda r: 1 + 0.1 * r, 0.0, rounds=7)).drift
    assert (drift.found, drift.corrected, drift.size, drift.rounds) == (False, False, 1.0, 7)
    assert assess_drift([], []).drift.references == ()


def test_one_kernel_alone_is_never_corrected() -> None:
    [own] = series(lambda r: 1 + 0.01 * r, 0.001)[:1]
    drift = assess_drift(["k"], [own]).drift
    assert drift.found
    assert not drift.corrected
    # None and not a number that differs from itself: drifts are compared.
    assert drift.held_out is None
    assert drift == pickle.loads(pickle.dumps(drift))


def test_kernels_that_took_part_in_few_rounds_are_corrected_for_those() -> None:
    samples = series(lambda r: 2.0 if r < 20 else 1.0, 0.005)
    early, late = samples[0][:10], samples[1][30:]
    found = assess_drift(LABELS, [early, late, *samples[2:]])
    assert found.drift.corrected
    middle = np.median(found.samples[0]) / np.median(found.samples[1])
    assert middle == pytest.approx(0.5, rel=0.02)  # the kernels' own ratio is 1 to 2; uncorrected it is 1


def test_rounds_in_which_all_references_were_disturbed_are_corrected_by_their_neighbours() -> None:
    samples = series(lambda r: 1 + 0.02 * r, 0.001)
    # The references lost every third round; the other kernels have samples of these.
    thinned = [own if index < 6 else [one for one in own if one.round % 3] for index, own in enumerate(samples)]
    # The longest are references all the same, for the others took part in even fewer rounds.
    thinned[:6] = [[one for one in own if one.round % 2 == 0] for own in thinned[:6]]
    found = assess_drift(LABELS, thinned)
    assert found.drift.references == ("k8", "k7", "k6")
    assert found.drift.corrected
    for values in found.samples[:6]:
        # Uncorrected, the time changes by 80 %; a running median lags behind by two rounds at the ends.
        assert np.ptp(values) / np.median(values) < 0.1


def test_sessions_come_one_after_the_other_whatever_the_clock_does() -> None:
    def shifted(sample: Sample, session: str, by: float) -> Sample:
        return Sample(sample.seconds, sample.launches, sample.started + by, session, sample.round)

    samples = series(lambda r: 1.4 if r >= 10 else 1.0, 0.01, rounds=20)
    first = [[shifted(s, "z", 0) for s in own if s.round < 10] for own in samples]
    second = [[shifted(s, "a", -5) for s in own if s.round >= 10] for own in samples]
    second = [[Sample(s.seconds, 1, 1000 - s.started, "a", s.round - 10) for s in own] for own in second]
    both = [[*a, *b] for a, b in zip(first, second, strict=True)]
    drift = assess_drift(LABELS, both).drift
    assert drift.corrected
    assert drift.size == pytest.approx(1.4, rel=0.03)


def test_times_further_apart_than_any_float() -> None:
    """A factor of exp(829) has no float: it is reported as the largest there is, and nothing becomes infinite."""
    samples = series(lambda r: 1e-180 if r < 20 else 1e180, 0.0)
    found = assess_drift(LABELS, samples)
    assert found.drift.found
    assert found.drift.size == pytest.approx(sys.float_info.max)
    assert all(np.isfinite(values).all() for values in found.samples)


def test_measuring_on_a_device_that_slows_down() -> None:
    """As one that heats up: each launch takes longer."""
    launched = 0

    def slower(_: Any, launches: int, run: Any) -> Any:
        nonlocal launched
        launched += launches
        return tuple(seconds * (1 + launched / 2000) for seconds in run(launches))

    wanted, options = jobs(*range(1000, 11_000, 1000)), TimingOptions(precision=0, trials=30, budget_s=10)
    steady = measure(wanted, FakeDevice(law, noise=0.02), options)
    assert not steady.drift.corrected
    slowing = measure(wanted, ScriptedDevice(law, noise=0.02, on_run=slower), options)
    assert slowing.drift.corrected
    assert slowing.drift.size > 1.2
    # All by the same factor.
    ratios = [after.seconds / before.seconds for before, after in zip(steady.timings, slowing.timings, strict=True)]
    assert ratios == pytest.approx([ratios[0]] * 10, rel=0.02)
    assert all(b.spread < 2 * a.spread for a, b in zip(steady.timings, slowing.timings, strict=True))
