"""When kernels are looked at, and that intervals hold the truth as often as they say though timing ends at a look."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from perflex import TimingOptions
from perflex.features import SizedKernel
from perflex.timing.measuring import outcomes_of
from perflex.timing.rounds import TimingJob
from perflex.timing.statistics import interim_counts, interim_level
from support.timing_samples import Sample

if TYPE_CHECKING:
    from collections.abc import Callable


def entry(seconds, activity=None):
    samples = [Sample(float(value), 1, float(i), "s", i, activity) for i, value in enumerate(seconds)]
    return TimingJob(SizedKernel(None, {}, "k"), samples=samples)


@pytest.mark.parametrize(
    ("trials", "expected"),
    [
        (60, (8, 12, 18, 27, 41, 60)), (500, (8, 12, 18, 27, 41, 62, 93, 140, 210, 315, 473, 500)),
        (8, (8,)), (9, (8, 9)), (3, (3,)), (1, (1,)),
    ],
)  # fmt: skip
def test_looks_by_hand_and_the_level_of_each(trials, expected):
    assert interim_counts(trials) == expected
    assert interim_level(trials) == pytest.approx(1 - 0.05 / len(expected))


# Steady samples: known at the first number of samples that is looked at and at least the fewest.
@pytest.mark.parametrize(("fewest", "known_at"), [(1, 8), (5, 8), (8, 8), (9, 12), (13, 18), (30, 41), (60, 60)])
def test_kernels_become_known_at_looks_only(fewest, known_at):
    options = TimingOptions(min_trials=fewest)
    found = [count for count in range(1, 61) if entry([1e-3] * count).is_known(options)]
    assert found[0] == known_at


def test_what_came_after_a_look_does_not_decide():
    options = TimingOptions(precision=0.02)
    values = [1e-3] * 8
    # Eleven samples: the last look was at eight of them, and these are steady.
    assert entry([*values, 2e-3, 3e-3, 5e-4]).is_known(options)
    wild = [1e-3, 2e-3] * 4
    assert not entry([*wild, 1e-3, 1e-3, 1e-3]).is_known(options)


# Relative times, their true median, and half widths at which kernels end at several of the looks.
SHAPES: dict[str, tuple[Callable[[np.random.Generator, tuple[int, int]], np.ndarray], float, float]] = {
    "lognormal": (lambda rng, size: np.exp(0.06 * rng.standard_normal(size)), 1.0, 0.03),
    "two ways in which a kernel runs": (
        lambda rng, size: np.where(rng.random(size) < 0.3, 2.0, 1.0) + 0.05 * rng.random(size),
        1 + 0.05 * 0.5 / 0.7,
        0.02,
    ),
}


def last_interim_counts(samples, precision):
    """Return after how many samples each row's kernel is known, by the rule itself."""
    options = TimingOptions(precision=precision, budget_s=1e9, min_trials=1)
    ends = np.zeros(len(samples), dtype=int)
    for row, values in enumerate(samples):
        own = entry(values)
        for count in interim_counts(60):
            if TimingJob(own.kernel, samples=own.samples[:count]).is_known(options):
                ends[row] = count
                break
    return ends


def covered(samples, ends, truth):
    """Return the share of rows whose final interval, as it is reported, holds the true median."""
    entries = [entry(values[:end]) for values, end in zip(samples, ends, strict=True)]
    low, high = np.array([outcome.interval for outcome in outcomes_of(entries, TimingOptions(min_trials=1))]).T
    return float(np.mean((low <= truth) & (truth <= high)))


@pytest.mark.parametrize(
    "shape", ["lognormal", pytest.param("two ways in which a kernel runs", marks=pytest.mark.slow)]
)
def test_intervals_keep_their_word_though_timing_ends_when_they_are_narrow(shape):
    draw, truth, precision = SHAPES[shape]
    samples = 1e-3 * draw(np.random.default_rng(1), (300, 60))
    ends = last_interim_counts(samples, precision)
    # Only where kernels end at several looks does the simulation say something of ending.
    assert set(ends) <= set(interim_counts(60))
    assert len(set(ends)) >= 3
    assert covered(samples, ends, 1e-3 * truth) >= 0.95 - 2 * math.sqrt(0.05 * 0.95 / 300)
