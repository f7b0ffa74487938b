"""``perflex layers``: layer conditions and cache volumes of a kernel on a CPU."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perflex.cli.columns import Column, fitted_table
from perflex.cli.completion import complete_machine
from perflex.cli.json_output import picked, print_json
from perflex.cli.options import JsonOption  # noqa: TC001 - typer reads the annotations
from perflex.cli.terminal import terminal_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.cli.terminal import Terminal
    from perflex.features.cpu.result import Condition, EcmEstimate

# What JSON tells of a layer condition.
_CONDITION = ("level", "loop", "inequality", "largest", "symbol", "met", "needed_bytes", "cache_bytes")
_CONDITIONS = (
    Column("cache", left=True),
    Column("reuse over", left=True),
    Column("holds if", left=True, wraps=True),
    Column("up to", left=True),
    Column("here", left=True),
)
_TRAFFIC = tuple(Column(heading, left=True) for heading in ("between", "loads", "stores", "sum", "cycles"))
_CONFLICT = ("level", "array", "loop", "stride_bytes", "lines", "sets", "ways", "lost", "more", "padded_bytes")


class Convention(StrEnum):
    """How conditions and victim caches are read."""

    reference = "reference"
    paper = "paper"


def layers(  # noqa: PLR0913 - one parameter per option
    context: typer.Context,
    kernel: Annotated[str, typer.Argument(help="KERNEL.py:function; the function returns a loopy kernel.")],
    sizes: Annotated[list[str] | None, typer.Argument(help="name=value of each size.")] = None,
    *,
    machine: Annotated[
        str,
        typer.Option(
            "--machine", autocompletion=complete_machine, help="A CPU from 'perflex machine list', or a file."
        ),
    ],
    cores: Annotated[int, typer.Option("--cores", min=1, help="Active cores, which share caches.")] = 1,
    block: Annotated[
        list[str] | None,
        typer.Option("--block", help="LOOP=SIZE: block a loop; lid0, lid1 are the work-group's axes; may be repeated."),
    ] = None,
    fold: Annotated[
        list[str] | None, typer.Option("--fold", help="LOOP=LENGTH: fold a loop into the data layout; may be repeated.")
    ] = None,
    convention: Annotated[
        Convention,
        typer.Option(
            "--convention",
            help="reference: <= in conditions, victim caches like others; paper: < and the factors of the paper.",
        ),
    ] = Convention.reference,
    series: Annotated[
        str | None, typer.Option("--series", help="NAME[,NAME]=FIRST:LAST:STEP, sizes to vary; with --out, a picture.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="PNG file for the picture of --series.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show layer conditions, the sizes that meet them, and the bytes per iteration between a CPU's cache levels."""
    from perflex.cli.arguments import ArgumentError, load_kernel, read_sizes
    from perflex.cli.volume_series import series_sizes
    from perflex.features import extract_scop
    from perflex.features.cpu.estimate import estimate_ecm
    from perflex.machines.lookup import load_machine

    where = load_machine(machine)
    scop = extract_scop(load_kernel(kernel))
    given, blocks, folds = read_sizes(sizes or ()), read_sizes(block or ()), read_sizes(fold or ())
    terminal_of(context).warn_of_unknown_sizes(given, scop.parameters)
    given = {name: value for name, value in given.items() if name in scop.parameters}

    def estimate(chosen: Mapping[str, int]) -> EcmEstimate:
        return estimate_ecm(scop, chosen, where, cores=cores, blocks=blocks, fold=folds, convention=convention.value)

    if series is not None:
        members = series_sizes(series, None, given, scop.parameters)
        # Sizes of a series share one value: the first stands for all of them.
        name = next(name for name in members[0] if name not in given)
        if out is not None:
            _check_picture(out)
        _print_series(
            terminal_of(context), [(member[name], estimate(member)) for member in members], name, out, as_json
        )
        return
    if out is not None:
        msg = "--out is for the picture of a series; add --series NAME=FIRST:LAST:STEP"
        raise ArgumentError(msg, word="--out")
    found = estimate(given)
    if as_json:
        print_json({**_content(found), "sizes": given, "blocks": blocks})
        return
    terminal_of(context).show(*_lines(found, given, terminal_of(context).width))


