"""Pictures of a ranking: measured over predicted times, or predicted times with their intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.pictures import COLOURS, new_figure, save_figure
from perflex.search.times_picture import times_figure

if TYPE_CHECKING:
    from pathlib import Path

    from perflex.search.ranking import Ranking


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
    axes.set_xlabel("rank")
    axes.set_ylabel("predicted time (ms)")
    axes.set_title(title, fontsize=11)
    axes.grid(visible=True, which="both", linewidth=0.4, alpha=0.6)
    axes.legend(frameon=False)
    return figure
