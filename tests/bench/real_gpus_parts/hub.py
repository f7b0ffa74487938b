"""Tuning spaces of a convolution and of a point-in-polygon test (the hub data set), launched back to back.

Times of the same kernels on further GPUs come from a folder ``gpu_tuning`` beside the data, if there is one.

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

from .later import Later
from .row import MeasuredRow
from .vectors import in_vectors
from .writing import make

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from perflex.features import Scop

    # Seconds by GPU and settings.
    _Times = dict[str, dict[tuple[int, ...], float]]

MACHINES = {
    "RTX 2080 Ti": "RTX-2080-Ti",
    "RTX 3060 Laptop": "RTX-3060-Laptop",
    "MI50": "MI50",
    "A100 40GB": "A100-40GB",
    "RTX A4000": "RTX-A4000",
}
# Files of the tuning data. Machine files of the other GPUs there state no rates of integers.
_WIDE = {"A100": "A100 40GB", "A4000": "RTX A4000"}
_POINTS_ELSEWHERE = {"RTX_2080_Ti": "RTX 2080 Ti"}
_CONVOLUTION = ("block_x", "block_y", "tile_x", "tile_y", "read_only", "use_padding")
_CONVOLUTION_THERE = ("block_size_x", "block_size_y", "tile_size_x", "tile_size_y", "read_only", "use_padding")
_PNPOLY = ("block_x", "tile_size", "between_method", "use_method")
_PNPOLY_THERE = ("block_size_x", "tile_size", "between_method", "use_method")
_BANKS = 32
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


def padding(block_x: int, tile_x: int) -> int:
    """Return the columns that keep rows of a tile in other banks; none where a work-group has whole rows of banks."""
    return -(_EDGE - 1 + block_x * (tile_x - 1)) % _BANKS if block_x % _BANKS else 0


def _lines(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt", newline="") as stream:
        return list(csv.DictReader(stream))


def _own(path: Path, names: Sequence[str]) -> _Times:
    """Return the medians of a file of the hub; throttling moves them least."""
    found: _Times = {}
    for line in _lines(path):
        found.setdefault(line["device"], {})[_settings(line, names)] = float(line["time_median_s"])
    return found


def _tuning(folder: Path, gpus: Mapping[str, str], names: Sequence[str]) -> _Times:
    """Return times of further GPUs, if their files are there: of kernels that stage their input, if not all do."""
    found: _Times = {}
    for stem, gpu in gpus.items():
        path = folder / f"{stem}.csv.gz"
        for line in _lines(path) if path.is_file() else ():
            if line.get("use_shmem", "1") == "1":
                seconds = 1e-3 * float(line.get("time_ms_median", line["time_ms"]))
                found.setdefault(gpu, {})[_settings(line, names)] = seconds
    return found


def _settings(line: Mapping[str, str], names: Sequence[str]) -> tuple[int, ...]:
    return tuple(int(line[name]) for name in names)


def _drawn(times: _Times, most: int) -> list[tuple[int, ...]]:
    """Return configurations at random of those that all GPUs of a space ran; fewer are the first of more."""
    common = sorted(set.intersection(*(set(own) for own in times.values())))
    return [common[place] for place in np.random.default_rng(0).permutation(len(common))[:most]]


def _tuning_folder(folder: Path) -> Path:
    """Return where the spaces of further GPUs are: beside this folder, or one level up."""
    beside = folder.parent / "gpu_tuning"
    return beside if beside.is_dir() else folder.parent.parent / "gpu_tuning"


def times_of(folder: Path) -> dict[str, tuple[_Times, ...]]:
    """Return the times of each kernel's spaces: by GPU and settings."""
    further = _tuning_folder(folder)
    wide = _own(folder / "convolution_milo_MI50.csv.gz", _CONVOLUTION)
    wide |= _tuning(further / "convolution_milo", _WIDE, _CONVOLUTION_THERE)
    points = _own(folder / "pnpoly.csv.gz", _PNPOLY) | _tuning(further / "pnpoly", _POINTS_ELSEWHERE, _PNPOLY_THERE)
    return {"convolution": (_own(folder / "convolution_bat.csv.gz", _CONVOLUTION), wide), "pnpoly": (points,)}


def rows(folder: Path, most: int) -> Iterator[MeasuredRow]:
    """Yield `most` configurations of each space, with the time of every GPU that ran them, in whichever space."""
    for program, spaces in times_of(folder).items():
        chosen = list(dict.fromkeys(one for space in spaces for one in _drawn(space, most)))
        for gpu, known in (item for space in spaces for item in space.items()):
            for settings in chosen:
                if settings in known:
                    yield _row(program, gpu, settings, known[settings])


def _row(program: str, gpu: str, settings: tuple[int, ...], seconds: float) -> MeasuredRow:
    if program == "convolution":
        names, sizes = _CONVOLUTION, {"n": _IMAGE}
        block_x, block_y, tile_x, tile_y, _, padded = settings
        pad = padding(block_x, tile_x) if padded else 0
        kernel = Later(convolution, ((block_x, block_y), (tile_x, tile_y), pad))
    else:
        names, sizes = _PNPOLY, {"n": _POINTS, "vertices": _VERTICES}
        kernel = Later(pnpoly, settings)
    shown = " ".join(f"{name}={value}" for name, value in zip(names, settings, strict=True))
    return MeasuredRow(
        data=f"hub_{program}",
        gpu=gpu,
        machine=MACHINES[gpu],
        program=program,
        case=program,
        label=f"{program} {shown}",
        launches=((kernel, sizes, 1),),
        sub_group_size=_WAVEFRONT.get(gpu, 32),
        seconds=seconds,
        warm=True,
    )
