"""``predict``, ``rank``, ``prune`` and ``tune``: files of a source with tunables, and GPUs without a calibration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from perflex import source_kernel
from perflex.__main__ import main
from perflex.features import extract_scop, scop_to_yaml
from support.saved_calibrations import saved_text

if TYPE_CHECKING:
    from perflex import Device

EXAMPLES = Path(__file__).parents[2] / "examples"
SPACE = """schema: perflex-source/1
source: {source}
kernel: tiled
local: [TILE, TILE]
global: [n, n]
tunables: {{TILE: [4, 8, 16]}}
sizes: {{n: 256}}
"""


@pytest.fixture
def space(tmp_path: Path) -> str:
    path = tmp_path / "matmul.yaml"
    path.write_text(SPACE.format(source=EXAMPLES / "matmul.cl"), encoding="utf-8")
    return str(path)


def run(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(list(words))
    out, err = capfd.readouterr()
    return code, out, err


def test_a_gpu_needs_no_calibration(capfd: pytest.CaptureFixture[str]) -> None:
    kernel = (f"{EXAMPLES / 'matmul.cl'}:naive", "--local", "16,16", "--global", "n,n", "n=1024")
    code, out, err = run(capfd, "predict", "--machine", "A100-40GB", *kernel, "--confidence", "0.95")
    assert (code, err) == (0, "")
    assert "no sample of this device" in out
    times = []
    for machine in ("T4", "H100-SXM"):
        _, out, _ = run(capfd, "predict", "--machine", machine, *kernel, "--json")
        times.append(json.loads(out)[0]["predicted_s"])
    # Peaks differ by about eight times.
    assert 3 < times[0] / times[1] < 30


def test_spaces_of_sources(space: str, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capfd, "rank", "--machine", "V100", space)
    assert (code, out.count("TILE=")) == (0, 3)
    code, out, _ = run(capfd, "prune", "--machine", "V100", space, "--keep", "2", "--json", "n=512")
    assert (code, len(json.loads(out)["kept"])) == (0, 2)


def test_spaces_where_one_kernel_is_wanted(space: str, capfd: pytest.CaptureFixture[str]) -> None:
    for command in ("predict", "volumes", "features"):
        words = ("--machine", "V100") if command != "features" else ()
        code, out, err = run(capfd, command, space, *words)
        assert (code, out) == (2, "")
        assert "matmul.yaml is a space of variants, and not one kernel; 'perflex rank' and 'perflex prune'" in err
        code, _, err = run(capfd, command, f"{EXAMPLES / 'matmul_space.py'}:space", *words, "n=512")
        assert code == 2
        assert "matmul_space.py:space is a space of variants, and not one kernel; 'perflex prune' predicts" in err
        code, _, err = run(capfd, command, f"{space}:tiled", *words)
        assert code == 2
        assert "stands for all that it describes; name it without ':tiled'" in err


def test_tune(space: str, default_device: Device, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    calibration = tmp_path / "calibration.yaml"
    calibration.write_text(saved_text("matmul_sq_amd_epyc_4cores_intel_opencl"), encoding="utf-8")
    words = ("tune", str(calibration), space, "n=64", "-D", str(default_device), "--budget", "3")
    code, out, _ = run(capfd, *words, "--json")
    assert code == 0
    found = json.loads(out)
    assert {step["variant"] for step in found["history"]} == {"TILE=4", "TILE=8", "TILE=16"}
    assert found["best"]["measured_s"] > 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("predict", "matmul.cl:naive", "n=4"), "matmul.cl:naive is no calibration; name a calibration's file"),
        (("prune", "tuner.py"), "tuner.py is no calibration"),
        (("prune", "--machine", "EPYC-7452", "tuner.py"), "EPYC-7452 is no GPU"),
        (("prune", "--machine", "A100-40GB", "nothing.py"), "there is no file nothing.py"),
    ],
)
def test_what_is_missing(words: tuple[str, ...], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capfd, *words)
    assert code != 0
    assert message in err


def test_a_description_that_begins_with_a_comment_is_no_calibration(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    scop = extract_scop(source_kernel(EXAMPLES / "matmul.cl", "naive", local=[16, 16], global_size=["n", "n"]))
    path = tmp_path / "naive.yaml"
    path.write_text(f"# naive.yaml\n{scop_to_yaml(scop)}", encoding="utf-8")
    code, out, err = run(capfd, "predict", "--machine", "V100", str(path), "n=256")
    assert (code, err) == (0, "")
    assert out.startswith("n=256: ")
