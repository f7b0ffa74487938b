"""A space of tiled, register-blocked matrix multiplications in loopy.

perflex calibrate matmul_incore --out matmul.yaml
perflex prune matmul.yaml examples/matmul_space.py:space n=512 --keep 5%
"""

from __future__ import annotations

import loopy as lp
import numpy as np

from perflex import VariantSpace


def matmul(*, wide: int, high: int, columns: int, rows: int, depth: int, unroll: int) -> lp.TranslationUnit:
    """Make c = a b with work-groups of wide by high work-items, each computing rows by columns elements of c.

    Tiles of a (rows high by depth) and of b (depth by columns wide) are fetched into local memory; the loop over a
    tile's depth is unrolled so many times.
    """
    element = np.dtype(np.float32)
    tall, broad = rows * high, columns * wide
    kernel = lp.make_kernel(
        [
            f"{{[group_1, group_0]: 0 <= {tall}*group_1 < n and 0 <= {broad}*group_0 < n}}",
            f"{{[item_1, item_0]: 0 <= item_1 < {high} and 0 <= item_0 < {wide}}}",
            f"{{[step]: 0 <= {depth}*step < n}}",
            f"{{[k_a, k_b]: 0 <= k_a < {depth // wide} and 0 <= k_b < {depth // high}}}",
            f"{{[k, k_more]: 0 <= k < {depth // unroll} and 0 <= k_more < {unroll}}}",
            f"{{[r_start, r_fetch, r, r_end]: 0 <= r_start, r_fetch, r, r_end < {rows}}}",
            f"{{[s_start, s_fetch, s, s_end]: 0 <= s_start, s_fetch, s, s_end < {columns}}}",
        ],
        f"""
        for group_1, group_0
            for item_1, item_0, r_start, s_start
                sums[r_start, s_start] = 0
            end
            for step
                for item_1, item_0, r_fetch, k_a
                    a_tile[{high}*r_fetch + item_1, {wide}*k_a + item_0] = \
                        a$aLD[{tall}*group_1 + {high}*r_fetch + item_1, {depth}*step + {wide}*k_a + item_0]
                end
                for item_1, item_0, k_b, s_fetch
                    b_tile[{high}*k_b + item_1, {wide}*s_fetch + item_0] = \
                        b$bLD[{depth}*step + {high}*k_b + item_1, {broad}*group_0 + {wide}*s_fetch + item_0]
                end
                for item_1, item_0, k, k_more, r, s
                    sums[r, s] = sums[r, s] + a_tile[{high}*r + item_1, {unroll}*k + k_more] \
                        * b_tile[{unroll}*k + k_more, {wide}*s + item_0]
                end
            end
            for item_1, item_0, r_end, s_end
                c$cST[{tall}*group_1 + {high}*r_end + item_1, {broad}*group_0 + {wide}*s_end + item_0] = \
                    sums[r_end, s_end]
            end
        end
        """,
        [
            lp.GlobalArg("a, b", element, shape="n, n", is_input=True, is_output=False),
            lp.GlobalArg("c", element, shape="n, n", is_input=False, is_output=True),
            lp.ValueArg("n", np.int32),
            lp.TemporaryVariable("a_tile", element, (tall, depth), address_space=lp.AddressSpace.LOCAL),
            lp.TemporaryVariable("b_tile", element, (depth, broad), address_space=lp.AddressSpace.LOCAL),
            lp.TemporaryVariable("sums", element, (rows, columns), address_space=lp.AddressSpace.PRIVATE),
        ],
        name="matmul_tiled",
        lang_version=(2018, 2),
        target=lp.PyOpenCLTarget(),
        seq_dependencies=True,
    )
    kernel = lp.assume(kernel, f"n >= 1 and n mod {tall} = 0 and n mod {broad} = 0 and n mod {depth} = 0")
    kernel = lp.tag_inames(kernel, "group_0:g.0, group_1:g.1, item_0:l.0, item_1:l.1, k_more:unr")
    return lp.tag_inames(kernel, dict.fromkeys(("r_start", "r", "r_end", "s_start", "s", "s_end"), "unr"))


space = VariantSpace(
    matmul,
    {
        "wide": (4, 8, 16, 32),
        "high": (1, 2, 4, 8, 16),
        "columns": (1, 2, 4),
        "rows": (1, 2, 4, 8),
        "depth": (16, 32),
        "unroll": (1, 4),
    },
    [
        "depth % wide == 0 and depth % high == 0",
        "8 <= wide * high <= 256",
        "rows * columns * unroll <= 32",
        "rows * high <= 64 and columns * wide <= 64",
    ],
    name="tiled matrix multiplication",
)
