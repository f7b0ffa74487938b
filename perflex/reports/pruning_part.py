"""What a report says of a pruning."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.fit.fit_html import error_table
from perflex.html import Column, Html, element, facts, fixed, folded, joined, notice, percent, table, times, whole
from perflex.pictures import COLOURS, new_figure
from perflex.reports.page import Part
from perflex.search.pruning.report import times_figure

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from perflex.reports.pictures import Pictures
    from perflex.reports.pruning_file import PruningFile, VariantEntry

    Array = NDArray[np.float64]

# Rows of the tables: kept variants, and dropped ones; the file has them all.
_SHOWN = 500
# Less than this share of timings inside of 95 % intervals is no chance.
_FEW_INSIDE = 0.8
_NO_BREAK = "\N{NO-BREAK SPACE}"


def pruning_part(file: PruningFile, path: Path, pictures: Pictures) -> Part:
    """Return what a report says of a pruning: how many are kept and why, and how measurements judge it."""
    kept = [variant for variant in file.table if variant.kept]
    dropped = [variant for variant in file.table if not variant.kept]
    device = file.device.get("name") or "an unknown device"
    return Part(
        f"Pruning: {len(file.kept)} of {file.variants} variants kept for {device}",
        list(_notices(file)),
        joined(
            element("h3", "Summary"),
            facts(
                {
                    "variants": file.variants,
                    "kept": f"{len(file.kept)} ({100 * len(file.kept) / max(file.variants, 1):.3g} %)",
                    "why so many": file.explanation,
                    "timed before the decision": len(file.batch),
                    "timed in all": sum(variant.measured_s is not None for variant in file.table),
                }
            ),
            _accuracy(file),
            pictures.show(_figure(file), "Variants by predicted and measured time; the numbers stand in the tables"),
            variants_table(kept[:_SHOWN], f"Kept variants{_cut(kept)}"),
            folded(f"Dropped variants{_cut(dropped)}", variants_table(dropped[:_SHOWN], "Dropped variants")),
            [notice("remark", f"left out: {cause} ({count})") for cause, count in file.excluded.items()],
        ),
        _provenance(file, path),
    )


def _cut(variants: Sequence[VariantEntry]) -> str:
    return f", the first {_SHOWN} of {len(variants)}" if len(variants) > _SHOWN else ""


def _notices(file: PruningFile) -> Iterable[Html]:
    if not file.met:
        yield notice("warning", f"the promise is not met: {file.explanation}")
    check = file.check
    if check is None:
        yield notice("remark", "no variant was timed: order and choice rest on predictions alone")
        return
    if check.loss is not None and check.loss > 0:
        yield notice("warning", f"the fastest kept variant is {100 * check.loss:.3g} % slower than the fastest timed")
    errors = _errors(file)
    model, constant = (float(np.sqrt(np.mean(found**2))) for found in errors.values()) if errors else (0.0, 0.0)
    if model > constant:
        yield notice(
            "warning",
            f"predicted times are worse than one time for all (rms {100 * model:.3g} %, not {100 * constant:.3g} %): "
            "only their order may be of use; calibrate again, or on the device that runs the variants",
        )
    if check.coverage is not None and check.coverage < _FEW_INSIDE:
        yield notice("warning", f"only {100 * check.coverage:.0f} % of the timings lie inside the 95 % intervals")


def _timed(file: PruningFile) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Return predicted and measured times of the timed variants, and which are kept."""
    timed = [v for v in file.table if v.measured_s and v.predicted_s is not None]
    times_of = np.array([(v.predicted_s, v.measured_s) for v in timed], dtype=np.float64).reshape(-1, 2)
    return times_of[:, 0], times_of[:, 1], np.array([v.kept for v in timed], dtype=np.bool_)


def _errors(file: PruningFile) -> dict[str, Array]:
    """Return relative errors of the model, and of the trivial prediction; none without timings."""
    predicted, measured, _ = _timed(file)
    if not measured.size:
        return {}
    logs = np.log(measured)
    return {
        "the model (knows no timing of them)": predicted / measured - 1,
        "one time for all (geometric mean of these timings)": np.expm1(logs.mean() - logs),
    }


