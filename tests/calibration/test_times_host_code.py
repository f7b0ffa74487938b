"""Times with host code in them, in calibrations from tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from perflex import (
    FitOptions,
    Model,
    TimesTable,
    calibrate,
    gather_feature_values,
    load_times,
    save_times,
)
from perflex.errors import CalibrationError, FileFormatError, PerflexWarning
from perflex.features import kernel_feature_values
from sample_kernels import matmul, pointwise

if TYPE_CHECKING:
    from pathlib import Path

LAUNCH, HOST, GROUP = 4e-6, 11e-6, 2e-8
MODEL = Model("f_cl_wall_time", "p_launch * f_sync_kernel_launch + p_host * f_host_launch + p_group * f_thread_groups")


def square() -> Any:
    return pointwise("x[i]*x[i]")


def cube() -> Any:
    return pointwise("x[i]*x[i]*x[i]")


def tiled() -> Any:
    return matmul(prefetch=False, tile=8)


KERNELS = {"square": square, "cube": cube, "tiled": tiled}


def table(folder: Path, *, hosted: str = "cube", noise: float = 0.0) -> TimesTable:
    """Times of the law; those of one function are of two launches with host code in each."""
    random = np.random.default_rng(3)
    lines = ["kernel,n,seconds,launches,host_code"]
    for name, make in KERNELS.items():
        for n in (64, 256, 1024) if name == "tiled" else (1024, 65536, 262144, 524288, 1048576):
            groups = kernel_feature_values(["f_thread_groups"], make(), {"n": n})["f_thread_groups"]
            seconds = LAUNCH + GROUP * float(groups) + (HOST if name == hosted else 0.0)
            seconds *= 1 + noise * random.standard_normal()
            lines.append(f"{name},{n},{2 * seconds!r},2,{'True' if name == hosted else ''}")
    path = folder / "log.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return load_times(path, KERNELS)


def test_host_code_has_a_cost_of_its_own_which_predictions_lack(tmp_path: Path) -> None:
    times = table(tmp_path)
    assert [row.host_code for row in times.rows] == [False] * 5 + [True] * 5 + [False] * 3
    values = gather_feature_values(MODEL.all_features(), times=times)
    assert values.column("f_host_launch").tolist() == [0] * 5 + [1] * 5 + [0] * 3
    calibration = calibrate(MODEL, times=times)
    assert dict(calibration.params) == pytest.approx({"p_launch": LAUNCH, "p_host": HOST, "p_group": GROUP}, rel=1e-6)
    predicted = calibration.predict(cube(), {"n": 262144})
    row = next(row for row in times.rows if row.host_code and row.sizes["n"] == 262144)
    assert predicted == pytest.approx(row.seconds - HOST, rel=1e-6)
    assert save_times(calibration, tmp_path / "again.csv") == 13
    again = load_times(tmp_path / "again.csv", KERNELS)
    assert [row.host_code for row in again.rows] == [row.host_code for row in times.rows]


def test_without_such_rows_the_cost_is_refused_or_zero(tmp_path: Path) -> None:
    times = table(tmp_path, hosted="")
    with pytest.raises(CalibrationError, match=r"p_host is determined by no kernel \(f_host_launch is zero"):
        calibrate(MODEL, times=times)
    with pytest.warns(PerflexWarning, match="p_host"):
        calibration = calibrate(MODEL, times=times, fit=FitOptions(on_undetermined="warn"))
    assert calibration.params["p_host"] == 0
    assert calibration.params["p_launch"] == pytest.approx(LAUNCH, rel=1e-6)


def test_what_the_column_may_hold(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("kernel,n,seconds,host_code\nsquare,64,1,host\n", encoding="utf-8")
    with pytest.raises(FileFormatError, match="line 2: column host_code must hold True or False, not 'host'"):
        load_times(path, KERNELS)
