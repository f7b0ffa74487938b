"""Elementary kernels on three GPUs (the gpuperf data set), and four matrix products on an A100 (sgemm_variants).

All were launched back to back.
"""

from __future__ import annotations

import csv
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from perflex.features import annotate, extract_scop

from .histograms import atomic_hotspot, histogram
from .rows import MeasuredRow
from .writing import items, make, whole_items

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# Kernels with the same result are variants of one case.
_TASKS = {f"{way}_transpose": "transpose" for way in ("naive", "shared")}
_TASKS |= {f"matmul_{way}": "matmul" for way in ("naive", "tiled")}
# One work-group for 1.4 to 5.4 us: nothing but launch cost.
_LEFT_OUT = {"shared_broadcast_one_block"}
_I = "256*bx + tx"
_VECTORS, _TWO = "float32 A[n], B[n], C[n]", "float32 A[n, n], B[n, n]"
_IN_TILES = "n >= 32 and n mod 32 = 0"
# Even elements add what a loop of 128 steps, 16 of them unrolled, makes.
_DIVERGENT = f"""
s = 0
s = s + 0.0001f*(16*j + k) {{if=tx % 2 < 1}}
C[{_I}] = A[{_I}] + B[{_I}] + s
"""
_TRANSPOSED = """
tile[ty, tx] = A[32*by + ty, 32*bx + tx]
... lbarrier
B[32*bx + ty, 32*by + tx] = tile[tx, ty] {if=ty < 32}
"""
_CONVOLVED = """
s = 0
s = s + img[16*by + ty + dy, 16*bx + tx + dx]*mask[dy, dx]
out[16*by + ty, 16*bx + tx] = s
"""
_PRODUCT = """
s = 0
s = s + A[16*by + ty, k]*B[k, 16*bx + tx]
C[16*by + ty, 16*bx + tx] = s
"""
_TILED_PRODUCT = """
s = 0
for t
    At[ty, tx] = A[32*by + ty, 32*t + tx]
    Bt[ty, tx] = B[32*t + ty, 32*bx + tx]
    ... lbarrier
    for k
        s = s + At[ty, k]*Bt[k, tx]
    end
    ... lbarrier
end
C[32*by + ty, 32*bx + tx] = s
"""


def _reduction(name: str, term: str, data: str) -> Any:
    lines = [f"shared[tx] = {term.format('512*bx + tx')} + {term.format('512*bx + tx + 256')}", "... lbarrier"]
    for stride in (128, 64, 32, 16, 8, 4, 2, 1):
        lines += [f"shared[tx] = shared[tx] + shared[tx + {stride}] {{if=tx < {stride}}}", "... lbarrier"]
    lines.append("out[bx] = shared[0] {if=tx < 1}")
    loops = {"bx": "0 <= bx and 512*bx < n", "tx": "0 <= tx < 256"}
    data += ", out[n // 512]; local float32 shared[256]"
    return make(name, loops, "\n".join(lines), data, assume="n >= 512 and n mod 512 = 0")


def conv2d(edge: int) -> Any:
    inside = f"n - {edge - 1}"
    loops = items(16, 16, x=inside, y=inside) | {"dy": f"0 <= dy < {edge}", "dx": f"0 <= dx < {edge}"}
    data = f"float32 img[n, n], out[n, n], mask[{edge}, {edge}]; private float32 s"
    return make(f"conv2d_{edge}x{edge}", loops, _CONVOLVED, data, assume=f"n >= {edge}")


def _products(name: str, rows_each: int, columns_each: int) -> Any:
    """Return a product by tiles of 16 along k; a work-item's results are 16 rows and columns apart."""
    high, wide = 16 * rows_each, 16 * columns_each
    rows_of, columns_of = range(rows_each), range(columns_each)
    results = [(i, j) for i in rows_of for j in columns_of]
    loads = [f"at[ty + {16 * i}, tx] = A[{high}*by + ty + {16 * i}, 16*t + tx]" for i in rows_of]
    loads += [f"bt[ty, tx + {16 * j}] = B[16*t + ty, {wide}*bx + tx + {16 * j}]" for j in columns_of]
    products = [f"s{i}{j} = s{i}{j} + at[ty + {16 * i}, q]*bt[q, tx + {16 * j}]" for i, j in results]
    stores = [f"C[{high}*by + ty + {16 * i}, {wide}*bx + tx + {16 * j}] = s{i}{j}" for i, j in results]
    body = [*(f"s{i}{j} = 0" for i, j in results), "for t", *loads, "... lbarrier", "for q", *products, "end"]
    body += ["... lbarrier", "end", *stores]
    loops = {"bx": f"0 <= bx and {wide}*bx < n", "by": f"0 <= by and {high}*by < n"}
    loops |= {"tx": "0 <= tx < 16", "ty": "0 <= ty < 16", "t": "0 <= t and 16*t < n", "q": "0 <= q < 16"}
    data = f"{_TWO}, C[n, n]; local float32 at[{high}, 16], bt[16, {wide}]; private float32 "
    data += ", ".join(f"s{i}{j}" for i, j in results)
    # All measured sizes are multiples, so that no work-item is outside.
    return make(name, loops, "\n".join(body), data, assume=f"n >= {high} and n mod {max(high, wide)} = 0")


