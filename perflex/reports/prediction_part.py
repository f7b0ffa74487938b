"""What a report says of a kernel's predicted times."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perflex.html import render
from perflex.reports.part import Part

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from perflex.reports.json_files import PredictionEntry


def prediction_part(entries: Sequence[PredictionEntry], path: Path) -> Part:
    """Return what a report says of predictions of a kernel: times, what they are made of, and lines of the source."""
    first = entries[0]
    body = render("prediction_report.html", entries=[(_sizes(entry), entry) for entry in entries])
    provenance = {
        "file": str(path),
        "made on": first.date,
        "made by": f"perflex {first.perflex}",
        "machine": first.machine,
        "calibrated on": first.calibrated,
        **{f"calibrated device: {key.replace('_', ' ')}": str(value) for key, value in first.device.items()},
    }
    where = first.machine or first.device.get("name") or "an unknown device"
    return Part(f"Predicted times of {first.kernel} on {where}", list(_notices(entries)), body, [("", provenance)])


def _sizes(entry: PredictionEntry) -> str:
    return ", ".join(f"{name}={value}" for name, value in entry.sizes.items()) or "no sizes"


def _notices(entries: Sequence[PredictionEntry]) -> Iterator[tuple[str, str]]:
    for entry in entries:
        for doubt in entry.doubts:
            yield "warning", f"{_sizes(entry)}: doubtful: {doubt}"
        if entry.disturbed:
            yield "warning", f"{_sizes(entry)}: the measured time rests on samples that others disturbed"
