"""Calibrations whose times do not repeat: who says so, and what is not written."""

import re
from dataclasses import replace

import numpy as np
import pytest

from perflex import Calibration, FeatureTable, Model
from perflex.calibration.acceptance import doubts, faults, repeatability_of, require_acceptable, save_if_acceptable
from perflex.errors import CalibrationError, PerflexWarning
from support.fitted import fitted

MODEL = Model("f_cl_wall_time", "p_launch * f_sync_kernel_launch")


def calibration(**options):
    rows = np.array([[2e-6, 1.0], [2.1e-6, 1.0], [1.9e-6, 1.0]])
    table = FeatureTable("f_cl_wall_time", ("f_cl_wall_time", "f_sync_kernel_launch"), ("a", "b", "c"), rows)
    made = fitted(MODEL, table)
    return replace(made, options={**made.options, **options})


@pytest.mark.parametrize(
    "options",
    [
        {},
        *({"repeatability": value} for value in (None, float("nan"), 0.0, 0.15)),
        {"samples": 100, "disturbed_samples": 49},
        {"samples": 100, "disturbed_samples": 4, "kernels": 9, "kernels_disturbed": 4},
    ],
)
def test_what_is_below_the_limits_or_not_known_is_accepted(options, tmp_path):
    found = calibration(**options)
    assert faults(found) == []
    require_acceptable(found)
    assert save_if_acceptable(found, tmp_path / "c.yaml")


def test_the_kernels_of_the_fit_count_before_all_that_were_measured_together():
    found = calibration(repeatability=0.5)
    rows = replace(found.table, repeatability=np.array([0.02, np.nan, 0.06]))
    assert repeatability_of(replace(found, table=rows)) == pytest.approx(0.04)
    # One of three is one that was disturbed and therefore has more samples: it does not speak for all.
    for few in ([np.nan] * 3, [0.3, np.nan, np.nan]):
        table = replace(found.table, repeatability=np.array(few))
        assert repeatability_of(replace(found, table=table)) == 0.5
        assert faults(replace(found, table=table, options={})) == []


def test_times_that_do_not_repeat_are_refused_with_number_limit_and_advice(tmp_path):
    found = calibration(repeatability=0.234)
    words = r"mine.yaml is not written: .* repeat only to 23.4 %, the limit is 15 %; end .* --accept-noise"
    with pytest.raises(CalibrationError, match=words):
        require_acceptable(found, "mine.yaml")
    file = tmp_path / "c.yaml"
    with pytest.warns(PerflexWarning, match=r"c\.yaml is not written") as caught:
        assert not save_if_acceptable(found, file)
    assert "earlier run" not in str(caught[0].message)
    assert not file.exists()
    assert save_if_acceptable(found, file, accept_noise=True)
    assert Calibration.load(file).options["repeatability"] == 0.234
    # What is there is not touched, and it is said whose it is.
    before = file.read_bytes()
    with pytest.warns(PerflexWarning, match="the file that is there is of an earlier run"):
        assert not save_if_acceptable(calibration(repeatability=0.5), file)
    assert file.read_bytes() == before
    # Whoever uses the API may save what they like.
    found.save(file)


def test_many_disturbed_samples_are_a_doubt():
    found = calibration(repeatability=0.05, samples=100, disturbed_samples=40)
    assert faults(found) == []
    (doubt,) = doubts(found)
    words = r"40 of 100 samples \(40 %\) were disturbed \(.*clock\), they are not used; end .*'perflex doctor'.*"
    assert re.fullmatch(words, doubt)
    (doubt,) = doubts(calibration(samples=100, disturbed_samples=40, kernels_disturbed=1))
    assert "used for 1 of 3 kernels for lack of others;" in doubt
    assert doubts(calibration(samples=100, disturbed_samples=4)) == []
    # Of kernels that were timed together a study's model is fitted to some: their number says nothing.
    few = calibration(samples=1000, disturbed_samples=40, kernels=160, kernels_disturbed=17)
    assert doubts(few) == []
    assert doubts(calibration(samples=1000, disturbed_samples=40, kernels=60, kernels_disturbed=17))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"samples": 100, "disturbed_samples": 64, "kernels_disturbed": 1, "repeatability": 0.031},
            r"64 of 100 samples \(64 %\) were disturbed .*, used for 1 of 3 kernels for lack of .*, the limit is 50 %",
        ),
        ({"samples": 100, "disturbed_samples": 4, "kernels": 8, "kernels_disturbed": 4}, "for 4 of 8 .* is 50 %"),
    ],
)
def test_what_the_doctor_calls_not_fit_is_refused(options, words, tmp_path):
    found = calibration(**options)
    (doubt,) = doubts(found)
    assert re.search(words, doubt)
    with pytest.raises(CalibrationError, match=f"c is not written: .*{words}; end .*'perflex doctor'.* --accept-n"):
        require_acceptable(found, "c")
    with pytest.warns(PerflexWarning, match=words):
        assert not save_if_acceptable(found, tmp_path / "c.yaml")
    assert save_if_acceptable(found, tmp_path / "c.yaml", accept_noise=True)
