"""``--lines``: the source of a kernel beside what each line does, as several commands print it."""

from __future__ import annotations

from dataclasses import replace
from textwrap import shorten
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perflex.cli.json_output import picked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.analysis.source_lines import SourceLine
    from perflex.cli.terminal import Terminal
    from perflex.features import SourceKernel

LinesOption = Annotated[
    bool,
    typer.Option("--lines", help="Show what each line of a .cl or .cu file does; predicted, its share of the time."),
]
# Letters of a line that are shown.
_LONGEST = 50
_COUNTS = ("operations", "accesses", "bytes", "local_accesses")


def require_source(kernel: Any, word: str) -> SourceKernel:
    """Return a kernel of source code; an ArgumentError where the word names another."""
    from perflex.cli.arguments import ArgumentError
    from perflex.features import SourceKernel

    if not isinstance(kernel, SourceKernel):
        msg = f"--lines shows the lines of a kernel in a .cl or .cu file; {word} is none; leave --lines out"
        raise ArgumentError(msg)
    return kernel


def lines_content(lines: Sequence[SourceLine]) -> list[dict[str, Any]]:
    """Return what ``--json`` prints of lines; without a prediction they have no share."""
    return [
        picked(line, "line", "text", *_COUNTS)
        | {"certainty": str(line.certainty)}
        | ({} if line.share is None else {"share": line.share})
        for line in lines
    ]


def show_lines(terminal: Terminal, lines: Sequence[SourceLine], *, indent: int = 0) -> None:
    """Print a table of lines."""
    from perflex.analysis.source_lines import SourceLines

    shortened = SourceLines(replace(line, text=shorten(line.text, _LONGEST, placeholder="...")) for line in lines)
    terminal.show_result(shortened.table(), indent=indent)
    if any(line.share is not None for line in lines):
        terminal.show(f"{' ' * indent}share: by how much the predicted time is shorter without the line")
