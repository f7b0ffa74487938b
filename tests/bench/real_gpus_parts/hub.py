"""Tuning spaces of a convolution and of a point-in-polygon test (the hub data set), launched back to back.

Filter and polygon lie in constant memory: an instruction takes their values as operands, so the Scops have no accesses
for them.
"""

from __future__ import annotations

import csv
import gzip
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import loopy as lp
import numpy as np

from perflex.features import extract_scop

from .row import MeasuredRow
from .vectors import in_vectors
from .writing import make

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from perflex.features import Scop

MACHINES = {"RTX 2080 Ti": "RTX-2080-Ti", "RTX 3060 Laptop": "RTX-3060-Laptop", "MI50": "MI50"}
SAMPLE = 200
_EDGE = 15
_IMAGE = 4096
_POINTS = 20_000_000
_VERTICES = 600
_WAVEFRONT = {"MI50": 64}


def convolution_kernel(block: tuple[int, int], tile: tuple[int, int], pad: int, *, guarded: bool) -> Any:
    """Return a convolution of an image with a square filter of 15, by tiles in local memory.

    Parameters
    ----------
    block, tile
        Work-items of a work-group, and outputs of a work-item, in x and y.
    pad
        Columns that widen the tile's rows.
    guarded
        Whether the tiles of work-groups reach beyond the n by n outputs.
    """
    (x, y), halo = block, _EDGE - 1
    wide, high = x * tile[0], y * tile[1]
    row, column = f"{high}*by + ty + {y}*i", f"{wide}*bx + tx + {x}*j"
    load = f"tile[ty + {y}*i, tx + {x}*j] = image[{row}, {column}]"
    store = f"out[{high}*by + ty + {y}*yo, {wide}*bx + tx + {x}*xo] = s[yo, xo]"
    if guarded:
        load += f" {{if={row} < n + {halo} and {column} < n + {halo}}}"
        store += f" {{if={high}*by + ty + {y}*yo < n and {wide}*bx + tx + {x}*xo < n}}"
    body = f"""
    {load}
    ... lbarrier
    s[yi, xi] = 0
    for fy, fx
        s[yf, xf] = s[yf, xf] + tile[ty + {y}*yf + fy, tx + {x}*xf + fx]*weights[fy, fx]
    end
    {store}
    """
    loops = {
        "bx": f"0 <= bx and {wide}*bx < n",
        "by": f"0 <= by and {high}*by < n",
        "tx": f"0 <= tx < {x}",
        "ty": f"0 <= ty < {y}",
        "i": f"0 <= i and ty + {y}*i < {high + halo}",
        "j": f"0 <= j and tx + {x}*j < {wide + halo}",
        **{loop: f"0 <= {loop} < {tile[1]}" for loop in ("yi", "yf", "yo")},
        **{loop: f"0 <= {loop} < {tile[0]}" for loop in ("xi", "xf", "xo")},
        **{loop: f"0 <= {loop} < {_EDGE}" for loop in ("fy", "fx")},
    }
    arrays = {"image": f"n + {halo}, n + {halo}", "weights": f"{_EDGE}, {_EDGE}", "out": "n, n"}
    local, private = {"tile": (high + halo, wide + halo + pad)}, {"s": (tile[1], tile[0])}
    assume = "n >= 1" if guarded else f"n >= {max(wide, high)} and n mod {wide} = 0 and n mod {high} = 0"
    return make("convolution", loops, body, arrays, local=local, private=private, assume=assume)


_BETWEEN = {
    0: "(B > A and not (C > A)) or (not (B > A) and C > A)",
    1: "(B > A and C <= A) or (B <= A and C > A)",
    2: "A - B == 0 or (A - B)*(A - C) < 0",
    3: "(A - B)*(A - C) < 0 or A - B == 0",
}


def pnpoly_kernel(block: int, tile: int, between: int, use: int) -> Any:
    """Return whether points lie in a polygon of ``vertices``: ``tile`` points of a work-item, ``block`` apart.

    The parity of the edges that a ray crosses is the result; `use` 0 toggles it, 1 and 2 count the edges.
    """
    first = f"{block * tile}*bx + tx"
    inside = f"{first} + {block}*{{}} < n"
    test = _BETWEEN[between].replace("A", "point[p, 1]").replace("B", "vy").replace("C", "wy")
    change = {
        0: "1 - found[p] if {} else found[p]",
        1: "found[p] + (1 if {} else 0)",
        2: "found[p] + 1 if {} else found[p]",
    }
    crossed = f"({test}) and point[p, 0] < slope*(point[p, 1] - vy) + vx"
    body = f"""
    found[i] = 0
    point[r, q] = points[{first} + {block}*r, q] {{if={inside.format("r")}}}
    for k
        vx = polygon[k + 1, 0]
        vy = polygon[k + 1, 1]
        wy = polygon[k, 1]
        slope = (polygon[k, 0] - vx)/(wy - vy)
        found[p] = {change[use].format(crossed)}
    end
    out[{first} + {block}*o] = found[o]{"" if use == 0 else " % 2"} {{if={inside.format("o")}}}
    """
    loops = {"bx": f"0 <= bx and {block * tile}*bx < n", "tx": f"0 <= tx < {block}", "k": "0 <= k < vertices"}
    loops |= {loop: f"0 <= {loop} < {tile}" for loop in ("i", "r", "p", "o")} | {"q": "0 <= q < 2"}
    # The last vertex stands before the first one, too.
    arrays = {"points": "n, 2", "polygon": "vertices + 1, 2", "out": "n"}
    private = {"found": (tile,), "point": (tile, 2), "vx": (), "vy": (), "wy": (), "slope": ()}
    types = {"found": np.int32, "out": np.int32}
    kernel = make("pnpoly", loops, body, arrays, private=private, dtypes=types, sizes=("n", "vertices"))
    return lp.prioritize_loops(kernel, "r, q")


