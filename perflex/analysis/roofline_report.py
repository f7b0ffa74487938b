"""Pictures and tables of rooflines."""

from __future__ import annotations

from math import atan2, degrees
from textwrap import fill
from typing import TYPE_CHECKING, Any

from perflex.analysis.roofline import LIMIT_NAMES, MEMORY_LEVELS, Wall, global_walls, local_walls
from perflex.features.instructions.instruction_counts import INSTRUCTION_CLASSES
from perflex.pictures import COLOURS, new_figure, save_figure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from perflex.analysis.roofline import Ceiling, Ceilings, RooflinePlace
    from perflex.machines.machine import Machine

MEMORY_NAMES = {"global": "global memory", **LIMIT_NAMES}
"""Where transactions go to, by what follows ``f_txn_`` in their features."""


def ceiling_lines(ceilings: Ceilings) -> list[str]:
    """Return a line per ceiling with its source, and why others are missing."""
    lines = [f"ceilings of {ceilings.machine}:"]
    for level, ceiling in ceilings.known.items():
        unit = "GIPS" if level == "instructions" else f"GTXN/s of {ceiling.transaction_bytes} B"
        lines.append(f"  {LIMIT_NAMES[level]}: {ceiling.rate / 1e9:.4g} {unit}  [{ceiling.source}]")
    lines += [f"  {LIMIT_NAMES[level]}: none: {reason}" for level, reason in ceilings.absent.items()]
    return lines


def place_rows(places: Sequence[RooflinePlace]) -> list[list[str]]:
    """Return the cells of the table: a column per kernel, names first."""
    rows = [["", *(place.name for place in places)], *_count_rows(places), *_intensity_rows(places)]
    if any(place.seconds is not None for place in places):
        rows += _time_rows(places)
    return rows


def absent_lines(places: Sequence[RooflinePlace]) -> list[str]:
    """Return a line per level for which kernels have no transactions, with the reason."""
    lines = []
    for name, why in (item for place in places for item in place.absent.items()):
        what = "time" if name == "arithmetic" else "transactions"
        lines.append(f"no {what} of {MEMORY_NAMES.get(name.removeprefix('f_txn_'), name)}: {why}")
    return list(dict.fromkeys(lines))


def transaction_unit(place: RooflinePlace, level: str) -> str:
    """Return the bytes of a transaction of a level with their unit; empty where no ceiling says them."""
    known = place.ceilings.known
    # Global memory and all caches have those of the caches.
    levels = ["local"] if level == "local" else MEMORY_LEVELS
    sizes = (known[one].transaction_bytes for one in levels if one in known)
    return next((f"{size} B" for size in sizes if size), "")


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
    for level in ("global", "local", *MEMORY_LEVELS):
        label = f"transactions, {MEMORY_NAMES[level]} ({transaction_unit(places[0], level)})".removesuffix(" ()")
        rows.append([label, *(_amount(place.transactions.get(f"f_txn_{level}")) for place in places)])
    return rows


def _intensity_rows(places: Sequence[RooflinePlace]) -> list[list[str]]:
    labels = {name: f"{name} loads and stores" for name in ("global", "local")}
    labels |= {level: f"instructions, {LIMIT_NAMES[level]}" for level in MEMORY_LEVELS}
    rows = [
        [f"{label} / transaction", *(_amount(place.intensities.get(name)) for place in places)]
        for name, label in labels.items()
    ]
    rows.append(["limiter", *map(_nearest, places)])
    rows.append(["minimum time by the ceilings", *(f"{1e3 * place.bound_s:.4g} ms" for place in places)])
    return rows


def _time_rows(places: Sequence[RooflinePlace]) -> list[list[str]]:
    rows = [
        ["time", *map(_time, places)],
        ["GIPS, of work-items / sub-group size", *(_amount(place.gips) for place in places)],
        ["GIPS, of sub-groups", *(_amount(place.warp_gips) for place in places)],
    ]
    if any(place.seconds_kind != "bound" for place in places):
        rows.append(["part of the limit", *map(_part, places)])
    return rows


def _nearest(place: RooflinePlace) -> str:
    local = place.transactions.get("f_txn_local", 0.0)
    if place.nearest != "l1" or not local:
        return LIMIT_NAMES[place.nearest]
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


