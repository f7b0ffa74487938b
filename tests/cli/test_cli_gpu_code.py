"""``perflex features --code``: code for an NVIDIA GPU that is not here."""

from pathlib import Path

import pytest

# NVIDIA's compiler is not there for each processor, and another one may be installed beside it.
pytestmark = pytest.mark.machine
NAIVE = f"{Path(__file__).parents[2] / 'examples' / 'matmul.py'}:naive"


def test_counts_of_the_code_are_those_of_the_kernel(content):
    printed = content("features", NAIVE, "n=96", "--machine", "H200", "--code", "machine")
    found = {name: entry["value"] for name, entry in printed.items()}
    sub_groups = 96 * 96 // 32
    assert found["f_code_float32"] == pytest.approx(96 * sub_groups)
    assert found["f_code_global_loads"] == pytest.approx(2 * 96 * sub_groups)
    assert found["f_code_global_stores"] == pytest.approx(sub_groups)
    assert 8 <= found["f_registers"] <= 255
    assert found["f_spill_bytes"] == found["f_local_bytes"] == 0
    assert "f_code_cycles" not in found


def test_one_feature_needs_no_option(content):
    words = ["features", NAIVE, "n=96", "--machine", "A100-40GB", "-f", "f_code_barriers", "-f", "f_registers"]
    found = content(*words)
    assert found["f_code_barriers"]["value"] == 0
    assert found["f_registers"]["value"] > 0
