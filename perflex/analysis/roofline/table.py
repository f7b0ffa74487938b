"""The table of kernels on the instruction roofline, and the same as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perflex.analysis.roofline.place import MEMORY_LEVELS
from perflex.analysis.roofline.walls import global_walls, local_walls
from perflex.features.instructions.instructions import INSTRUCTION_CLASSES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.analysis.roofline.ceilings import Ceilings
    from perflex.analysis.roofline.place import RooflinePlace
    from perflex.machines.machine import Machine

LEVEL_NAMES = {"instructions": "instruction issue", "l1": "L1", "local": "local memory", "l2": "L2", "dram": "DRAM"}


def ceiling_lines(ceilings: Ceilings) -> list[str]:
    """Return a line per ceiling with its source, and why others are missing."""
    lines = [f"ceilings of {ceilings.machine}:"]
    for level, ceiling in ceilings.known.items():
        unit = "GIPS" if level == "instructions" else f"GTXN/s of {ceiling.transaction_bytes} B"
        lines.append(f"  {LEVEL_NAMES[level]}: {ceiling.rate / 1e9:.4g} {unit}  [{ceiling.source}]")
    lines += [f"  {LEVEL_NAMES[level]}: none: {reason}" for level, reason in ceilings.absent.items()]
    return lines


def place_rows(places: Sequence[RooflinePlace]) -> list[list[str]]:
    """Return the cells of the table: a column per kernel, names first."""
    rows = [["", *(place.name for place in places)], *_count_rows(places), *_intensity_rows(places)]
    if any(place.seconds is not None for place in places):
        rows += _time_rows(places)
    return rows


def absent_lines(places: Sequence[RooflinePlace]) -> list[str]:
    """Return a line per level for which kernels have no transactions, with the reason."""
    return list(dict.fromkeys(f"no {level}: {why}" for place in places for level, why in place.absent.items()))


def _count_rows(places: Sequence[RooflinePlace]) -> list[list[str]]:
    rows = [["sub-group instructions", *(f"{place.instructions['f_inst_total']:.6g}" for place in places)]]
    totals = [place.instructions["f_inst_total"] for place in places]
    for kind in INSTRUCTION_CLASSES:
        counts = [place.instructions[f"f_inst_{kind}"] for place in places]
        if any(counts):
            cells = [
                f"{count:.6g} ({100 * count / (total or 1):.0f} %)" for count, total in zip(counts, totals, strict=True)
            ]
            rows.append([f"  {kind}", *cells])
    rows.append(["active work-items", *(f"{100 * p.instructions['f_inst_predication']:.1f} %" for p in places)])
    rows += [
        [f"transactions, {name.removeprefix('f_txn_')}", *(_amount(place.transactions.get(name)) for place in places)]
        for name in ("f_txn_global", "f_txn_local", *MEMORY_LEVELS.values())
    ]
    return rows


def _intensity_rows(places: Sequence[RooflinePlace]) -> list[list[str]]:
    labels = {name: f"{name} loads and stores" for name in ("global", "local")}
    labels |= {level: f"instructions, {LEVEL_NAMES[level]}" for level in MEMORY_LEVELS}
    rows = [
        [f"{label} / transaction", *(_amount(place.intensities.get(name)) for place in places)]
        for name, label in labels.items()
    ]
    rows.append(["nearest limit", *map(_nearest, places)])
    rows.append(["minimum time by the ceilings", *(f"{1e3 * place.bound_s:.4g} ms" for place in places)])
    return rows


def _time_rows(places: Sequence[RooflinePlace]) -> list[list[str]]:
    rows = [
        ["time", *map(_time, places)],
        ["GIPS, of work-items / sub-group size", *(_amount(place.gips) for place in places)],
        ["GIPS, of sub-groups", *(_amount(place.warp_gips) for place in places)],
    ]
    if any(place.seconds_kind != "bound" for place in places):
        rows.append(["part of the nearest limit", *map(_part, places)])
    return rows


def _nearest(place: RooflinePlace) -> str:
    local = place.transactions.get("f_txn_local", 0.0)
    if place.nearest != "l1" or not local:
        return LEVEL_NAMES[place.nearest]
    share = 1 - place.transactions["f_txn_global"] / place.transactions["f_txn_l1"]
    return f"L1 ({100 * share:.0f} % local memory)"


def _amount(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}" if value >= 1000 else f"{value:.4g}"


def _time(place: RooflinePlace) -> str:
    return "-" if place.seconds is None else f"{1e3 * place.seconds:.4g} ms ({place.seconds_kind})"


def _part(place: RooflinePlace) -> str:
    return f"{100 * place.bound_s / place.seconds:.0f} %" if place.seconds else "-"


def as_json(places: Sequence[RooflinePlace], ceilings: Ceilings, machine: Machine) -> dict[str, Any]:
    """Return ceilings, walls and kernels as plain dictionaries; rates per second."""
    lanes, sector = int(machine.need("sub_group_size")), int(machine.need("sector_bytes"))
    local = local_walls(
        lanes=lanes, banks=int(machine.need("local_banks")), width=int(machine.need("local_bank_bytes"))
    )
    return {
        "machine": machine.name,
        "ceilings": {
            level: {"rate": one.rate, "transaction_bytes": one.transaction_bytes or None, "source": one.source}
            for level, one in ceilings.known.items()
        },
        "absent_ceilings": dict(ceilings.absent),
        "local_walls": {wall.name: wall.intensity for wall in local},
        "kernels": [_place_json(place, lanes, sector) for place in places],
    }


def _place_json(place: RooflinePlace, lanes: int, sector: int) -> dict[str, Any]:
    walls = global_walls(place.itemsize, lanes=lanes, sector=sector)
    return {
        "kernel": place.name,
        "sizes": dict(place.sizes),
        "sub_group_size": place.sub_group_size,
        "itemsize": place.itemsize,
        **place.instructions,
        **place.transactions,
        "intensities": place.intensities,
        "global_walls": {wall.name: wall.intensity for wall in walls},
        "nearest_limit": place.nearest,
        "limits_s": place.limits,
        "bound_s": place.bound_s,
        "time_s": place.seconds,
        "time": place.seconds_kind or None,
        "gips": place.gips,
        "warp_gips": place.warp_gips,
        "absent": dict(place.absent),
    }
