"""Reading a machine's YAML file: strict, with the line in every complaint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perflex.machines.ceilings import read_ceilings
from perflex.machines.entries import read_levels, read_source, read_streams, read_value
from perflex.machines.machine import FACTS, KINDS, Machine, Source
from perflex.yaml_file import read_yaml

if TYPE_CHECKING:
    from pathlib import Path

    from perflex.yaml_file import Section

__all__ = ["FORMAT", "read_machine"]

FORMAT = "perflex-machine/1"
_SOURCE_KINDS = ("datasheet", "reported", "measured", "derived", "assumed")


def read_machine(path: Path | str) -> Machine:
    """Read a machine from a file.

    Raises
    ------
    FileFormatError
        The file cannot be read, or a field is missing, unknown or wrong; it is named with its line.
    """
    top = read_yaml(path, FORMAT)
    kind = top.text("kind")
    if kind not in KINDS:
        msg = f"it must be one of {', '.join(KINDS)}, not {kind!r}"
        raise top.error(msg, "kind")
    name = top.text("name")
    if not name.strip() or name != name.strip():
        msg = f"a name without blanks around it must stand here, not {name!r}"
        raise top.error(msg, "name")
    sources = _read_sources(top.section("sources"))
    facts = top.section("facts")
    values: dict[str, float] = {}
    origins: dict[str, Source] = {}
    for fact in facts:
        if fact not in FACTS:
            msg = f"there is no such fact; known are {', '.join(FACTS)}"
            raise facts.error(msg, fact)
        values[fact], origins[fact] = _read_fact(facts.section(fact), fact, sources)
    curves = top.section("curves")
    levels = read_levels(top, sources, origins) if "levels" in top else ()
    streams = read_streams(top, sources, origins) if "memory_streams" in top else ()
    machine = Machine(
        name=name,
        aliases=top.texts("aliases"),
        vendor=top.text("vendor"),
        kind=kind,
        **{fact: int(value) if FACTS[fact].whole else value for fact, value in values.items()},  # type: ignore[arg-type]
        levels=levels,
        memory_streams=streams,
        curves={curve: _read_curve(curves.section(curve), sources) for curve in curves},
        sources=origins,
        ceilings=read_ceilings(top, sources),
    )
    top.finish()
    return machine


def _read_sources(section: Section) -> dict[str, Source]:
    sources = {}
    for key in section:
        entry = section.section(key)
        kind = entry.text("kind")
        if kind not in _SOURCE_KINDS:
            msg = f"it must be one of {', '.join(_SOURCE_KINDS)}, not {kind!r}"
            raise entry.error(msg, "kind")
        sources[key] = Source(kind, entry.text("text"))
        entry.finish()
    return sources


def _read_fact(entry: Section, fact: str, sources: dict[str, Source]) -> tuple[float, Source]:
    what = FACTS[fact]
    value = read_value(entry, what.unit, whole=what.whole, zero=what.zero)
    source = read_source(entry, sources)
    entry.finish()
    return value, source


def _read_curve(entry: Section, sources: dict[str, Source]) -> tuple[float, float, float]:
    curve = entry.number("a"), entry.number("b"), entry.number("c")
    read_source(entry, sources)
    entry.finish()
    return curve
