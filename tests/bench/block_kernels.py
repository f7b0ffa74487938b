"""Stencils in blocks: each work-group computes one, row by row, plane by plane."""

from __future__ import annotations

from functools import cache

import loopy as lp
import numpy as np

import perflex.isl  # noqa: F401 - mends what loopy misses

WEIGHTS = ("0.5", "0.0625", "0.03125", "0.015625", "0.0078125")


def terms(radius: int) -> str:
    """Return the sum over a star."""
    parts = [f"{WEIGHTS[0]}*u[z + {radius}, y + {radius}, x + {radius}]"]
    for step in range(1, radius + 1):
        places = [(dz, dy, dx) for dz, dy, dx in ((0, 0, step), (0, step, 0), (step, 0, 0))]
        loads = [
            f"u[z + {radius + s * dz}, y + {radius + s * dy}, x + {radius + s * dx}]"
            for dz, dy, dx in places
            for s in (-1, 1)
        ]
        parts.append(f"{WEIGHTS[step]}*({' + '.join(loads)})")
    return " + ".join(parts)


@cache
def blocked_stencil(radius: int, block: tuple[int, int, int], lanes: int, dtype: str = "float64") -> lp.TranslationUnit:
    """Return a star stencil in blocks of points along x, y and z; rows are computed `lanes` points at once."""
    grid = f"nz + {2 * radius}, ny + {2 * radius}, nx + {2 * radius}"
    kernel = lp.make_kernel(
        "{[z, y, x]: 0 <= z < nz and 0 <= y < ny and 0 <= x < nx}",
        f"v[z + {radius}, y + {radius}, x + {radius}] = {terms(radius)}",
        [
            lp.GlobalArg("u", np.dtype(dtype), grid, is_input=True, is_output=False),
            lp.GlobalArg("v", np.dtype(dtype), grid, is_input=False, is_output=True),
            lp.ValueArg("nx, ny, nz", np.int32),
        ],
        name=f"blocked{radius}",
        lang_version=(2018, 2),
        target=lp.PyOpenCLTarget(),
    )
    bx, by, bz = block
    sizes = zip(("nx", "ny", "nz"), block, strict=True)
    facts = " and ".join(f"{name} >= {size} and {name} mod {size} = 0" for name, size in sizes)
    kernel = lp.assume(kernel, facts)
    for name, size, axis in (("x", bx, 0), ("y", by, 1), ("z", bz, 2)):
        kernel = lp.split_iname(kernel, name, size, outer_tag=f"g.{axis}")
    kernel = lp.split_iname(kernel, "x_inner", lanes, inner_tag="l.0")
    return lp.prioritize_loops(kernel, "z_inner, y_inner, x_inner_outer")
