"""Reading the cache levels and memory bandwidths of a machine's file."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from perflex.machines.levels import OVERLAPS, CacheLevel, MemoryStream
from perflex.machines.machine import UNITS

if TYPE_CHECKING:
    from perflex.machines.machine import Source
    from perflex.yaml_file import Section

__all__ = ["read_levels", "read_source", "read_streams", "read_value"]


# Names that results use for what is no cache.
_TAKEN = ("mem", "memory")


def read_levels(top: Section, sources: dict[str, Source], origins: dict[str, Source]) -> tuple[CacheLevel, ...]:
    """Return the entries of ``levels``; the source of each quantity goes to `origins`.

    Raises
    ------
    FileFormatError
        A field is missing, unknown or wrong.
    """
    levels: list[CacheLevel] = []
    for entry in top.sections("levels"):
        level = _Entry(entry, sources, origins).level()
        if levels and level.size_bytes * levels[-1].shared_by <= levels[-1].size_bytes:
            msg = f"level {level.name} must be larger than {levels[-1].name}; the level next to the core comes first"
            raise entry.error(msg, "size_bytes")
        if levels and level.line_bytes != levels[0].line_bytes:
            msg = f"lines of {level.line_bytes} B beyond lines of {levels[0].line_bytes} B are not described"
            raise entry.error(msg, "line_bytes")
        if level.name.lower() in {other.name.lower() for other in levels}:
            msg = f"there are two levels {level.name}"
            raise entry.error(msg, "name")
        levels.append(level)
    return tuple(levels)


def read_streams(top: Section, sources: dict[str, Source], origins: dict[str, Source]) -> tuple[MemoryStream, ...]:
    """Return the entries of ``memory_streams``; the source of each bandwidth goes to `origins`.

    Raises
    ------
    FileFormatError
        A field is missing, unknown or wrong.
    """
    streams: list[MemoryStream] = []
    for entry in top.sections("memory_streams"):
        name = entry.text("name")
        loads, stores, allocates = (entry.integer(key) for key in ("loads", "stores", "write_allocates"))
        if min(loads, stores, allocates) < 0 or loads + stores + allocates == 0:
            msg = "the numbers of arrays must be zero or more, and not all zero"
            raise entry.error(msg, "loads")
        bandwidth = entry.section("bandwidth")
        value = read_value(bandwidth, "B/s", whole=False)
        origins[f"memory.{name}"] = read_source(bandwidth, sources)
        bandwidth.finish()
        entry.finish()
        streams.append(MemoryStream(name, loads, stores, allocates, value))
    return tuple(streams)


class _Entry:
    """An entry of ``levels``."""

    def __init__(self, entry: Section, sources: dict[str, Source], origins: dict[str, Source]) -> None:
        self._entry, self._sources, self._origins = entry, sources, origins
        self._name = entry.text("name")
        if not (self._name.isascii() and self._name.isalnum()) or self._name.lower() in _TAKEN:
            msg = f"a name of letters and digits such as L2 must stand here, not {self._name!r}"
            raise entry.error(msg, "name")

    def level(self) -> CacheLevel:
        """Return what the entry says."""
        level = CacheLevel(
            name=self._name,
            size_bytes=int(self._number("size_bytes", "B", whole=True)),
            shared_by=int(self._number("shared_by", "core", whole=True)),
            line_bytes=int(self._number("line_bytes", "B", whole=True)),
            ways=int(self._number("ways", "way", whole=True)) if "ways" in self._entry else None,
            write_allocate=self._flag("write_allocate"),
            victim=self._flag("victim"),
            load_bytes_per_cycle=self._bandwidth("load_bytes_per_cycle"),
            store_bytes_per_cycle=self._bandwidth("store_bytes_per_cycle"),
            duplex=self._flag("duplex"),
            overlap=self._overlap(),
        )
        if level.size_bytes < level.line_bytes * (level.ways or 1):
            msg = f"{level.size_bytes} B do not hold a set of {level.ways or 1} lines"
            raise self._entry.error(msg, "size_bytes")
        self._entry.finish()
        return level

    def _number(self, key: str, unit: str, *, whole: bool) -> float:
        entry = self._entry.section(key)
        value = read_value(entry, unit, whole=whole)
        self._sourced(entry, key)
        return value

    def _bandwidth(self, key: str) -> float | None:
        return self._number(key, "B/cycle", whole=False) if key in self._entry else None

    def _flag(self, key: str) -> bool:
        entry = self._entry.section(key)
        value = entry.flag("value")
        self._sourced(entry, key)
        return value

    def _overlap(self) -> str:
        entry = self._entry.section("overlap")
        value = entry.text("value")
        if value not in OVERLAPS:
            msg = f"it must be one of {', '.join(OVERLAPS)}, not {value!r}"
            raise entry.error(msg, "value")
        self._sourced(entry, "overlap")
        return value

    def _sourced(self, entry: Section, key: str) -> None:
        self._origins[f"{self._name}.{key}"] = read_source(entry, self._sources)
        entry.finish()


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
