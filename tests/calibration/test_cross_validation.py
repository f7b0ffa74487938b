"""Cross-validation by generator: against full refits, and what it says of generators, as intervals take it."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

from perflex import FeatureTable, Model, fit_model
from perflex.calibration.cross_validation import between_generators, cross_validation
from support.fitted import fitted

OUTPUT = "f_cl_wall_time_test"
FEATURES = ("f_op_float32_add", "f_op_float32_mul", "f_op_float32_div")
MODEL = Model(OUTPUT, "p_a * f_op_float32_add + p_b * f_op_float32_mul + p_c * f_op_float32_div")
TRUTH = np.array([1e-9, 3e-10, 2e-8])
GENERATORS, EACH = 30, 4


def table_of(seed):
    """Return times with heavy tails, as where models leave something out of a generator's kernels now and then."""
    random = np.random.default_rng(seed)
    counts = 10 ** random.uniform(3, 6, (GENERATORS * EACH, 3)) * [1.0, 3.0, 0.05]
    shared = np.repeat(0.2 * random.standard_t(4, size=GENERATORS), EACH)
    seconds = (counts @ TRUTH) * np.exp(shared + 0.02 * random.normal(size=len(counts)))
    owners = tuple(f"make{i // EACH}" for i in range(len(counts)))
    labels = tuple(f"{owner}(n={i})" for i, owner in enumerate(owners))
    return FeatureTable(OUTPUT, (OUTPUT, *FEATURES), labels, np.column_stack([seconds, counts]), groups=owners)


@pytest.mark.parametrize("residual", ["relative", "logarithmic"])
def test_folds_are_as_full_refits(residual):
    calibration, seen = fitted(MODEL, table_of(2), residual=residual), []
    table = calibration.table
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        folds = cross_validation(calibration.fit, table.generators, lambda done, _total, _name: seen.append(done))
    assert seen == list(range(GENERATORS))
    assert [fold.generator for fold in folds] == list(dict.fromkeys(table.groups))
    for number in (0, 7, 29):
        own = np.array(table.groups) == f"make{number}"
        rest = fitted(MODEL, table.take(np.flatnonzero(~own)), residual=residual).fit
        predicted = table.values[own, 1:] @ list(rest.values())
        np.testing.assert_allclose(folds[number].errors, predicted / table.values[own, 0] - 1, rtol=0.01, atol=0.01)


@pytest.mark.parametrize("slope", [0.0, 0.3])
def test_slopes_within_generators_are_not_those_of_noise(slope):
    found = []
    for seed in range(6):
        random = np.random.default_rng(seed)
        counts = 10 ** random.uniform(5, 6, (64, 3)) * [1.0, 3.0, 0.05]
        logs = np.log(counts @ TRUTH).reshape(8, 8)
        errors = slope * random.standard_normal((8, 1)) * (logs - logs.mean(axis=1, keepdims=True))
        seconds = np.exp(logs + errors + 0.2 * random.standard_normal((8, 8))).ravel()
        table = replace(table_of(2).take(range(64)), groups=tuple(f"make{i // 8}" for i in range(64)))
        table = replace(table, values=np.column_stack([seconds, counts]))
        found.append(between_generators(fitted(MODEL, table, residual="logarithmic").fit, table.groups).slope)
    assert abs(np.sqrt(np.mean(np.square(found))) - slope) < 0.1


def test_what_only_one_generator_determines_is_named():
    table = table_of(2)
    values = table.values.copy()
    values[EACH:, 3] = 0.0
    values[:, 0] = values[:, 1:] @ TRUTH
    fit = fit_model(MODEL, replace(table, values=values))
    first, *others = cross_validation(fit, table.groups)
    assert (first.errors, first.undetermined) == ((), ("p_c",))
    assert first.reason == "the others do not determine them"
    assert all(part.errors and not part.undetermined for part in others)
    [alone] = cross_validation(fit, ("one",) * len(values))
    assert (alone.errors, alone.reason) == ((), "there is no other generator")
    many, few = cross_validation(fit, ("one",) * (len(values) - 2) + ("two",) * 2)
    assert (many.errors, many.reason) == ((), "the others are 2 kernels for 3 parameters")
    assert len(few.errors) == 2
