"""A feature table in HTML, for notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perflex.html import Column, element, notebook, percent, significant, table, times

if TYPE_CHECKING:
    from perflex.fit.table import FeatureTable

# More rows than anybody reads; the table itself has them all.
_SHOWN = 100


def feature_table_html(features: FeatureTable) -> str:
    """Return a feature table for a notebook: a row per kernel, a column per feature, `_SHOWN` rows at most."""
    columns = [Column("kernel")]
    for name in features.features:
        known = features.info.get(name)
        unit = "" if known is None else known.unit
        # A measured time in seconds: in the unit that suits it.
        measured = name == features.output and unit in {"s", ""} and "time" in name
        columns.append(times(name, features.column(name).tolist()) if measured else Column(name, significant, unit))
    spread = features.spread
    if spread is not None:
        columns.append(percent("spread", meaning="relative spread of repeated timings"))
    rows = [
        [kernel, *features.values[i].tolist(), *([] if spread is None else [float(spread[i])])]
        for i, kernel in enumerate(features.kernels[:_SHOWN])
    ]
    more = len(features) - len(rows)
    left_out = f"; {len(features.dropped)} kernels were left out" if features.dropped else ""
    line = f"{len(features)} kernels{f', the first {_SHOWN} shown' if more > 0 else ''}{left_out}"
    where = f" on {features.device}" if features.device else ""
    return notebook(
        element("p", f"{line}{where}; {features.sub_group_size} work-items per sub-group"), table(columns, rows)
    )
