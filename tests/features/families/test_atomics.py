"""Steps of atomic updates: work-items of a sub-group that meet in one element take turns."""

from __future__ import annotations

from collections import Counter

import loopy as lp
import numpy as np
import pytest

from perflex.features import Scop, Target, extract_scop, parse_feature, scop_from_yaml

N = 128


def updates(row: str, column: str, items: tuple[int, int] = (32, 2)) -> Scop:
    """Return a kernel in which work-item (i, j) of each of n/items[0] work-groups adds to an element of h."""
    target = f"h[{row}, {column}]"
    kernel = lp.make_kernel(
        f"{{[i, j]: 0<=i<n and 0<=j<{items[1]}}}",
        f"{target} = {target} + x[i, j] {{atomic}}",
        [
            lp.GlobalArg("x", np.int32, shape=("n", items[1])),
            lp.GlobalArg("h", np.int32, shape=("n", 64), for_atomic=True),
            lp.ValueArg("n", np.int32),
        ],
        target=lp.PyOpenCLTarget(),
        lang_version=(2018, 2),
        silenced_warnings=["write_race*"],
    )
    kernel = lp.assume(kernel, f"n mod {items[0]} = 0 and n >= {items[0]}")
    kernel = lp.split_iname(kernel, "i", items[0], outer_tag="g.0", inner_tag="l.0")
    return extract_scop(lp.tag_inames(kernel, {"j": "l.1"}))


def steps(scop: Scop, space: str = "global", size: int = 32) -> float:
    return float(parse_feature(f"f_atomic_{space}").value(scop, {"n": N}, Target(size)))


@pytest.mark.parametrize("items", [(32, 2), (8, 8)])
@pytest.mark.parametrize("row", ["0", "i"])
@pytest.mark.parametrize("column", ["0", "2*j + 5"])
def test_steps_equal_enumeration(row: str, column: str, items: tuple[int, int]) -> None:
    scop = updates(row, column, items)
    for size in (1, 8, 32):
        expected = 0
        for group in range(N // items[0]):
            for first in range(0, items[0] * items[1], size):
                places = [(group * items[0] + k % items[0], k // items[0]) for k in range(first, first + size)]
                elements = [(i if row == "i" else 0, j if "j" in column else 0) for i, j in places]
                expected += max(Counter(elements).values())
        assert steps(scop, size=size) == expected


LOCAL = """
schema: perflex-scop/1
name: shared_counter
parameters: [n]
assumptions: "[n] -> { : n >= 1 }"
launches: [{groups: ["floor((n+63)/64)"], items: [8, 8]}]
arrays: [{name: part, space: local, dtype: uint32, shape: [1], strides: [1]}]
statements:
- name: count
  domain: "[n] -> { [g, l0, l1] : 0 <= g and 64g < n and 0 <= l0, l1 < 8 and 64g + 8l1 + l0 < n }"
  schedule: [0]
  accesses: [{array: part, direction: store, relation: "[n] -> { [g, l0, l1] -> [0] }"}]
  operations: [{kind: atomic, dtype: uint32}]
"""


def test_local_updates_are_counted_apart_and_guards_hold() -> None:
    scop = scop_from_yaml(LOCAL)
    assert steps(scop) == 0
    assert steps(scop, "local") == N
    odd = parse_feature("f_atomic_local").value(scop, {"n": np.array([1, 70, 128])}, Target(32))
    assert list(odd) == [1, 70, 128]
