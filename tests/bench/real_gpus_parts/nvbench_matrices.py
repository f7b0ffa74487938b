"""The products of matrices and vectors of the nvbench data, of unsigned integers; size: `n`."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from .nvbench_writing import U32, loaded, local, make, scalar, stored

if TYPE_CHECKING:
    import loopy as lp


def _matrices() -> list[Any]:
    return [loaded("a", U32, "n,n"), loaded("b", U32, "n,n"), stored("c", U32, "n,n")]


@cache
def matmul_naive(b: int) -> lp.TranslationUnit:
    """Product of matrices, an element per work-item, nothing staged."""
    row, column = f"{b}*gy+ly", f"{b}*gx+lx"
    return make(
        "matmul_naive",
        [f"{{[gx,gy,lx,ly]: 0<=lx,ly<{b} and 0<=gx,gy and {column}<n and {row}<n}}", "{[k]: 0<=k<n}"],
        f"""
        acc = 0 {{id=init}}
        for k
            acc = acc + a[{row}, k]*b[k, {column}] {{id=add}}
        end
        c[{row}, {column}] = acc {{id=write}}
        """,
        [*_matrices(), scalar("acc", U32)],
    )


@cache
def matmul_tiled(b: int) -> lp.TranslationUnit:
    """Product of matrices by square tiles in local memory."""
    row, column = f"{b}*gy+ly", f"{b}*gx+lx"
    return make(
        "matmul_tiled",
        [
            f"{{[gx,gy,lx,ly]: 0<=lx,ly<{b} and 0<=gx,gy and {b}*gx<n and {b}*gy<n}}",
            f"{{[ph]: 0<=ph and {b}*ph<n}}",
            f"{{[k]: 0<=k<{b}}}",
        ],
        f"""
        acc = 0 {{id=init}}
        for ph
            a_tile[ly, lx] = a[{row}, {b}*ph+lx] if {row} < n and {b}*ph+lx < n else 0 {{id=load_a}}
            b_tile[ly, lx] = b[{b}*ph+ly, {column}] if {b}*ph+ly < n and {column} < n else 0 {{id=load_b}}
            ... lbarrier
            for k
                acc = acc + a_tile[ly, k]*b_tile[k, lx] {{id=add}}
            end
            ... lbarrier
        end
        if {row} < n and {column} < n
            c[{row}, {column}] = acc {{id=write}}
        end
        """,
        [*_matrices(), scalar("acc", U32), local("a_tile", U32, b, b), local("b_tile", U32, b, b)],
    )


@cache
def matmul_tiled_double(b: int) -> lp.TranslationUnit:
    """Product of matrices, two columns per work-item, from a grid four times as wide as the matrix.

    The second half of the tile of the right matrix begins b elements after the first one, but its rows are b elements
    apart as well: rows overlap, and results are wrong. Work-groups beyond the matrix do all but load from the right one
    and store.
    """
    row, column = f"{b}*gy+ly", f"{2 * b}*gx+lx"
    source = f"b[{b}*ph+ly, {column}"
    inside = f"{b}*ph+ly < n and {column}"
    second = f"{source}+{b}] if {inside}+{b} < n else 0 {{id=load_second, nosync=load_first@local}}"
    return make(
        "matmul_tiled_double",
        [
            f"{{[gx,gy,lx,ly]: 0<=lx,ly<{b} and 0<=gx,gy and {b // 2}*gx<n and {b}*gy<n}}",
            f"{{[ph]: 0<=ph and {b}*ph<n}}",
            f"{{[k]: 0<=k<{b}}}",
        ],
        f"""
        first = 0 {{id=init_first}}
        second = 0 {{id=init_second}}
        for ph
            a_tile[ly, lx] = a[{row}, {b}*ph+lx] if {row} < n and {b}*ph+lx < n else 0 {{id=load_a}}
            b_tile[{b}*ly+lx] = {source}] if {inside} < n else 0 {{id=load_first}}
            b_tile[{b}*ly+lx+{b}] = {second}
            ... lbarrier
            for k
                first = first + a_tile[ly, k]*b_tile[{b}*k+lx] {{id=add_first}}
                second = second + a_tile[ly, k]*b_tile[{b}*k+lx+{b}] {{id=add_second}}
            end
            ... lbarrier
        end
        if {row} < n and {column} < n
            c[{row}, {column}] = first {{id=write_first}}
        end
        if {row} < n and {column}+{b} < n
            c[{row}, {column}+{b}] = second {{id=write_second}}
        end
        """,
        [
            *_matrices(),
            *(scalar(name, U32) for name in ("first", "second")),
            local("a_tile", U32, b, b),
            local("b_tile", U32, 2 * b * b),
        ],
    )


@cache
def matvec_naive(b: int) -> lp.TranslationUnit:
    """Product of a matrix and a vector, a row per work-item."""
    i = f"{b}*gx+lx"
    return make(
        "matvec_naive",
        [f"{{[gx,lx]: 0<=lx<{b} and 0<=gx and {i}<n}}", "{[k]: 0<=k<n}"],
        f"""
        acc = 0 {{id=init}}
        for k
            acc = acc + a[{i}, k]*x[k] {{id=add}}
        end
        y[{i}] = acc {{id=write}}
        """,
        [loaded("a", U32, "n,n"), loaded("x", U32, "n"), stored("y", U32, "n"), scalar("acc", U32)],
    )


@cache
def matvec_shared(b: int) -> lp.TranslationUnit:
    """Product of a matrix and a vector, a row per work-item, parts of the vector staged in local memory."""
    i = f"{b}*gx+lx"
    return make(
        "matvec_shared",
        [
            f"{{[gx,lx]: 0<=lx<{b} and 0<=gx and {b}*gx<n}}",
            f"{{[ph]: 0<=ph and {b}*ph<n}}",
            f"[n,ph] -> {{[k]: 0<=k<{b} and {b}*ph+k<n}}",
        ],
        f"""
        acc = 0 {{id=init}}
        for ph
            part[lx] = x[{b}*ph+lx] if {b}*ph+lx < n else 0 {{id=load}}
            ... lbarrier
            for k
                if {i} < n
                    acc = acc + a[{i}, {b}*ph+k]*part[k] {{id=add}}
                end
            end
            ... lbarrier
        end
        y[{i}] = acc {{id=write}}
        """,
        [
            loaded("a", U32, "n,n"),
            loaded("x", U32, "n"),
            stored("y", U32, f"{b}*((n+{b - 1})//{b})"),
            scalar("acc", U32),
            local("part", U32, b),
        ],
    )
