"""``perflex compare``: predicted against measured or reference numbers, row by row."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perflex.cli.columns import Column
from perflex.cli.json_output import picked, print_json
from perflex.cli.options import JsonOption  # noqa: TC001 - typer reads the annotations
from perflex.cli.terminal import terminal_of

if TYPE_CHECKING:
    from perflex.analysis.volumes.compare import TableComparison

# Columns that a narrow terminal leaves out, the first ones first.
_SPARE = {"p90_%": 1, "bias_%": 2}


def compare(
    context: typer.Context,
    predicted: Annotated[Path, typer.Argument(help="CSV file of predictions.")],
    reference: Annotated[Path, typer.Argument(help="CSV file of measured or reference numbers.")],
    *,
    key: Annotated[list[str], typer.Option("--key", help="Column that identifies a configuration; may be repeated.")],
    value: Annotated[
        list[str], typer.Option("--value", help="Column to compare, or PREDICTED=REFERENCE; may be repeated.")
    ],
    shape: Annotated[
        str, typer.Option("--shape", help="X,Y[,Z]: key columns of the work-group's extents, for colours.")
    ] = "",
    picture: Annotated[
        Path | None, typer.Option("--picture", help="File to draw the first column to, coloured by --shape.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare two tables: median, rms, 90th percentile and worst error, bias and rank correlation; and draw them."""
    from perflex.analysis.volumes.compare import compare_rows, comparison_table, read_rows
    from perflex.analysis.volumes.picture import draw_comparison
    from perflex.cli.arguments import ArgumentError, require_writable_file

    columns = [column.strip() for column in shape.split(",") if column.strip()]
    if picture is not None and (not 2 <= len(columns) <= 3 or not set(columns) <= set(key)):
        msg = f"--picture needs --shape with two or three of the --key columns ({', '.join(key)}), such as x,y,z"
        raise ArgumentError(msg, word=shape)
    if picture is not None:
        require_writable_file(picture)
    left, right = read_rows(predicted), read_rows(reference)
    comparisons = []
    for word in value:
        column, _, other = (part.strip() for part in word.partition("="))
        comparisons.append(compare_rows(left, right, key, column, other))
    table = comparison_table(comparisons)
    terminal = terminal_of(context)
    if picture is not None:
        draw_comparison(comparisons[0], picture, columns)
    if as_json:
        print_json([_content(one) for one in comparisons])
        return
    shown_columns = [
        Column(heading, left=not at, wraps=not at, spare=_SPARE.get(heading, 0)) for at, heading in enumerate(table[0])
    ]
    terminal.show_table(shown_columns, [list(row.values()) for row in table])
    shown = [
        f"{entry.quantity}: {entry.unmatched} configurations are in one table only"
        for entry in comparisons
        if entry.unmatched
    ]
    if shown:
        terminal.show(*shown)


def _content(found: TableComparison) -> dict[str, Any]:
    """Return what ``--json`` says of a quantity; errors are fractions."""
    return {
        "quantity": found.quantity,
        "configurations": len(found.pairs),
        "unmatched": found.unmatched,
        "median": found.percentile(50),
        "rms": found.rms,
        "p90": found.percentile(90),
        "worst": found.percentile(100),
        **picked(found, "bias", "rank_correlation"),
    }
