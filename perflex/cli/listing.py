"""``perflex list``: models, calibrations and machines that come with perflex, generators of measurement kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from perflex.cli.json_output import picked, print_json
from perflex.cli.options import JsonOption
from perflex.cli.terminal import terminal_of
from perflex.errors import TagError
from perflex.tables import Table, text

if TYPE_CHECKING:
    from uipick import Generator

listed = typer.Typer(no_args_is_help=True, help="List what comes with perflex, by kind.")


@listed.command(epilog="Example: perflex list models")
def models(context: typer.Context, *, as_json: JsonOption = False) -> None:
    """List the models, and what each is of."""
    from perflex.models import load_model, model_names

    found = [load_model(name) for name in model_names()]
    _show(context, [picked(one, "name", "description") for one in found], as_json=as_json)


@listed.command(epilog="Example: perflex list calibrations")
def calibrations(context: typer.Context, *, as_json: JsonOption = False) -> None:
    """List the calibrations, with the device of each and its date."""
    from perflex.calibration.calibration import Calibration, calibration_names

    found = {name: Calibration.load(name) for name in calibration_names()}
    rows = [{"name": name, "device": str(one.device.get("name", "")), "date": one.date} for name, one in found.items()]
    _show(context, rows, as_json=as_json)


@listed.command(epilog="Example: perflex list machines --json")
def machines(context: typer.Context, *, as_json: JsonOption = False) -> None:
    """List the machines: hardware facts of GPUs and CPUs, for --machine."""
    from perflex.machines.files import load_machine, machine_names

    found = [load_machine(name) for name in machine_names()]
    _show(context, [picked(entry, "name", "vendor", "kind", "aliases") for entry in found], as_json=as_json)


@listed.command(epilog="Example: perflex list generators matmul_sq")
def generators(
    context: typer.Context,
    tags: Annotated[
        list[str] | None, typer.Argument(metavar="[TAG]...", help="Show generators that have all these tags.")
    ] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """List the generators of measurement kernels; of those with given tags arguments and allowed values, too."""
    from uipick import ALL_GENERATORS, KernelCollection

    for tag in tags or []:
        # Such a tag would match no generator, and an empty list explains nothing.
        if ":" in tag:
            msg = f"generators are listed by tags only; {tag!r} chooses values of an argument; leave it out"
            raise TagError(msg, tag=tag)
    found = KernelCollection(ALL_GENERATORS).matching_generators(tags or [])
    if as_json:
        print_json([_facts(generator) for generator in found])
        return
    if not tags:
        _show(context, [{"name": generator.name, "summary": generator.summary} for generator in found])
        return
    terminal = terminal_of(context)
    for generator in found:
        terminal.show(*_lines(generator), "", bold=len(generator.name))


def _show(context: typer.Context, rows: list[dict[str, Any]], *, as_json: bool = False) -> None:
    if as_json:
        print_json(rows)
        return
    terminal_of(context).show_result(Table.of("", [text(name) for name in rows[0]], rows))


def _facts(generator: Generator) -> dict[str, object]:
    arguments = [
        {
            **picked(one, "name", "meaning"),
            "type": one.kind,
            "allowed": one.allowed_text,
            "default": one.values,
            "size": one.name in generator.size_arguments,
        }
        for one in generator.arguments
    ]
    constraints = [constraint.description for constraint in generator.constraints]
    known = {"tags": sorted(generator.tags), "arguments": arguments, "constraints": constraints}
    return {**picked(generator, "name", "summary"), **known}


def _lines(generator: Generator) -> list[str]:
    others = ", ".join(sorted(generator.tags - {generator.name}))
    lines = [f"{generator.name}  {generator.summary}", *([f"    tags: {others}"] if others else [])]
    for argument in generator.arguments:
        default = ",".join(map(str, argument.values))
        lines.append(f"    {argument.name}: {argument.allowed_text} (default {default})  {argument.meaning}")
    return lines + [f"    where {constraint.description}" for constraint in generator.constraints]
