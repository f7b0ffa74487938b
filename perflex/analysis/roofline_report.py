"""Pictures and tables of rooflines."""

from __future__ import annotations

from math import atan2, degrees
from textwrap import fill
from typing import TYPE_CHECKING, Any

from perflex.analysis.roofline import LIMIT_NAMES, MEMORY_LEVELS, Wall, global_walls, local_walls
from perflex.features.instructions.instruction_counts import INSTRUCTION_CLASSES
from perflex.pictures import COLOURS, new_figure
from perflex.tables import Table, fixed, number, percent, seconds, text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.analysis.roofline import Ceiling, Ceilings, RooflinePlace
    from perflex.machines.machine import Machine
    from perflex.tables import Column

_MEMORY_NAMES = {"global": "global memory", **LIMIT_NAMES}
_CLASS_NAMES = {
    "ldst_global": "global loads and stores",
    "ldst_local": "local loads and stores",
    "ldst_constant": "loads of constants",
    "int": "integer",
}
_SPACES = ("global", "local")


def ceiling_table(ceilings: Ceilings) -> Table:
    """Return the ceilings with their sources."""
    columns = [
        text("ceiling"), number("rate", unit="10⁹/s", factor=1e-9),
        fixed("transaction_bytes", "of transactions", unit="B", meaning="empty for instructions"), text("source"),
    ]  # fmt: skip
    rows = [
        (LIMIT_NAMES[level], one.rate, one.transaction_bytes or None, one.source)
        for level, one in ceilings.known.items()
    ]
    return Table(f"Ceilings of {ceilings.machine}", columns, rows)


def roofline_tables(places: Sequence[RooflinePlace]) -> list[Table]:
    """Return the kernels' limits, their instructions per transaction, and how many there are of both, per run."""
    intensities = {level: f"all, {LIMIT_NAMES[level]}" for level in MEMORY_LEVELS}
    intensities |= {space: f"{space} loads and stores" for space in _SPACES}
    instructions = {"f_inst_total": fixed("f_inst_total", "instructions of sub-groups")}
    for kind in INSTRUCTION_CLASSES:
        name = f"f_inst_{kind}"
        if any(place.instructions[name] for place in places):
            instructions[name] = fixed(name, _CLASS_NAMES.get(kind, kind))
    instructions["f_inst_predication"] = percent("f_inst_predication", "active work-items")
    transactions = [
        fixed(f"f_txn_{level}", _MEMORY_NAMES[level], unit=_transaction_unit(places, level))
        for level in (*_SPACES, *MEMORY_LEVELS)
    ]
    return [
        _limit_table(places),
        _table("Instructions per transaction", places, [number(*one) for one in intensities.items()], "intensities"),
        _table("Instructions per run", places, list(instructions.values()), "instructions"),
        _table("Transactions per run", places, transactions, "transactions"),
    ]


def _limit_table(places: Sequence[RooflinePlace]) -> Table:
    columns = [
        text("kernel"),
        text("sizes"),
        text("limiter", meaning="the ceiling that takes the longest"),
        seconds("bound_s", "least time", meaning="the least that the ceilings allow"),
        seconds("time_s"),
        percent("share", "of the limit", 0, meaning="least time over time"),
        number("gips", "work-items", unit="GIPS", meaning="work-item instructions over the sub-group size"),
        number("warp_gips", "sub-groups", unit="GIPS", meaning="instructions of sub-groups"),
    ]
    rows = [
        (
            place.name, _sizes(place), _limiter(place), place.bound_s, place.seconds,
            place.bound_s / place.seconds if place.seconds and place.seconds_kind != "bound" else None,
            place.gips, place.warp_gips,
        )
        for place in places
    ]  # fmt: skip
    return Table("Kernels and their limits", columns, rows)


def _table(caption: str, places: Sequence[RooflinePlace], columns: Sequence[Column], field: str) -> Table:
    """Return a table of what a field of the kernels has by the columns' names."""
    rows = [[place.name, _sizes(place), *(getattr(place, field).get(one.name) for one in columns)] for place in places]
    # Those of all are with the limits.
    sizes = text("sizes", place="everywhere" if len({row[1] for row in rows}) > 1 else "files")
    return Table(caption, [text("kernel"), sizes, *columns], rows)


