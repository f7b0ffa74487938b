"""Gauss-Seidel red-black smoother in three dimensions, in three ways to leave out points of the other colour."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uipick._argument import Argument
from uipick._generator import Constraint, Generator
from uipick.generators._grid_arguments import GRID_3D_ARGUMENTS, GRID_3D_CONSTRAINTS, grid_sizes_3d
from uipick.generators._kernel import loaded_array
from uipick.generators._stencil import GridLaunch, at, grid_array, make_grid_kernel, star

if TYPE_CHECKING:
    from collections.abc import Mapping

    import loopy as lp

_STEPS = star(3, 1)[1]
_HALF = 2


def gsrb(*, variant: str, colour: int, dtype: str, **grid: int | bool) -> lp.TranslationUnit:
    """Half a Gauss-Seidel red-black sweep on a 3-D grid: points of one colour are smoothed, the others copied.

    Colours alternate like those of a chessboard: a point (i, j, k) of the interior has the colour (i + j + k) mod 2. A
    smoothed point becomes u + (f - (6 u - the six neighbours)) / 8. Arrays have the interior's size (nx, ny, nz) and a
    halo of one point; each work-item computes ``chunk`` consecutive planes. Of the ways to select points

    ``variant:fp`` multiplies the change by a mask of ones and zeros (``maskLD``, two planes that alternate), so that
    all work-items compute, half of them in vain; ``variant:branch`` tests the colour, so that half of each sub-group
    idles on either side; ``variant:stride2`` gives two neighbours along x, one of each colour, to a work-item (nx is
    even), so that none idles and loads have stride 2 or alternate between rows.

    Access tags ``uCLD``, ``uXLD``, ``uYLD``, ``uZLD`` (centre, and neighbours along an axis), ``fLD``, ``outST``; of
    copied points ``uOLD`` and ``outOST``. It is an application: it isolates no feature.

    Source: GSRB_FP, GSRB_BRANCH and GSRB_STRIDE2 of HPGMG, as in Ding and Williams, An Instruction Roofline Model for
    GPUs (2019), Section IV-B; here with the 7-point operator.
    """
    launch = GridLaunch.of(grid)
    plane = f"{launch.chunk}*column + plane"
    arrays = [grid_array(name, dtype, 3, 1) for name in ("u", "f")]
    arrays.append(grid_array("out", dtype, 3, 1, is_output=True))
    if variant == "fp":
        arrays.append(loaded_array("mask", dtype, "2, ny, nx"))
    body = _BODIES[variant](plane, colour, dtype)
    return make_grid_kernel(
        "gsrb", ["for plane", *body, "end"], arrays, launch, points_x=_HALF if variant == "stride2" else 1
    )


def _change(plane: str, x: str = "i") -> list[str]:
    """Return what computes the change of the point (x, j, plane); the first line loads it."""

    def term(offset: tuple[int, ...]) -> str:
        axis = next((axis for axis, step in enumerate(offset) if step), 3)
        return f"u$u{'XYZC'[axis]}LD[{_at(offset, plane, x)}]"

    neighbours = " + ".join(map(term, _STEPS))
    return [
        term((0, 0, 0)),
        f"0.125*(f$fLD[{_at((0, 0, 0), plane, x)}] + ({neighbours}) - 6.0*centre)",
    ]


def _at(offset: tuple[int, ...], plane: str, x: str) -> str:
    # In front of the last comma stand plane and row.
    outer, _, _ = at(offset, 1, plane).rpartition(", ")
    return f"{outer}, {x} + {offset[0] + 1}"


def _fp(plane: str, colour: int, dtype: str) -> list[str]:
    load, change = _change(plane)
    mask = f"mask$maskLD[({plane} + {colour}) % 2, j, i]"
    return [f"<{dtype}> centre = {load}", f"out$outST[{_at((0, 0, 0), plane, 'i')}] = centre + {mask}*({change})"]


def _branch(plane: str, colour: int, dtype: str) -> list[str]:
    load, change = _change(plane)
    here = _at((0, 0, 0), plane, "i")
    return [
        f"if (i + j + {plane} + {colour}) % 2 == 0",
        f"<{dtype}> centre = {load}",
        f"out$outST[{here}] = centre + {change}",
        "else",
        f"out$outOST[{here}] = u$uOLD[{here}]",
        "end",
    ]


def _stride2(plane: str, colour: int, dtype: str) -> list[str]:
    first, second = f"2*i + (j + {plane} + {colour}) % 2", f"2*i + 1 - (j + {plane} + {colour}) % 2"
    load, change = _change(plane, first)
    other = _at((0, 0, 0), plane, second)
    return [
        f"<{dtype}> centre = {load}",
        f"out$outST[{_at((0, 0, 0), plane, first)}] = centre + {change}",
        f"out$outOST[{other}] = u$uOLD[{other}]",
    ]


_BODIES = {"fp": _fp, "branch": _branch, "stride2": _stride2}


def _pairs_fit(arguments: Mapping[str, Any]) -> bool:
    whole: int = 2 * arguments["lsize_0"] if arguments["groups_fit"] else 2
    return arguments["variant"] != "stride2" or int(arguments["nx"]) % whole == 0


GSRB = Generator(
    name="gsrb",
    tags=frozenset({"gsrb", "stencil"}),
    arguments=(
        Argument("variant", "str", "how points of the other colour are left out", tuple(_BODIES)),
        Argument("colour", "int", "(i + j + k) mod 2 of the points that are smoothed", (0, 1), (0,)),
        Argument("dtype", "dtype", "element type", ("float32", "float64"), ("float64",)),
        *GRID_3D_ARGUMENTS,
        *grid_sizes_3d(128),
    ),
    build=gsrb,
    size_arguments=("nx", "ny", "nz"),
    constraints=(
        *GRID_3D_CONSTRAINTS,
        Constraint("variant:stride2 needs an even nx, with groups_fit:True a multiple of 2*lsize_0", _pairs_fit),
    ),
)
