"""Kernels and machines for the tests of cache volumes on CPUs."""

import re
from functools import cache

import loopy as lp
import numpy as np

from perflex import Machine
from perflex.features import extract_scop
from perflex.machines.machine import CacheLevel, MemoryStream


def small_machine(*sizes, **changes):
    """A CPU with caches of these sizes, without associativity."""
    levels = tuple(
        CacheLevel(f"L{number}", size, 1, 64, None, True, False, 32.0, 16.0, True, "sum")
        for number, size in enumerate(sizes, start=1)
    )
    streams = (MemoryStream("copy", 1, 1, 1, 20e9), MemoryStream("load", 1, 0, 0, 25e9))
    return Machine(name="small", kind="cpu", clock_hz=2e9, levels=levels, memory_streams=streams, **changes)


def loopy_kernel(domain, code, arrays, order="", *, dtype=np.float64, name="k", indices=""):
    """A kernel of sequential loops, outermost first in `order`; arrays by name with their shapes.

    The array `indices` is of 32-bit integers.
    """
    words = " ".join((domain, *arrays.values()))
    sizes = [size for size in ("n", "m", "M", "N") if re.search(rf"\b{size}\b", words)]
    arguments = [
        lp.GlobalArg(array, np.int32 if array == indices else dtype, shape=shape) for array, shape in arrays.items()
    ]
    arguments += [lp.ValueArg(size, np.int64) for size in sizes]
    kernel = lp.make_kernel(
        domain, code, arguments, assumptions=" and ".join(f"{size} >= 16" for size in sizes), name=name,
        lang_version=(2018, 2),
    )  # fmt: skip
    return lp.prioritize_loops(kernel, order) if order else kernel


def on_grid(kernel, **blocks):
    """The kernel with loops on an OpenCL grid: name=(axis, work-items)."""
    for iname, (axis, items) in blocks.items():
        kernel = lp.split_iname(kernel, iname, items, outer_tag=f"g.{axis}", inner_tag=f"l.{axis}")
    return kernel


def star_offsets(dimensions, radius):
    """Offsets of a star without its centre, outermost axis first."""
    return [
        tuple(step if axis == moved else 0 for axis in range(dimensions))
        for moved in range(dimensions)
        for step in range(-radius, radius + 1)
        if step
    ]


def terms(array, inames, offsets):
    """A sum of accesses at offsets from the inames."""
    return " + ".join(
        f"{array}[{', '.join(f'{iname}+{step}' for iname, step in zip(inames, offset, strict=True))}]"
        for offset in offsets
    )


@cache
def jacobi2d():
    """kerncraft's 2d-5pt."""
    code = f"b[j,i] = 0.25*({terms('a', 'ji', star_offsets(2, 1))})"
    return extract_scop(
        loopy_kernel("{[j,i]: 1<=j<M-1 and 1<=i<N-1}", code, {"a": "(M,N)", "b": "(M,N)"}, "j,i", name="jacobi2d")
    )


@cache
def jacobi3d():
    """kerncraft's 3d-7pt."""
    code = f"b[k,j,i] = 0.25*({terms('a', 'kji', star_offsets(3, 1))})"
    domain = "{[k,j,i]: 1<=k<M-1 and 1<=j<N-1 and 1<=i<N-1}"
    return extract_scop(loopy_kernel(domain, code, {"a": "(M,N,N)", "b": "(M,N,N)"}, "k,j,i", name="jacobi3d"))


@cache
def wave3d(radius):
    """Wave3D of YaskSite (Eq. 5), four grids."""
    around = terms("u", "xyz", [(0, 0, 0), *star_offsets(3, radius)])
    code = f"w[x,y,z] = 2*u[x,y,z] - p[x,y,z] + v[x,y,z]*({around})"
    bounds = " and ".join(f"{radius}<={axis}<{size}-{radius}" for axis, size in zip("xyz", "Mnn", strict=True))
    arrays = dict.fromkeys("upvw", "(M,n,n)")
    return extract_scop(loopy_kernel(f"{{[x,y,z]: {bounds}}}", code, arrays, "x,y,z", name=f"wave3d_{radius}"))
