"""Measures of accuracy as texts: the columns of all tables, and the judgement of a model beside its baselines."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from perflex.studies.accuracy import Accuracy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.studies.evaluation.result import DeviceEvaluation, StudyResult

HEADINGS = (
    "geometric mean", "median", "rms", "maximum", "factor", "rank correlation", "pairs right", "loss", "worst loss",
)  # fmt: skip
"""Of the columns that `measures` gives; the loss is the mean over sizes."""
_SCALE = "Where each variant can be timed at a smaller size, scale that time."
METHOD_HEADINGS = ("predicted by", "information used", *HEADINGS, "beats baselines")


def measures(accuracy: Accuracy) -> tuple[str, ...]:
    """Return the measures as texts, one for each of `HEADINGS`; empty where there is none."""
    a = accuracy
    return (
        *map(percent, (a.geometric_mean, a.median, a.rms, a.maximum)),
        f"{a.factor:.2f}",
        "" if math.isnan(a.spearman) else f"{a.spearman:.2f}",
        f"{a.pairs_right * a.pairs:g} of {a.pairs}" if a.pairs else "",
        percent(a.loss_mean),
        percent(a.loss_worst),
    )


def method_rows(result: StudyResult) -> list[tuple[str, ...]]:
    """Return a row for each model and baseline of a study, as `METHOD_HEADINGS` has it; none without measured times.

    The used model's name has "(used)" behind it, and what its choice has seen.
    """
    if not result.points:
        return []
    rows = []
    for name in result.methods:
        used = name == result.model
        knowledge = result.chosen_with if used else result.knowledge.get(name, "")
        beats = None if name in result.baselines else result.beats_baselines(name, result.chosen_with if used else None)
        verdict = "" if beats is None else "yes" if beats else "no"
        rows.append((f"{name} (used)" if used else name, knowledge, *measures(result.accuracy(name)), verdict))
    return rows


def judgement(result: StudyResult) -> str:
    """Return in a few sentences whether the used model is worth it; empty without measured times or baselines."""
    best = result.best_baseline(result.chosen_with) if result.points else None
    if best is None:
        return ""
    model, baseline = _figures(result, result.model), _figures(result, best)
    if not result.beats_baselines(result.model, result.chosen_with):
        text = f"Not recommended: a baseline is better: {baseline}; {model}."
        return f"{text} {_SCALE}" if result.knowledge[best] == "timing" else text
    text = f"Better than every baseline with the same knowledge: {model}; the best of them, {baseline}."
    any_best = result.best_baseline("timing") or best
    if result.beats_baselines(result.model, "timing"):
        return text
    return f"{text} A baseline with more knowledge is better: {_figures(result, any_best)}. {_SCALE}"


def _figures(result: StudyResult, method: str) -> str:
    accuracy = result.accuracy(method)
    loss = "" if math.isnan(accuracy.loss_mean) else f"mean loss {percent(accuracy.loss_mean)}, "
    return f"{method} has {loss}rms {percent(accuracy.rms)}"


def overall(evaluations: Sequence[DeviceEvaluation], method: str | None = None) -> Accuracy | None:
    """Return the accuracy over all devices and studies of the used models, or of one method.

    Returns
    -------
    Accuracy or None
        None where there is nothing, or the method does not predict all of it.
    """
    cases = [
        (
            point.predicted_s.get(method or result.model, math.nan),
            point.measured_s,
            (number, result.study.name, point.size),
        )
        for number, evaluation in enumerate(evaluations)
        for result in evaluation.studies
        for point in result.points
    ]
    if not cases or any(math.isnan(predicted) for predicted, _, _ in cases):
        return None
    predicted, measured, groups = zip(*cases, strict=True)
    return Accuracy.of(predicted, measured, groups)


def percent(fraction: float) -> str:
    """Return a fraction in percent; empty where it is not known."""
    return "" if math.isnan(fraction) else f"{100 * fraction:.1f} %"