def absent_lines(ceilings: Ceilings, places: Sequence[RooflinePlace]) -> list[str]:
    """Return a line for each ceiling that is not known, and for what of the kernels is not, with the reason."""
    lines = [f"no ceiling of {LIMIT_NAMES[level]}: {reason}" for level, reason in ceilings.absent.items()]
    for name, why in (item for place in places for item in place.absent.items()):
        what = "time" if name == "arithmetic" else "transactions"
        lines.append(f"no {what} of {_MEMORY_NAMES.get(name.removeprefix('f_txn_'), name)}: {why}")
    return list(dict.fromkeys(lines))


def times_text(places: Sequence[RooflinePlace], device: str) -> str:
    """Return what the kernels' times are, and of which device."""
    return {
        "measured": f"times measured on {device}",
        "predicted": f"times predicted by a model calibrated on {device}",
        "bound": "minimum times that the ceilings allow, nothing measured",
        "": "no times: marks on the ceilings show intensities",
    }[places[0].seconds_kind]


def _transaction_unit(places: Sequence[RooflinePlace], level: str) -> str:
    """Return the bytes of a transaction of a level with their unit; empty where no ceiling says them."""
    known = places[0].ceilings.known if places else {}
    # Global memory and all caches have those of the caches.
    levels = ["local"] if level == "local" else MEMORY_LEVELS
    sizes = (known[one].transaction_bytes for one in levels if one in known)
    return next((f"{size} B" for size in sizes if size), "")


def _limiter(place: RooflinePlace) -> str:
    local = place.transactions.get("f_txn_local", 0.0)
    if place.nearest != "l1" or not local:
        return LIMIT_NAMES[place.nearest]
    share = 1 - place.transactions["f_txn_global"] / place.transactions["f_txn_l1"]
    return f"L1 ({100 * share:.0f} % local memory)"


def as_json(places: Sequence[RooflinePlace], ceilings: Ceilings, machine: Machine) -> dict[str, Any]:
    """Return ceilings, walls and kernels as plain dictionaries; rates per second."""
    lanes, sector = int(machine.need("sub_group_size")), int(machine.need("sector_bytes"))
    return {
        "machine": machine.name,
        "ceilings": {
            level: {"rate": one.rate, "transaction_bytes": one.transaction_bytes or None, "source": one.source}
            for level, one in ceilings.known.items()
        },
        "absent_ceilings": dict(ceilings.absent),
        "local_walls": {wall.name: wall.intensity for wall in _local_walls(machine)},
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
_MOST_COLUMNS = 3
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


def roofline_figures(places: Sequence[RooflinePlace], machine: Machine, *, title: str = "") -> list[Any]:
    """Return pictures of kernels side by side: above all instructions and global accesses, below local memory.

    Solid markers are all instructions, against the transactions of each level; open ones loads and stores, which stand
    between the walls. A dotted line is the rate of sub-groups' instructions, above the markers where work-items are
    predicated. Without times, upright strokes on the ceilings show the intensities.
    """
    firsts = range(0, len(places), _MOST_COLUMNS)
    return [_figure(places[first : first + _MOST_COLUMNS], machine, title) for first in firsts]


def _figure(places: Sequence[RooflinePlace], machine: Machine, title: str) -> Any:
    lanes, sector = int(machine.need("sub_group_size")), int(machine.need("sector_bytes"))
    rows = 2 if any("local" in place.intensities for place in places) else 1
    figure = new_figure(0.5 + 4.0 * len(places), 1.3 + 3.4 * rows)
    panels = figure.subplots(rows, len(places), squeeze=False)
    for column, place in enumerate(places):
        heading = f"{place.name}\n{_sizes(place)}" if place.sizes else place.name
        levels = [level for level in MEMORY_LEVELS if level in place.intensities]
        walls = global_walls(place.itemsize, lanes=lanes, sector=sector)
        _panel(panels[0][column], place, levels, "global", walls)
        panels[0][column].set_title(heading, fontsize=10)
        if rows > 1 and "local" in place.intensities:
            _panel(panels[1][column], place, ["local"], "local", _local_walls(machine))
            panels[1][column].set_title(f"{place.name}: local memory", fontsize=10)
        elif rows > 1:
            panels[1][column].axis("off")
            panels[1][column].text(0.5, 0.5, "no local memory", ha="center", va="center", color="0.4", fontsize=9)
    _draw_legend(figure, len(places))
    if title:
        figure.suptitle(fill(title, _TITLE_WIDTH * len(places)), fontsize=11)
    return figure


def _local_walls(machine: Machine) -> tuple[Wall, ...]:
    lanes, banks, width = (int(machine.need(fact)) for fact in ("sub_group_size", "local_banks", "local_bank_bytes"))
    return local_walls(lanes=lanes, banks=banks, width=width)


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
