from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflex.timing.statistics import estimate, interval_ranks, stray_samples


def resampled(values: np.ndarray, function: object, draws: int = 20_000) -> tuple[float, float]:
    """The percentile interval the long way."""
    rng = np.random.default_rng(0)
    statistics = function(rng.choice(values, (draws, len(values))), axis=1)  # type: ignore[operator]
    low, high = np.quantile(statistics, (0.025, 0.975), method="inverted_cdf")
    return float(low), float(high)


@pytest.mark.parametrize("count", [5, 7, 9, 15, 25, 61, 199])
def test_interval_of_an_odd_number_is_what_resampling_gives(count: int) -> None:
    values = np.sort(np.random.default_rng(count).lognormal(size=count))
    first, last = interval_ranks(count, "median")
    low, high = resampled(values, np.median)
    # Resampling is itself only known to a rank.
    assert abs(np.searchsorted(values, low) - first) <= 1
    assert abs(np.searchsorted(values, high) - last) <= 1
    if count <= 25:
        assert (values[first], values[last]) == (low, high)


@pytest.mark.parametrize("count", [2, 6, 10, 60])
def test_interval_of_an_even_number_contains_what_resampling_gives(count: int) -> None:
    values = np.sort(np.random.default_rng(count).lognormal(size=count))
    first, last = interval_ranks(count, "median")
    low, high = resampled(values, np.median)
    assert values[first] <= low
    assert values[last] >= high
    assert last - first <= 2 * np.sqrt(count) + 2


@pytest.mark.parametrize("count", [1, 5, 10, 60])
def test_interval_of_the_minimum_is_what_resampling_gives(count: int) -> None:
    values = np.sort(np.random.default_rng(count).lognormal(size=count))
    first, last = interval_ranks(count, "minimum")
    assert (values[first], values[last]) == resampled(values, np.min)


def test_interval_covers_the_true_median_nineteen_times_in_twenty() -> None:
    rng = np.random.default_rng(3)
    for count in (9, 20, 60):
        covered = 0
        for _ in range(1000):
            low, high = estimate(1 + rng.exponential(size=count) * 0.01, "median").interval
            covered += low <= 1 + 0.01 * np.log(2) <= high
        assert 0.92 <= covered / 1000 <= 0.99


@given(st.integers(1, 5000))
def test_ranks_are_of_the_samples_and_around_the_middle(count: int) -> None:
    first, last = interval_ranks(count, "median")
    assert 0 <= first <= (count - 1) // 2 <= count // 2 <= last < count


def test_many_samples_go_over_into_the_normal_distribution() -> None:
    exact, normal = np.array(interval_ranks(200, "median")), np.array(interval_ranks(201, "median"))
    assert np.abs(exact - normal).max() <= 2


def quiet(count: int, seed: int = 0) -> np.ndarray:
    return 1e-3 * (1 + 0.01 * np.random.default_rng(seed).standard_normal(count))


def test_strays_are_removed_and_counted() -> None:
    samples = quiet(40)
    samples[[3, 17, 30]] = 1.5e-3, 9e-3, 1.2e-3
    strays, second = stray_samples(samples)
    assert np.flatnonzero(strays).tolist() == [3, 17, 30]
    assert not second
    found = estimate(samples, "median")
    assert found.outliers == 3
    assert found == estimate(samples, "median")
    without = estimate(np.delete(samples, [3, 17, 30]), "median")
    assert (found.seconds, found.interval, found.spread) == (without.seconds, without.interval, without.spread)


def test_a_second_mode_is_kept_and_told() -> None:
    samples = quiet(40)
    samples[::4] *= 1.3
    found = estimate(samples, "median")
    assert (found.outliers, found.second_mode) == (0, True)


def test_fast_samples_are_never_removed() -> None:
    samples = quiet(40)
    samples[5] = 1e-4
    assert estimate(samples, "minimum").seconds == 1e-4
    assert estimate(samples, "median").outliers == 0


def test_few_samples_have_no_strays() -> None:
    samples = quiet(9)
    samples[4] = 1.0
    found = estimate(samples, "median")
    assert (found.outliers, found.second_mode) == (0, False)


def test_steady_samples_lose_nothing_that_is_near() -> None:
    # All but one equal, as coarse timers give them: no deviation at all, but 4 % are no accident worth removing.
    samples = np.full(30, 1e-3)
    samples[7] = 1.04e-3
    assert estimate(samples, "median").outliers == 0
    samples[7] = 1.06e-3
    assert estimate(samples, "median").outliers == 1


@pytest.mark.parametrize(("noise", "share"), [("normal", 0.002), ("exponential", 0.02), ("uniform", 0.0)])
def test_plain_noise_loses_next_to_nothing(noise: str, share: float) -> None:
    rng = np.random.default_rng(11)
    draw = {"normal": rng.standard_normal, "exponential": rng.standard_exponential, "uniform": rng.random}[noise]
    removed = sum(estimate(1 + 0.05 * draw(60), "median").outliers for _ in range(200))
    assert removed / (200 * 60) <= share


def test_precision_is_half_the_interval_over_the_time() -> None:
    found = estimate(np.array([1.0, 1.01, 1.02, 1.03, 1.04]), "median")
    assert found.interval == (1.0, 1.04)
    assert found.known_to(0.0197)
    assert not found.known_to(0.0195)
    assert not estimate(np.ones(9), "median").known_to(0)
