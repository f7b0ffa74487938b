"""What stands in a machine's file: numbers with a unit and a source, cache levels, memory bandwidths."""

from __future__ import annotations

from typing import Literal

import msgspec

from perflex.yaml_file import Fields, Finite


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


class Curve(Entry, frozen=True):
    """Coefficients of a capacity curve."""

    a: Finite
    b: Finite
    c: Finite


class SourceEntry(Fields, frozen=True):
    """An entry of ``sources``."""

    kind: Literal["datasheet", "reported", "measured", "derived", "assumed"]
    text: str


class Level(Fields, frozen=True, kw_only=True):
    """An entry of ``levels``; see `perflex.machines.levels.CacheLevel`."""

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
    """An entry of ``memory_streams``; see `perflex.machines.levels.MemoryStream`."""

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
    levels: tuple[Level, ...] = ()
    memory_streams: tuple[Stream, ...] = ()
    curves: dict[str, Curve]
    ceilings: dict[str, Quantity] = msgspec.field(default_factory=dict)
