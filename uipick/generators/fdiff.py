"""Two-dimensional finite differences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uipick._argument import Argument, integers, multiples_of
from uipick._generator import Constraint, Generator
from uipick.generators._arguments import DTYPE, GROUPS_FIT
from uipick.generators._kernel import loaded_array, make_kernel, size_parameters, stored_array

if TYPE_CHECKING:
    import loopy as lp


def fdiff(*, dtype: str, tile: int, groups_fit: bool) -> lp.TranslationUnit:
    """Five-point finite differences on a square grid, tiles of u with their halo in local memory.

    A work-group of tile by tile work-items fetches as many elements of u (access tag ``uLD``), one each; then
    (tile - 2) by (tile - 2) of its work-items compute and store a result (``resST``), the others idle. With
    groups_fit:True n is a multiple of tile - 2. The accesses of different tiles are told apart by the strides of
    gid(0): 14 for tiles of 16, ``f_mem_access_tag:uLD_gstrides:{0:14}``, and 16 for tiles of 18; u has n + 2 rows and
    columns. Features: global loads and stores with an AFR near one, local loads and stores, additions, one barrier;
    an application, which isolates none of them.

    Source: the paper's Section 8.5.
    """
    import loopy as lp

    from uipick._access_tags import tag_accesses

    kernel = make_kernel(
        "fdiff",
        "{[i,j]: 0<=i,j<n}",
        "res[i,j] = u[i,j+1] + u[i+1,j] - 4*u[i+1,j+1] + u[i+1,j+2] + u[i+2,j+1]",
        [
            loaded_array("u", dtype, "n + 2, n + 2"),
            stored_array("res", dtype, "n, n"),
            size_parameters("n"),
        ],
    )
    fit = f" and n mod {tile - 2} = 0" if groups_fit else ""
    kernel = lp.assume(kernel, f"n >= 1{fit}")
    kernel = lp.split_iname(kernel, "i", tile - 2, outer_tag="g.1", inner_tag="l.1")
    kernel = lp.split_iname(kernel, "j", tile - 2, outer_tag="g.0", inner_tag="l.0")
    # No default tags: the fetch's axes are the work-group's, an element with halo per work-item.
    kernel = lp.add_prefetch(kernel, "u", ["i_inner", "j_inner"], fetch_bounding_box=True, default_tag=None)
    kernel = lp.tag_inames(kernel, "u_dim_0:l.1, u_dim_1:l.0")
    return tag_accesses(kernel, loads={"u": "uLD"}, stores={"res": "resST"})


FDIFF = Generator(
    name="fdiff",
    tags=frozenset({"fdiff", "stencil"}),
    arguments=(
        DTYPE,
        Argument(
            "tile",
            "int",
            "rows and columns of the tile in local memory, halo included, and of the work-group",
            integers(4, 32),
            (16, 18),
        ),
        GROUPS_FIT,
        Argument("n", "int", "rows and columns of the result", multiples_of(1), (1008, 1456, 1904, 2352)),
    ),
    build=fdiff,
    size_arguments=("n",),
    constraints=(
        Constraint(
            "groups_fit:True needs n to be a multiple of tile - 2",
            lambda a: not a["groups_fit"] or a["n"] % (a["tile"] - 2) == 0,
        ),
    ),
)
