"""Reading one quantity of a machine's file: its value in SI units, and its source."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from perflex.machines.machine import UNITS

if TYPE_CHECKING:
    from perflex.machines.machine import Source
    from perflex.yaml_file import Section

__all__ = ["read_source", "read_value"]


def read_value(entry: Section, si_unit: str, *, whole: bool, zero: bool = False) -> float:
    """Return the ``value`` of an entry in SI units, converted from its ``unit``.

    Raises
    ------
    FileFormatError
        The unit is of another dimension, or the value is negative, not whole, or zero where it must not be.
    """
    value, unit = entry.number("value"), entry.text("unit")
    allowed = UNITS[si_unit]
    if unit not in allowed:
        msg = f"the unit must be one of {', '.join(map(repr, allowed))}, not {unit!r}"
        raise entry.error(msg, "unit")
    value *= allowed[unit]
    if value < 0 or (value == 0 and not zero):
        msg = f"it must be {'zero or more' if zero else 'more than zero'}"
        raise entry.error(msg, "value")
    if whole and value != math.floor(value):
        msg = f"it must be a whole number of {si_unit if si_unit != '1' else 'units'}, not {value}"
        raise entry.error(msg, "value")
    return value


def read_source(entry: Section, sources: dict[str, Source]) -> Source:
    """Return the source that an entry names.

    Raises
    ------
    FileFormatError
        The file has no such source.
    """
    key = entry.text("source")
    if key not in sources:
        msg = f"there is no source {key!r}; the file has {', '.join(sources) or 'none'}"
        raise entry.error(msg, "source")
    return sources[key]
