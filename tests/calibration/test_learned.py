"""Learned residuals: used where a smooth one is left, refused for noise, kept in the file, and honest intervals."""

from __future__ import annotations

import sys
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING

import loopy as lp
import numpy as np
import pytest

from perflex import Calibration, FeatureTable, Model, Promise, calibrate, prune, rank
from perflex.calibration.calibrating import calibration_from_table
from perflex.calibration.interval import interval_at
from perflex.calibration.learned import LeftOutAccuracy, require_learners
from perflex.errors import CalibrationError, FileFormatError, MissingExtraError, PerflexWarning

if TYPE_CHECKING:
    from pathlib import Path

OUTPUT = "f_cl_wall_time_test"
FEATURES = ("f_op_float32_add", "f_op_float32_mul")
MODEL = Model(OUTPUT, "p_a * f_op_float32_add + p_b * f_op_float32_mul")
TRUTH = np.array([1e-9, 3e-10])
GENERATORS, EACH = 22, 3


def counts_of(random: np.random.Generator, rows: int) -> np.ndarray:
    share = random.uniform(0.02, 0.98, rows)
    seconds = 10 ** random.uniform(-5, -2, rows)
    return np.column_stack([share, 1 - share]) * seconds[:, np.newaxis] / TRUTH


def left_over(counts: np.ndarray) -> np.ndarray:
    """Return a residual that no costs make up for: a smooth function of a term's share."""
    parts = counts * TRUTH
    return 0.6 * np.cos(4 * np.pi * parts[:, 0] / parts.sum(axis=1))


def table_of(seed: int, *, smooth: bool) -> FeatureTable:
    random = np.random.default_rng(seed)
    counts = counts_of(random, GENERATORS * EACH)
    shared = np.repeat(0.15 * random.normal(size=GENERATORS), EACH)
    logs = shared + 0.05 * random.normal(size=len(counts)) + (left_over(counts) if smooth else 0.0)
    owners = tuple(f"make{i // EACH}" for i in range(len(counts)))
    labels = tuple(f"{owner}(n={i})" for i, owner in enumerate(owners))
    values = np.column_stack([(counts @ TRUTH) * np.exp(logs), counts])
    return FeatureTable(OUTPUT, (OUTPUT, *FEATURES), labels, values, groups=owners)


def plain(seed: int, *, smooth: bool) -> Calibration:
    return calibration_from_table(MODEL, table_of(seed, smooth=smooth))


def work(expression: str) -> lp.TranslationUnit:
    kernel = lp.make_kernel("{[i]: 0<=i<n}", f"y[i] = {expression}", lang_version=(2018, 2))
    kernel = lp.assume(lp.add_dtypes(kernel, {"x": np.float32, "y": np.float32}), "n mod 64 = 0 and n >= 64")
    return lp.split_iname(kernel, "i", 64, outer_tag="g.0", inner_tag="l.0")


@pytest.fixture(scope="module")
def smooth() -> Calibration:
    return plain(0, smooth=True).with_learning()


def values(counts: np.ndarray) -> dict[str, np.ndarray]:
    return dict(zip(FEATURES, counts.T, strict=True))


@pytest.mark.slow  # the fixture learns
def test_a_smooth_function_of_a_share_is_learned_and_used(smooth: Calibration) -> None:
    learned = smooth.learned
    assert learned is not None
    assert learned.helps
    assert learned.learned.factor < 0.5 + 0.5 * learned.without.factor
    new = counts_of(np.random.default_rng(99), 300)
    truth = np.log(new @ TRUTH) + left_over(new)
    before = np.abs(np.log(smooth.model.evaluate(smooth.fit, values(new))) - truth)
    after = np.abs(np.log(smooth.evaluate(values(new))) - truth)
    assert after.mean() < 0.6 * before.mean()
    assert "learning helped and is used" in repr(smooth)


@pytest.mark.slow  # the fixture learns
def test_intervals_are_narrower_and_hold(smooth: Calibration) -> None:
    random = np.random.default_rng(7)
    new = counts_of(random, 400)
    seconds = (new @ TRUTH) * np.exp(left_over(new) + np.hypot(0.15, 0.05) * random.normal(size=len(new)))
    found, without = interval_at(smooth, values(new)), interval_at(replace(smooth, learned=None), values(new))
    np.testing.assert_allclose(found.predicted, smooth.evaluate(values(new)))
    assert np.mean((found.low <= seconds) & (seconds <= found.high)) == pytest.approx(0.95, abs=0.04)
    assert np.median(found.high / found.low) < np.median(without.high / without.low)
    one = interval_at(smooth, {name: float(column[0]) for name, column in values(new).items()})
    assert one.low == pytest.approx(found.low[0])
    assert one.predicted == pytest.approx(found.predicted[0])


