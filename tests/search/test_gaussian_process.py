"""The Gaussian process: the textbook's formulas, fits of largest density, honest about what it did not see."""

import itertools

import mpmath
import numpy as np
import pytest

from perflex.search.gaussian_process import Columns, Forecast, GaussianProcess, standardised

GRID = np.array(list(itertools.product(range(6), range(5), range(4))), dtype=float)
LOGS = 0.1 * (GRID[:, 0] - 3) ** 2 + 0.15 * (GRID[:, 1] - 1.5) ** 2 + 0.1 * np.abs(GRID[:, 2] - GRID[:, 0] / 2)
BATCH = np.arange(0, 120, 3)


def known(table, logs=None):
    return Columns(table, logs)


def test_mean_and_variance_are_the_textbooks():
    """Rasmussen and Williams, Equations 2.25 and 2.26, with Matern 3/2 (4.17) and a linear trend, in 50 digits."""
    process = GaussianProcess()
    measured = np.array([0, 7, 33, 61, 90, 119])
    found = process.forecast(known(GRID), measured, np.exp(LOGS[measured]))
    *columns, every, noise, trend, smooth = map(float, process._found)
    points = standardised(GRID) * np.exp(np.array(columns) + every)
    rest = LOGS[measured]
    with mpmath.workdps(50):

        def covariance(a, b):
            r = mpmath.sqrt(3 * mpmath.fsum((mpmath.mpf(x) - mpmath.mpf(y)) ** 2 for x, y in zip(a, b, strict=True)))
            line = 1 + mpmath.fsum(mpmath.mpf(x) * mpmath.mpf(y) for x, y in zip(a, b, strict=True))
            return mpmath.exp(smooth) * ((1 + r) * mpmath.exp(-r) + mpmath.exp(trend) * line)

        error = mpmath.exp(noise) + mpmath.mpf("1e-8")
        matrix = mpmath.matrix(6, 6)
        for i, j in itertools.product(range(6), range(6)):
            matrix[i, j] = covariance(points[measured[i]], points[measured[j]]) + (error if i == j else 0)
        inverse = matrix**-1
        targets = mpmath.matrix(((rest - rest.mean()) / rest.std()).tolist())
        for row in (3, 50, 100):
            across = mpmath.matrix([covariance(points[row], points[number]) for number in measured])
            mean = rest.mean() + rest.std() * (across.T * inverse * targets)[0]
            variance = covariance(points[row], points[row]) - (across.T * inverse * across)[0] + error
            assert found.logs[row] == pytest.approx(float(mean), rel=1e-9)
            assert found.deviations[row] == pytest.approx(float(rest.std() * mpmath.sqrt(variance)), rel=1e-7)


def test_what_is_found_is_a_maximum(monkeypatch):
    """The derivatives that the fit goes by are those of its cost, and vanish where it ends."""
    import scipy.optimize

    minimise, kept = scipy.optimize.minimize, {}

    def watched(cost, start, **more):
        kept.update(cost=cost, found=minimise(cost, start, **more))
        return kept["found"]

    monkeypatch.setattr(scipy.optimize, "minimize", watched)
    noisy = LOGS[BATCH] + 0.1 * np.random.default_rng(1).normal(size=BATCH.size)
    GaussianProcess().forecast(known(GRID), BATCH, np.exp(noisy))
    cost, best = kept["cost"], kept["found"].x
    for point in (best, best + 0.3):
        steps = 1e-5 * np.eye(best.size)
        slopes = [(cost(point + step)[0] - cost(point - step)[0]) / 2e-5 for step in steps]
        assert cost(point)[1] == pytest.approx(slopes, abs=1e-5)
    assert np.abs(cost(best)[1]).max() < 0.02


def test_a_known_law_is_learned_and_deviations_say_how_well():
    found = GaussianProcess().forecast(known(GRID), BATCH, np.exp(LOGS[BATCH]))
    rest = np.setdiff1d(np.arange(120), BATCH)
    errors = np.abs(found.logs - LOGS)[rest]
    assert errors.mean() < 0.05
    assert np.abs(found.logs - LOGS)[BATCH].max() < errors.max()
    assert 0.8 < np.mean(errors < 2 * found.deviations[rest]) <= 1


def test_what_is_expected_needs_no_learning():
    expected = LOGS + 0.7 + 0.2 * GRID[:, 2]
    few = BATCH[::3]
    found = GaussianProcess().forecast(known(GRID, expected), few, np.exp(LOGS[few]))
    alone = GaussianProcess().forecast(known(GRID), few, np.exp(LOGS[few]))
    assert np.abs(found.logs - LOGS).mean() < 0.5 * np.abs(alone.logs - LOGS).mean()
    assert found.expected is expected


def test_unseen_predictions_are_those_of_fits_without_the_fold():
    process, seconds = GaussianProcess(), np.exp(LOGS[BATCH])
    found = process.forecast(known(GRID), BATCH, seconds)
    unseen = process.unseen(known(GRID), BATCH, seconds)
    fold = np.random.default_rng(0).permutation(BATCH.size) % 5
    for number in range(5):
        alone, seen = GaussianProcess(), fold != number
        alone._found = process._found
        again = alone.forecast(known(GRID), BATCH[seen], seconds[seen])
        assert unseen.logs[~seen] == pytest.approx(again.logs[BATCH[~seen]])
        assert unseen.deviations[~seen] == pytest.approx(again.deviations[BATCH[~seen]])
    # Those that saw the times would look better than they are.
    assert np.abs(unseen.logs - LOGS[BATCH]).mean() > np.abs(found.logs - LOGS)[BATCH].mean()


def test_tables_without_anything_to_tell_rows_apart():
    found = GaussianProcess().forecast(known(np.ones((5, 2))), np.array([0, 1]), np.array([1.0, np.e]))
    assert found.logs == pytest.approx(np.full(5, 0.5))
    alike = np.repeat(GRID[:4], 2, axis=0)
    again = GaussianProcess().forecast(known(alike), np.arange(8), np.exp(np.arange(8.0)))
    assert again.logs[::2] == pytest.approx(again.logs[1::2])


def test_order_keeps_what_either_prediction_puts_first():
    places = np.arange(100.0)
    found = Forecast(places, np.zeros(100), np.roll(places, 50))
    assert {0, 50} <= set(found.order[:4].tolist())
    assert found.order[0] == 0
    assert Forecast(places[::-1], np.zeros(100)).order.tolist() == list(range(99, -1, -1))
