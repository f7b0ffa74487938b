"""Kernels of parallel iterated Runge-Kutta methods on a 3-D grid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from uipick._argument import Argument
from uipick._generator import Constraint, Generator
from uipick.generators._grid_arguments import GRID_3D_ARGUMENTS, GRID_3D_CONSTRAINTS, GRID_DTYPE, grid_sizes_3d
from uipick.generators._laplacian import LAPLACIAN_RADII, laplacian
from uipick.generators._radau import radau_iia
from uipick.generators._stencil import GridLaunch, at, grid_array, make_grid_kernel, star, tag_letter

if TYPE_CHECKING:
    from collections.abc import Mapping

    import loopy as lp

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
_KERNELS = ("lc", "rhs", "app", "up", "rhs_lc", "rhs_app_up")
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


def pirk(*, kernel: str, problem: str, radius: int, dtype: str, **grid: int | bool) -> lp.TranslationUnit:
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
    return make_grid_kernel(f"pirk_{kernel}", ["for plane", *body, "end"], arrays, GridLaunch.of(grid))


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


PIRK = Generator(
    name="pirk",
    tags=frozenset({"pirk", "stencil"}),
    arguments=(
        Argument("kernel", "str", "which part of a time step, or which parts in one", _KERNELS),
        Argument("problem", "str", "right-hand side of the differential equation", ("heat3d", "wave3d"), ("heat3d",)),
        Argument("radius", "int", "grid steps that the right-hand side reaches", LAPLACIAN_RADII, (1,)),
        GRID_DTYPE,
        *GRID_3D_ARGUMENTS,
        *grid_sizes_3d(128),
    ),
    build=pirk,
    size_arguments=("nx", "ny", "nz"),
    constraints=(
        *GRID_3D_CONSTRAINTS,
        Constraint("problem:heat3d needs radius:1", lambda a: a["problem"] != "heat3d" or a["radius"] == 1),
    ),
)
