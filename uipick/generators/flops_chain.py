"""Arithmetic latency: operations that wait for one another."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from uipick._argument import Argument, integers, multiples_of
from uipick._generator import Generator
from uipick.generators._arguments import NELEMENTS, PATTERN_ARGUMENTS
from uipick.generators._kernel import size_parameters, stored_array
from uipick.generators._pattern import PATTERN_CONSTRAINTS, make_pattern_kernel

if TYPE_CHECKING:
    import loopy as lp

_UPDATES = {"add": "x{c} = x{c} + step", "madd": "x{c} = x{c} * one + step"}


def _chain(operation: str, *, dtype: str, chains: int, **pattern: int | bool) -> lp.TranslationUnit:

    # Integer sums, lest they count as floating-point arithmetic; different ones in each work-item.
    body = [f"<int32> item = l0 + {pattern['lsize_0']}*l1", "<int32> odd = 1 + item % 2", f"<{dtype}> step = odd"]
    for c in range(chains):
        body += [f"<int32> start{c} = item + {c}", f"<{dtype}> x{c} = start{c}"]
    if operation == "madd":
        # Always 1, which a compiler cannot know.
        body.append(f"<{dtype}> one = 1 if m < 1000000000 else 0")
    body += ["for k", *(_UPDATES[operation].format(c=c) for c in range(chains)), "end"]
    body.append("result$resST[{index}] = " + " + ".join(f"x{c}" for c in range(chains)))
    return make_pattern_kernel(
        f"flops_{operation}_chain",
        pattern,
        body,
        [
            stored_array("result", dtype, "nelements"),
            size_parameters("m"),
        ],
        loops=["{[k]: 0 <= k < m}"],
        assume="m >= 1",
    )


def _described(operation: str, words: str, form: str) -> Generator:
    build = partial(_chain, operation)
    build.__doc__ = f"""Latency of {words}: m loop iterations, each updating every private variable from itself.

    Each work-item repeats ``{form}`` m times for each of its ``chains`` variables, which do not depend on each other;
    with one of them every update waits for the last. The sum of the variables is stored (access tag ``resST``).
    Isolates ``f_chain_<dtype>_{operation}``, m per work-item, from ``f_op_<dtype>_{operation}``, m times ``chains``.
    Sums stay exact integers as long as m is below a million.

    Source: the paper's Section 7.1.1 names the dependence chain of work-removed kernels; this measures it.
    """
    name = f"flops_{operation}_chain"
    return Generator(
        name=name,
        tags=frozenset({name, "flops_chain"}),
        arguments=(
            *PATTERN_ARGUMENTS,
            Argument("chains", "int", "independent private variables", integers(1, 32), (1, 2)),
            NELEMENTS,
            Argument("m", "int", "loop iterations", multiples_of(1), (256, 512, 1024)),
        ),
        build=build,
        size_arguments=("nelements", "m"),
        constraints=PATTERN_CONSTRAINTS,
    )


FLOPS_ADD_CHAIN = _described("add", "additions", "x = x + step")
FLOPS_MADD_CHAIN = _described("madd", "multiply-adds", "x = x * one + step")
