"""Conflict misses that cache volumes predict, against a set-associative simulation.

    python tests/bench/conflict_misses.py [--kernel NAME ...] [--pitch N ...] [--check FACTOR]

Kernels with rows of many lengths (powers of two, their neighbours, others) run through caches of 32 KiB (8 ways) and
1 MiB (16 ways), simulated access by access with LRU replacement (`tests/oracles/lru.py`), the first iterations of the
outermost loop left out. Beside each level's bytes per iteration stand those of `estimate_ecm` with the sets and, the
baseline, those of the same caches taken as fully associative. The table ends with median, rms and largest factor by
which either is off. Where all three are below 0.05 B per iteration nothing is compared. Nothing is fitted. One run
takes about three minutes; --kernel and --pitch choose a part.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, replace
from math import exp, log, prod, sqrt
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "tests")]

from oracles.lru import Reference, steady_crossings, trace_of  # noqa: E402 - the folders above hold it
from perflex import CacheLevel, Machine, estimate_ecm  # noqa: E402
from perflex.features import extract_scop  # noqa: E402
from support.ecm_kernels import loopy_kernel, star_offsets, terms  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import loopy as lp

PITCHES = (496, 500, 512, 528, 640, 768, 1000, 1024, 1040, 2048)
CACHES = {"L1": (32 * 2**10, 8), "L2": (2**20, 16)}
ARRAYS = [place << 28 for place in range(4)]
LEAST = 0.05


@dataclass(frozen=True)
class Case:
    """A kernel at one pitch: its loops and accesses again, for the simulation; `warm` outermost iterations come first.

    `iterations` of the outermost loop are simulated, and those after the warm ones counted.
    """

    kernel: lp.TranslationUnit
    sizes: dict[str, int]
    ranges: list[range]
    references: list[Reference]
    warm: int


def _doubles(*elements: int) -> tuple[int, ...]:
    return tuple(8 * count for count in elements)


def transposition(pitch: int) -> Case:
    """Rows of b are written, columns of a read."""
    kernel = loopy_kernel(
        "{[i,j]: 0<=i<m and 0<=j<n and N>=16}",
        "b[i,j] = a[j,i]",
        {"a": "(n,N)", "b": "(m,N)"},
        "i,j",
        name="transposition",
    )
    references = [Reference(ARRAYS[0], _doubles(1, pitch)), Reference(ARRAYS[1], _doubles(pitch, 1), 0, store=True)]
    return Case(kernel, {"m": pitch, "n": pitch, "N": pitch}, [range(40), range(pitch)], references, 8)


def short_transposition(pitch: int) -> Case:
    """The same for 200 rows, whose columns the first cache would hold."""
    long = transposition(pitch)
    return replace(long, sizes={"m": pitch, "n": 200, "N": pitch}, ranges=[range(40), range(200)])


def column_sums(pitch: int) -> Case:
    """Each column of 300 rows is summed."""
    code = "s[i] = s[i] + a[j,i] {id=update, dep=}"
    kernel = loopy_kernel(
        "{[i,j]: 0<=i<m and 0<=j<n and N>=16}", code, {"a": "(n,N)", "s": "(m)"}, "i,j", name="column_sums"
    )  # fmt: skip
    references = [Reference(ARRAYS[1], _doubles(1, 0)), Reference(ARRAYS[0], _doubles(1, pitch))]
    references.append(Reference(ARRAYS[1], _doubles(1, 0), 0, store=True))
    return Case(kernel, {"m": 480, "n": 300, "N": pitch}, [range(80), range(300)], references, 16)


def _product(order: str, extent: int, pitch: int) -> Case:
    kernel = loopy_kernel(
        "{[i,j,k]: 0<=i<m and 0<=j,k<n and N>=16}",
        "c[i,j] = c[i,j] + a[i,k]*b[k,j] {id=update, dep=}",
        {"a": "(m,N)", "b": "(n,N)", "c": "(m,N)"},
        order,
        name="product",
    )
    strides = {"a": {"i": pitch, "k": 1}, "b": {"k": pitch, "j": 1}, "c": {"i": pitch, "j": 1}}
    order = order or "i,j,k"
    along = {name: _doubles(*(own.get(loop, 0) for loop in order.split(","))) for name, own in strides.items()}
    references = [
        Reference(ARRAYS[2], along["c"]),
        Reference(ARRAYS[0], along["a"]),
        Reference(ARRAYS[1], along["b"]),
        Reference(ARRAYS[2], along["c"], 0, store=True),
    ]
    outer = 4
    # The rows of a and c go on, so that no cache holds all data.
    return Case(kernel, {"m": 4096, "n": extent, "N": pitch}, [range(outer), *[range(extent)] * 2], references, 1)


def naive_product(pitch: int) -> Case:
    """A matrix product of 200 rows and columns in the order i, j, k."""
    return _product("i,j,k", 200, pitch)


def row_product(pitch: int) -> Case:
    """The same in the order i, k, j."""
    return _product("i,k,j", 200, pitch)


def blocked_product(pitch: int) -> Case:
    """A product of 128 rows and columns in tiles of 32."""
    import loopy as lp

    kernel = _product("", 128, pitch).kernel
    for loop in "ijk":
        kernel = lp.split_iname(kernel, loop, 32)
    kernel = lp.prioritize_loops(
        lp.assume(kernel, "n mod 32 = 0 and m mod 32 = 0"), "i_outer,j_outer,k_outer,i_inner,j_inner,k_inner"
    )
    tile = 32
    a = _doubles(pitch * tile, 0, tile, pitch, 0, 1)
    b = _doubles(0, tile, pitch * tile, 0, 1, pitch)
    c = _doubles(pitch * tile, tile, 0, pitch, 1, 0)
    references = [Reference(ARRAYS[2], c), Reference(ARRAYS[0], a), Reference(ARRAYS[1], b)]
    references.append(Reference(ARRAYS[2], c, 0, store=True))
    return Case(
        kernel, {"m": 4096, "n": 128, "N": pitch}, [range(3), range(4), range(4), *[range(tile)] * 3], references, 1
    )


def _stencil(name: str, radius: int, offsets: Sequence[tuple[int, ...]], order: str, pitch: int) -> Case:
    inames = "kji"[3 - len(offsets[0]) :]
    # Rows of 256 points of longer ones, 24 of them in a plane.
    extents = dict(zip("kji", (16, 24, 256), strict=True)) if len(inames) == 3 else {"j": 64, "i": 256}
    if order[0] == "i":
        extents["j"] = 160
    # The kernel itself runs on, so that no cache holds all of its data.
    ends = {one: f"{extents[one]}+{radius}" for one in inames} | {order[0]: f"m-{radius}"}
    bounds = " and ".join(f"{radius}<={one}<{ends[one]}" for one in inames)
    shape = "(m,n,N)" if len(inames) == 3 else "(m,N)" if order[0] == "j" else "(n,m)"
    kernel = loopy_kernel(
        f"{{[{','.join(inames)}]: {bounds} and n >= 16 and N >= 16}}",
        f"b[{','.join(inames)}] = {terms('a', inames, list(offsets))}",
        {"a": shape, "b": shape},
        order,
        name=name,
    )
    planes = pitch
    strides = {"k": pitch * planes, "j": pitch, "i": 1}
    along = _doubles(*(strides[one] for one in order.split(",")))
    references = [
        Reference(
            ARRAYS[0], along, 8 * sum((step + radius) * strides[one] for one, step in zip(inames, at, strict=True))
        )
        for at in offsets
    ]
    here = 8 * sum(radius * strides[one] for one in inames)
    references.append(Reference(ARRAYS[1], along, here, store=True))
    ranges = [range(extents[one]) for one in order.split(",")]
    if order[0] == "i":
        ranges[0] = range(48)
    sizes = {"m": pitch if order[0] == "i" else 4096, "n": planes, "N": pitch}
    return Case(kernel, sizes, ranges, references, 2 * radius + 6)


def _star(dimensions: int, radius: int) -> list[tuple[int, ...]]:
    return [(0,) * dimensions, *star_offsets(dimensions, radius)]


def star_2d(pitch: int) -> Case:
    """A star of radius 4 in two dimensions, row by row."""
    return _stencil("star_2d", 4, _star(2, 4), "j,i", pitch)


def star_2d_columns(pitch: int) -> Case:
    """A star of radius 1, column by column."""
    return _stencil("star_2d_columns", 1, _star(2, 1), "i,j", pitch)


def box_2d(pitch: int) -> Case:
    """A box of radius 1."""
    return _stencil("box_2d", 1, [(y, x) for y in (-1, 0, 1) for x in (-1, 0, 1)], "j,i", pitch)


def star_3d(pitch: int) -> Case:
    """Seven points in three dimensions."""
    return _stencil("star_3d", 1, _star(3, 1), "k,j,i", pitch)


def long_star_3d(pitch: int) -> Case:
    """25 points in three dimensions."""
    return _stencil("long_star_3d", 4, _star(3, 4), "k,j,i", pitch)


KERNELS: dict[str, Callable[[int], Case]] = {
    one.__name__: one
    for one in (
        transposition,
        short_transposition,
        column_sums,
        naive_product,
        row_product,
        blocked_product,
        star_2d,
        star_2d_columns,
        box_2d,
        star_3d,
        long_star_3d,
    )
}


def machine(*, associative: bool) -> Machine:
    """A CPU with these caches; without sets if `associative`."""
    levels = tuple(
        CacheLevel(name, size, 1, 64, ways, True, False, None, None, True, "sum", hashed=associative)
        for name, (size, ways) in CACHES.items()
    )
    return Machine(name="caches", kind="cpu", levels=levels)


def measured(case: Case, cache: str) -> float:
    """Return the bytes per iteration that the simulation finds beyond a cache."""
    lines, stores = trace_of(case.ranges, case.references)
    each = prod(len(one) for one in case.ranges[1:])
    size, ways = CACHES[cache]
    found = steady_crossings(lines, stores, case.warm * each * len(case.references), size, ways)
    return 64 * (found.loads + found.evicts) / (each * (len(case.ranges[0]) - case.warm))


def factor(one: float, two: float) -> float:
    """Return by which factor two numbers differ, those below `LEAST` taken as that."""
    return exp(abs(log(max(one, LEAST) / max(two, LEAST))))


def summary(factors: Sequence[float]) -> str:
    """Return median, rms (of logarithms) and maximum of some factors, and how many are at most 1.3."""
    rms = exp(sqrt(sum(log(one) ** 2 for one in factors) / len(factors)))
    good = sum(one <= 1.3 for one in factors)
    return f"median {median(factors):.3f}, rms {rms:.3f}, max {max(factors):.2f}; {good} of {len(factors)} within 1.3"


def main() -> None:
    """Print a line for each kernel, pitch and cache, and the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernel", nargs="+", choices=list(KERNELS), default=list(KERNELS))
    parser.add_argument("--pitch", nargs="+", type=int, default=list(PITCHES))
    parser.add_argument("--check", type=float, help="exit with status 1 if a prediction is off by a larger factor")
    options = parser.parse_args()
    np.seterr(all="raise")
    predicted, baseline = [], []
    print(f"{'kernel':20}{'pitch':>6}{'cache':>6}{'simulated':>11}{'predicted':>11}{'associative':>13}  factors")
    for name in options.kernel:
        for pitch in options.pitch:
            case = KERNELS[name](pitch)
            scop = extract_scop(case.kernel)
            found = [estimate_ecm(scop, case.sizes, machine(associative=flag)) for flag in (False, True)]
            for number, cache in enumerate(CACHES, start=1):
                with_sets, without = (float(one.levels[number].bytes) for one in found)
                truth = measured(case, cache)
                if max(truth, with_sets, without) < LEAST:
                    continue
                predicted.append(factor(with_sets, truth))
                baseline.append(factor(without, truth))
                print(
                    f"{name:20}{pitch:6}{cache:>6}{truth:11.3f}{with_sets:11.3f}{without:13.3f}"
                    f"  {predicted[-1]:.2f} {baseline[-1]:.2f}",
                    flush=True,
                )
    print(f"with sets:   {summary(predicted)}")
    print(f"associative: {summary(baseline)}")
    if options.check is not None and max(predicted) > options.check:
        sys.exit(1)


if __name__ == "__main__":
    main()
