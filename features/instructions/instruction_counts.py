"""Warp-level and thread-level instructions of a kernel by class, symbolic in the sizes (Ding and Williams).

What is counted is what a compiler makes of the source, by these rules; no counter of a device is read:

* an arithmetic operation is one instruction of its type's class (``fp32`` with half precision, ``fp64``, ``int`` with
  truth values), also a division or a function, of which compilers make several; complex ones are several;
* an access of global or local memory is one instruction of ``ldst_global`` or ``ldst_local``, of a vector type one for
  each 16 bytes (`vector_elements`), but loads of values that are in registers already are none, by the rule of
  `perflex.features.scop.register_reuse`, and loads of neighbours in local memory are one for up to 16 bytes, by that of
  `perflex.features.scop.wide_loads`; private arrays are registers, but those that
  `perflex.features.counting.private_memory` finds in memory;
* what lies in constant memory is an operand of the instruction that uses it where its address is known when the code is
  made; else, as in a loop that is not unrolled, it is loaded (``ldst_constant``);
* address arithmetic is ``int``, by the rule of `perflex.features.counting.loop_tree`;
* each iteration of a loop is an addition and a comparison (``int``) and a branch (``control``), but a loop of
  32 iterations at most, the same number for all work-items and sizes, is unrolled and takes none;
* a guard is a comparison (``int``; two instructions more for a division in it) for each of its inequalities, and a
  branch (``control``), executed by all that reach it; equal and opposite guards in one loop are one;
* a barrier and the end of the kernel are one ``control`` instruction each.

A sub-group executes an instruction if any of its work-items does; that is counted exactly from the domains.

Compilers leave fewer tests of guards (`spared_tests`): they test conditions that are joined by "and" one by one, and
move what does not depend on a loop before it (loop-invariant code motion and unswitching: Muchnick, Advanced Compiler
Design and Implementation, 1997, chapters 13 and 18).
And they make several instructions of divisions and functions (`perflex.features.instructions.operation_slots`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from perflex.errors import UnsupportedKernelError
from perflex.features.counting.loop_tree import CountedLoop, CountedNest, address_work, moves, nests_of
from perflex.features.counting.private_memory import arrays_in_memory
from perflex.features.counting.scop_counts import ScopCounts, counts_of
from perflex.features.instructions.operation_slots import EXCHANGES
from perflex.features.polynomials.affine import read_affine
from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
from perflex.features.scop.address_maps import vector_elements
from perflex.features.scop.register_reuse import Made, MadeByAccess, made_of, remaining_by_access
from perflex.features.scop.scop import Scop
from perflex.features.scop.wide_loads import wide_loads
from perflex.features.scop.words import UPDATES
from perflex.isl import ISL_LOCK, isl

INSTRUCTION_CLASSES = (
    "fp32", "fp64", "int", "ldst_global", "ldst_local", "ldst_constant", "ldst_private", "control",
)  # fmt: skip

_CLASS_OF = {
    **dict.fromkeys(("float16", "bfloat16", "float32", "complex64"), "fp32"),
    **dict.fromkeys(("float64", "complex128"), "fp64"),
}
# Real instructions: a complex product is two multiplications and two multiply-adds.
_COMPLEX = {"add": 2, "mul": 4, "madd": 4}
_COMPLEX_OTHER = 2
# A shift and a mask.
_PER_DIVISION = 2
# Place and text of tests.
_Seen = set[tuple[object, str]]


@dataclass(frozen=True)
class Executed:
    """Instructions of one class that the elements of a set execute."""

    kind: str  # one of `INSTRUCTION_CLASSES`
    times: Fraction  # instructions per element of the set
    domain: Any  # isl set of (work-group, work-item, loop values); None for all work-items of the launch
    launch: int  # index of the launch


def instruction_class(dtype: str, kind: str = "") -> str:
    """Return the class of an operation on values of a type; what only moves values counts with those of integers."""
    return "int" if kind in EXCHANGES else _CLASS_OF.get(dtype, "int")


def unrolled_overhead(scop: Scop, sub_group_size: int) -> tuple[QuasiPolynomial, QuasiPolynomial]:
    """Return instructions of addresses and counters, and branches, of innermost loops; unrolled by n, one in n runs."""

    def compute() -> list[Executed]:
        with ISL_LOCK:
            return [one for nest in nests_of(scop) for one in _overhead(scop, nest)]

    return _integers_and_branches(scop, scop.derived("unrolled overhead", (), compute), sub_group_size)


def _overhead(scop: Scop, nest: CountedNest) -> Iterator[Executed]:
    outer = {loop.parent for loop in nest.loops.values()}
    outer |= {loop for one in scop.barriers if one.launch == nest.launch for loop in one.loops}
    inner = {number: loop for number, loop in nest.loops.items() if number not in outer and not loop.unrolled}
    for times, loop in address_work(scop, nest):
        if loop.number in inner and times:
            yield Executed("int", times * loop.weight, loop.iterations, nest.launch)
    yield from _counters(nest, inner.values())


def _integers_and_branches(
    scop: Scop, parts: Iterable[Executed], sub_group_size: int
) -> tuple[QuasiPolynomial, QuasiPolynomial]:
    counts = counts_of(scop)
    integers, branches = (
        QuasiPolynomial.total(
            counts.executions(one.domain, one.launch, sub_group_size) * one.times for one in parts if one.kind == kind
        )
        for kind in ("int", "control")
    )
    return integers, branches


def instructions_of(scop: Scop, sub_group_size: int | None) -> dict[str, QuasiPolynomial]:
    """Return how many instructions of each class are executed, by sub-groups or, without a size, by work-items.

    Each is a function of the sizes, summed over all launches of the kernel. Without register reuse, each access of the
    source is an instruction.
    """
    counts = counts_of(scop)
    # Each is a sum of dozens of counts, which isl takes tenths of a second to add up.
    totals = counts.cached("instructions", (sub_group_size,), lambda: _totals(scop, counts, sub_group_size))
    return dict(zip(INSTRUCTION_CLASSES, totals, strict=True))


def _totals(scop: Scop, counts: ScopCounts, sub_group_size: int | None) -> tuple[QuasiPolynomial, ...]:
    found = {kind: QuasiPolynomial.constant(0) for kind in INSTRUCTION_CLASSES}
    for (kind, launch), parts in _merged(scop).items():
        for times, domain in parts:
            if domain is None:
                size = scop.launches[launch].group_size
                # The last sub-group issues the instruction even if it is partly filled.
                each = size if sub_group_size is None else -(-size // sub_group_size)
                number = counts.group_count(launch) * each
            else:
                number = counts.executions(domain, launch, sub_group_size)
            found[kind] = found[kind] + number * times
    return tuple(found[kind] for kind in INSTRUCTION_CLASSES)


def _merged(scop: Scop) -> dict[tuple[str, int], list[tuple[Fraction, Any]]]:
    """Return (instructions per element, set) by class and launch, each set once."""

    def compute() -> dict[tuple[str, int], list[tuple[Fraction, Any]]]:
        sums: dict[tuple[str, int], dict[str, tuple[Fraction, Any]]] = {}
        with ISL_LOCK:
            for part in _everything(scop):
                into = sums.setdefault((part.kind, part.launch), {})
                # Counting is the expensive step, and sets that are built alike print alike: each is counted once.
                key = str(part.domain)
                into[key] = (into.get(key, (Fraction(0), None))[0] + part.times, part.domain)
        return {key: list(parts.values()) for key, parts in sums.items()}

    return scop.derived("instructions", (), compute)


def _everything(scop: Scop) -> Iterator[Executed]:
    made = _memory_instructions(scop)
    for nest in nests_of(scop):
        for number in nest.paths:
            yield from _statement(scop, number, nest, made)
        for times, loop in address_work(scop, nest):
            if times:
                yield Executed("int", times * loop.weight, loop.iterations, nest.launch)
        yield from _counters(nest, (loop for loop in nest.loops.values() if not loop.unrolled))
    yield from _guards(scop)
    for launch in range(len(scop.launches)):
        yield Executed("control", Fraction(1), None, launch)
    for barrier in scop.barriers:
        yield Executed("control", scop.weight(barrier), barrier.domain, barrier.launch)


def remaining_or_all(scop: Scop, *, triangular: bool = False) -> MadeByAccess:
    """Return what remains of accesses when values stay in registers; nothing is known of those that it lacks."""
    try:
        return remaining_by_access(scop, triangular=triangular)
    # What is not known to be one element is not known to be the same one: it is loaded anew.
    except UnsupportedKernelError:
        return {}


def _memory_instructions(scop: Scop) -> MadeByAccess:
    """Return the instructions of accesses; each of the others is one."""
    made = dict(remaining_or_all(scop))
    for key, elements in vector_elements(scop).items():
        lanes = scop.statements[key[0]].lanes
        made[key] = tuple(_in_vectors(one, elements, lanes) for one in made_of(made, scop, *key))
    with suppress(UnsupportedKernelError):
        made.update(wide_loads(scop))
    return made


def _in_vectors(one: Made, elements: int, lanes: int) -> Made:
    # One that is made for each element is one for all neighbours that it moves at once.
    if one.loops or not one.times:
        return replace(one, times=-(-one.times // elements))
    return Made(-(-lanes // elements), 1, one.domain)


def _statement(scop: Scop, number: int, nest: CountedNest, made: MadeByAccess) -> Iterator[Executed]:
    statement = scop.statements[number]
    weight = scop.weight(statement)
    for operation in statement.operations:
        # The update itself is an access; an atomic is one instruction with it.
        if operation.kind in UPDATES:
            continue
        each = _COMPLEX.get(operation.kind, _COMPLEX_OTHER) if operation.dtype.startswith("complex") else 1
        kind = instruction_class(operation.dtype, operation.kind)
        yield Executed(kind, weight * operation.count * each, statement.domain, statement.launch)
    for place, access in enumerate(statement.accesses):
        array = scop.array(access.array)
        operand = array.space == "constant" and not moves(scop, access, nest, number)
        in_register = array.space == "private" and access.array not in arrays_in_memory(scop)
        if in_register or operand:
            continue
        for one in made_of(made, scop, number, place):
            if one.times:
                yield Executed(f"ldst_{array.memory}", weight * one.times, one.executions, statement.launch)


def _counters(nest: CountedNest, loops: Iterable[CountedLoop]) -> Iterator[Executed]:
    for loop in loops:
        yield Executed("int", 2 * loop.weight, loop.iterations, nest.launch)
        yield Executed("control", loop.weight, loop.iterations, nest.launch)


def guard_work(scop: Scop, nest: CountedNest) -> Iterator[Executed]:
    """Yield the tests of guards: of statements, and of loops that not all work-items enter."""
    seen: _Seen = set()
    yield from _loop_guards(nest, seen)
    for number in _guarded_alike(scop, nest):
        loop = nest.around(number)[-1]
        yield from _tested(scop.statements[number].domain, loop, nest, seen)


def _guards(scop: Scop) -> list[Executed]:
    return scop.derived("guards", (), lambda: [one for nest in nests_of(scop) for one in guard_work(scop, nest)])


def _guarded_alike(scop: Scop, nest: CountedNest) -> Iterable[int]:
    """Return the first statement of each domain in each loop: the tests of others are seen already."""
    first: dict[object, int] = {}
    for number, path in nest.paths.items():
        first.setdefault((path, scop.statements[number].isl_text), number)
    return first.values()


def _loop_guards(nest: CountedNest, seen: _Seen) -> Iterator[Executed]:
    """Yield the tests of loops that not all work-items enter, but those that were seen."""
    for loop in nest.loops.values():
        yield from _tested(nest.entries(loop), nest.parent(loop), nest, seen)


def _tested(inner: Any, loop: CountedLoop, nest: CountedNest, seen: _Seen) -> Iterator[Executed]:
    """Yield the test that tells who of a loop's iterations is in a set."""
    context = loop.iterations
    if context.is_subset(inner):
        return
    # What the loops around do not imply is what a compiler has to test.
    remaining = inner.coalesce().gist(context)
    if (loop.number, str(remaining)) in seen:
        return
    # Who fails the test goes the other way: no test of its own.
    opposite = context.subtract(inner).coalesce().gist(context)
    seen.update({(loop.number, str(remaining)), (loop.number, str(opposite))})
    yield Executed("int", loop.weight * _comparisons(remaining), context, nest.launch)
    yield Executed("control", loop.weight, context, nest.launch)


