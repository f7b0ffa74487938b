"""The report of a pruning: table, predicted against measured times, and how the kept set fared."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.pictures import COLOURS, new_figure, save_figure

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from perflex.search.costs import Pruning

    Array = NDArray[np.float64]

# From so many points on, they are drawn small.
_MANY = 500


@dataclass(frozen=True)
class PruningCheck:
    """What measurements say of a pruning: relative errors of predictions, fractions, and the order.

    `spearman` is the rank correlation of predicted and measured times, `loss` the fastest kept over the fastest of all
    measured, less 1, `coverage` the share of measured times inside 95 % intervals; nan where they are not known.
    """

    measured: int
    kept_measured: int
    geomean_error: float
    median_error: float
    rms_error: float
    max_error: float
    spearman: float
    loss: float
    coverage: float

    def __str__(self) -> str:
        parts = [f"{self.measured} variants measured, {self.kept_measured} of the kept"]
        for name, value, factor in (
            ("geometric mean error", self.geomean_error, 100),
            ("median", self.median_error, 100),
            ("rms", self.rms_error, 100),
            ("maximum", self.max_error, 100),
            ("fastest kept behind the fastest measured by", self.loss, 100),
            ("inside the 95 % interval", self.coverage, 100),
        ):
            if not math.isnan(value):
                parts.append(f"{name} {factor * value:.3g} %")
        if not math.isnan(self.spearman):
            parts.append(f"rank correlation {self.spearman:.3f}")
        return "; ".join(parts)


def check_pruning(pruning: Pruning, measured: dict[str, float] | None = None) -> PruningCheck:
    """Compare a pruning with measured times in s by variant's name, by default those that it was given."""
    from scipy.stats import spearmanr

    from perflex.fit.result import geometric_mean_error

    times = _times(pruning, measured)
    shown = [variant for variant in pruning.variants if variant.name in times]
    predicted = np.array([variant.predicted for variant in shown])
    seconds = np.array([times[variant.name] for variant in shown])
    errors = np.abs(predicted / seconds - 1)
    kept = [times[variant.name] for variant in shown if variant.kept]
    bounds = np.array([(variant.low, variant.high) for variant in shown]).reshape(-1, 2)
    inside = (bounds[:, 0] <= seconds) & (seconds <= bounds[:, 1])
    known = np.isfinite(bounds).all(axis=1)
    # Two points correlate by 1 or -1 whatever they are, and of equal values scipy warns.
    varied = len(shown) > 2 and np.ptp(predicted) > 0 and np.ptp(seconds) > 0
    return PruningCheck(
        measured=len(shown),
        kept_measured=len(kept),
        geomean_error=geometric_mean_error(errors),
        median_error=float(np.median(errors)) if shown else math.nan,
        rms_error=float(np.sqrt(np.mean(errors**2))) if shown else math.nan,
        max_error=float(errors.max()) if shown else math.nan,
        spearman=float(spearmanr(predicted, seconds).statistic) if varied else math.nan,
        loss=min(kept) / float(seconds.min()) - 1 if kept else math.nan,
        coverage=float(inside[known].mean()) if known.any() else math.nan,
    )


def draw_pruning(pruning: Pruning, path: Path, measured: dict[str, float] | None = None) -> None:
    """Draw measured (as `check_pruning`) over predicted times, kept and dropped variants told apart, to a PNG file."""
    times = _times(pruning, measured)
    shown = pruning.variants
    draw_times(
        path,
        np.array([1e3 * variant.predicted for variant in shown]),
        np.array([1e3 * times.get(variant.name, math.nan) for variant in shown]),
        np.array([variant.kept for variant in shown], dtype=np.bool_),
        f"{len(pruning.kept)} of {len(shown)} variants kept",
    )


def draw_times(path: Path, predicted: Array, measured: Array, kept: NDArray[np.bool_], title: str) -> None:
    """Draw measured over predicted times to a PNG file, as `times_figure`."""
    save_figure(times_figure(predicted, measured, kept, title), path)


def times_figure(predicted: Array, measured: Array, kept: NDArray[np.bool_], title: str) -> Any:
    """Return the picture of measured over predicted times in ms, shape ``(n,)``; nan is drawn at the bottom."""
    figure = new_figure(6.4, 5.2)
    axes = figure.add_subplot()
    known = np.isfinite(measured)
    size = 5.0 if len(predicted) < _MANY else 2.0
    for chosen, colour, label in ((False, COLOURS[1], "dropped"), (True, COLOURS[0], "kept")):
        points, rest = (kept == chosen) & known, (kept == chosen) & ~known
        if points.any():
            name = f"{label}, measured ({points.sum()})"
            axes.plot(predicted[points], measured[points], "o", ms=size, mfc="none", color=colour, label=name)
        if rest.any():
            # The transform takes x as a time and y as a share of the height: these points stand at the bottom edge.
            place = np.full(rest.sum(), 0.02 if chosen else 0.05)
            name = f"{label}, not measured ({rest.sum()})"
            axes.plot(predicted[rest], place, "|", ms=7, color=colour, label=name, transform=axes.get_xaxis_transform())
    axes.set_xscale("log")
    if known.any():
        axes.set_yscale("log")
        _plain_numbers(axes.yaxis)
        both = np.concatenate([predicted[known], measured[known]])
        ends = [both.min(), both.max()]
        axes.plot(ends, ends, color="0.6", linewidth=0.8, label="as predicted")
    _plain_numbers(axes.xaxis)
    axes.set_xlabel("predicted time (ms)")
    axes.set_ylabel("measured time (ms)")
    axes.set_title(title, fontsize=11)
    axes.grid(visible=True, which="both", linewidth=0.4, alpha=0.6)
    axes.legend(frameon=False)
    return figure


def _plain_numbers(axis: Any) -> None:
    """Write 40 at a logarithmic axis instead of 4 times 10; numbers between powers of ten only where these are few."""
    from matplotlib.ticker import LogFormatter

    axis.set_major_formatter(LogFormatter())
    axis.set_minor_formatter(LogFormatter(minor_thresholds=(1.5, 0.5)))


def _times(pruning: Pruning, measured: dict[str, float] | None) -> dict[str, float]:
    if measured is not None:
        return {name: seconds for name, seconds in measured.items() if math.isfinite(seconds)}
    return {variant.name: variant.measured for variant in pruning.variants if not math.isnan(variant.measured)}
