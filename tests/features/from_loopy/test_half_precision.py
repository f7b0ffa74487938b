"""Half precision: reductions and numbers are counted in it; what loopy cannot begin says how to write it."""

from __future__ import annotations

from typing import Any

import loopy as lp
import numpy as np
import pytest

from perflex.errors import UnsupportedKernelError
from perflex.features import count_features, extract_scop

HALF, FLOAT = np.float16, np.float32
SIZE = 8


def counted(body: str, *, result: Any = HALF, right: Any = HALF, tags: str = "i:l.1, j:l.0") -> dict[str, float]:
    """Return the operations of a kernel on two arrays of 8 by 8, over all work-items."""
    args = [
        lp.GlobalArg("a", HALF, shape="8,8"),
        lp.GlobalArg("b", right, shape="8,8"),
        lp.GlobalArg("c", result, shape="8,8"),
        lp.GlobalArg("e, g", np.int8, shape="8,8"),
    ]
    loops = [loop for loop in "ijkl" if loop in body.replace("float", "").replace("if", "")]
    kernel = lp.make_kernel(
        f"{{[{', '.join(loops)}]: 0 <= {', '.join(loops)} < 8}}", body, args, lang_version=(2018, 2)
    )
    kernel = lp.tag_inames(kernel, tags)
    found = count_features(extract_scop(kernel), {}, sub_group_size=1)
    return {one.identifier.removeprefix("f_op_"): one.value for one in found if one.identifier.startswith("f_op_")}


@pytest.mark.parametrize(
    ("body", "operations"),
    [
        # By hand: 8 by 8 results, of 8 steps each.
        ("c[i, j] = sum(k, a[i, k]*b[k, j])", {"float16_madd": SIZE**3}),
        ("c[i, j] = product(k, a[i, k])", {"float16_mul": SIZE**3}),
        ("c[i, j] = a[i, j] + sum(k, a[i, k]*b[k, j])", {"float16_madd": SIZE**3, "float16_add": SIZE**2}),
        ("c[i, j] = sum(k, a[i, k]*sum(l, b[k, l]))", {"float16_add": SIZE**4, "float16_madd": SIZE**3}),
        ("c[i, j] = a[i, j]*0.5 + 0.25", {"float16_madd": SIZE**2}),
        ("c[i, j] = a[i, j]*0.5 if a[i, j] > b[i, j] else 1.5", {"float16_cmp": SIZE**2, "float16_mul": SIZE**2}),
        ("c[i, j] = i/(j + 1)*a[i, j]", {"float16_add": SIZE**2, "float16_div": SIZE**2, "float16_mul": SIZE**2}),
    ],
)
def test_half_precision_is_counted_as_such(body: str, operations: dict[str, int]) -> None:
    assert counted(body) == operations


def test_the_terms_decide_the_type_of_a_reduction_not_the_result() -> None:
    body = "c[i, j] = sum(k, a[i, k]*b[k, j])"
    assert counted(body, result=FLOAT) == {"float16_madd": SIZE**3}
    assert counted(body, right=FLOAT, result=FLOAT) == {"float32_madd": SIZE**3}


def test_a_reduction_in_local_memory() -> None:
    # By hand: each of 8 work-items has one term to begin with; then the tree of 8 has 4 + 2 + 1 additions.
    assert counted("c[i, 0] = sum(k, a[i, k])", tags="k:l.0, i:g.0") == {"float16_add": SIZE * (SIZE + 7)}


@pytest.mark.parametrize(
    ("body", "message", "written", "operations"),
    [
        (
            "c[i, j] = max(k, a[i, k])",
            r"no number of type float16 to begin a max reduction.*<float16> m = x\[0\].*m = fmax\(m, x\[k\]\)",
            "<float16> m = a[i, 0] {id=m0}|m = fmax(m, a[i, k]) {id=m1,dep=m0}|c[i, j] = m {dep=m1}",
            {"float16_max": SIZE**3},
        ),
        (
            "g[i, j] = min(k, e[i, k])",
            r"no number of type int8 to begin a min reduction.*<int8> m = x\[0\].*m = x\[k\] if x\[k\] < m else m ",
            "<int8> m = e[i, 0] {id=m0}|m = e[i, k] if e[i, k] < m else m {id=m1,dep=m0}|g[i, j] = m {dep=m1}",
            {"int32_cmp": SIZE**3},
        ),
    ],
)
def test_a_maximum_that_loopy_cannot_begin_says_how_to_write_it(
    body: str, message: str, written: str, operations: dict[str, int]
) -> None:
    with pytest.raises(UnsupportedKernelError, match=message):
        counted(body)
    before, step, after = written.split("|")
    assert counted(f"for i, j\n{before}\nfor k\n{step}\nend\n{after}\nend") == operations