_IN_K = {"k": "0 <= k < n"}
_UNROLLED = {"j": "0 <= j < 8", "k": "0 <= k < 16"}
_BY_TILES = {"t": "0 <= t and 32*t < n", "k": "0 <= k < 32"}
_TILES = f"{_TWO}, C[n, n]; local float32 At[32, 32], Bt[32, 32]; private float32 s"
# Loops, body, arrays and variables, sizes and what they are assumed to be.
_PLAIN = {
    "vector_add": (items(256), f"C[{_I}] = A[{_I}] + B[{_I}]", _VECTORS),
    "saxpy": (items(256), f"C[{_I}] = 2*A[{_I}] + B[{_I}]", _VECTORS),
    "vector_add_divergent": (items(256) | _UNROLLED, _DIVERGENT, f"{_VECTORS}; private float32 s"),
    # Each eighth element, of a multiple of 8 elements.
    "strided_copy_8": (items(256), f"C[8*({_I})] = A[8*({_I})]", "float32 A[8*n], C[8*n]"),
    # All of the index is 0.
    "gather_constant_index": (items(256), f"B[{_I}] = A[idx[{_I}]]", "float32 A[n], B[n]; int32 idx[n]"),
    "naive_transpose": (items(16, 16), "B[16*bx + tx, 16*by + ty] = A[16*by + ty, 16*bx + tx]", _TWO),
    "shared_transpose": (whole_items(32, 32), _TRANSPOSED, f"{_TWO}; local float32 tile[32, 33]", "n", _IN_TILES),
    "matmul_naive": (items(16, 16) | _IN_K, _PRODUCT, f"{_TWO}, C[n, n]; private float32 s"),
    "matmul_tiled": (whole_items(32, 32) | _BY_TILES, _TILED_PRODUCT, _TILES, "n", _IN_TILES),
}
_MAKERS: dict[str, Callable[[], Any]] = {
    **{name: partial(make, name, *one) for name, one in _PLAIN.items()},
    "reduce_sum": partial(_reduction, "reduce_sum", "A[{0}]", "float32 A[n]"),
    "dot_product": partial(_reduction, "dot_product", "A[{0}]*B[{0}]", "float32 A[n], B[n]"),
    "conv2d_3x3": partial(conv2d, 3),
    "conv2d_7x7": partial(conv2d, 7),
    "histogram": histogram,
    "atomic_hotspot": atomic_hotspot,
    # Of sgemm_variants, with rows and columns of results of a work-item.
    "naive": partial(make, "matmul_naive", *_PLAIN["matmul_naive"]),
    "tiled16": partial(_products, "tiled16", 1, 1),
    "microtile2x2": partial(_products, "microtile2x2", 2, 2),
    "microtile4x1": partial(_products, "microtile4x1", 4, 1),
}


@cache
def programs() -> dict[str, Any]:
    """Return the loopy kernels, which run anywhere, by name."""
    return {name: kernel for name in _MAKERS if not hasattr(kernel := _MAKERS[name](), "statements")}


@cache
def kernel_of(name: str) -> Any:
    made = _MAKERS[name]()
    if name == "gather_constant_index":
        return extract_scop(annotate(made, accesses={f"A[idx[{_I}]]": "0"}))
    return made


def rows(folder: Path) -> Iterator[MeasuredRow]:
    """Yield the rows of ``gpuperf.csv``; the note ``repeat`` marks those whose configuration came before."""
    seen: dict[tuple[str, str], int] = {}
    with (folder / "gpuperf.csv").open(newline="") as stream:
        for line in csv.DictReader(stream):
            name, gpu, n = line["kernel"], line["device"], int(line["n"])
            if name in _LEFT_OUT:
                continue
            sizes = {"n": -(-n // 8) if name == "strided_copy_8" else n}
            shown = f"n={n}"
            if name == "atomic_hotspot":
                sizes["iters"] = int(line["iters"])
                shown += f" iters={line['iters']}"
            label = f"{name} {shown}"
            number = seen[gpu, label] = seen.get((gpu, label), 0) + 1
            yield MeasuredRow(
                data="gpuperf",
                gpu=gpu,
                machine=gpu.replace(" ", "-"),
                program=name,
                case=f"{_TASKS.get(name, name)} {shown}",
                label=label if number == 1 else f"{label} #{number}",
                launches=((kernel_of(name), sizes, 1),),
                seconds=float(line["time_s"]),
                note="repeat" if number > 1 else "",
                registers=int(line["registers"]),
                timed="events",
            )


def rows_of_products(folder: Path) -> Iterator[MeasuredRow]:
    """Yield the rows of ``sgemm_a100.csv``; notes name the node, since the variants ran on different cards."""
    with (folder / "sgemm_a100.csv").open(newline="") as stream:
        for line in csv.DictReader(stream):
            name, n = line["kernel"], int(line["n"])
            yield MeasuredRow(
                data="sgemm",
                gpu=line["device"],
                machine="A100-80GB",
                program=name,
                case=f"matmul n={n}",
                label=f"{name} n={n}",
                launches=((kernel_of(name), {"n": n}, 1),),
                seconds=float(line["time_s"]),
                note=line["node"],
                registers=int(line["registers"]),
                timed="events",
            )
