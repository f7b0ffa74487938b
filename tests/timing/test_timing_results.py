"""The outcomes of measuring: which are times, and how all of it went."""

from __future__ import annotations

from perflex.errors import MeasurementError
from perflex.timing.results import Drift, Measured, MeasurementFailure, Timing, TimingSummary

FAST = Timing(
    "fast",
    1e-6,
    0.01,
    (1e-6, 1e-6, 9e-6),
    launches=100,
    outliers=1,
    precise=True,
    repeatability=0.01,
    disturbed_samples=1,
)
SLOW = Timing("slow", 2.0, 0.3, (2.0, 2.5), outliers=3, disturbed_samples=2, disturbed=True)
FAILED = MeasurementFailure("bad", "does not build", "prepare", MeasurementError("bad: does not build"))


def test_timings_are_the_outcomes_without_failures_in_order() -> None:
    measured = Measured([SLOW, FAILED, FAST, FAILED, SLOW])
    assert [outcome.label for outcome in measured] == ["slow", "bad", "fast", "bad", "slow"]
    assert measured.timings == [SLOW, FAST, SLOW]
    assert Measured([FAILED]).timings == Measured().timings == []
    measured[0] = FAILED
    assert measured.timings == [FAST, SLOW]


def test_the_summary_adds_up_the_kernels_that_did_not_fail() -> None:
    summary = Measured([FAST, FAILED, SLOW, FAST], samples_resumed=12).summary()
    assert summary == TimingSummary(
        outliers=5,
        kernels_precise=2,
        samples_resumed=12,
        samples=8,
        disturbed_samples=4,
        kernels=3,
        kernels_disturbed=1,
        repeatability=0.01,
    )
    assert Measured([FAILED]).summary() == Measured().summary() == TimingSummary(1.0, drift_corrected=False)


def test_few_kernels_do_not_speak_for_all_of_how_times_repeat() -> None:
    assert Measured([FAST, SLOW]).summary().repeatability == 0.01
    assert Measured([FAST, SLOW, SLOW]).summary().repeatability is None


def test_the_drift_counts_only_where_it_was_found() -> None:
    found = Drift(found=True, size=1.25, rounds=9, references=("fast",))
    assert Measured([FAST], found).summary().drift_ratio == 1.25
    assert not Measured([FAST], found).summary().drift_corrected
    assert Measured([FAST], Drift(found=True, size=1.25, corrected=True)).summary().drift_corrected
    assert Measured([FAST], Drift(size=1.25, rounds=9)).summary().drift_ratio == 1.0
