"""Kernels that contradict themselves: the message names the whole cycle, and what it says resolves it."""

from __future__ import annotations

from typing import Any

import loopy as lp
import numpy as np
import pytest

from perflex.errors import UnsupportedKernelError
from perflex.features import extract_scop


def made(domain: str, body: str) -> Any:
    args = [lp.GlobalArg("a, b", np.float64, shape="n, n" if "j" in domain else "n"), lp.ValueArg("n", np.int64)]
    return lp.make_kernel(domain, body, args, lang_version=(2018, 2), assumptions="n >= 1")


def ordered(*priorities: str) -> Any:
    kernel = made("{[i, j, k]: 0 <= i, j, k < n}", "b[i, j] = b[i, j] + a[i, k]")
    for order in priorities:
        kernel = lp.prioritize_loops(kernel, order)
    return kernel


def dependent(*added: tuple[str, str]) -> Any:
    kernel = made("{[i]: 0 <= i < n}", "b[i] = 2*a[i] {id=x}\n<> t = b[i] {id=y,dep=x}\na[i] = t {id=z,dep=y}")
    for one, other in added:
        kernel = lp.add_dependency(kernel, f"id:{one}", f"id:{other}")
    return kernel


def barred() -> Any:
    return made("{[i]: 0 <= i < n}", "b[i] = 2*a[i] {id=x,dep=stop}\n... gbarrier {id=stop,dep=x}")


def clamped(dep: str) -> Any:
    # `u` reads q, which `w` writes: loopy adds the dependency where the list has no asterisk.
    body = f"""
    for e
        <> alpha = 1.0 {{id=first}}
        for i
            <> up = fmin(alpha, q[e, i]) {{id=u,dep={dep}}}
            alpha = up {{id=al,dep=u}}
        end
        for ii
            q[e, ii] = alpha*q[e, ii] {{id=w,dep=al}}
        end
    end"""
    args = [lp.GlobalArg("q", np.float64, shape="n, 3"), lp.ValueArg("n", np.int64)]
    return lp.make_kernel("{[e, i, ii]: 0 <= e < n and 0 <= i, ii < 3}", body, args, lang_version=(2018, 2))


def twice_entered() -> Any:
    body = """
    <> s = 0 {id=start}
    for i
        s = s + a[i] {id=add,dep=start}
    end
    <> t = s {id=whole,dep=add}
    for i
        b[i] = t {id=spread,dep=whole}
    end"""
    return made("{[i]: 0 <= i < n}", body)


@pytest.mark.parametrize(
    ("kernel", "cycle"),
    [
        (ordered("i, j", "j, i"), "loop 'i' around 'j', loop 'j' around 'i'"),
        (ordered("i, j", "k, i", "j, k"), "loop 'i' around 'j', loop 'j' around 'k', loop 'k' around 'i'"),
        (dependent(("x", "z")), "instruction 'x' on 'z', 'z' on 'y', 'y' on 'x'"),
        (dependent(("x", "z"), ("y", "y")), "instruction 'y' on 'y'"),
        (barred(), "instruction 'stop' on 'x', 'x' on 'stop'"),
        (clamped("first"), "instruction 'al' on 'u', 'u' on 'w', 'w' on 'al'"),
        (twice_entered(), "'whole', which is not in the loop, depends on 'add' in it, and 'spread' in it on 'whole'"),
    ],
)
def test_the_whole_cycle_is_named(kernel: Any, cycle: str) -> None:
    with pytest.raises(UnsupportedKernelError, match="cycle") as caught:
        extract_scop(kernel)
    assert cycle in str(caught.value)


def test_the_remedies_work() -> None:
    assert extract_scop(ordered("i, j", "j, k")).statements
    assert extract_scop(clamped("*first")).statements
    assert extract_scop(lp.duplicate_inames(twice_entered(), "i", "id:spread")).statements
