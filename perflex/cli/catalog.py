"""``perflex catalog``: the generators of measurement kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from perflex.cli.json_output import print_json
from perflex.cli.options import JsonOption  # noqa: TC001 - typer reads the annotations
from perflex.cli.terminal import terminal_of
from perflex.errors import TagError

if TYPE_CHECKING:
    from uipick import Generator


def catalog(
    context: typer.Context,
    tags: Annotated[
        list[str] | None, typer.Argument(metavar="[TAG]...", help="Show generators that have all these tags.")
    ] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """List the generators of measurement kernels, their tags, arguments and allowed values."""
    from uipick import ALL_GENERATORS, KernelCollection

    for tag in tags or []:
        # Such a tag would match no generator, and an empty list explains nothing.
        if ":" in tag:
            msg = f"the catalog accepts generator tags only; {tag!r} chooses values of an argument; leave it out"
            raise TagError(msg, tag=tag)
    generators = KernelCollection(ALL_GENERATORS).matching_generators(tags or [])
    if as_json:
        print_json([_facts(generator) for generator in generators])
        return
    terminal = terminal_of(context)
    for generator in generators:
        terminal.show(*_lines(generator), "", bold=len(generator.name))


def _facts(generator: Generator) -> dict[str, object]:
    return {
        "name": generator.name,
        "tags": sorted(generator.tags),
        "summary": generator.summary,
        "arguments": [
            {
                "name": argument.name,
                "type": argument.kind,
                "allowed": argument.allowed_text,
                "default": list(argument.values),
                "meaning": argument.meaning,
                "size": argument.name in generator.size_arguments,
            }
            for argument in generator.arguments
        ],
        "constraints": [constraint.description for constraint in generator.constraints],
    }


def _lines(generator: Generator) -> list[str]:
    others = ", ".join(sorted(generator.tags - {generator.name}))
    lines = [f"{generator.name}  {generator.summary}"]
    if others:
        lines.append(f"    tags: {others}")
    for argument in generator.arguments:
        default = ",".join(map(str, argument.values))
        lines.append(f"    {argument.name}: {argument.allowed_text} (default {default})  {argument.meaning}")
    lines += [f"    where {constraint.description}" for constraint in generator.constraints]
    return lines
