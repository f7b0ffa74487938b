"""``perflex diagnose``: the report, its pictures and JSON."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from perflex import Calibration, FeatureTable, Model, diagnose
from perflex.calibration.diagnosis.pictures import draw_diagnosis
from support.fitted import fitted

OUTPUT = "f_cl_wall_time_test"
FEATURES = ("f_op_float32_add", "f_op_float32_mul", "f_sync_kernel_launch")
PICTURES = ["correlation.png", "errors.png", "parameters.png"]
FILES = [*PICTURES, "report.html", "times.csv"]


@pytest.fixture
def saved(tmp_path):
    random = np.random.default_rng(3)
    counts = np.column_stack([10 ** random.uniform(3, 7, (16, 2)), np.ones(16)])
    counts[:6, 0] = 0.0
    seconds = (counts @ [1e-9, 3e-9, 1e-5]) * (1 + 0.04 * random.normal(size=16))
    owners = ("muls",) * 6 + ("both",) * 10
    labels = tuple(f"{name}(n={i})" for i, name in enumerate(owners))
    columns = np.column_stack([seconds, counts])
    table = FeatureTable(OUTPUT, (OUTPUT, *FEATURES), labels, columns, groups=owners, spread=np.full(16, 0.03))
    model = Model(OUTPUT, "p_add * f_op_float32_add + p_mul * f_op_float32_mul + p_launch")
    replace(fitted(model, table), device={"name": "some device"}).save(tmp_path / "made.yaml")
    return str(tmp_path / "made.yaml")


def test_the_report_begins_with_what_is_wrong(saved, run):
    code, out, err = run("diagnose", saved)
    assert (code, err) == (0, "")
    found = diagnose(Calibration.load(saved))
    lines = out.splitlines()
    for line, finding in zip(lines, found.findings, strict=False):
        assert line == f"{finding.severity}: {finding.text}"
    titles = ("16 kernels", "Relative errors", "What the parameters rest", "Measurement kernels", "Errors by generator")
    places = [out.index(title) for title in titles]
    assert places == sorted(places)
    # Columns are two blanks apart; unlike numbers, texts hold single ones.
    rows = [re.split(r"\s{2,}", line.strip()) for line in lines if line]
    (row,) = [row for row in rows if row[0] == "p_add"]
    assert float(row[1]) == pytest.approx(found.parameter("p_add").value, rel=1e-3)
    share = found.parameter("p_add").generators[0].share
    assert row[-1] == f"both {100 * share:.0f} %; undetermined without both"
    (row,) = [row for row in rows if row[0] == "both"]
    assert row[-1] == "the only one that determines p_add"
    worst = max(found.kernels, key=lambda kernel: abs(kernel.leave_one_out_error))
    first = next(row for row in rows if row[0].startswith(("muls(", "both(")))
    assert (first[0], first[2]) == (worst.name, f"{100 * worst.relative_error:+.1f}")


def test_json_is_the_diagnosis_and_pictures_are_drawn(saved, run, tmp_path):
    folder = tmp_path / "new" / "drawn"
    code, out, err = run("diagnose", saved, "--json", "--out", folder)
    assert code == 0
    assert json.loads(out) == json.loads(json.dumps(diagnose(Calibration.load(saved)).as_dict()))
    assert err.count(".png") == 3
    assert sorted(path.name for path in folder.iterdir()) == FILES
    assert all((folder / name).read_bytes().startswith(b"\x89PNG") for name in PICTURES)
    code, out, _ = run("-q", "diagnose", saved, "--out", folder)
    assert code == 0
    assert all(str(path) in out for path in folder.iterdir())
    assert "Parameters" not in out


def test_pictures_without_a_noise_floor(saved, tmp_path):
    paths = draw_diagnosis(diagnose(replace(Calibration.load(saved), noise_floor=None)), tmp_path)
    assert sorted(path.name for path in paths) == PICTURES
