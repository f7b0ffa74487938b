"""``perflex report``: one HTML page of calibrations, evaluations, prunings and rooflines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perflex.cli.terminal import terminal_of


def report(
    context: typer.Context,
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Calibrations (YAML), folders of 'perflex evaluate', output of 'perflex prune --json' and "
            "'perflex roofline --json'."
        ),
    ],
    *,
    out: Annotated[Path, typer.Option("-o", "--out", help="HTML file to write.")] = Path("report.html"),
) -> None:
    """Write one HTML page of results: warnings, tables to sort, pictures, and where the numbers come from.

    The page needs nothing beside it and no network.
    """
    from perflex.cli.arguments import require_writable_file
    from perflex.reports.make import write_report

    terminal = terminal_of(context)
    require_writable_file(out)
    with terminal.warnings_shown(), terminal.progress("report:") as progress:
        write_report(files, out, progress=progress)
    terminal.output.print(str(out), markup=False, soft_wrap=True)
