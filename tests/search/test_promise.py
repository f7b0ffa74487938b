"""The promise holds in simulated spaces, whatever the predictor; the set is small where predictions are good."""

import math
import sys

import numpy as np
import pytest

from perflex import Promise
from perflex.errors import CalibrationError
from perflex.search.promise import keep_by_promise, kept_ratio


def simulated(chance, error, tail, count=2000):
    """True and predicted times: predictions shrink to the mean and have errors with heavy tails."""
    logs = 0.8 * np.abs(chance.normal(size=count)) + 0.1 * chance.exponential(size=count)
    errors = error * chance.standard_t(tail, size=count)
    shrunk = logs.mean() + 0.8 * (logs - logs.mean())
    return np.exp(logs), np.exp(shrunk + errors)


def drawn(seed, error, tail, size, count=2000):
    """Return the true times of a space, the predicted ones, and a batch's numbers and times."""
    chance = np.random.default_rng(seed)
    times, predicted = simulated(chance, error, tail, count)
    batch = chance.choice(times.size, size, replace=False)
    return times, predicted, batch


@pytest.mark.slow
@pytest.mark.parametrize(("error", "tail", "size"), [(0.02, 30, 25), (0.3, 3, 25), (1.0, 3, 200)])
def test_coverage_is_at_least_what_was_asked_for(error, tail, size):
    held = 0
    for seed in range(200):
        times, predicted, batch = drawn(seed, error, tail, size)
        held += times[keep_by_promise(predicted, batch, times[batch], Promise()).kept].min() <= 1.05 * times.min()
    assert held >= 190


def test_good_predictions_keep_few():
    times, predicted, batch = drawn(3, 0.02, 30, 100)
    exact, rough = (keep_by_promise(each, batch, times[batch], Promise()) for each in (times, predicted))
    assert exact.met
    assert rough.met
    assert exact.achieved_confidence >= 0.95
    # With exact predictions only what is faster than the fastest measured can be kept, and that one itself.
    fastest = times[batch].min()
    assert set(exact.kept) == set(np.flatnonzero(times <= fastest))
    assert exact.kept.size <= rough.kept.size < 0.5 * times.size


def test_a_looser_promise_keeps_no_more():
    times, predicted, batch = drawn(4, 0.1, 5, 120)
    promises = (Promise(0.0, 0.99), Promise(0.05, 0.95), Promise(0.05, 0.8), Promise(0.5, 0.5))
    sizes = [keep_by_promise(predicted, batch, times[batch], promise).kept.size for promise in promises]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[-1]


def test_kept_are_in_order_and_hold_the_fastest_measured_alone_of_the_batch():
    times, predicted, batch = drawn(5, 0.1, 5, 40, count=300)
    kept = keep_by_promise(predicted, batch, times[batch], Promise()).kept
    assert (np.diff(predicted[kept]) >= 0).all()
    assert set(kept) & set(batch) == {batch[np.argmin(times[batch])]}


def test_ratios_larger_than_any_float_still_say_that_variants_are_dropped():
    # Measured 1e-200 s and predicted 1e150 s: what is dropped is predicted slower than 10 ** 350 times the fastest.
    predicted = np.concatenate([np.full(25, 1e150), [1e300]])
    decision = keep_by_promise(predicted, np.arange(20), np.geomspace(1e-200, 2e-200, 20), Promise())
    assert 25 not in decision.kept
    assert set(range(20, 25)) <= set(decision.kept)
    assert decision.threshold_ratio == pytest.approx(sys.float_info.max)


@pytest.mark.parametrize("size", [0, 1, 18])
def test_too_small_a_batch_drops_nothing_unmeasured(size):
    times = np.linspace(1.0, 2.0, 100)
    decision = keep_by_promise(times, np.arange(size), times[:size], Promise())
    assert not decision.met
    assert math.isinf(decision.threshold_ratio)
    assert set(range(size, 100)) <= set(decision.kept)
    assert "19 measured variants are needed" in decision.explanation


