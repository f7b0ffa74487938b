"""The picture of volumes between a CPU's caches over sizes, with the sizes at which layer conditions break."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perflex.pictures import COLOURS, new_figure, save_figure

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from perflex.features.cpu.ecm_result import EcmEstimate


_DASHES = ("-", "--", "-.", ":")


def thresholds(rows: Sequence[tuple[int, EcmEstimate]], symbol: str) -> dict[tuple[str, str], int]:
    """Return the largest size that meets each condition where a rising series passes it, by level and loop."""
    found: dict[tuple[str, str], int] = {}
    for position, (size, estimate) in enumerate(rows):
        before = rows[position - 1][0] if position else size
        after = rows[position + 1][0] if position + 1 < len(rows) else size
        for entry in estimate.conditions:
            # Far from the size, another polynomial may hold.
            if entry.symbol == symbol and entry.largest is not None and before <= entry.largest <= after:
                found.setdefault((entry.level, entry.loop), entry.largest)
    return found


def draw_layers(rows: Sequence[tuple[int, EcmEstimate]], symbol: str, path: Path) -> None:
    """Draw bytes per iteration of each level over rising sizes, with those where layer conditions end, to a file."""
    figure = new_figure(8.0, 4.8)
    axes = figure.add_subplot()
    first = rows[0][1]
    names = [level.name for level in first.levels]
    colours = dict(zip(names, COLOURS, strict=False))
    sizes = [size for size, _ in rows]
    for place in range(1, len(names)):
        values = [found.levels[place].bytes for _, found in rows]
        axes.plot(
            sizes,
            values,
            color=colours.get(names[place - 1], "black"),
            linestyle=_DASHES[(place - 1) % len(_DASHES)],
            marker=".",
            markersize=4,
            label=f"{names[place - 1]} - {names[place]}",
        )
    highest = max(found.levels[place].bytes for _, found in rows for place in range(1, len(names))) or 1.0
    # Room for the conditions' names above the curves.
    axes.set_ylim(0, 1.45 * highest)
    marks = sorted(thresholds(rows, symbol).items(), key=lambda mark: mark[1])
    for number, ((level, loop), size) in enumerate(marks):
        axes.axvline(size, color=colours.get(level, "black"), linewidth=0.9, linestyle=":")
        text = f"{level}: " + ("all data" if loop == "all" else f"loop {loop}") + f"\n{symbol} <= {size}"
        # Neighbours stand on different heights.
        axes.annotate(
            text,
            (size, (1.42 - 0.12 * (number % 3)) * highest),
            xytext=(3, 0),
            textcoords="offset points",
            fontsize=8,
            va="top",
            color=colours.get(level, "black"),
        )
    axes.set_xlabel(f"size {symbol}")
    axes.set_ylabel("bytes per iteration")
    cores = f", {first.cores} cores" if first.cores > 1 else ""
    axes.set_title(f"{first.kernel} on {first.machine}{cores}: traffic between cache levels", fontsize=11)
    axes.grid(visible=True, linewidth=0.4, alpha=0.6)
    axes.legend(frameon=False, loc="lower right")
    save_figure(figure, path)
