"""Convolution in two dimensions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uipick._argument import Argument, Criterion, integers
from uipick._generator import Constraint, Generator
from uipick.generators._arguments import LSIZE_0, LSIZE_1
from uipick.generators._grid_arguments import FITTING_FIRST, GRID_2D_CONSTRAINTS, GRID_DTYPE, GRID_SIZES_2D
from uipick.generators._kernel import (
    fits_in_local_memory,
    loaded_array,
    make_kernel,
    private_array,
    size_parameters,
    stored_array,
)
from uipick.generators._local_tile import fetch_tile
from uipick.generators._work_removed import work_removed

if TYPE_CHECKING:
    from collections.abc import Mapping

    import loopy as lp

# Loops over a work-item's outputs; one pair of inames each, as loopy enters a loop once.
_ROLES = ("first", "each", "last")


def conv2d(
    *,
    filter_size: int,
    tile_x: int,
    tile_y: int,
    local: bool,
    dtype: str,
    lsize_0: int,
    lsize_1: int,
    groups_fit: bool,
) -> lp.TranslationUnit:
    """Convolution of an image with a square filter, ``tile_x`` by ``tile_y`` results per work-item.

    The results of a work-item lie a work-group's width and height apart and are summed in private variables: for each
    element of the filter in turn, loaded once (access tag ``filterLD``, the same for all work-items), one multiply-add
    per result (the loop over them is unrolled, that over the filter is not). The image, larger than the results by
    filter_size - 1, comes from global memory each time (``local:False``, ``inLD``), or the work-group first fetches the
    part that it needs into local memory (``local:True``, ``inTLD``). Results are stored with ``outST``. It is an
    application: it isolates no feature.

    Source: the convolution of auto-tuning studies, after van Werkhoven, Maassen, Bal and Seinstra, Optimizing
    convolution operations on GPUs using adaptive tiling (2014); block, tile and local memory as tunable there.
    """
    import loopy as lp

    lsize, tile = (lsize_0, lsize_1), (tile_x, tile_y)
    places = {role: _place(lsize, tile, role) for role in _ROLES}
    kernel = make_kernel(
        "conv2d",
        _domains(lsize, tile, filter_size, places),
        "\n".join(_body(places, dtype, local=local)),
        [
            loaded_array("image", dtype, f"ny + {filter_size - 1}, nx + {filter_size - 1}"),
            loaded_array("filter", dtype, f"{filter_size}, {filter_size}"),
            stored_array("out", dtype, "ny, nx"),
            private_array("total", dtype, (tile_y, tile_x)),
            size_parameters("nx, ny"),
        ],
        in_order=True,
    )
    kernel = lp.tag_inames(kernel, "y_group:g.1, x_group:g.0, y_item:l.1, x_item:l.0")
    kernel = lp.tag_inames(kernel, {f"t{axis}_{role}": "unr" for role in _ROLES for axis in "xy"})
    fit = f" and nx mod {lsize_0 * tile_x} = 0 and ny mod {lsize_1 * tile_y} = 0" if groups_fit else ""
    kernel = lp.prioritize_loops(lp.assume(kernel, f"nx >= 1 and ny >= 1{fit}"), "fy, fx")
    if not local:
        return kernel
    swept = ["ty_each", "tx_each", "y_item", "x_item", "fy", "fx"]
    return fetch_tile(kernel, swept)


def _body(places: Mapping[str, tuple[str, str]], dtype: str, *, local: bool) -> list[str]:
    row, column = places["each"]
    image = f"near({row} + fy, {column} + fx)" if local else f"image$inLD[{row} + fy, {column} + fx]"
    return [
        *(["near(row, col) := image$inTLD[row, col]"] if local else []),
        "for y_group, x_group, y_item, x_item",
        "for ty_first, tx_first",
        "total[ty_first, tx_first] = 0",
        "end",
        "for fy, fx",
        f"<{dtype}> weight = filter$filterLD[fy, fx]",
        "for ty_each, tx_each",
        f"total[ty_each, tx_each] = total[ty_each, tx_each] + weight*{image}",
        "end",
        "end",
        "for ty_last, tx_last",
        f"out$outST[{', '.join(places['last'])}] = total[ty_last, tx_last]",
        "end",
        "end",
    ]


def _place(lsize: tuple[int, int], tile: tuple[int, int], role: str) -> tuple[str, str]:
    """Return row and column of a result."""
    return (
        f"{lsize[1]}*({tile[1]}*y_group + ty_{role}) + y_item",
        f"{lsize[0]}*({tile[0]}*x_group + tx_{role}) + x_item",
    )


def _domains(
    lsize: tuple[int, int], tile: tuple[int, int], filter_size: int, places: Mapping[str, tuple[str, str]]
) -> list[str]:
    inside = {
        role: f"0 <= ty_{role} < {tile[1]} and 0 <= tx_{role} < {tile[0]} and {row} < ny and {column} < nx"
        for role, (row, column) in places.items()
    }
    # Work-items whose first result lies outside the image have none inside.
    items = (
        f"0 <= y_group and 0 <= x_group and 0 <= y_item < {lsize[1]} and 0 <= x_item < {lsize[0]} "
        f"and {lsize[1] * tile[1]}*y_group + y_item < ny and {lsize[0] * tile[0]}*x_group + x_item < nx"
    )
    inames = "y_group, x_group, y_item, x_item, fy, fx, ty_each, tx_each"
    return [
        f"{{[{inames}]: {items} and 0 <= fy, fx < {filter_size} and {inside['each']}}}",
        f"{{[ty_first, tx_first]: {inside['first']}}}",
        f"{{[ty_last, tx_last]: {inside['last']}}}",
    ]


def _tile_fits(arguments: Mapping[str, Any]) -> bool:
    halo = arguments["filter_size"] - 1
    rows, columns = (
        arguments[f"lsize_{axis}"] * arguments[f"tile_{name}"] + halo for axis, name in ((1, "y"), (0, "x"))
    )
    return fits_in_local_memory(rows * columns, arguments["dtype"])


_TILE = integers(1, 8)

CONV2D = Generator(
    name="conv2d",
    tags=frozenset({"conv2d", "convolution"}),
    arguments=(
        Argument(
            "filter_size",
            "int",
            "rows and columns of the filter",
            Criterion("odd integers from 1 to 31", lambda value: 1 <= value <= 31 and value % 2 == 1),
            (5,),
        ),
        Argument("tile_x", "int", "results per work-item along x", _TILE, (1, 2)),
        Argument("tile_y", "int", "results per work-item along y", _TILE, (1,)),
        Argument("local", "bool", "fetch the work-group's part of the image into local memory", (True, False)),
        GRID_DTYPE,
        LSIZE_0,
        LSIZE_1,
        FITTING_FIRST,
        *GRID_SIZES_2D,
    ),
    build=conv2d,
    size_arguments=("nx", "ny"),
    constraints=(
        GRID_2D_CONSTRAINTS[0],
        Constraint(
            "groups_fit:True needs nx to be a multiple of lsize_0 times tile_x, and ny of lsize_1 times tile_y",
            lambda a: (
                not a["groups_fit"]
                or (a["nx"] % (a["lsize_0"] * a["tile_x"]) == 0 and a["ny"] % (a["lsize_1"] * a["tile_y"]) == 0)
            ),
        ),
        Constraint(
            "local:True needs a part of the image of at most 32 KiB (lsize times tile, plus filter_size - 1)",
            lambda a: not a["local"] or _tile_fits(a),
        ),
    ),
)
CONV2D_MEM = work_removed(
    CONV2D,
    ("inLD", "inTLD", "filterLD", "outST"),
    present=lambda a: {"inTLD" if a["local"] else "inLD", "filterLD", "outST"},
    together=("inLD_filterLD", "inTLD_filterLD"),
)
