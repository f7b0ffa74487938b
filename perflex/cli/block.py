"""``perflex block``: block sizes of a stencil, chosen without running it."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads it at run time
from typing import TYPE_CHECKING, Annotated

import typer

from perflex.cli.completion import complete_machine
from perflex.cli.json_output import print_json
from perflex.cli.options import JsonOption  # noqa: TC001 - typer reads the annotations
from perflex.cli.terminal import terminal_of

if TYPE_CHECKING:
    from perflex.analysis.blocks.choice import BlockChoice


def block(  # noqa: PLR0913 - one parameter per option
    context: typer.Context,
    kernel: Annotated[str, typer.Argument(help="KERNEL.py:function; the function returns a loopy kernel.")],
    sizes: Annotated[list[str] | None, typer.Argument(help="name=value of each size.")] = None,
    *,
    machine: Annotated[
        str,
        typer.Option("--machine", autocompletion=complete_machine, help="A name of 'perflex machine list', or a file."),
    ],
    criterion: Annotated[
        list[str] | None,
        typer.Option("--criterion", help="LEVEL=row or LEVEL=plane: what a cache must hold; may be repeated."),
    ] = None,
    cores: Annotated[int | None, typer.Option("--cores", min=1, help="Active cores; by default all.")] = None,
    lanes: Annotated[int, typer.Option("--lanes", min=1, help="Make rows multiples of this number of points.")] = 1,
    tiles_per_core: Annotated[
        int, typer.Option("--tiles-per-core", min=1, help="Minimum number of tiles per core.")
    ] = 1,
    calibration: Annotated[
        Path | None, typer.Option("--calibration", help="Calibration file of blocks, made by calibrate_blocks.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Choose block sizes of a stencil so that caches hold rows or planes of a block, without running it."""
    from perflex.analysis.blocks.choice import choose_block
    from perflex.calibration.calibration import Calibration
    from perflex.cli.arguments import load_kernel, read_pairs, read_sizes

    wanted = read_pairs(criterion or (), "--criterion", "L3=plane") or None
    found = choose_block(
        load_kernel(kernel),
        read_sizes(sizes or ()),
        machine,
        wanted,
        cores=cores,
        lanes=lanes,
        tiles_per_core=tiles_per_core,
        calibration=None if calibration is None else Calibration.load(calibration),
    )
    if as_json:
        print_json(found)
        return
    terminal_of(context).show(*_lines(found))


def _lines(found: BlockChoice) -> list[str]:
    x, y, z = found.block
    lines = [f"block: {x} x {y} x {z} points (x, y, z)"]
    lines.append(
        f"{found.tiles} tiles, {found.tiles_per_core} per core at most (imbalance {100 * (found.imbalance - 1):.0f} %),"
        f" at most {100 * found.extra_loads:.0f} % more loads because of halos"
    )
    lines += [
        f"{held.level} holds each {held.reuse}: {held.needed_bytes} B of {held.available_bytes} B per core"
        for held in found.conditions
    ]
    if found.predicted_s is not None:
        lines.append(f"predicted: {1e3 * found.predicted_s:.4g} ms per launch")
    return lines
