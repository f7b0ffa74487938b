"""Random kernels on a grid of work-groups, and what crosses the caches of each core that has a part of them."""

import random
from dataclasses import replace
from math import inf

import loopy as lp
import numpy as np

from oracles.lru import steady_crossings
from oracles.traces import core_traces

from .ecm_kernels import loopy_kernel, on_grid, small_machine, terms
from .moving_loops import random_moving_kernel

LINE = 64
# Bytes of each cache, and how many cores share it.
CACHES = ((2560, 1), (10240, 1), (40960, 4))
# A volume is right between those of caches so many times as large, and within so many bytes per access.
AROUND, LEAST = (0.7, 1.45), 0.25


def cpu(cores):
    """Return a machine of so many cores with these caches."""
    plain = small_machine(*(size for size, _ in CACHES), cores=cores)
    levels = (replace(level, shared_by=users) for level, (_, users) in zip(plain.levels, CACHES, strict=True))
    return replace(plain, levels=tuple(levels))


def off_by(found, least, most, slack):
    """Return the factor by which a volume is off; 1 where it is right."""
    if least - slack <= found <= most + slack:
        return 1.0
    wanted = least if found < least else most
    return max(found, wanted) / min(found, wanted) if min(found, wanted) > 0 else inf


def random_dealt_kernel(seed):
    """Return a kernel of any kind, its sizes, and how many of its work-items are in lock step."""
    rng = random.Random(seed)  # noqa: S311 - no secret
    return rng.choice(_KINDS)(rng)


def crossings(scop, sizes, cores, lanes, caches):
    """Return the bytes that cross below each cache of some cores in one run after another, all instances together.

    A cache is its capacity in bytes, and how many cores share each instance. These take turns, an access each.
    """
    traces = core_traces(scop, sizes, cores, lanes=lanes)
    return [sum(map(_crossing(capacity), _shared(traces, users))) for capacity, users in caches]


def _shared(traces, users):
    for first in range(0, len(traces), users):
        members = traces[first : first + users]
        turns = np.concatenate([np.arange(len(lines)) for lines, _ in members])
        order = np.argsort(turns, kind="stable")
        yield tuple(np.concatenate(parts)[order] for parts in zip(*members, strict=True))


def _crossing(capacity):
    def run(trace):
        lines, stores = trace
        # An access to the line of the one before changes nothing but whether it is dirty.
        begins = np.flatnonzero(np.diff(lines, prepend=-1))
        if not len(begins):
            return 0
        lines, stores = lines[begins], np.logical_or.reduceat(stores, begins)
        found = steady_crossings(np.tile(lines, 2), np.tile(stores, 2), len(lines), capacity)
        return LINE * (found.loads + found.evicts)

    return run


def _moving(rng):
    kernel = random_moving_kernel(rng.randrange(10**6))
    first, second = kernel.loops[:2]
    tags = {first.name: "g.0"}
    if first.name not in " ".join((*second.starts, *second.stops)) and rng.random() < 0.5:
        tags = {first.name: "g.1", second.name: "g.0"}
    return lp.tag_inames(kernel.loopy(shifted=False), tags), {"n": kernel.n}, 1


def _grid(rng, kernel, sizes, axes):
    """Put loops on a grid, the one along axis 0 first."""
    blocks = {name: (axis, rng.choice([1, 4, 8] if axis else [8, 16, 32])) for axis, name in enumerate(axes)}
    lanes = 16 if rng.random() < 0.5 and blocks[axes[0]][1] >= 16 else 1
    return on_grid(kernel, **blocks), sizes, lanes


def _stencil(rng):
    offsets = sorted({(rng.randint(0, 2), rng.randint(0, 2)) for _ in range(rng.randint(2, 6))})
    kernel = loopy_kernel(
        "{[i,j]: 0<=i<m and 0<=j<n}", f"b[j,i] = {terms('a', 'ji', offsets)}", {"a": "(n+2,m+2)", "b": "(n,m)"},
        dtype=np.float32,
    )  # fmt: skip
    return _grid(rng, kernel, {"n": rng.choice([48, 96, 160]), "m": rng.choice([64, 96, 256])}, "ij")


def _column_stencil(rng):
    offsets = [(0, 1, 1), (1, 0, 1), (1, 1, 0), (1, 1, 1), (1, 1, 2), (1, 2, 1), (2, 1, 1)]
    kernel = loopy_kernel(
        "{[k,j,i]: 0<=k<20 and 0<=j<n and 0<=i<m}", f"b[k,j,i] = {terms('a', 'kji', offsets)}",
        {"a": "(22,n+2,m+2)", "b": "(20,n,m)"}, "k", dtype=np.float32,
    )  # fmt: skip
    return _grid(rng, kernel, {"n": rng.choice([16, 32]), "m": rng.choice([32, 64])}, "ij")


def _product(rng):
    left, right = rng.choice(["a[i,k]", "a[k,i]"]), rng.choice(["b[k,j]", "b[j,k]"])
    kernel = loopy_kernel(
        "{[i,j,k]: 0<=i,j,k<n}", f"c[i,j] = sum(k, {left}*{right})", dict.fromkeys("abc", "(n,n)"), dtype=np.float32
    )
    return _grid(rng, kernel, {"n": rng.choice([32, 48, 64])}, "ji")


def _vector_product(rng):
    code = rng.choice(["y[i] = sum(k, a[i,k]*x[k])", "y[i] = sum(k, a[k,i]*x[k])"])
    shape = "(n,m)" if "a[i" in code else "(m,n)"
    kernel = loopy_kernel(
        "{[i,k]: 0<=i<n and 0<=k<m}", code, {"y": "(n)", "a": shape, "x": "(m)"}, dtype=np.float32
    )  # fmt: skip
    return _grid(rng, kernel, {"n": rng.choice([64, 256, 512]), "m": rng.choice([64, 200, 500])}, "i")


def _table(rng):
    code = "y[i,j] = sum(k, x[i,k]*t[k]) + s[j]"
    arrays = {"y": "(n,m)", "x": "(n,60)", "t": "(60)", "s": "(m)"}
    kernel = loopy_kernel("{[i,j,k]: 0<=i<n and 0<=j<m and 0<=k<60}", code, arrays, dtype=np.float32)
    return _grid(rng, kernel, {"n": rng.choice([32, 96]), "m": rng.choice([16, 64])}, "ji")


def _pairs(rng):
    kernel = loopy_kernel(
        "{[i,k]: 0<=i,k<n}", "f[i] = sum(k, x[k]*y[k]) + x[i]", dict.fromkeys("fxy", "(n)"), dtype=np.float32
    )
    return _grid(rng, kernel, {"n": rng.choice([128, 320, 512])}, "i")


def _transposition(rng):
    kernel = loopy_kernel("{[i,j]: 0<=i<n and 0<=j<m}", "b[i,j] = a[j,i]", {"a": "(m,n)", "b": "(n,m)"})
    return _grid(rng, kernel, {"n": rng.choice([64, 192]), "m": rng.choice([96, 256])}, "ji")


def _triad(rng):
    kernel = loopy_kernel("{[i]: 0<=i<n}", "c[i] = a[i] + 2*b[i]", dict.fromkeys("abc", "(n)"))
    return _grid(rng, kernel, {"n": rng.choice([512, 2048, 8192])}, "i")


_KINDS = (
    *[_moving] * 9, _stencil, _column_stencil, _product, _product, _vector_product, _table, _pairs, _transposition,
    _triad,
)  # fmt: skip
