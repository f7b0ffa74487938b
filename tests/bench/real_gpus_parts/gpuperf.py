"""Elementary kernels on three GPUs (the gpuperf data set), launched back to back."""

from __future__ import annotations

import csv
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.features import annotate, extract_scop

from .histograms import atomic_hotspot, histogram
from .rows import MeasuredRow
from .writing import items, make, whole_items

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MACHINES = {"RTX 2080 Ti": "RTX-2080-Ti", "RTX 4070": "RTX-4070", "GTX TITAN X": "GTX-TITAN-X"}
# Kernels with the same result are variants of one case.
_TASKS = {
    "naive_transpose": "transpose",
    "shared_transpose": "transpose",
    "matmul_naive": "matmul",
    "matmul_tiled": "matmul",
}
# One work-group for 1.4 to 5.4 us: nothing but launch cost.
_LEFT_OUT = {"shared_broadcast_one_block"}
_I = "256*bx + tx"


def _pointwise(name: str, expression: str) -> Any:
    return make(name, items(256), f"C[{_I}] = {expression}", dict.fromkeys("ABC", "n"))


def vector_add_divergent() -> Any:
    """Return ``C = A + B``, where even elements add what a loop of 128 steps, 16 of them unrolled, makes."""
    body = f"""
    s = 0
    s = s + 0.0001f*(16*j + k) {{if=tx % 2 < 1}}
    C[{_I}] = A[{_I}] + B[{_I}] + s
    """
    loops = items(256) | {"j": "0 <= j < 8", "k": "0 <= k < 16"}
    return make("vector_add_divergent", loops, body, dict.fromkeys("ABC", "n"), private={"s": ()})


def strided_copy_8() -> Any:
    """Return a copy of each eighth element, of a multiple of 8 elements."""
    loops = items(256, x="n")
    return make("strided_copy_8", loops, f"C[8*({_I})] = A[8*({_I})]", dict.fromkeys("AC", "8*n"))


def gather_constant_index() -> Any:
    """Return ``B = A[idx]`` where all of ``idx`` is 0."""
    types = {"idx": np.int32}
    body = f"B[{_I}] = A[idx[{_I}]]"
    return make("gather_constant_index", items(256), body, dict.fromkeys(["A", "idx", "B"], "n"), dtypes=types)


def naive_transpose() -> Any:
    """Return the transpose of an n by n matrix: loads along rows, stores along columns."""
    body = "B[16*bx + tx, 16*by + ty] = A[16*by + ty, 16*bx + tx]"
    return make("naive_transpose", items(16, 16), body, dict.fromkeys("AB", "n, n"))


def shared_transpose() -> Any:
    """Return the transpose of an n by n matrix, n a multiple of 32, by padded tiles in local memory."""
    body = """
    tile[ty, tx] = A[32*by + ty, 32*bx + tx]
    ... lbarrier
    B[32*bx + ty, 32*by + tx] = tile[tx, ty] {if=ty < 32}
    """
    arrays = dict.fromkeys("AB", "n, n")
    local = {"tile": (32, 33)}
    return make("shared_transpose", whole_items(32, 32), body, arrays, local=local, assume="n >= 32 and n mod 32 = 0")


def _reduction(name: str, term: str, inputs: str) -> Any:
    lines = [f"shared[tx] = {term.format('512*bx + tx')} + {term.format('512*bx + tx + 256')}", "... lbarrier"]
    for stride in (128, 64, 32, 16, 8, 4, 2, 1):
        lines += [f"shared[tx] = shared[tx] + shared[tx + {stride}] {{if=tx < {stride}}}", "... lbarrier"]
    lines.append("out[bx] = shared[0] {if=tx < 1}")
    loops = {"bx": "0 <= bx and 512*bx < n", "tx": "0 <= tx < 256"}
    arrays = dict.fromkeys(inputs, "n") | {"out": "n // 512"}
    local = {"shared": (256,)}
    return make(name, loops, "\n".join(lines), arrays, local=local, assume="n >= 512 and n mod 512 = 0")


def reduce_sum() -> Any:
    """Return sums of 512 elements each."""
    return _reduction("reduce_sum", "A[{0}]", "A")


def dot_product() -> Any:
    """Return sums of 512 products each."""
    return _reduction("dot_product", "A[{0}]*B[{0}]", "AB")


def conv2d(edge: int) -> Any:
    """Return the correlation of an n by n image with a square mask in global memory."""
    inside = f"n - {edge - 1}"
    loops = items(16, 16, x=inside, y=inside) | {"dy": f"0 <= dy < {edge}", "dx": f"0 <= dx < {edge}"}
    body = """
    s = 0
    s = s + img[16*by + ty + dy, 16*bx + tx + dx]*mask[dy, dx]
    out[16*by + ty, 16*bx + tx] = s
    """
    arrays = dict.fromkeys(["img", "out"], "n, n") | {"mask": f"{edge}, {edge}"}
    return make(f"conv2d_{edge}x{edge}", loops, body, arrays, private={"s": ()}, assume=f"n >= {edge}")


def matmul_naive() -> Any:
    """Return the product of two n by n matrices, an element to a work-item."""
    loops = items(16, 16) | {"k": "0 <= k < n"}
    body = """
    s = 0
    s = s + A[16*by + ty, k]*B[k, 16*bx + tx]
    C[16*by + ty, 16*bx + tx] = s
    """
    return make("matmul_naive", loops, body, dict.fromkeys("ABC", "n, n"), private={"s": ()})


def matmul_tiled() -> Any:
    """Return the product of two n by n matrices, n a multiple of 32, by tiles of 32 by 32 in local memory."""
    body = """
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
    loops = whole_items(32, 32) | {"t": "0 <= t and 32*t < n", "k": "0 <= k < 32"}
    arrays, local = dict.fromkeys("ABC", "n, n"), dict.fromkeys(["At", "Bt"], (32, 32))
    assume = "n >= 32 and n mod 32 = 0"
    return make("matmul_tiled", loops, body, arrays, local=local, private={"s": ()}, assume=assume)


_PLAIN = (
    vector_add_divergent, strided_copy_8, gather_constant_index, naive_transpose, shared_transpose,
    reduce_sum, dot_product, matmul_naive, matmul_tiled,
)  # fmt: skip
_MAKERS: dict[str, Callable[[], Any]] = {
    **{one.__name__: one for one in _PLAIN},
    "vector_add": lambda: _pointwise("vector_add", f"A[{_I}] + B[{_I}]"),
    "saxpy": lambda: _pointwise("saxpy", f"2*A[{_I}] + B[{_I}]"),
    "conv2d_3x3": lambda: conv2d(3),
    "conv2d_7x7": lambda: conv2d(7),
    "histogram": histogram,
    "atomic_hotspot": atomic_hotspot,
}


def programs() -> dict[str, Any]:
    """Return the loopy kernels, which run anywhere, by name."""
    return {name: kernel for name in _MAKERS if not hasattr(kernel := _MAKERS[name](), "statements")}


@cache
def kernel_of(name: str) -> Any:
    """Return a kernel as it is counted."""
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
                machine=MACHINES[gpu],
                program=name,
                case=f"{_TASKS.get(name, name)} {shown}",
                label=label if number == 1 else f"{label} #{number}",
                launches=((kernel_of(name), sizes, 1),),
                seconds=float(line["time_s"]),
                note="repeat" if number > 1 else "",
                registers=int(line["registers"]),
            )