def test_predictions_that_know_nothing_keep_nearly_everything():
    shares = []
    for seed in range(20):
        chance = np.random.default_rng(seed)
        times, predicted = np.exp(chance.normal(size=500)), np.exp(chance.normal(size=500))
        batch = chance.choice(500, 60, replace=False)
        shares.append(keep_by_promise(predicted, batch, times[batch], Promise()).kept.size / 440)
    assert np.median(shares) > 0.8


def test_everything_measured_is_a_promise_kept():
    times = np.array([3.0, 1.0, 2.0])
    decision = keep_by_promise(times[::-1], np.arange(3), times, Promise())
    assert decision.met
    assert decision.kept.tolist() == [1]


def test_what_was_searched_for_lowers_the_bound_but_does_not_vouch_for_the_model():
    times, predicted, batch = drawn(6, 0.2, 5, 60)
    promising = np.setdiff1d(np.argsort(predicted)[:40], batch)
    alone = keep_by_promise(predicted, batch, times[batch], Promise())
    both, judges = np.concatenate([batch, promising]), np.arange(60 + promising.size) < 60
    more = keep_by_promise(predicted, both, times[both], Promise(), judges=judges)
    assert more.kept.size < alone.kept.size
    assert len(set(more.kept) & set(promising)) <= 1


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        *((wrong, "must be a number") for wrong in ({"loss": "5%"}, {"confidence": None}, {"loss": True})),
        *(({"loss": loss}, r"e\.g\.") for loss in (-0.1, math.nan)),
        *(({"confidence": confidence}, r"e\.g\.") for confidence in (0.0, 1.0)),
    ],
)
def test_what_is_no_promise_is_refused(wrong, text):
    with pytest.raises(ValueError, match=text):
        Promise(**wrong)


def test_what_known_spaces_need_holds_for_further_ones():
    """Each draw of 19 spaces decides for 20 further ones; over all draws it holds for 19 of 20, no more and no less."""
    chance, promise = np.random.default_rng(5), Promise()
    held, kept = [], []
    for _ in range(150):
        measured = np.exp(chance.normal(size=(39, 30)))
        predicted = measured * np.exp(0.2 * chance.standard_t(3, size=measured.shape))
        names = np.repeat([f"space {number}" for number in range(19)], 30)
        ratio = kept_ratio(predicted[:19].ravel(), measured[:19].ravel(), names, promise)
        chosen = predicted[19:] <= ratio * predicted[19:].min(axis=1, keepdims=True)
        best = np.where(chosen, measured[19:], np.inf).min(axis=1)
        held.append(np.mean(best <= 1.05 * measured[19:].min(axis=1)))
        kept.append(chosen.mean())
    assert 0.94 < np.mean(held) < 0.96
    assert np.mean(kept) < 0.5


def test_the_multiple_is_that_of_the_space_that_needs_most():
    names, measured = np.repeat(list(map(str, range(19))), 3), np.tile([1.0, 1.04, 2.0], 19)
    predicted = np.tile([3.0, 2.0, 1.0], 19)
    assert kept_ratio(predicted, measured, names, Promise()) == 2.0
    assert kept_ratio(predicted, measured, names, Promise(loss=0.0)) == 3.0
    assert kept_ratio(predicted, measured, names, Promise(loss=1.0)) == 1.0
    predicted[-3:] = [1.0, 5.0, 5.0]
    assert kept_ratio(predicted, measured, names, Promise()) == 2.0
    predicted[-3:] = [9.0, 7.0, 1.0]
    assert kept_ratio(predicted, measured, names, Promise()) == 7.0
    # With fewer asked for, the last one does not count.
    assert kept_ratio(predicted, measured, names, Promise(confidence=0.9)) == 2.0
    with pytest.raises(CalibrationError, match="needs 19 measured spaces, there are 18; measure more"):
        kept_ratio(predicted[3:], measured[3:], names[3:], Promise())
