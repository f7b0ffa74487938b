"""``perflex features --code``: code for an NVIDIA GPU that is not here."""

from __future__ import annotations

import json

import pytest

from perflex.__main__ import main

# NVIDIA's compiler is not there for each processor, and another one may be installed beside it.
pytestmark = pytest.mark.machine

KERNEL = """
import loopy as lp
import numpy as np

def product():
    kernel = lp.make_kernel(
        "{[i,j,k]: 0<=i,j,k<n}", "c[i,j] = sum(k, a[i,k]*b[k,j])",
        [lp.GlobalArg("a,b,c", np.float32, shape="n,n"), ...], name="product", lang_version=(2018, 2))
    kernel = lp.split_iname(kernel, "i", 16, outer_tag="g.1", inner_tag="l.1")
    return lp.assume(lp.split_iname(kernel, "j", 16, outer_tag="g.0", inner_tag="l.0"), "n>=1")
"""


@pytest.fixture
def kernel(tmp_path):
    path = tmp_path / "product.py"
    path.write_text(KERNEL)
    return f"{path}:product"


def test_counts_of_the_code_are_those_of_the_kernel(kernel, capfd):
    assert main(["features", kernel, "n=96", "--machine", "H200", "--code", "--json"]) == 0
    found = {name: entry["value"] for name, entry in json.loads(capfd.readouterr().out).items()}
    sub_groups = 96 * 96 // 32
    assert found["f_code_float32"] == pytest.approx(96 * sub_groups)
    assert found["f_code_global_loads"] == pytest.approx(2 * 96 * sub_groups)
    assert found["f_code_global_stores"] == pytest.approx(sub_groups)
    assert 8 <= found["f_code_registers"] <= 255
    assert found["f_code_spill_bytes"] == found["f_code_local_bytes"] == 0
    assert "f_code_cycles" not in found


def test_one_feature_needs_no_option(kernel, capfd):
    words = ["features", kernel, "n=96", "--machine", "A100-40GB", "--json"]
    assert main([*words, "-f", "f_code_barriers", "-f", "f_registers"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["f_code_barriers"]["value"] == 0
    assert found["f_registers"]["value"] > 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--code"], "give --machine NAME"),
        (["--code", "--machine", "MI210"], "for NVIDIA's GPUs only"),
        (["--machine", "H200", "-f", "f_code_cycles"], "known of code for a CPU only"),
        (["-f", "f_code_registers"], "--code --machine NAME"),
    ],
)
def test_what_is_wrong_is_told(kernel, capfd, words, told):
    assert main(["features", kernel, "n=96", *words]) != 0
    assert told in capfd.readouterr().err
