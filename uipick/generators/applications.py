"""Applications: convolution, gravitation, transposition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uipick import _loopy as lp
from uipick._generator import Argument, Constraint, Criterion
from uipick.generators import _arguments as arg
from uipick.generators._arrays import loaded_array, local_array, private_array, size_parameters, stored_array
from uipick.generators._declared import declared, work_removed
from uipick.generators._kernel import fetch_tile, make_kernel

if TYPE_CHECKING:
    from collections.abc import Mapping


# Loops over a work-item's outputs; one pair of inames each, as loopy enters a loop once.
_ROLES = ("first", "each", "last")


def conv2d(
    *, filter_size: int, tile_x: int, tile_y: int, local: bool, dtype: str, lsize_0: int, lsize_1: int, assume: str
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
    lsize, tile = (lsize_0, lsize_1), (tile_x, tile_y)
    places = {role: _place(lsize, tile, role) for role in _ROLES}
    kernel = make_kernel(
        "conv2d",
        _domains(lsize, tile, filter_size, places),
        _body(places, dtype, local=local),
        [
            loaded_array("image", dtype, f"ny + {filter_size - 1}, nx + {filter_size - 1}"),
            loaded_array("filter", dtype, f"{filter_size}, {filter_size}"),
            stored_array("out", dtype, "ny, nx"),
            private_array("total", dtype, (tile_y, tile_x)),
            size_parameters("nx, ny"),
        ],
        assume=assume,
        in_order=True,
    )
    kernel = lp.tag_inames(kernel, "y_group:g.1, x_group:g.0, y_item:l.1, x_item:l.0")
    kernel = lp.tag_inames(kernel, {f"t{axis}_{role}": "unr" for role in _ROLES for axis in "xy"})
    kernel = lp.prioritize_loops(kernel, "fy, fx")
    return fetch_tile(kernel, ["ty_each", "tx_each", "y_item", "x_item", "fy", "fx"]) if local else kernel


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


_ODD = Criterion("odd integers from 1 to 31", lambda value: 1 <= value <= 31 and value % 2 == 1)
CONV2D = declared(
    conv2d,
    "convolution",
    (
        Argument("filter_size", "int", "rows and columns of the filter", _ODD, (5,)),
        arg.within("tile_x", "results per work-item along x", 1, 8, 1, 2),
        arg.within("tile_y", "results per work-item along y", 1, 8, 1),
        arg.choice("local", "fetch the work-group's part of the image into local memory", (True, False)),
        arg.GRID_DTYPE,
        *arg.GRID_2D_ARGUMENTS,
    ),
    arg.GRID_SIZES_2D,
    arg.WORK_GROUP_LIMIT,
    arg.in_local_memory("(lsize_0*tile_x + filter_size - 1) * (lsize_1*tile_y + filter_size - 1)", "local:True"),
    fits="nx % (lsize_0 * tile_x), ny % (lsize_1 * tile_y)",
)
CONV2D_MEM = work_removed(
    CONV2D,
    ("inLD", "inTLD", "filterLD", "outST"),
    present=lambda a: {"inTLD" if a["local"] else "inLD", "filterLD", "outST"},
    together=("inLD_filterLD", "inTLD_filterLD"),
)


_SOFTENING = 0.0625  # Its square is added to squared distances, which keeps a body's pull on itself finite.
_AXES = "xyz"


def nbody(*, dtype: str, prefetch: bool, lsize_0: int, assume: str) -> lp.TranslationUnit:
    """Accelerations of n bodies by the gravitation of all of them, one body per work-item.

    ``body[0:3]`` are coordinates and ``body[3]`` masses, ``acc[:, i] = sum(j, m_j d / (|d|^2 + s^2)^1.5)`` with
    d from i to j and the softening length s = 0.0625. With ``prefetch:True`` the bodies j are fetched into local memory
    in tiles of lsize_0, one each per work-item, two barriers per tile; with ``prefetch:False`` all work-items load the
    same body j. Access tags ``ownLD`` (the work-item's own coordinates), ``bodyLD`` (the bodies j) and ``accST``.
    Features: additions, multiplications, multiply-adds and one rsqrt per pair, loads of the pattern chosen; mostly
    arithmetic, but an application, which isolates none of them.

    Source: Nyland, Harris and Prins, Fast N-Body Simulation with CUDA (GPU Gems 3, 2007, chapter 31).
    """
    place, tile = f"{lsize_0}*group + item", f"{lsize_0}*tile + in_tile"
    source = "tile_body[{axis}, in_tile]" if prefetch else f"body$bodyLD[{{axis}}, {tile}]"
    own = [f"<{dtype}> own_{x} = body$ownLD[{axis}, {place}]" for axis, x in enumerate(_AXES)]
    start = [f"<{dtype}> sum_{x} = 0 {{id=start_{x}}}" for x in _AXES]
    fetch = [f"tile_body[{axis}, fetch] = body$bodyLD[{axis}, {lsize_0}*tile + fetch]" for axis in range(4)]
    pair = [
        *(f"<{dtype}> d_{x} = {source.format(axis=axis)} - own_{x}" for axis, x in enumerate(_AXES)),
        f"<{dtype}> inverse = rsqrt(d_x * d_x + d_y * d_y + d_z * d_z + {_SOFTENING**2})",
        f"<{dtype}> pull = {source.format(axis=3)} * inverse * inverse * inverse",
        *(f"sum_{x} = sum_{x} + pull * d_{x}" for x in _AXES),
    ]
    store = [f"acc$accST[{axis}, {place}] = sum_{x}" for axis, x in enumerate(_AXES)]
    lines = ["for group", "for item", *own, *start, "end", "for tile"]
    lines += ["for fetch", *fetch, "end"] if prefetch else []
    lines += ["for item, in_tile", *pair, "end", "end", "for item", *store, "end", "end"]
    data = [loaded_array("body", dtype, "4, n"), stored_array("acc", dtype, "3, n"), size_parameters("n")]
    domains = [
        f"{{[group]: 0 <= {lsize_0}*group < n}}",
        f"{{[item]: 0 <= item < {lsize_0} and {place} < n}}",
        f"{{[tile]: 0 <= {lsize_0}*tile < n}}",
        f"{{[in_tile]: 0 <= in_tile < {lsize_0} and {tile} < n}}",
    ]
    if prefetch:
        domains.append(f"{{[fetch]: 0 <= fetch < {lsize_0} and {lsize_0}*tile + fetch < n}}")
        data.append(local_array("tile_body", dtype, (4, lsize_0)))
    kernel = make_kernel("nbody", domains, lines, data, assume=assume, in_order=True)
    return lp.tag_inames(kernel, {"group": "g.0", "item": "l.0"} | ({"fetch": "l.0"} if prefetch else {}))


NBODY = declared(
    nbody,
    "",
    (
        arg.DTYPE,
        arg.choice("prefetch", "fetch tiles of bodies into local memory", (True, False)),
        *arg.VECTOR_ARGUMENTS,
    ),
    (arg.positive("n", "bodies", 2048, 4096, 6144, 8192),),
    fits="n % lsize_0",
)


_NAIVE = "out$outST[{lsize}*group_0 + item_0, {lsize}*group_1 + item_1] = {load} {{id=move}}"
_TILED = """
    tile[item_1, item_0] = {load} {{id=fetch}}
    out$outST[{lsize}*group_0 + row, {lsize}*group_1 + column] = tile[column, row] {{id=move, dep=fetch}}
"""


def transpose(*, dtype: str, variant: str, lsize: int, rows: int, assume: str) -> lp.TranslationUnit:
    """Transposition of an n by n matrix, out[j, i] = a[i, j], in three variants.

    Work-groups of lsize by lsize/rows work-items move lsize by lsize elements, ``rows`` elements each, lsize/rows rows
    apart.

    All load a with lid(0) stride 1 (access tag ``aLD``). ``naive`` stores with lid(0) stride n (``outST``). ``tiled``
    takes the way through a tile of lsize by lsize elements in local memory, so that the store has stride 1, too, and
    reads the tile with lid(0) stride lsize, which makes work-items compete for the same memory bank; ``padded`` does
    as ``tiled``, with rows of the tile lsize + 1 elements apart. The stores are told apart by strides,
    ``f_mem_access_tag:outST_lstrides:{0:1}`` and ``{0:n}``. Features: global loads and stores, local loads and
    stores by stride, one barrier; an application, which isolates none of them.

    Source: Ruetsch and Micikevicius, Optimizing Matrix Transpose in CUDA (2009); named in the paper's Section 7.1.
    """
    load = f"a$aLD[{lsize}*group_1 + item_1, {lsize}*group_0 + item_0]"
    body = (_NAIVE if variant == "naive" else _TILED).format(lsize=lsize, load=load)
    data = [loaded_array("a", dtype, "n, n"), stored_array("out", dtype, "n, n"), size_parameters("n")]
    domains = [
        f"{{[group_1, group_0]: 0 <= {lsize}*group_1 < n and 0 <= {lsize}*group_0 < n}}",
        _places("item_1", "item_0", lsize, rows_of="group_1"),
    ]
    inames = {"group_0": "g.0", "group_1": "g.1", "item_0": "l.0", "item_1": "l.1"}
    if variant != "naive":
        shape = (lsize, lsize + (variant == "padded"))
        data.append(local_array("tile", dtype, shape))
        domains.append(_places("row", "column", lsize, rows_of="group_0"))
        inames |= {"row": "l.1", "column": "l.0"}
    kernel = make_kernel("transpose", domains, body, data, assume=assume)
    kernel = lp.tag_inames(kernel, {name: tag for name, tag in inames.items() if rows == 1 or tag != "l.1"})
    if rows > 1:
        for iname in [name for name, tag in inames.items() if tag == "l.1"]:
            kernel = lp.split_iname(kernel, iname, lsize // rows, inner_tag="l.1")
    return kernel


def _places(row: str, column: str, lsize: int, *, rows_of: str) -> str:
    columns_of = "group_0" if rows_of == "group_1" else "group_1"
    return (
        f"{{[{row}, {column}]: 0 <= {row}, {column} < {lsize} and {lsize}*{rows_of} + {row} < n "
        f"and {lsize}*{columns_of} + {column} < n}}"
    )


TRANSPOSE = declared(
    transpose,
    "",
    (
        arg.DTYPE,
        arg.choice("variant", "the way through local memory, if any", ("naive", "tiled", "padded")),
        arg.LSIZE,
        arg.choice("rows", "elements per work-item, which divides lsize", (1, 2, 4, 8), 1),
        arg.GROUPS_FIT,
    ),
    (arg.MATRIX_SIZE,),
    Constraint("lsize % rows == 0"),
    fits="n % lsize",
)
