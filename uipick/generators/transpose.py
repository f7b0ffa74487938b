"""Matrix transposition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uipick._argument import Argument
from uipick._generator import Constraint, Generator
from uipick.generators._arguments import DTYPE, GROUPS_FIT, LSIZE, MATRIX_SIZE
from uipick.generators._kernel import loaded_array, local_array, make_kernel, size_parameters, stored_array

if TYPE_CHECKING:
    import loopy as lp

_NAIVE = "out$outST[{lsize}*group_0 + item_0, {lsize}*group_1 + item_1] = {load} {{id=move}}"
_TILED = """
    tile[item_1, item_0] = {load} {{id=fetch}}
    out$outST[{lsize}*group_0 + row, {lsize}*group_1 + column] = tile[column, row] {{id=move, dep=fetch}}
"""


def transpose(*, dtype: str, variant: str, lsize: int, rows: int, groups_fit: bool) -> lp.TranslationUnit:
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
    import loopy as lp

    load = f"a$aLD[{lsize}*group_1 + item_1, {lsize}*group_0 + item_0]"
    body = (_NAIVE if variant == "naive" else _TILED).format(lsize=lsize, load=load)
    data = [
        loaded_array("a", dtype, "n, n"),
        stored_array("out", dtype, "n, n"),
        size_parameters("n"),
    ]
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
    kernel = make_kernel("transpose", domains, body, data)
    fit = f" and n mod {lsize} = 0" if groups_fit else ""
    kernel = lp.assume(kernel, f"n >= 1{fit}")
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


TRANSPOSE = Generator(
    name="transpose",
    tags=frozenset({"transpose"}),
    arguments=(
        DTYPE,
        Argument("variant", "str", "the way through local memory, if any", ("naive", "tiled", "padded")),
        LSIZE,
        Argument("rows", "int", "elements per work-item, which divides lsize", (1, 2, 4, 8), (1,)),
        GROUPS_FIT,
        MATRIX_SIZE,
    ),
    build=transpose,
    size_arguments=("n",),
    constraints=(
        Constraint(
            "groups_fit:True needs n to be a multiple of lsize",
            lambda a: not a["groups_fit"] or a["n"] % a["lsize"] == 0,
        ),
        Constraint("lsize must be a multiple of rows", lambda a: a["lsize"] % a["rows"] == 0),
    ),
)