def _comparisons(guard: Any) -> int:
    """Return the instructions that test whether an instance is in a set."""
    count = 0
    for part in guard.compute_divs().get_basic_sets():
        for constraint in part.get_constraints():
            # These only bound isl's floors, and are no test.
            if constraint.is_div_constraint():
                continue
            count += 1 + _PER_DIVISION * len(read_affine(constraint.get_aff()).floors)
    return max(1, count)


def spared_tests(scop: Scop, sub_group_size: int) -> tuple[QuasiPolynomial, QuasiPolynomial]:
    """Return by how many comparisons, and branches, the rule of instruction counts exceeds what compilers leave."""

    def compute() -> list[Executed]:
        with ISL_LOCK:
            nests = nests_of(scop)
            everywhere = _guards(scop)
            left = [one for nest in nests for one in _tests(scop, nest)]
        return [*everywhere, *(replace(one, times=-one.times) for one in left)]

    return _integers_and_branches(scop, scop.derived("spared tests", (), compute), sub_group_size)


def _tests(scop: Scop, nest: CountedNest) -> Iterator[Executed]:
    """Yield the tests that remain, each in its loop."""
    yield from _loop_guards(nest, set())
    seen: _Seen = set()
    for number in _guarded_alike(scop, nest):
        statement = scop.statements[number]
        around = nest.around(number)
        if not around[-1].iterations.is_subset(statement.domain):
            remaining = statement.domain.coalesce().gist(around[-1].iterations)
            for loop, part in _by_loop(remaining, around, nest.axes):
                yield from _tested(part, loop, nest, seen)


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
