"""Lattice-Boltzmann step with 15 directions in three dimensions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from uipick._argument import Argument
from uipick._generator import Generator
from uipick.generators._grid_arguments import GRID_3D_ARGUMENTS, GRID_3D_CONSTRAINTS, GRID_DTYPE, grid_sizes_3d
from uipick.generators._stencil import GridLaunch, at, grid_array, make_grid_kernel, tag_letter
from uipick.generators._work_removed import work_removed

if TYPE_CHECKING:
    import loopy as lp

_REST = (0, 0, 0)
# Along the axes and to the corners of a cube, x first: one of each pair of opposite directions.
_FORWARD = ((1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 1), (1, 1, -1), (1, -1, 1), (-1, 1, 1))
_DIRECTIONS = (_REST, *((sign * x, sign * y, sign * z) for x, y, z in _FORWARD for sign in (-1, 1)))
# Lattice weights by the number of axes along which a direction points.
_WEIGHTS = {0: 2 / 9, 1: 1 / 9, 3: 1 / 72}
# One over the relaxation time, in time steps.
_RELAXATION = 0.5


def lbm_d3q15(*, collide: str, dtype: str, **grid: int | bool) -> lp.TranslationUnit:
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
    chunk = grid["chunk"]
    here = f"{chunk}*column + plane"
    pulled = [f"f$f{tag_letter(c)}LD[{q}, {at((-c[0], -c[1], -c[2]), 1, here)}]" for q, c in enumerate(_DIRECTIONS)]
    if collide == "none":
        new, before = pulled, []
    else:
        before = [f"<{dtype}> p{q} = {load}" for q, load in enumerate(pulled)] + _moments(dtype)
        new = [_relaxed(q) for q in range(len(_DIRECTIONS))]
    stores = [f"g$gST[{q}, {at(_REST, 1, here)}] = {value}" for q, value in enumerate(new)]
    count = len(_DIRECTIONS)
    return make_grid_kernel(
        "lbm_d3q15",
        ["for plane", *before, *stores, "end"],
        [
            grid_array("f", dtype, 3, 1, components=count),
            grid_array("g", dtype, 3, 1, components=count, is_output=True),
        ],
        GridLaunch.of(grid),
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


LBM_D3Q15 = Generator(
    name="lbm_d3q15",
    tags=frozenset({"lbm_d3q15", "lbm"}),
    arguments=(
        Argument("collide", "str", "what happens to the values between load and store", ("none", "bgk"), ("none",)),
        GRID_DTYPE,
        *GRID_3D_ARGUMENTS,
        *grid_sizes_3d(128),
    ),
    build=lbm_d3q15,
    size_arguments=("nx", "ny", "nz"),
    constraints=GRID_3D_CONSTRAINTS,
)
LBM_D3Q15_MEM = work_removed(LBM_D3Q15, ("fCLD", "fXLD", "fYLD", "fZLD", "fDLD", "gST"))