# Kernels in one picture.
MOST_COLUMNS = 3
_COLOUR = dict(zip((*MEMORY_LEVELS, "local"), COLOURS, strict=True))
_MARKER = {"l1": "o", "l2": "s", "dram": "^", "local": "D"}
_WALL = "0.45"
# Factors: space beside the outermost marker, and of a ceiling's text above its line.
_SPAN = 1.6
_ABOVE = 1.15
# Walls that are named, where there are no more.
_NAMED = 3
# Letters of the title above one panel.
_TITLE_WIDTH = 50
# Where levels have one intensity, their markers are all seen.
_SIZE = {"l1": 11, "l2": 8, "dram": 5.5, "local": 8}


def draw_roofline(places: Sequence[RooflinePlace], machine: Machine, paths: Sequence[Path], *, title: str = "") -> None:
    """Draw kernels side by side: above all instructions and global loads and stores, below those of local memory.

    Solid markers are all instructions, against the transactions of each level; open ones loads and stores, which stand
    between the walls. A dotted line is the rate of sub-groups' instructions, above the markers where work-items are
    predicated. Without times, upright strokes on the ceilings show the intensities. At most `MOST_COLUMNS` kernels; the
    suffix of a path says what kind of file.
    """
    lanes, sector = int(machine.need("sub_group_size")), int(machine.need("sector_bytes"))
    among = {place.itemsize: global_walls(place.itemsize, lanes=lanes, sector=sector) for place in places}
    words: tuple[Wall, ...] = ()
    if any("local" in place.intensities for place in places):
        words = local_walls(
            lanes=lanes, banks=int(machine.need("local_banks")), width=int(machine.need("local_bank_bytes"))
        )
    figure = roofline_figure(places, [among[place.itemsize] for place in places], words, title=title)
    for path in paths:
        save_figure(figure, path)


def roofline_figure(
    places: Sequence[RooflinePlace], walls: Sequence[Sequence[Wall]], words: Sequence[Wall], *, title: str = ""
) -> Any:
    """Return the picture that `draw_roofline` writes; `words` are the walls of local memory."""
    rows = 2 if any("local" in place.intensities for place in places) else 1
    figure = new_figure(0.5 + 4.0 * len(places), 1.3 + 3.4 * rows)
    panels = figure.subplots(rows, len(places), squeeze=False)
    for column, place in enumerate(places):
        heading = f"{place.name}\n{_sizes(place)}" if place.sizes else place.name
        levels = [level for level in MEMORY_LEVELS if level in place.intensities]
        _panel(panels[0][column], place, levels, "global", walls[column])
        panels[0][column].set_title(heading, fontsize=10)
        if rows > 1 and "local" in place.intensities:
            _panel(panels[1][column], place, ["local"], "local", words)
            panels[1][column].set_title(f"{place.name}: local memory", fontsize=10)
        elif rows > 1:
            panels[1][column].axis("off")
            panels[1][column].text(0.5, 0.5, "no local memory", ha="center", va="center", color="0.4", fontsize=9)
    _draw_legend(figure, len(places))
    if title:
        figure.suptitle(fill(title, _TITLE_WIDTH * len(places)), fontsize=11)
    return figure


def _sizes(place: RooflinePlace) -> str:
    return ", ".join(f"{name}={value}" for name, value in place.sizes.items())


def _panel(axes: Any, place: RooflinePlace, levels: Sequence[str], space: str, walls: Sequence[Wall]) -> None:
    """Draw one kernel: `levels` have a ceiling and a marker, `space` is where the open marker belongs."""
    known = place.ceilings.known
    peak = place.ceilings.peak.rate / 1e9
    ceilings = {level: known[level] for level in levels if level in known}
    points = _points(place, levels, space, known)
    xs = [x for x, _, _ in points] + [wall.intensity for wall in walls]
    xs += [peak / (ceiling.rate / 1e9) for ceiling in ceilings.values()]
    low, high = min(xs) / _SPAN / 2, max(xs) * _SPAN * 2.5
    heights = [y for _, y, _ in points if y is not None]
    floor = min([peak / 200, *(height / 3 for height in heights)])
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(floor, peak * 1.9))
    _draw_ceilings(axes, ceilings, peak, (low, high, floor))
    _draw_walls(axes, walls, peak)
    for x, y, style in points:
        if y is not None:
            axes.plot([x], [y], linestyle="none", zorder=4, clip_on=False, **style)
    warp = place.warp_gips
    if warp is not None and space == "global":
        axes.axhline(warp, color="black", linestyle=":", linewidth=1.2, label="sub-group instructions", zorder=2)
    axes.set_xlabel("instructions per transaction", fontsize=9)
    axes.set_ylabel("GIPS", fontsize=9)
    axes.tick_params(labelsize=8)


