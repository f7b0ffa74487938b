"""Promises without measurements: how often they hold for simulated kernels that err as generators do."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from perflex import Promise
from perflex.errors import CalibrationError
from perflex.search.pruning.unmeasured import keep_unmeasured, similar_errors

if TYPE_CHECKING:
    from perflex import Calibration

EACH = 8


def errors_of(chance: np.random.Generator, kernels: int, within: float = 0.3) -> np.ndarray:
    """Return errors of a generator's kernels, or of a kernel's variants: a large shared one, and own ones of a size."""
    return 2 * chance.normal() + within * np.exp(0.5 * chance.normal()) * chance.normal(size=kernels)


def left_out(owners: np.ndarray, predicted: np.ndarray, errors: np.ndarray, known: np.ndarray) -> Any:
    """Return what stands for kernels as predicted without their generators."""
    return SimpleNamespace(owners=owners, predicted=predicted, errors=errors, known=known)


def calibrated(chance: np.random.Generator, generators: int = 39, within: float = 0.3) -> Calibration:
    """Return what stands for a calibration of generators with eight kernels each, alike in time."""
    times = np.exp(chance.uniform(0, 1.5, (generators, EACH)) + 3 * chance.normal(size=(generators, 1)))
    errors = np.array([errors_of(chance, EACH, within) for _ in range(generators)])
    owners = np.repeat([f"make{number}" for number in range(generators)], EACH)
    found = left_out(owners, times.ravel(), errors.ravel(), np.ones(owners.size, dtype=bool))
    return SimpleNamespace(left_out_kernels=found, learned=None)  # type: ignore[return-value]


def outcomes(wanted: Promise, variants: int, trials: int, within: float = 0.3) -> tuple[float, float]:
    """Return how often the promise held for new kernels, and the mean share that was kept."""
    held, kept = [], []
    for seed in range(trials):
        chance = np.random.default_rng(seed)
        calibration = calibrated(chance, within=within)
        predicted = np.exp(chance.uniform(0, 1.5, variants))
        times = predicted * np.exp(errors_of(chance, variants, within))
        found = keep_unmeasured(predicted, calibration, wanted)
        held.append(times[found.kept].min() <= (1 + wanted.loss) * times.min())
        kept.append(len(found.kept) / variants)
    return float(np.mean(held)), float(np.mean(kept))


@pytest.mark.slow
@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.95])
@pytest.mark.parametrize("variants", [4, EACH])
def test_promises_hold_as_often_as_stated(confidence: float, variants: int) -> None:
    trials = 200
    held, kept = outcomes(Promise(0.05, confidence), variants, trials)
    deviation = np.sqrt(confidence * (1 - confidence) / trials)
    assert held >= confidence - 3 * deviation
    # A set of one more or less holds by much more or less, so that it cannot be exact from above.
    assert held <= confidence + 0.5 * (1 - confidence) + 3 * deviation or kept < 1.05 / variants
    assert kept < 1


def test_what_variants_share_costs_nothing() -> None:
    # Errors of a factor of 7 that all of a generator's kernels have in common leave the order as it is.
    _, kept = outcomes(Promise(0.05, 0.95), EACH, 20, within=0.001)
    assert kept < 0.2


def test_the_set_grows_with_confidence_and_shrinks_with_the_loss() -> None:
    chance = np.random.default_rng(0)
    calibration, predicted = calibrated(chance), np.exp(chance.uniform(0, 2, 20))
    counts = [
        len(keep_unmeasured(predicted, calibration, promise).kept)
        for promise in (Promise(0.5, 0.5), Promise(0.5, 0.9), Promise(0.05, 0.9), Promise(0.0, 0.95))
    ]
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]
    found = keep_unmeasured(predicted, calibration, Promise(0.05, 0.9))
    assert found.achieved_confidence >= 0.9
    np.testing.assert_array_equal(found.kept, np.argsort(predicted)[: len(found.kept)])
    assert found.threshold_ratio == pytest.approx(predicted[found.kept[-1]] / predicted.min())


def test_many_variants_take_seconds_at_most() -> None:
    chance = np.random.default_rng(0)
    found = keep_unmeasured(np.exp(chance.uniform(0, 5, 20_000)), calibrated(chance), Promise(0.05, 0.8))
    assert 1 <= len(found.kept) < 20_000


def test_ratios_larger_than_any_float() -> None:
    predicted = np.array([1e-200, 1e-190, 1e200])
    found = keep_unmeasured(predicted, calibrated(np.random.default_rng(0), within=1e4), Promise(0.05, 0.9))
    assert 2 in found.kept
    assert found.threshold_ratio == pytest.approx(sys.float_info.max)


def test_only_kernels_alike_in_time_are_compared() -> None:
    owners = np.array(["one"] * 5 + ["single", "far", "far", "own", "own"])
    predicted = np.array([1.0, 30.0, 2.0, 9.0, 5.0, 1.0, 1.0, 100.0, 1.0, 1.0])
    errors = np.arange(10.0)
    windows = similar_errors(left_out(owners, predicted, errors, owners != "own"))
    # 1 to 5, and 9 to 45; 2 to 9 is 2 to 10, and part of no other. No window has less than two kernels.
    assert [[sorted(window.tolist()) for window in own] for own in windows] == [
        [[0.0, 2.0, 4.0], [2.0, 3.0, 4.0], [1.0, 3.0]]
    ]


def test_too_few_generators_are_refused() -> None:
    chance = np.random.default_rng(0)
    with pytest.raises(CalibrationError, match=r"95 % needs 19 generators .* the calibration has 18; give"):
        keep_unmeasured(np.ones(3), calibrated(chance, 18), Promise())
    assert keep_unmeasured(np.ones(3), calibrated(chance, 19), Promise()).achieved_confidence >= 0.95
    with pytest.raises(CalibrationError, match="keeps no measured values"):
        keep_unmeasured(np.ones(3), None, Promise())
