"""What a fit says of costs that do not overlap stays with its calibration."""

import re
from dataclasses import replace

import numpy as np
import pytest

from perflex import Calibration, FeatureTable, Model
from perflex.calibration.cross_validation import cross_validation, root_mean_square
from perflex.calibration.diagnosis.judge import diagnose
from perflex.calibration.interval import interval_at
from perflex.errors import CalibrationError, PerflexWarning
from support.fitted import fitted

OUTPUT = "f_cl_wall_time"
LOADS, ADDS = "f_mem_access_global_float32_load", "f_op_float32_add"
MODEL = Model(OUTPUT, f"overlap(p_mem * {LOADS}, p_add * {ADDS}, p_edge)")


def table(*, apart=False):
    """Return kernels whose costs are added; `apart`, with only one of both costs each."""
    random = np.random.default_rng(3)
    counts = 10 ** random.uniform(6, 9, (40, 2))
    if apart:
        counts[::2, 0] = counts[1::2, 1] = 100.0
    seconds = (counts @ [2e-11, 5e-12]) * (1 + 0.03 * random.normal(size=40))
    labels = tuple(f"kernel {i}" for i in range(40))
    return FeatureTable(
        OUTPUT, tuple(MODEL.all_features()), labels, np.column_stack([seconds, counts]), groups=("a", "b") * 20
    )


def test_no_overlap_survives_in_a_calibration_and_is_shown(tmp_path):
    with pytest.warns(PerflexWarning, match="no overlap"):
        calibration = fitted(MODEL, table())
    calibration.save(tmp_path / "added.yaml")
    loaded = Calibration.load(tmp_path / "added.yaml")
    assert loaded.fit.no_overlap == ("p_edge",)
    findings = "; ".join(finding.text for finding in diagnose(loaded).findings)
    assert "no overlap was found" in findings
    assert "held by their bounds" not in findings
    # The costs are those of a model that adds them, and known as well.
    added = fitted(Model(OUTPUT, f"p_mem * {LOADS} + p_add * {ADDS}"), table())
    for name in ("p_mem", "p_add"):
        assert loaded.fit.interval(name) == pytest.approx(added.fit.interval(name), rel=1e-6)
    assert all(np.isnan(loaded.fit.interval("p_edge")))
    sizes = {LOADS: 1e8, ADDS: 4e8}
    assert interval_at(loaded, sizes) == interval_at(calibration, sizes)
    assert interval_at(loaded, sizes).high == pytest.approx(interval_at(added, sizes).high, rel=1e-6)


def test_generators_are_left_out_of_the_sum_that_the_fit_decided_for(tmp_path):
    many = replace(table(), groups=tuple(f"generator {i // 2}" for i in range(40)))
    with pytest.warns(PerflexWarning, match="no overlap"):
        calibration = fitted(MODEL, many)
    calibration.save(tmp_path / "added.yaml")
    # By hand: least squares of relative errors without a generator's two rows.
    seconds, counts = many.values[:, 0], many.values[:, 1:]
    design = counts / seconds[:, None]
    for known in (calibration, Calibration.load(tmp_path / "added.yaml")):
        folds = cross_validation(known.fit, known.table.generators)
        for fold in folds:
            costs = np.linalg.lstsq(design[~fold.rows], np.ones(38), rcond=None)[0]
            np.testing.assert_allclose(fold.errors, design[fold.rows] @ costs - 1, atol=1e-6)
        assert root_mean_square(error for fold in folds for error in fold.errors) < 0.04


def test_a_prediction_that_rests_on_an_unidentified_edge_has_no_interval():
    with pytest.warns(PerflexWarning, match="do not determine p_edge"):
        calibration = fitted(MODEL, table(apart=True))
    assert calibration.fit.undetermined == ("p_edge",)
    one_sided, both = ({LOADS: 1e8, ADDS: adds} for adds in (100.0, 4e8))
    assert interval_at(calibration, one_sided).doubts == ()
    (doubt,) = calibration.place_of(both).doubts
    # The sum, which the kernels support as well, is the double.
    assert re.match(
        r"p_edge is not determined, and its share is larger than in any measurement kernel: up to 9\d\.?\d* %", doubt
    )
    with pytest.raises(CalibrationError, match="the prediction depends on p_edge"):
        interval_at(calibration, both)
