"""Fits against the certified solutions of NIST's Statistical Reference Datasets (nonlinear regression).

All 27 problems, from both of NIST's starts.
"""

import numpy as np
import pytest

import perflex.features
from oracles.nist_strd import NAMES, digits, load
from perflex import FeatureTable, FitOptions, Model, fit_model
from perflex.fit.identify import covariance
from perflex.fit.minimise import minimise

# NIST fits absolute errors, and its parameters have any sign.
OPTIONS = FitOptions(nonnegative=False, residual="absolute")
# Fits of sums of bells take seconds from NIST's start; Gauss3, of the same kind, is quick.
DEAR = {"Gauss1", "Gauss2", "Bennett5"}
# The rest of them has valleys that nobody finds without a start: sums of equal bells and exponentials.
FOUND_ALONE = (
    *("Misra1a", "Misra1b", "Misra1c", "Misra1d", "Chwirut1", "Chwirut2", "DanWood", "Kirby2", "Hahn1", "MGH09"),
    *("Thurber", "BoxBOD", "Rat42", "Rat43", "MGH10", "Eckerle4", "Bennett5"),
)


@pytest.fixture(autouse=True)
def any_feature(monkeypatch):
    monkeypatch.setattr(perflex.features, "parse_feature", lambda identifier: identifier, raising=False)


def model_and_table(problem):
    columns = ("f_y", *(f"f_x{i + 1}" for i in range(len(problem.x))))
    labels = tuple(f"row {i}" for i in range(len(problem.y)))
    table = FeatureTable("f_y", columns, labels, np.column_stack([problem.y, *problem.x]))
    return Model("f_y", problem.expression), table


def deviations(solution):
    everything = range(len(solution.x))
    return np.sqrt(np.diag(covariance(solution.jacobian, solution.residual, everything)))


def test_there_are_27_problems_of_three_levels():
    levels = [load(name).difficulty for name in NAMES]
    assert [levels.count(level) for level in ("lower", "average", "higher")] == [8, 11, 8]


@pytest.mark.parametrize("start", [1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_minimise_reaches_the_certified_values(name, start):
    problem = load(name)
    solution = minimise(problem.residual, problem.jacobian, np.array(problem.starts[start - 1]))
    assert solution.converged, solution.reason
    # On processors without FMA, Lanczos3 ends with 6.8 digits; all others have 8.8 and more on each.
    least = 6 if name == "Lanczos3" else 8
    assert digits(solution.x, problem.values) >= least
    if name == "Lanczos1":
        return  # below: its residuals of 1e-13 are made of the rounding of its data
    assert solution.norm**2 == pytest.approx(problem.squares, rel=1e-8)
    assert digits(deviations(solution), problem.deviations) >= least


@pytest.mark.parametrize("start", [1, 2])
def test_lanczos1_as_far_as_its_data_can_be_written(start):
    problem = load("Lanczos1")
    # Its data as 64-bit numbers have another minimum: the standard errors differ in the fourth digit.
    near = minimise(problem.residual, problem.jacobian, np.array(problem.starts[start - 1]))
    assert digits(deviations(near), problem.deviations) >= 2
    # With residuals of the decimals in the file, the fit itself loses nothing.
    exact = minimise(problem.exact_residual, problem.jacobian, np.array(problem.starts[start - 1]))
    assert digits(exact.x, problem.values) >= 8
    assert digits(deviations(exact), problem.deviations) >= 6
    assert exact.norm**2 == pytest.approx(problem.squares, rel=1e-6)


@pytest.mark.filterwarnings("ignore:negative costs")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in DEAR else name for name in FOUND_ALONE]
)
def test_fit_model_finds_the_certified_values_by_itself(name):
    problem = load(name)
    result = fit_model(*model_and_table(problem), OPTIONS)
    assert result.status.valid, result.status.reason
    assert digits(list(result.values()), problem.values) >= 8
    assert digits([parameter.standard_error for parameter in result.parameters], problem.deviations) >= 8
    assert result.residual_norm**2 == pytest.approx(problem.squares, rel=1e-9)
