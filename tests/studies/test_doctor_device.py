"""What the doctor says of a device: made-up samples, and fake devices whose times behave in known ways."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from perflex.errors import MeasurementError
from perflex.studies.doctor.device import (
    DeviceTrials,
    Trial,
    common_change,
    disturbed_share,
    repeatability,
    throttled_share,
    try_device,
    two_heaps,
)
from perflex.studies.doctor.device_verdict import device_findings
from perflex.studies.doctor.examine import examine
from perflex.studies.doctor.finding import verdict
from perflex.testing import FakeDevice
from support.timing_samples import Sample, SystemActivity

if TYPE_CHECKING:
    from pathlib import Path

RANDOM = np.random.default_rng(5)


def sample(seconds: float, waited: float | None = 0.0, throttled: bool | None = None, launches: int = 1) -> Sample:
    # How much time passed is known on any system.
    activity = SystemActivity(elapsed_s=launches * seconds, waited_s=waited, throttled=throttled)
    return Sample(seconds, launches, 0.0, "s", 0, activity)


def trial(name: str, *blocks: float, **activity: object) -> Trial:
    """Twenty equal samples in each block."""
    return Trial(name, blocks, tuple(tuple(sample(seconds, **activity) for _ in range(20)) for seconds in blocks))


def said(found: DeviceTrials, kind: str = "cpu") -> dict[str, object]:
    return {finding.check: finding for finding in device_findings(found, kind)}


STEADY = (trial("launch", 5e-6, 5.1e-6), trial("short", 1e-3, 1.01e-3), trial("long", 5e-3, 5.02e-3))


@pytest.mark.parametrize("share", [0.15, 0.5, 0.85])
@pytest.mark.parametrize("ratio", [1.7, 2.0, 4.0])
def test_two_heaps_are_found_with_their_share_and_distance(share: float, ratio: float) -> None:
    slow = RANDOM.permutation(np.arange(100) < 100 * share)
    found = two_heaps(1e-3 * np.where(slow, ratio, 1.0) * (1 + 0.02 * RANDOM.random(100)))
    assert found is not None
    assert found.share == pytest.approx(share)
    assert found.ratio == pytest.approx(ratio, rel=0.03)


@pytest.mark.parametrize(
    "values",
    [
        np.full(40, 1e-3),
        1 + 0.05 * RANDOM.random(40),
        # Strays are no heap, and neither are times that are spread evenly.
        np.r_[np.ones(38), 2.0, 2.1],
        np.linspace(1, 3, 40),
        np.array([1.0, 2.0, 1.0, 2.0]),
    ],
)
def test_one_heap_is_not_two(values: np.ndarray) -> None:
    assert two_heaps(values) is None


def test_repeatability_is_the_change_from_block_to_block() -> None:
    found = repeatability([trial("a", 1.0, 1.1), trial("b", 2.0, 1.6), trial("c", 1.0), trial("d", 1.0, 1.2, 1.2)])
    assert found == pytest.approx({"a": 0.1, "b": 0.25, "d": 0.2})
    assert common_change([trial("a", 1.0, 1.1), trial("b", 2.0, 1.6), trial("d", 1.0, 1.5, 1.2)]) == pytest.approx(1.1)


def test_disturbed_and_throttled_samples_are_counted_where_they_are_known() -> None:
    half = Trial("a", (1e-3,), ((sample(1e-3, 3e-4), sample(1e-3, 1e-6), sample(1e-3, None, True), sample(1e-3)),))
    assert disturbed_share([half]) == pytest.approx(1 / 3)
    # Ten launches may wait ten times as long as one.
    assert disturbed_share([trial("a", 1e-4, waited=1.5e-4, launches=10)]) == 0.0
    assert disturbed_share([trial("a", 1e-4, waited=1.5e-4, launches=1)]) == 1.0
    assert throttled_share([half]) == 1.0
    nothing = Trial("a", (1e-3,), ((Sample(1e-3, 1, 0.0, "s", 0),),))
    assert disturbed_share([nothing]) is None
    assert throttled_share([nothing]) is None


def test_a_steady_device_is_fit() -> None:
    findings = device_findings(DeviceTrials(STEADY))
    assert [finding.check for finding in findings] == [
        "launch cost", "repeatability", "two heaps", "drift", "disturbed",
    ]  # fmt: skip
    assert {finding.state for finding in findings} == {"good"}
    launch, repeat = findings[:2]
    assert launch.found == "5.05 us (5 us to 5.1 us)"
    assert repeat.found == "times repeat to 0.7 % (median of 2 kernels; worst: short 1.0 %)"


@pytest.mark.parametrize(
    ("trials", "drift", "check", "state", "words"),
    [
        ((trial("launch", 3e-4, 3e-4), *STEADY[1:]), 1.0, "launch cost", "poor", "300 us"),
        ((trial("a", 1.0, 1.05), trial("b", 1.0, 0.95)), 1.0, "repeatability", "poor", "repeat to 5.1 %"),
        ((trial("a", 1.0, 1.25), trial("b", 1.0, 0.8)), 1.0, "repeatability", "bad", "repeat to 25 %"),
        # One kernel of many does not make times useless.
        ((*STEADY, trial("c", 1.0, 1.01), trial("b", 1.0, 1.5)), 1.0, "repeatability", "poor", "worst: b 50 %"),
        (STEADY, 1.08, "drift", "poor", "reference kernels varied by 8.0 %"),
        ((trial("a", 1.0, 1.3), trial("b", 1.0, 1.3)), 1.0, "drift", "bad", "all kernels became 30 % slower"),
        ((trial("a", 1.0, 1.0, waited=0.9),), 1.0, "disturbed", "bad", "100 % of the samples"),
        ((trial("a", 1.0, 1.0, waited=None),), 1.0, "disturbed", "unknown", "does not report"),
        ((trial("a", 1.0),), 1.0, "repeatability", "unknown", "no kernel was timed twice"),
    ],
)
def test_what_is_said_of_made_up_trials(
    trials: tuple[Trial, ...], drift: float, check: str, state: str, words: str
) -> None:
    finding = said(DeviceTrials(trials, drift=drift))[check]
    assert finding.state == state
    assert words in finding.found
    assert finding.advice or state == "unknown"


def test_times_of_nothing_by_a_coarse_timer_tell_nothing() -> None:
    none, some = trial("a", 0.0, 0.0), trial("b", 1e-3, 1e-3)
    assert two_heaps(np.repeat([0.0, 1e-3], 10)) is None
    assert repeatability([none, some, trial("c", 0.0, 1e-6)]) == {"b": 0.0}
    assert common_change([none, some]) == common_change([none]) == 1.0
    assert said(DeviceTrials((none,)))["repeatability"].state == "unknown"


def test_two_heaps_are_said() -> None:
    values = [1e-3, 2e-3] * 10
    heaps = Trial("short", (1e-3, 1e-3), (tuple(map(sample, values)),) * 2)
    finding = said(DeviceTrials((heaps,)))["two heaps"]
    assert finding.state == "poor"
    assert finding.found == "50 % of the times are 2.0 times as long as the others (short; 1 of 1 kernels)"


def test_a_gpu_is_asked_for_its_clock_and_not_for_threads() -> None:
    for throttled, state in ((None, "unknown"), (False, "good"), (True, "poor")):
        found = said(DeviceTrials((trial("a", 1.0, 1.3, throttled=throttled, waited=1.0),)), "gpu")
        assert "disturbed" not in found
        assert found["clock"].state == state
    assert "nvidia-smi" in found["repeatability"].advice


def test_a_device_that_runs_nothing_is_not_fit() -> None:
    findings = device_findings(DeviceTrials(failures=("empty: does not build", "copy: neither")))
    assert [finding.found for finding in findings] == ["empty: does not build (and 1 more)"]
    assert verdict(findings) == verdict(device_findings(DeviceTrials())) == "not fit"


def law(label: str, sizes: dict[str, int]) -> float:
    return {"launch": 6e-6, "memory": 3e-3}.get(label, 1e-3)


def test_a_quiet_fake_device_is_found_to_be_what_it_is(tmp_path: Path) -> None:
    found = try_device(FakeDevice(law, noise=0.01), 1.0, tmp_path)
    assert found.failures == ()
    assert [one.name for one in found.trials] == ["launch", "arithmetic, short", "arithmetic, long", "memory"]
    assert found.trials[0].seconds == pytest.approx((6e-6,) * len(found.trials[0].seconds), rel=0.02)
    assert all(len(one.seconds) >= 2 and len(one.samples[0]) > 3 for one in found.trials)
    assert verdict(device_findings(found, "other")) == "fit to measure on"


def test_a_device_that_is_slower_every_time_it_is_opened_is_not_fit(tmp_path: Path) -> None:
    built: list[str] = []

    def slower(label: str, sizes: dict[str, int]) -> float:
        built.append(label)
        return law(label, sizes) * 1.5 ** built.count(label)

    found = try_device(FakeDevice(slower), 1.0, tmp_path)
    assert min(repeatability(found.trials).values()) > 0.499
    states = {finding.check: finding.state for finding in device_findings(found, "other")}
    assert (states["repeatability"], states["drift"]) == ("bad", "bad")


def test_kernels_that_fail_are_said_and_not_tried_again(tmp_path: Path) -> None:
    asked: list[str] = []

    def partly(label: str, sizes: dict[str, int]) -> float:
        asked.append(label)
        if label == "memory":
            msg = f"{label}: out of resources"
            raise MeasurementError(msg)
        return law(label, sizes)

    found = try_device(FakeDevice(partly), 1.0, tmp_path)
    assert found.failures == ("memory: out of resources",)
    assert asked.count("memory") == 1
    assert said(found, "other")["kernels"].state == "poor"
    assert "memory" not in {one.name for one in found.trials}


def test_devices_share_the_time_and_those_without_are_named(tmp_path: Path) -> None:
    devices = [FakeDevice(law, name=name) for name in ("one", "two")]
    told: list[str] = []
    report = examine(devices, 3.0, root=tmp_path, progress=told.append)
    assert [one.device for one in report.devices] == ["one (fake platform)"]
    assert report.left_out == ("two (fake platform)",)
    assert told == ["the machine", "one (fake platform)"]
    assert report.verdict == "fit to measure on"
    # The system's own word on which processors may be used is the only one that is not in a file.
    assert {finding.state for finding in report.findings if finding.check != "processors"} == {"unknown"}
