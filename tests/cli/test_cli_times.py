"""``perflex calibrate --times`` and what is done with its calibration, from a log to a ranking."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perflex import Calibration, save_times
from perflex.__main__ import main
from tests.support.own_model import EXAMPLE, MODEL


@pytest.fixture(autouse=True)
def _no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    def survey() -> None:
        pytest.fail("devices were looked for")

    monkeypatch.setattr("perflex.devices.listing._listed", survey)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(MODEL)
    # 32 work-items share a multiply-add: n**3 / 32 of 16 ps each, and 5 us; measured to half a percent.
    rows = [
        f"{name},{n},{(5 + n**3 / 32 * 16e-6) * (1 + off * (-1) ** (n // 128))!r},n{n}"
        for name, off in (("naive", 0.005), ("prefetching", -0.005))
        for n in (128, 256, 512)
    ]
    Path("log.csv").write_text("\n".join(["kernel,n,time_us,node", *rows]) + "\n")
    return tmp_path


def run(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(list(words))
    out, err = capfd.readouterr()
    return code, out, err


CALIBRATE = ("calibrate", "mine.yaml", "--times", "log.csv", "--kernels", str(EXAMPLE), "-o", "c.yaml")


def test_from_a_log_to_predictions(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capfd, *CALIBRATE, "--device", "node GPU", "--machine", "V100")
    assert code == 0
    assert "6 measurement kernels" in out
    assert out.endswith("c.yaml\n")
    assert "times: log.csv, node GPU, 6 rows; no device is opened" in err
    assert "warning: log.csv: no kernel has a size or argument called node" in err
    calibration = Calibration.load(folder / "c.yaml")
    assert dict(calibration.params) == pytest.approx({"p_launch": 5e-6, "p_madd": 16e-12}, rel=0.01)
    assert calibration.device == {"name": "node GPU", "kind": "gpu", "times_of": "log.csv"}
    code, out, _ = run(capfd, "predict", "c.yaml", f"{EXAMPLE}:naive", "n=384", "--confidence", "0.9", "--json")
    assert code == 0
    assert json.loads(out)[0]["predicted_s"] == pytest.approx(5e-6 + 384**3 / 32 * 16e-12, rel=0.01)
    assert run(capfd, "rank", "c.yaml", f"{EXAMPLE}:naive", f"{EXAMPLE}:prefetching", "n=384")[0] == 0
    assert run(capfd, "diagnose", "c.yaml")[0] == 0
    code, _, err = run(capfd, "predict", "c.yaml", f"{EXAMPLE}:naive", "n=384", "--time")
    assert code == 2
    assert "is based on times of node GPU in log.csv, measured elsewhere" in err


def test_a_calibrations_times_go_elsewhere(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(capfd, *CALIBRATE, "--only", "node=n128,n512")[0] == 0
    calibration = Calibration.load("c.yaml")
    assert len(calibration.fit.kernels) == 4
    assert calibration.params["p_madd"] == pytest.approx(16e-12, rel=0.01)
    assert run(capfd, "export-times", "c.yaml", "-o", "out.csv")[1] == "out.csv\n"
    assert Path("out.csv").read_text().startswith("kernel,seconds,spread,repeatability,device\n")
    save_times(calibration, "same.csv")
    assert Path("out.csv").read_bytes() == Path("same.csv").read_bytes()
    # Labels of a user's kernels hold the functions' names.
    code, _, _ = run(capfd, "calibrate", "mine.yaml", "--times", "out.csv", "--kernels", str(EXAMPLE), "-o", "d.yaml")
    assert code == 0
    assert Calibration.load("d.yaml").fit.kernels == calibration.fit.kernels


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*CALIBRATE, "--budget", "3s", "--dask", "tcp://x:1"), "--budget, --dask: about measuring"),
        (("calibrate", "mine.yaml", "-o", "c.yaml", "--only", "a=b"), "--only: only for tables; name one with --times"),
        ((*CALIBRATE, "--only", "node"), "cannot read --only 'node'"),
        ((*CALIBRATE, "--kernels", "absent.py"), "there is no file absent.py"),
        ((*CALIBRATE[:4], "-o", "c.yaml"), "log.csv, line 2: no kernel is called 'naive': no generator has the tag"),
        ((*CALIBRATE[:7], "absent/c.yaml"), "cannot write absent"),
        (("calibrate", "mine.yaml", "--times", "absent.csv", "-o", "c.yaml"), "cannot read absent.csv: No such file"),
    ],
)
def test_wrong_commands(words: tuple[str, ...], message: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capfd, *words)
    assert (code, out) == (2, "")
    assert message in err
    assert not (folder / "c.yaml").exists()


def test_what_a_file_imports_is_not_called(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    Path("k.py").write_text("from os import mkdir\n\ndef mine():\n    raise SystemExit\n")
    Path("evil.csv").write_text("kernel,path,seconds\nmkdir,made,1\n")
    code, _, err = run(capfd, "calibrate", "mine.yaml", "--times", "evil.csv", "--kernels", "k.py", "-o", "c.yaml")
    assert code == 2
    assert "no kernel is called 'mkdir': the functions are mine" in err
    assert not (folder / "made").exists()
