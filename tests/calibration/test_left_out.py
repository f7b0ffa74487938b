"""Intervals from errors of generators that were left out: coverage, mixtures, and the file."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pytest

from perflex import Calibration, FeatureTable, Model
from perflex.calibration.calibrating import calibration_from_table
from perflex.calibration.held_out import held_out_by_generator
from perflex.calibration.interval import interval_at
from perflex.calibration.left_out import (
    FEWEST_GENERATORS,
    LEVELS,
    LeftOutErrors,
    TermShares,
    held_out_nearby,
    left_out_errors,
    left_out_kernels,
)
from perflex.calibration.uncertainty import vector
from perflex.errors import FileFormatError

if TYPE_CHECKING:
    from pathlib import Path

OUTPUT = "f_cl_wall_time_test"
FEATURES = ("f_op_float32_add", "f_op_float32_mul", "f_op_float32_div")
MODEL = Model(OUTPUT, "p_a * f_op_float32_add + p_b * f_op_float32_mul + p_c * f_op_float32_div")
TRUTH = np.array([1e-9, 3e-10, 2e-8])
GENERATORS, EACH = 30, 4


def shared_errors(random: np.random.Generator, count: int) -> np.ndarray:
    """Return errors with heavy tails, as of models that leave something out now and then."""
    return 0.2 * random.standard_t(4, size=count)


def counts_of(random: np.random.Generator, rows: int) -> np.ndarray:
    return 10 ** random.uniform(3, 6, (rows, 3)) * [1.0, 3.0, 0.05]


def table_of(seed: int, generators: int = GENERATORS) -> FeatureTable:
    random = np.random.default_rng(seed)
    counts = counts_of(random, generators * EACH)
    shared = np.repeat(shared_errors(random, generators), EACH)
    seconds = (counts @ TRUTH) * np.exp(shared + 0.02 * random.normal(size=len(counts)))
    owners = tuple(f"make{i // EACH}" for i in range(len(counts)))
    labels = tuple(f"{owner}(n={i})" for i, owner in enumerate(owners))
    return FeatureTable(OUTPUT, (OUTPUT, *FEATURES), labels, np.column_stack([seconds, counts]), groups=owners)


@cache
def calibrated(seed: int, generators: int = GENERATORS) -> Calibration:
    return calibration_from_table(MODEL, table_of(seed, generators), loss="soft_l1")


def values(counts: np.ndarray) -> dict[str, np.ndarray]:
    return dict(zip(FEATURES, counts.T, strict=True))


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.95])
def test_kernels_of_new_generators_are_inside(confidence: float) -> None:
    inside = []
    for seed in range(12):
        calibration = calibrated(seed)
        assert calibration.left_out is not None
        random = np.random.default_rng(1000 + seed)
        new = counts_of(random, 200)
        seconds = (new @ TRUTH) * np.exp(shared_errors(random, 200))
        found = interval_at(calibration, values(new), confidence)
        inside.append((found.low <= seconds) & (seconds <= found.high))
    assert np.mean(inside) == pytest.approx(confidence, abs=0.05 if confidence < 0.9 else 0.03)


def test_few_generators_and_absolute_fits_have_none() -> None:
    assert calibrated(0, FEWEST_GENERATORS - 1).left_out is None
    assert calibrated(0, FEWEST_GENERATORS).left_out is not None
    table = table_of(0)
    assert calibration_from_table(MODEL, table, relative=False).left_out is None
    calibration = calibrated(0)
    assert left_out_errors(MODEL, calibration.fit, None) is None


def test_a_cost_that_one_generator_has_is_no_test() -> None:
    table = table_of(3)
    only = np.array(table.groups) == "make5"
    counts = table.values[:, 1:].copy()
    counts[:, 2] = np.where(only, 1e7, 0.0)
    seconds = table.values[:, 0] / (table.values[:, 1:] @ TRUTH) * (counts @ TRUTH)
    found = calibration_from_table(MODEL, replace(table, values=np.column_stack([seconds, counts])), loss="soft_l1")
    assert found.left_out is not None
    assert (found.left_out.generators, found.left_out.excluded) == (GENERATORS - 1, EACH)


def test_kernels_are_predicted_as_by_refits_without_their_generator() -> None:
    calibration = calibrated(2)
    found, table = calibration.left_out_kernels, calibration.table
    assert found is not None
    assert table is not None
    refits = held_out_by_generator(MODEL, table, start=calibration.fit, loss=calibration.fit.loss)
    full = np.concatenate([part.errors for part in refits])
    np.testing.assert_allclose(np.exp(-found.errors), 1 + full, rtol=0.01)
    np.testing.assert_allclose(found.predicted * np.exp(found.errors), table.column(OUTPUT))
    assert found.known.all()


def test_cheap_refits_by_generator_are_those_of_full_ones() -> None:
    calibration = calibrated(2)
    assert calibration.table is not None
    seen: list[int] = []
    cheap = held_out_nearby(MODEL, calibration.fit, calibration.table, lambda done, _total, _name: seen.append(done))
    full = held_out_by_generator(MODEL, calibration.table, start=calibration.fit, loss=calibration.fit.loss)
    assert [part.generator for part in cheap] == [part.generator for part in full]
    assert seen == list(range(GENERATORS))
    for one, other in zip(cheap, full, strict=True):
        np.testing.assert_allclose(one.errors, other.errors, rtol=0.01, atol=0.01)


def test_cheap_refits_name_what_only_one_generator_determines() -> None:
    table = table_of(2)
    values = table.values.copy()
    values[EACH:, 3] = 0.0
    values[:, 0] = values[:, 1:] @ TRUTH
    fit = calibration_from_table(MODEL, replace(table, values=values)).fit
    first, *others = held_out_nearby(MODEL, fit, replace(table, values=values))
    assert (first.errors, first.undetermined) == ((), ("p_c",))
    assert first.reason == "the others do not determine them"
    assert all(part.errors and not part.undetermined for part in others)
    [alone] = held_out_nearby(MODEL, fit, replace(table, values=values, groups=("one",) * len(values)))
    assert (alone.errors, alone.reason) == ((), "there is no other generator")


def test_one_generator_leaves_nothing_to_predict_it_by() -> None:
    found = left_out_kernels(MODEL, calibrated(2).fit, replace(table_of(2), groups=("one",) * GENERATORS * EACH))
    assert not found.known.any()


def test_limits_are_wider_where_costs_are_mixed_unlike_those_measured() -> None:
    found = LeftOutErrors(30, 100, 0, 0.1, 0.5, 0.4, tuple(2 * level for level in LEVELS), 0.3)
    near, away, beyond = found.reach(0.5, np.array([0.0, 0.4, 0.9]), np.zeros(3))
    assert (near, away, beyond) == pytest.approx((0.1, 0.3, 0.3))
    assert found.reach(0.99, np.zeros(1), np.zeros(1))[0] > found.reach(0.95, np.zeros(1), np.zeros(1))[0] > 0.1
    assert found.reach(0.5, np.zeros(1), np.ones(1))[0] > 0.2


def test_shares_and_their_distance() -> None:
    calibration = calibrated(0)
    table = calibration.table
    assert table is not None
    mixtures = TermShares(MODEL, calibration.fit, {name: table.column(name) for name in FEATURES}, len(table))
    parts = table.values[:, 1:] * vector(calibration.fit)
    np.testing.assert_allclose(mixtures.shares, parts / parts.sum(axis=1, keepdims=True))
    np.testing.assert_allclose(mixtures.distances(mixtures.shares), 0.0, atol=1e-6)
    alone = np.eye(3)[:1]
    expected = np.sqrt(1 - np.sqrt(mixtures.shares[:, 0].max()))
    assert mixtures.distances(alone)[0] == pytest.approx(expected)


def test_the_file_keeps_them(tmp_path: Path) -> None:
    calibration = calibrated(1)
    path = tmp_path / "kept.yaml"
    calibration.save(path)
    loaded = Calibration.load(path)
    assert loaded.left_out == calibration.left_out
    new = values(counts_of(np.random.default_rng(5), 4))
    np.testing.assert_allclose(interval_at(loaded, new).high, interval_at(calibration, new).high, rtol=1e-9)
    # A file of an earlier version: computed when it is first asked for.
    older = Calibration(MODEL, calibration.fit, table=calibration.table)
    assert older.known_left_out == calibration.left_out
    path.write_text(path.read_text().replace("  near: ", "  near: -"))
    with pytest.raises(FileFormatError, match="near"):
        Calibration.load(path)
