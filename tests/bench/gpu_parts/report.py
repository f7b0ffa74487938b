"""The report: what was run, what was not and why, and goals beside results."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from .parts import PartRun

__all__ = ["report_text"]


def report_text(
    device: str, runs: Sequence[PartRun], *, budget_s: float, used_s: float, ended: str, folder: Path
) -> str:
    """Return ``report.md``.

    Parameters
    ----------
    device
        Its name.
    runs
        What became of each part.
    budget_s, used_s
        Seconds that there were, and that were used.
    ended
        Why the run ended early; empty if it did not.
    folder
        Where the files are.
    """
    parts = [
        f"# Study of {device}",
        f"Budget {budget_s:.0f} s, used {used_s:.0f} s. " + (f"**The run ended early: {ended}.**" if ended else ""),
        "## What was run",
        _table(
            ("part", "state", "seconds", "had", "remark"),
            [(r.title, r.state, f"{r.seconds:.0f}", f"{r.allotted:.0f}", r.reason) for r in runs],
        ),
        "## Goals",
        _table(
            ("what", "goal", "result", "reached"),
            [(g.what, g.goal, g.reached, "yes" if g.met else "**no**") for r in runs for g in r.goals],
        )
        if any(r.goals for r in runs)
        else "None was judged.",
    ]
    for run in runs:
        if run.notes:
            parts += [f"## {run.title}", "\n".join(f"- {note}" for note in run.notes)]
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    parts += ["## Files", "\n".join(f"- `{path.relative_to(folder)}`" for path in files)]
    calibrations = [path for path in files if path.name.startswith("calibration_")]
    if calibrations:
        parts.append(
            f"{len(calibrations)} calibrations, `calibration_*.yaml`, can go to `calib_data/calibrations/` as they are."
        )
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', '/').replace(chr(10), ' ') for cell in line)} |" for line in lines
    )
