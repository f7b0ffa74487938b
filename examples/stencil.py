"""A 25-point stencil of range 4 on a 3-D grid, one of UIPiCK's generators.

perflex volumes examples/stencil.py:star25 --machine V100 nx=640 ny=512 nz=512
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from uipick import ALL_GENERATORS, KernelCollection

if TYPE_CHECKING:
    import loopy as lp


def star25() -> lp.TranslationUnit:
    """Work-groups of 32 by 4 by 8, double precision."""
    tags = ["stencil3d", "points:25", "variant:plain", "dtype:float64", "lsize_0:32", "lsize_1:4", "lsize_2:8"]
    (kernel,) = KernelCollection(ALL_GENERATORS).generate_kernels([*tags, "chunk:1", "nx:640", "ny:512", "nz:512"])
    return kernel.kernel
