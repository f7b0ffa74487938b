"""Tests of guards as compilers make them: each condition once in the outermost loop on whose iterations it depends.

The rule of `perflex.features.instructions.instructions` tests all of a guard wherever the guarded statement stands, and
each of several conditions together with those before it. Optimising compilers test conditions that are joined by "and"
one by one, and move what does not depend on a loop before it (loop-invariant code motion and unswitching: Muchnick,
Advanced Compiler Design and Implementation, 1997, chapters 13 and 18).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from perflex.features.counting.counts import counts_of
from perflex.features.instructions.instructions import Executed, comparisons, guard_work, loop_guard_work, only_tests
from perflex.features.instructions.nest import nests_of
from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
from perflex.isl import ISL_LOCK, isl

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perflex.features.instructions.nest import CountedLoop, CountedNest
    from perflex.features.scop.scop import Scop


def spared_tests(scop: Scop, sub_group_size: int) -> tuple[QuasiPolynomial, QuasiPolynomial]:
    """Return by how many comparisons, and branches, the rule of instruction counts exceeds what compilers leave."""

    def compute() -> list[Executed]:
        with ISL_LOCK:
            nests = nests_of(scop)
            everywhere = [one for nest in nests for one in guard_work(scop, nest)]
            left = [one for nest in nests for one in _tests(scop, nest)]
        return [*everywhere, *(replace(one, times=-one.times) for one in left)]

    counts = counts_of(scop)
    tests = scop.derived("spared tests", (), compute)
    comparisons_spared, branches = (
        QuasiPolynomial.total(
            counts.executions(one.domain, one.launch, sub_group_size) * one.times for one in tests if one.kind == kind
        )
        for kind in ("int", "control")
    )
    return comparisons_spared, branches


def _tests(scop: Scop, nest: CountedNest) -> Iterator[Executed]:
    """Yield the tests that remain, each in its loop."""
    yield from loop_guard_work(nest)
    seen: set[tuple[object, str]] = set()
    for number in nest.paths:
        statement = scop.statements[number]
        # The tests of all of its conditions are those of the statement that they guard.
        if only_tests(scop, statement):
            continue
        around = nest.around(number)
        if around[-1].iterations.is_subset(statement.domain):
            continue
        remaining = statement.domain.coalesce().gist(around[-1].iterations)
        for loop, part in _by_loop(remaining, around, nest.axes):
            context = loop.iterations
            if context.is_subset(part):
                continue
            left = part.gist(context)
            if (loop.path, str(left)) in seen:
                continue
            # Who fails the test goes the other way: no test of its own.
            opposite = context.subtract(part).coalesce().gist(context)
            seen.update({(loop.path, str(left)), (loop.path, str(opposite))})
            yield Executed("int", loop.weight * comparisons(left), context, nest.launch)
            yield Executed("control", loop.weight, context, nest.launch)


def _by_loop(guard: Any, around: list[CountedLoop], axes: int) -> Iterator[tuple[CountedLoop, Any]]:
    """Yield the conditions of a guard by the innermost loop that they depend on; all of them together by an "or"."""
    pieces = guard.compute_divs().get_basic_sets()
    if len(pieces) != 1 or pieces[0].dim(isl.dim_type.div):
        yield around[-1], guard
        return
    size = guard.dim(isl.dim_type.set)
    by_depth: dict[int, Any] = {}
    for constraint in pieces[0].get_constraints():
        used = [
            place + 1 for place in range(size - axes) if constraint.involves_dims(isl.dim_type.set, axes + place, 1)
        ]
        depth = max(used, default=0)
        known = by_depth.get(depth)
        whole = isl.BasicSet.universe(guard.get_space()) if known is None else known
        by_depth[depth] = whole.add_constraint(constraint)
    for depth, part in sorted(by_depth.items()):
        inner = size - axes - depth
        yield around[depth], isl.Set.from_basic_set(part).project_out(isl.dim_type.set, axes + depth, inner)
