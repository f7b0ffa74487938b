"""``perflex catalog``: the generators of measurement kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from perflex.cli.json_output import print_json
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
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list instead of text.")] = False,
) -> None:
    """List the generators of measurement kernels, their tags, arguments and allowed values."""
    from uipick import ALL_GENERATORS, KernelCollection

    for tag in tags or []:
        # Such a tag would match no generator, and an empty list explains nothing.
        if ":" in tag:
            msg = f"the catalog takes generator tags; {tag!r} chooses values of an argument, leave it out"
            raise TagError(msg, tag=tag)
    generators = KernelCollection(ALL_GENERATORS).matching_generators(tags or [])
    if as_json:
        print_json([_facts(generator) for generator in generators])
        return
    console = terminal_of(context).output
    for generator in generators:
        console.print(_text(generator), soft_wrap=True, markup=True)


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


def _text(generator: Generator) -> str:
    from rich.markup import escape

    others = ", ".join(sorted(generator.tags - {generator.name}))
    lines = [f"[bold]{escape(generator.name)}[/]  {escape(generator.summary)}"]
    if others:
        lines.append(f"    tags: {escape(others)}")
    for argument in generator.arguments:
        default = ",".join(map(str, argument.values))
        lines.append(
            f"    [cyan]{escape(argument.name)}[/]: {escape(argument.allowed_text)} "
            f"(default {escape(default)})  {escape(argument.meaning)}"
        )
    lines += [f"    where {escape(constraint.description)}" for constraint in generator.constraints]
    return "\n".join(lines) + "\n"
