"""An evaluation in words: the tables of the paper's Section 8 in Markdown."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from perflex.calibration.acceptance import doubts
from perflex.studies.evaluation.measures import (
    HEADINGS,
    METHOD_HEADINGS,
    judgement,
    measures,
    method_rows,
    overall,
    percent,
)  # fmt: skip
from perflex.studies.evaluation.trivial import BASELINES, MEANINGS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.studies.evaluation.result import DeviceEvaluation, StudyResult


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
            "among the models, each variant was timed at two smaller sizes, which no model was fitted to."
        ),
        (
            "Errors are those of relative errors. A loss is by how much the variant predicted to be the fastest is "
            "slower than the fastest one, at one size; pairs are two variants at one size whose measured times differ "
            "by more than 7 %, and equal predictions rank half of them correctly. *Information used* is what a method "
            "has seen of a variant: nothing but its counts; a short launch of code made from it (on confined data, or "
            "without part of its work); a timing of itself. A model is useful where its loss, and at the same loss "
            "its rms, is lower than that of all baselines that use no more information. Baselines:"
        ),
        "\n".join(f"- {name} (uses: {BASELINES[name]}): {meaning};" for name, meaning in MEANINGS.items()),
        _table(("device", "study", *METHOD_HEADINGS, "noise floor"), short_rows(evaluations)),
        *_everything(evaluations),
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


def short_rows(evaluations: Sequence[DeviceEvaluation]) -> list[tuple[str, ...]]:
    """Return a row for the used model of each device and study, and for the best baseline that knows no more."""
    rows = []
    for evaluation in evaluations:
        for result in evaluation.studies:
            best = result.best_baseline(result.chosen_with) if result.points else None
            shown = {f"{result.model} (used)", best}
            floor = percent(result.noise_floor)
            rows += [(evaluation.device, result.study.name, *r, floor) for r in method_rows(result) if r[0] in shown]
    return rows


def _everything(evaluations: Sequence[DeviceEvaluation]) -> list[str]:
    found = {"the models used": overall(evaluations), **{name: overall(evaluations, name) for name in BASELINES}}
    rows = [(name, *measures(accuracy)) for name, accuracy in found.items() if accuracy is not None]
    results = [result for evaluation in evaluations for result in evaluation.studies if result.points]
    right = sum(result.choice.name == result.best_in_hindsight for result in results)
    worth = sum(bool(result.beats_baselines(result.model, result.chosen_with)) for result in results)
    return [
        "Over everything:",
        _table(("predicted by", *HEADINGS), rows),
        (
            f"The chosen model was the best in hindsight (by loss, then rms) in {right} of {len(results)} cases, and "
            f"the used one better than all baselines that know no more in {worth}."
        ),
    ]


def _study(result: StudyResult) -> list[str]:
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
        f"{c.name}: no measurement kernel determines {', '.join(c.fit.undetermined)}; other costs do not depend on it."
        for c in result.choice.candidates
        if c.fit is not None and c.fit.undetermined
    ]
    hindsight = f"; best in hindsight: {result.best_in_hindsight}" if result.points else ""
    return [
        f"### {result.study.title} ({result.study.source})",
        f"Chosen: **{result.choice.name}** ({result.choice.reason}){hindsight}."
        + (f" Used instead, as asked for: {result.model}." if result.model != result.choice.name else ""),
        *([f"**{text}**"] if (text := judgement(result)) else []),
        *failed,
        *(f"**{doubt[0].upper()}{doubt[1:]}.**" for doubt in doubts(result.calibrations[result.model])),
        *_errors(result),
        f"Parameters of the model used, {result.model}:",
        _table(("parameter", "value", "standard error", "unit", "rate", "remarks"), parameters),
    ]


def _errors(result: StudyResult) -> list[str]:
    if not result.points:
        return ["None of the variants could be timed."]
    rows = []
    for variant in dict.fromkeys(point.variant for point in result.points):
        found = [result.accuracy(name, variant) for name in result.methods]
        rows.append((variant, *(f"{percent(a.geometric_mean)} ({percent(a.maximum)})" for a in found)))
    return [
        "Models and baselines:",
        _table(METHOD_HEADINGS, method_rows(result)),
        "Geometric mean (and maximum) of the relative errors by variant:",
        _table(("variant", *result.methods), rows),
    ]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    # A bar would end the cell.
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)
