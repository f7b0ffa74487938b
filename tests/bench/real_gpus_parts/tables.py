"""Tables in Markdown of how good methods are."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .scoring import ALL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from .scoring import Score

_HEADINGS = (
    "GPU", "method", "knows", "rows", "none", "median", "p90", "rms", "maximum", "factor", "Spearman", "loss median",
    "loss p90", "in 95 % interval",
)  # fmt: skip
# Percentage errors of NeuSight's own predictions for its operators, without samples of the GPU (Lee, Phanishayee and
# Mahajan, ASPLOS 2025, doi:10.1145/3669940.3707265); which rows each is of was not looked up.
NEUSIGHT = (0.140, 0.193)

_EXPLAINED = (
    "Errors are relative, of times of at least 20 us (simulated ones: of all). `none` counts rows without a "
    "prediction. Factor is exp(mean |ln(predicted/measured)|). Spearman is the mean over cases (same GPU, result "
    "and size) of the rank correlation, loss what the predicted best of a case costs more than the measured best; "
    'both among the rows that a study judges. "Timing on other devices" is a timing of the same configuration '
    "there. The last column is the share of rows inside their interval, and of how many rows."
)


def report(found: Sequence[Score], notes: Sequence[str] = ()) -> str:
    """Return the tables of all studies, and what was left out.

    Parameters
    ----------
    found
        All scores.
    notes
        Lines that follow at the end, such as what was refused.
    """
    lines = ["# Times of real GPUs, predicted", "", _EXPLAINED, ""]
    whole = [score for score in found if score.program == ALL and score.seed is None]
    for study, data in dict.fromkeys((score.study, score.data) for score in whole):
        lines += [f"## {data}: {study}", ""]
        own = [score for score in whole if (score.study, score.data) == (study, data)]
        lines += _table(_HEADINGS, [_cells(score) for score in sorted(own, key=_order(own))])
        if study == "unseen GPU":
            published = " and ".join(f"{100 * value:.1f} %" for value in NEUSIGHT)
            lines += ["", f"NeuSight publishes mean errors of {published} without samples."]
        lines += ["", *_programs([s for s in found if (s.study, s.data) == (study, data)]), ""]
    reasons = [
        f"{score.data}, {score.gpu}, {score.method}, {score.samples}: {reason}"
        for score in whole
        if score.gpu != ALL
        for reason in score.reasons
    ]
    if reasons:
        lines += ["## No prediction, or no interval", "", *(f"- {line}" for line in reasons), ""]
    if notes:
        lines += ["## Left out", "", *(f"- {line}" for line in notes), ""]
    return "\n".join(lines).rstrip() + "\n"


def _order(scores: Sequence[Score]) -> Callable[[Score], tuple[int, int, str, int]]:
    gpus = [ALL, *dict.fromkeys(score.gpu for score in scores if score.gpu != ALL)]
    methods = list(dict.fromkeys(score.method for score in scores))

    def key(score: Score) -> tuple[int, int, str, int]:
        count = int(score.samples) if score.samples.isdigit() else 0
        return gpus.index(score.gpu), count, score.samples, methods.index(score.method)

    return key


def _cells(score: Score) -> list[str]:
    a = score.accuracy
    name = f"{score.method} (from {score.samples})" if score.study == "microbenchmarks only" else score.method
    start = [score.gpu, name, score.knows]
    if a is None:
        return [*start, "0", str(score.missing), *["-"] * 9]
    inside = f"{percent(score.covered)} of {score.intervals}" if score.intervals else "-"
    return [
        *start, str(a.cases), str(score.missing), percent(a.median), percent(score.p90), percent(a.rms),
        percent(a.maximum), f"{a.factor:.2f}", "-" if math.isnan(a.spearman) else f"{a.spearman:.2f}",
        percent(a.loss_median), percent(a.loss_p90), inside,
    ]  # fmt: skip


def _programs(scores: Sequence[Score]) -> list[str]:
    """Return the median error of each program by GPU, of the methods of perflex; the worst programs first."""
    lines: list[str] = []
    for method, samples in dict.fromkeys((s.method, s.samples) for s in scores if s.method.startswith("perflex")):
        own = [s for s in scores if (s.method, s.samples) == (method, samples) and s.program != ALL]
        gpus = list(dict.fromkeys(score.gpu for score in own))
        by_program: dict[str, dict[str, list[float]]] = {}
        for score in own:
            if score.accuracy is not None:
                by_program.setdefault(score.program, {}).setdefault(score.gpu, []).append(score.accuracy.median)
        body = []
        for program, errors in by_program.items():
            # Over seeds, the middle one; over GPUs, their mean, for it is the order of the table only.
            middle = {gpu: sorted(values)[len(values) // 2] for gpu, values in errors.items()}
            body.append((sum(middle.values()) / len(middle), program, middle))
        body.sort(key=lambda line: (-line[0], line[1]))
        known = f", {samples} samples" if samples.isdigit() else ""
        lines += [f"Median error of `{method}`{known} by program:", ""]
        lines += _table(
            ("program", *gpus),
            [[f"`{name}`", *(percent(middle.get(gpu, math.nan)) for gpu in gpus)] for _, name, middle in body],
        )
        lines.append("")
    return lines[:-1] if lines else []


def percent(value: float) -> str:
    """Return a fraction as percent; a dash for none."""
    if math.isnan(value):
        return "-"
    return f"{100 * value:.1f} %" if value < 0.1 else f"{100 * value:.0f} %"


def _table(headings: Sequence[str], body: Iterable[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(line) + " |" for line in (headings, ["---"] * len(headings), *body)]
