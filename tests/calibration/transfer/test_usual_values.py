"""Usual values of ready models: they predict alone, times correct them, and a device is carried over with them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pytest

from perflex import Calibration, PerflexWarning, load_machine, transfer
from perflex.calibration.calibrating import calibration_from_table
from perflex.calibration.interval import interval_at
from perflex.calibration.usual_prior import SPREAD, fit_about_usual, usual_calibration, usual_values
from perflex.features import kernel_feature_values
from perflex.features.tiles.products import Matrices, ProductKernel
from perflex.fit.table import FeatureTable
from perflex.models import load_model

if TYPE_CHECKING:
    from pathlib import Path

GENERAL = load_model("general_tile")
MODEL = GENERAL.model()
NAMES = tuple(MODEL.all_features())
TILES = ((128, 128, 32), (64, 64, 32), (64, 128, 64), (32, 64, 32))
SIZES = ((512, 512, 512), (4096, 4096, 1024), (1024, 8192, 2048), (64, 4096, 4096))
NOISE = 0.1


@cache
def counted(machine: str) -> list[tuple[ProductKernel, str, dict[str, float]]]:
    """Return kernels, their labels and features."""
    found = []
    for m, n, k in SIZES:
        for tile in TILES:
            for warps in (4, 8):
                kernel = ProductKernel(Matrices(m, n, k, "f16", (k, 1), (n, 1)), tile, warps, 3)
                values = kernel_feature_values(MODEL.input_features(), kernel, {}, machine=load_machine(machine))
                found.append((kernel, f"{kernel.name} {tile} {warps}", {name: float(values[name]) for name in values}))
    return found


def device(machine: str, seed: int) -> tuple[dict[str, float], FeatureTable]:
    """Return a device's parameters and times, which differ from the usual ones as the model says, and with noise."""
    random = np.random.default_rng(seed)
    parameters = {name: value * random.lognormal(0, SPREAD) for name, value in GENERAL.usual.items()}
    rows = []
    for _, _, values in counted(machine):
        seconds = float(MODEL.evaluate(parameters, values)) * random.lognormal(0, NOISE)
        rows.append([seconds if name == MODEL.output_feature else values[name] for name in NAMES])
    labels, groups = (label for _, label, _ in counted(machine)), (kernel.name for kernel, _, _ in counted(machine))
    table = FeatureTable(MODEL.output_feature, NAMES, tuple(labels), np.array(rows), tuple(groups), machine=machine)
    return parameters, table


def calibrated(machine: str, seed: int) -> Calibration:
    table = device(machine, seed)[1]
    return calibration_from_table(MODEL, table, fit_about_usual(GENERAL, table))


def inside(calibration: Calibration, table: FeatureTable) -> float:
    seconds = table.column(MODEL.output_feature)
    found = interval_at(calibration, table.columns(MODEL.input_features()))
    return float(np.mean((found.low <= seconds) & (seconds <= found.high)))


def test_usual_values_alone_predict_with_intervals(tmp_path: Path) -> None:
    calibration = usual_calibration(GENERAL, "H100-SXM")
    assert dict(calibration.fit) == pytest.approx(dict(GENERAL.usual))
    assert [one.standard_error / one.value for one in calibration.fit.parameters] == pytest.approx([SPREAD] * 6)
    shares = [inside(calibration, device("H100-SXM", seed)[1]) for seed in range(20)]
    # Rows have less noise than the model is taken to leave, and parameters the spread that it is taken to have.
    assert 0.94 < np.mean(shares) < 1
    calibration.save(tmp_path / "usual.yaml")
    loaded = Calibration.load(tmp_path / "usual.yaml")
    assert dict(loaded.fit) == dict(calibration.fit)
    assert interval_at(loaded, device("H100-SXM", 0)[1].columns(MODEL.input_features())).doubts == (
        "no sample of this device: predicted from its machine's facts and the model's usual values alone",
    )


def test_one_other_device_is_carried_over_half_way_and_intervals_hold() -> None:
    shares = []
    for seed in range(5):
        source = calibrated("A100-80GB", seed)
        with pytest.warns(PerflexWarning, match="no sample of this device"):
            carried = transfer([source], machine="H100-SXM")
        for name, usual in GENERAL.usual.items():
            assert carried.fit[name] == pytest.approx(np.sqrt(source.fit[name] * usual))
        shares.append(inside(carried, device("H100-SXM", 100 + seed)[1]))
    assert 0.94 < np.mean(shares) < 1


def test_times_of_the_device_narrow_the_interval() -> None:
    source, (_, table) = calibrated("A100-80GB", 0), device("H100-SXM", 7)
    with pytest.warns(PerflexWarning):
        without = transfer([source], machine="H100-SXM")
    with_samples = transfer([source], table.take(range(0, len(table), 4)), machine="H100-SXM")
    values = table.columns(MODEL.input_features())
    wide, narrow = (interval_at(one, values) for one in (without, with_samples))
    assert np.median(narrow.high / narrow.low) < 0.8 * np.median(wide.high / wide.low)


def test_other_models_have_no_usual_values() -> None:
    assert usual_values(MODEL) == GENERAL.usual
    assert usual_values(load_model("matmul_sq").model()) == {}
