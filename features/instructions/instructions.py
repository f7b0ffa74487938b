"""Warp-level and thread-level instructions of a kernel by class, symbolic in the sizes (Ding and Williams).

What is counted is what a compiler makes of the source, by these rules; no counter of a device is read:

* an arithmetic operation is one instruction of its type's class (``fp32`` with half precision, ``fp64``, ``int`` with
  truth values), also a division or a function, of which compilers make several; complex ones are several;
* an access of global or local memory is one instruction of ``ldst_global`` or ``ldst_local``, of a vector type one for
  each 16 bytes (`perflex.features.scop.vectors`), but loads of values that
  are in registers already are none, by the rule of `perflex.features.scop.register_reuse`; private arrays are
  registers;
* address arithmetic is ``int``, by the rule of `perflex.features.instructions.addresses`;
* each iteration of a loop is an addition and a comparison (``int``) and a branch (``control``), but a loop of
  32 iterations at most, the same number for all work-items and sizes, is unrolled and takes none;
* a guard is a comparison (``int``; two instructions more for a division in it) for each of its inequalities, and a
  branch (``control``), executed by all that reach it; equal and opposite guards in one loop are one. An affine
  condition is a guard, unless both of its branches are counted everywhere: ``annotate(kernel, branches="both")``;
* a barrier and the end of the kernel are one ``control`` instruction each.

A sub-group executes an instruction if any of its work-items does; that is counted exactly from the domains.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from perflex.errors import UnsupportedKernelError
from perflex.features.counting.counts import counts_of
from perflex.features.instructions.addresses import address_work
from perflex.features.instructions.nest import nests_of
from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
from perflex.features.scop.register_reuse import remaining_by_access
from perflex.features.scop.vectors import lanes_of, vector_elements
from perflex.isl import ISL_LOCK, isl

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from perflex.features.counting.counts import ScopCounts
    from perflex.features.instructions.nest import CountedLoop, CountedNest
    from perflex.features.scop.scop import Scop, Statement

INSTRUCTION_CLASSES = ("fp32", "fp64", "int", "ldst_global", "ldst_local", "control")

_CLASS_OF = {"float16": "fp32", "float32": "fp32", "complex64": "fp32", "float64": "fp64", "complex128": "fp64"}
# Real instructions: a complex product is two multiplications and two multiply-adds.
_COMPLEX = {"add": 2, "mul": 4, "madd": 4}
_COMPLEX_OTHER = 2
# A shift and a mask.
_PER_DIVISION = 2
# Place and text of tests.
_Seen = set[tuple[object, str]]


@dataclass(frozen=True)
class Executed:
    """Instructions of one class that the elements of a set execute.

    Attributes
    ----------
    kind
        One of `INSTRUCTION_CLASSES`.
    times
        Instructions per element of the set.
    domain
        isl set of (work-group, work-item, loop values); None for all work-items of the launch.
    launch
        Index of the launch.
    """

    kind: str
    times: Fraction
    domain: Any
    launch: int


def instruction_class(dtype: str) -> str:
    """Return the class of an operation on values of a type."""
    return _CLASS_OF.get(dtype, "int")


def unrolled_overhead(scop: Scop, sub_group_size: int) -> tuple[QuasiPolynomial, QuasiPolynomial]:
    """Return the instructions of addresses and counters, and the branches, of innermost loops without barriers.

    Compilers that unroll such a loop by n execute about one in n of them. Loops that are unrolled as a whole have none.
    """

    def compute() -> tuple[list[tuple[Fraction, Any, int]], list[tuple[Fraction, Any, int]]]:
        parts: list[tuple[Fraction, Any, int]] = []
        branches: list[tuple[Fraction, Any, int]] = []
        with ISL_LOCK:
            for nest in nests_of(scop):
                barriers = [one.loops for one in scop.barriers if one.launch == nest.launch]
                names = {path: scop.statements[n].loops for n, paths in nest.paths.items() for path in paths}
                outer = {path[:-1] for path in nest.loops}
                inner = {
                    path
                    for path, loop in nest.loops.items()
                    if path not in outer
                    and not loop.unrolled
                    and all(met[: loop.depth] != names[path][: loop.depth] for met in barriers)
                }
                for times, loop in address_work(scop, nest):
                    if loop.path in inner and times:
                        parts.append((times * loop.weight, loop.iterations, nest.launch))
                loops = [nest.loops[path] for path in nest.loops if path in inner]
                parts += [(2 * loop.weight, loop.iterations, nest.launch) for loop in loops]
                branches += [(loop.weight, loop.iterations, nest.launch) for loop in loops]
        return parts, branches

    counts = counts_of(scop)
    first, second = (
        QuasiPolynomial.total(
            counts.executions(domain, launch, sub_group_size) * times for times, domain, launch in found
        )
        for found in scop.derived("unrolled overhead", (), compute)
    )
    return first, second


def instructions_of(
    scop: Scop, sub_group_size: int | None, *, register_reuse: bool = True
) -> dict[str, QuasiPolynomial]:
    """Return how many instructions of each class are executed, by sub-groups or, without a size, by work-items.

    Each is a function of the sizes, summed over all launches of the kernel. Without register reuse, each access of the
    source is an instruction.
    """
    counts = counts_of(scop)
    # Each is a sum of dozens of counts, which isl takes tenths of a second to add up.
    totals = counts.cached(
        "instructions", (sub_group_size, register_reuse), lambda: _totals(scop, counts, sub_group_size, register_reuse)
    )
    return dict(zip(INSTRUCTION_CLASSES, totals, strict=True))


def _totals(
    scop: Scop, counts: ScopCounts, sub_group_size: int | None, register_reuse: bool
) -> tuple[QuasiPolynomial, ...]:
    found = {kind: QuasiPolynomial.constant(0) for kind in INSTRUCTION_CLASSES}
    for (kind, launch), parts in _merged(scop, register_reuse).items():
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


def _merged(scop: Scop, register_reuse: bool) -> dict[tuple[str, int], list[tuple[Fraction, Any]]]:
    """Return (instructions per element, set) by class and launch, each set once."""

    def compute() -> dict[tuple[str, int], list[tuple[Fraction, Any]]]:
        sums: dict[tuple[str, int], dict[str, tuple[Fraction, Any]]] = {}
        with ISL_LOCK:
            for part in _everything(scop, register_reuse):
                into = sums.setdefault((part.kind, part.launch), {})
                # Counting is the expensive step, and sets that are built alike print alike: each is counted once.
                key = str(part.domain)
                into[key] = (into.get(key, (Fraction(0), None))[0] + part.times, part.domain)
        return {key: list(parts.values()) for key, parts in sums.items()}

    return scop.derived("instructions", (register_reuse,), compute)


def _everything(scop: Scop, register_reuse: bool) -> Iterator[Executed]:
    remaining = remaining_or_all(scop) if register_reuse else {}
    for nest in nests_of(scop):
        for number in nest.paths:
            if not only_tests(scop, scop.statements[number]):
                yield from _statement(scop, number, remaining)
        for times, loop in address_work(scop, nest):
            if times:
                yield Executed("int", times * loop.weight, loop.iterations, nest.launch)
        yield from _loops(nest)
        yield from guard_work(scop, nest)
    for launch in range(len(scop.launches)):
        yield Executed("control", Fraction(1), None, launch)
    for barrier in scop.barriers:
        yield Executed("control", barrier.weight(), barrier.domain, barrier.launch)


def remaining_or_all(scop: Scop) -> Mapping[tuple[int, int], tuple[int, int]]:
    """Return what remains of accesses when values stay in registers; nothing is known of those that it lacks."""
    try:
        return remaining_by_access(scop)
    # What is not known to be one element is not known to be the same one: it is loaded anew.
    except UnsupportedKernelError:
        return {}


def _statement(scop: Scop, number: int, remaining: Mapping[tuple[int, int], tuple[int, int]]) -> Iterator[Executed]:
    statement = scop.statements[number]
    weight = statement.weight()
    vectors = vector_elements(scop)
    for operation in statement.operations:
        # The update itself is an access; an atomic is one instruction with it.
        if operation.kind == "atomic":
            continue
        each = _COMPLEX.get(operation.kind, _COMPLEX_OTHER) if operation.dtype.startswith("complex") else 1
        kind = instruction_class(operation.dtype)
        yield Executed(kind, weight * operation.count * each, statement.domain, statement.launch)
    for place, access in enumerate(statement.accesses):
        space = scop.array(access.array).space
        loads, kept = remaining.get((number, place), (1, 0))
        if space == "private" or not loads:
            continue
        elements = vectors.get((number, place), 1)
        if elements > 1:
            # One that is made for each element is one for all neighbours that it moves at once.
            loads, kept = -(-(loads if kept else lanes_of(scop, statement)) // elements), max(1, kept)
        dims = statement.domain.dim(isl.dim_type.set)
        # Loops that values are kept over are innermost: one execution for all of their iterations.
        domain = statement.domain.project_out(isl.dim_type.set, dims - kept, kept)
        yield Executed(f"ldst_{space}", weight * loads, domain, statement.launch)


def only_tests(scop: Scop, statement: Statement) -> bool:
    """Return whether a statement is but the test of a condition that the domains of its instruction's rest show.

    Such a condition is a guard, and counted as one.
    """
    if statement.accesses or any(operation.dtype in _CLASS_OF for operation in statement.operations):
        return False
    instruction = statement.name.partition(".")[0]
    others = [one for one in scop.statements if one.name.partition(".")[0] == instruction and one is not statement]
    return any(
        one.launch == statement.launch and one.domain.is_strict_subset(statement.domain)
        for one in others
        if one.schedule == statement.schedule
    )


def _loops(nest: CountedNest) -> Iterator[Executed]:
    for loop in nest.loops.values():
        if not loop.unrolled:
            yield Executed("int", 2 * loop.weight, loop.iterations, nest.launch)
            yield Executed("control", loop.weight, loop.iterations, nest.launch)


def guard_work(scop: Scop, nest: CountedNest) -> Iterator[Executed]:
    """Yield the tests of guards: of statements, and of loops that not all work-items enter."""
    seen: _Seen = set()
    yield from loop_guard_work(nest, seen)
    for number in nest.paths:
        loop = nest.around(number)[-1]
        yield from _tested(scop.statements[number].domain, loop, nest, seen)


def loop_guard_work(nest: CountedNest, seen: _Seen | None = None) -> Iterator[Executed]:
    """Yield the tests of loops that not all work-items enter, but those that were seen."""
    seen = set() if seen is None else seen
    for loop in nest.loops.values():
        position = nest.axes + loop.depth - 1
        entered = loop.iterations.project_out(isl.dim_type.set, position, 1)
        yield from _tested(entered, nest.parent(loop), nest, seen)


def _tested(inner: Any, loop: CountedLoop, nest: CountedNest, seen: _Seen) -> Iterator[Executed]:
    """Yield the test that tells who of a loop's iterations is in a set."""
    context = loop.iterations
    if context.is_subset(inner):
        return
    # What the loops around do not imply is what a compiler has to test.
    remaining = inner.coalesce().gist(context)
    if (loop.path, str(remaining)) in seen:
        return
    # Who fails the test goes the other way: no test of its own.
    opposite = context.subtract(inner).coalesce().gist(context)
    seen.update({(loop.path, str(remaining)), (loop.path, str(opposite))})
    yield Executed("int", loop.weight * comparisons(remaining), context, nest.launch)
    yield Executed("control", loop.weight, context, nest.launch)


def comparisons(guard: Any) -> int:
    """Return the instructions that test whether an instance is in a set."""
    count = 0
    for part in guard.compute_divs().get_basic_sets():
        for constraint in part.get_constraints():
            # These only bound isl's floors, and are no test.
            if constraint.is_div_constraint():
                continue
            affine = constraint.get_aff()
            divisions = sum(
                not affine.get_coefficient_val(isl.dim_type.div, place).is_zero()
                for place in range(affine.dim(isl.dim_type.div))
            )
            count += 1 + _PER_DIVISION * divisions
    return max(1, count)
