"""Pictures of a ranking: measured over predicted times, or predicted times with their intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.pictures import COLOURS, new_figure, save_figure

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from perflex.search.ranked import Ranking

    Array = NDArray[np.float64]

# From so many points on, they are drawn small.
_MANY = 500


def draw_ranking(ranking: Ranking, path: Path) -> None:
    """Draw `ranking_figure` to a PNG file."""
    save_figure(ranking_figure(ranking), path)


def ranking_figure(ranking: Ranking) -> Any:
    """Return measured over predicted times, kept and dropped variants told apart; without timings, times by rank."""
    title = f"{len(ranking.kept)} of {len(ranking)} variants kept"
    kept = np.isin(np.arange(len(ranking)), ranking.decision.kept)
    if np.isfinite(ranking.measured).any():
        return times_figure(1e3 * ranking.predicted, 1e3 * ranking.measured, kept, title)
    figure = new_figure(7.2, 4.2)
    axes = figure.add_subplot()
    ends = [(place.rank, 1e3 * place.low, 1e3 * place.high) for place in ranking]
    axes.vlines(*zip(*ends, strict=True), color="0.4", linewidth=0.8, label="95 % interval")
    for chosen, colour, label in ((ranking.kept, COLOURS[0], "kept"), (ranking.dropped, COLOURS[1], "dropped")):
        if chosen:
            times = [1e3 * place.predicted for place in chosen]
            axes.plot([place.rank for place in chosen], times, "o", ms=4, color=colour, label=label)
    axes.set_yscale("log")
    axes.locator_params(axis="x", integer=True)
    _plain_numbers(axes.yaxis)
    _label(axes, "rank", "predicted time (ms)", title)
    return figure


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
    _label(axes, "predicted time (ms)", "measured time (ms)", title)
    return figure


def _label(axes: Any, below: str, beside: str, title: str) -> None:
    axes.set_xlabel(below)
    axes.set_ylabel(beside)
    axes.set_title(title, fontsize=11)
    axes.grid(visible=True, which="both", linewidth=0.4, alpha=0.6)
    axes.legend(frameon=False)


def _plain_numbers(axis: Any) -> None:
    """Write 40 at a logarithmic axis instead of 4 times 10; numbers between powers of ten only where these are few."""
    from matplotlib.ticker import LogFormatter

    axis.set_major_formatter(LogFormatter())
    axis.set_minor_formatter(LogFormatter(minor_thresholds=(1.5, 0.5)))
