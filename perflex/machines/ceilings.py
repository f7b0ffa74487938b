"""Ceilings of the instruction roofline that were published for a machine, beside what its facts give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from perflex.machines.machine import UNITS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.machines.machine import Source
    from perflex.yaml_file import Section

__all__ = ["CEILING_LEVELS", "PublishedCeiling", "read_ceilings"]

# Warp-level instructions, and the levels that transactions go to.
CEILING_LEVELS = ("instructions", "l1", "local", "l2", "dram")
_INSTRUCTION_UNITS = {"instruction/s": 1.0, "Ginstruction/s": 1e9}


@dataclass(frozen=True)
class PublishedCeiling:
    """The most of something that a machine does in a second.

    Attributes
    ----------
    rate
        In instructions of sub-groups per second, or in B/s.
    source
        Where it comes from.
    """

    rate: float
    source: Source


def read_ceilings(top: Section, sources: Mapping[str, Source]) -> dict[str, PublishedCeiling]:
    """Read the section ``ceilings`` of a machine's file, which may be missing.

    Raises
    ------
    FileFormatError
        A level, unit or source is unknown, or a rate is not positive.
    """
    if "ceilings" not in top:
        return {}
    section = top.section("ceilings")
    found = {}
    for level in section:
        if level not in CEILING_LEVELS:
            msg = f"there is no such ceiling; known are {', '.join(CEILING_LEVELS)}"
            raise section.error(msg, level)
        found[level] = _read_ceiling(section.section(level), level, sources)
    return found


def _read_ceiling(entry: Section, level: str, sources: Mapping[str, Source]) -> PublishedCeiling:
    allowed = _INSTRUCTION_UNITS if level == "instructions" else UNITS["B/s"]
    value, unit, source = entry.number("value"), entry.text("unit"), entry.text("source")
    if unit not in allowed:
        msg = f"the unit must be one of {', '.join(map(repr, allowed))}, not {unit!r}"
        raise entry.error(msg, "unit")
    if value <= 0:
        msg = "it must be more than zero"
        raise entry.error(msg, "value")
    if source not in sources:
        msg = f"there is no source {source!r}; the file has {', '.join(sources) or 'none'}"
        raise entry.error(msg, "source")
    entry.finish()
    return PublishedCeiling(value * allowed[unit], sources[source])
