"""``perflex calibrate``, ``predict`` and ``rank``."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from perflex import Calibration, load_calibration
from perflex.__main__ import main
from perflex.cli.calibrate import noise_floor_lines
from support.saved_calibrations import saved_text

EXAMPLE = Path(__file__).parents[2] / "examples" / "matmul.py"


@pytest.fixture
def calibration(tmp_path: Path) -> str:
    path = tmp_path / "matmul.yaml"
    path.write_text(saved_text("matmul_sq_amd_epyc_4cores_intel_opencl"), encoding="utf-8")
    return str(path)


def run(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(list(words))
    out, err = capfd.readouterr()
    return code, out, err


def test_predict(calibration: str, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capfd, "predict", calibration, f"{EXAMPLE}:naive", "n=512,1024")
    assert (code, err) == (0, "")
    assert "n=512: " in out
    assert "n=1024: " in out
    # The model has an overlap, whose costs are told apart.
    assert "partial_overlap" not in out
    shares = [line.split(" %  ") for line in out.splitlines() if " %  " in line]
    assert sum(float(share) for share, _ in shares) == pytest.approx(200, abs=2)
    # Of each size eight by name, and the rest together.
    assert [cost for _, cost in shares[8::9]] == ["(6 other costs)"] * 2
    assert sum("f_mem_access_tag:aLD" in cost for _, cost in shares) >= 2


def test_predict_json_agrees_with_the_library(calibration: str, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capfd, "predict", calibration, f"{EXAMPLE}:prefetching", "n=512", "--json")
    assert code == 0
    (entry,) = json.loads(out)
    assert entry["sizes"] == {"n": 512}
    assert sum(entry["terms"].values()) == pytest.approx(entry["predicted_s"])
    import runpy

    kernel = runpy.run_path(str(EXAMPLE))["prefetching"]()
    assert entry["predicted_s"] == Calibration.load(calibration).predict(kernel, {"n": 512})


def test_predictions_beyond_the_calibration_are_marked(calibration: str, capfd: pytest.CaptureFixture[str]) -> None:
    words = ("predict", calibration, f"{EXAMPLE}:naive", "n=496,1008", "--confidence", "0.95")
    code, out, err = run(capfd, *words)
    assert (code, err) == (0, "")
    known, far = (next(line for line in out.splitlines() if line.startswith(f"n={n}: ")) for n in (496, 1008))
    assert not known.endswith("(doubtful)")
    assert far.endswith("(doubtful)")
    assert "  doubtful: larger than all measurement kernels: f_mem_access_tag:" in out
    entries = json.loads(run(capfd, *words, "--json")[1])
    assert [entry["extrapolated"] for entry in entries] == [False, True]
    assert entries[0]["doubts"] == []
    assert "times the largest" in entries[1]["doubts"][0]


def test_rank(calibration: str, capfd: pytest.CaptureFixture[str]) -> None:
    words = (f"{EXAMPLE}:naive", f"{EXAMPLE}:prefetching", "n=1056")
    code, out, _ = run(capfd, "rank", calibration, *words, "--json")
    assert code == 0
    places = json.loads(out)
    assert [place["rank"] for place in places] == [1, 2]
    assert places[0]["predicted_s"] <= places[1]["predicted_s"]
    code, out, _ = run(capfd, "rank", calibration, *words)
    assert code == 0
    assert out.startswith("1. ")
    assert "(1.00 x)" in out


def test_what_the_model_leaves_out_is_said(calibration: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = EXAMPLE.read_text().replace('return tag_accesses(kernel, loads={"a": "aLD", "b": "bLD"})', "return kernel")
    (tmp_path / "untagged.py").write_text(text)
    code, _, err = run(capfd, "predict", calibration, f"{tmp_path / 'untagged.py'}:prefetching", "n=512")
    assert code == 0
    assert err.startswith("warning: ")
    assert "the model has no feature for f_mem_access_global_float32_load" in err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("predict", "{c}", "{k}:naive"), 2, "needs a value for size n"),
        (("predict", "{c}", "{k}:naive", "n=1000"), 2, "not valid for n=1000: it assumes"),
        (("predict", "{c}", "{k}:naive", "n=x"), 2, "size 'n' must be an integer"),
        (("predict", "{c}", "{k}:none", "n=16"), 2, "has no 'none'; it has "),
        (("predict", "no.yaml", "{k}:naive", "n=16"), 2, "no.yaml"),
        (("predict", "{k}", "{k}:naive", "n=16"), 2, "matmul.py"),
        (("rank", "{c}", "n=16"), 2, "there is no kernel"),
        (("calibrate", "no_model", "-o", "x.yaml"), 2, "no model is called 'no_model'"),
        (("calibrate", "madd_only", "-o", "x.yaml", "--device", "zz"), 2, "zz"),
    ],
)
def test_bad_input_is_one_line(
    words: tuple[str, ...], code: int, message: str, calibration: str, capfd: pytest.CaptureFixture[str]
) -> None:
    given = [word.format(c=calibration, k=EXAMPLE) for word in words]
    found, out, err = run(capfd, *given)
    assert found == code
    assert out == ""
    assert err.startswith("perflex: error: ")
    assert message in err


def test_calibrate(tmp_path: Path, default_device: object, capfd: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "model.yaml"
    model.write_text("""\
schema: perflex-model/1
name: small
description: multiply-adds
output: f_cl_wall_time
fixed_sizes: true
fit: {loss: soft_l1}
expression: p_launch * f_sync_kernel_launch + p_madd * f_op_float32_madd
parameters:
  p_launch: {meaning: launching, unit: s per launch}
  p_madd: {meaning: a multiply-add, unit: s per sub-group operation}
measurement_kernels:
  - tags: [flops_madd_pattern, "dtype:float32", "groups_fit:True", "nelements:32768", "m:64,128"]
  - tags: [empty, "ngroups:16"]
""")
    out = tmp_path / "c.yaml"
    # How busy the test machine is, is not for tests to say.
    code, text, _ = run(capfd, "calibrate", str(model), "-o", str(out), "--accept-noise")
    assert code == 0
    assert "p_madd" in text
    assert "noise floor" in text
    assert str(out) in text.replace("\n", "")
    loaded = Calibration.load(out)
    assert loaded.params["p_madd"] > 0
    assert loaded.fit.loss == "soft_l1"
    assert "loss soft_l1" in text
    assert loaded.device["name"] == default_device.name


def test_what_the_noise_floor_is_is_said() -> None:
    older = load_calibration("matmul_sq_amd_epyc_4cores_intel_opencl")
    assert older.table is not None
    (line,) = noise_floor_lines(older)
    assert re.fullmatch(r"noise floor: \S+ % \(median spread of single timings; there are too few .*\)", line)
    table = replace(older.table, repeatability=np.full(len(older.table), 0.012))
    (line,) = noise_floor_lines(replace(older, table=table, noise_floor=0.012))
    assert line == "noise floor: 1.2 % (by how much a kernel's time differs between measurements)"
    assert noise_floor_lines(replace(older, noise_floor=None)) == []


@pytest.mark.parametrize("place", ["before", "after"])
def test_quiet_may_stand_anywhere(place: str, calibration: str, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["predict", calibration, f"{EXAMPLE}:naive", "n=496"]
    code, out, err = run(capfd, *(["--quiet", *words] if place == "before" else [*words, "-q"]))
    assert (code, err) == (0, "")
    assert len(out.splitlines()) == 1
