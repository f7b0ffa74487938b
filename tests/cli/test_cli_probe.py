"""``perflex predict`` and ``rank`` with ``--probe``: what they say of timings, and of kernels that fail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import perflex.calibration.device_match
from perflex.__main__ import main
from perflex.errors import MeasurementError
from perflex.testing import FakeDevice
from support.saved_calibrations import saved_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

EXAMPLE = Path(__file__).parents[2] / "examples" / "matmul.py"
KERNEL = f"{EXAMPLE}:naive"


class Counted(FakeDevice):
    """Counts how often it is opened."""

    opened = 0

    def backend(self) -> Any:
        type(self).opened += 1
        return super().backend()


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Callable[[FakeDevice], None]:
    """Make a device that of all calibrations."""

    def place(device: FakeDevice) -> None:
        monkeypatch.setattr(perflex.calibration.device_match, "device_of_calibration", lambda *_: device)

    return place


@pytest.fixture
def calibration(tmp_path: Path) -> str:
    path = tmp_path / "matmul.yaml"
    path.write_text(saved_text("matmul_sq_amd_epyc_4cores_intel_opencl"), encoding="utf-8")
    return str(path)


def test_what_a_probe_told_and_cost_is_said(
    calibration: str, capfd: pytest.CaptureFixture[str], on: Callable[[FakeDevice], None]
) -> None:
    on(Counted(lambda _label, _sizes: 5e-4))
    Counted.opened = 0
    words = ["predict", calibration, KERNEL, "n=512,1024", "--probe", "--confidence", "0.9"]
    assert main(words) == 0
    out, err = capfd.readouterr()
    assert err == ""
    assert Counted.opened == 1
    lines = out.splitlines()
    assert [line.partition(":")[0] for line in lines[::2]] == ["n=512", "n=1024"]
    for line in lines[1::2]:
        assert line.startswith("  by a timing that took ")
        assert line.endswith(" ms on the device")
    assert main([*words, "--json"]) == 0
    first, second = json.loads(capfd.readouterr().out)
    assert (first["sizes"], second["sizes"]) == ({"n": 512}, {"n": 1024})
    assert first["knowledge"] == "timing"
    assert first["device_s"] > 0
    assert second["low_s"] < second["predicted_s"] < second["high_s"]
    assert main(["predict", calibration, KERNEL, "n=512", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)[0]["knowledge"] == "nothing"


def test_a_machine_is_not_for_probes(calibration: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", calibration, KERNEL, "n=512", "--probe", "--machine", "EPYC-7452"]) == 2
    assert "--probe times the kernel and evaluates no model" in capfd.readouterr().err


def test_a_variant_that_fails_is_last_with_the_reason(
    calibration: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], on: Callable[[FakeDevice], None]
) -> None:
    # The device knows kernels by their names.
    text = EXAMPLE.read_text(encoding="utf-8").replace(
        "kernel = lp.split_iname(naive()", "kernel = lp.split_iname(broken()"
    )
    broken = text[text.index("def naive") : text.index("def prefetching")]
    broken = broken.replace("def naive", "def broken").replace("lang_version", 'name="broken", lang_version')
    file = tmp_path / "variants.py"
    file.write_text(f"{text}\n\n{broken}", encoding="utf-8")

    def failing(name: str, _sizes: Mapping[str, int]) -> float:
        if "prefetching" in name:
            msg = f"{name} does not run"
            raise MeasurementError(msg)
        return 5e-4

    on(FakeDevice(failing))
    words = ["rank", calibration, f"{file}:prefetching", f"{file}:naive", "n=512", "--probe"]
    assert main(words) == 0
    out, err = capfd.readouterr()
    first, last = out.splitlines()
    assert first.startswith(f"1. {file}:naive: ")
    assert first.endswith("(1.00 x), by a timing")
    assert last.startswith(f"2. {file}:prefetching: not known: ")
    assert last.endswith("does not run")
    assert "inf" not in out
    assert "the variant is not timed" in err
    assert main([*words, "--json"]) == 0
    best, worst = json.loads(capfd.readouterr().out)
    assert (best["knowledge"], worst["predicted_s"]) == ("timing", None)
    assert worst["failure"].endswith("does not run")
    assert "failure" not in best
