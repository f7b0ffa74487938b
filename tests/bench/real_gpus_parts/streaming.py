"""One streaming kernel of a few to many work-groups, back to back in a stream and in a graph (``small_kernels``)."""

from __future__ import annotations

import csv
import gzip
from functools import cache
from typing import TYPE_CHECKING, Any

from perflex.machines.files import machine_names

from .rows import MeasuredRow
from .writing import items, make

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

# Elements up to which a cell of the table reaches, and what limits there.
CELLS = ((1e5, "launch"), (1e6, "starts"), (3e6, "L2"), (1e7, "L2 and DRAM"), (1e12, "DRAM"))
_TIMED = {"stream": "queued", "graph": "graph"}


@cache
def _scale(b: int) -> Any:
    """Return ``A[i] = 0.25*B[i]``; arrays take turns from launch to launch, so that what fits stays in L2."""
    return make("scale", items(b), f"A[{b}*bx + tx] = 0.25*B[{b}*bx + tx]", "float64 A[n], B[n]")


def rows(folder: Path) -> Iterator[MeasuredRow]:
    """Yield the rows of GPUs that have a machine file, under the file's name in small letters."""
    machines = {name.lower().replace("-", ""): name for name in machine_names()}
    with gzip.open(folder / "scale.csv.gz", "rt", newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            n, block, machine = int(line["n"]), int(line["block"]), machines.get(line["device"])
            if machine is not None:
                yield MeasuredRow(
                    data="small_kernels",
                    gpu=machine,
                    machine=machine,
                    program=f"scale {line['mode']}",
                    case=f"scale {line['mode']} n={n}",
                    label=f"scale {line['mode']} n={n} block={block}",
                    launches=((_scale(block), {"n": n}, 1),),
                    seconds=float(line["time_s"]),
                    timed=_TIMED[line["mode"]],
                    least_seconds=0.0,
                )


def cell(label: str) -> tuple[str, str]:
    """Return the row and column of the table that a label of these rows belongs to."""
    _, mode, n, block = label.split()
    most = next(words for most, words in CELLS if float(n.removeprefix("n=")) < most)
    return f"{mode}, {most}", block.removeprefix("block=")


def columns(labels: Sequence[str]) -> list[str]:
    return sorted({cell(label)[1] for label in labels}, key=int)


def means(ratios: Mapping[str, float]) -> list[list[str]]:
    """Return the lines of a table of geometric means of ratios, given by label."""
    from statistics import geometric_mean

    heads, cells = columns(list(ratios)), {}
    for label, ratio in ratios.items():
        cells.setdefault(cell(label), []).append(ratio)
    names = list(dict.fromkeys(name for name, _ in cells))
    return [
        [name, *(f"{geometric_mean(cells[name, head]):.2f}" if (name, head) in cells else "" for head in heads)]
        for name in names
    ]
