"""Applications on grids of three axes: Gauss-Seidel, lattice Boltzmann, Runge-Kutta."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from uipick import _loopy as lp
from uipick.generators import _arguments as arg
from uipick.generators._arrays import loaded_array
from uipick.generators._declared import declared, work_removed
from uipick.generators.stencils import LAPLACIAN_RADII, at, grid_array, laplacian, make_grid_kernel, star, tag_letter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray


_STEPS = star(3, 1)[1]


def gsrb(*, variant: str, colour: int, dtype: str, **grid: Any) -> lp.TranslationUnit:
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
    plane = f"{grid['chunk']}*column + plane"
    arrays = [grid_array(name, dtype, 3, 1) for name in ("u", "f")]
    arrays.append(grid_array("out", dtype, 3, 1, is_output=True))
    if variant == "fp":
        arrays.append(loaded_array("mask", dtype, "2, ny, nx"))
    body = _BODIES[variant](plane, colour, dtype)
    kernel = make_grid_kernel(
        "gsrb", ["for plane", *body, "end"], arrays, grid, points_x=2 if variant == "stride2" else 1
    )
    return lp.assume(kernel, "nx mod 2 = 0") if variant == "stride2" else kernel


def _change(plane: str, x: str = "i") -> list[str]:
    """Return what computes the change of the point (x, j, plane); the first line loads it."""

    def term(offset: tuple[int, ...]) -> str:
        axis = next((axis for axis, step in enumerate(offset) if step), 3)
        return f"u$u{'XYZC'[axis]}LD[{_at(offset, plane, x)}]"

    neighbours = " + ".join(map(term, _STEPS))
    return [term((0, 0, 0)), f"0.125*(f$fLD[{_at((0, 0, 0), plane, x)}] + ({neighbours}) - 6.0*centre)"]


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


GSRB = declared(
    gsrb,
    "stencil",
    (
        arg.choice("variant", "how points of the other colour are left out", tuple(_BODIES)),
        arg.choice("colour", "(i + j + k) mod 2 of the points that are smoothed", (0, 1), 0),
        arg.dtypes("float32", "float64", default=("float64",)),
        *arg.GRID_3D_ARGUMENTS,
    ),
    arg.grid_sizes_3d(128),
    arg.GRID_3D_LIMIT,
    arg.needs("variant:stride2", "nx % 2 == 0"),
    fits="nx % (lsize_0 * (2 if variant == 'stride2' else 1)), ny % lsize_1, nz % (lsize_2 * chunk)",
)


_REST = (0, 0, 0)
# Along the axes and to the corners of a cube, x first: one of each pair of opposite directions.
_FORWARD = ((1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 1), (1, 1, -1), (1, -1, 1), (-1, 1, 1))
_DIRECTIONS = (_REST, *((sign * x, sign * y, sign * z) for x, y, z in _FORWARD for sign in (-1, 1)))
# Lattice weights by the number of axes along which a direction points.
_WEIGHTS = {0: 2 / 9, 1: 1 / 9, 3: 1 / 72}
# One over the relaxation time, in time steps.
_RELAXATION = 0.5


def lbm_d3q15(*, collide: str, dtype: str, **grid: Any) -> lp.TranslationUnit:
    """Lattice-Boltzmann step on a 3-D grid: 15 values per cell come from 15 neighbours.

    For each direction q, ``g[q]`` takes the value of ``f[q]`` in the neighbouring cell from which that direction points
    here (pull scheme: stores are aligned with the cell, loads are not). Both are structures of arrays: one grid with a
    halo of one cell per direction, q the slowest axis. ``collide:none`` streams only; ``collide:bgk`` relaxes the 15
    values halfway to their equilibrium before they are stored. Each work-item computes
    ``chunk`` consecutive planes in a sequential loop. Access tags: ``fCLD`` (rest), ``fXLD``, ``fYLD``, ``fZLD`` (along
    an axis), ``fDLD`` (from the corners), ``gST``; those of ``fXLD`` and ``fDLD`` are shifted along the row. No value
    is loaded twice: 15 loads and 15 stores per cell. It is an application: it isolates no feature.

    Source: Ernst et al., Analytical Performance Estimation during Code Generation on Modern GPUs, Section 5.3 (the
    D3Q15 part of its kernel); weights and BGK collision after Qian, d'Humieres and Lallemand (1992).
    """
    here = f"{grid['chunk']}*column + plane"
    pulled = [f"f$f{tag_letter(c)}LD[{q}, {at((-c[0], -c[1], -c[2]), 1, here)}]" for q, c in enumerate(_DIRECTIONS)]
    if collide == "none":
        new, before = pulled, []
    else:
        before = [f"<{dtype}> p{q} = {load}" for q, load in enumerate(pulled)] + _moments(dtype)
        new = [_relaxed(q) for q in range(len(_DIRECTIONS))]
    stores = [f"g$gST[{q}, {at(_REST, 1, here)}] = {value}" for q, value in enumerate(new)]
    return make_grid_kernel(
        "lbm_d3q15",
        ["for plane", *before, *stores, "end"],
        [grid_array(name, dtype, 3, 1, components=len(_DIRECTIONS), is_output=name == "g") for name in "fg"],
        grid,
    )


def _moments(dtype: str) -> list[str]:
    """Return the instructions for density, velocity, and what the equilibria share."""
    number = np.dtype(dtype).type
    lines = [f"<{dtype}> rho = {' + '.join(f'p{q}' for q in range(len(_DIRECTIONS)))}"]
    lines.append(f"<{dtype}> volume = 1/rho")
    for axis, name in enumerate("xyz"):
        forward, backward = (
            " + ".join(f"p{q}" for q, c in enumerate(_DIRECTIONS) if c[axis] == sign) for sign in (1, -1)
        )
        lines.append(f"<{dtype}> v{name} = volume*(({forward}) - ({backward}))")
    lines.append(f"<{dtype}> rest = 1 + (-1.5)*(vx*vx + vy*vy + vz*vz)")
    for pair, direction in enumerate(_FORWARD):
        signed = zip(direction, "xyz", strict=True)
        along = " ".join(f"{'+' if sign > 0 else '-'} v{name}" for sign, name in sorted(signed, reverse=True) if sign)
        lines.append(f"<{dtype}> along{pair} = {along.removeprefix('+ ')}")
        lines.append(f"<{dtype}> even{pair} = rest + 4.5*along{pair}*along{pair}")
    lines += [
        f"<{dtype}> share{axes} = {float(number(_RELAXATION * weight))!r}*rho" for axes, weight in _WEIGHTS.items()
    ]
    return lines


def _relaxed(q: int) -> str:
    share = f"share{sum(map(bool, _DIRECTIONS[q]))}"
    if q == 0:
        return f"{1 - _RELAXATION}*p0 + {share}*rest"
    # w rho (1 + 3 c.v + 4.5 (c.v)^2 - 1.5 v^2): opposite directions differ in the sign of 3 c.v alone.
    pair, backward = (q - 1) // 2, q % 2
    return f"{1 - _RELAXATION}*p{q} + {share}*(even{pair} + ({-3 if backward else 3})*along{pair})"


LBM_D3Q15 = declared(
    lbm_d3q15,
    "lbm",
    (
        arg.choice("collide", "what happens to the values between load and store", ("none", "bgk"), "none"),
        arg.GRID_DTYPE,
        *arg.GRID_3D_ARGUMENTS,
    ),
    arg.grid_sizes_3d(128),
    arg.GRID_3D_LIMIT,
    fits=arg.GRID_3D_FITS,
)
LBM_D3Q15_MEM = work_removed(LBM_D3Q15, ("fCLD", "fXLD", "fYLD", "fZLD", "fDLD", "gST"))


@lru_cache(maxsize=8)
def radau_iia(stages: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the coefficients of the Radau IIA method with s stages, of order 2 s - 1.

    Its nodes are the zeros of the derivative of order s - 1 of ``x**(s-1) (x-1)**s``; the last is 1, so the weights are
    the last row of the matrix. The matrix has shape ``(s, s)``, the nodes ``(s,)``.

    Source: Hairer and Wanner, Solving Ordinary Differential Equations II, Section IV.5.
    """
    polynomial = np.polynomial.Polynomial
    x = polynomial([0.0, 1.0])
    # All nodes are real; rounding may leave imaginary parts.
    nodes = np.sort((x ** (stages - 1) * (x - 1) ** stages).deriv(stages - 1).roots().real)
    matrix = np.empty((stages, stages))
    for column, node in enumerate(nodes):
        others = np.delete(nodes, column)
        basis = polynomial.fromroots(others) / np.prod(node - others)
        # Collocation: a[i, j] is the integral of the j-th Lagrange polynomial from 0 to c[i].
        matrix[:, column] = basis.integ()(nodes)
    return matrix, nodes


