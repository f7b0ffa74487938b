"""Scalar product."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uipick._argument import Argument, integers
from uipick._generator import Constraint, Generator
from uipick.generators._arguments import DTYPE, GROUPS_FIT
from uipick.generators._kernel import loaded_array, make_kernel, size_parameters, stored_array
from uipick.generators._vectors import VECTOR_LSIZE, VECTOR_SIZE

if TYPE_CHECKING:
    import loopy as lp


def dot(*, dtype: str, ngroups: int, lsize_0: int, groups_fit: bool) -> lp.TranslationUnit:
    """Scalar product of two vectors, reduced in two stages, each a launch.

    In the first, ngroups work-groups run over x and y (access tags ``xLD``, ``yLD``, stride 1, each work-item every
    ngroups lsize_0 elements), then halve the number of partial sums in local memory again and again, with a barrier
    each time, and store one partial sum per work-group (``partST``). In the second, one work-group reduces these in
    the same way (``partLD``) and stores the result (``resST``). Features: multiply-adds and loads in a loop, local
    memory and barriers of a tree, two of ``f_sync_kernel_launch``; an application, which isolates none of them.

    Source: Harris, Optimizing Parallel Reduction in CUDA (2007).
    """
    import loopy as lp
    import numpy as np

    place = f"{ngroups * lsize_0}*round + {lsize_0}*group + item"
    last = f"{lsize_0}*last + last_item"
    kernel = make_kernel(
        # "dot" is the name of an OpenCL function.
        "dot_product",
        [
            f"{{[group]: 0 <= group < {ngroups}}}",
            f"{{[item, round]: 0 <= item < {lsize_0} and 0 <= round and {place} < n}}",
            f"{{[last_item, last]: 0 <= last_item < {lsize_0} and 0 <= last and {last} < {ngroups}}}",
        ],
        f"""
        partial$partST[group] = sum(item, sum(round, x$xLD[{place}] * y$yLD[{place}])) {{id=first}}
        ... gbarrier {{id=between, dep=first}}
        result$resST[0] = sum(last_item, sum(last, partial$partLD[{last}])) {{id=second, dep=between}}
        """,
        [
            loaded_array("x, y", dtype, "n"),
            stored_array("result", dtype, "1"),
            lp.TemporaryVariable("partial", np.dtype(dtype), (ngroups,), address_space=lp.AddressSpace.GLOBAL),
            size_parameters("n"),
        ],
        # Only one work-item is left in the last stage of a reduction; loopy asks for its iname all the same.
        silenced_warnings=["write_race(first)", "write_race(second)"],
    )
    kernel = lp.assume(kernel, "n >= 1" + (f" and n mod {ngroups * lsize_0} = 0" if groups_fit else ""))
    return lp.tag_inames(kernel, "group:g.0, item:l.0, last_item:l.0")


DOT = Generator(
    name="dot",
    tags=frozenset({"dot", "blas", "reduction"}),
    arguments=(
        DTYPE,
        Argument("ngroups", "int", "work-groups of the first stage", integers(2, 4096), (64,)),
        VECTOR_LSIZE,
        GROUPS_FIT,
        VECTOR_SIZE,
    ),
    build=dot,
    size_arguments=("n",),
    constraints=(
        Constraint("a tree needs at least 2 work-items (lsize_0)", lambda a: a["lsize_0"] >= 2),
        Constraint(
            "groups_fit:True needs n to be a multiple of ngroups times lsize_0",
            lambda a: not a["groups_fit"] or a["n"] % (a["ngroups"] * a["lsize_0"]) == 0,
        ),
    ),
)
