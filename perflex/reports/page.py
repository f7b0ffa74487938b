"""One HTML page of results: warnings first, tables to sort, pictures, and where the numbers come from."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from perflex.file_io import saving
from perflex.html import render
from perflex.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from perflex.calibration.record import CalibrationRecord


@dataclass(frozen=True)
class Part:
    """What a page says of one result."""

    # What the result is, and of what.
    title: str
    # Severity (problem, warning, remark) and text of what to know before the numbers are used, the gravest first.
    notices: Sequence[tuple[str, str]]
    # HTML: of `perflex.html.render`; templates have tables (``shown(table)``) and pictures (``picture(figure, text)``).
    body: str
    # Where the numbers come from, by name; what is None or empty is left out.
    provenance: Mapping[str, object]


def write_page(path: Path, parts: Sequence[Part]) -> None:
    """Write a page of some results; it needs nothing beside it, and no network.

    Raises
    ------
    FileFormatError
        The page cannot be written.
    """
    made = datetime.now(UTC).isoformat(timespec="seconds")
    text = render("page.html", parts=parts, version=__version__, made=made)
    with saving(path) as stream:
        stream.write(text)


def calibrated_by(calibration: CalibrationRecord) -> dict[str, object]:
    """Return the provenance of what rests on a calibration: its device, machine, date and versions."""
    cpu = None if calibration.cpu is None else "as the operating system reports it"
    return {
        "calibrated on": calibration.date,
        **{f"device: {name.replace('_', ' ')}": value for name, value in calibration.device.items()},
        "machine": calibration.machine or cpu,
        "sub-group size": calibration.sub_group_size,
        "versions": ", ".join(f"{name} {number}" for name, number in calibration.versions.items()),
    }
