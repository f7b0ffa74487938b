"""What a report says of kernels on a roofline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perflex.analysis.roofline import LIMIT_NAMES, MEMORY_LEVELS
from perflex.analysis.roofline_report import MEMORY_NAMES, MOST_COLUMNS, absent_lines, roofline_figure, transaction_unit
from perflex.features.instructions.instruction_counts import INSTRUCTION_CLASSES
from perflex.html import fixed, number, percent, render
from perflex.reports.part import Part

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from perflex.analysis.roofline import RooflinePlace
    from perflex.html import Column
    from perflex.reports.json_files import RooflineFile
    from perflex.reports.part import Picture

_CLASS_NAMES = {
    "ldst_global": "global loads and stores",
    "ldst_local": "local loads and stores",
    "ldst_constant": "loads of constants",
    "int": "integer",
}
_KINDS = {"measured": "measured on {}", "predicted": "predicted by a model calibrated on {}"}


def roofline_part(file: RooflineFile, path: Path, picture: Picture) -> Part:
    """Return what a report says of kernels on a roofline: pictures, limits, counts and ceilings."""
    places = file.places
    pages = [slice(first, first + MOST_COLUMNS) for first in range(0, len(places), MOST_COLUMNS)]
    body = render(
        "roofline_report.html",
        places=places,
        machine=file.ceilings.machine,
        ceilings=file.ceilings.known,
        names=LIMIT_NAMES,
        timed=any(place.seconds is not None and place.seconds_kind != "bound" for place in places),
        tables=list(_tables(places)),
        picture=picture,
        figures=[
            (roofline_figure(places[shown], file.walls[shown], file.words), ", ".join(p.name for p in places[shown]))
            for shown in pages
        ],
    )
    provenance = {
        "file": str(path),
        "made on": file.date,
        "made by": f"perflex {file.perflex}",
        "machine of the ceilings": file.ceilings.machine,
        "times": _times_are(file),
    }
    return Part(f"Instruction roofline of {file.ceilings.machine}", list(_notices(file)), body, [("", provenance)])


def _tables(places: Sequence[RooflinePlace]) -> Iterator[tuple[str, list[Column | str], list[tuple[Any, ...]]]]:
    """Yield caption, columns and rows of what kernels execute and move."""
    labels = {level: f"all, {LIMIT_NAMES[level]}" for level in MEMORY_LEVELS}
    labels |= {space: f"{space} loads and stores" for space in ("global", "local")}
    rows: list[tuple[Any, ...]] = [(p.name, *(p.intensities.get(name) for name in labels)) for p in places]
    yield "Instructions per transaction", ["kernel", *map(number, labels.values())], rows
    counts = {"f_inst_total": fixed("instructions of sub-groups")}
    for kind in INSTRUCTION_CLASSES:
        if any(place.instructions[f"f_inst_{kind}"] for place in places):
            counts[f"f_inst_{kind}"] = fixed(_CLASS_NAMES.get(kind, kind))
    counts["f_inst_predication"] = percent("active work-items")
    rows = [(p.name, *(p.instructions[name] for name in counts)) for p in places]
    yield "Instructions per run", ["kernel", *counts.values()], rows
    levels = {f"f_txn_{level}": level for level in ("global", "local", *MEMORY_LEVELS)}
    units = {level: next((transaction_unit(place, level) for place in places), "") for level in levels.values()}
    moved = [fixed(MEMORY_NAMES[level], unit=unit) for level, unit in units.items()]
    rows = [(p.name, *(p.transactions.get(name) for name in levels)) for p in places]
    yield "Transactions per run", ["kernel", *moved], rows


def _times_are(file: RooflineFile) -> str:
    kinds = {place.seconds_kind for place in file.places}
    if kinds == {"bound"}:
        return "the least that the ceilings allow; nothing was measured"
    words = [_KINDS[kind].format(file.device or "an unknown device") for kind in sorted(kinds & set(_KINDS))]
    return "; ".join(words) or "none"


def _notices(file: RooflineFile) -> Iterator[tuple[str, str]]:
    for text in absent_lines(file.places):
        yield "warning", text
    for level, why in file.ceilings.absent.items():
        yield "warning", f"no ceiling of {LIMIT_NAMES.get(level, level)}: {why}"
    kinds = {place.seconds_kind for place in file.places}
    if kinds == {"bound"}:
        yield "remark", f"times are {_times_are(file)}"
    elif kinds == {""}:
        yield "remark", "there are no times: only intensities and the least time by the ceilings are shown"
