"""Units of hardware facts, and where a fact comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# What each unit is in SI units; units of one dimension can stand for one another in a file.
UNITS: Mapping[str, Mapping[str, float]] = {
    unit: group
    for group in (
        {"1": 1.0},
        {"work-item": 1.0},
        {"work-group": 1.0},
        {"work-group/s": 1.0, "Mwork-group/s": 1e6},
        {"register": 1.0},
        {"s": 1.0, "ns": 1e-9},
        {"Hz": 1.0, "MHz": 1e6, "GHz": 1e9},
        {"B": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30},
        {"B/s": 1.0, "GB/s": 1e9, "TB/s": 1e12},
        {"B/cycle": 1.0},
        {"op/cycle": 1.0},
        {"instruction/s": 1.0, "Ginstruction/s": 1e9},
        {"core": 1.0},
        {"domain": 1.0},
        {"way": 1.0},
        {"cycle": 1.0},
    )
    for unit in group
}


@dataclass(frozen=True)
class Source:
    """Where a fact comes from.

    Attributes
    ----------
    kind
        ``"datasheet"`` (the maker's documents), ``"reported"`` (by the operating system), ``"measured"``,
        ``"derived"`` from other facts, or ``"assumed"``.
    text
        The document or measurement.
    """

    kind: str
    text: str
