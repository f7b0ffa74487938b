"""What a kernel executes on a CPU, kind by kind, each with the instances that execute it.

What is counted is what compilers of CPU runtimes make of the source, by these rules; no binary is read:

* loads of values that are in registers already are none, by the rule of `perflex.features.scop.register_reuse`: the
  same value in one iteration, invariants of loops (triangular ones, too), and the values of unrolled loops; but where
  an access has more than 32 of the latter, it loads them again and again;
* a loop of 32 iterations at most, the same number at all sizes, is short: it may be unrolled, and counts no iterations.
  What is in loops that hold a barrier is straight code: work-items go through all between two barriers together;
* address arithmetic and guards are as in instruction counts (`perflex.features.instructions`).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from perflex.errors import UnsupportedKernelError
from perflex.features.counting.strides import stride_along
from perflex.features.instructions.addresses import address_work
from perflex.features.instructions.instructions import guard_work, only_tests
from perflex.features.instructions.nest import nests_of
from perflex.features.scop.register_reuse import remaining_by_access
from perflex.features.simd.accesses import lane_pattern, pattern_of
from perflex.features.simd.places import loops_with_barriers
from perflex.isl import ISL_LOCK, isl

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from perflex.features.instructions.nest import CountedNest
    from perflex.features.scop.scop import Operation, Scop, Statement
    from perflex.features.simd.places import Nesting


# Registers of AVX-512; other instruction sets have 16 or 32.
_REGISTERS = 32
# Operations at the beginning of a chain during which processors still execute what was before it: of the order of their
# reorder buffers, some hundred instructions, over the instructions of an iteration.
_OVERLAPPED = Fraction(32)
# Simple operations of integers take one cycle, those of floating-point numbers four (x86-64 since 2015; uops.info).
_SIMPLE_OF_INTEGERS = {"add", "bit", "shift", "min", "max", "abs"}
_SIMPLE_LATENCY = Fraction(1, 4)


@dataclass(frozen=True)
class Work:
    """Something that a CPU executes.

    Attributes
    ----------
    kind
        What it is: ``("op", operation, dtype)``, ``("load", pattern along axis 0, pattern along the innermost loop)``,
        ``("store", ...)`` likewise, ``("chain", loop, variable)``, and of one word ``private``, ``iteration``,
        ``entry``, ``address``, ``guard``, ``item`` and ``barrier``.
    times
        Executions per element of the set; negative for those of a chain's beginning, which are not waited for.
    domain
        isl set of work-groups, work-items and values of loops.
    launch
        Index of the launch.
    nesting
        Where it is (`perflex.features.simd.places`).
    itemsize
        Bytes of an element; 4 where there is none.
    """

    kind: tuple[str, ...]
    times: Fraction
    domain: Any
    launch: int
    nesting: Nesting
    itemsize: int = 4


def work_of(scop: Scop) -> tuple[Work, ...]:
    """Return all that a kernel executes."""

    def compute() -> tuple[Work, ...]:
        with ISL_LOCK:
            return tuple(_everything(scop))

    return scop.derived("simd work", (), compute)


def _everything(scop: Scop) -> Iterator[Work]:
    try:
        remaining = remaining_by_access(scop, triangular=True)
    # What is not known to be one element is not known to be the same one: it is loaded anew.
    except UnsupportedKernelError:
        remaining = {}
    for nest in nests_of(scop):
        for number in nest.paths:
            if not only_tests(scop, scop.statements[number]):
                yield from _statement(scop, nest, number, remaining)
        yield from _around(scop, nest)
    for barrier in scop.barriers:
        if barrier.kind == "local":
            yield Work(("barrier",), barrier.weight(), barrier.domain, barrier.launch, "straight")


def _statement(
    scop: Scop, nest: CountedNest, number: int, remaining: Mapping[tuple[int, int], tuple[int, int]]
) -> Iterator[Work]:
    statement = scop.statements[number]
    loops = _own_loops(scop, scop.statements[number])
    inside = _nesting(nest, number, loops)
    weight = statement.weight()
    for operation in statement.operations:
        size = _itemsize(operation.dtype)
        kind = ("op", operation.kind, operation.dtype)
        yield Work(kind, weight * operation.count, statement.domain, statement.launch, inside, size)
    if statement.recurrence is not None and inside == "loop":
        steps = sum(operation.count * _latency(operation) for operation in statement.recurrence.operations)
        loop = nest.around(number)[loops[-1] + 1]
        kind = ("chain", str(loop.path), statement.recurrence.variable)
        yield Work(kind, weight * steps, statement.domain, statement.launch, inside)
        if _is_first_update(scop, statement):
            entered = loop.iterations.project_out(isl.dim_type.set, nest.axes + loop.depth - 1, 1)
            yield Work(kind, -_OVERLAPPED * loop.weight, entered, statement.launch, inside)
    dims = statement.domain.dim(isl.dim_type.set)
    for place, access in enumerate(statement.accesses):
        array = scop.array(access.array)
        if array.space == "private":
            yield Work(("private",), weight, statement.domain, statement.launch, inside, array.itemsize)
            continue
        loads, most = remaining.get((number, place), (1, 0))
        if access.direction == "store":
            loads, most = 1, 0
        if not loads:
            continue
        still = _invariant(scop, statement, place, most)
        left = [loop for loop in loops if nest.axes + loop < dims - still]
        along = pattern_of(stride_along(scop, statement, access, nest.axes + left[-1])) if left else "uniform"
        kind = (access.direction, lane_pattern(scop, statement, access), along)
        kept, loads = (most, loads) if loads <= _REGISTERS else (still, 1)
        domain = statement.domain.project_out(isl.dim_type.set, dims - kept, kept)
        yield Work(kind, weight * loads, domain, statement.launch, _nesting(nest, number, left), array.itemsize)


def _latency(operation: Operation) -> Fraction:
    """Return for how long others wait for an operation, in times of a floating-point one."""
    simple = operation.kind in _SIMPLE_OF_INTEGERS and not operation.dtype.startswith(("float", "complex"))
    return _SIMPLE_LATENCY if simple else Fraction(1)


def _is_first_update(scop: Scop, statement: Statement) -> bool:
    """Return whether no statement before this one updates its variable in the same loops."""
    same = (
        other
        for other in scop.statements
        if other.recurrence is not None
        and statement.recurrence is not None
        and (other.launch, other.loops, other.recurrence.variable)
        == (statement.launch, statement.loops, statement.recurrence.variable)
    )
    return next(same) is statement


def _own_loops(scop: Scop, statement: Statement) -> list[int]:
    """Return the loops around a statement, by depth, that each work-item or vector runs through on its own."""
    written_out = scop.launches[statement.launch].unrolled
    # Loops that the schedule does not name are written out, too; their dimensions come last.
    first = len(scop.launches[statement.launch].groups) + len(scop.launches[statement.launch].items)
    return [
        depth
        for depth, name in enumerate(statement.loops)
        if depth >= loops_with_barriers(scop, statement)
        and name not in written_out
        and not _runs_once(statement.domain, first + depth)
    ]


def _runs_once(domain: Any, dim: int) -> bool:
    low, high = domain.dim_min_val(dim), domain.dim_max_val(dim)
    return bool(low.is_int() and high.is_int() and low.eq(high))


def _nesting(nest: CountedNest, number: int, loops: Sequence[int]) -> Nesting:
    around = nest.around(number)[1:]
    if not loops:
        return "straight"
    return "short" if all(around[depth].unrolled for depth in loops) else "loop"


def _invariant(scop: Scop, statement: Statement, place: int, most: int) -> int:
    """Return how many innermost loops an access does not depend on, of those that its value is kept over."""
    dims = statement.domain.dim(isl.dim_type.set)
    for kept in range(most):
        stride = stride_along(scop, statement, statement.accesses[place], dims - 1 - kept)
        if stride is None or not stride.is_zero:
            return kept
    return most


def _around(scop: Scop, nest: CountedNest) -> Iterator[Work]:
    """Yield what a launch executes beside its statements."""
    yield Work(("item",), Fraction(1), nest.root.iterations, nest.launch, "straight")
    for times, loop in address_work(scop, nest):
        if times:
            yield Work(("address",), times * loop.weight, loop.iterations, nest.launch, "straight")
    for test in guard_work(scop, nest):
        if test.kind == "control":
            yield Work(("guard",), test.times, test.domain, nest.launch, "straight")
    for loop in nest.loops.values():
        if not loop.unrolled:
            yield Work(("iteration",), loop.weight, loop.iterations, nest.launch, "loop")
            position = nest.axes + loop.depth - 1
            entered = loop.iterations.project_out(isl.dim_type.set, position, 1)
            yield Work(("entry",), loop.weight, entered, nest.launch, "loop")


def _itemsize(dtype: str) -> int:
    import numpy as np

    return int(np.dtype(dtype).itemsize)
