"""``perflex machine``: the hardware facts that features read, with their sources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from perflex.cli.columns import Column
from perflex.cli.completion import complete_machine
from perflex.cli.json_output import as_json, picked, print_json
from perflex.cli.machine_detect import detect
from perflex.cli.options import JsonOption  # noqa: TC001 - typer reads the annotations
from perflex.cli.terminal import terminal_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.machines.machine import Machine
    from perflex.machines.units import Source

machine = typer.Typer(
    no_args_is_help=True,
    help="List machines, show the facts of one with their sources, detect this one.",
    epilog="Example: perflex machine show V100",
)


@machine.command("list", epilog="Example: perflex machine list --json")
def list_(context: typer.Context, *, as_json: JsonOption = False) -> None:
    """List the machines that come with perflex."""
    from perflex.machines.lookup import load_machine, machine_names

    machines = [load_machine(name) for name in machine_names()]
    if as_json:
        print_json([picked(entry, "name", "vendor", "kind", "aliases") for entry in machines])
        return
    rows = [(entry.name, f"{entry.vendor} {entry.kind}", ", ".join(entry.aliases)) for entry in machines]
    columns = [Column("", left=True), Column("", left=True), Column("", left=True, wraps=True)]
    terminal_of(context).show_table(columns, rows)


@machine.command("show", epilog="Example: perflex machine show A100-40GB")
def show(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(autocompletion=complete_machine, help="A machine's name, a name of its device, or a YAML file."),
    ],
    *,
    as_json: JsonOption = False,
) -> None:
    """Show the hardware facts of a machine, with their sources."""
    from perflex.machines.lookup import load_machine
    from perflex.machines.machine import FACTS

    found = load_machine(name)
    if as_json:
        print_json(_content(found))
        return
    terminal = terminal_of(context)
    terminal.show(f"{found.name}: {found.vendor} {found.kind}", style="bold")
    if found.aliases:
        terminal.show(f"devices: {', '.join(found.aliases)}")
    # Sources are cited by number, as in a paper, for many facts share one.
    numbers = {source: number for number, source in enumerate(dict.fromkeys(found.sources.values()), start=1)}
    width = max(map(len, FACTS))
    for fact, what in FACTS.items():
        value = getattr(found, fact)
        # A CPU has no banks of local memory: that is not worth a line, an unknown clock is.
        if value is None and found.kind not in what.kinds:
            continue
        if value is None:
            terminal.show(f"  {fact.ljust(width)}  not known", style="dim")
            continue
        source = f"[{numbers[found.sources[fact]]}]" if fact in found.sources else ""
        line = f"  {fact.ljust(width)}  {_amount(value, what.unit)}  {source}"
        terminal.show(line.rstrip())
    for line in _level_lines(found, numbers):
        terminal.show(line)
    for curve, coefficients in found.curves.items():
        terminal.show(f"  curve {curve}: a, b, c = {coefficients}")
    for level, ceiling in found.ceilings.items():
        unit = "instruction/s" if level == "instructions" else "B/s"
        line = f"  roofline ceiling {level}: {ceiling.rate / 1e9:g} G{unit}  ({ceiling.source.text})"
        terminal.show(line)
    for origin, number in numbers.items():
        terminal.show(f"[{number}] {origin.kind}: {origin.text}", style="dim")


machine.command(
    "detect", short_help="Describe this CPU in a machine file.", epilog="Example: perflex machine detect --out cpu.yaml"
)(detect)


def _content(found: Machine) -> dict[str, object]:
    from perflex.machines.machine import FACTS

    facts = {
        fact: {
            "value": value,
            "unit": FACTS[fact].unit,
            "source": _cited(found.sources[fact]) if fact in found.sources else "",
        }
        for fact, value in found.known().items()
    }
    return {
        **picked(found, "name", "aliases", "vendor", "kind"),
        "facts": facts,
        "l1_rules": found.l1_rules,
        "levels": [_with_sources(level, found, level.name) for level in found.levels],
        "memory_streams": [_with_sources(stream, found, f"memory.{stream.name}") for stream in found.memory_streams],
        "curves": found.curves,
        "ceilings": {
            level: {"rate": ceiling.rate, "source": _cited(ceiling.source)} for level, ceiling in found.ceilings.items()
        },
        "unknown": [fact for fact, what in FACTS.items() if getattr(found, fact) is None and found.kind in what.kinds],
    }


def _cited(source: Source) -> str:
    return f"{source.kind}: {source.text}"


def _with_sources(part: object, found: Machine, name: str) -> dict[str, object]:
    own = {key: source for key, source in found.sources.items() if key == name or key.startswith(f"{name}.")}
    return {**as_json(part), "sources": {key.removeprefix(f"{name}."): _cited(source) for key, source in own.items()}}


def _level_lines(found: Machine, numbers: Mapping[Source, int]) -> list[str]:
    lines = []
    if found.kind == "gpu":
        cited = f"  [{numbers[found.sources['l1_rules']]}]" if "l1_rules" in found.sources else ""
        lines.append(f"  rules of L1's cycles (l1_rules): {found.l1_rules or 'not known'}{cited}")
    for level in found.levels:
        ways = f"{level.ways}-way, " if level.ways is not None else ""
        kinds = [kind for kind, there in (("write-allocate", level.write_allocate), ("victim", level.victim)) if there]
        rates = [
            f"{way} {rate:g} B/cycle"
            for way, rate in (("load", level.load_bytes_per_cycle), ("store", level.store_bytes_per_cycle))
            if rate is not None
        ]
        both = ["both ways at once" if level.duplex else "one way at a time"] if rates else []
        used = sorted({numbers[source] for key, source in found.sources.items() if key.startswith(f"{level.name}.")})
        lines.append(
            f"  level {level.name}: {_amount(level.size_bytes, 'B')} for {level.shared_by} core(s), {ways}"
            f"{level.line_bytes} B lines; {', '.join([*kinds, *rates, *both])}; with what is beyond: {level.overlap}  "
            + "".join(f"[{number}]" for number in used)
        )
    for stream in found.memory_streams:
        arrays = f"{stream.loads} loaded, {stream.stores} stored, {stream.write_allocates} write-allocated"
        source = numbers[found.sources[f"memory.{stream.name}"]]
        lines.append(f"  memory {stream.name}: {_amount(stream.bandwidth, 'B/s')} per domain ({arrays})  [{source}]")
    return lines


def _amount(value: float, unit: str) -> str:
    if unit == "B":
        # Only whole multiples: a rounded cache size would not be the one that is computed with.
        for factor, larger in ((2**20, "MiB"), (2**10, "KiB")):
            if value >= factor and value % factor == 0:
                return f"{value / factor:g} {larger}"
    if unit in {"Hz", "B/s"}:
        return f"{value / 1e9:g} G{unit}"
    return f"{value:.10g}" if unit == "1" else f"{value:.10g} {unit}"