def _draw_legend(figure: Any, columns: int) -> None:
    """Draw one legend for all panels below them."""
    entries: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    figure.legend(entries.values(), entries, loc="outside lower center", ncols=2 * columns, fontsize=8, frameon=False)


def _points(
    place: RooflinePlace, levels: Sequence[str], space: str, known: Mapping[str, Ceiling]
) -> list[tuple[float, float | None, dict[str, Any]]]:
    """Return (intensity, rate, style) of each marker; without a time the rate is that of the marker's ceiling."""
    peak = place.ceilings.peak.rate / 1e9
    found: list[tuple[float, float | None, dict[str, Any]]] = []

    def add(level: str, intensity: float, rate: float | None, label: str, **style: Any) -> None:
        colour = _COLOUR[level]
        if place.seconds is None:
            rate = min(peak, known[level].rate / 1e9 * intensity) if level in known else None
            style = {"marker": "|", "markersize": 13, "markeredgewidth": 2.5 if style else 1.3}
        found.append((intensity, rate, {"color": colour, "label": label, **style}))

    if space == "global":
        for level in levels:
            label = f"{LIMIT_NAMES[level]}, all instructions"
            add(level, place.intensities[level], place.gips, label, marker=_MARKER[level], markersize=_SIZE[level])
    if space in place.intensities:
        level = "l1" if space == "global" else "local"
        rate = place.rate(place.instructions[f"f_inst_ldst_{space}"])
        hollow = (
            {}
            if place.seconds is None
            else {"marker": _MARKER[level], "markersize": _SIZE[level], "markerfacecolor": "none"}
        )
        add(level, place.intensities[space], rate, f"{space} loads and stores", **hollow)
    return found


def _draw_ceilings(axes: Any, ceilings: Mapping[str, Ceiling], peak: float, limits: tuple[float, float, float]) -> None:
    from matplotlib.patheffects import withStroke

    low, high, floor = limits
    axes.plot([low, high], [peak, peak], color="black", linewidth=1.4, zorder=1)
    axes.annotate(
        f"peak {peak:.4g} GIPS", (high, peak), xytext=(-4, 4), textcoords="offset points", ha="right", fontsize=8
    )
    for level, ceiling in ceilings.items():
        rate = ceiling.rate / 1e9
        # Where bandwidth times intensity reaches the peak (Equation 2).
        ridge = peak / rate
        start = max(low, floor / rate)
        axes.plot([start, ridge], [rate * start, peak], color=_COLOUR[level], linewidth=1.4, zorder=1)
        # Beside the upper end, where walls are few.
        axes.text(
            0.75 * ridge,
            0.75 * peak * _ABOVE,
            f"{LIMIT_NAMES[level]} {rate:.4g} GTXN/s",
            # The slope in data coordinates: `transform_rotates_text` turns it to that on logarithmic axes.
            rotation=degrees(atan2(rate, 1.0)),
            rotation_mode="anchor",
            transform_rotates_text=True,
            ha="right",
            fontsize=7,
            color=_COLOUR[level],
            path_effects=[withStroke(linewidth=2.5, foreground="white")],
        )


def _draw_walls(axes: Any, walls: Sequence[Wall], peak: float) -> None:
    for wall in walls:
        # Of bank conflicts, only the ends have room for names.
        named = len(walls) <= _NAMED or wall in (walls[0], walls[-1])
        axes.axvline(wall.intensity, color=_WALL, linestyle="--", linewidth=1.0 if named else 0.4, zorder=0)
        if named:
            place = (wall.intensity, peak)
            axes.annotate(
                wall.name, place, xytext=(-3, 4), textcoords="offset points", ha="right", fontsize=7, color=_WALL
            )
