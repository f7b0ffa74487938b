"""Stencils on grids of two and three axes."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from uipick import _loopy as lp
from uipick.generators import _arguments as arg
from uipick.generators._arrays import size_parameters
from uipick.generators._declared import declared, work_removed
from uipick.generators._kernel import fetch_tile, make_kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from uipick._generator import Arguments, Constraint


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
    shape = [f"{size} + {2 * radius}" for size in reversed(_SIZES[:dimensions])]
    if components:
        shape.insert(0, str(components))
    return lp.GlobalArg(name, np.dtype(dtype), shape=", ".join(shape), is_input=not is_output, is_output=is_output)


def make_grid_kernel(
    name: str,
    body: Sequence[str],
    data: Sequence[lp.ArrayArg | lp.TemporaryVariable],
    grid: Arguments,
    *,
    points_x: int = 1,
) -> lp.TranslationUnit:
    """Make a kernel over the interior points of a grid, with what its generator is given beside what it computes.

    The inames of a point are i and j along x and y. With three axes, each work-item computes consecutive planes:
    within its loops stands a sequential one over ``plane``, and the point along z is ``chunk*column + plane``.
    """
    lsize = [grid[name] for name in ("lsize_0", "lsize_1", "lsize_2") if name in grid]
    dimensions, chunk = len(lsize), grid.get("chunk", 1)
    names = ("i", "j", "column")[:dimensions]
    domain = f"0 <= i and {points_x}*i < nx and 0 <= j < ny"
    if dimensions > 2:
        domain += f" and 0 <= plane < {chunk} and 0 <= column and {chunk}*column + plane < nz"
    inames = (*names, "plane") if dimensions > 2 else names
    kernel = make_kernel(
        name,
        f"{{[{', '.join(inames)}]: {domain}}}",
        [f"for {', '.join(names)}", *body, "end"],
        [*data, *(size_parameters(size) for size in _SIZES[:dimensions])],
        assume=grid["assume"],
        in_order=True,
    )
    for axis, iname in enumerate(names):
        if axis == 2 and lsize[axis] == 1:  # one axis fewer, which a fetch to local memory need not serve
            kernel = lp.tag_inames(kernel, {iname: "g.2"})
        else:
            kernel = lp.split_iname(kernel, iname, lsize[axis], outer_tag=f"g.{axis}", inner_tag=f"l.{axis}")
    return kernel


_VARIANT = arg.choice(
    "variant",
    "every neighbour from global memory, those along z kept in private variables, or those beside in a local tile",
    ("plain", "column", "tile"),
    "plain",
)

Shells = list[list["Offset"]]


def _is_star(shells: Shells) -> bool:
    return all(tag_letter(offset) != "D" for shell in shells for offset in shell)


def _in_tile(offset: Offset, shells: Shells) -> bool:
    return offset[2] == 0 or not _is_star(shells)


def sweep_tags(variant: str, shells: Shells) -> set[str]:
    """Return the access tags of the loads in a sweep."""
    offsets = [offset for shell in shells for offset in shell]
    if variant == "tile":
        return {"uTLD"} | {"uZLD" for offset in offsets if not _in_tile(offset, shells)}
    if variant == "column":
        return {"uZLD"} | {f"u{tag_letter(offset)}LD" for offset in offsets if any(offset[:2])}
    return {f"u{tag_letter(offset)}LD" for offset in offsets}


def make_sweep_kernel(
    name: str,
    shells: Shells,
    expression: Callable[[list[list[str]]], str],
    data: Sequence[lp.GlobalArg],
    *,
    target: str,
    variant: str,
    dtype: str,
    grid: Arguments,
) -> lp.TranslationUnit:
    """Make a kernel that computes each point from neighbours in the array ``u``, given in groups with the centre first.

    ``{here}`` in the expression stands for the point's subscript; the target is array and access tag, ``"v$vST"``.
    """
    radius = max(abs(step) for shell in shells for offset in shell for step in offset)
    here = f"{grid['chunk']}*column + plane"
    terms = [[_term(offset, shells, radius, variant, here) for offset in shell] for shell in shells]
    centre = at((0, 0, 0), radius, here)
    update = [
        f"<{dtype}> centre = {terms[0][0]}",
        f"{target}[{centre}] = {expression([['centre'], *terms[1:]]).replace('{here}', centre)}",
    ]
    if variant == "column":
        body = _column_body(update, radius, grid["chunk"], dtype)
    else:
        rule = ["near(layer, row, col) := u$uTLD[layer, row, col]"] if variant == "tile" else []
        body = [*rule, "for plane", *update, "end"]
    kernel = make_grid_kernel(name, body, [grid_array("u", dtype, 3, radius), *data], grid)
    return fetch_tile(kernel, ["i_inner", "j_inner"]) if variant == "tile" else kernel


def _term(offset: Offset, shells: Shells, radius: int, variant: str, here: str) -> str:
    if variant == "column" and not any(offset[:2]):
        return f"z{offset[2] + radius}"
    if variant == "tile" and _in_tile(offset, shells):
        return f"near({at(offset, radius, here)})"
    return f"u$u{tag_letter(offset)}LD[{at(offset, radius, here)}]"


def _column_body(update: Sequence[str], radius: int, chunk: int, dtype: str) -> list[str]:
    """Return the sweep along z: one new value per plane, the others move down."""
    first = [f"{chunk}*column + {step}" for step in range(2 * radius)]
    return [
        *(f"<{dtype}> z{step} = u$uZLD[{place}, j + {radius}, i + {radius}]" for step, place in enumerate(first)),
        "for plane",
        f"<{dtype}> z{2 * radius} = u$uZLD[{chunk}*column + plane + {2 * radius}, j + {radius}, i + {radius}]",
        *update,
        *(f"z{step} = z{step + 1}" for step in range(2 * radius)),
        "end",
    ]


def tile_constraints(shells_of: Callable[[Arguments], Shells]) -> tuple[Constraint, ...]:
    """Return the constraints on the variants of a sweep with the neighbours `shells_of` (arguments)."""

    def fits(arguments: Arguments) -> bool:
        shells = shells_of(arguments)
        radius = max(abs(step) for shell in shells for offset in shell for step in offset)
        planes = 1 if _is_star(shells) else 2 * radius + 1
        return arg.in_local_memory(f"{planes} * (lsize_0 + {2 * radius}) * (lsize_1 + {2 * radius})").holds(arguments)

    return (
        arg.needs("variant:tile", "lsize_2 == 1"),
        arg.needs("variant:tile", "lsize_0 by lsize_1 points with the halo, in each plane, in 32 KiB", fits),
        arg.needs("variant:column", "neighbours along the axes only", lambda a: _is_star(shells_of(a))),
    )


# Central differences for the second derivative of order 2 radius: centre, one step away, two, ...
# Source: Fornberg, Mathematics of Computation 51 (1988), Table 1.
_SECOND_DERIVATIVE = {
    1: (-2.0, 1.0),
    2: (-5 / 2, 4 / 3, -1 / 12),
    3: (-49 / 18, 3 / 2, -3 / 20, 1 / 90),
    4: (-205 / 72, 8 / 5, -1 / 5, 8 / 315, -1 / 560),
}
LAPLACIAN_RADII = tuple(_SECOND_DERIVATIVE)


def laplacian(terms: list[list[str]], radius: int, dtype: str, factor: float) -> str:
    """Return a factor times the Laplacian of order 2 radius in three dimensions.

    `terms` stand for the neighbours, grouped by distance; the first group is the centre alone.
    """
    centre, *others = _SECOND_DERIVATIVE[radius]
    # Rounded to the element type, or loopy would take the whole sum for double precision.
    # 3: the centre belongs to the second derivatives along all three axes.
    weights = [float(np.dtype(dtype).type(factor * weight)) for weight in (3 * centre, *others)]
    sums = [f"({' + '.join(group)})" for group in terms]
    # A factor of 1 would be computed, but is no work to speak of.
    return " + ".join(
        total if weight == 1 else f"({weight!r})*{total}" for weight, total in zip(weights, sums, strict=True)
    )


def _shells(shape: str, radius: int) -> list[list[tuple[int, ...]]]:
    return star(2, radius) if shape == "star" else box(2, radius, 2)


def stencil2d(*, shape: str, radius: int, dtype: str, **grid: int | str) -> lp.TranslationUnit:
    """Stencil on a 2-D grid, one Jacobi sweep: each point of v from its neighbours in u, all from global memory.

    ``shape:star`` takes the neighbours up to ``radius`` steps along an axis, (4 radius + 1) points: 5 with radius 1;
    ``shape:box`` takes the whole square of (2 radius + 1)^2 points: 9 with radius 1. The points of a star at one
    distance share a coefficient; of a box, those along the axes do, and the diagonal ones. Arrays have the interior's
    size (nx, ny) and a halo of the radius. Access tags: ``uCLD`` (centre), ``uXLD`` and ``uYLD`` (along an axis; those
    along x lie in the same row), ``uDLD`` (diagonal), ``vST``. It is an application: it isolates no feature.

    Source: Ernst et al., Analytical Performance Estimation during Code Generation on Modern GPUs, Figure 7 (5 points).
    """
    shells = _shells(shape, radius)
    terms = [[f"u$u{tag_letter(offset)}LD[{at(offset, radius)}]" for offset in shell] for shell in shells]
    return make_grid_kernel(
        "stencil2d",
        [f"v$vST[{at((0, 0), radius)}] = {weighted(terms)}"],
        [grid_array("u", dtype, 2, radius), grid_array("v", dtype, 2, radius, is_output=True)],
        grid,
    )


STENCIL2D = declared(
    stencil2d,
    "stencil",
    (
        arg.choice("shape", "neighbours along the axes only, or all in a square", ("star", "box")),
        arg.choice("radius", "grid steps that the stencil reaches", (1, 2, 3, 4), 1),
        arg.GRID_DTYPE,
        *arg.GRID_2D_ARGUMENTS,
    ),
    arg.GRID_SIZES_2D,
    arg.WORK_GROUP_LIMIT,
    fits="nx % lsize_0, ny % lsize_1",
)
STENCIL2D_MEM = work_removed(
    STENCIL2D,
    ("uCLD", "uXLD", "uYLD", "uDLD", "vST"),
    present=lambda a: {"vST", *sweep_tags("plain", _shells(a["shape"], a["radius"]))},
    together=("uCLD_uXLD_uYLD", "uCLD_uXLD_uYLD_uDLD"),
)


_SHELLS = {7: star(3, 1), 19: box(3, 1, 2), 25: star(3, 4), 27: box(3, 1, 3)}


def stencil3d(*, points: int, variant: str, dtype: str, **grid: int | str) -> lp.TranslationUnit:
    """Stencil on a 3-D grid, one Jacobi sweep: each point of v from 7, 19, 25 or 27 points of u.

    The neighbours are those one step along an axis (``points:7``), also those one step along two axes (19) or three
    (27), or those up to four steps along an axis (25). Neighbours at the same distance share a coefficient. Arrays
    have the interior's size (nx, ny, nz) and a halo of the stencil's radius; each work-item computes ``chunk``
    consecutive planes in a sequential loop (chunking, or thread folding in z), in one of three ways:

    ``variant:plain`` loads every neighbour from global memory: access tags ``uCLD`` (centre), ``uXLD``, ``uYLD``,
    ``uZLD`` (neighbours along an axis; only those along x lie in the same row) and ``uDLD`` (diagonal neighbours).
    A compiler may unroll the loop over planes and load a value once that two planes use.
    ``variant:column`` (7 and 25 points) loads each value of the work-item's own column once (``uZLD``) and keeps
    it in private variables while planes need it: (5 chunk + 2) loads for 7 points.
    ``variant:tile`` fetches what lies in or beside the column into local memory, plane by plane (``uTLD``): for 7 and
    25 points the work-group's part of the plane with a halo, corners included, while neighbours along z come from
    global memory (``uZLD``); for 19 and 27 points that part of all three planes.
    The store carries ``vST``. It is an application: it isolates no feature.

    Source: Su, Cai, Wen and Zhang, An analytical GPU performance model for 3D stencil computations from the angle of
    data traffic (2015), Sections 2.2, 3.5 and 4.1 (7 and 19 points, chunk_z); Ernst et al., Analytical Performance
    Estimation during Code Generation on Modern GPUs, Section 5.2 (25 points, thread folding).
    """
    return make_sweep_kernel(
        "stencil3d",
        _SHELLS[points],
        weighted,
        [grid_array("v", dtype, 3, 4 if points == 25 else 1, is_output=True)],
        target="v$vST",
        variant=variant,
        dtype=dtype,
        grid=grid,
    )


STENCIL3D = declared(
    stencil3d,
    "stencil",
    (arg.choice("points", "points of the stencil", tuple(_SHELLS)), _VARIANT, arg.GRID_DTYPE, *arg.GRID_3D_ARGUMENTS),
    arg.grid_sizes_3d(256),
    arg.GRID_3D_LIMIT,
    *tile_constraints(lambda a: _SHELLS[a["points"]]),
    fits=arg.GRID_3D_FITS,
)
STENCIL3D_MEM = work_removed(
    STENCIL3D,
    ("uCLD", "uXLD", "uYLD", "uZLD", "uDLD", "uTLD", "vST"),
    present=lambda a: {"vST", *sweep_tags(a["variant"], _SHELLS[a["points"]])},
    # All loads of a variant: of a star, of a box, of either's tiles.
    together=("uCLD_uXLD_uYLD_uZLD", "uCLD_uXLD_uYLD_uZLD_uDLD", "uZLD_uTLD"),
)


# Square of wave speed times time step over grid spacing, where it is the same everywhere.
_SQUARED_COURANT_NUMBER = 0.0625


def wave3d(*, radius: int, speed: str, variant: str, dtype: str, **grid: int | str) -> lp.TranslationUnit:
    """Time step of the wave equation on a 3-D grid: new = 2 u - old + c (Laplacian of u).

    The Laplacian is that of order 2 radius, a star of (6 radius + 1) points. With ``speed:array`` the factor c comes
    from a third array, with ``speed:constant`` it is 1/16 everywhere and folded into the coefficients. Neighbours of
    u come from global memory, private variables or local tiles as in ``stencil3d``, with the same access tags
    (``uCLD``, ``uXLD``, ``uYLD``, ``uZLD``, ``uTLD``); the other arrays are streamed: ``oldLD``, ``speedLD``,
    ``newST``. All have a halo of the radius. (The heat equation's step is ``stencil3d`` with 7 points.) It is an
    application: it isolates no feature.

    Source: Alappat et al., YaskSite (2021), Equation 5 (Wave3D, also known as Iso3DFD).
    """
    arrays = [grid_array("old", dtype, 3, radius), grid_array("new", dtype, 3, radius, is_output=True)]
    if speed == "array":
        arrays.insert(1, grid_array("speed", dtype, 3, radius))

    def update(terms: list[list[str]]) -> str:
        if speed == "array":
            return f"2*centre - old$oldLD[{{here}}] + speed$speedLD[{{here}}]*({laplacian(terms, radius, dtype, 1.0)})"
        return f"2*centre - old$oldLD[{{here}}] + {laplacian(terms, radius, dtype, _SQUARED_COURANT_NUMBER)}"

    return make_sweep_kernel(
        "wave3d", star(3, radius), update, arrays, target="new$newST", variant=variant, dtype=dtype, grid=grid
    )


def _wave_tags(arguments: Arguments) -> set[str]:
    speed = {"speedLD"} if arguments["speed"] == "array" else set()
    return {"oldLD", "newST"} | speed | sweep_tags(arguments["variant"], star(3, arguments["radius"]))


WAVE3D = declared(
    wave3d,
    "stencil",
    (
        arg.choice("radius", "grid steps that the stencil reaches", LAPLACIAN_RADII, 2),
        arg.choice("speed", "wave speed: the same everywhere, or an array", ("constant", "array"), "constant"),
        _VARIANT,
        arg.GRID_DTYPE,
        *arg.GRID_3D_ARGUMENTS,
    ),
    arg.grid_sizes_3d(256),
    arg.GRID_3D_LIMIT,
    *tile_constraints(lambda a: star(3, a["radius"])),
    fits=arg.GRID_3D_FITS,
)
WAVE3D_MEM = work_removed(
    WAVE3D,
    ("uCLD", "uXLD", "uYLD", "uZLD", "uTLD", "oldLD", "speedLD", "newST"),
    present=_wave_tags,
    together=("uCLD_uXLD_uYLD_uZLD_oldLD", "uCLD_uXLD_uYLD_uZLD_oldLD_speedLD", "uZLD_uTLD_oldLD"),
)
