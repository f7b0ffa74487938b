"""Scaled vector addition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uipick._generator import Generator
from uipick.generators._arguments import DTYPE, GROUPS_FIT
from uipick.generators._kernel import loaded_array, make_kernel, size_parameters
from uipick.generators._vectors import VECTOR_FITS, VECTOR_LSIZE, VECTOR_SIZE

if TYPE_CHECKING:
    import loopy as lp


def axpy(*, dtype: str, lsize_0: int, groups_fit: bool) -> lp.TranslationUnit:
    """Scaled vector addition y = 0.5 x + y in place, one element per work-item.

    Two global loads (access tags ``xLD``, ``yLD``), one multiply-add and one global store (``yST``) per work-item, all
    with stride 1 and AFR 1: memory bandwidth, with a load and a store of the same element. Features:
    ``f_mem_access_global_<dtype>``, 3 per work-item, and ``f_op_<dtype>_madd``, 1 per work-item.

    Source: BLAS level 1 (Lawson et al., 1979).
    """
    import loopy as lp
    import numpy as np

    kernel = make_kernel(
        "axpy",
        "{[i]: 0 <= i < n}",
        "y$yST[i] = 0.5 * x$xLD[i] + y$yLD[i]",
        [
            loaded_array("x", dtype, "n"),
            lp.GlobalArg("y", np.dtype(dtype), shape="n", is_input=True, is_output=True),
            size_parameters("n"),
        ],
    )
    kernel = lp.assume(kernel, "n >= 1" + (f" and n mod {lsize_0} = 0" if groups_fit else ""))
    return lp.split_iname(kernel, "i", lsize_0, outer_tag="g.0", inner_tag="l.0")


AXPY = Generator(
    name="axpy",
    tags=frozenset({"axpy", "blas"}),
    arguments=(DTYPE, VECTOR_LSIZE, GROUPS_FIT, VECTOR_SIZE),
    build=axpy,
    size_arguments=("n",),
    constraints=(VECTOR_FITS,),
)