STAGES = 4
# One less than the order of Radau IIA(7).
CORRECTIONS = 6
# Step size of the method in units of time; a power of two, as is the heat conduction.
STEP = 0.5
_CONDUCTION = 0.0625

PIRK_IMPLEMENTATIONS: Mapping[str, Mapping[str, int]] = {
    "A": {"rhs": CORRECTIONS + 1, "lc": CORRECTIONS, "app": 1, "up": 1},
    "F": {"rhs_lc": CORRECTIONS, "rhs_app_up": 1},
}
"""Launches of each kernel per time step, by implementation (YaskSite, Listing 1)."""

_STENCIL = ("rhs", "rhs_lc", "rhs_app_up")
# Arrays that a kernel reads and the one that it writes, with their numbers of grids.
_READS: Mapping[str, Mapping[str, int]] = {
    "lc": {"f": STAGES, "y": 0},
    "rhs": {"stage": STAGES},
    "app": {"f": STAGES},
    "up": {"dy": 0, "y": 0},
    "rhs_lc": {"stage": STAGES, "y": 0},
    "rhs_app_up": {"stage": STAGES, "y": 0},
}
_WRITES: Mapping[str, tuple[str, int]] = {
    "lc": ("next", STAGES),
    "rhs": ("f", STAGES),
    "app": ("dy", 0),
    "up": ("new", 0),
    "rhs_lc": ("next", STAGES),
    "rhs_app_up": ("new", 0),
}


