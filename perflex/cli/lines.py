"""``--lines``: the source of a kernel beside what each line does, as several commands print it."""

from __future__ import annotations

import textwrap
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
        raise ArgumentError(msg, word=word)
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
    columns = [name for name in _COUNTS if name != "local_accesses" or any(line.local_accesses for line in lines)]
    shares = any(line.share is not None for line in lines)
    rows = [
        (
            str(line.line or ""),
            textwrap.shorten(line.text, _LONGEST, placeholder="..."),
            *(_count(getattr(line, name), line) for name in columns),
            *([f"{100 * (line.share or 0):.1f} %"] if shares else []),
        )
        for line in lines
    ]
    headings = ["line", "source", *(name.replace("_", " ") for name in columns), *(["share"] if shares else [])]
    terminal.show_table(headings, rows, indent=indent)
    if shares:
        terminal.show(f"{' ' * indent}share: by how much the predicted time is shorter without the line")


def _count(value: float, line: SourceLine) -> str:
    relation = "" if line.exact or not value else f"{line.certainty.relation} "
    return relation + (str(int(value)) if value.is_integer() else f"{value:.6g}")
