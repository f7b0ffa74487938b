"""An evaluation in words: the tables of the paper's Section 8 in Markdown."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from perflex.calibration.acceptance import doubts
from perflex.fit.result import geometric_mean_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.studies.evaluation.run import DeviceEvaluation, StudyResult

def report_text(evaluations: Sequence[DeviceEvaluation], pictures: Sequence[str]) -> str:
    """Return ``report.md``.

    Parameters
    ----------
    evaluations
        One per device.
    pictures
        File names of the pictures beside it.
    """
    parts = [
        "# Predicted and measured run times",
        (
            "All predictions were made before the studies' kernels ran at the sizes shown. The models `linear`, "
            "`overlap` and `partial` were calibrated with measurement kernels that are no kernels of the studies. The "
            "model `incore` was calibrated with the variants' own instructions on data that stays next to the cores "
            "(confined loads), for finite differences also with the variants themselves at one smaller size. To choose "
            "among the models, each variant was timed at two smaller sizes, which no model was fitted to. Errors are "
            "geometric means of the relative error. Pairs are two variants at one size whose measured times differ by "
            "more than 7 %."
        ),
        _table(("device", "study", "model", "error", "noise floor", "pairs ranked right"), short_rows(evaluations)),
        f"Over everything: {_percent(overall_error(evaluations))}. {_hindsight(evaluations)}",
    ]
    for evaluation in evaluations:
        parts.append(f"## {evaluation.device}")
        if evaluation.drift is not None:
            parts.append(
                f"Drift {100 * evaluation.drift:+.1f} %: change of measurement kernels' times from the calibration to "
                "the studies; it is part of every error."
            )
        for result in evaluation.studies:
            parts += _study(result)
        if evaluation.skipped:
            parts.append("Skipped:\n\n" + "\n".join(f"- {label}: {reason}" for label, reason in evaluation.skipped))
    parts.append("## Pictures")
    parts += [f"![{name}]({name})" for name in pictures]
    return "\n\n".join(parts) + "\n"


def overall_error(evaluations: Sequence[DeviceEvaluation]) -> float:
    """Return the geometric mean of all relative errors of the used models, a fraction."""
    return geometric_mean_error(
        [point.error(result.model) for e in evaluations for result in e.studies for point in result.points]
    )


def short_rows(evaluations: Sequence[DeviceEvaluation]) -> list[tuple[str, ...]]:
    """Return a row per device and study: device, study, model, error, noise floor, pairs ranked right."""
    return [
        (
            evaluation.device,
            result.study.name,
            result.model,
            _percent(result.geomean_error(result.model)),
            _percent(result.noise_floor),
            "{1} of {0}".format(*result.pairs(result.model)),
        )
        for evaluation in evaluations
        for result in evaluation.studies
    ]


def _hindsight(evaluations: Sequence[DeviceEvaluation]) -> str:
    results = [result for evaluation in evaluations for result in evaluation.studies if result.points]
    right = sum(result.choice.name == result.best_in_hindsight for result in results)
    return f"The model chosen from calibration data was the best in hindsight in {right} of {len(results)} cases."


def _study(result: StudyResult) -> list[str]:
    models = list(result.calibrations)
    variants = list(dict.fromkeys(point.variant for point in result.points))
    errors = [
        (variant or "all", *(_percent(result.geomean_error(model, variant)) for model in models))
        for variant in (*variants, None)
    ]
    used = result.calibrations[result.model].fit
    parameters = [
        (
            f"`{p.name}`",
            f"{p.value:.4g}",
            "" if math.isnan(p.standard_error) else f"{p.standard_error:.2g}",
            p.unit,
            "" if p.rate is None else f"{p.rate:.3g} {p.rate_unit}",
            p.flags,
        )
        for p in used.parameters
    ]
    failed = [f"{c.name} was not fitted: {c.reason}" for c in result.choice.candidates if c.fit is None]
    failed += [
        f"{c.name}: no measurement kernel tells {', '.join(c.fit.undetermined)}; other costs do not depend on it."
        for c in result.choice.candidates
        if c.fit is not None and c.fit.undetermined
    ]
    return [
        f"### {result.study.title} ({result.study.source})",
        f"Chosen: **{result.choice.name}** ({result.choice.reason}); best in hindsight: {result.best_in_hindsight}."
        + (f" Used instead, as asked for: {result.model}." if result.model != result.choice.name else ""),
        *failed,
        *(f"**{doubt[0].upper()}{doubt[1:]}.**" for doubt in doubts(result.calibrations[result.model])),
        "Errors by model:",
        _table(("variant", *models), errors),
        f"Parameters of the model used, {result.model}:",
        _table(("parameter", "value", "standard error", "unit", "rate", "remarks"), parameters),
    ]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    # A bar would end the cell.
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)


def _percent(fraction: float) -> str:
    return "" if math.isnan(fraction) else f"{100 * fraction:.1f} %"
