"""DRAM loads of the 25-point stencil over domain sizes of equal volume (Ernst et al., Section 5.7, Figure 23).

Prints a table per work-group shape, and writes it as CSV and as a picture with --out. Without reuse between waves, a
wave of 1, 2, 4, 8, 16 or 32 planes loads 72, 40, 24, 16, 12 or 10 B per update; the least is 8 B.

    python tests/bench/layer_series.py --machine A100-40GB --out series
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from typing import TYPE_CHECKING

from perflex import estimate_volumes, load_machine
from perflex.analysis.volumes.picture import shape_colour
from perflex.analysis.volumes.series import SeriesRow, series_row
from perflex.features import extract_scop
from perflex.pictures import new_figure
from uipick import ALL_GENERATORS, KernelCollection

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

POINTS = 512 * 1024 * 1024
SHAPES = ((512, 2, 1), (64, 8, 2), (32, 8, 4), (16, 8, 8), (16, 4, 16), (16, 2, 32))


def scop_of(shape: tuple[int, int, int]) -> object:
    tags = ["stencil3d", "points:25", "variant:plain", "chunk:1", "dtype:float64", "groups_fit:False"]
    tags += [f"lsize_{axis}:{extent}" for axis, extent in enumerate(shape)]
    tags += ["nx:512", "ny:512", "nz:512"]
    (kernel,) = KernelCollection(ALL_GENERATORS).generate_kernels(tags)
    return extract_scop(kernel.kernel)


def draw_series(
    series: Mapping[tuple[int, ...], Sequence[SeriesRow]], path: Path, size: str, *, title: str = ""
) -> None:
    """Draw DRAM loads per update over domain sizes, a line per work-group shape (Ernst et al., Figure 23).

    Parameters
    ----------
    series
        Rows by the work-group's extents along x, y and, if there are three, z. Dotted lines are the levels without
        reuse between waves.
    path
        File to write; the suffix says what kind.
    size
        The size parameter along the horizontal axis.
    title
        Text above the picture.
    """
    figure = new_figure(7.2, 4.8)
    axes = figure.subplots()
    for shape, rows in series.items():
        x, y, z = (*shape, 1, 1, 1)[:3]
        colour, values = shape_colour(x, y, z), [row.sizes[size] for row in rows]
        label = " x ".join(map(str, shape))
        axes.plot(values, [row.dram_load for row in rows], color=colour, marker="o", markersize=3, label=label)
        known = [(value, row.level) for value, row in zip(values, rows, strict=True) if row.level is not None]
        if known:
            axes.plot(*zip(*known, strict=True), color=colour, linestyle=":", linewidth=1)
    axes.set_xlabel(f"{size} (plane of {size} x {size} points)")
    axes.set_ylabel("DRAM load, B per update")
    axes.set_ylim(bottom=0)
    axes.set_title(title, fontsize=10)
    axes.legend(fontsize=8)
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--machine", default="A100-40GB")
    parser.add_argument("--variant", default="current", choices=("current", "paper2022"))
    parser.add_argument("--planes", default="192:1024:64", help="FIRST:LAST:STEP of the plane's edge")
    parser.add_argument("--out", type=Path, help="folder for layer_series.csv and layer_series.png")
    arguments = parser.parse_args()
    machine = load_machine(arguments.machine)
    first, last, step = map(int, arguments.planes.split(":"))
    series: dict[tuple[int, ...], list[SeriesRow]] = {}
    for shape in SHAPES:
        scop = scop_of(shape)
        print(f"work-groups of {shape}: edge, DRAM load (B per update), level, layers fit")
        for edge in range(first, last + 1, step):
            sizes = {"nx": edge, "ny": edge, "nz": POINTS // edge**2}
            volumes = estimate_volumes(scop, sizes, machine, variant=arguments.variant, registers=32).features()
            row = series_row(scop, sizes, machine, volumes, registers=32)
            series.setdefault(shape, []).append(row)
            print(f"  {edge:5d}  {row.dram_load:6.2f}  {row.level or float('nan'):5.1f}  {row.layers_fit}")
    if arguments.out is not None:
        arguments.out.mkdir(parents=True, exist_ok=True)
        with (arguments.out / "layer_series.csv").open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream)
            writer.writerow(["block_x", "block_y", "block_z", "nx", "ny", "nz", "dram_load_B_per_update", "level"])
            for shape, rows in series.items():
                writer.writerows([*shape, *row.sizes.values(), row.dram_load, row.level] for row in rows)
        title = f"25-point stencil, {POINTS} points, {machine.name}"
        draw_series(series, arguments.out / "layer_series.png", "nx", title=title)


if __name__ == "__main__":
    main()
