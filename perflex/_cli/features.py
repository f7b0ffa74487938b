"""``perflex features``: everything that is counted in a kernel."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from perflex._cli.session import session_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.features import CountedFeature

__all__ = ["features"]


class Granularity(StrEnum):
    """What one count is."""

    paper = "paper"
    work_item = "work-item"


def features(
    context: typer.Context,
    kernel: Annotated[str, typer.Argument(help="KERNEL.py:function; the function returns a loopy kernel.")],
    sizes: Annotated[list[str] | None, typer.Argument(help="name=value; without sizes counts stay symbolic.")] = None,
    *,
    identifier: Annotated[
        list[str] | None, typer.Option("-f", "--feature", help="Count this feature only; may be repeated.")
    ] = None,
    sub_group_size: Annotated[int, typer.Option("--sub-group-size", min=1, help="Work-items per sub-group.")] = 32,
    per: Annotated[
        Granularity,
        typer.Option(
            "--per", help="paper: on-chip work and uniform accesses per sub-group; work-item: executed instances."
        ),
    ] = Granularity.paper,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object instead.")] = False,
) -> None:
    """Count operations, accesses with strides and reuse, barriers and launches of a kernel."""
    from perflex._cli.arguments import load_kernel, read_sizes
    from perflex._cli.footprint_table import HEADING, footprint_lines
    from perflex.features import CountedFootprint, count_features, extract_scop

    scop = extract_scop(load_kernel(kernel))
    given = read_sizes(sizes or ())
    counted = count_features(
        scop,
        given if given or not scop.parameters else None,
        identifiers=identifier or (),
        sub_group_size=sub_group_size,
        per_work_item=per is Granularity.work_item,
    )
    if as_json:
        typer.echo(json.dumps({entry.identifier: _as_json(entry) for entry in counted}, indent=2))
        return
    output = session_of(context).output
    shown = ", ".join(f"{name}={value}" for name, value in given.items())
    heading = f"kernel {scop.name}" + (f" at {shown}" if shown else f", sizes {', '.join(scop.parameters) or 'none'}")
    output.print(f"{heading}; sub-groups of {sub_group_size} work-items", markup=False, soft_wrap=True)
    footprints = [entry for entry in counted if isinstance(entry, CountedFootprint)]
    for entry in counted:
        if isinstance(entry, CountedFootprint):
            continue
        output.print(entry.identifier, markup=False, soft_wrap=True, style="bold")
        output.print(f"    {_line(entry, given)}", markup=False, soft_wrap=True)
        if entry.note:
            output.print(f"    {entry.note}", markup=False, soft_wrap=True, style="dim")
    if footprints:
        output.print(HEADING, markup=False, soft_wrap=True, style="bold")
        for line in footprint_lines(footprints, with_sizes=bool(given) or not scop.parameters):
            output.print(line, markup=False, soft_wrap=True)


def _as_json(entry: CountedFeature) -> dict[str, object]:
    value = entry.value
    if value is not None and value.is_integer():
        value = int(value)
    return {"value": value, "expression": entry.expression, "unit": entry.unit, "exact": entry.exact}


def _line(entry: CountedFeature, sizes: Mapping[str, int]) -> str:
    text = entry.expression
    if entry.value is not None and (sizes or entry.expression != f"{entry.value:g}"):
        text += f" = {entry.value:.17g}"
    return f"{text}  ({entry.unit}, {entry.certainty})"
