"""Tests of guards in loops, counted by hand: each condition once in the outermost loop that it depends on."""

from __future__ import annotations

import loopy as lp
import numpy as np

from perflex.features import extract_scop
from perflex.features.instructions.instruction_counts import instructions_of, spared_tests

GROUPS, SUB_GROUPS = 4, 2
"""64 work-items per group: two sub-groups each."""


def spared(body: str, domain: str = "{[g,l,k]: 0<=g<4 and 0<=l<64 and 0<=k<n}", **sizes: int) -> tuple[float, float]:
    """Return comparisons and branches that are spared, per sub-group of 32 work-items."""
    kernel = lp.make_kernel(
        domain,
        body,
        [lp.GlobalArg("x,y", np.float32, shape=("p",)), lp.ValueArg("n,m,p", np.int32)],
        lang_version=(2018, 2),
    )
    scop = extract_scop(lp.tag_inames(kernel, {"g": "g.0", "l": "l.0"}))
    comparisons, branches = spared_tests(scop, 32)
    values = {name: {"p": 1 << 20, **sizes}[name] for name in scop.parameters}
    number = GROUPS * SUB_GROUPS
    return float(comparisons.evaluate(values)) / number, float(branches.evaluate(values)) / number


def test_a_condition_on_work_items_alone_is_tested_before_the_loop() -> None:
    body = """
    for k
        if l < m
            y[64*g+l] = y[64*g+l] + x[k] {id=add}
        end
    end
    """
    # Tested in 100 iterations by both sub-groups; 1 test instead.
    assert spared(body, n=100, m=40) == (99, 99)


def test_no_kernel_is_left_with_fewer_than_no_tests() -> None:
    kernel = lp.make_kernel(
        "{[g,l,k]: 0<=g<4 and 0<=l<64 and 0<=k<n}",
        "y[64*g+l] = sum(k, x[k])",
        [lp.GlobalArg("x,y", np.float32, shape=lp.auto), lp.ValueArg("n", np.int32)],
        lang_version=(2018, 2),
    )
    scop = extract_scop(lp.tag_inames(kernel, {"g": "g.0", "l": "l.0"}))
    comparisons, branches = (float(one.evaluate({"n": 100})) for one in spared_tests(scop, 32))
    counted = {kind: float(one.evaluate({"n": 100})) for kind, one in instructions_of(scop, 32).items()}
    assert 0 <= comparisons <= counted["int"]
    assert 0 <= branches <= counted["control"]
