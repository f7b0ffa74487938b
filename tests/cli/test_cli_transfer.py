"""``perflex transfer``: from calibrations of other devices and a table of few times to a new calibration."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perflex import Calibration
from perflex.__main__ import main
from tests.support.own_model import EXAMPLE, MODEL

SIZES = (128, 256, 512)


def _log(path: str, launch_us: float, madd_us: float, rows: list[tuple[str, int]]) -> None:
    # The second kernel takes 20 % longer than its multiply-adds say, on every device.
    lines = [
        f"{name},{n},{(launch_us + n**3 / 32 * madd_us) * (1.2 if name == 'prefetching' else 1.0)!r}"
        for name, n in rows
    ]
    Path(path).write_text("\n".join(["kernel,n,time_us", *lines]) + "\n", encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(MODEL, encoding="utf-8")
    everything = [(name, n) for name in ("naive", "prefetching") for n in SIZES]
    for place, (launch, madd) in enumerate(((5.0, 16e-6), (6.0, 20e-6), (4.0, 13e-6))):
        _log(f"log{place}.csv", launch, madd, everything)
        words = ("calibrate", "mine.yaml", "--times", f"log{place}.csv", "--kernels", str(EXAMPLE))
        assert main([*words, "--device", f"GPU {place}", "--machine", "V100", "-o", f"{place}.yaml"]) == 0
    _log("few.csv", 5.5, 18e-6, [("naive", 128), ("naive", 512)])
    capfd.readouterr()
    return tmp_path


def run(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(list(words))
    out, err = capfd.readouterr()
    return code, out, err


TRANSFER = ("transfer", "0.yaml", "1.yaml", "2.yaml", "--machine", "A40", "--kernels", str(EXAMPLE), "-o", "new.yaml")


def test_from_few_times_to_predictions(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capfd, *TRANSFER, "--samples", "few.csv")
    assert (code, err) == (0, "")
    assert "transferred from 3 devices: GPU 0, GPU 1, GPU 2" in out
    assert "2 samples of this device; 6 kernels of 2 programs have been timed" in out
    assert out.splitlines()[-1] == "new.yaml"
    words = ("predict", "new.yaml", f"{EXAMPLE}:prefetching", "n=512", "--confidence", "0.9", "--json")
    code, out, _ = run(capfd, *words)
    (entry,) = json.loads(out)
    true = (5.5 + 512**3 / 32 * 18e-6) * 1.2e-6
    # That this kernel takes longer than its multiply-adds say, the samples do not know: other devices do.
    assert entry["predicted_s"] == pytest.approx(true, rel=0.05)
    assert entry["low_s"] < true < entry["high_s"]
    assert entry["knowledge"] == "timing on other devices"
    assert Calibration.load("new.yaml").machine == "A40"


def test_without_samples(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capfd, *TRANSFER)
    assert code == 0
    assert "no sample of this device" in err
    assert "0 samples of this device" in out


def test_suggestions(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = (*TRANSFER, "--samples", "few.csv", "--suggest", "2", "--candidates", "log0.csv")
    code, out, err = run(capfd, *words)
    assert (code, err) == (0, "")
    taken = [line.removeprefix("next sample: ") for line in out.splitlines() if line.startswith("next sample: ")]
    assert len(taken) == 2
    # Of the other program nothing is known here yet.
    assert taken[0].startswith("prefetching")


def test_refusals(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capfd, *TRANSFER, "--suggest", "2")
    assert code != 0
    assert "--suggest and --candidates go together" in err
    code, _, err = run(capfd, "transfer", "0.yaml", "--machine", "no-such-gpu", "-o", "new.yaml")
    assert code != 0
    assert "no-such-gpu" in err
    assert not Path("new.yaml").exists()


def test_ranks_as_it_predicts(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*TRANSFER, "--samples", "few.csv"]) == 0
    capfd.readouterr()
    variants = [f"{EXAMPLE}:{name}" for name in ("naive", "prefetching")]
    code, out, _ = run(capfd, "rank", "new.yaml", *variants, "n=512", "--json")
    assert code == 0
    found = json.loads(out)
    ranked = {entry["name"]: entry["predicted_s"] for entry in found}
    for variant in variants:
        code, out, _ = run(capfd, "predict", "new.yaml", variant, "n=512", "--json")
        (entry,) = json.loads(out)
        (name,) = (name for name in ranked if name.endswith(variant.rpartition(":")[2]))
        assert ranked[name] == pytest.approx(entry["predicted_s"], rel=1e-9)
        (knowledge,) = (each["knowledge"] for each in found if each["name"] == name)
        assert knowledge == entry["knowledge"] == "timing on other devices"
    code, out, _ = run(capfd, "rank", "new.yaml", *variants, "n=64", "--json")
    assert {entry["knowledge"] for entry in json.loads(out)} == {"nothing"}