def pirk(*, kernel: str, problem: str, radius: int, dtype: str, **grid: Any) -> lp.TranslationUnit:
    """Kernel of a parallel iterated Runge-Kutta method on a 3-D grid: four stages, Radau IIA(7), steps of 0.5.

    With the right-hand side F of the stages ``stage``, at each grid point and with the loops over stages unrolled:
    ``kernel:rhs`` stores F in ``f``; ``lc`` the next stages ``y + h sum a[l, i] f[i]`` in ``next``; ``app``
    ``sum b[i] f[i]`` in ``dy``; ``up`` ``y + h dy`` in ``new``; ``rhs_lc`` is rhs and lc in one, ``rhs_app_up`` rhs,
    app and up in one. Implementation A of a time step is 6 times rhs and lc, then rhs, app and up; implementation F is
    6 times rhs_lc, then rhs_app_up (`PIRK_IMPLEMENTATIONS`).

    ``problem:heat3d`` (radius 1) is F = 1/16 Laplacian of the stage; ``problem:wave3d``, a star of (6 radius + 1)
    points, is F = 2 stage - prev + speed (Laplacian of the stage), with two arrays that all stages share. All arrays
    have a halo of the radius, which stays as it is; each stage is a grid of its own, one after another. Each work-item
    computes ``chunk`` consecutive planes. Access tags: ``stageCLD`` (centre), ``stageXLD``, ``stageYLD``, ``stageZLD``
    (neighbours along an axis), ``fLD``, ``yLD``, ``dyLD``, ``prevLD``, ``speedLD``, ``fST``, ``nextST``, ``dyST``,
    ``newST``. It is an application: it isolates no feature.

    Source: Alappat et al., YaskSite (2021), Section II, Equations 2 to 5 and Listings 1 and 2.
    """
    here = at((0, 0, 0), radius, f"{grid['chunk']}*column + plane")
    reads = dict(_READS[kernel])
    if problem == "wave3d" and kernel in _STENCIL:
        reads |= {"prev": 0, "speed": 0}
    target, grids = _WRITES[kernel]
    arrays = [grid_array(name, dtype, 3, radius, components=count) for name, count in reads.items()]
    arrays.append(grid_array(target, dtype, 3, radius, is_output=True, components=grids))
    body = _body(kernel, problem, radius, dtype, grid["chunk"], here)
    return make_grid_kernel(f"pirk_{kernel}", ["for plane", *body, "end"], arrays, grid)


