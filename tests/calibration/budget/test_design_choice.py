"""The D-optimal choice against brute force over all subsets, and what it refuses."""

from __future__ import annotations

from itertools import chain, combinations

import numpy as np
import pytest

from perflex import FeatureTable, Model
from perflex.calibration.budget.basis import cheapest_basis
from perflex.calibration.budget.choose import choose
from perflex.calibration.budget.information import elasticities, information_share
from perflex.errors import CalibrationError


def subsets(count: int) -> list[list[int]]:
    return [list(s) for s in chain.from_iterable(combinations(range(count), k) for k in range(1, count + 1))]


def efficiency(rows: np.ndarray, chosen: list[int], best: list[int], known: np.ndarray) -> float:
    """Return the D-efficiency: the ratio of the determinants to the power of 1/n, without any ridge."""

    def log_det(subset: list[int]) -> float:
        picked = np.concatenate([rows[subset], known])
        return float(np.linalg.slogdet(picked.T @ picked)[1])

    return float(np.exp((log_det(chosen) - log_det(best)) / rows.shape[1]))


def optimum(rows: np.ndarray, cost: np.ndarray, budget: float, known: np.ndarray) -> list[int] | None:
    best, value = None, -np.inf
    for subset in subsets(len(rows)):
        if cost[subset].sum() <= budget:
            picked = np.concatenate([rows[subset], known])
            sign, found = np.linalg.slogdet(picked.T @ picked)
            if sign > 0 and found > value:
                best, value = subset, found
    return best


def problem(case: int) -> tuple[np.ndarray, np.ndarray, float, np.ndarray]:
    """Return a tiny pool: cost shares as of real kernels, mostly of few parameters, costs over two decades."""
    chance = np.random.default_rng(case)
    m, n = int(chance.integers(6, 11)), int(chance.integers(2, 5))
    rows = chance.exponential(size=(m, n)) * (chance.random((m, n)) < 0.6) + 1e-3 * chance.random((m, n))
    cost = chance.lognormal(0.0, 1.0, m)
    known = rows[:1] * 0.3 if case % 3 == 0 else np.zeros((0, n))
    return rows, cost, float(cost.sum() * chance.uniform(0.3, 0.7)), known


def test_near_the_optimum_of_all_subsets() -> None:
    efficiencies = []
    for case in range(60):
        rows, cost, budget, known = problem(case)
        best = optimum(rows, cost, budget, known)
        if best is None:
            with pytest.raises(CalibrationError):
                choose(rows, cost, budget, known=known)
            continue
        found = choose(rows, cost, budget, known=known)
        assert found.cost == pytest.approx(cost[list(found.rows)].sum())
        assert found.cost <= budget * (1 + 1e-9)
        efficiencies.append(efficiency(rows, list(found.rows), best, known))
    assert len(efficiencies) > 40
    assert min(efficiencies) >= 0.95
    assert max(efficiencies) <= 1 + 1e-9


def test_the_known_optimum_of_a_line() -> None:
    """For a straight line the optimum is half of the points at either end."""
    x = np.linspace(-1.0, 1.0, 21)
    rows = np.stack([np.ones(21), x], axis=1)
    found = choose(rows, np.ones(21), 4.0)
    assert found.rows == (0, 1, 19, 20)
    cheap_middle = np.where(np.abs(x) < 0.55, 0.01, 1.0)
    assert set(choose(rows, cheap_middle, 0.05).rows) <= set(np.flatnonzero(np.abs(x) < 0.55))


def test_units_of_parameters_do_not_matter() -> None:
    rows, cost, budget, known = problem(7)
    units = np.logspace(-12, 3, rows.shape[1])
    assert choose(rows * units, cost, budget, known=known * units).rows == choose(rows, cost, budget, known=known).rows


def test_a_budget_for_everything_takes_everything() -> None:
    rows, cost, _, _ = problem(1)
    assert choose(rows, cost, float(cost.sum())).rows == tuple(range(len(rows)))


def test_more_budget_never_tells_less() -> None:
    chance = np.random.default_rng(3)
    rows = chance.exponential(size=(120, 8)) * (chance.random((120, 8)) < 0.4)
    cost = chance.lognormal(0.0, 1.5, 120)
    gains = [choose(rows, cost, share * cost.sum()).gain for share in (0.02, 0.05, 0.1, 0.3, 0.6, 1.0)]
    assert gains == sorted(gains)


