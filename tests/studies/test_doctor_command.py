"""``perflex doctor``, and how the commands that measure warn and refuse by its rule."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from perflex import Calibration, TimingOptions, calibrate, using_store
from perflex.__main__ import main
from perflex.studies.doctor import Interference, ReportedSystem
from perflex.studies.evaluation.result import DeviceEvaluation, Point, StudyResult
from perflex.studies.evaluation.studies import STUDIES
from perflex.testing import FakeDevice
from support.scripted_device import ScriptedDevice
from support.timing_samples import device_beside_others

QUIET = ReportedSystem(usable=2, idle=Interference(busy=0.0, processors=2, stolen=0.0))
BUSY = replace(QUIET, idle=replace(QUIET.idle, busy=0.9))


def cpu(law, **more):
    """Return a fake device that says it is a CPU, so that the machine's load matters for it."""
    return ScriptedDevice(law, kind="cpu", **more)


def law(label, sizes):
    return 1e-5 + 2e-11 * sizes.get("nelements", 0) * sizes.get("m", 1)


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A made-up machine: what its system reports, and its one device."""
    made = SimpleNamespace(system=QUIET, devices=[cpu(law)], asked=[])

    def devices(names):
        made.asked += names
        return made.devices

    monkeypatch.setattr("perflex.cli.devices.chosen_devices", devices)
    monkeypatch.setattr("perflex.devices.listing.find_device", lambda _: made.devices[0])
    monkeypatch.setattr("perflex.calibration.ready.chosen_device", lambda *_: made.devices[0])
    # Of the test machine itself nothing is read, and its clock stands.
    monkeypatch.setattr("perflex.studies.doctor.perf_counter", lambda: 0.0)
    monkeypatch.setattr("perflex.studies.doctor.observe_system", lambda **_: made.system)
    return made


def test_a_machine_that_is_fit(machine, capfd):
    assert main(["doctor", "--seconds", "5", "--device", "mine", "--device", "other"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert machine.asked == ["mine", "other"]
    assert lines[0] == "this machine"
    assert "fake device (fake platform): fit to measure on" in lines
    assert lines[-1] == "fit to measure on"
    checks = [line.split()[1] for line in lines if line.startswith("  ") and not line.startswith("  state ")]
    assert checks == ["processors", "other", "steal", "quota", "clock", "launch", "repeatability", "disturbed"]


def test_care_and_what_to_do(machine, capfd):
    machine.system = BUSY
    assert main(["doctor", "--seconds", "5"]) == 0
    lines = capfd.readouterr().out.splitlines()
    (place,) = [number for number, line in enumerate(lines) if "other processes use 0.9 of 2 processors" in line]
    assert lines[place].split()[0] == "poor"
    assert lines[place].endswith("  end them or wait")
    assert lines[-1] == "measure with care"


def test_a_machine_that_is_not_fit_as_json(machine, capfd):
    built = []

    def slower(label, sizes):
        """All kernels take half as long again each time they are built."""
        built.append(label)
        return law(label, sizes) * 1.5 ** built.count(label)

    machine.devices = [cpu(slower)]
    assert main(["doctor", "--seconds", "5", "--json"]) == 1
    found = json.loads(capfd.readouterr().out)
    assert found["verdict"] == "not fit"
    assert found["machine"]["system"]["idle"]["processors"] == 2
    (device,) = found["devices"]
    states = {finding["check"]: finding["state"] for finding in device["findings"]}
    assert (states["repeatability"], states["launch cost"]) == ("bad", "good")
    assert min(kernel["repeatability"] for kernel in device["kernels"]) > 0.499
    assert {kernel["disturbed_samples"] for kernel in device["kernels"]} == {0}


def test_a_short_time_is_refused(capfd):
    assert main(["doctor", "--seconds", "1"]) == 2
    assert "--seconds" in capfd.readouterr().err


CALIBRATE = ["calibrate", "madd_only"]


def test_calibrate_warns_of_a_busy_machine_before_it_measures(machine, tmp_path, capfd):
    machine.system = BUSY
    assert main([*CALIBRATE, "-o", str(tmp_path / "c.yaml")]) == 0
    device, warning, *_ = capfd.readouterr().err.splitlines()
    assert device == "device: fake device (fake platform)"
    assert warning.startswith("warning: other processes use 0.9 of 2 processors: end them or wait")
    machine.system = QUIET
    assert main([*CALIBRATE, "-o", str(tmp_path / "c.yaml")]) == 0
    assert "other processes" not in capfd.readouterr().err


def test_times_that_scatter_are_refused_from_end_to_end(machine, tmp_path, capfd):
    out = tmp_path / "c.yaml"
    # Up to thirty times the law and more: no statistic of a few such times comes again.
    machine.devices = [cpu(law, noise=10.0)]
    words = [*CALIBRATE, "-o", str(out)]
    assert main([*words, "--accept-noise"]) == 0
    known = Calibration.load(out).options
    assert known["repeatability"] > 0.15
    out.unlink()
    assert main(words) == 1
    error = capfd.readouterr().err.splitlines()[-1]
    assert f"{out} is not written: the measured times repeat only to " in error
    assert "perflex doctor" in error
    assert not out.exists()


@pytest.mark.parametrize(
    ("disturbs", "share"), [(lambda number: number % 25 < 16, 64), (lambda number: number % 25 == 7, 4)]
)
def test_calibrate_refuses_disturbed_samples_as_the_doctor_does(disturbs, share, machine, tmp_path, capfd, monkeypatch):
    exact = TimingOptions(trials=25, precision=0.0, budget_s=1e9)
    monkeypatch.setattr("perflex.calibration.ready.TimingOptions", lambda **_: exact)
    machine.devices = [replace(device_beside_others(disturbs, law=law), kind="cpu")]
    out = tmp_path / "c.yaml"
    words = [*CALIBRATE, "-o", str(out)]
    refused = share > 50
    assert main(words) == int(refused)
    assert out.exists() is not refused
    error = capfd.readouterr().err
    if refused:
        assert f"perflex: error: {out} is not written: 512 of 800 samples (64 %) were disturbed" in error
    assert main([*words, "--accept-noise"]) == 0
    options = Calibration.load(out).options
    assert options["disturbed_samples"] == pytest.approx(share / 100 * options["samples"], rel=0.1)
    # What is refused is what the doctor calls bad, on samples of the same device.
    capfd.readouterr()
    assert main(["doctor", "--seconds", "5", "--json"]) == int(refused)
    (found,) = json.loads(capfd.readouterr().out)["devices"]
    (state,) = (finding["state"] for finding in found["findings"] if finding["check"] == "disturbed")
    assert state == ("bad" if refused else "good")


@pytest.fixture
def evaluation():
    """A study's result whose calibration rests on noise; one model, one point of each variant."""
    from perflex.models import load_model, measurement_kernels

    description = load_model("madd_only")
    with using_store("off"):
        made = calibrate(description.model(), measurement_kernels(description, 1.0)[:4], device=FakeDevice(law))
    noisy = replace(made, table=replace(made.table, repeatability=np.full(len(made.table), 0.3)))
    study = replace(STUDIES["matmul"], name="demo", models={"matmul_sq": "matmul_sq"})
    points = tuple(Point(variant, 96, 1e-3, 0.0, {"matmul_sq": 1e-3}) for variant in study.variants)
    choice = SimpleNamespace(name="matmul_sq", candidates=(), reason="there is no other")
    result = StudyResult(study, choice, "matmul_sq", {"matmul_sq": noisy}, points)
    return DeviceEvaluation("fake", (result,), (), None)


@pytest.mark.parametrize("words", [["demo"], ["evaluate", "matmul"]])
def test_demo_and_evaluate_warn_and_pass_on_what_is_accepted(words, machine, evaluation, tmp_path, capfd, monkeypatch):
    machine.system = BUSY
    monkeypatch.setattr("perflex.studies.demo.run_demo", lambda *_, **__: evaluation)
    monkeypatch.setattr("perflex.studies.evaluation.run.evaluate_device", lambda *_, **__: evaluation)
    assert main([*words, "--out", str(tmp_path)]) == 0
    shown, remarks = capfd.readouterr()
    assert "96" in shown or "demo" in shown
    assert "warning: other processes use 0.9 of 2 processors" in remarks
    assert re.search(r"calibration.*\.yaml is not written: .* 30\.0 %", " ".join(remarks.split()))
    assert list(tmp_path.glob("*.csv"))
    assert not list(tmp_path.glob("*.yaml"))
    assert main([*words, "--out", str(tmp_path), "--accept-noise"]) == 0
    assert "not written" not in capfd.readouterr().err
    assert len(list(tmp_path.glob("*.yaml"))) == 1
