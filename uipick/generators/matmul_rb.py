"""Square matrix multiplication with register blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uipick._argument import Argument
from uipick._generator import Constraint, Generator
from uipick.generators._arguments import DTYPE, GROUPS_FIT, LSIZE, MATRIX_SIZE
from uipick.generators._kernel import (
    fits_in_local_memory,
    loaded_array,
    local_array,
    make_kernel,
    private_array,
    size_parameters,
    stored_array,
)

if TYPE_CHECKING:
    import loopy as lp

# Each use of the block has loops of its own (start, fetch, copy, update, end): a loop is opened in one place.
_ROWS = ("r_start", "r_fetch", "r_copy", "r", "r_end")
_COLUMNS = ("s_start", "s_fetch", "s_copy", "s", "s_end")


def matmul_rb(*, dtype: str, rows: int, columns: int, lsize: int, groups_fit: bool) -> lp.TranslationUnit:
    """Register-blocked matrix multiplication c = a b, rows by columns elements of c per work-item.

    Work-groups of lsize by lsize work-items fetch tiles of a (rows lsize by lsize) and of b (lsize by columns lsize)
    into local memory, two barriers per tile. For each k of a tile a work-item copies rows elements of a and columns of
    b into private variables and does rows times columns multiply-adds with them, all unrolled. Its elements of c lie
    lsize apart, so that lid(0) has stride 1 everywhere in b and c. Access tags ``aLD``, ``bLD`` and ``cST``.
    Features: as of ``matmul_sq`` with prefetching, with rows times columns / (rows + columns) multiply-adds per local
    load in place of 1/2. It is an application, not a microbenchmark: it isolates none of them.

    Source: the paper's Section 8.3, with the blocking that tuned matrix multiplications add to it.
    """
    import loopy as lp

    kernel = make_kernel(
        "matmul_rb",
        _domains(rows, columns, lsize),
        _body(rows, columns, lsize),
        [
            loaded_array("a, b", dtype, "n, n"),
            stored_array("c", dtype, "n, n"),
            size_parameters("n"),
            local_array("a_tile", dtype, (rows * lsize, lsize)),
            local_array("b_tile", dtype, (lsize, columns * lsize)),
            private_array("a_own", dtype, (rows,)),
            private_array("b_own", dtype, (columns,)),
            private_array("sums", dtype, (rows, columns)),
        ],
        in_order=True,
    )
    fit = f" and n mod {rows * lsize} = 0 and n mod {columns * lsize} = 0" if groups_fit else ""
    kernel = lp.assume(kernel, f"n >= 1{fit}")
    kernel = lp.tag_inames(kernel, "group_0:g.0, group_1:g.1, item_0:l.0, item_1:l.1, k_a:l.0, k_b:l.1")
    return lp.tag_inames(kernel, dict.fromkeys((*_ROWS, *_COLUMNS), "unr"))


def _body(rows: int, columns: int, lsize: int) -> str:
    return f"""
    for group_1, group_0
        for item_1, item_0, r_start, s_start
            sums[r_start, s_start] = 0 {{id=start}}
        end
        for k_outer
            for item_1, k_a, r_fetch
                a_tile[{lsize}*r_fetch + item_1, k_a] = \
                    a$aLD[{rows * lsize}*group_1 + {lsize}*r_fetch + item_1, {lsize}*k_outer + k_a]
            end
            for k_b, item_0, s_fetch
                b_tile[k_b, {lsize}*s_fetch + item_0] = \
                    b$bLD[{lsize}*k_outer + k_b, {columns * lsize}*group_0 + {lsize}*s_fetch + item_0]
            end
            for item_1, item_0, k_inner
                for r_copy
                    a_own[r_copy] = a_tile[{lsize}*r_copy + item_1, k_inner]
                end
                for s_copy
                    b_own[s_copy] = b_tile[k_inner, {lsize}*s_copy + item_0]
                end
                for r, s
                    sums[r, s] = sums[r, s] + a_own[r] * b_own[s]
                end
            end
        end
        for item_1, item_0, r_end, s_end
            c$cST[{rows * lsize}*group_1 + {lsize}*r_end + item_1, \
                {columns * lsize}*group_0 + {lsize}*s_end + item_0] = sums[r_end, s_end]
        end
    end
    """


def _domains(rows: int, columns: int, lsize: int) -> list[str]:
    place = (
        f"{rows * lsize}*group_1 + {lsize}*{{0}} + item_1 < n",
        f"{columns * lsize}*group_0 + {lsize}*{{0}} + item_0 < n",
    )
    return [
        f"{{[group_1, group_0]: 0 <= {rows * lsize}*group_1 < n and 0 <= {columns * lsize}*group_0 < n}}",
        f"{{[item_1, item_0]: 0 <= item_1, item_0 < {lsize}}}",
        f"{{[k_outer]: 0 <= {lsize}*k_outer < n}}",
        *(f"{{[{k}]: 0 <= {k} < {lsize} and {lsize}*k_outer + {k} < n}}" for k in ("k_a", "k_b", "k_inner")),
        *(f"{{[{r}]: 0 <= {r} < {rows} and {place[0].format(r)}}}" for r in _ROWS),
        *(f"{{[{s}]: 0 <= {s} < {columns} and {place[1].format(s)}}}" for s in _COLUMNS),
    ]


MATMUL_RB = Generator(
    name="matmul_rb",
    tags=frozenset({"matmul_rb", "matmul"}),
    arguments=(
        DTYPE,
        Argument("rows", "int", "rows of c per work-item", (1, 2, 4, 8), (2, 4)),
        Argument("columns", "int", "columns of c per work-item", (1, 2, 4, 8), (2, 4)),
        LSIZE,
        GROUPS_FIT,
        MATRIX_SIZE,
    ),
    build=matmul_rb,
    size_arguments=("n",),
    constraints=(
        Constraint(
            "groups_fit:True needs n to be a multiple of rows and of columns times lsize",
            lambda a: (
                not a["groups_fit"] or (a["n"] % (a["rows"] * a["lsize"]) == 0 == a["n"] % (a["columns"] * a["lsize"]))
            ),
        ),
        Constraint(
            "the tiles must fit in 32 KiB of local memory ((rows + columns) lsize lsize elements)",
            lambda a: fits_in_local_memory((a["rows"] + a["columns"]) * a["lsize"] ** 2, a["dtype"]),
        ),
    ),
)