def variants_table(variants: Sequence[VariantEntry], caption: str) -> Html:
    """Return variants with predicted and measured times."""
    # One unit for all times of the table: it is there to compare them.
    seconds = [variant.predicted_s for variant in variants]
    columns = [
        Column("variant"),
        Column("rank", whole, meaning="1 for the one predicted fastest of all variants"),
        times("predicted", seconds),
        times("95 % from".replace(" ", _NO_BREAK), seconds, meaning="lower end of the prediction's 95 % interval"),
        times("to", seconds, meaning="upper end of the prediction's 95 % interval"),
        times("measured", seconds),
        percent("error", sign=True, meaning="predicted over measured time, less 1"),
        Column("ratio", fixed(2), meaning="predicted time over that of the fastest predicted"),
        Column("dominates", meaning="the cost with the largest share of the predicted time, and that share"),
    ]
    rows = [
        (v.variant, v.rank, v.predicted_s, v.low_s, v.high_s, v.measured_s, _error(v), v.ratio, _dominating(v))
        for v in variants
    ]
    return table(columns, rows, caption=caption)


def _dominating(variant: VariantEntry) -> Html:
    return element("span", f"{variant.dominating} {100 * variant.share:.0f} %", class_="together")


def _error(variant: VariantEntry) -> float | None:
    if not variant.measured_s or variant.predicted_s is None:
        return None
    return variant.predicted_s / variant.measured_s - 1


def _accuracy(file: PruningFile) -> Html | None:
    """Return errors and losses of the timed variants, each beside what needs no model; None without timings."""
    errors = _errors(file)
    if not errors or file.check is None:
        return None
    predicted, measured, kept = _timed(file)
    best = measured.min()
    rows: list[tuple[str, float]] = [
        ("the predicted fastest", float(measured[predicted.argmin()] / best - 1)),
        ("one drawn by chance", float(measured.mean() / best - 1)),
    ]
    if kept.any():
        number = int(kept.sum())
        rows.append((f"the fastest of the {number} kept", float(measured[kept].min() / best - 1)))
        rows.append((f"the fastest of {number} drawn by chance", expected_loss(measured, number)))
    inside = None if file.check.coverage is None else f"{100 * file.check.coverage:.0f} %"
    rank = None if file.check.spearman is None else f"{file.check.spearman:.3f}"
    return joined(
        error_table(errors, f"Relative errors of the {len(measured)} variants that were timed"),
        table(
            [Column("choice"), percent("loss", meaning="by how much it is slower than the fastest timed")],
            rows,
            caption="Loss among the variants that were timed",
        ),
        facts({"rank correlation": rank, "timings inside the 95 % intervals": inside}),
    )


def expected_loss(measured: Array, count: int) -> float:
    """Return the expected loss of the fastest of some variants drawn by chance, a fraction.

    Parameters
    ----------
    measured
        Times, shape ``(n,)``.
    count
        How many are drawn, without putting any back: 1 to n.
    """
    ordered = np.sort(measured)
    n = len(ordered)
    # That the i-th fastest is drawn, and none before it: all others are from those behind.
    chances = [math.comb(n - i - 1, count - 1) / math.comb(n, count) for i in range(n)]
    return float(np.dot(chances, ordered) / ordered[0] - 1)


def _figure(file: PruningFile) -> Any:
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
    intervals = [v for v in known if v.low_s is not None and v.high_s is not None]
    if intervals:
        low, high = ([1e3 * (getattr(v, end) or 0.0) for v in intervals] for end in ("low_s", "high_s"))
        axes.vlines([v.rank for v in intervals], low, high, color="0.4", linewidth=0.8, label="95 % interval")
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


def _provenance(file: PruningFile, path: Path) -> Html:
    return facts(
        {
            "file": str(path),
            "made on": file.date,
            "made by": f"perflex {file.perflex}",
            "calibration of": file.calibrated,
            **{f"device: {key.replace('_', ' ')}": str(value) for key, value in file.device.items()},
        }
    )
