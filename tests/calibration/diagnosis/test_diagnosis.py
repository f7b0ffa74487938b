"""diagnose: each statement against numpy, and what is said of calibrations that are not as they should be."""

import json
import math
import warnings
from dataclasses import replace

import numpy as np
import pytest

from perflex import FeatureTable, Model, diagnose
from perflex.errors import CalibrationError
from perflex.fit.problem import pose
from perflex.fit.result import FitStatus
from support.fitted import fitted

OUTPUT = "f_cl_wall_time_test"
FEATURES = ("f_op_float32_add", "f_op_float32_mul", "f_op_float32_div")
MODEL = Model(OUTPUT, "p_add * f_op_float32_add + p_mul * f_op_float32_mul + p_div * f_op_float32_div")
TRUTH = np.array([1e-9, 3e-10, 2e-8])
# Three generators: additions alone, multiplications alone, and divisions with something of both.
GENERATORS = ("adds",) * 5 + ("muls",) * 5 + ("mixed",) * 8


def counts(seed=0):
    random = np.random.default_rng(seed)
    values = np.zeros((18, 3))
    values[:5, 0] = 10 ** random.uniform(4, 6, 5)
    values[5:10, 1] = 10 ** random.uniform(4, 6, 5)
    values[10:] = 10 ** random.uniform(3, 6, (8, 3))
    return values


def table_of(features, seconds, generators=GENERATORS):
    labels = tuple(f"{name}(n={i})" for i, name in enumerate(generators))
    return FeatureTable(
        OUTPUT,
        (OUTPUT, *FEATURES),
        labels,
        np.column_stack([seconds, features]),
        groups=generators,
        spread=np.full(len(labels), 0.02),
    )


def noisy(features, truth=TRUTH, seed=1):
    return (features @ truth) * (1 + 0.05 * np.random.default_rng(seed).normal(size=len(features)))


def calibrated(table, model=MODEL, *, nonnegative=True):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fitted(model, table, nonnegative=nonnegative)


def ordinary():
    features = counts()
    return calibrated(table_of(features, noisy(features)))


def severities(diagnosis, word):
    return [finding.severity for finding in diagnosis.findings if word in finding.text]


def test_errors_and_intervals_are_those_of_least_squares():
    calibration = ordinary()
    weighted = calibration.table.values[:, 1:] / calibration.table.values[:, :1]
    solution, squares, *_ = np.linalg.lstsq(weighted, np.ones(18), rcond=None)
    inverse = np.linalg.inv(weighted.T @ weighted)
    errors = np.sqrt(np.diag(inverse) * squares[0] / 15)
    found = diagnose(calibration)
    np.testing.assert_allclose([p.value for p in found.parameters], solution, rtol=1e-8)
    np.testing.assert_allclose([p.standard_error for p in found.parameters], errors, rtol=1e-7)
    # Student's t with 15 degrees of freedom: tables give 2.131.
    # Intervals are those of residuals divided by predictions, which noise in the times does not pull down.
    features, seconds = calibration.table.values[:, 1:], calibration.table.values[:, 0]
    design, target = features / (features @ solution)[:, None], seconds / (features @ solution)
    centre, rest, *_ = np.linalg.lstsq(design, target, rcond=None)
    reach = 2.131450 * np.sqrt(np.diag(np.linalg.inv(design.T @ design)) * rest[0] / 15)
    np.testing.assert_allclose([p.high for p in found.parameters], centre + reach, rtol=1e-6)
    np.testing.assert_allclose([p.low for p in found.parameters], centre - reach, rtol=1e-6)
    np.testing.assert_allclose(found.correlation, inverse / np.sqrt(np.outer(np.diag(inverse), np.diag(inverse))))
    scaled = weighted / np.linalg.norm(weighted, axis=0)
    assert found.condition_number == pytest.approx(np.linalg.cond(scaled))
    assert found.degrees_of_freedom == 15
    assert found.error == pytest.approx(np.sqrt(squares[0] / 18))
    hat = weighted @ inverse @ weighted.T
    np.testing.assert_allclose([k.leverage for k in found.kernels], np.diag(hat), rtol=1e-8)
    residual = weighted @ solution - 1
    np.testing.assert_allclose([k.leave_one_out_error for k in found.kernels], residual / (1 - np.diag(hat)), rtol=1e-7)
    assert found.leave_one_out_error == pytest.approx(np.sqrt(np.mean((residual / (1 - np.diag(hat))) ** 2)))
    np.testing.assert_allclose([k.predicted for k in found.kernels], calibration.table.values[:, 1:] @ solution)
    np.testing.assert_allclose([k.measured for k in found.kernels], calibration.table.values[:, 0])


