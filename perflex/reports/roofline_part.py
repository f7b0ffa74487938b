"""What a report says of kernels on a roofline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perflex.analysis.roofline.draw import MOST_COLUMNS, roofline_figure
from perflex.analysis.roofline.place import MEMORY_LEVELS
from perflex.analysis.roofline.table import LEVEL_NAMES
from perflex.features.instructions.instructions import INSTRUCTION_CLASSES
from perflex.html import Column, Html, element, facts, joined, notice, percent, significant, table, times, whole
from perflex.reports.page import Part

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from perflex.html import Cell
    from perflex.reports.pictures import Pictures
    from perflex.reports.roofline_file import RooflineFile

_MEMORY_NAMES = {"global": "global memory", **LEVEL_NAMES}
_KINDS_NAMED = {"ldst_global": "global loads and stores", "ldst_local": "local loads and stores", "int": "integer"}
_KINDS = {"measured": "measured on {}", "predicted": "predicted by a model calibrated on {}"}


def roofline_part(file: RooflineFile, path: Path, pictures: Pictures) -> Part:
    """Return what a report says of kernels on a roofline: pictures, limits, counts and ceilings."""
    places = file.places
    drawn = []
    for first in range(0, len(places), MOST_COLUMNS):
        shown = slice(first, first + MOST_COLUMNS)
        names = ", ".join(place.name for place in places[shown])
        figure = roofline_figure(places[shown], file.walls[shown], file.words)
        drawn.append(pictures.show(figure, f"Instruction roofline of {names}; the numbers stand in the tables"))
    return Part(
        f"Instruction roofline of {file.ceilings.machine}",
        list(_notices(file)),
        joined(
            element("h3", "Summary"),
            _limits(file),
            drawn,
            _intensities(file),
            _counts(file),
            _ceilings(file),
        ),
        facts(
            {
                "file": str(path),
                "made on": file.date,
                "made by": f"perflex {file.perflex}",
                "machine of the ceilings": file.ceilings.machine,
                "times": _times_are(file),
            }
        ),
    )


def _times_are(file: RooflineFile) -> str:
    kinds = {place.seconds_kind for place in file.places}
    if kinds == {"bound"}:
        return "the least that the ceilings allow; nothing was measured"
    words = [_KINDS[kind].format(file.device or "an unknown device") for kind in sorted(kinds & set(_KINDS))]
    return "; ".join(words) or "none"


def _notices(file: RooflineFile) -> Iterator[Html]:
    absent = dict.fromkeys(f"no {name}: {why}" for place in file.places for name, why in place.absent.items())
    for text in absent:
        yield notice("warning", text)
    for level, why in file.ceilings.absent.items():
        yield notice("warning", f"no ceiling of {LEVEL_NAMES.get(level, level)}: {why}")
    kinds = {place.seconds_kind for place in file.places}
    if kinds == {"bound"}:
        yield notice("remark", f"times are {_times_are(file)}")
    elif kinds == {""}:
        yield notice("remark", "there are no times: only intensities and the least time by the ceilings are shown")


def _limits(file: RooflineFile) -> Html:
    bounds = [place.bound_s for place in file.places]
    timed = any(place.seconds is not None and place.seconds_kind != "bound" for place in file.places)
    columns = [
        Column("kernel"),
        Column("sizes"),
        Column("nearest limit", meaning="the ceiling that takes the longest"),
        times("least time", bounds, meaning="the least that the ceilings allow"),
    ]
    if timed:
        columns += [
            times("time", [place.seconds for place in file.places]),
            percent("of the limit", digits=0, meaning="least time over time"),
            Column("work-items", significant, "GIPS", meaning="work-item instructions over the sub-group size"),
            Column("sub-groups", significant, "GIPS", meaning="instructions of sub-groups"),
        ]
    rows = []
    for place in file.places:
        sizes = ", ".join(f"{name}={value}" for name, value in place.sizes.items())
        times_of = (
            place.seconds,
            place.bound_s / place.seconds if place.seconds else None,
            place.gips,
            place.warp_gips,
        )
        rows.append((place.name, sizes, LEVEL_NAMES[place.nearest], place.bound_s, *(times_of if timed else ())))
    return table(columns, rows, caption="Kernels and their limits")


def _intensities(file: RooflineFile) -> Html:
    labels = {level: f"all, {LEVEL_NAMES[level]}" for level in MEMORY_LEVELS}
    labels |= {space: f"{space} loads and stores" for space in ("global", "local")}
    columns = [Column("kernel"), *(Column(label, significant) for label in labels.values())]
    rows = [(place.name, *(place.intensities.get(name) for name in labels)) for place in file.places]
    return table(columns, rows, caption="Instructions per transaction")


def _counts(file: RooflineFile) -> Html:
    kinds = [kind for kind in INSTRUCTION_CLASSES if any(p.instructions[f"f_inst_{kind}"] for p in file.places)]
    transactions = ("f_txn_global", "f_txn_local", *MEMORY_LEVELS.values())
    columns = [
        Column("kernel"),
        Column("instructions of sub-groups", whole),
        *(Column(_KINDS_NAMED.get(kind, kind), whole) for kind in kinds),
        percent("active work-items"),
    ]
    rows: list[tuple[Cell, ...]] = [
        (
            place.name,
            place.instructions["f_inst_total"],
            *(place.instructions[f"f_inst_{kind}"] for kind in kinds),
            place.instructions["f_inst_predication"],
        )
        for place in file.places
    ]
    levels = [name.removeprefix("f_txn_") for name in transactions]
    moved = [Column("kernel"), *(Column(_MEMORY_NAMES.get(level, level), whole) for level in levels)]
    moved_rows: list[tuple[Cell, ...]] = [
        (place.name, *(place.transactions.get(name) for name in transactions)) for place in file.places
    ]
    return joined(
        table(columns, rows, caption="Instructions per run"), table(moved, moved_rows, caption="Transactions per run")
    )


def _ceilings(file: RooflineFile) -> Html:
    columns = [
        Column("ceiling"),
        Column("rate", significant, "10⁹/s", 1e-9),
        Column("of"),
        Column("source"),
    ]
    rows = [
        (
            LEVEL_NAMES.get(level, level),
            found.rate,
            f"transactions of {found.transaction_bytes} B" if found.transaction_bytes else "instructions",
            found.source,
        )
        for level, found in file.ceilings.known.items()
    ]
    return table(columns, rows, caption=f"Ceilings of {file.ceilings.machine}")
