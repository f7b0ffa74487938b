"""What data volumes say: the limiter, series over domain sizes, comparison with measured volumes."""

from __future__ import annotations

from perflex.analysis.volumes.compare import ComparedPair, TableComparison, compare_rows, comparison_table, read_rows
from perflex.analysis.volumes.limiters import LIMITERS, Limits, limits_of
from perflex.analysis.volumes.picture import draw_comparison, draw_series, shape_colour
from perflex.analysis.volumes.series import SeriesRow, layers_fit, level_without_layer_reuse, series_row

__all__ = [
    "LIMITERS",
    "ComparedPair",
    "Limits",
    "SeriesRow",
    "TableComparison",
    "compare_rows",
    "comparison_table",
    "draw_comparison",
    "draw_series",
    "layers_fit",
    "level_without_layer_reuse",
    "limits_of",
    "read_rows",
    "series_row",
    "shape_colour",
]
