"""The measured values in a calibration's file: they come back as they were, and damage is named."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import yaml

from perflex import Calibration, FeatureInfo, FeatureTable, Model, calibration_names, diagnose, load_calibration
from perflex.calibration.calibrating import calibration_from_table
from perflex.errors import FileFormatError

if TYPE_CHECKING:
    from pathlib import Path

OUTPUT = "f_cl_wall_time_test"
MODEL = Model(OUTPUT, "p_add * f_op_float32_add + p_launch * f_sync_kernel_launch")


def calibration(*, relative: bool = True, groups: bool = True) -> Calibration:
    random = np.random.default_rng(0)
    counts = np.column_stack([np.floor(10 ** random.uniform(3, 17, 9)), np.ones(9), random.random(9)])
    seconds = counts[:, :2] @ [1e-12 / 3, 1e-5] * (1 + 0.03 * random.normal(size=9))
    table = FeatureTable(
        OUTPUT,
        # A column that the model does not use, and the output in the middle.
        ("f_op_float32_add", OUTPUT, "f_sync_kernel_launch", "f_thread_groups"),
        tuple(f"empty(n={i})" for i in range(9)),
        np.column_stack([counts[:, 0], seconds, counts[:, 1], counts[:, 2]]),
        groups=("empty",) * 5 + ("other: 'x' #y",) * 4 if groups else (),
        spread=np.where(np.arange(9) == 2, np.nan, random.random(9)),
        info={OUTPUT: FeatureInfo("s"), "f_op_float32_add": FeatureInfo("sub-group operation", 32, "op")},
        sub_group_size=16,
        repeatability=np.where(np.arange(9) == 4, np.nan, random.random(9) / 10),
    )
    return calibration_from_table(MODEL, table, relative=relative)


@pytest.mark.parametrize("relative", [True, False])
@pytest.mark.parametrize("groups", [True, False])
def test_values_come_back_bit_by_bit(tmp_path: Path, relative: bool, groups: bool) -> None:
    made = calibration(relative=relative, groups=groups)
    path = tmp_path / "kept.yaml"
    made.save(path)
    loaded = Calibration.load(path)
    assert made.table is not None
    assert loaded.table is not None
    assert loaded.table.features == (OUTPUT, "f_op_float32_add", "f_sync_kernel_launch")
    assert loaded.table.kernels == made.fit.kernels
    np.testing.assert_array_equal(loaded.table.values, made.table.values)
    assert loaded.table.groups == made.table.groups
    np.testing.assert_array_equal(loaded.table.spread, made.table.spread)
    np.testing.assert_array_equal(loaded.table.repeatability, made.table.repeatability)
    assert (loaded.table.scale is None) == (not relative)
    if relative:
        np.testing.assert_array_equal(loaded.table.scale, made.table.scale)
    assert loaded.table.sub_group_size == 16
    assert loaded.fit.nonnegative is True
    assert diagnose(loaded).as_dict() == diagnose(made).as_dict()
    loaded.save(tmp_path / "again.yaml")
    assert (tmp_path / "again.yaml").read_bytes() == path.read_bytes()


def test_noise_floor_is_the_median_repeatability_of_the_kernels() -> None:
    made = calibration()
    assert made.table is not None
    assert made.table.repeatability is not None
    assert made.noise_floor == np.nanmedian(made.table.repeatability) < 0.1
    # Where no kernel has samples enough the spread of single timings takes its place.
    column = made.table.repeatability
    column[:] = np.nan
    again = calibration_from_table(MODEL, made.table, relative=False)
    assert made.table.spread is not None
    assert again.noise_floor == np.nanmedian(made.table.spread)


def test_files_of_earlier_versions_have_no_repeatability(tmp_path: Path) -> None:
    path = tmp_path / "kept.yaml"
    calibration().save(path)
    text = path.read_text(encoding="utf-8")
    older = re.sub(r"\n +repeatability: \S+", "", text)
    assert older.count("repeatability") == 0 < text.count("repeatability")
    path.write_text(older, encoding="utf-8")
    loaded = Calibration.load(path)
    assert loaded.table is not None
    assert loaded.table.repeatability is None
    assert loaded.table.spread is not None


def test_strays_of_earlier_versions_are_not_forgotten() -> None:
    older = load_calibration("matmul_sq_amd_epyc_4cores_pocl")
    assert older.timing is not None
    assert older.timing.stray_samples == older.options["outliers_excluded"] > 0
    assert (older.timing.samples, older.timing.disturbed_samples, older.timing.repeatability) == (0, 0, None)


def test_every_column_has_its_unit(tmp_path: Path) -> None:
    calibration().save(tmp_path / "kept.yaml")
    content = yaml.safe_load((tmp_path / "kept.yaml").read_text(encoding="utf-8"))
    assert content["measurement_kernels"]["columns"] == [
        {"feature": OUTPUT, "unit": "s"},
        {"feature": "f_op_float32_add", "unit": "sub-group operation"},
        {"feature": "f_sync_kernel_launch", "unit": "f_sync_kernel_launch"},
    ]
    assert content["fit"]["nonnegative"] is True
    entry = content["measurement_kernels"]["kernels"][2]
    assert entry["generator"] == "empty"
    assert "spread" not in entry
    assert "repeatability" not in content["measurement_kernels"]["kernels"][4]
    assert re.fullmatch(r"\S+ \d+ 1", entry["values"])


def test_files_without_values_load(tmp_path: Path) -> None:
    whole = calibration()
    bare = replace(whole, table=None, fit=replace(whole.fit, nonnegative=None))
    bare.save(tmp_path / "old.yaml")
    text = (tmp_path / "old.yaml").read_text(encoding="utf-8")
    assert "columns" not in text
    assert "nonnegative" not in text
    loaded = Calibration.load(tmp_path / "old.yaml")
    assert loaded.table is None
    assert loaded.fit.nonnegative is None
    assert dict(loaded.params) == dict(whole.params)


# A model of the paper, and one of transfers and in-core work, both with their measured values.
SOME_SHIPPED = ("matmul_sq_amd_epyc_4cores_pocl", "fdiff_incore_amd_epyc_4cores_pocl")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in SOME_SHIPPED else pytest.mark.slow) for name in calibration_names()],
)
def test_shipped_calibrations_can_be_diagnosed(name: str) -> None:
    shipped = load_calibration(name)
    found = diagnose(shipped)
    assert len(found.parameters) == len(shipped.params)
    assert (found.missing == "") == (shipped.table is not None)


@pytest.mark.parametrize(
    ("pattern", "replacement", "says"),
    [
        (r"values: \S+ ", "values: x ", r"kernels\[0\].values: 3 finite numbers"),
        (r"values: \S+ ", "values: ", r"kernels\[0\].values: 3 finite numbers"),
        (r"values: \S+ ", "values: nan ", r"kernels\[0\].values: 3 finite numbers"),
        (r"values: \S+ ", "values: -1.0e-3 ", r"kernels\[0\].values: the measured output.* positive, not -0.001"),
        (r"values: [^\n]+", "value: 1 2 3", r"kernels\[0\].value: there is no such field; known here: .*values"),
        (r"values: ", "more: 1\n    values: ", r"kernels\[0\].more: there is no such field"),
        (r"spread: ", "spread: x", r"kernels\[0\].spread: a number"),
        (r"    generator: 'other[^\n]+\n", "", r"kernels\[5\].generator: every kernel must have a generator, or none"),
        (r"  - feature: f_op_float32_add", "  - feature: f_op_float32_mul", "columns: the columns must be the model's"),
        (r"unit: sub-group operation\n", "unit: 3\n", r"columns\[1\].unit: a text"),
        (r"nonnegative: true", "nonnegative: 1", "fit.nonnegative: true or false"),
    ],
)
def test_damage_is_named(tmp_path: Path, pattern: str, replacement: str, says: str) -> None:
    path = tmp_path / "kept.yaml"
    calibration().save(path)
    text = path.read_text(encoding="utf-8")
    start = text.index("\nfit:")
    damaged, count = re.subn(pattern, lambda _: replacement, text[start:], count=1)
    if not count:
        pytest.fail(f"{pattern} is not in the file")
    path.write_text(text[:start] + damaged, encoding="utf-8")
    with pytest.raises(FileFormatError) as caught:
        Calibration.load(path)
    assert re.search(says, caught.value.message), caught.value.message
