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
    from collections.abc import Mapping

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
    lines = []
    for fact, what in FACTS.items():
        value = getattr(found, fact)
        source = f"  [{numbers[found.sources[fact]]}]" if fact in found.sources else ""
        # A CPU has no banks of local memory: that is not worth a line, an unknown clock is.
        if value is not None or found.kind in what.kinds:
            lines.append(
                f"  {fact.ljust(width)}  {'not known' if value is None else _amount(value, what.unit)}{source}"
            )
    lines += _level_lines(found, numbers)
    for level, ceiling in found.ceilings.items():
        unit = "instruction/s" if level == "instructions" else "B/s"
        lines.append(f"  roofline ceiling {level}: {ceiling.rate / 1e9:g} G{unit}  ({ceiling.source.text})")
    terminal.show(*lines, *(f"[{number}] {origin.kind}: {origin.text}" for origin, number in numbers.items()))


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
            msg = f"machine files end in .yaml, not {out.name!r}; name another with --out"
            raise ArgumentError(msg, path=out)
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
    headings = ("", "size", "shared by", "one core: load", "load+store", "all cores: load", "load+store")
    table = []
    sizes = {f"L{cache.level}": (f"{cache.size_bytes // 1024} KiB", str(cache.shared_by)) for cache in cpu.caches}
    for level in (*sizes, "memory"):
        row = [level, *sizes.get(level, ("", ""))]
        for cores in ("one core", "all cores"):
            known = [rates.rate(level, way, cores) for way in ("load", "load+store")]
            row += ["" if rate is None else f"{rate / 1e9:.1f} GB/s" for rate in known]
        table.append(row)
    terminal.show_table(headings, table)
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
