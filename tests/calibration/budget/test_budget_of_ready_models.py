"""Within a budget ready models are timed and fitted as their files say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from perflex import calibrate
from perflex.errors import CalibrationError, PerflexWarning
from perflex.testing import FakeDevice

if TYPE_CHECKING:
    from pathlib import Path

GENERAL = """\
schema: perflex-model/1
name: mine
description: Launches, groups, and what no kernel here does.
output: f_cl_wall_time
expression: p_launch * f_sync_kernel_launch + p_group * f_thread_groups + p_div * f_op_float64_div
parameters:
  p_launch: {meaning: launching, unit: s}
  p_group: {meaning: starting a group, unit: s}
  p_div: {meaning: a division, unit: s}
measurement_kernels:
  - tags: [empty, "ngroups:16,64,256,1024"]
general: true
fixed_sizes: true
timing: {trials: 12, budget_s: 0.15, precision: 0.03}
"""


def law(_label: str, sizes: dict[str, int]) -> float:
    return 5e-6 + 1e-7 * sizes["ngroups"]


def test_costs_that_no_kernel_has_do_not_stop_a_budget(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"{GENERAL}fit: {{on_undetermined: warn}}\n", encoding="utf-8")
    with pytest.warns(PerflexWarning, match="p_div"):
        found = calibrate(str(path), device=FakeDevice(law), budget_s=0.05)
    assert found.params["p_launch"] == pytest.approx(5e-6)
    assert found.params["p_group"] == pytest.approx(1e-7)
    assert found.fit.undetermined == ("p_div",)
    assert (found.options["min_trials"], found.options["trials"]) == (5, 12)
    assert found.options["device_time_spent_s"] <= 0.05


def test_a_budget_that_is_too_small_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"{GENERAL}fit: {{on_undetermined: warn}}\n", encoding="utf-8")
    with pytest.raises(CalibrationError, match="budget"):
        calibrate(str(path), device=FakeDevice(law), budget_s=1e-4)