def _check_picture(out: Path) -> None:
    from perflex.cli.arguments import ArgumentError, require_writable_file

    if out.suffix.lower() != ".png":
        msg = f"the picture is a PNG file; name it with --out {out.with_suffix('.png')}"
        raise ArgumentError(msg, path=out)
    require_writable_file(out)


def _print_series(
    terminal: Terminal, rows: list[tuple[int, EcmEstimate]], name: str, out: Path | None, as_json: bool
) -> None:
    if out is not None:
        from perflex.analysis.ecm.picture import draw_layers

        draw_layers(rows, name, out)
    first = rows[0][1]
    if as_json:
        content = [{name: size, "volumes": _volumes(found)} for size, found in rows]
        print_json({**picked(first, "kernel", "machine"), "series": content})
        return
    terminal.show(*_series_lines(rows, name, terminal.width))
    if out is not None:
        terminal.show(f"picture: {out}")


def _volumes(found: EcmEstimate) -> dict[str, float]:
    return {level.name: float(level.bytes) for level in found.levels}


def _content(found: EcmEstimate) -> dict[str, Any]:
    return {
        **picked(found, "kernel", "machine", "cores"),
        "iterations": float(found.iterations),
        "varying": list(found.varying),
        "conditions": [picked(entry, *_CONDITION) for entry in found.conditions],
        "volumes": _volumes(found),
        "loads": {level.name: float(level.load_bytes) for level in found.levels},
        "stores": {level.name: float(level.store_bytes) for level in found.levels},
        "cycles": {level.name: None if level.cycles is None else float(level.cycles) for level in found.levels},
        "memory_stream": found.memory_stream,
        "conflicts": [{**picked(entry, *_CONFLICT), "text": str(entry)} for entry in found.conflicts],
        "approximated": list(found.approximated),
    }


def _lines(found: EcmEstimate, sizes: Mapping[str, int], width: int | None) -> list[str]:
    at = ", ".join(f"{name}={value}" for name, value in sizes.items()) or "no sizes"
    lines = [f"kernel {found.kernel} at {at} on {found.machine}, {found.cores} core(s)", "layer conditions"]
    lines += fitted_table(_CONDITIONS, [_condition_row(entry) for entry in found.conditions], width, indent="  ")
    if any("lid" in entry.inequality for entry in found.conditions):
        lines.append("  lid0, lid1, ...: work-items of a work-group along axis 0, 1, ...")
    if found.varying:
        loops = ", ".join(found.varying)
        lines.append(f"  loops whose range depends on others ({loops}): conditions for the longest, bytes as means")
    lines.append(f"bytes per iteration ({found.iterations:.6g} iterations)")
    table = []
    for before, level in zip(["registers", *(level.name for level in found.levels)], found.levels, strict=False):
        cycles = "-" if level.cycles is None else f"{level.cycles:.4g}"
        numbers = [f"{value:.5g}" for value in (level.load_bytes, level.store_bytes, level.bytes)]
        table.append([f"{before} - {level.name}", *numbers, cycles])
    lines += fitted_table(_TRAFFIC, table, width, indent="  ")
    if found.memory_stream:
        lines.append(f"  bandwidth of the memory: {found.memory_stream}")
    if found.conflicts:
        lines.append("conflict misses, counted in the bytes above but not in the layer conditions")
        lines += [f"  {conflict}" for conflict in found.conflicts]
    if found.approximated:
        lines.append("not followed exactly")
        lines += [f"  {note}" for note in found.approximated]
    return lines


def _condition_row(entry: Condition) -> list[str]:
    largest = f"{entry.symbol} = {entry.largest}" if entry.largest is not None else "-"
    loop = "all data" if entry.loop == "all" else f"loop {entry.loop}"
    return [entry.level, loop, entry.inequality, largest, "met" if entry.met else "not met"]


def _series_lines(rows: list[tuple[int, EcmEstimate]], name: str, width: int | None) -> list[str]:
    first = rows[0][1]
    heading = (
        f"kernel {first.kernel} on {first.machine}, {first.cores} core(s): bytes per iteration to the level before"
    )
    columns = [Column(heading, left=True) for heading in (name, *(level.name for level in first.levels))]
    table = [[str(size), *(f"{level.bytes:.5g}" for level in found.levels)] for size, found in rows]
    return [heading, *fitted_table(columns, table, width, indent="  ")]