def test_far_better_than_chance() -> None:
    chance = np.random.default_rng(4)
    rows = chance.exponential(size=(120, 8)) * (chance.random((120, 8)) < 0.4)
    cost = chance.lognormal(0.0, 1.5, 120)
    budget = 0.1 * cost.sum()
    found = choose(rows, cost, budget)
    for _ in range(10):
        some: list[int] = []
        for row in map(int, chance.permutation(120)):
            if cost[[*some, row]].sum() <= budget:
                some.append(row)
        assert efficiency(rows, some, list(found.rows), np.zeros((0, 8))) < 0.7


def test_the_cheapest_basis_is_the_cheapest() -> None:
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


def test_known_rows_are_not_bought_again() -> None:
    rows = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    assert choose(rows, np.array([1.0, 5.0, 2.0]), 2.0, known=np.array([[3.0, 0.0]])).rows == (2,)


def test_too_small_a_budget_names_the_parameters() -> None:
    rows = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    cost = np.array([0.1, 0.2, 7.0, 9.0])
    with pytest.raises(CalibrationError, match=r"do not suffice to determine p_c: .* take about 7\.3 s") as caught:
        choose(rows, cost, 1.0, parameters=["p_a", "p_b", "p_c"])
    assert caught.value.parameters == ("p_c",)
    assert choose(rows, cost, 7.4, parameters=["p_a", "p_b", "p_c"]).rows == (0, 1, 2)


def test_rows_that_cannot_do_it_name_the_parameters() -> None:
    rows = np.array([[1.0, 1.0, 0.0], [2.0, 2.0, 0.0], [1.0, 1.0, 1.0]])
    with pytest.raises(CalibrationError, match="no choice of kernels determines p_a, p_b"):
        choose(rows, np.ones(3), 100.0, parameters=["p_a", "p_b", "p_c"])


def test_fewer_rows_than_parameters_are_refused() -> None:
    with pytest.raises(CalibrationError, match="no choice of kernels determines"):
        choose(np.eye(3)[:2], np.ones(2), 100.0)


def test_a_barely_determined_parameter_stays_determined() -> None:
    """Giving up the only row that tells of a parameter looks cheap where it tells little."""
    chance = np.random.default_rng(5)
    rows = np.concatenate([chance.exponential(size=(30, 3)), [[1.0, 1.0, 1.0]]])
    rows = np.column_stack([rows, np.zeros(31)])
    rows[:, 3] = rows[:, 0]
    rows[30, 3] += 1e-5
    found = choose(rows, np.where(np.arange(31) == 30, 5.0, 1.0), 10.0)
    assert 30 in found.rows


def test_elasticities_are_shares_of_the_time() -> None:
    model = Model("f_cl_wall_time", "p_launch * f_sync_kernel_launch + p_group * f_thread_groups")
    features = ("f_sync_kernel_launch", "f_thread_groups")
    table = FeatureTable(None, features, ("a", "b"), np.array([[1.0, 10.0], [1.0, 1000.0]]))
    predicted, rows = elasticities(model, {"p_launch": 1e-5, "p_group": 1e-7}, table)
    assert predicted == pytest.approx([1.1e-5, 1.1e-4])
    assert rows == pytest.approx(np.array([[10, 1], [1, 10]]) / 11)
    with pytest.raises(CalibrationError, match="gives a no positive time"):
        elasticities(model, {"p_launch": 0.0, "p_group": 0.0}, table)


def test_trials_tell_less_and_less() -> None:
    trials = np.array([0.0, 1.0, 3.0, 9.0, 1e9])
    share = information_share(np.full(5, 0.1), trials, misfit=0.05)
    assert share[0] == 0
    assert share[-1] == pytest.approx(1.0)
    assert (np.diff(share) > 0).all()
    # One timing of spread 0.1 has a standard error of 0.0929, hence 0.05^2 / (0.05^2 + 0.0929^2).
    assert share[1] == pytest.approx(0.2246, abs=1e-3)
    assert information_share(np.zeros(1), np.ones(1), misfit=0.02) == pytest.approx(1.0)
