"""Remarks on accesses: what they are in the kernel, how often their elements are accessed, missing strides."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.features.counting.counts import AccessCounts, ScopCounts
    from perflex.features.counting.footprints import Footprint

__all__ = ["access_notes"]

_LISTED = 4
# A longer formula beside its value says less than the value alone.
_FORMULA_BESIDE_VALUE = 24
_AFR = {"=": "AFR", "<=": "AFR at most", ">=": "AFR at least", "~": "AFR about"}


def access_notes(counts: ScopCounts, selected: Sequence[AccessCounts], sizes: Mapping[str, Any] | None) -> str:
    """Return the accesses as written, those with the same remark together.

    Parameters
    ----------
    counts
        The counts that the accesses belong to.
    selected
        The accesses.
    sizes
        Value of each size parameter, or None for formulas only.
    """
    texts: dict[tuple[str, str], dict[str, None]] = {}
    for item in selected:
        reuse = _reuse(counts.footprint_among((item,)), sizes) if item.array.space == "global" else ""
        texts.setdefault((reuse, _missing(item)), {})[item.access.text] = None
    notes = []
    for (reuse, missing), distinct in texts.items():
        shown = list(distinct)[:_LISTED]
        if len(distinct) > _LISTED:
            shown.append(f"and {len(distinct) - _LISTED} more")
        each = " each" if reuse and len(distinct) > 1 else ""
        notes.append("; ".join(shown) + reuse + each + missing)
    return "; ".join(notes)


def _missing(item: AccessCounts) -> str:
    axes = [f"lid({axis})" for axis, stride in enumerate(item.local_strides) if stride is None]
    axes += [f"gid({axis})" for axis, stride in enumerate(item.group_strides) if stride is None]
    return f", not affine in {', '.join(axes)}" if axes else ""


def _reuse(touched: Footprint, sizes: Mapping[str, Any] | None) -> str:
    """Return the access-to-footprint ratio: formula, value, or both."""
    formula, is_formula = touched.formula("afr")
    parts = []
    if is_formula and (sizes is None or len(formula) <= _FORMULA_BESIDE_VALUE):
        parts.append(formula)
    value = math.nan if sizes is None else float(touched.afr.evaluate(sizes))
    if not math.isnan(value) and parts != [f"{value:.6g}"]:
        parts.append(f"{value:.6g}")
    return f", {_AFR[touched.afr_relation]} {' = '.join(parts)}" if parts else ""
