"""Pictures, drawn without a display and without matplotlib's global state."""

from __future__ import annotations

import html
import io
import re
from pathlib import Path
from typing import Any

from perflex.errors import FileFormatError
from perflex.file_io import saving

# Okabe and Ito's colours, which colour-blind readers can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
# Names of colours that a page may choose anew for a dark background, and what they are otherwise.
_PAGE_COLOURS = {
    "#0072b2": "var(--perflex-blue, #0072b2)",
    "#d55e00": "var(--perflex-orange, #d55e00)",
    "#009e73": "var(--perflex-green, #009e73)",
    "#cc79a7": "var(--perflex-pink, #cc79a7)",
    "#000000": "currentColor",
    "#ffffff": "var(--perflex-page, #ffffff)",
    "#d9d9d9": "var(--perflex-band, #d9d9d9)",
    "#666666": "var(--perflex-grey, #666666)",
    "#737373": "var(--perflex-grey, #737373)",
}


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure of a size in inches that is drawn into memory."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)  # attaches itself to the figure
    return figure


def save_figure(figure: Any, path: Path | str) -> None:
    """Write a figure to a file; its suffix says what kind."""
    path = Path(path)
    kinds = figure.canvas.get_supported_filetypes()
    kind = path.suffix.removeprefix(".").lower() or "png"
    if kind not in kinds:
        msg = f"{path} has no suffix of a picture; known are {', '.join(kinds)}"
        raise FileFormatError(msg, path=path)
    # Into memory first: matplotlib opens a file by its name, and would wait for a reader of a pipe.
    content = io.BytesIO()
    figure.savefig(content, format=kind)
    with saving(path, binary=True) as stream:
        stream.write(content.getvalue())


def svg_text(figure: Any, prefix: str, meaning: str) -> str:
    """Return a figure as an ``svg`` element to stand in a page: text stays text, and takes the page's colours.

    Black is the page's text colour; other colours are CSS variables (``--perflex-blue`` and so on) with the usual
    colour where the page does not set them. Identifiers inside begin with the prefix, another one for each picture of a
    page; what reads the page aloud reads the meaning instead of every number on an axis.
    """
    import matplotlib as mpl

    content = io.BytesIO()
    # Text as text: it can be read aloud, searched and coloured.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": prefix}):
        figure.savefig(content, format="svg", transparent=True)
    text = content.getvalue().decode("utf-8")
    text = text[text.index("<svg") :].strip()
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"#[0-9a-f]{6}\b", lambda found: _PAGE_COLOURS.get(found[0], found[0]), text)
    text = text.replace("<svg", f'<svg role="img" aria-label="{html.escape(meaning)}"', 1)
    return _with_own_identifiers(text, prefix)


def _with_own_identifiers(text: str, prefix: str) -> str:
    """Remove the identifiers that nothing refers to, and put a prefix before the others."""
    used = set(re.findall(r"(?:url\(#|href=\"#)([^)\"]+)", text))
    text = re.sub(r' id="([^"]*)"', lambda found: f' id="{prefix}{found[1]}"' if found[1] in used else "", text)
    return re.sub(r"(url\(#|href=\"#)", rf"\g<1>{prefix}", text)
