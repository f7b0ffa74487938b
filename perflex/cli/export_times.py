"""``perflex export-times``: the times that a calibration rests on, as a table for ``calibrate --times``."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from perflex.cli.terminal import terminal_of


def export_times(
    context: typer.Context,
    calibration: Annotated[Path, typer.Argument(help="A calibration file.")],
    *,
    out: Annotated[Path, typer.Option("-o", "--out", help="CSV file to write.")],
) -> None:
    """Write the measured times of a calibration as a table that 'perflex calibrate --times' takes elsewhere."""
    from perflex.calibration.calibration import Calibration
    from perflex.calibration.times.write_times import save_times
    from perflex.cli.arguments import require_writable_file

    require_writable_file(out)
    rows = save_times(Calibration.load(calibration), out)
    terminal = terminal_of(context)
    terminal.remarks.print(f"{rows} times", markup=False)
    terminal.output.print(str(out), markup=False, soft_wrap=True)
