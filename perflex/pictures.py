"""Pictures, drawn without a display and without matplotlib's global state."""

from __future__ import annotations

from typing import Any

# Okabe and Ito's colours, which colour-blind readers can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure of a size in inches that is drawn into memory."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)  # attaches itself to the figure
    return figure
