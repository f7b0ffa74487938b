"""``perflex diagnose`` and ``perflex predict --confidence``."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from perflex import Calibration, FeatureTable, Model, diagnose, fit_model, load_calibration
from perflex.__main__ import main
from perflex.calibration.calibrating import calibration_from_table
from perflex.calibration.diagnosis.pictures import draw_diagnosis

EXAMPLE = Path(__file__).parents[2] / "examples" / "matmul.py"
OUTPUT = "f_cl_wall_time_test"
FEATURES = ("f_op_float32_add", "f_op_float32_mul", "f_sync_kernel_launch")
PICTURES = ["correlation.png", "errors.png", "parameters.png"]


def made(expression: str = "p_add * f_op_float32_add + p_mul * f_op_float32_mul + p_launch") -> Calibration:
    random = np.random.default_rng(3)
    counts = np.column_stack([10 ** random.uniform(3, 7, (16, 2)), np.ones(16)])
    counts[:6, 0] = 0.0
    seconds = (counts @ [1e-9, 3e-9, 1e-5]) * (1 + 0.04 * random.normal(size=16))
    owners = ("muls",) * 6 + ("both",) * 10
    labels = tuple(f"{name}(n={i})" for i, name in enumerate(owners))
    columns = np.column_stack([seconds, counts])
    table = FeatureTable(OUTPUT, (OUTPUT, *FEATURES), labels, columns, groups=owners, spread=np.full(16, 0.03))
    model = Model(OUTPUT, expression)
    return replace(
        calibration_from_table(model, table, fit_model(model, table)),
        device={"name": "some device"},
        date="2025-06-01T12:00:00Z",
    )


@pytest.fixture
def saved(tmp_path: Path) -> str:
    path = tmp_path / "made.yaml"
    made().save(path)
    return str(path)


def run(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(list(words))
    out, err = capfd.readouterr()
    return code, out, err


def test_the_report_begins_with_what_is_wrong(saved: str, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capfd, "diagnose", saved)
    assert (code, err) == (0, "")
    found = diagnose(Calibration.load(saved))
    lines = out.splitlines()
    for line, finding in zip(lines, found.findings, strict=False):
        assert line == f"{finding.severity}: {finding.text}"
    places = [out.index(title) for title in ("16 kernels", "Parameters", "Worst 10 of 16 kernels", "Cross-validation")]
    assert places == sorted(places)
    # Columns are two blanks apart; unlike numbers, texts hold single ones.
    rows = [re.split(r"\s{2,}", line.strip()) for line in lines if line]
    (row,) = [row for row in rows if row[0] == "p_add"]
    assert row[1] == f"{found.parameter('p_add').value:.4g}"
    share = found.parameter("p_add").generators[0].share
    assert row[-1] == f"both {100 * share:.0f} %; undetermined without both"
    (row,) = [row for row in rows if row[0] == "both"]
    assert row[-1] == "the only one that determines p_add"
    worst = max(found.kernels, key=lambda kernel: abs(kernel.relative_error))
    first = next(row for row in rows if row[-1].startswith(("muls(", "both(")))
    assert first[-1] == worst.name
    assert first[0] == f"{100 * worst.relative_error:+.1f} %"


def test_json_is_the_diagnosis_and_nothing_else(saved: str, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, err = run(capfd, "diagnose", saved, "--json", "--out", str(tmp_path / "drawn"))
    assert code == 0
    assert json.loads(out) == json.loads(json.dumps(diagnose(Calibration.load(saved)).as_dict()))
    assert err.count(".png") == 3


def test_pictures_are_drawn(saved: str, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = run(capfd, "-q", "diagnose", saved, "--out", str(tmp_path / "new" / "drawn"))
    assert code == 0
    drawn = sorted((tmp_path / "new" / "drawn").iterdir())
    assert [path.name for path in drawn] == PICTURES
    assert all(str(path) in out for path in drawn)
    assert "Parameters" not in out
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn)


def test_pictures_without_a_noise_floor(tmp_path: Path) -> None:
    whole = made()
    paths = draw_diagnosis(diagnose(replace(whole, noise_floor=None)), tmp_path)
    assert sorted(path.name for path in paths) == PICTURES


def test_models_of_the_same_measurements(saved: str, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    made("p_mul * f_op_float32_mul + p_launch").save(other)
    code, out, _ = run(capfd, "diagnose", saved, "--against", str(other))
    assert code == 0
    lines = [line for line in out.splitlines() if line.startswith("AICc above the best")]
    assert lines[0] == f"AICc above the best: 0.0  {saved}"
    assert lines[1].endswith(str(other))
    assert float(lines[1].split()[4]) > 10
    code, out, _ = run(capfd, "diagnose", saved, "--against", str(other), "--json")
    assert json.loads(out)["aicc_differences"][saved] == 0.0


def test_bad_input(saved: str, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, err = run(capfd, "diagnose", str(tmp_path / "none.yaml"))
    assert (code, out) == (2, "")
    assert "none.yaml" in err
    code, _, err = run(capfd, "diagnose", saved, "--out", saved)
    assert code == 2
    assert "cannot write to" in err


def test_predict_shows_where_measurements_would_lie(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "matmul.yaml"
    calibration = load_calibration("matmul_sq_amd_epyc_4cores_intel_opencl")
    calibration.save(path)
    words = ("predict", str(path), f"{EXAMPLE}:naive", "n=496", "--confidence", "0.9")
    code, out, _ = run(capfd, *words)
    assert code == 0
    assert re.search(r"n=496: \S+ \S+ \(\S+ \S+ to \S+ \S+\)\n", out)
    code, out, _ = run(capfd, *words, "--json")
    (entry,) = json.loads(out)
    import runpy

    kernel = runpy.run_path(str(EXAMPLE))["naive"]()
    interval = calibration.predict_interval(kernel, {"n": 496}, confidence=0.9)
    assert (entry["low_s"], entry["high_s"]) == (interval.low, interval.high)
    assert entry["low_s"] < entry["predicted_s"] < entry["high_s"]
