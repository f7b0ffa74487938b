"""Usual values of ready models: they predict alone, times correct them, and a device is carried over with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from perflex import Calibration, FeatureTable, PerflexWarning, calibrate, load_times, transfer
from perflex.calibration.calibrating import calibration_from_table
from perflex.calibration.interval import interval_at
from perflex.calibration.usual_prior import SPREAD, fit_about_usual, usual_calibration, usual_values
from perflex.models import load_model

if TYPE_CHECKING:
    from pathlib import Path

GENERAL = load_model("general_tile")
MODEL = GENERAL.model()
Device = Callable[[str, int], FeatureTable]
TILES = ((128, 128, 32), (64, 64, 32), (64, 128, 64), (32, 64, 32))
SIZES = ((512, 512, 512), (4096, 4096, 1024), (1024, 8192, 2048), (64, 4096, 4096))
NOISE = 0.1
DEVICES = {"A100-80GB": "NVIDIA A100-SXM4-80GB", "H100-SXM": "NVIDIA H100 80GB HBM3"}


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, FeatureTable]:
    """Return the features of matrix products on each machine, whose times are no matter."""
    lines = []
    for m, n, k in SIZES:
        lines += [f"AUTOTUNE mm({m}x{k}, {k}x{n})", f"strides: [{k}, 1], [{n}, 1]"]
        lines.append("dtypes: torch.float16, torch.float16")
        for number, (rows, columns, inner) in enumerate(TILES):
            blocks = f"BLOCK_K={inner}, BLOCK_M={rows}, BLOCK_N={columns}, num_stages=3"
            lines += [f"  triton_mm_{number}{warps} 1.0 ms 50.0% {blocks}, num_warps={warps}" for warps in (4, 8)]
    path = tmp_path_factory.mktemp("times") / "autotune.log"
    path.write_text("\n".join(lines) + "\n")
    return {
        machine: calibrate(GENERAL.name, times=load_times(path, device=device)).table
        for machine, device in DEVICES.items()
    }


@pytest.fixture
def device(counted: dict[str, FeatureTable]) -> Device:
    """Return what makes a device's times: its parameters differ from the usual ones as the model says; with noise."""

    def made(machine: str, seed: int) -> FeatureTable:
        random, table = np.random.default_rng(seed), counted[machine]
        parameters = {name: value * random.lognormal(0, SPREAD) for name, value in GENERAL.usual.items()}
        seconds = np.asarray(MODEL.evaluate(parameters, table.columns(MODEL.input_features())))
        values = table.values.copy()
        values[:, table.features.index(MODEL.output_feature)] = seconds * random.lognormal(0, NOISE, len(table))
        return replace(table, values=values)

    return made


def calibrated(table: FeatureTable) -> Calibration:
    return calibration_from_table(MODEL, table, fit_about_usual(GENERAL, table))


def inside(calibration: Calibration, table: FeatureTable) -> float:
    seconds = table.column(MODEL.output_feature)
    found = interval_at(calibration, table.columns(MODEL.input_features()))
    return float(np.mean((found.low <= seconds) & (seconds <= found.high)))


def test_usual_values_alone_predict_with_intervals(device: Device, tmp_path: Path) -> None:
    calibration = usual_calibration(GENERAL, "H100-SXM")
    assert dict(calibration.fit) == pytest.approx(dict(GENERAL.usual))
    assert [one.standard_error / one.value for one in calibration.fit.parameters] == pytest.approx([SPREAD] * 6)
    shares = [inside(calibration, device("H100-SXM", seed)) for seed in range(20)]
    # Rows have less noise than the model is taken to leave, and parameters the spread that it is taken to have.
    assert 0.94 < np.mean(shares) < 1
    calibration.save(tmp_path / "usual.yaml")
    loaded = Calibration.load(tmp_path / "usual.yaml")
    assert dict(loaded.fit) == dict(calibration.fit)
    assert interval_at(loaded, device("H100-SXM", 0).columns(MODEL.input_features())).doubts == (
        "no sample of this device: predicted from its machine's facts and the model's usual values alone",
    )


def test_one_other_device_is_carried_over_half_way_and_intervals_hold(device: Device) -> None:
    shares = []
    for seed in range(5):
        source = calibrated(device("A100-80GB", seed))
        with pytest.warns(PerflexWarning, match="no sample of this device"):
            carried = transfer([source], machine="H100-SXM")
        for name, usual in GENERAL.usual.items():
            assert carried.fit[name] == pytest.approx(np.sqrt(source.fit[name] * usual))
        shares.append(inside(carried, device("H100-SXM", 100 + seed)))
    assert 0.94 < np.mean(shares) < 1


def test_times_of_the_device_narrow_the_interval(device: Device) -> None:
    source, table = calibrated(device("A100-80GB", 0)), device("H100-SXM", 7)
    with pytest.warns(PerflexWarning):
        without = transfer([source], machine="H100-SXM")
    with_samples = transfer([source], table.take(range(0, len(table), 4)), machine="H100-SXM")
    values = table.columns(MODEL.input_features())
    wide, narrow = (interval_at(one, values) for one in (without, with_samples))
    assert np.median(narrow.high / narrow.low) < 0.8 * np.median(wide.high / wide.low)


def test_other_models_have_no_usual_values() -> None:
    assert usual_values(MODEL) == GENERAL.usual
    assert usual_values(load_model("matmul_sq").model()) == {}
