"""What a page says of ranked variants."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from perflex.fit.result import error_table
from perflex.html import render
from perflex.reports.page import Part, calibrated_by
from perflex.search.ranking_picture import ranking_figure
from perflex.tables import Table, percent, text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from perflex.search.ranked import Ranking

    Array = NDArray[np.float64]

# Less than this share of timings inside of 95 % intervals is no chance.
_FEW_INSIDE = 0.8


def ranking_part(ranking: Ranking, measured_on: str = "") -> Part:
    """Return what a page says of a ranking: how many are kept and why, and how measurements judge it."""
    rows = np.flatnonzero(np.isfinite(ranking.measured))
    predicted, measured = ranking.predicted[rows], ranking.measured[rows]
    kept = np.isin(rows, ranking.decision.kept)
    errors: dict[str, Array] = {}
    if rows.size:
        logs = np.log(measured)
        errors["the model (knows no timing of them)"] = predicted / measured - 1
        errors["one time for all (geometric mean of these timings)"] = np.expm1(logs.mean() - logs)
    body = render(
        "ranking_report.html",
        it=ranking,
        errors=error_table(f"Relative errors of the {rows.size} variants that were timed", errors),
        check=ranking.check() if rows.size else None,
        losses=_losses(predicted, measured, kept) if rows.size else None,
        figure=ranking_figure(ranking),
    )
    device = ranking.calibration.device.get("name") or "an unknown device"
    return Part(
        f"{len(ranking.kept)} of {len(ranking)} variants kept for {device}",
        list(_notices(ranking, [float(np.sqrt(np.mean(e**2))) for e in errors.values()])),
        body,
        {**calibrated_by(ranking.calibration), "measured on": measured_on},
    )


def _notices(ranking: Ranking, rms: list[float]) -> Iterator[tuple[str, str]]:
    if not ranking.decision.met:
        yield "warning", f"the promise is not met: {ranking.decision.explanation}"
    for line in ranking.doubt_lines:
        yield "warning", f"doubtful: {line}"
    if not rms:
        yield "remark", "no variant was timed: order and choice rest on predictions alone"
        return
    check = ranking.check()
    if check.loss > 0:
        yield "warning", f"the fastest kept variant is {100 * check.loss:.3g} % slower than the fastest timed"
    if rms[0] > rms[1]:
        said = (
            f"worse than one time for all (rms {100 * rms[0]:.3g} %, not {100 * rms[1]:.3g} %): only their order may be"
        )
        yield "warning", f"predicted times are {said} of use; calibrate again, or on the device that runs the variants"
    if check.coverage < _FEW_INSIDE:
        yield "warning", f"only {100 * check.coverage:.0f} % of the timings lie inside the 95 % intervals"


def _losses(predicted: Array, measured: Array, kept: NDArray[np.bool_]) -> Table:
    """Return by how much choices among the timed variants are slower than the fastest of them."""
    best, number = measured.min(), int(kept.sum())
    rows: list[tuple[str, float]] = [
        ("the predicted fastest", float(measured[predicted.argmin()] / best - 1)),
        ("one drawn by chance", float(measured.mean() / best - 1)),
    ]
    if number:
        rows.append((f"the fastest of the {number} kept", float(measured[kept].min() / best - 1)))
        rows.append((f"the fastest of {number} drawn by chance", expected_loss(measured, number)))
    loss = percent("loss", meaning="by how much it is slower than the fastest timed")
    return Table("Loss among the variants that were timed", [text("choice"), loss], rows)


def expected_loss(measured: Array, count: int) -> float:
    """Return the expected loss of the fastest of `count` variants drawn by chance, of times of shape ``(n,)``."""
    ordered = np.sort(measured)
    n = len(ordered)
    # That the i-th fastest is drawn, and none before it: all others are from those behind.
    chances = [math.comb(n - i - 1, count - 1) / math.comb(n, count) for i in range(n)]
    return float(np.dot(chances, ordered) / ordered[0] - 1)
