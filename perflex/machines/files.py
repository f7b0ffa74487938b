"""Reading a machine's YAML file: strict, with the line in every complaint."""

from __future__ import annotations

import difflib
import math
import re
from functools import lru_cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from perflex.errors import MachineError
from perflex.machines.machine import (
    CEILING_LEVELS,
    FACTS,
    UNITS,
    CacheLevel,
    Machine,
    MemoryStream,
    PublishedCeiling,
    Source,
)
from perflex.yaml_file import Fields, Finite, read_yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from perflex.yaml_file import Section


class Entry(Fields, frozen=True):
    """What every fact has: the key of its source."""

    source: str


class Quantity(Entry, frozen=True):
    """A number in any unit of its dimension."""

    value: Finite
    unit: str


class Flag(Entry, frozen=True):
    """Whether something is so."""

    value: bool


class Overlap(Entry, frozen=True):
    """How a level's time composes with that of the levels beyond it."""

    value: Literal["sum", "max"]


class L1Rules(Entry, frozen=True):
    """Whose rules the first cache of a GPU follows; see `perflex.machines.machine.L1_RULES`."""

    value: Literal["nvidia", "nvidia_volta", "amd_cdna2", "amd_rdna2", "sector_banks"]


class CodeTarget(Entry, frozen=True):
    """What LLVM compiles for, as ``gfx90a``."""

    value: str


class SourceEntry(Fields, frozen=True):
    """An entry of ``sources``."""

    kind: Literal["datasheet", "reported", "measured", "derived", "assumed"]
    text: str


class Level(Fields, frozen=True, kw_only=True):
    """An entry of ``levels``; see `perflex.machines.machine.CacheLevel`."""

    name: str
    size_bytes: Quantity
    shared_by: Quantity
    line_bytes: Quantity
    ways: Quantity | None = None
    write_allocate: Flag
    victim: Flag
    load_bytes_per_cycle: Quantity | None = None
    store_bytes_per_cycle: Quantity | None = None
    duplex: Flag
    overlap: Overlap
    hashed: Flag | None = None


# SI unit of each quantity of a level, and whether it is a whole number.
LEVEL_UNITS = {
    "size_bytes": ("B", True),
    "shared_by": ("core", True),
    "line_bytes": ("B", True),
    "ways": ("way", True),
    "load_bytes_per_cycle": ("B/cycle", False),
    "store_bytes_per_cycle": ("B/cycle", False),
}


class Stream(Fields, frozen=True):
    """An entry of ``memory_streams``; see `perflex.machines.machine.MemoryStream`."""

    name: str
    loads: int
    stores: int
    write_allocates: int
    bandwidth: Quantity


class MachineFile(Fields, frozen=True, kw_only=True):
    """The content of a machine's file."""

    name: str
    aliases: tuple[str, ...]
    vendor: str
    kind: Literal["gpu", "cpu"]
    sources: dict[str, SourceEntry]
    facts: dict[str, Quantity]
    l1_rules: L1Rules | None = None
    target: CodeTarget | None = None
    levels: tuple[Level, ...] = ()
    memory_streams: tuple[Stream, ...] = ()
    ceilings: dict[str, Quantity] = msgspec.field(default_factory=dict)


FORMAT = "perflex-machine/1"
_TARGET = re.compile(r"gfx\d+[0-9a-f]{2}")
# Names that results use for what is no cache.
_NO_CACHE = ("mem", "memory")


