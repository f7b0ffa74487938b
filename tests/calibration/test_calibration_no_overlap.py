"""What a fit says of costs that do not overlap stays with its calibration."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from perflex import Calibration, FeatureTable, Model
from perflex.calibration.calibrating import calibration_from_table
from perflex.calibration.diagnosis.judge import diagnose
from perflex.errors import PerflexError, PerflexWarning

if TYPE_CHECKING:
    from pathlib import Path

OUTPUT = "f_cl_wall_time"
MODEL = Model(OUTPUT, "overlap(p_mem * f_mem_access_global_float32_load, p_add * f_op_float32_add, p_edge)")


def table() -> FeatureTable:
    random = np.random.default_rng(3)
    counts = 10 ** random.uniform(6, 9, (40, 2))
    seconds = (counts @ [2e-11, 5e-12]) * (1 + 0.03 * random.normal(size=40))
    labels = tuple(f"kernel {i}" for i in range(40))
    return FeatureTable(
        OUTPUT, tuple(MODEL.all_features()), labels, np.column_stack([seconds, counts]), groups=("a", "b") * 20
    )


def test_no_overlap_survives_in_a_calibration_and_is_shown(tmp_path: Path) -> None:
    with pytest.warns(PerflexWarning, match="no overlap"):
        calibration = calibration_from_table(MODEL, table())
    calibration.save(tmp_path / "added.yaml")
    loaded = Calibration.load(tmp_path / "added.yaml")
    assert loaded.fit.no_overlap == ("p_edge",)
    assert any("no overlap was found" in finding.text for finding in diagnose(loaded).findings)
    text = (tmp_path / "added.yaml").read_text(encoding="utf-8")
    older = "\n".join(line for line in text.splitlines() if "no_overlap" not in line and line.strip() != "- p_edge")
    (tmp_path / "older.yaml").write_text(older + "\n", encoding="utf-8")
    with pytest.raises(PerflexError, match="p_edge is 0 in a file of an earlier version"):
        Calibration.load(tmp_path / "older.yaml")
