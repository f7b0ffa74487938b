"""What the doctor says of a device: made-up samples, and fake devices whose times behave in known ways."""

import pytest

from perflex.errors import MeasurementError
from perflex.studies.doctor import DeviceTrials, ReportedSystem, Trial, device_findings, examine, try_device, verdict
from perflex.testing import FakeDevice


@pytest.fixture(autouse=True)
def _clock(monkeypatch):
    """A clock that stands: all blocks have the time that they ask for."""
    monkeypatch.setattr("perflex.studies.doctor.perf_counter", lambda: 0.0)


def trial(name, *blocks, disturbed=0):
    """Twenty samples in each block."""
    return Trial(name, blocks, 20 * len(blocks), disturbed)


def said(found, kind="cpu"):
    return {finding.check: finding for finding in device_findings(found, kind)}


STEADY = (trial("launch", 5e-6, 5.1e-6), trial("short", 1e-3, 1.01e-3), trial("long", 5e-3, 5.02e-3))


def test_repeatability_is_the_change_from_block_to_block():
    trials = (trial("a", 1.0, 1.1), trial("b", 2.0, 1.6), trial("d", 1.0, 1.2, 1.2))
    assert [one.repeatability for one in trials] == pytest.approx([0.1, 0.25, 0.2])
    # Times of nothing, by a coarse timer, tell nothing.
    assert trial("c", 1.0).repeatability is trial("e", 0.0, 1e-6).repeatability is None


def test_a_steady_device_is_fit():
    findings = device_findings(DeviceTrials(STEADY))
    assert [finding.check for finding in findings] == ["launch cost", "repeatability", "disturbed"]
    assert {finding.state for finding in findings} == {"good"}
    launch, repeat = findings[:2]
    assert launch.found == "5.05 us (5 to 5.1 us)"
    assert repeat.found == "times repeat to 0.7 % (median of 2 kernels; worst: short 1.0 %)"


@pytest.mark.parametrize(
    ("trials", "check", "state", "words"),
    [
        ((trial("launch", 3e-4, 3e-4), *STEADY[1:]), "launch cost", "poor", "300 us"),
        ((trial("a", 1.0, 1.05), trial("b", 1.0, 0.95)), "repeatability", "poor", "repeat to 5.1 %"),
        ((trial("a", 1.0, 1.25), trial("b", 1.0, 0.8)), "repeatability", "bad", "repeat to 25 %"),
        # One kernel of many does not make times useless.
        ((*STEADY, trial("c", 1.0, 1.01), trial("b", 1.0, 1.5)), "repeatability", "poor", "worst: b 50 %"),
        ((trial("a", 1.0, 1.0, disturbed=12),), "disturbed", "poor", "30 % of the samples"),
        ((trial("a", 1.0, 1.0, disturbed=30),), "disturbed", "bad", "75 % of the samples"),
        ((trial("a", 1.0),), "repeatability", "unknown", "no kernel was timed twice"),
        ((trial("a", 0.0, 0.0),), "repeatability", "unknown", "no kernel was timed twice"),
    ],
)
def test_what_is_said_of_made_up_trials(trials, check, state, words):
    finding = said(DeviceTrials(trials))[check]
    assert finding.state == state
    assert words in finding.found
    assert finding.advice


def test_who_uses_a_gpu_is_said_by_its_driver():
    assert "nvidia-smi" in said(DeviceTrials((trial("a", 1.0, 1.3),)), "gpu")["repeatability"].advice


def test_a_device_that_runs_nothing_is_not_fit():
    findings = device_findings(DeviceTrials(failures=("empty: does not build", "copy: neither")))
    assert [finding.found for finding in findings] == ["empty: does not build (and 1 more)"]
    assert verdict(findings) == verdict(device_findings(DeviceTrials())) == "not fit"


def law(label, sizes):
    return {"launch": 6e-6, "memory": 3e-3}.get(label, 1e-3)


def test_a_quiet_fake_device_is_found_to_be_what_it_is():
    found = try_device(FakeDevice(law, noise=0.01), 1.0)
    assert found.failures == ()
    assert [one.name for one in found.trials] == ["launch", "arithmetic, short", "arithmetic, long", "memory"]
    assert found.trials[0].seconds == pytest.approx((6e-6,) * len(found.trials[0].seconds), rel=0.02)
    assert all(len(one.seconds) >= 2 and one.samples > 6 for one in found.trials)
    assert verdict(device_findings(found, "other")) == "fit to measure on"


def test_kernels_that_fail_are_said_and_not_tried_again():
    asked = []

    def partly(label, sizes):
        asked.append(label)
        if label == "memory":
            msg = f"{label}: out of resources"
            raise MeasurementError(msg)
        return law(label, sizes)

    found = try_device(FakeDevice(partly), 1.0)
    assert found.failures == ("memory: out of resources",)
    assert asked.count("memory") == 1
    assert said(found, "other")["kernels"].state == "poor"
    assert "memory" not in {one.name for one in found.trials}


def test_devices_are_tried_one_after_the_other(monkeypatch):
    monkeypatch.setattr("perflex.studies.doctor.observe_system", ReportedSystem)
    devices = [FakeDevice(law, name=name) for name in ("one", "two")]
    told = []
    report = examine(devices, 3.0, told.append)
    assert [one.device for one in report.devices] == ["one (fake platform)", "two (fake platform)"]
    assert told == ["the machine", "one (fake platform)", "two (fake platform)"]
    assert report.verdict == "fit to measure on"
    assert {finding.state for finding in report.findings} == {"unknown"}
