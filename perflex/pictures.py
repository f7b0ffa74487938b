"""Pictures, drawn without a display and without matplotlib's global state."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from perflex.errors import FileFormatError
from perflex.file_io import writing

# Okabe and Ito's colours, which colour-blind readers can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure of a size in inches that is drawn into memory."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)  # attaches itself to the figure
    return figure


def save_figure(figure: Any, path: Path | str) -> None:
    """Write a figure to a file; its suffix says what kind.

    Raises
    ------
    FileFormatError
        There is no such kind of picture, or the file cannot be written.
    """
    path = Path(path)
    kinds = figure.canvas.get_supported_filetypes()
    kind = path.suffix.removeprefix(".").lower() or "png"
    if kind not in kinds:
        msg = f"{path} has no suffix of a picture; known are {', '.join(kinds)}"
        raise FileFormatError(msg, path=path)
    # Into memory first: matplotlib opens a file by its name, and would wait for a reader of a pipe.
    content = io.BytesIO()
    figure.savefig(content, format=kind)
    try:
        with writing(path, binary=True) as stream:
            stream.write(content.getvalue())
    except OSError as error:
        msg = f"cannot write {path}: {error.strerror or error}"
        raise FileFormatError(msg, path=path) from error
