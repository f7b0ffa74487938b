"""When kernels are looked at, and that intervals hold the truth as often as they say though timing ends at a look."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.stats import norm, t

from perflex import TimingOptions
from perflex.features import SizedKernel
from perflex.timing.measuring import outcomes_of
from perflex.timing.results import Timing
from perflex.timing.rounds import Entry
from perflex.timing.statistics import RISK, interval_ranks, level_of_look, looks
from support.timing_samples import Sample, SystemActivity

if TYPE_CHECKING:
    from collections.abc import Callable

KERNEL: Any = None


def entry(seconds: Any, activity: SystemActivity | None = None) -> Entry:
    samples = [Sample(float(value), 1, float(i), "s", i, activity) for i, value in enumerate(seconds)]
    return Entry(SizedKernel(KERNEL, {}, "k"), samples=samples)


def test_looks_by_hand() -> None:
    assert looks(60) == (8, 12, 18, 27, 41, 60)
    assert level_of_look(60) == pytest.approx(1 - 0.05 / 6)
    assert looks(500) == (8, 12, 18, 27, 41, 62, 93, 140, 210, 315, 473, 500)
    assert looks(8) == (8,)
    assert looks(9) == (8, 9)
    assert looks(3) == (3,)
    assert looks(1) == (1,)
    assert level_of_look(5) == 0.95


@pytest.mark.parametrize("trials", [1, 7, 8, 13, 60, 1000, 10_000])
def test_looks_ascend_to_the_last_trial_and_share_the_risk(trials: int) -> None:
    found = looks(trials)
    assert list(found) == sorted(set(found))
    assert found[-1] == trials
    assert len(found) * (1 - level_of_look(trials)) == pytest.approx(RISK)


def test_the_first_look_of_sixty_trials_can_tell() -> None:
    assert interval_ranks(8, level_of_look(60)) == (0, 7)


# Steady samples: known at the first number of samples that is looked at and at least the fewest.
@pytest.mark.parametrize(("fewest", "known_at"), [(1, 8), (5, 8), (8, 8), (9, 12), (13, 18), (30, 41), (60, 60)])
def test_kernels_become_known_at_looks_only(fewest: int, known_at: int) -> None:
    options = TimingOptions(min_trials=fewest)
    found = [count for count in range(1, 61) if entry([1e-3] * count).is_known(options)]
    assert found[0] == known_at


def test_what_came_after_a_look_does_not_decide() -> None:
    options = TimingOptions(precision=0.02)
    values = [1e-3] * 8
    # Eleven samples: the last look was at eight of them, and these are steady.
    assert entry([*values, 2e-3, 3e-3, 5e-4]).is_known(options)
    wild = [1e-3, 2e-3] * 4
    assert not entry([*wild, 1e-3, 1e-3, 1e-3]).is_known(options)


def test_a_spent_budget_ends_between_looks() -> None:
    options = TimingOptions(precision=0, budget_s=1.0, warmups=1, min_trials=3)
    # 0.04 s with its warm-up takes 0.08 s: twelve fit into the budget.
    assert [entry([0.04] * count).is_known(options) for count in (11, 12)] == [False, True]


# Relative times, and their true median: one-sided noise, skewed, a heavy tail, and two ways in which a kernel runs.
SHAPES: dict[str, tuple[Callable[[np.random.Generator, tuple[int, int]], np.ndarray], float]] = {
    "one-sided normal": (lambda rng, size: 1 + 0.05 * np.abs(rng.standard_normal(size)), 1 + 0.05 * norm.ppf(0.75)),
    "lognormal": (lambda rng, size: np.exp(0.06 * rng.standard_normal(size)), 1.0),
    "heavy tail": (lambda rng, size: 1 + 0.02 * np.abs(rng.standard_t(1.5, size)), 1 + 0.02 * t.ppf(0.75, 1.5)),
    "two modes": (
        lambda rng, size: np.where(rng.random(size) < 0.3, 2.0, 1.0) + 0.05 * rng.random(size),
        1 + 0.05 * 0.5 / 0.7,
    ),
}
# Half widths at which kernels end at all of the looks, some at the first and some never.
PRECISIONS = {"one-sided normal": 0.02, "lognormal": 0.03, "heavy tail": 0.02, "two modes": 0.02}


def last_looks(samples: np.ndarray, precision: float) -> np.ndarray:
    """Return after how many samples each row's kernel is known, by the rule itself."""
    options = TimingOptions(precision=precision, budget_s=1e9, min_trials=1)
    ends = np.zeros(len(samples), dtype=int)
    for row, values in enumerate(samples):
        own = entry(values)
        for count in looks(60):
            if Entry(own.job, samples=own.samples[:count]).is_known(options):
                ends[row] = count
                break
    return ends


def covered(samples: np.ndarray, ends: np.ndarray, truth: float) -> float:
    """Return the share of rows whose final interval, as it is reported, holds the true median."""
    entries = [entry(values[:end]) for values, end in zip(samples, ends, strict=True)]
    intervals = []
    for one in entries:
        # One by one: no kernel may serve another as reference.
        [outcome] = outcomes_of([one], TimingOptions(min_trials=1))
        assert isinstance(outcome, Timing)
        intervals.append(outcome.interval)
    low, high = np.array(intervals).T
    return float(np.mean((low <= truth) & (truth <= high)))


@pytest.mark.parametrize(
    "shape", [pytest.param(shape, marks=() if shape == "lognormal" else pytest.mark.slow) for shape in SHAPES]
)
def test_intervals_keep_their_word_though_timing_ends_when_they_are_narrow(shape: str) -> None:
    check_coverage(shape, kernels=300, seed=1)


def check_coverage(shape: str, kernels: int, seed: int) -> None:
    draw, truth = SHAPES[shape]
    samples = 1e-3 * draw(np.random.default_rng(seed), (kernels, 60))
    ends = last_looks(samples, PRECISIONS[shape])
    # Only where kernels end at several looks does the simulation say something of ending.
    assert set(ends) <= set(looks(60))
    assert len(set(ends)) >= 3
    standard_error = math.sqrt(0.05 * 0.95 / kernels)
    assert covered(samples, ends, 1e-3 * truth) >= 0.95 - 2 * standard_error
