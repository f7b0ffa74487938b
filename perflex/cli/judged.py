"""``perflex diagnose --times``: a calibration beside times that it has not seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from perflex.calibration.calibration import Calibration
    from perflex.cli.terminal import Terminal
    from perflex.studies.judged import Judgement

_WORST = 10


def judged_by(
    terminal: Terminal, calibration: Calibration, times: Path | None, kernels: Sequence[Path], machine: str | None
) -> Judgement | None:
    """Return a calibration's predictions beside a table of times; None where there is no table."""
    from perflex.cli.arguments import ArgumentError
    from perflex.cli.calibrate import read_times
    from perflex.studies.judged import judge

    if times is None:
        if kernels or machine is not None:
            msg = f"{'--kernels' if kernels else '--machine'}: only for a table of times; name one with --times"
            raise ArgumentError(msg)
        return None
    table = read_times(terminal, times, kernels, ())
    with terminal.warnings_shown(), terminal.progress("judge:") as progress:
        return judge(calibration, table, machine=machine, progress=progress)


def show_judgement(terminal: Terminal, judged: Judgement) -> None:
    """Print how accurate predictions are, beside trivial ones, by program, and the worst."""
    terminal.show(judged.heading, *judged.doubts)
    terminal.show_result(judged.method_table())
    if not terminal.quiet:
        terminal.show_result(judged.program_table())
        terminal.show_result(judged.row_table(), most=_WORST)
