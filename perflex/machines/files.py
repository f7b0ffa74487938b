"""Reading a machine's YAML file: strict, with the line in every complaint."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from perflex.machines.ceilings import CEILING_LEVELS, PublishedCeiling
from perflex.machines.entries import LEVEL_UNITS, MachineFile
from perflex.machines.levels import CacheLevel, MemoryStream
from perflex.machines.machine import FACTS, Machine
from perflex.machines.units import UNITS, Source
from perflex.yaml_file import read_yaml

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from perflex.machines.entries import Entry, Level, Quantity, Stream
    from perflex.yaml_file import Section

FORMAT = "perflex-machine/1"
# Names that results use for what is no cache.
_NO_CACHE = ("mem", "memory")


def read_machine(path: Path | str) -> Machine:
    """Read a machine from a file.

    Raises
    ------
    FileFormatError
        The file cannot be read, or a field is missing, unknown or wrong; it is named with its line.
    """
    return _Reader(read_yaml(path, FORMAT)).machine()


class _Reader:
    """Makes a machine of a file's content, in SI units."""

    def __init__(self, top: Section) -> None:
        self._top = top
        self._file = top.read(MachineFile)
        self._sources = {key: Source(entry.kind, entry.text) for key, entry in self._file.sources.items()}
        self._origins: dict[str, Source] = {}

    def machine(self) -> Machine:
        """Return the machine."""
        file = self._file
        if not file.name.strip() or file.name != file.name.strip():
            msg = f"a name without blanks around it must stand here, not {file.name!r}"
            raise self._top.error(msg, "name")
        facts = {name: self._fact(name, entry) for name, entry in file.facts.items()}
        if file.l1_rules is not None:
            self._origins["l1_rules"] = self._source(file.l1_rules, "l1_rules")
        levels = self._levels(file.levels)
        streams = tuple(self._stream(stream, place) for place, stream in enumerate(file.memory_streams))
        for name, curve in file.curves.items():
            self._source(curve, "curves", name)
        return Machine(
            name=file.name,
            aliases=file.aliases,
            vendor=file.vendor,
            kind=file.kind,
            l1_rules=None if file.l1_rules is None else file.l1_rules.value,
            **facts,
            levels=levels,
            memory_streams=streams,
            curves={name: (curve.a, curve.b, curve.c) for name, curve in file.curves.items()},
            sources=self._origins,
            ceilings={level: self._ceiling(level, rate) for level, rate in file.ceilings.items()},
        )

    # Any: the fields of a machine are whole numbers or not.
    def _fact(self, name: str, entry: Quantity) -> Any:
        self._require_known("fact", name, FACTS, "facts")
        what = FACTS[name]
        self._origins[name] = self._source(entry, "facts", name)
        return self._value(entry, what.unit, "facts", name, whole=what.whole, zero=what.zero)

    def _levels(self, entries: Iterable[Level]) -> tuple[CacheLevel, ...]:
        levels: list[CacheLevel] = []
        for place, entry in enumerate(entries):
            level = self._level(entry, place)
            cause, key = _misplaced(level, levels)
            if cause:
                raise self._top.error(cause, "levels", place, key)
            levels.append(level)
        return tuple(levels)

    def _level(self, entry: Level, place: int) -> CacheLevel:
        values: dict[str, Any] = {}
        for key in entry.__struct_fields__[1:]:  # all but the name
            found, where = getattr(entry, key), ("levels", place, key)
            values[key] = found
            if found is not None:
                unit, whole = LEVEL_UNITS.get(key, ("", False))
                values[key] = self._value(found, unit, *where, whole=whole) if unit else found.value
                self._origins[f"{entry.name}.{key}"] = self._source(found, *where)
        return CacheLevel(entry.name, **values)

    def _stream(self, entry: Stream, place: int) -> MemoryStream:
        arrays = (entry.loads, entry.stores, entry.write_allocates)
        if min(arrays) < 0 or sum(arrays) == 0:
            msg = "the numbers of arrays must be zero or more, and not all zero"
            raise self._top.error(msg, "memory_streams", place, "loads")
        where = ("memory_streams", place, "bandwidth")
        self._origins[f"memory.{entry.name}"] = self._source(entry.bandwidth, *where)
        return MemoryStream(entry.name, *arrays, self._value(entry.bandwidth, "B/s", *where))

    def _ceiling(self, level: str, entry: Quantity) -> PublishedCeiling:
        self._require_known("ceiling", level, CEILING_LEVELS, "ceilings")
        unit = "instruction/s" if level == "instructions" else "B/s"
        where = ("ceilings", level)
        return PublishedCeiling(self._value(entry, unit, *where), self._source(entry, *where))

    def _require_known(self, what: str, name: str, known: Iterable[str], section: str) -> None:
        if name not in known:
            msg = f"there is no such {what}; known are {', '.join(known)}"
            raise self._top.error(msg, section, name)

    def _value(
        self, entry: Quantity, si_unit: str, *where: str | int, whole: bool = False, zero: bool = False
    ) -> float:
        """Return a number in SI units."""
        allowed = UNITS[si_unit]
        if entry.unit not in allowed:
            msg = f"the unit must be one of {', '.join(map(repr, allowed))}, not {entry.unit!r}"
            raise self._top.error(msg, *where, "unit")
        value = entry.value * allowed[entry.unit]
        if value < 0 or (value == 0 and not zero):
            msg = f"it must be {'zero or more' if zero else 'more than zero'}"
            raise self._top.error(msg, *where, "value")
        if whole and value != math.floor(value):
            msg = f"it must be a whole number of {si_unit if si_unit != '1' else 'units'}, not {value}"
            raise self._top.error(msg, *where, "value")
        return int(value) if whole else value

    def _source(self, entry: Entry, *where: str | int) -> Source:
        if entry.source not in self._sources:
            msg = f"there is no source {entry.source!r}; the file has {', '.join(self._sources) or 'none'}"
            raise self._top.error(msg, *where, "source")
        return self._sources[entry.source]


def _misplaced(level: CacheLevel, before: list[CacheLevel]) -> tuple[str, str]:
    """Return what is wrong with a level, and in which field; empty where nothing is."""
    name = level.name
    # Level names become parts of feature identifiers, as in f_ecm_vol_l2.
    if not (name.isascii() and name.isalnum()) or name.lower() in _NO_CACHE:
        return f"a name of letters and digits such as L2 must stand here, not {name!r}", "name"
    if level.size_bytes < level.line_bytes * (level.ways or 1):
        return f"{level.size_bytes} B do not hold a set of {level.ways or 1} lines", "size_bytes"
    if name.lower() in {other.name.lower() for other in before}:
        return f"there are two levels {name}", "name"
    # Against a core's part: an instance may be smaller than that of a level which more cores share.
    if before and level.size_bytes * before[-1].shared_by <= before[-1].size_bytes:
        cause = f"level {name} must be larger than {before[-1].name}; the level next to the core comes first"
        return cause, "size_bytes"
    # The estimator counts the lines of all levels in the size of the first one's.
    if before and level.line_bytes != before[0].line_bytes:
        return f"lines of {level.line_bytes} B beyond lines of {before[0].line_bytes} B are not described", "line_bytes"
    return "", ""
