"""``perflex machine detect``: a machine file for the CPU that it runs on."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer

from perflex.cli.columns import Column, fitted_table
from perflex.cli.completion import complete_device
from perflex.cli.json_output import print_json
from perflex.cli.options import JsonOption  # noqa: TC001 - typer reads the annotations
from perflex.cli.terminal import terminal_of

if TYPE_CHECKING:
    from perflex.studies.machine_detect.detect import Detected


class Overlap(StrEnum):
    """How the times of cache levels compose."""

    sum = "sum"
    max = "max"


def detect(
    context: typer.Context,
    *,
    out: Annotated[Path | None, typer.Option("--out", help="File to write, NAME.yaml.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Measure for a shorter time, with less precision.")] = False,
    device: Annotated[
        str,
        typer.Option(
            "--device", autocompletion=complete_device, help="OpenCL device that is this CPU, if there are several."
        ),
    ] = "",
    name: Annotated[str, typer.Option("--name", help="Name of the machine; by default the CPU's model.")] = "",
    overlap: Annotated[
        Overlap | None,
        typer.Option("--overlap", help="Overlap of cache levels; by default what is usual for the vendor."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Describe this CPU in a machine file: reported caches, measured clock and bandwidths; takes a minute or two."""
    from perflex.cli.arguments import ArgumentError, require_writable_file
    from perflex.studies.machine_detect.detect import cpu_device, detect_machine
    from perflex.yaml_file import write_yaml

    terminal = terminal_of(context)
    if out is not None:
        if out.suffix not in {".yaml", ".yml"}:
            msg = f"machine files end in .yaml, not {out.name!r}; name another with --out"
            raise ArgumentError(msg, path=out)
        require_writable_file(out)
    where = cpu_device(device)
    terminal.remarks.print(f"device: {where}", markup=False)
    stated = None if overlap is None else overlap.value
    with terminal.warnings_shown(), terminal.progress("detecting:") as progress:
        found = detect_machine(where, name=name, overlap=stated, quick=quick, progress=progress)
    for remark in found.remarks:
        terminal.remarks.print(f"warning: {remark}", style="yellow", markup=False, soft_wrap=True)
    if out is not None:
        write_yaml(out, found.document)
    if as_json:
        print_json(found.document)
        return
    terminal.show(*_lines(found, terminal.width))
    if out is not None:
        terminal.show_paths(out)


def _lines(found: Detected, width: int | None) -> list[str]:
    cpu, rates = found.cpu, found.rates
    lines = [f"{cpu.model or 'CPU'}: {cpu.cores} cores, {rates.clock_hz / 1e9:.3g} GHz (measured)"]
    headings = ("", "size", "shared by", "one core: load", "load+store", "all cores: load", "load+store")
    table = []
    sizes = {f"L{cache.level}": (f"{cache.size_bytes // 1024} KiB", str(cache.shared_by)) for cache in cpu.caches}
    for level in (*sizes, "memory"):
        row = [level, *sizes.get(level, ("", ""))]
        for group in (rates.one_core, rates.all_cores):
            one = group.get(level)
            row += ["", ""] if one is None else [f"{one.load / 1e9:.1f} GB/s", f"{one.update / 1e9:.1f} GB/s"]
        table.append(row)
    lines += fitted_table([Column(heading) for heading in headings], table, width)
    lines += [f"memory, {name}: {rate / 1e9:.1f} GB/s (all cores)" for name, rate in rates.streams.items()]
    hypothesis = found.document["levels"][0]["overlap"]["value"]
    lines.append(f"overlap of levels: {hypothesis} ({found.document['sources']['overlap']['text']})")
    return lines
