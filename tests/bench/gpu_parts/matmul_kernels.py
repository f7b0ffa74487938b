"""A space of tiled matrix multiplications: settings, constraints, and the kernel of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perflex import VariantSpace

if TYPE_CHECKING:
    import loopy as lp

__all__ = ["CONSTRAINTS", "LOCAL_BYTES", "PARAMETERS", "SPACE", "build"]

PARAMETERS: dict[str, tuple[int, ...]] = {
    "lsize_0": (8, 16, 32),
    "lsize_1": (4, 8, 16, 32),
    "rows": (1, 2, 4, 8),
    "columns": (1, 2, 4, 8),
    "k_tile": (8, 16, 32),
}
LOCAL_BYTES = 48 * 1024
# Half of what NVIDIA's compute units have, for the sums: the rest is for all else.
REGISTERS = 32768
CONSTRAINTS = (
    "k_tile % lsize_0 == 0 and k_tile % lsize_1 == 0",
    "32 <= lsize_0 * lsize_1 <= 1024",
    f"rows * columns * lsize_0 * lsize_1 <= {REGISTERS}",
    f"4 * k_tile * (rows * lsize_1 + columns * lsize_0) <= {LOCAL_BYTES}",
)
_ROWS = ("r_start", "r_fetch", "r_copy", "r", "r_end")
_COLUMNS = ("s_start", "s_fetch", "s_copy", "s", "s_end")


def build(*, lsize_0: int, lsize_1: int, rows: int, columns: int, k_tile: int) -> lp.TranslationUnit:
    """Return c = a b in single precision for n by n matrices.

    A work-group of lsize_0 by lsize_1 work-items fetches tiles of a (rows lsize_1 by k_tile) and b (k_tile by columns
    lsize_0) into local memory; a work-item computes rows by columns elements of c, which lie lsize_1 and lsize_0 apart,
    in private variables. n is a multiple of every tile.
    """
    import loopy as lp
    import numpy as np

    import perflex.isl  # noqa: F401 - mends what loopy misses

    place = {"h": rows * lsize_1, "w": columns * lsize_0, "l0": lsize_0, "l1": lsize_1, "k": k_tile}
    local, private = lp.AddressSpace.LOCAL, lp.AddressSpace.PRIVATE
    kernel = lp.make_kernel(
        [
            f"{{[g1, g0]: 0 <= {place['h']}*g1 < n and 0 <= {place['w']}*g0 < n}}",
            f"{{[i1, i0]: 0 <= i1 < {lsize_1} and 0 <= i0 < {lsize_0}}}",
            f"{{[k_outer]: 0 <= {k_tile}*k_outer < n}}",
            f"{{[k_a, k_b]: 0 <= k_a < {k_tile // lsize_0} and 0 <= k_b < {k_tile // lsize_1}}}",
            f"{{[k_in]: 0 <= k_in < {k_tile}}}",
            *(f"{{[{r}]: 0 <= {r} < {rows}}}" for r in _ROWS),
            *(f"{{[{s}]: 0 <= {s} < {columns}}}" for s in _COLUMNS),
        ],
        _BODY.format(**place),
        [
            lp.GlobalArg("a, b", np.float32, shape="n, n", is_input=True, is_output=False),
            lp.GlobalArg("c", np.float32, shape="n, n", is_input=False, is_output=True),
            lp.ValueArg("n", np.int32),
            lp.TemporaryVariable("a_tile", np.float32, (rows * lsize_1, k_tile), address_space=local),
            lp.TemporaryVariable("b_tile", np.float32, (k_tile, columns * lsize_0), address_space=local),
            lp.TemporaryVariable("a_own", np.float32, (rows,), address_space=private),
            lp.TemporaryVariable("b_own", np.float32, (columns,), address_space=private),
            lp.TemporaryVariable("sums", np.float32, (rows, columns), address_space=private),
        ],
        name="matmul_tiled",
        lang_version=(2018, 2),
        target=lp.PyOpenCLTarget(),
        seq_dependencies=True,
    )
    multiples = " and ".join(f"n mod {tile} = 0" for tile in sorted({place["h"], place["w"], k_tile}))
    kernel = lp.assume(kernel, f"n >= 1 and {multiples}")
    kernel = lp.tag_inames(kernel, "g0:g.0, g1:g.1, i0:l.0, i1:l.1")
    return lp.tag_inames(kernel, dict.fromkeys((*_ROWS, *_COLUMNS, "k_a", "k_b"), "unr"))


_BODY = """
for g1, g0
    for i1, i0, r_start, s_start
        sums[r_start, s_start] = 0
    end
    for k_outer
        for i1, i0, r_fetch, k_a
            a_tile[{l1}*r_fetch + i1, {l0}*k_a + i0] = a$aLD[{h}*g1 + {l1}*r_fetch + i1, {k}*k_outer + {l0}*k_a + i0]
        end
        for i1, i0, k_b, s_fetch
            b_tile[{l1}*k_b + i1, {l0}*s_fetch + i0] = b$bLD[{k}*k_outer + {l1}*k_b + i1, {w}*g0 + {l0}*s_fetch + i0]
        end
        for i1, i0, k_in
            for r_copy
                a_own[r_copy] = a_tile[{l1}*r_copy + i1, k_in]
            end
            for s_copy
                b_own[s_copy] = b_tile[k_in, {l0}*s_copy + i0]
            end
            for r, s
                sums[r, s] = sums[r, s] + a_own[r] * b_own[s]
            end
        end
    end
    for i1, i0, r_end, s_end
        c$cST[{h}*g1 + {l1}*r_end + i1, {w}*g0 + {l0}*s_end + i0] = sums[r_end, s_end]
    end
end
"""

SPACE = VariantSpace(build, PARAMETERS, CONSTRAINTS, name="tiled matrix multiplication")
