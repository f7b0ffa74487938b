"""The instruction roofline's pictures: ceilings, walls, and kernels on them (Ding and Williams, Figures 3, 4 and 7)."""

from __future__ import annotations

from math import atan2, degrees
from textwrap import fill
from typing import TYPE_CHECKING, Any

from perflex.analysis.roofline.place import MEMORY_LEVELS
from perflex.analysis.roofline.table import LEVEL_NAMES
from perflex.analysis.roofline.walls import Wall, global_walls, local_walls
from perflex.pictures import COLOURS, new_figure, save_figure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from perflex.analysis.roofline.ceilings import Ceiling
    from perflex.analysis.roofline.place import RooflinePlace
    from perflex.machines.machine import Machine

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
    predicated. Without times, upright strokes on the ceilings show the intensities.

    Parameters
    ----------
    places
        Kernels on the roofline of one machine, `MOST_COLUMNS` at most.
    machine
        That machine.
    paths
        Files to write; the suffix says what kind.
    title
        Above the picture.
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
    """Return the picture that `draw_roofline` writes.

    Parameters
    ----------
    places
        Kernels on the roofline of one machine, `MOST_COLUMNS` at most.
    walls, words
        Walls of global memory for each kernel, and of local memory.
    title
        Above the picture.
    """
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
            label = f"{LEVEL_NAMES[level]}, all instructions"
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
            f"{LEVEL_NAMES[level]} {rate:.4g} GTXN/s",
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