def test_each_parameter_names_what_it_is_known_from():
    found = diagnose(ordinary())
    adds = found.parameter("p_add")
    assert adds.generators[0].name in {"adds", "mixed"}
    assert sum(informant.share for informant in adds.generators) == pytest.approx(1.0)
    assert sum(informant.share for informant in adds.kernels) == pytest.approx(1.0)
    assert [i.share for i in adds.kernels] == sorted((i.share for i in adds.kernels), reverse=True)
    divisions = found.parameter("p_div")
    assert divisions.generators[0].name == "mixed"
    assert math.isinf(divisions.generators[0].error_ratio)
    assert all(math.isfinite(i.error_ratio) for i in adds.generators)
    with pytest.raises(KeyError):
        found.parameter("p_none")


def test_generators_held_out_are_predicted_by_the_others():
    calibration = ordinary()
    found = {g.name: g for g in diagnose(calibration).generators}
    assert list(found) == ["adds", "muls", "mixed"]
    weighted = calibration.table.values[:, 1:] / calibration.table.values[:, :1]
    without = np.linalg.lstsq(weighted[5:], np.ones(13), rcond=None)[0]
    errors = weighted[:5] @ without - 1
    assert found["adds"].cross_validation_error == pytest.approx(np.sqrt(np.mean(errors**2)), rel=1e-6)
    assert found["adds"].cross_validation_bias == pytest.approx(np.mean(errors), rel=1e-6)
    assert found["adds"].undetermined == ()
    assert found["adds"].kernels == 5
    # That nothing else does divisions is told; it is no error.
    assert found["mixed"].undetermined == ("p_div",)
    assert math.isnan(found["mixed"].cross_validation_error)
    assert severities(diagnose(calibration), "p_div by mixed") == ["remark"]


def test_correlated_parameters_are_named():
    features = counts()
    features[:, 1] = features[:, 0] * np.random.default_rng(2).uniform(0.97, 1.03, 18)
    features[:10, 2] = 1e3
    features[5:10, :2] = features[:5, :2] * 2
    found = diagnose(calibrated(table_of(features, noisy(features)), nonnegative=False))
    assert [(p.first, p.second) for p in found.correlated] == [("p_mul", "p_add")]
    assert found.correlated[0].correlation < -0.95
    assert severities(found, "strongly correlated estimates: p_mul and p_add") == ["warning"]
    assert found.condition_number > 30


def test_a_cost_at_its_bound_is_where_the_unbounded_fit_would_put_it():
    features = counts()
    features[5:10, 2] = 1e5
    seconds = noisy(features, np.array([1e-9, -2e-11, 2e-8]))
    bounded = diagnose(calibrated(table_of(features, seconds)))
    free = diagnose(calibrated(table_of(features, seconds), nonnegative=False))
    held, loose = bounded.parameter("p_mul"), free.parameter("p_mul")
    assert held.at_bound
    assert loose.negative
    assert held.released_value == pytest.approx(loose.value, rel=1e-6)
    assert severities(bounded, "held at zero by their bound: p_mul") == ["remark"]
    assert severities(free, "negative costs: p_mul") == ["problem"]
    assert free.findings[0].severity == "problem"
    assert held.kernels == ()


def test_what_stands_out_is_named():
    def told(change, word):
        features = counts()
        factors = np.ones(18)
        change(features, factors)
        found = diagnose(calibrated(table_of(features, noisy(features) * factors)))
        assert severities(found, word) == ["warning"]
        return found

    def alone_and_unlike(features, factors):
        features[:, 2] = 0.0
        features[17, 2], factors[2] = 1e6, 2

    told(alone_and_unlike, "determined by one kernel alone: p_div from mixed(n=17)")
    found = told(alone_and_unlike, "outliers among the residuals: adds(n=2) (-")
    assert math.isnan(found.kernels[17].leave_one_out_error)
    assert found.kernels[17].leverage == pytest.approx(1.0)
    assert max(found.kernels, key=lambda kernel: abs(np.nan_to_num(kernel.studentised))).name == "adds(n=2)"

    def decides(features, factors):
        features[:, 1] = 0.0
        features[5:10, 0] = 1e4
        features[3:5, 1], factors[3] = [1e6, 1e3], 1.5

    assert any(k.cooks_distance > 1 for k in told(decides, "a single kernel changes the fit considerably").kernels)
    # Additions alone cost three times as much as beside others.
    found = told(lambda _, factors: factors.__setitem__(slice(5), 3), "is at least twice as large when they are left")
    assert found.generators[0].cross_validation_bias == pytest.approx(-2 / 3, abs=0.15)


