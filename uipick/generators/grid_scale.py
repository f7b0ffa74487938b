"""Global memory: a grid in work-groups of any shape, along rows or across them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uipick._argument import Argument, integers
from uipick._generator import Constraint, Generator
from uipick.generators._arguments import GROUPS_FIT_ONLY, LSIZE_0, LSIZE_1, WORK_GROUP_LIMIT
from uipick.generators._grid_arguments import GRID_DTYPE, GRID_SIZES_2D
from uipick.generators._kernel import loaded_array, make_kernel, size_parameters, stored_array

if TYPE_CHECKING:
    from collections.abc import Mapping

    import loopy as lp


def grid_scale(
    *,
    store: str,
    along: str,
    n_arrays: int,
    dtype: str,
    lsize_0: int,
    lsize_1: int,
    groups_fit: bool,  # noqa: ARG001 - always true
) -> lp.TranslationUnit:
    """Scaled sum of grids, one point per work-item, in another grid or in place: ``v = 0.5 (u0 + u1 + ...)``.

    Rows of ny by nx points lie one after another. ``along:rows`` has lid(0) go along a row (stride 1), so that a
    work-group of lsize_0 by lsize_1 loads runs of lsize_0 elements; ``along:columns`` across rows (stride nx).
    ``store:stream`` stores in an array of its own, whose lines caches fetch first; ``store:update`` in the first one
    that is loaded, whose lines are there. Loads carry the access tags ``u0LD``, ..., the store ``vST``. Isolates the
    cost of short runs, of long strides and of write-allocates; beside them there are one multiplication and
    n_arrays - 1 additions per point.

    Source: after the paper's Section 7.1.2, global memory access, and the STREAM benchmark (McCalpin, 1995).
    """
    import loopy as lp
    import numpy as np

    update = store == "update"
    names = ["v" if update and number == 0 else f"u{number}" for number in range(n_arrays)]
    loads = " + ".join(f"{name}$u{number}LD[j, i]" for number, name in enumerate(names))
    loaded = [loaded_array(name, dtype, "ny, nx") for name in names if name != "v"]
    target = (
        lp.GlobalArg("v", np.dtype(dtype), shape="ny, nx", is_input=True, is_output=True)
        if update
        else stored_array("v", dtype, "ny, nx")
    )
    kernel = make_kernel(
        "grid_scale",
        "{[i, j]: 0 <= i < nx and 0 <= j < ny}",
        f"v$vST[j, i] = 0.5 * ({loads})",
        [*loaded, target, size_parameters("nx, ny")],
    )
    first, second = ("i", "j") if along == "rows" else ("j", "i")
    sizes = {"i": "nx", "j": "ny"}
    fit = f"{sizes[first]} mod {lsize_0} = 0 and {sizes[second]} mod {lsize_1} = 0"
    kernel = lp.assume(kernel, f"nx >= 1 and ny >= 1 and {fit}")
    kernel = lp.split_iname(kernel, first, lsize_0, outer_tag="g.0", inner_tag="l.0")
    return lp.split_iname(kernel, second, lsize_1, outer_tag="g.1", inner_tag="l.1")


# Any: argument values by name, of the types that the declarations say.
def _fits(arguments: Mapping[str, Any]) -> bool:
    extents = [arguments["nx"], arguments["ny"]]
    first, second = extents if arguments["along"] == "rows" else extents[::-1]
    fits = first % arguments["lsize_0"] == 0 and second % arguments["lsize_1"] == 0
    return bool(fits)


GRID_SCALE = Generator(
    name="grid_scale",
    tags=frozenset({"grid_scale", "gmem"}),
    arguments=(
        Argument("store", "str", "where results go: another array, or the first one loaded", ("stream", "update")),
        Argument("along", "str", "what lid(0) goes along", ("rows", "columns")),
        Argument("n_arrays", "int", "arrays that are loaded", integers(1, 8), (1, 2)),
        GRID_DTYPE,
        LSIZE_0,
        LSIZE_1,
        GROUPS_FIT_ONLY,
        *GRID_SIZES_2D,
    ),
    build=grid_scale,
    size_arguments=("nx", "ny"),
    constraints=(
        WORK_GROUP_LIMIT,
        Constraint(
            "nx and ny must be multiples of lsize_0 and lsize_1, along columns of lsize_1 and lsize_0",
            _fits,
        ),
    ),
)
