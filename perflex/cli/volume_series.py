"""The series of ``perflex volumes``: volumes per update over domain sizes."""

from __future__ import annotations

import re
from math import prod
from typing import TYPE_CHECKING

from perflex.cli.arguments import ArgumentError
from perflex.cli.columns import Column
from perflex.cli.json_output import print_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.analysis.volumes.series import SeriesRow
    from perflex.cli.terminal import Terminal
    from perflex.features import Scop
    from perflex.machines.machine import Machine

# Columns that a narrow terminal leaves out, the first ones first.
_SPARE = {"wave depth": 1, "level": 2, "layers fit": 3}
_SERIES = re.compile(r"\s*([A-Za-z_]\w*(?:\s*,\s*[A-Za-z_]\w*)*)\s*=\s*(\d+)\s*:\s*(\d+)\s*:\s*(\d+)\s*")


def series_sizes(
    series: str, points: int | None, given: Mapping[str, int], parameters: Sequence[str]
) -> list[dict[str, int]]:
    """Return the sizes of each member of a series.

    Parameters
    ----------
    series
        ``NAME[,NAME]=FIRST:LAST:STEP``: sizes that have the same value, from the first to the last one inclusive.
    points
        Product of all sizes, which gives the one that is in neither; None if there is none.
    given
        Sizes that stay.
    parameters
        The kernel's.

    Raises
    ------
    ArgumentError
        The words have another form, or do not give each size one value.
    """
    match = _SERIES.fullmatch(series)
    if match is None:
        msg = f"cannot read --series {series!r}; write e.g. nx,ny=128:1024:64"
        raise ArgumentError(msg, word=series)
    names = [name.strip() for name in match[1].split(",")]
    first, last, step = (int(match[i]) for i in (2, 3, 4))
    if not (0 < first <= last and step > 0):
        msg = f"--series {series!r} is empty; the first size must be positive, the last not below it, the step positive"
        raise ArgumentError(msg, word=series)
    twice = [name for name in names if name in given or names.count(name) > 1 or name not in parameters]
    if twice:
        msg = f"size {twice[0]!r} is given twice or is none of the kernel's: {', '.join(parameters)}"
        raise ArgumentError(msg, word=series)
    left = [name for name in parameters if name not in names and name not in given]
    # With --points exactly one size is left to follow from the others, without it none.
    if len(left) != (points is not None):
        msg = (
            f"--points gives one size, but {', '.join(left) or 'none'} has no value; give all others"
            if points is not None
            else f"size {', '.join(left)} has no value; give it, or --points for one"
        )
        raise ArgumentError(msg, word=series)
    chosen = []
    for value in range(first, last + 1, step):
        sizes = {**given, **dict.fromkeys(names, value)}
        if points is not None:
            sizes[left[0]] = max(1, points // prod(sizes.values()))
        chosen.append(sizes)
    return chosen


def print_series(
    terminal: Terminal,
    scop: Scop,
    machine: Machine,
    members: Sequence[tuple[Mapping[str, int], Mapping[str, float]]],
    *,
    registers: int | None,
    as_json: bool,
) -> None:
    """Print the series as a table or JSON.

    Parameters
    ----------
    members
        Sizes and volumes by feature identifier.
    """
    from perflex.analysis.volumes.series import series_row

    rows = [series_row(scop, sizes, machine, values, registers) for sizes, values in members]
    if as_json:
        print_json(rows)
        return
    headings = [*rows[0].sizes, "DRAM load", "DRAM store", "L2 load", "wave depth", "level", "layers fit"]
    columns = [Column(heading, spare=_SPARE.get(heading, 0)) for heading in headings]
    table = []
    for row in rows:
        numbers = [row.dram_load, row.dram_store, row.l2_load]
        cells = [*map(str, row.sizes.values()), *(f"{number:.4g}" for number in numbers)]
        table.append([*cells, *_layer_cells(row)])
    title = f"kernel {scop.name} on {machine.name}: B per update; level: DRAM load without reuse between waves"
    terminal.show(title)
    terminal.show_table(columns, table)


def _layer_cells(row: SeriesRow) -> list[str]:
    if row.level is None:
        return ["-", "-", "-"]
    return [str(row.wave_depth), f"{row.level:.4g}", "yes" if row.layers_fit else "no"]
