"""Pictures, drawn without a display and without matplotlib's global state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["COLOURS", "ModeledAndMeasured", "draw_modeled_and_measured", "new_figure"]

# Okabe and Ito's colours, which colour-blind readers can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
_MARKERS = ("o", "s", "^", "D")
# With more variants than this the legend stands beside the picture.
_FEW = 2


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure of a size in inches that is drawn into memory."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


class ModeledAndMeasured(Protocol):
    """A prediction and a measurement of one variant at one size; times in seconds."""

    @property
    def size(self) -> int:
        """The size."""

    @property
    def variant(self) -> str:
        """The variant's name."""

    @property
    def predicted_s(self) -> float:
        """Predicted time."""

    @property
    def measured_s(self) -> float:
        """Measured time."""


def draw_modeled_and_measured(
    rows: Sequence[ModeledAndMeasured],
    title: str,
    path: Path,
    *,
    axis: str = "matrix size n",
    remarks: Mapping[str, str] | None = None,
) -> None:
    """Draw predicted and measured time over size for each variant, as in the paper's Figures 7 to 9.

    Parameters
    ----------
    rows
        A prediction and a measurement each.
    title
        Of the picture.
    path
        The PNG file to write.
    axis
        What the size is.
    remarks
        Added to a variant's modeled times in the legend.
    """
    from matplotlib.ticker import NullFormatter, ScalarFormatter

    variants = list(dict.fromkeys(row.variant for row in rows))
    many = len(variants) > _FEW
    figure = new_figure(10.5 if many else 7.5, 4.6)
    axes = figure.add_subplot()
    for variant, colour, marker in zip(variants, COLOURS, _MARKERS, strict=False):
        own = [row for row in rows if row.variant == variant]
        sizes = [row.size for row in own]
        label = variant.replace("_", " ")
        remark = f" ({remarks[variant]})" if remarks else ""
        axes.plot(sizes, [1e3 * row.predicted_s for row in own], color=colour, label=f"{label}, modeled{remark}")
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
    axes.set_xlabel(axis)
    axes.set_ylabel("time (ms)")
    axes.set_title(title, fontsize=11)
    axes.grid(visible=True, which="both", linewidth=0.4, alpha=0.6)
    if many:
        axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    else:
        axes.legend(frameon=False)
    figure.savefig(path)
