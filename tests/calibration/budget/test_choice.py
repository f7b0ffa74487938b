"""The D-optimal choice against brute force over all subsets, and the guess that the first choice rests on."""

from itertools import chain, combinations

import numpy as np
import pytest

from perflex import FeatureTable, Model
from perflex.calibration.budget.choose import cheapest_basis, choose, elasticities, rough_parameters, undetermined
from perflex.errors import CalibrationError
from perflex.fit.table import FeatureInfo


def subsets(count):
    return [list(s) for s in chain.from_iterable(combinations(range(count), k) for k in range(1, count + 1))]


def efficiency(rows, chosen, best, known):
    """Return the D-efficiency: the ratio of the determinants to the power of 1/n, without any ridge."""

    def log_det(subset):
        picked = np.concatenate([rows[subset], known])
        return float(np.linalg.slogdet(picked.T @ picked)[1])

    return float(np.exp((log_det(chosen) - log_det(best)) / rows.shape[1]))


def optimum(rows, cost, budget, known):
    best, value = None, -np.inf
    for subset in subsets(len(rows)):
        if cost[subset].sum() <= budget:
            picked = np.concatenate([rows[subset], known])
            sign, found = np.linalg.slogdet(picked.T @ picked)
            if sign > 0 and found > value:
                best, value = subset, found
    return best


def problem(case):
    """Return a tiny pool: cost shares as of real kernels, mostly of few parameters, costs over two decades."""
    chance = np.random.default_rng(case)
    m, n = int(chance.integers(6, 11)), int(chance.integers(2, 5))
    rows = chance.exponential(size=(m, n)) * (chance.random((m, n)) < 0.6) + 1e-3 * chance.random((m, n))
    cost = chance.lognormal(0.0, 1.0, m)
    known = rows[:1] * 0.3 if case % 3 == 0 else np.zeros((0, n))
    return rows, cost, float(cost.sum() * chance.uniform(0.3, 0.7)), known


def test_near_the_optimum_of_all_subsets():
    efficiencies = []
    for case in range(60):
        rows, cost, budget, known = problem(case)
        best = optimum(rows, cost, budget, known)
        found = choose(rows, cost, budget, known)
        assert cost[found].sum() <= budget * (1 + 1e-9)
        if best is None:
            assert undetermined(np.concatenate([rows[found], known]))
        else:
            efficiencies.append(efficiency(rows, found, best, known))
    assert len(efficiencies) > 40
    assert np.median(efficiencies) >= 0.95
    # Where the budget is only just enough, the cheapest rows may not be the best: but they determine every parameter.
    assert min(efficiencies) > 0
    assert max(efficiencies) <= 1 + 1e-9


def test_units_of_parameters_do_not_matter():
    rows, cost, budget, known = problem(7)
    units = np.logspace(-12, 3, rows.shape[1])
    assert choose(rows * units, cost, budget, known * units) == choose(rows, cost, budget, known)


def test_the_cheapest_basis_is_the_cheapest():
    for case in range(20):
        rows, cost, _, _ = problem(case)
        n = rows.shape[1]
        sets = [s for s in subsets(len(rows)) if len(s) == n and np.linalg.matrix_rank(rows[s], tol=1e-6) == n]
        cheapest = min(float(cost[s].sum()) for s in sets)
        found = cheapest_basis(rows, cost, np.zeros((0, n)))
        assert np.linalg.matrix_rank(rows[found]) == n
        assert cost[found].sum() == pytest.approx(cheapest)
    exact = np.repeat(np.eye(3), 3, axis=0)
    assert sorted(cheapest_basis(exact, np.array([3, 1, 2, 5, 4, 9, 8, 7, 6.0]), np.zeros((0, 3)))) == [1, 4, 8]


def test_a_budget_too_small_for_every_parameter_takes_the_cheapest_of_those_rows():
    rows = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    cost = np.array([0.1, 0.2, 7.0, 9.0])
    assert choose(rows, cost, 1.0, rows[:0]) == [0, 1]
    assert undetermined(rows[:2]) == [2]
    assert choose(rows, cost, 7.4, rows[:0]) == [0, 1, 2]
    # Known rows are not bought again.
    rows = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    assert choose(rows, np.array([1.0, 5.0, 2.0]), 2.0, np.array([[3.0, 0.0]])) == [2]


def test_elasticities_are_shares_of_the_time():
    model = Model("f_cl_wall_time", "p_launch * f_sync_kernel_launch + p_group * f_thread_groups")
    features = ("f_sync_kernel_launch", "f_thread_groups")
    table = FeatureTable(None, features, ("a", "b"), np.array([[1.0, 10.0], [1.0, 1000.0]]))
    predicted, rows = elasticities(model, {"p_launch": 1e-5, "p_group": 1e-7}, table)
    assert predicted == pytest.approx([1.1e-5, 1.1e-4])
    assert rows == pytest.approx(np.array([[10, 1], [1, 10]]) / 11)
    with pytest.raises(CalibrationError, match="gives a no positive time"):
        elasticities(model, {"p_launch": 0.0, "p_group": 0.0}, table)


def test_rough_parameters_are_of_the_right_order():
    features = ("f_sync_kernel_launch", "f_thread_groups", "f_op_float32_madd")
    info = {features[2]: FeatureInfo("op", 2.0, "op")}
    table = FeatureTable(None, features, ("a", "b"), np.array([[1.0, 10.0, 1e6], [1.0, 1000.0, 1e9]]), info=info)
    model = Model(
        "f_cl_wall_time",
        "p_launch * f_sync_kernel_launch + overlap(p_madd * f_op_float32_madd, p_group * f_thread_groups, p_edge)"
        " + p_odd * f_op_float32_madd * f_thread_groups**0.5",
    )
    rough = rough_parameters(model, table)
    # On devices of today: microseconds, nanoseconds and picoseconds.
    assert 1e-6 < rough["p_launch"] < 1e-4
    assert 1e-10 < rough["p_group"] < 1e-6
    assert 1e-13 < rough["p_madd"] < 1e-9
    assert 1e-5 < rough["p_odd"] * np.median([1e6 * 10**0.5, 1e9 * 1000**0.5]) < 1e-2
    assert 1.0 < rough["p_edge"] < 1e6
