"""Prediction intervals: textbook formulas for linear models, coverage by simulation, and what is refused."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy import integrate, stats

from perflex import Calibration, FeatureTable, Model, PredictionInterval, fit_model, scale_features_by_output
from perflex.calibration.calibrating import calibration_from_table
from perflex.calibration.interval import interval_at
from perflex.calibration.uncertainty import free_parameters, without_bound
from perflex.errors import CalibrationError
from perflex.fit.problem import pose

if TYPE_CHECKING:
    from pathlib import Path

OUTPUT = "f_cl_wall_time_test"
FEATURES = ("f_op_float32_add", "f_op_float32_mul", "f_op_float32_div")
LINEAR = Model(OUTPUT, "p_a * f_op_float32_add + p_b * f_op_float32_mul + p_c * f_op_float32_div")
TRUTH = {"p_a": 1e-9, "p_b": 3e-10, "p_c": 2e-8}


def draw(random: np.random.Generator, rows: int) -> np.ndarray:
    """Return counts of the three features over three decades, many of them zero, no row empty."""
    counts = 10 ** random.uniform(3, 6, (rows, 3)) * (random.random((rows, 3)) < 0.6)
    counts[:, 2] += 300
    counts[np.arange(rows), np.arange(rows) % 3] += 1e4
    return counts


def calibrated(
    model: Model, counts: np.ndarray, seconds: np.ndarray, *, relative: bool = True, nonnegative: bool = True
) -> Calibration:
    columns = (OUTPUT, *FEATURES)
    table = FeatureTable(OUTPUT, columns, tuple(map(str, range(len(counts)))), np.column_stack([seconds, counts]))
    return calibration_from_table(model, table, relative=relative, nonnegative=nonnegative)


def at(adds: float, multiplications: float, divisions: float) -> dict[str, float]:
    return dict(zip(FEATURES, (adds, multiplications, divisions), strict=True))


def values(counts: np.ndarray) -> dict[str, np.ndarray]:
    return dict(zip(FEATURES, counts.T, strict=True))


def coverage(
    model: Model,
    truth: dict[str, float],
    *,
    noise: float = 0.05,
    relative: bool = True,
    nonnegative: bool = True,
    repeats: int = 120,
    rows: int = 12,
    confidence: float = 0.95,
) -> float:
    """Return the share of new measurements inside their intervals, over many calibrations."""
    random = np.random.default_rng(11)
    inside = []
    for _ in range(repeats):
        counts, new = draw(random, rows), draw(random, 50)
        times = []
        for some in (counts, new):
            exact = np.asarray(model.evaluate(truth, values(some)))
            size = exact if relative else 1e-3
            times.append(exact + noise * size * random.normal(size=len(some)))
        interval = interval_at(
            calibrated(model, counts, times[0], relative=relative, nonnegative=nonnegative), values(new), confidence
        )
        inside.append((interval.low <= times[1]) & (times[1] <= interval.high))
    return float(np.mean(inside))


@pytest.mark.parametrize("confidence", [0.5, 0.95])
def test_coverage_of_relative_fits(confidence: float) -> None:
    assert coverage(LINEAR, TRUTH, confidence=confidence) == pytest.approx(confidence, abs=0.025)


def test_coverage_with_much_noise() -> None:
    assert coverage(LINEAR, TRUTH, noise=0.2) == pytest.approx(0.95, abs=0.025)


@pytest.mark.filterwarnings("ignore:negative costs")
def test_coverage_of_absolute_fits() -> None:
    found = coverage(LINEAR, TRUTH, relative=False, nonnegative=False, noise=0.1)
    assert found == pytest.approx(0.95, abs=0.025)


@pytest.mark.parametrize("small", [0.0, 2e-11])
@pytest.mark.filterwarnings("ignore::perflex.errors.PerflexWarning")
def test_coverage_where_a_cost_is_often_at_its_bound(small: float) -> None:
    assert coverage(LINEAR, {**TRUTH, "p_b": small}) == pytest.approx(0.95, abs=0.025)


def test_coverage_of_a_nonlinear_model() -> None:
    model = Model(
        OUTPUT, "partial_overlap(p_a * f_op_float32_add + p_b * f_op_float32_mul, p_c * f_op_float32_div, 5, p_hidden)"
    )
    found = coverage(model, {**TRUTH, "p_hidden": 0.7}, rows=25, repeats=40)
    assert found == pytest.approx(0.95, abs=0.035)


def linear_case(*, relative: bool) -> tuple[Calibration, np.ndarray, np.ndarray]:
    random = np.random.default_rng(2)
    counts = draw(random, 15)
    seconds = (counts @ list(TRUTH.values())) * (1 + 0.05 * random.normal(size=15))
    return calibrated(LINEAR, counts, seconds, relative=relative, nonnegative=False), counts, seconds


def test_an_absolute_fit_has_the_textbook_interval() -> None:
    calibration, counts, seconds = linear_case(relative=False)
    new = draw(np.random.default_rng(3), 7)
    found = interval_at(calibration, values(new), 0.9)
    solution, squares, *_ = np.linalg.lstsq(counts, seconds, rcond=None)
    variance = squares[0] / 12
    inside = np.einsum("ri,ij,rj->r", new, np.linalg.inv(counts.T @ counts), new)
    reach = stats.t.ppf(0.95, 12) * np.sqrt(variance * (1 + inside))
    np.testing.assert_allclose(found.predicted, new @ solution, rtol=1e-9)
    np.testing.assert_allclose(found.high - found.predicted, reach, rtol=1e-7)
    np.testing.assert_allclose(found.predicted - found.low, reach, rtol=1e-7)
    np.testing.assert_allclose(found.standard_error, np.sqrt(variance * inside), rtol=1e-7)
    np.testing.assert_allclose(found.residual_deviation, np.sqrt(variance))
    assert found.degrees_of_freedom == 12


def test_a_relative_fit_scales_its_interval_with_the_prediction() -> None:
    calibration, counts, seconds = linear_case(relative=True)
    new = draw(np.random.default_rng(3), 7)
    found = interval_at(calibration, values(new))
    weighted = counts / seconds[:, None]
    solution, squares, *_ = np.linalg.lstsq(weighted, np.ones(15), rcond=None)
    variance = squares[0] / 12
    inside = np.einsum("ri,ij,rj->r", new, np.linalg.inv(weighted.T @ weighted), new) / (new @ solution) ** 2
    reach = stats.t.ppf(0.975, 12) * np.sqrt(variance * (1 + inside))
    np.testing.assert_allclose(np.log(found.high / found.predicted), reach, rtol=1e-7)
    np.testing.assert_allclose(np.log(found.predicted / found.low), reach, rtol=1e-7)
    wider = interval_at(calibration, values(new), 0.99)
    assert (wider.low < found.low).all()
    assert (wider.high > found.high).all()


def test_scalars_give_scalars_and_shapes_are_kept() -> None:
    calibration, counts, _ = linear_case(relative=True)
    one = interval_at(calibration, {name: float(column[0]) for name, column in values(counts).items()})
    many = interval_at(calibration, {name: column.reshape(3, 5) for name, column in values(counts).items()})
    mixed = interval_at(calibration, {**values(counts), "f_op_float32_mul": 1e4})
    assert isinstance(one.low, float)
    assert isinstance(one.standard_error, float)
    for name in ("predicted", "low", "high", "standard_error", "residual_deviation"):
        assert np.shape(getattr(many, name)) == (3, 5)
        assert getattr(many, name)[0, 0] == pytest.approx(getattr(one, name))
        assert np.shape(getattr(mixed, name)) == (15,)


def bounded() -> tuple[Calibration, np.ndarray, np.ndarray]:
    """Return a calibration with p_b at its bound, its counts and its times."""
    random = np.random.default_rng(4)
    counts = draw(random, 14)
    seconds = (counts @ [1e-9, -3e-11, 2e-8]) * (1 + 0.05 * random.normal(size=14))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        calibration = calibrated(LINEAR, counts, seconds)
    assert calibration.fit.at_bound == ("p_b",)
    return calibration, counts, seconds


def test_a_released_parameter_is_where_the_unbounded_fit_puts_it() -> None:
    calibration, counts, seconds = bounded()
    assert calibration.table is not None
    problem = pose(LINEAR, calibration.table)
    found = without_bound(problem, calibration.fit, free_parameters(calibration.fit), 1)
    weighted = counts / seconds[:, None]
    solution = np.linalg.lstsq(weighted, np.ones(14), rcond=None)[0]
    inverse = np.linalg.inv(weighted.T @ weighted)
    assert found is not None
    assert found.value == pytest.approx(solution[1], rel=1e-7)
    variance = calibration.fit.residual_norm**2 / 12
    assert found.standard_error == pytest.approx(np.sqrt(variance * inverse[1, 1]), rel=1e-7)
    at_bound = np.array(list(calibration.params.values()))
    np.testing.assert_allclose(at_bound + found.value * found.direction, solution, rtol=1e-6)
    # E[x**2] of the normal distribution with these two numbers, above zero only.
    density = stats.norm(found.value, found.standard_error).pdf
    reach = 12 * found.standard_error
    below = integrate.quad(density, 0, reach, epsabs=0)[0]
    expected = integrate.quad(lambda x: x * x * density(x), 0, reach, epsabs=0)[0] / below
    assert found.mean_square == pytest.approx(expected, rel=1e-6)


def test_a_cost_at_its_bound_widens_what_depends_on_it() -> None:
    calibration, _, _ = bounded()
    much_b = interval_at(calibration, at(1e4, 1e6, 1e3))
    no_b = interval_at(calibration, at(1e4, 0.0, 1e3))
    assert much_b.predicted == pytest.approx(no_b.predicted)
    assert much_b.high > 1.1 * no_b.high


def test_without_measured_values_a_bound_is_certain(tmp_path: Path) -> None:
    calibration, _, _ = bounded()
    bare = Calibration(calibration.model, calibration.fit)
    one, other = (at(1e4, count, 1e3) for count in (0.0, 1e6))
    assert interval_at(bare, one).high == pytest.approx(interval_at(bare, other).high)
    calibration.save(tmp_path / "kept.yaml")
    loaded = Calibration.load(tmp_path / "kept.yaml")
    assert interval_at(loaded, other) == interval_at(calibration, other)


def test_a_negative_prediction_keeps_a_plain_interval() -> None:
    random = np.random.default_rng(4)
    counts = draw(random, 14)
    seconds = (counts @ [1e-9, -3e-11, 2e-8]) * (1 + 0.01 * random.normal(size=14))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        calibration = calibrated(LINEAR, counts, seconds, nonnegative=False)
    found = interval_at(calibration, at(0.0, 1e6, 0.0))
    assert found.low < found.predicted < 0
    assert found.high - found.predicted == pytest.approx(found.predicted - found.low)


def test_no_interval_without_kernels_to_spare() -> None:
    counts = draw(np.random.default_rng(1), 3)
    calibration = calibrated(LINEAR, counts, counts @ list(TRUTH.values()))
    with pytest.raises(CalibrationError, match=r"leave nothing over.* more measurement kernels"):
        interval_at(calibration, values(counts))


def test_no_interval_of_what_depends_on_an_undetermined_parameter() -> None:
    random = np.random.default_rng(5)
    counts = draw(random, 12)
    counts[:, 1] = 0.0
    seconds = (counts @ list(TRUTH.values())) * (1 + 0.05 * random.normal(size=12))
    table = FeatureTable(OUTPUT, (OUTPUT, *FEATURES), tuple(map(str, range(12))), np.column_stack([seconds, counts]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = fit_model(LINEAR, scale_features_by_output(table), on_undetermined="warn")
    calibration = Calibration(LINEAR, fit)
    interval_at(calibration, at(1e4, 0.0, 1e4))
    with pytest.raises(CalibrationError, match="depends on p_b, which the measurement kernels do not determine"):
        interval_at(calibration, at(1e4, 1.0, 1e4))


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95, -0.1])
def test_confidence_out_of_range(confidence: float) -> None:
    calibration, counts, _ = linear_case(relative=True)
    with pytest.raises(ValueError, match="between 0 and 1"):
        interval_at(calibration, values(counts), confidence)


@pytest.mark.filterwarnings("ignore:flops_madd_pattern. the model has no feature for f_op_float32_add")
def test_predict_interval_of_a_kernel() -> None:
    from uipick import ALL_GENERATORS, KernelCollection

    tags = ["flops_madd_pattern", "dtype:float32", "lsize_0:16", "lsize_1:16", "groups_fit:True"]
    kernel = KernelCollection(ALL_GENERATORS).generate_kernels(tags)[0]
    model = Model(OUTPUT, "p_madd * f_op_float32_madd + p_launch * f_sync_kernel_launch")
    counts = np.column_stack([np.linspace(1e5, 1e7, 9), np.ones(9)])
    seconds = (counts @ [1e-9, 1e-5]) * (1 + 0.01 * np.random.default_rng(0).normal(size=9))
    columns = tuple(model.all_features())
    table = FeatureTable(OUTPUT, columns, tuple(map(str, range(9))), np.column_stack([seconds, counts]))
    calibration = calibration_from_table(model, table)
    found = calibration.predict_interval(kernel, {})
    assert isinstance(found, PredictionInterval)
    assert found.predicted == pytest.approx(calibration.predict(kernel, {}))
    assert found.low < found.predicted < found.high
    name = next(iter(kernel.sizes))
    sizes = {name: np.array([1, 2]) * kernel.sizes[name]}
    many = calibration.predict_interval(kernel, sizes, confidence=0.5)
    np.testing.assert_allclose(many.predicted, calibration.predict(kernel, sizes))
    assert many.low[0] > found.low
