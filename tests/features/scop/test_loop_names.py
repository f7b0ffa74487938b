"""Names that mean something else in a Scop are names like others for a user's loops."""

from __future__ import annotations

from typing import TYPE_CHECKING

import loopy as lp
import numpy as np
import pytest

from perflex.features import annotate, extract_scop, scop_from_yaml, scop_to_yaml, source_kernel
from support.every_feature import caches, everything

if TYPE_CHECKING:
    from perflex.features import Scop

SIZES = {"n": 128}
NAMES = ["lane", "lid0", "gid1", "gidx", "k_div"]


def same(one: Scop, other: Scop) -> None:
    for values in (everything, caches):
        assert dict(values(one, SIZES)) == dict(values(other, SIZES))


def looped(name: str, tag: str | None) -> Scop:
    """Sum four neighbours, in a loop of the name."""
    kernel = lp.make_kernel(
        [f"{{[i, {name}]: 0<=i<n and 0<={name}<4}}"],
        f"y[i] = y[i] + x[i, {name}] {{id=add}}",
        [
            lp.GlobalArg("x", np.float32, shape=("n", 64)),
            lp.GlobalArg("y", np.float32, shape="n"),
            lp.ValueArg("n", np.int32),
        ],
        lang_version=(2018, 2),
    )
    kernel = lp.split_iname(kernel, "i", 64, outer_tag="g.0", inner_tag="l.0")
    if tag is not None:
        kernel = lp.tag_inames(kernel, {name: tag})
    return extract_scop(lp.assume(kernel, "n mod 64 = 0 and n >= 64"))


@pytest.mark.parametrize("tag", [None, "unr", "ilp"])
@pytest.mark.parametrize("name", NAMES)
def test_loops_of_loopy_kernels(name: str, tag: str | None) -> None:
    scop = looped(name, tag)
    same(scop, looped("other", tag))
    assert scop_from_yaml(scop_to_yaml(scop)) == scop


def test_stated_trips_of_a_loop_with_such_a_name() -> None:
    def counted(name: str) -> Scop:
        kernel = lp.make_kernel(
            ["{[i]: 0<=i<n}", f"[m] -> {{[{name}]: 0<={name}<m}}"],
            f"""
            for i
                <> m = first[i]
                y[i] = sum({name}, x[i + {name}])
            end
            """,
            [
                lp.GlobalArg("x", np.float32, shape="2*n"),
                lp.GlobalArg("first", np.int32, shape="n"),
                lp.GlobalArg("y", np.float32, shape="n"),
                lp.ValueArg("n", np.int32),
            ],
            lang_version=(2018, 2),
        )
        kernel = lp.split_iname(kernel, "i", 64, outer_tag="g.0", inner_tag="l.0")
        kernel = lp.assume(kernel, "n mod 64 = 0 and n >= 64")
        return extract_scop(annotate(kernel, trip_counts={name: 2.5}))

    scop = counted("lane")
    same(scop, counted("other"))
    assert scop_from_yaml(scop_to_yaml(scop)) == scop


FILE = """
schema: perflex-scop/1
name: sums
parameters: [n]
assumptions: "[n] -> {{ : n >= 64 and n mod 64 = 0 }}"
launches:
- {{groups: ["floor(n/64)"], items: [64]}}
arrays:
- {{name: a, space: global, dtype: float32, shape: [n, n], strides: [n, 1]}}
statements:
- name: add
  domain: "[n] -> {{ [g, l, {0}] : 0 <= g and 64g < n and 0 <= l < 64 and 0 <= {0} < 4 }}"
  schedule: [0, {0}, 0]
  accesses: [{{array: a, direction: load, relation: "{{ [g, l, {0}] -> [64g + l, {0}] }}"}}]
  operations: [{{kind: add, dtype: float32}}]
"""


@pytest.mark.parametrize("name", ["lane", "gidx", "lid0_", "k_div"])
def test_loops_of_files(name: str) -> None:
    same(scop_from_yaml(FILE.format(name)), scop_from_yaml(FILE.format("k")))


SOURCE = """
kernel void sums(int n, global const float4 *x, global const float *z, global float *y) {
    int i = get_global_id(0);
    float sum = 0;
    for (int NAME = 0; NAME < 4; ++NAME)
        sum += x[4 * i + NAME].x * z[4 * i + NAME];
    y[i] = sum;
}
"""


@pytest.mark.parametrize("name", ["lane", "lid0", "gid0", "i1", "g0"])
def test_loops_of_source_code(name: str) -> None:
    texts = (SOURCE.replace("NAME", loop) for loop in (name, "k"))
    same(*(source_kernel(text, "sums", local=[64], global_size=["n"]).scop() for text in texts))


def test_loops_of_source_code_stand_in_their_order() -> None:
    """Also with more than nine of them, where names are no order."""
    loops = "\n".join(f"    for (int k = 0; k < n; ++k)\n        y[k + {number}] += 1;" for number in range(12))
    text = f"kernel void many(int n, global float *y) {{\n{loops}\n}}\n"
    scop = source_kernel(text, "many", local=[1], global_size=[1]).scop()
    places = [statement.schedule[0] for statement in scop.statements]
    assert places == list(range(places[0], places[0] + 12))
