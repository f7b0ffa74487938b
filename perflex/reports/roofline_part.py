"""What a page says of kernels on a roofline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perflex.analysis.roofline_report import absent_lines, ceiling_table, roofline_figures, roofline_tables, times_text
from perflex.html import render
from perflex.reports.page import Part

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.analysis.roofline import RooflinePlace
    from perflex.machines.machine import Machine


def roofline_part(places: Sequence[RooflinePlace], machine: Machine, device: str) -> Part:
    """Return what a page says of kernels on a roofline, one at least; the device is where their times are from."""
    ceilings, times = places[0].ceilings, times_text(places, device)
    limits, *others = roofline_tables(places)
    body = render(
        "roofline_report.html",
        limits=limits,
        figures=roofline_figures(places, machine),
        tables=[*others, ceiling_table(ceilings)],
    )
    notices = [("warning", text) for text in absent_lines(ceilings, places)]
    if places[0].seconds_kind in {"", "bound"}:
        notices.append(("remark", times))
    return Part(f"Instruction roofline of {machine.name}", notices, body, {"machine": machine.name, "times": times})
