"""What a report says of a pruning."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.fit.result import error_rows
from perflex.html import render
from perflex.pictures import COLOURS, new_figure
from perflex.reports.part import Part
from perflex.search.pruning_picture import times_figure
from perflex.search.variant_doubts import doubt_lines

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from perflex.reports.json_files import PruningFile
    from perflex.reports.part import Picture

    Array = NDArray[np.float64]

# Less than this share of timings inside of 95 % intervals is no chance.
_FEW_INSIDE = 0.8


def pruning_part(file: PruningFile, path: Path, picture: Picture) -> Part:
    """Return what a report says of a pruning: how many are kept and why, and how measurements judge it."""
    predicted, measured, kept = _timed(file)
    errors: dict[str, Array] = {}
    if measured.size:
        logs = np.log(measured)
        errors["the model (knows no timing of them)"] = predicted / measured - 1
        errors["one time for all (geometric mean of these timings)"] = np.expm1(logs.mean() - logs)
    body = render(
        "pruning_report.html",
        it=file,
        timed=sum(variant.measured_s is not None for variant in file.table),
        judged=len(measured) if errors and file.check else 0,
        errors=error_rows(errors),
        losses=_losses(predicted, measured, kept) if measured.size else [],
        picture=picture,
        figure=_figure(file),
    )
    provenance = {
        "file": str(path),
        "made on": file.date,
        "made by": f"perflex {file.perflex}",
        "calibration of": file.calibrated,
        **{f"device: {key.replace('_', ' ')}": str(value) for key, value in file.device.items()},
        **({"measured on": file.measured_on} if file.measured_on else {}),
    }
    device = file.device.get("name") or "an unknown device"
    title = f"Pruning: {len(file.kept)} of {file.variants} variants kept for {device}"
    return Part(
        title, list(_notices(file, [np.sqrt(np.mean(e**2)) for e in errors.values()])), body, [("", provenance)]
    )


def _notices(file: PruningFile, rms: list[float]) -> Iterator[tuple[str, str]]:
    if not file.met:
        yield "warning", f"the promise is not met: {file.explanation}"
    kept = [variant for variant in file.table if variant.kept]
    for line in doubt_lines([variant.variant for variant in kept], [variant.doubts for variant in kept]):
        yield "warning", f"doubtful: {line}"
    check = file.check
    if check is None:
        yield "remark", "no variant was timed: order and choice rest on predictions alone"
        return
    if check.loss is not None and check.loss > 0:
        yield "warning", f"the fastest kept variant is {100 * check.loss:.3g} % slower than the fastest timed"
    if rms and rms[0] > rms[1]:
        text = (
            f"worse than one time for all (rms {100 * rms[0]:.3g} %, not {100 * rms[1]:.3g} %): only their order may be"
        )
        yield "warning", f"predicted times are {text} of use; calibrate again, or on the device that runs the variants"
    if check.coverage is not None and check.coverage < _FEW_INSIDE:
        yield "warning", f"only {100 * check.coverage:.0f} % of the timings lie inside the 95 % intervals"


def _timed(file: PruningFile) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Return predicted and measured times of the timed variants, and which are kept."""
    timed = [v for v in file.table if v.measured_s and v.predicted_s is not None]
    times = np.array([(v.predicted_s, v.measured_s) for v in timed], dtype=np.float64).reshape(-1, 2)
    return times[:, 0], times[:, 1], np.array([v.kept for v in timed], dtype=np.bool_)


def _losses(predicted: Array, measured: Array, kept: NDArray[np.bool_]) -> list[tuple[str, float]]:
    """Return by how much choices among the timed variants are slower than the fastest of them."""
    best, number = measured.min(), int(kept.sum())
    rows: list[tuple[str, float]] = [
        ("the predicted fastest", float(measured[predicted.argmin()] / best - 1)),
        ("one drawn by chance", float(measured.mean() / best - 1)),
    ]
    if number:
        rows.append((f"the fastest of the {number} kept", float(measured[kept].min() / best - 1)))
        rows.append((f"the fastest of {number} drawn by chance", expected_loss(measured, number)))
    return rows


def expected_loss(measured: Array, count: int) -> float:
    """Return the expected loss of the fastest of `count` variants drawn by chance, of times of shape ``(n,)``."""
    ordered = np.sort(measured)
    n = len(ordered)
    # That the i-th fastest is drawn, and none before it: all others are from those behind.
    chances = [math.comb(n - i - 1, count - 1) / math.comb(n, count) for i in range(n)]
    return float(np.dot(chances, ordered) / ordered[0] - 1)


def _figure(file: PruningFile) -> Any:
    """Return measured over predicted times; without timings, predicted times over the rank."""
    title = f"{len(file.kept)} of {file.variants} variants kept"
    known = [v for v in file.table if v.predicted_s is not None]
    predicted = np.array([1e3 * (v.predicted_s or 0.0) for v in known])
    kept = np.array([v.kept for v in known], dtype=np.bool_)
    if any(v.measured_s is not None for v in known):
        measured = np.array([math.nan if v.measured_s is None else 1e3 * v.measured_s for v in known])
        return times_figure(predicted, measured, kept, title)
    figure = new_figure(7.2, 4.2)
    axes = figure.add_subplot()
    ranks = np.array([v.rank for v in known])
    ends = [(v.rank, 1e3 * v.low_s, 1e3 * v.high_s) for v in known if v.low_s is not None and v.high_s is not None]
    if ends:
        axes.vlines(*zip(*ends, strict=True), color="0.4", linewidth=0.8, label="95 % interval")
    for chosen, colour, label in ((True, COLOURS[0], "kept"), (False, COLOURS[1], "dropped")):
        if (kept == chosen).any():
            axes.plot(ranks[kept == chosen], predicted[kept == chosen], "o", ms=4, color=colour, label=label)
    if (predicted > 0).all():
        axes.set_yscale("log")
    axes.set_xlabel("rank")
    axes.set_ylabel("predicted time (ms)")
    axes.set_title(title, fontsize=11)
    axes.grid(visible=True, which="both", linewidth=0.4, alpha=0.6)
    axes.legend(frameon=False)
    return figure
