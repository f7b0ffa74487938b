"""``perflex machine``: the hardware facts that features read, with their sources."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from perflex.cli.completion import complete_machine
from perflex.cli.json_output import as_json, picked, print_json
from perflex.cli.options import DeviceOption, JsonOption
from perflex.cli.terminal import terminal_of

if TYPE_CHECKING:
    from perflex.cli.terminal import Terminal
    from perflex.machines.machine import Machine, Source
    from perflex.studies.machine_detect import Detected

machine = typer.Typer(no_args_is_help=True, help="Show the facts of a machine with their sources, detect this one.")


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
    from perflex.machines.files import load_machine

    found = load_machine(name)
    if as_json:
        print_json(_content(found))
        return
    terminal = terminal_of(context)
    terminal.show(f"{found.name}: {found.vendor} {found.kind}", style="bold")
    if found.aliases:
        terminal.show(f"devices: {', '.join(found.aliases)}")
    for table in found.tables():
        terminal.show_result(table)
    unknown = [f"not known: {', '.join(found.unknown())}"] if found.unknown() else []
    terminal.show(*unknown, *found.source_lines())


@machine.command(
    short_help="Describe this CPU in a machine file.", epilog="Example: perflex machine detect --out cpu.yaml"
)
def detect(
    context: typer.Context,
    *,
    out: Annotated[Path | None, typer.Option(help="File to write, NAME.yaml.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Measure for a shorter time, with less precision.")] = False,
    device: DeviceOption = "",
    overlap: Annotated[
        Literal["sum", "max"] | None,
        typer.Option(help="Overlap of cache levels; by default what is usual for the vendor."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Describe this CPU in a machine file: reported caches, measured clock and bandwidths; takes a minute or two."""
    from perflex.cli.arguments import ArgumentError, require_writable_file
    from perflex.studies.machine_detect import cpu_device, detect_machine
    from perflex.yaml_file import write_yaml

    terminal = terminal_of(context)
    if out is not None:
        if out.suffix not in {".yaml", ".yml"}:
            raise ArgumentError(f"machine files end in .yaml, not {out.name!r}; name another with --out")
        require_writable_file(out)
    where = cpu_device(device)
    terminal.remarks.print(f"device: {where}", markup=False)
    with terminal.warnings_shown(), terminal.progress("detecting:") as progress:
        found = detect_machine(where, overlap=overlap, quick=quick, progress=progress)
    for remark in found.remarks:
        terminal.remarks.print(f"warning: {remark}", style="yellow", markup=False, soft_wrap=True)
    if out is not None:
        write_yaml(out, found.document)
    if as_json:
        print_json(found.document)
        return
    _show_detected(terminal, found)
    if out is not None:
        terminal.show_paths(out)


def _show_detected(terminal: Terminal, found: Detected) -> None:
    cpu, rates = found.cpu, found.rates
    terminal.show(f"{cpu.model or 'CPU'}: {cpu.cores} cores, {rates.clock_hz / 1e9:.3g} GHz (measured)")
    terminal.show_result(found.table())
    streams = [(name, rates.numbers[f"memory {name}"] / 1e9) for name in ("copy", "triad")]
    terminal.show(*(f"memory, {name}: {rate:.1f} GB/s (all cores)" for name, rate in streams))
    hypothesis = found.document["levels"][0]["overlap"]["value"]
    terminal.show(f"overlap of levels: {hypothesis} ({found.document['sources']['overlap']['text']})")


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
        "ceilings": {
            level: {"rate": ceiling.rate, "source": _cited(ceiling.source)} for level, ceiling in found.ceilings.items()
        },
        "unknown": found.unknown(),
    }


def _cited(source: Source) -> str:
    return f"{source.kind}: {source.text}"


def _with_sources(part: object, found: Machine, name: str) -> dict[str, object]:
    own = {key: source for key, source in found.sources.items() if key == name or key.startswith(f"{name}.")}
    return {**as_json(part), "sources": {key.removeprefix(f"{name}."): _cited(source) for key, source in own.items()}}
