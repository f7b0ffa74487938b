"""Four hand-written matrix products on an A100 (the sgemm_variants data set), launched back to back."""

from __future__ import annotations

import csv
from functools import cache
from typing import TYPE_CHECKING, Any

from .gpuperf import matmul_naive
from .rows import MeasuredRow
from .writing import make

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MACHINES = {"A100 80GB PCIe": "A100-80GB"}
_ARRAYS = dict.fromkeys("abc", "n, n")
# Rows and columns of results of a work-item.
_TILES = {"tiled16": (1, 1), "microtile2x2": (2, 2), "microtile4x1": (4, 1)}


def _tiled(name: str, rows_each: int, columns_each: int) -> Any:
    """Return a product by tiles of 16 along k; a work-item's results are 16 rows and columns apart."""
    high, wide = 16 * rows_each, 16 * columns_each
    rows_of, columns_of = range(rows_each), range(columns_each)
    results = [(i, j) for i in rows_of for j in columns_of]
    loads = [f"at[ty + {16 * i}, tx] = a[{high}*by + ty + {16 * i}, 16*t + tx]" for i in rows_of]
    loads += [f"bt[ty, tx + {16 * j}] = b[16*t + ty, {wide}*bx + tx + {16 * j}]" for j in columns_of]
    products = [f"s{i}{j} = s{i}{j} + at[ty + {16 * i}, q]*bt[q, tx + {16 * j}]" for i, j in results]
    stores = [f"c[{high}*by + ty + {16 * i}, {wide}*bx + tx + {16 * j}] = s{i}{j}" for i, j in results]
    body = [*(f"s{i}{j} = 0" for i, j in results), "for t", *loads, "... lbarrier", "for q", *products, "end"]
    body += ["... lbarrier", "end", *stores]
    loops = {"bx": f"0 <= bx and {wide}*bx < n", "by": f"0 <= by and {high}*by < n"}
    loops |= {"tx": "0 <= tx < 16", "ty": "0 <= ty < 16", "t": "0 <= t and 16*t < n", "q": "0 <= q < 16"}
    private = {f"s{i}{j}": () for i, j in results}
    local = {"at": (high, 16), "bt": (16, wide)}
    # All measured sizes are multiples, so that no work-item is outside.
    assume = f"n >= {high} and n mod {max(high, wide)} = 0"
    return make(name, loops, "\n".join(body), _ARRAYS, local=local, private=private, assume=assume)


@cache
def kernel_of(name: str) -> Any:
    """Return a product of two n by n matrices."""
    return matmul_naive() if name == "naive" else _tiled(name, *_TILES[name])


def programs() -> dict[str, Any]:
    """Return the kernels by name."""
    return {name: kernel_of(name) for name in ("naive", *_TILES)}


def rows(folder: Path) -> Iterator[MeasuredRow]:
    """Yield the rows of ``sgemm_a100.csv``; notes name the node, since the variants ran on different cards."""
    with (folder / "sgemm_a100.csv").open(newline="") as stream:
        for line in csv.DictReader(stream):
            name, n = line["kernel"], int(line["n"])
            yield MeasuredRow(
                data="sgemm",
                gpu=line["device"],
                machine=MACHINES[line["device"]],
                program=name,
                case=f"matmul n={n}",
                label=f"{name} n={n}",
                launches=((kernel_of(name), {"n": n}, 1),),
                seconds=float(line["time_s"]),
                note=line["node"],
                registers=int(line["registers"]),
            )
