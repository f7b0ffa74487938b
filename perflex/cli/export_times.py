"""``perflex export-times``: the times that a calibration rests on, as a table for ``calibrate --times``."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from perflex.cli.json_output import print_json
from perflex.cli.options import JsonOption  # noqa: TC001 - typer reads the annotations
from perflex.cli.terminal import terminal_of


def export_times(
    context: typer.Context,
    calibration: Annotated[Path, typer.Argument(help="A calibration file.")],
    *,
    out: Annotated[Path, typer.Option("-o", "--out", help="CSV file to write.")],
    as_json: JsonOption = False,
) -> None:
    """Write the measured times of a calibration as a table that 'perflex calibrate --times' takes elsewhere."""
    from perflex.calibration.calibration import Calibration
    from perflex.calibration.times.write_times import save_times
    from perflex.cli.arguments import require_writable_file

    require_writable_file(out)
    rows = save_times(Calibration.load(calibration), out)
    terminal = terminal_of(context)
    if as_json:
        print_json({"path": out, "times": rows})
        return
    terminal.remarks.print(f"{rows} times", markup=False)
    terminal.show_paths(out)