def read_machine(path: Path | str) -> Machine:
    """Read a machine from a file."""
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
        for name, word in (("l1_rules", file.l1_rules), ("target", file.target)):
            if word is not None:
                self._origins[name] = self._source(word, name)
        if file.target is not None and not _TARGET.fullmatch(file.target.value):
            msg = f"LLVM's name of a GPU must stand here, such as gfx90a, not {file.target.value!r}"
            raise self._top.error(msg, "target", "value")
        levels = self._levels(file.levels)
        streams = tuple(self._stream(stream, place) for place, stream in enumerate(file.memory_streams))
        for name, cause in _contradictions(file.kind, facts):
            raise self._top.error(cause, "facts", name, "value")
        return Machine(
            name=file.name,
            aliases=file.aliases,
            vendor=file.vendor,
            kind=file.kind,
            l1_rules=None if file.l1_rules is None else file.l1_rules.value,
            target=None if file.target is None else file.target.value,
            **facts,
            levels=levels,
            memory_streams=streams,
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


# Facts of which the first is at most the second.
_AT_MOST = {
    "l2_effective_bytes": "l2_bytes",
    "local_bytes_per_group": "local_bytes",
    "sector_bytes": "line_bytes",
    "max_items_per_group": "max_items_per_unit",
    "registers_per_item_max": "registers_per_unit",
    "cores_per_domain": "cores",
}


def _contradictions(kind: str, facts: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    """Yield facts that cannot be with the others, and why."""
    for name, most in _AT_MOST.items():
        if name in facts and most in facts and facts[name] > facts[most]:
            yield name, f"it must be at most {most}, {facts[most]}, not {facts[name]}"
    of_domains = [facts[name] for name in ("cores_per_domain", "domains", "cores") if name in facts]
    if len(of_domains) == 3 and of_domains[0] * of_domains[1] != of_domains[2]:
        each, domains, cores = of_domains
        yield "cores", f"{domains} domains with {each} cores each do not have {cores} cores"
    if facts.get("domain_efficiency", 0) > 1:
        yield "domain_efficiency", "it is the part of the domains' bandwidths that they reach together, at most 1"
    for name in ("line_bytes", "sector_bytes") if kind == "gpu" else ():
        # Addresses are taken to repeat after lines in periods that all divide the longest.
        if name in facts and int(facts[name]) & (int(facts[name]) - 1):
            yield name, f"it must be a power of two, not {facts[name]}"


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


_SUFFIXES = (".yaml", ".yml")
_HOME = "perflex.calib_data"


@lru_cache(maxsize=1)
def machine_names() -> tuple[str, ...]:
    """Return the names of the machines that come with perflex, sorted."""
    folder = files(_HOME) / "machines"
    return tuple(sorted(Path(entry.name).stem for entry in folder.iterdir() if entry.name.endswith(".yaml")))


@lru_cache(maxsize=64)
def _shipped(name: str) -> Machine:
    with as_file(files(_HOME) / "machines" / f"{name}.yaml") as path:
        return read_machine(path)


def load_machine(place: str | Path | Machine) -> Machine:
    """Return a machine.

    Parameters
    ----------
    place
        The name of a shipped machine or one of its aliases (upper and lower case mean the same), or a YAML file
        (a path, or a name that ends in ``.yaml``).

    Raises
    ------
    MachineError
        No machine has that name; the message lists those there are.
    FileFormatError
        The file cannot be read, or a field of it is missing, unknown or wrong.
    """
    if isinstance(place, Machine):
        return place
    given: object = place
    if not isinstance(given, (str, Path)):
        msg = f"a machine is given by its name, its file or a Machine, not by {place!r}"
        raise MachineError(msg)
    if isinstance(place, Path) or place.endswith(_SUFFIXES):
        return read_machine(place)
    by_name = {name.casefold(): name for name in machine_names()}
    if place.casefold() in by_name:
        return _shipped(by_name[place.casefold()])
    found = machine_of_device(place)
    if found is not None:
        return found
    # difflib rates a short beginning of a long name low, though it is the likelier meaning.
    begun = [name for name in by_name if name.startswith(place.casefold())] if place else []
    near = begun or difflib.get_close_matches(place.casefold(), by_name, n=2, cutoff=0.5)
    hint = f"did you mean {' or '.join(by_name[name] for name in near)}? " if near else ""
    msg = f"no machine is called {place!r}; {hint}there are {', '.join(machine_names())}, or name a file NAME.yaml"
    raise MachineError(msg, machine=place)


def machine_of_device(device: str) -> Machine | None:
    """Return the shipped machine that a device's name stands for, None if there is none."""
    # Processors' brand strings, which drivers pass on, may hold runs of blanks.
    wanted = " ".join(device.split()).casefold()
    # To read a file takes a hundred times as long as to see that it does not have the name.
    names = (name for name in machine_names() if wanted in _shipped_text(name))
    return next((one for one in map(_shipped, names) if wanted in {alias.casefold() for alias in one.aliases}), None)


@lru_cache(maxsize=64)
def _shipped_text(name: str) -> str:
    return " ".join((files(_HOME) / "machines" / f"{name}.yaml").read_text(encoding="utf-8").split()).casefold()
