"""Stencils on grids with a halo: neighbours, their access tags, and the kernel over the interior points.

Every array has the interior's size plus `radius` points on either side of each axis; x is the fastest axis. The
coefficients are powers of two, so that both element types compute them exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from uipick.generators._kernel import make_kernel, size_parameters

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import loopy as lp

# Steps along x, y (and z) to a neighbour.
Offset = tuple[int, ...]

_WEIGHTS = ("0.5", "0.0625", "0.03125", "0.015625", "0.0078125")
_SIZES = ("nx", "ny", "nz")


def star(dimensions: int, radius: int) -> list[list[Offset]]:
    """Return the points of a star, grouped by distance: the centre, then those one step away, and so on."""
    shells: list[list[Offset]] = [[(0,) * dimensions]]
    for distance in range(1, radius + 1):
        steps = [(axis, sign * distance) for axis in range(dimensions) for sign in (-1, 1)]
        shells.append([tuple(step if other == axis else 0 for other in range(dimensions)) for axis, step in steps])
    return shells


def box(dimensions: int, radius: int, most_axes: int) -> list[list[Offset]]:
    """Return the points of a cube, grouped by the number of axes along which they differ from the centre.

    Points that differ along more than `most_axes` axes are left out.
    """
    points = list(product(range(-radius, radius + 1), repeat=dimensions))
    return [[p for p in points if sum(map(bool, p)) == axes] for axes in range(most_axes + 1)]


def tag_letter(offset: Offset) -> str:
    """Return C for the centre, the axis (X, Y, Z) for neighbours along one, D for diagonal neighbours."""
    axes = [axis for axis, step in enumerate(offset) if step]
    if len(axes) > 1:
        return "D"
    return "XYZ"[axes[0]] if axes else "C"


def at(offset: Offset, radius: int, plane: str = "") -> str:
    """Return the subscript of a neighbour in an array with a halo, slowest axis first; `plane` is the point's z."""
    names = ("i", "j", plane)[: len(offset)]
    return ", ".join(f"{name} + {step + radius}" for name, step in reversed(list(zip(names, offset, strict=True))))


def weighted(shells: Iterable[Sequence[str]]) -> str:
    """Return the sum over all groups of a weight times the sum of the group's terms."""
    return " + ".join(f"{weight}*({' + '.join(terms)})" for weight, terms in zip(_WEIGHTS, shells, strict=False))


def grid_array(
    name: str, dtype: str, dimensions: int, radius: int, *, is_output: bool = False, components: int = 0
) -> lp.GlobalArg:
    """Return an array with a halo, either only read or only written; with components, one grid after another."""
    import loopy as lp
    import numpy as np

    shape = [f"{size} + {2 * radius}" for size in reversed(_SIZES[:dimensions])]
    if components:
        shape.insert(0, str(components))
    return lp.GlobalArg(name, np.dtype(dtype), shape=", ".join(shape), is_input=not is_output, is_output=is_output)


@dataclass(frozen=True)
class GridLaunch:
    """Work-items over a grid.

    Attributes
    ----------
    lsize
        Work-group size along each of the grid's two or three axes.
    groups_fit
        Whether work-groups divide the grid evenly.
    chunk
        With three axes, consecutive planes that each work-item computes.
    """

    lsize: tuple[int, ...]
    groups_fit: bool
    chunk: int = 1

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> GridLaunch:
        """Return the launch that a generator's arguments describe."""
        lsize = tuple(arguments[name] for name in ("lsize_0", "lsize_1", "lsize_2") if name in arguments)
        return cls(lsize, arguments["groups_fit"], arguments.get("chunk", 1))


def make_grid_kernel(
    name: str,
    body: Sequence[str],
    data: Sequence[lp.ArrayArg | lp.TemporaryVariable],
    launch: GridLaunch,
    *,
    points_x: int = 1,
) -> lp.TranslationUnit:
    """Make a kernel over the interior points of a grid.

    The inames of a point are i and j along x and y. With three axes, each work-item computes consecutive planes:
    within its loops stands a sequential one over ``plane``, and the point along z is ``chunk*column + plane``.

    Parameters
    ----------
    body
        Instructions, executed in order, within the loops over i, j (and column).
    data
        Kernel arguments and temporaries except the sizes nx, ny (and nz).
    launch
        The work-items.
    points_x
        Points along x for each work-item, which divides nx.
    """
    import loopy as lp

    dimensions, chunk = len(launch.lsize), launch.chunk
    names = ("i", "j", "column")[:dimensions]
    domain = f"0 <= i and {points_x}*i < nx and 0 <= j < ny"
    if dimensions > 2:
        domain += f" and 0 <= plane < {chunk} and 0 <= column and {chunk}*column + plane < nz"
    inames = (*names, "plane") if dimensions > 2 else names
    kernel = make_kernel(
        name,
        f"{{[{', '.join(inames)}]: {domain}}}",
        "\n".join([f"for {', '.join(names)}", *body, "end"]),
        [*data, *(size_parameters(size) for size in _SIZES[:dimensions])],
        in_order=True,
    )
    for axis, iname in enumerate(names):
        if axis == 2 and launch.lsize[axis] == 1:  # one axis fewer, which a fetch to local memory need not serve
            kernel = lp.tag_inames(kernel, {iname: "g.2"})
        else:
            kernel = lp.split_iname(kernel, iname, launch.lsize[axis], outer_tag=f"g.{axis}", inner_tag=f"l.{axis}")
    facts = [f"{size} >= 1" for size in _SIZES[:dimensions]]
    if launch.groups_fit:
        steps = (points_x * launch.lsize[0], launch.lsize[1], launch.lsize[-1] * chunk)
        facts += [f"{size} mod {step} = 0" for size, step in zip(_SIZES[:dimensions], steps, strict=False)]
    elif points_x > 1:
        facts.append(f"nx mod {points_x} = 0")
    return lp.assume(kernel, " and ".join(facts))