def test_a_cost_that_may_be_zero_is_named():
    features = counts()
    features[5:10, 2] = 1e5
    seen = set()
    for seed in range(8):
        seconds = noisy(features, np.array([1e-9, 3e-11, 2e-8]), seed=seed)
        diagnosis = diagnose(calibrated(table_of(features, seconds), nonnegative=False))
        found = diagnosis.parameter("p_mul")
        maybe = abs(found.value) < 2.131450 * found.standard_error
        assert found.consistent_with_zero == maybe
        assert severities(diagnosis, "consistent with zero within 95 %: p_mul") == ["warning"] * maybe
        seen.add(maybe)
    assert seen == {True, False}


def test_the_noise_floor_stands_beside_the_errors():
    calibration = ordinary()
    found = diagnose(calibration)
    assert found.noise_floor == 0.02
    expected = np.mean(np.abs(calibration.fit.relative_errors) <= 0.02)
    assert found.below_noise == pytest.approx(expected)
    assert severities(found, "noise floor 2 %: smaller errors are not significant") == ["remark"]
    unknown = diagnose(replace(calibration, noise_floor=None))
    assert math.isnan(unknown.below_noise)
    assert severities(unknown, "noise floor") == []


def test_a_fit_that_failed_or_has_nothing_to_spare():
    features = counts()[[0, 5, 12]]
    found = diagnose(calibrated(table_of(features, features @ TRUTH, ("a", "b", "c"))))
    assert severities(found, "leave no degrees of freedom for 3 parameters") == ["problem"]
    assert math.isnan(found.parameters[0].low)
    calibration = ordinary()
    status = FitStatus(False, "no minimum was reached", 3, 2, 1)
    failed = diagnose(replace(calibration, fit=replace(calibration.fit, status=status)))
    assert failed.findings[0].text.startswith("the fit did not converge: no minimum was reached")


def test_every_parameter_at_its_bound():
    features = counts()
    calibration = calibrated(table_of(features, noisy(features)))
    model = Model(OUTPUT, "f_op_float32_add * 1e-6 + p_mul * f_op_float32_mul")
    table = table_of(features, noisy(features))
    table = table.take([row for row in range(18) if features[row, 0] > 0])
    found = diagnose(calibrated(table, model))
    assert found.parameter("p_mul").at_bound
    assert found.missing == "all parameters are fixed, so that leverage and residuals are not defined"
    assert calibration.fit.at_bound == ()


def test_it_can_be_written_as_json_and_shown():
    found = diagnose(ordinary())
    content = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert content["parameters"][2]["generators"][0] == {
        "name": "mixed",
        "share": found.parameter("p_div").generators[0].share,
        "error_ratio": None,
    }
    assert len(content["kernels"]) == 18
    assert content["below_noise"] == found.below_noise
    assert content["correlation"][0][0] == pytest.approx(1.0)
    assert "noise floor" in repr(found)


def test_an_edge_that_nothing_informs():
    model = Model(OUTPUT, "overlap(p_add * f_op_float32_add, p_mul * f_op_float32_mul, p_edge)")
    features = np.zeros((18, 3))
    # In each kernel one of the costs is a thousand times the other, so that none shows how they overlap.
    features[:, 0] = np.linspace(1e6, 1e8, 18)
    features[:, 1] = features[::-1, 0] * np.where(np.arange(18) % 2, 1e4, 1e-4)
    seconds = features[:, :2].dot(TRUTH[:2]) * (1 + 1e-2 * np.random.default_rng(0).normal(size=18))
    calibration = calibrated(table_of(features, seconds), model)
    assert calibration.fit.undetermined == ("p_edge",)
    found = diagnose(calibration)
    assert severities(found, "the kernels do not determine p_edge") == ["problem"]
    assert not found.parameter("p_edge").determined
    assert math.isnan(found.parameter("p_edge").low)
    assert found.parameter("p_edge").kernels == ()
    assert sum(kernel.leverage for kernel in found.kernels) == pytest.approx(2.0)
    alone = {g.name: g.undetermined for g in found.generators}
    assert alone["adds"] == alone["muls"] == ()


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("value", [1e-320, 1e-200, 1e160, 1e300, None])
def test_values_that_determine_nothing_are_named(value):
    """As of a file in which they were changed: their squares are no numbers, or (None) two columns are one."""
    known = ordinary()
    for column in (0, 1, 2):
        values = known.table.values.copy()
        values[:, 1 + column] = values[:, 2 - column % 2] * 3 if value is None else value * (values[:, 1 + column] > 0)
        table = replace(known.table, values=values)
        problem = pose(MODEL, table, few=True)
        with pytest.raises(CalibrationError, match=r"(are out of range|do not determine its parameters); calibrate ag"):
            diagnose(replace(known, table=table, fit=replace(known.fit, problem=problem)))
