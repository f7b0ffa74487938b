"""Calibrations under the loss soft_l1: intervals, the file, and the diagnosis of wrong rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from perflex import Calibration, FeatureTable, Model, diagnose
from perflex.calibration.interval import interval_at
from perflex.errors import CalibrationError
from perflex.fit.problem import SoftL1
from tests.support.fitted import fitted

if TYPE_CHECKING:
    from pathlib import Path

OUTPUT = "f_cl_wall_time_test"
MODEL = Model(OUTPUT, "p_a * f_thread_groups + p_b * f_waves + p_launch")
TRUTH = {"p_a": 1e-11, "p_b": 3e-10, "p_launch": 2e-6}
ROWS = 50
NOISE = 0.05


def measured(random: np.random.Generator, wrong: int = 0) -> tuple[FeatureTable, list[int]]:
    """Return measurements with normal noise in their logarithms, and which rows are wrong."""
    counts = {name: 10 ** random.uniform(3, 7, ROWS) for name in MODEL.input_features()}
    seconds = np.asarray(MODEL.evaluate(TRUTH, counts)) * np.exp(NOISE * random.normal(size=ROWS))
    rows = random.choice(ROWS, wrong, replace=False)
    seconds[rows] *= random.uniform(2, 7, wrong) ** random.choice([-1, 1], wrong)
    labels = tuple(f"make{i % 5}(n={i})" for i in range(ROWS))
    groups = tuple(f"make{i % 5}" for i in range(ROWS))
    columns = np.column_stack([seconds, *counts.values()])
    return FeatureTable(OUTPUT, (OUTPUT, *counts), labels, columns, groups), sorted(map(int, rows))


@pytest.mark.parametrize(("wrong", "most"), [pytest.param(0, 0.975, marks=pytest.mark.slow), (3, 0.99)])
@pytest.mark.parametrize("seeds", [8, *(pytest.param(count, marks=pytest.mark.slow) for count in (20, 60))])
def test_intervals_hold_new_measurements(seeds: int, wrong: int, most: float) -> None:
    inside = []
    for seed in range(seeds):
        random = np.random.default_rng(seed)
        calibration = fitted(MODEL, measured(random, wrong)[0], loss="soft_l1")
        new = {name: 10 ** random.uniform(3, 7, 40) for name in MODEL.input_features()}
        seconds = np.asarray(MODEL.evaluate(TRUTH, new)) * np.exp(NOISE * random.normal(size=40))
        found = interval_at(calibration, new, 0.95)
        inside += ((found.low <= seconds) & (seconds <= found.high)).tolist()
    assert 0.93 < np.mean(inside) < most


def test_wrong_rows_stand_out_and_decide_nothing() -> None:
    table, wrong = measured(np.random.default_rng(2), 3)
    found = diagnose(fitted(MODEL, table, loss="soft_l1"))
    told = next(finding.text for finding in found.findings if "outliers among the residuals" in finding.text)
    assert all(f"{table.kernels[row]} (" in told for row in wrong)
    assert sorted(np.argsort([-abs(kernel.studentised) for kernel in found.kernels])[:3].tolist()) == wrong
    assert all(kernel.cooks_distance < 1 for kernel in found.kernels)
    assert sum(kernel.leverage for kernel in found.kernels) == pytest.approx(3)


def test_left_out_errors_are_near_those_of_refits() -> None:
    table, _ = measured(np.random.default_rng(3), 3)
    found = diagnose(fitted(MODEL, table, loss="soft_l1"))
    for row in (0, 7, 20, 33):
        rest = fitted(MODEL, table.take([i for i in range(ROWS) if i != row]), loss="soft_l1")
        counts = {name: float(table.column(name)[row]) for name in MODEL.input_features()}
        error = float(MODEL.evaluate(rest.fit, counts)) / table.values[row, 0] - 1
        assert found.kernels[row].leave_one_out_error == pytest.approx(error, abs=0.02)


def test_the_file_keeps_the_loss(tmp_path: Path) -> None:
    made = fitted(MODEL, measured(np.random.default_rng(1), 3)[0], loss="soft_l1")
    made.save(tmp_path / "c.yaml")
    read = Calibration.load(tmp_path / "c.yaml")
    for name in ("loss", "loss_scale", "robust_deviation", "residual_norm"):
        assert getattr(read.fit, name) == getattr(made.fit, name)
    at = dict.fromkeys(MODEL.input_features(), 100000.0)
    assert interval_at(read, at) == interval_at(made, at)


def test_a_scale_that_is_that_of_no_residual_is_refused(tmp_path: Path) -> None:
    made = fitted(MODEL, measured(np.random.default_rng(1))[0], loss="soft_l1")
    with pytest.raises(CalibrationError, match="the loss's scale, 1e-300"):
        diagnose(replace(made, fit=replace(made.fit, problem=made.fit.problem.under(SoftL1(1e-300)))))
