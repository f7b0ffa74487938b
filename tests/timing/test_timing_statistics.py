"""A time, its interval and repeatability, and outliers, against exact distributions and simulated samples."""

import math

import numpy as np
import pytest
from scipy.stats import binom, expon, lognorm, norm

from perflex.timing.statistics import estimate, interval_of, interval_ranks, is_known_to, repeatability_of, time_of

# Shapes that timings have: symmetric, skewed, one-sided, and two ways in which a kernel runs.
SHAPES = {"normal": norm(1, 0.05), "lognormal": lognorm(0.3), "exponential": expon(1, 0.2)}
LEVELS = (0.5, 0.95, 1 - 0.05 / 6, 0.9995)


def two_modes(rng, size):
    """30 % of the samples near 2, the others near 1; continuous, so that every quantile is known."""
    return np.where(rng.random(size) < 0.3, 2.0, 1.0) + 0.02 * rng.random(size)


@pytest.mark.parametrize("level", LEVELS)
def test_ranks_are_the_innermost_that_the_binomial_distribution_allows(level):
    tail = (1 - level) / 2
    for count in (*range(1, 45), 60, 61, 99, 150, 199, 200):
        places = np.arange(count)
        # The quantile lies below the j-th sample from 0 when at most j samples lie below it.
        lower = places[binom.cdf(places, count, 0.5) <= tail * (1 + 1e-9)]
        upper = places[binom.sf(places, count, 0.5) <= tail * (1 + 1e-9)]
        expected = (lower[-1], upper[0]) if len(lower) and len(upper) else None
        assert interval_ranks(count, level) == expected, count


@pytest.mark.parametrize("level", [0.95, 1 - 0.05 / 6, 0.999])
def test_ranks_of_many_samples_hold_the_level(level):
    for count in (201, 250, 333, 1000, 4999):
        below = binom(count, 0.5)
        first, last = interval_ranks(count, level) or (0, 0)
        # Probability that neither too few nor too many samples lie below the quantile.
        reached = below.cdf(last) - below.cdf(first)
        assert level - 1e-3 <= reached, count
        # And little wider than the exact one.
        exact = below.ppf((1 + level) / 2) - below.ppf((1 - level) / 2)
        assert last - first <= exact + 4, count


@pytest.mark.parametrize("shape", [*SHAPES, "two modes"])
@pytest.mark.parametrize("count", [18, 60])
def test_interval_covers_the_median_as_often_as_it_says(count, shape):
    rng = np.random.default_rng(count)
    draws = 20_000
    if shape == "two modes":
        samples, truth = two_modes(rng, (draws, count)), 1 + 0.02 * 0.5 / 0.7
    else:
        samples = SHAPES[shape].rvs((draws, count), random_state=rng)
        truth = SHAPES[shape].ppf(0.5)
    # The interval of the rows is that of `interval_of`, without a sort for each.
    ranks = interval_ranks(count, 0.95)
    assert ranks is not None
    ordered = np.sort(samples, axis=1)
    assert interval_of(samples[0], 0.95) == (ordered[0, ranks[0]], ordered[0, ranks[1]])
    covered = np.mean((ordered[:, ranks[0]] <= truth) & (truth <= ordered[:, ranks[1]]))
    assert 0.95 - 3 * math.sqrt(0.05 * 0.95 / draws) <= covered
    # Between ranks there are steps of a few per cent, no more.
    assert covered <= 0.985


@pytest.mark.parametrize("noise", ["exponential", pytest.param("normal", marks=pytest.mark.slow)])
def test_repeatability_tells_by_how_much_a_second_series_differs(noise):
    rng = np.random.default_rng(21)
    draw = {"normal": rng.standard_normal, "exponential": rng.standard_exponential}[noise]
    series = 1 + 0.03 * draw((2, 3000, 40))
    foretold = np.median([repeatability_of(row) for row in series[0]])
    times = np.array([[time_of(row) for row in run] for run in series])
    found = np.median(np.abs(np.log(times[1] / times[0])))
    # Half the samples and the square root of two are a rule for many samples, and medians of 3,000 scatter by 3 %.
    assert foretold == pytest.approx(found, rel=0.15)


def test_a_drift_shows_in_the_repeatability():
    steady = quiet(40)
    drifting = steady * np.linspace(1, 1.2, 40)
    assert repeatability_of(steady) < 0.01
    # The halves' middles are 10 % apart.
    assert repeatability_of(drifting) == pytest.approx(math.log(1.15 / 1.05) / math.sqrt(2), abs=0.01)
    # In another order the same samples repeat well.
    assert repeatability_of(np.random.default_rng(0).permutation(drifting)) < 0.04


def test_repeatability_by_hand():
    # Early half 1, 2, 3 and late half 2, 4, 6; the one between belongs to neither.
    assert repeatability_of(np.array([3.0, 1, 2, 99, 6, 2, 4])) == pytest.approx(math.log(2) / math.sqrt(2))
    assert math.isnan(repeatability_of(np.array([1.0, 2, 3])))
    assert repeatability_of(np.ones(4)) == 0
    # Times below a coarse timer's tick have no ratio.
    assert math.isnan(repeatability_of(np.array([0.0, 0, 1, 1])))
    found = estimate(np.zeros(8))
    assert (found.seconds, found.interval) == (0.0, (0.0, 0.0))
    assert math.isnan(found.spread)


def quiet(count, seed=0):
    return 1e-3 * (1 + 0.01 * np.random.default_rng(seed).standard_normal(count))


def test_outliers_are_counted_and_left_out_of_spreads():
    samples = quiet(40)
    samples[[3, 17, 30]] = 1.5e-3, 9e-3, 1.2e-3
    found = estimate(samples)
    assert found.outliers == 3
    assert found.spread == estimate(np.delete(samples, [3, 17, 30])).spread
    # The median is that of all samples, which three of forty move by next to nothing.
    assert found.seconds == np.median(samples)


@pytest.mark.parametrize(
    ("samples", "changed", "outliers"),
    [
        # Fast samples are never removed.
        (quiet(40), {5: 1e-4}, 0),
        # Another way in which the kernel runs.
        (quiet(40), dict.fromkeys(range(0, 40, 4), 0.0013), 0),
        # Few samples have no outliers.
        (quiet(9), {4: 1.0}, 0),
        # Of equal ones, as coarse timers give them, 4 % are no accident worth removing.
        (np.full(30, 1e-3), {7: 1.04e-3}, 0),
        (np.full(30, 1e-3), {7: 1.06e-3}, 1),
    ],
)
def test_which_samples_are_outliers(samples, changed, outliers):
    own = samples.copy()
    own[list(changed)] = list(changed.values())
    assert estimate(own).outliers == outliers


def test_precision_is_half_the_interval_over_the_time():
    samples = np.array([1.0, 1.01, 1.02, 1.03, 1.04, 1.02])
    assert interval_of(samples, 0.95) == (1.0, 1.04)
    # 0.02 / 1.02 = 0.0196
    assert is_known_to(0.0197, samples)
    assert not is_known_to(0.0195, samples)
    assert not is_known_to(0, np.ones(9))
    # Too few samples have no interval.
    assert all(map(math.isnan, estimate(np.linspace(1, 2, 5)).interval))
    assert not is_known_to(0.9, np.linspace(1, 2, 5))