def _body(kernel: str, problem: str, radius: int, dtype: str, chunk: int, here: str) -> list[str]:
    matrix, _ = radau_iia(STAGES)
    step = repr(STEP)

    def number(value: float) -> str:
        return f"({float(np.dtype(dtype).type(value))!r})"

    if kernel == "up":
        return [f"new$newST[{here}] = y$yLD[{here}] + {step}*dy$dyLD[{here}]"]
    lines = []
    if problem == "wave3d" and kernel in _STENCIL:
        lines += [f"<{dtype}> before = prev$prevLD[{here}]", f"<{dtype}> factor = speed$speedLD[{here}]"]
    for stage in range(STAGES):
        if kernel in _STENCIL:
            value = _right_hand_side(problem, radius, dtype, stage, f"{chunk}*column + plane")
            lines += [f"<{dtype}> centre{stage} = stage$stageCLD[{stage}, {here}]", f"<{dtype}> f{stage} = {value}"]
        else:
            lines.append(f"<{dtype}> f{stage} = f$fLD[{stage}, {here}]")
    if kernel == "rhs":
        return [*lines, *(f"f$fST[{stage}, {here}] = f{stage}" for stage in range(STAGES))]

    def combined(weights: Any) -> str:
        return " + ".join(f"{number(weight)}*f{stage}" for stage, weight in enumerate(weights))

    if kernel == "app":
        return [*lines, f"dy$dyST[{here}] = {combined(matrix[-1])}"]
    lines.append(f"<{dtype}> old = y$yLD[{here}]")
    if kernel == "rhs_app_up":
        return [*lines, f"new$newST[{here}] = old + {step}*({combined(matrix[-1])})"]
    return [*lines, *(f"next$nextST[{s}, {here}] = old + {step}*({combined(matrix[s])})" for s in range(STAGES))]


def _right_hand_side(problem: str, radius: int, dtype: str, stage: int, plane: str) -> str:
    shells = star(3, radius)
    terms = [
        [f"stage$stage{tag_letter(offset)}LD[{stage}, {at(offset, radius, plane)}]" for offset in shell]
        for shell in shells
    ]
    terms[0] = [f"centre{stage}"]
    if problem == "heat3d":
        return laplacian(terms, radius, dtype, _CONDUCTION)
    return f"2*centre{stage} - before + factor*({laplacian(terms, radius, dtype, 1.0)})"


PIRK = declared(
    pirk,
    "stencil",
    (
        arg.choice("kernel", "which part of a time step, or which parts in one", tuple(_READS)),
        arg.choice("problem", "right-hand side of the differential equation", ("heat3d", "wave3d"), "heat3d"),
        arg.choice("radius", "grid steps that the right-hand side reaches", LAPLACIAN_RADII, 1),
        arg.GRID_DTYPE,
        *arg.GRID_3D_ARGUMENTS,
    ),
    arg.grid_sizes_3d(128),
    arg.GRID_3D_LIMIT,
    arg.needs("problem:heat3d", "radius == 1"),
    fits=arg.GRID_3D_FITS,
)