@pytest.mark.slow  # the fixture learns
def test_predictions_and_order_use_it(smooth: Calibration) -> None:
    variants = {name: work(text) for name, text in {"sums": "x[i] + x[i]", "both": "(x[i] + 2) * x[i]"}.items()}
    at = {"n": 4096}
    factors = []
    for place in rank(variants, smooth, at):
        unit = variants[place.name]
        features = smooth.feature_values(unit, at)
        factors.append(smooth.correction(features))
        expected = smooth.model.evaluate(smooth.fit, features) * factors[-1]
        assert place.predicted == pytest.approx(expected)
        assert sum(place.terms.values()) == pytest.approx(expected)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PerflexWarning)  # of what the tiny model leaves out
            assert smooth.predict(unit, at) == pytest.approx(expected)
            assert smooth.predict_interval(unit, at).predicted == pytest.approx(expected)
    assert factors[0] != pytest.approx(1.0, abs=0.02)
    assert factors[0] != pytest.approx(factors[1], abs=0.02)
    with pytest.raises(CalibrationError, match="learning corrects"):
        prune(variants, smooth, at, keep=Promise(0.05))


@pytest.mark.slow
def test_refused_learning_changes_nothing() -> None:
    calibration = plain(0, smooth=False)
    learned = calibration.with_learning()
    assert learned.learned is not None
    assert not learned.learned.helps
    assert str(learned.learned).startswith("learning did not help and is not used; left-out generators: factor")
    new = values(counts_of(np.random.default_rng(3), 5))
    np.testing.assert_array_equal(learned.evaluate(new), calibration.model.evaluate(calibration.fit, new))
    assert learned.known_left_out == calibration.left_out


@pytest.mark.slow
def test_noise_is_refused() -> None:
    refused = []
    for seed in range(20):
        learned = plain(100 + seed, smooth=False).with_learning().learned
        assert learned is not None
        refused.append(not learned.helps)
    assert sum(refused) >= 19


@pytest.mark.slow  # the fixture learns
def test_the_file_keeps_it(smooth: Calibration, tmp_path: Path) -> None:
    path = tmp_path / "learned.yaml"
    smooth.save(path)
    loaded = Calibration.load(path)
    assert loaded.learned == smooth.learned
    assert loaded.versions["scikit-learn"]
    new = values(counts_of(np.random.default_rng(5), 50))
    np.testing.assert_allclose(loaded.evaluate(new), smooth.evaluate(new), rtol=1e-12)
    assert interval_at(loaded, new).high == pytest.approx(interval_at(smooth, new).high, rel=1e-12)
    text = path.read_text()
    for right, wrong in (("learner: gaussian_process", "learner: os.system"), ("shrinkage: ", "shrinkage: -")):
        assert right in text
        path.write_text(text.replace(right, wrong))
        with pytest.raises(FileFormatError, match=right.partition(":")[0]):
            Calibration.load(path)


@pytest.mark.slow  # the fixture learns
def test_without_scikit_learn(smooth: Calibration, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'perflex\[learn\]'"):
        require_learners()
    with pytest.raises(MissingExtraError, match="scikit-learn"):
        calibrate(MODEL, [], learn=True)
    again = replace(smooth)
    with pytest.raises(MissingExtraError, match="scikit-learn"):
        again.evaluate({"f_op_float32_add": 1e6, "f_op_float32_mul": 1e6})


def test_few_generators_learn_nothing() -> None:
    table = table_of(0, smooth=True)
    calibration = calibration_from_table(MODEL, table.take(list(range(19 * EACH))))
    with pytest.warns(PerflexWarning, match="residuals were not learned"):
        assert calibration.with_learning().learned is None


def test_accuracy_counts_generators_alike() -> None:
    errors, owners = np.log([1.1, 1.1, 1.1, 2.0]), np.array(["a", "a", "a", "b"])
    found = LeftOutAccuracy.of(errors, owners)
    assert found.factor == pytest.approx(np.sqrt(1.1 * 2.0))
    assert found.maximum == pytest.approx(0.5)
    assert found.median == pytest.approx(1 - 1 / 1.1)
    assert found.rms == pytest.approx(np.sqrt((3 * (1 - 1 / 1.1) ** 2 + 0.25) / 4))
