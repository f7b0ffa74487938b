"""``perflex machine``: the hardware facts that features read, with their sources."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from perflex.cli.arguments import ArgumentError
from perflex.cli.completion import complete_machine
from perflex.cli.json_output import as_json, picked, print_json
from perflex.cli.options import DeviceOption, JsonOption
from perflex.cli.terminal import Terminal, terminal_of
from perflex.file_io import require_writable
from perflex.machines.files import load_machine

if TYPE_CHECKING:
    from perflex.machines.machine import Machine
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
    from perflex.studies.machine_detect import cpu_device, detect_machine
    from perflex.yaml_file import write_yaml

    terminal = terminal_of(context)
    if out is not None:
        if out.suffix not in {".yaml", ".yml"}:
            raise ArgumentError(f"machine files end in .yaml, not {out.name!r}; name another with --out")
        require_writable(out)
    where = cpu_device(device)
    terminal.remark(f"device: {where}")
    with terminal.warnings_shown(), terminal.progress("detecting:") as progress:
        found = detect_machine(where, overlap=overlap, quick=quick, progress=progress)
    for text in found.remarks:
        terminal.remark(f"warning: {text}", style="yellow")
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

    cited = {name: str(source) for name, source in found.sources.items()}

    def with_sources(part: object, name: str) -> dict[str, object]:
        own = {key.removeprefix(f"{name}."): text for key, text in cited.items() if f"{key}.".startswith(f"{name}.")}
        return {**as_json(part), "sources": own}

    return {
        **picked(found, "name", "aliases", "vendor", "kind", "l1_rules", "target"),
        "facts": {
            name: {"value": value, "unit": FACTS[name].unit, "source": cited.get(name, "")}
            for name, value in found.known().items()
        },
        "levels": [with_sources(level, level.name) for level in found.levels],
        "memory_streams": [with_sources(stream, f"memory.{stream.name}") for stream in found.memory_streams],
        "ceilings": {level: {"rate": one.rate, "source": str(one.source)} for level, one in found.ceilings.items()},
        "unknown": found.unknown(),
    }
