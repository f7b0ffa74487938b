"""The picture of predicted against reference volumes, coloured by work-group shape."""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING

from perflex.pictures import new_figure, save_figure

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from perflex.analysis.volumes.compare import TableComparison

# Wide shapes are red, tall ones green, deep ones blue (Ernst et al., Section 5.1).
_FULL = (256, 256, 64)
_NOTED = 4


def shape_colour(x: int, y: int, z: int = 1) -> tuple[float, float, float]:
    """Return the colour of a work-group's shape: ``RGB(log x/log 256, log y/log 256, log z/log 64)``, at most 1."""
    red, green, blue = (min(1.0, log(extent) / log(full)) for extent, full in zip((x, y, z), _FULL, strict=True))
    return red, green, blue


def draw_comparison(
    comparison: TableComparison, path: Path, shape: Sequence[str], *, title: str = "", unit: str = "B per update"
) -> None:
    """Draw predicted over reference values, and name the configurations that deviate most.

    Parameters
    ----------
    comparison
        Its keys hold the columns of `shape`.
    path
        File to write; the suffix says what kind.
    shape
        Key columns of the work-group's extents along x, y and, if there are three, z.
    title
        The picture's first line; by default the quantity's name.
    unit
        What both axes are in.
    """
    figure = new_figure(6.4, 6.0)
    axes = figure.subplots()
    # Logarithmic axes have no zero.
    values = [value for pair in comparison.pairs for value in (pair.predicted, pair.reference) if value > 0]
    low, high = (0.9 * min(values), 1.1 * max(values)) if values else (0.1, 1.0)
    axes.plot([low, high], [low, high], color="0.6", linewidth=1, zorder=1)
    for pair in comparison.pairs:
        extents = _extents(dict(pair.key), shape)
        axes.scatter(
            pair.reference, pair.predicted, color=[shape_colour(*extents)], edgecolor="0.3", linewidth=0.5, zorder=2
        )
    for pair in sorted(comparison.pairs, key=lambda pair: -abs(pair.deviation))[:_NOTED]:
        label = " x ".join(str(extent) for extent in _extents(dict(pair.key), shape)[: len(shape)])
        axes.annotate(label, (pair.reference, pair.predicted), fontsize=7, xytext=(4, 4), textcoords="offset points")
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), aspect="equal")
    axes.set_xlabel(f"reference, {unit}")
    axes.set_ylabel(f"predicted, {unit}")
    median, worst = 100 * comparison.percentile(50), 100 * comparison.percentile(100)
    axes.set_title(f"{title or comparison.quantity}\nmedian error {median:.1f} %, worst {worst:.1f} %", fontsize=10)
    save_figure(figure, path)


def _extents(key: dict[str, str], shape: Sequence[str]) -> tuple[int, int, int]:
    extents = [int(float(key[column])) for column in shape]
    x, y, z = (*extents, 1, 1, 1)[:3]
    return x, y, z
