"""Pictures, drawn without a display and without matplotlib's global state."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from perflex._demo import DemoRow

__all__ = ["draw_modeled_and_measured"]

# Okabe and Ito's colours, which colour-blind readers can tell apart.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
_MARKERS = ("o", "s", "^", "D")


def draw_modeled_and_measured(rows: Sequence[DemoRow], title: str, path: Path) -> None:
    """Draw predicted and measured time over size for each variant, as in the paper's Figure 7.

    Parameters
    ----------
    rows
        A prediction and a measurement each.
    title
        Of the picture.
    path
        The PNG file to write.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter, ScalarFormatter

    figure = Figure(figsize=(7.5, 4.6), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    variants = list(dict.fromkeys(row.variant for row in rows))
    for variant, colour, marker in zip(variants, _COLOURS, _MARKERS, strict=False):
        own = [row for row in rows if row.variant == variant]
        sizes = [row.size for row in own]
        label = variant.replace("_", " ")
        axes.plot(sizes, [1e3 * row.predicted_s for row in own], color=colour, label=f"{label}, modeled")
        axes.plot(
            sizes,
            [1e3 * row.measured_s for row in own],
            linestyle="none",
            marker=marker,
            markersize=7,
            markerfacecolor="none",
            markeredgewidth=1.6,
            color=colour,
            label=f"{label}, measured",
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    ticks = sorted({row.size for row in rows})
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.set_xlabel("matrix size n")
    axes.set_ylabel("time (ms)")
    axes.set_title(title, fontsize=11)
    axes.grid(visible=True, which="both", linewidth=0.4, alpha=0.6)
    axes.legend(frameon=False)
    figure.savefig(path)
