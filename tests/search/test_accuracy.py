"""Measures of accuracy, against values worked out by hand."""

import math

import numpy as np
import pytest

from perflex.errors import CalibrationError
from perflex.search.accuracy import Accuracy


def test_one_pair_ranked_wrong():
    # Measured 1, 2, 4; the two fastest change places.
    found = Accuracy.of([2.0, 1.0, 4.0], [1.0, 2.0, 4.0], ["g"] * 3)
    assert (found.cases, found.groups, found.pairs) == (3, 1, 3)
    assert found.pairs_right == pytest.approx(2 / 3)
    assert found.maximum == 1.0
    assert found.median == 0.5
    assert found.rms == pytest.approx(math.sqrt((1 + 0.25) / 3))
    assert found.geometric_mean == pytest.approx((1.0 * 0.5 * 1e-6) ** (1 / 3))
    # |ln 2| twice and 0 once.
    assert found.factor == pytest.approx(2 ** (2 / 3))
    # Ranks 2, 1, 3 against 1, 2, 3: 1 - 6 * 2 / (3 * 8).
    assert found.spearman == pytest.approx(0.5)
    assert found.loss_median == found.loss_mean == found.loss_p90 == found.loss_worst == 1.0
    assert found.best_found == found.first_tenth == 0.0


def test_groups_are_judged_apart():
    predicted = [1.0, 2.0, 20.0, 10.0, 3.0, 4.0]
    measured = [1.1, 2.0, 10.0, 12.0, 3.0, 4.0]
    found = Accuracy.of(predicted, measured, ["a", "a", ("b", 1), ("b", 1), "c", "c"])
    assert (found.groups, found.pairs) == (3, 3)
    assert found.pairs_right == pytest.approx(2 / 3)
    assert found.spearman == pytest.approx((1 - 1 + 1) / 3)
    # Losses 0, 20 % and 0; the 90th percentile is four fifths of the way from the middle to the last.
    assert found.loss_median == 0.0
    assert found.loss_mean == pytest.approx(0.2 / 3)
    assert found.loss_p90 == pytest.approx(0.8 * 0.2)
    assert found.loss_worst == pytest.approx(0.2)
    assert found.best_found == pytest.approx(2 / 3)


def test_variants_of_nearly_the_same_time_are_no_pair():
    near = {slower: Accuracy.of([2.0, 1.0], [1.0, slower], ["g"] * 2) for slower in (1.049, 1.051, 1.069, 1.071)}
    assert [found.pairs for found in near.values()] == [0, 0, 0, 1]
    assert [found.best_found for found in near.values()] == [1.0, 0.0, 0.0, 0.0]
    assert math.isnan(near[1.069].pairs_right)
    assert near[1.069].loss_worst == pytest.approx(0.069)


def test_equal_predictions_are_ordered_by_lot():
    found = Accuracy.of([1.0, 1.0, 1.0], [1.0, 2.0, 3.0], ["g"] * 3)
    assert found.pairs_right == 0.5
    assert found.spearman == 0.0
    # The mean of 0, 1 and 2.
    assert found.loss_mean == pytest.approx(1.0)
    assert found.best_found == pytest.approx(1 / 3)
    # Two of three share the first place, and one of them is the best.
    half = Accuracy.of([1.0, 1.0, 3.0], [1.0, 2.0, 3.0], ["g"] * 3)
    assert half.pairs_right == pytest.approx(2.5 / 3)
    assert half.best_found == half.first_tenth == pytest.approx(0.5)
    # Mean ranks 1.5, 1.5, 3 against 1, 2, 3.
    assert half.spearman == pytest.approx(1.5 / math.sqrt(1.5 * 2))
    # Measured times that are all equal have no order.
    assert math.isnan(Accuracy.of([1.0, 2.0], [1.0, 1.0], ["g"] * 2).spearman)


def test_the_first_tenth_is_rounded_up():
    measured = np.arange(1.0, 12.0)
    # Eleven variants: two places. The best one is predicted second, then third.
    second, third = measured.copy(), measured.copy()
    second[0], third[0] = 2.5, 3.5
    assert Accuracy.of(second, measured, ["g"] * 11).first_tenth == 1.0
    assert Accuracy.of(second, measured, ["g"] * 11).best_found == 0.0
    assert Accuracy.of(third, measured, ["g"] * 11).first_tenth == 0.0
    # The second place is shared by five; the best is one of them.
    tied = np.array([3.0, 1.0, 3.0, 3.0, 3.0, 3.0, 6.0, 7.0, 8.0, 9.0, 10.0])
    assert Accuracy.of(tied, measured, ["g"] * 11).first_tenth == pytest.approx(1 / 5)


def test_a_single_variant_has_errors_and_no_order():
    found = Accuracy.of([1.1], [1.0], ["g"])
    assert (found.cases, found.groups, found.pairs) == (1, 0, 0)
    assert found.rms == pytest.approx(0.1)
    assert found.factor == pytest.approx(1.1)
    for value in (found.pairs_right, found.spearman, found.loss_median, found.loss_worst, found.first_tenth):
        assert math.isnan(value)
    beside = Accuracy.of([1.1, 1.0, 2.0], [1.0, 1.0, 2.0], ["alone", "g", "g"])
    assert (beside.cases, beside.groups, beside.best_found) == (3, 1, 1.0)


@pytest.mark.parametrize(
    ("predicted", "measured", "groups", "text"),
    [
        *(
            ([1.0, wrong], [1.0, 1.0], ["g"] * 2, r"1 of 2 predicted times are not positive .* at place 1")
            for wrong in (math.nan, math.inf, 0.0, -1.0)
        ),
        ([1.0, 1.0], [0.0, 1.0], ["g"] * 2, "1 of 2 measured times are not positive"),
        ([], [], [], "as many of each, at least one"),
        ([1.0], [1.0, 2.0], ["g"] * 2, "as many of each, at least one"),
        ([1.0], [1.0], [], "as many of each, at least one"),
        ([[1.0]], [1.0], ["g"], r"shape \(1, 1\)"),
    ],
)
def test_what_is_no_time_is_an_error(predicted, measured, groups, text):
    with pytest.raises(CalibrationError, match=text):
        Accuracy.of(predicted, measured, groups)


def test_methods_are_chosen_by_loss_and_then_by_rms():
    order = [Accuracy.of(made, [1.0, 1.02], ["g"] * 2) for made in ([5.0, 6.0], [1.02, 1.01])]
    assert order[0].key() < order[1].key()
    # A loss of 2 % is chance where times repeat to 3 %.
    assert order[1].key(0.03) < order[0].key(0.03)
    assert Accuracy.of([1.5], [1.0], ["g"]).key() == (0.0, 0.5)