def _without(scop: Scop, array: str) -> Scop:
    statements = tuple(
        replace(one, accesses=tuple(access for access in one.accesses if access.array != array))
        for one in scop.statements
    )
    return replace(scop, statements=statements)


@cache
def convolution(block: tuple[int, int], tile: tuple[int, int], pad: int) -> Scop:
    """Return a convolution as it ran."""
    guarded = any(_IMAGE % (items * outputs) for items, outputs in zip(block, tile, strict=True))
    return _without(extract_scop(convolution_kernel(block, tile, pad, guarded=guarded)), "weights")


@cache
def pnpoly(block: int, tile: int, between: int, use: int) -> Scop:
    """Return a point-in-polygon test as it ran."""
    return _without(in_vectors(extract_scop(pnpoly_kernel(block, tile, between, use)), {"q"}), "polygon")


def programs() -> dict[str, Any]:
    """Return small kernels of each kind, which run anywhere, by name."""
    found = {
        f"convolution_{pad}_{guarded}": convolution_kernel((8, 4), (2, 3), pad, guarded=guarded)
        for pad, guarded in ((0, True), (10, False))
    }
    return found | {
        f"pnpoly_{between}_{use}": pnpoly_kernel(32, 4, between, use) for between in _BETWEEN for use in range(3)
    }


def _sample(path: Path, names: tuple[str, ...]) -> list[dict[str, str]]:
    """Return the rows of a random sample of the configurations that all devices of a file ran."""
    with gzip.open(path, "rt", newline="") as stream:
        lines = list(csv.DictReader(stream))
    by_device: dict[str, dict[tuple[str, ...], dict[str, str]]] = {}
    for line in lines:
        by_device.setdefault(line["device"], {})[tuple(line[name] for name in names)] = line
    common = sorted(set.intersection(*(set(found) for found in by_device.values())))
    chosen = np.random.default_rng(0).choice(len(common), SAMPLE, replace=False)
    return [found[common[place]] for found in by_device.values() for place in chosen]


_CONVOLUTION = ("block_x", "block_y", "tile_x", "tile_y", "read_only", "use_padding")
_PNPOLY = ("block_x", "tile_size", "between_method", "use_method")


def rows(folder: Path) -> Iterator[MeasuredRow]:
    """Yield the rows of 200 configurations of each file; the times are medians, which throttling moves least."""
    for name in ("convolution_bat", "convolution_milo_MI50"):
        for line in _sample(folder / f"{name}.csv.gz", _CONVOLUTION):
            block, tile = (int(line["block_x"]), int(line["block_y"])), (int(line["tile_x"]), int(line["tile_y"]))
            launch = convolution(block, tile, int(line["pad_columns"])), {"n": _IMAGE}, 1
            yield _row("hub_convolution", line, _CONVOLUTION, launch)
    for line in _sample(folder / "pnpoly.csv.gz", _PNPOLY):
        block_x, tile_size, between, use = (int(line[name]) for name in _PNPOLY)
        launch = pnpoly(block_x, tile_size, between, use), {"n": _POINTS, "vertices": _VERTICES}, 1
        yield _row("hub_pnpoly", line, _PNPOLY, launch)


def _row(
    data: str, line: dict[str, str], names: tuple[str, ...], launch: tuple[Scop, dict[str, int], int]
) -> MeasuredRow:
    program = data.removeprefix("hub_")
    shown = " ".join(f"{name}={line[name]}" for name in names)
    return MeasuredRow(
        data=data,
        gpu=line["device"],
        machine=MACHINES[line["device"]],
        program=program,
        case=program,
        label=f"{program} {shown}",
        launches=(launch,),
        sub_group_size=_WAVEFRONT.get(line["device"], 32),
        seconds=float(line["time_median_s"]),
        warm=True,
    )
