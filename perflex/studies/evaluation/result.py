"""What an evaluation hands back: predicted and measured times of models and baselines, and how good they are."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from perflex.search.accuracy import Accuracy
from perflex.studies.evaluation.baselines import knows_no_more

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.calibration.calibration import Calibration
    from perflex.studies.evaluation.baselines import Knowledge, Peaks
    from perflex.studies.evaluation.overlap import OverlapChoice
    from perflex.studies.evaluation.studies import Study

_SCALE = "Where each variant can be timed at a smaller size, scale that time."


@dataclass(frozen=True)
class Point:
    """One variant at one size: measured, and predicted by each model and baseline."""

    variant: str
    size: int
    measured_s: float
    # Relative, of repeated timings.
    spread: float
    predicted_s: Mapping[str, float]
    # By which fraction the time differs from one such measurement to the next.
    repeatability: float = math.nan
    # Rests on samples that others disturbed, for lack of others.
    disturbed: bool = False

    def error(self, method: str) -> float:
        """Return predicted/measured - 1 of a model or baseline."""
        return self.predicted_s[method] / self.measured_s - 1


@dataclass(frozen=True)
class RatioPoint:
    """A kernel with `ratio` local load-store sequences per global access: times in seconds, modeled by name."""

    ratio: int
    measured_s: float
    predicted_s: Mapping[str, float]


@dataclass(frozen=True)
class StudyResult:
    """A study on one device."""

    study: Study
    # Made before the variants ran at the sizes to predict.
    choice: OverlapChoice
    # The one that was used: the chosen one, or the one the user wanted.
    model: str
    # Of each model that could be fitted.
    calibrations: Mapping[str, Calibration]
    points: tuple[Point, ...]
    # What each model, and each baseline, has seen of a variant.
    knowledge: Mapping[str, Knowledge] = field(default_factory=dict)
    # What the choice of the used model has seen: timings, where it was chosen by some.
    chosen_with: Knowledge = "nothing"

    @property
    def methods(self) -> tuple[str, ...]:
        """Models and baselines that predict all points, models first; none without measured times."""
        if not self.points:
            return ()
        named = dict.fromkeys((*self.calibrations, *self.knowledge))
        return tuple(name for name in named if all(name in point.predicted_s for point in self.points))

    @property
    def baselines(self) -> tuple[str, ...]:
        """Baselines that predict all points."""
        return tuple(name for name in self.methods if name not in self.calibrations)

    def accuracy(self, method: str, variant: str | None = None) -> Accuracy:
        """Return how accurate a model or baseline is, over one variant or all; one group for each size."""
        own = [point for point in self.points if variant in {None, point.variant}]
        predicted, measured = [p.predicted_s[method] for p in own], [p.measured_s for p in own]
        return Accuracy.of(predicted, measured, [point.size for point in own])

    def key(self, method: str) -> tuple[float, float]:
        """Return by what methods are compared, the lowest first: the mean loss beyond the noise floor, then the rms."""
        return self.accuracy(method).key(0.0 if math.isnan(self.noise_floor) else self.noise_floor)

    @property
    def best_in_hindsight(self) -> str:
        """The model with the lowest loss over the study's own kernels, and the lowest rms among those."""
        return min(self.calibrations, key=self.key)

    def best_baseline(self, knowledge: Knowledge) -> str | None:
        """Return the best baseline among those that have seen no more of a variant; None if there is none."""
        fair = [name for name in self.baselines if knows_no_more(self.knowledge[name], knowledge)]
        return min(fair, key=self.key) if fair else None

    def beats_baselines(self, model: str, knowledge: Knowledge | None = None) -> bool | None:
        """Return whether a model is better than all baselines that have seen no more; None where there is none.

        By default it has seen what its calibration has.
        """
        best = self.best_baseline(knowledge or self.knowledge.get(model, "nothing"))
        return None if best is None else self.key(model) < self.key(best)

    @property
    def judgement(self) -> str:
        """Whether the used model is worth it, in a few sentences; empty without measured times or baselines."""
        best = self.best_baseline(self.chosen_with)
        if best is None:
            return ""
        model, baseline = self._figures(self.model), self._figures(best)
        if not self.beats_baselines(self.model, self.chosen_with):
            text = f"Not recommended: a baseline is better: {baseline}; {model}."
            return f"{text} {_SCALE}" if self.knowledge[best] == "timing" else text
        text = f"Better than every baseline with the same knowledge: {model}; the best of them, {baseline}."
        if self.beats_baselines(self.model, "timing"):
            return text
        more = self._figures(self.best_baseline("timing") or best)
        return f"{text} A baseline with more knowledge is better: {more}. {_SCALE}"

    def _figures(self, method: str) -> str:
        accuracy = self.accuracy(method)
        loss = "" if math.isnan(accuracy.loss_mean) else f"mean loss {100 * accuracy.loss_mean:.1f} %, "
        return f"{method} has {loss}rms {100 * accuracy.rms:.1f} %"

    @property
    def noise_floor(self) -> float:
        """Median repeatability of the study's measured times, a fraction: smaller errors are not significant."""
        repeated = [point.repeatability for point in self.points if math.isfinite(point.repeatability)]
        return float(np.median(repeated)) if repeated else math.nan


@dataclass(frozen=True)
class DeviceEvaluation:
    """All studies on one device that could be calibrated, in the order asked for."""

    device: str
    studies: tuple[StudyResult, ...]
    # Label and reason of what did not run.
    skipped: tuple[tuple[str, str], ...]
    # By which fraction measurement kernels took longer beside the studies' kernels than for the calibration.
    drift: float | None
    # Kernels with m local accesses per global one, for Figure 5.
    overlap: tuple[RatioPoint, ...] = ()
    # Wall time of the whole evaluation.
    seconds: float = math.nan
    # Of the roofline; None where its kernel did not run.
    peaks: Peaks | None = None
