"""What a CPU executes, by vectors of work-items and one by one: ``f_simd_<what>_<width>[_<nesting>]``.

What each of them counts is said in `docs/reference/features.md`, with why they are counted apart.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from perflex.features.counting.chains import chains_of, sequential_loops
from perflex.features.counting.loop_tree import address_work, nests_of
from perflex.features.counting.scop_counts import counts_of
from perflex.features.counting.touched import stride_along
from perflex.features.families.feature import Family, any_of, counted_of_all
from perflex.features.instructions.instruction_counts import guard_work, remaining_or_all
from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
from perflex.features.scop.address_maps import host_loops, loops_with_barriers
from perflex.features.scop.register_reuse import MadeByAccess, made_of
from perflex.features.scop.words import NATIVE, numpy_name
from perflex.isl import ISL_LOCK, isl

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from perflex.features.counting.chains import Chains
    from perflex.features.counting.loop_tree import CountedNest
    from perflex.features.families.feature import Sizes
    from perflex.features.scop.scop import Access, Launch, Operation, Scop, Statement
    from perflex.features.target import Target

# "broadcast": one element for all; "contiguous": neighbours touch neighbours; "hidden": likewise, but compilers cannot
# tell; "gather": anything else, also a scatter.
Pattern = Literal["broadcast", "contiguous", "hidden", "gather"]


def pattern_of(stride: QuasiPolynomial | None) -> Pattern:
    """Return the pattern of accesses that lie so many elements apart; None where that varies."""
    if stride is None:
        return "gather"
    if stride.is_zero:
        return "broadcast"
    return "contiguous" if not stride.parameters and int(stride.evaluate({})) == 1 else "gather"


def lane_pattern(scop: Scop, statement: Statement, access: Access) -> Pattern:
    """Return the pattern along axis 0 of the work-items, as a vectorising compiler sees it.

    A subscript such as ``18*lid(1) + lid(0)`` is a sum of work-item indices alone, which compilers compute with 64 bits
    and cut to 32: LLVM no longer sees that neighbours are next to each other, and gathers them. Where the size of the
    array comes in, or a factor is a power of two, it does see it (build log of Intel's runtime).
    """
    launch = scop.launches[statement.launch]
    if not launch.items:
        return "broadcast"
    first = len(launch.groups)
    found = pattern_of(stride_along(scop, statement, access, first))
    if found != "contiguous":
        return found
    return "hidden" if access.hidden else "gather" if _is_cut(scop, statement, access, first) else found


def _is_cut(scop: Scop, statement: Statement, access: Access, first: int) -> bool:
    """Return whether a subscript is a sum of indices without sizes, none of which has a power of two as factor."""
    # This rule and its exceptions come from the build log of Intel's runtime alone, which names gathers. No other
    # compiler says so much; that of PoCL may do otherwise.
    loops = first + len(scop.launches[statement.launch].items)
    others = False
    for dim in range(access.relation.dim(isl.dim_type.in_)):
        stride = stride_along(scop, statement, access, dim)
        if dim == first:
            continue
        if stride is None or stride.parameters:
            return False
        factor = abs(int(stride.evaluate({})))
        if factor > 1 and factor & (factor - 1) == 0:
            return False
        if factor and dim >= loops and not _counts_with_64_bits(scop, statement, access, dim, first):
            return False
        others = others or factor > 0
    return others


def _counts_with_64_bits(scop: Scop, statement: Statement, access: Access, loop: int, first: int) -> bool:
    """Return whether another access of the statement subscripts with a loop's counter, and not with the work-item."""
    for other in statement.accesses:
        if other is not access and scop.array(other.array).space != "private":
            moved, lane = (stride_along(scop, statement, other, dim) for dim in (loop, first))
            if (moved is None or not moved.is_zero) and lane is not None and lane.is_zero:
                return True
    return False


# "vector": in whole vectors of work-items along axis 0; "scalar": work-items that fill no vector, one at a time.
Width = Literal["vector", "scalar"]
# "straight": in no sequential loop but such as the source writes out or that hold a barrier; "unrolled": in loops of
# few iterations, known to the compiler, that it may unroll or not; "loop": the rest.
Nesting = Literal["straight", "unrolled", "loop"]
WIDTHS: tuple[Width, ...] = ("vector", "scalar")
NESTINGS: tuple[Nesting, ...] = ("straight", "unrolled", "loop")


def _executing(domain: Any, launch: Launch, width: Width, lanes: int) -> Any | None:
    """Return the vectors, or the work-items that fill none, which execute a set of instances; None if there are none.

    The set is over the launch's work-groups, work-items and any number of loops. Of vectors of so many lanes, the
    work-item's index along axis 0 is replaced by the vector's: a vector executes what any of its work-items does.
    """
    groups = len(launch.groups)
    # Whole vectors that the work-items along axis 0 fill.
    vectors = launch.items[0] // lanes if launch.items else 0
    if width == "vector":
        if not vectors:
            return None
        inside = domain.upper_bound_val(isl.dim_type.set, groups, isl.Val(vectors * lanes - 1))
        return inside.apply(_vector_map(groups, inside.dim(isl.dim_type.set), lanes))
    if not launch.items:
        return domain
    if launch.items[0] == vectors * lanes:
        return None
    return domain.lower_bound_val(isl.dim_type.set, groups, isl.Val(vectors * lanes))


@lru_cache(maxsize=1024)
def _vector_map(groups: int, dims: int, lanes: int) -> Any:
    names = [f"i{position}" for position in range(dims)]
    images = [f"floor({name}/{lanes})" if place == groups else name for place, name in enumerate(names)]
    return isl.Map(f"{{ [{', '.join(names)}] -> [{', '.join(images)}] }}")


# Bytes of a lane of a register; wider elements take several registers.
_LANE_BYTES = 4
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
    """Something that a CPU executes."""

    names: tuple[str, ...]  # identifiers of what counts it in vectors, and one by one
    # executions per element of the set; negative for those of a chain's beginning, which are not waited for
    times: Fraction
    domain: Any  # isl set of work-groups, work-items and values of loops
    launch: int  # index of the launch
    registers: int = 1  # what one execution by a vector counts; 0 for each of its elements
    chain: tuple[str, str] = ("", "")  # loop and variable of a chain: those of several variables run beside each other


def work_of(scop: Scop) -> tuple[Work, ...]:
    """Return all that a kernel executes."""

    def compute() -> tuple[Work, ...]:
        with ISL_LOCK:
            return tuple(_everything(scop))

    return scop.derived("simd work", (), compute)


def _everything(scop: Scop) -> Iterator[Work]:
    remaining, updates = remaining_or_all(scop, triangular=True), chains_of(scop, barriers_end_them=False)
    for nest in nests_of(scop):
        for number in nest.paths:
            loops = _own_loops(scop, scop.statements[number])
            yield from _operations(scop, nest, number, loops, updates)
            yield from _accesses(scop, nest, number, loops, remaining)
        yield from _around(scop, nest)
    for barrier in scop.barriers:
        if barrier.kind == "local":
            yield Work(_names("barrier"), scop.weight(barrier), barrier.domain, barrier.launch)


def _names(what: str, *nesting: Nesting) -> tuple[str, ...]:
    return tuple("_".join(["f_simd", what, width, *nesting]) for width in WIDTHS)


def _operations(scop: Scop, nest: CountedNest, number: int, loops: list[int], updates: Chains) -> Iterator[Work]:
    statement = scop.statements[number]
    inside, weight = _nesting(nest, number, loops), scop.weight(statement)
    for operation in statement.operations:
        names = _names(_operation_class(operation.kind, operation.dtype), inside)
        registers = _registers(np.dtype(numpy_name(operation.dtype)).itemsize)
        yield Work(names, weight * operation.count, statement.domain, statement.launch, registers)
    variable = "" if statement.recurrence is None else statement.recurrence.variable
    mine = updates.get((nest.launch, sequential_loops(scop, statement)), {}).get(variable, [])
    if statement.recurrence is not None and inside == "loop" and any(one is statement for one in mine):
        steps = sum(operation.count * _latency(operation) for operation in statement.recurrence.operations)
        loop = nest.around(number)[loops[-1] + 1]
        names, chain = _names("chain"), (f"{nest.launch} {loop.number}", variable)
        yield Work(names, weight * steps, statement.domain, nest.launch, chain=chain)
        if mine[0] is statement:
            yield Work(names, -_OVERLAPPED * loop.weight, nest.entries(loop), nest.launch, chain=chain)
        if _stays_in_memory(scop, statement, nest.axes + loops[-1]):
            yield Work(_names("forward"), weight, statement.domain, nest.launch, chain=chain)


def _stays_in_memory(scop: Scop, statement: Statement, loop: int) -> bool:
    """Return whether each iteration stores what it updates: no register keeps what other accesses may touch."""
    updated = statement.recurrence.variable.partition("[")[0] if statement.recurrence else ""
    stored = next((one for one in statement.accesses if one.direction == "store" and one.array == updated), None)
    if stored is None or scop.array(updated).space != "global":
        return False
    own, path = scop.array(updated), statement.loops
    for other in scop.statements:
        for access in other.accesses if (other.launch, other.loops[: len(path)]) == (statement.launch, path) else ():
            array = scop.array(access.array)
            if array is own:
                stride = stride_along(scop, other, access, loop)
                if stride is None or not stride.is_zero:
                    return True
            elif array.space == "global" and array.dtype == own.dtype and not (array.restrict or own.restrict):
                return True
    return False


def _accesses(scop: Scop, nest: CountedNest, number: int, loops: list[int], remaining: MadeByAccess) -> Iterator[Work]:
    statement = scop.statements[number]
    weight = scop.weight(statement)
    dims = statement.domain.dim(isl.dim_type.set)
    for place, access in enumerate(statement.accesses):
        array = scop.array(access.array)
        if array.space == "private":
            yield Work(_names("private"), weight, statement.domain, statement.launch, _registers(array.itemsize))
            continue
        found = made_of({} if access.direction == "store" else remaining, scop, number, place)
        # Copies of a load differ in where they are made.
        most = found[0].loops
        if not any(one.times for one in found):
            continue
        still = _invariant(scop, statement, place, most)
        left = [loop for loop in loops if nest.axes + loop < dims - still]
        along = pattern_of(stride_along(scop, statement, access, nest.axes + left[-1])) if left else "broadcast"
        lane, inside = lane_pattern(scop, statement, access), _nesting(nest, number, left)
        single = access.direction if inside == "straight" else _access_class(access.direction, along, "scalar")
        names = (
            f"f_simd_{_access_class(access.direction, lane, 'vector')}_vector_{inside}",
            f"f_simd_{single}_scalar_{inside}",
        )
        # A store of all lanes to one element is one.
        registers = {"contiguous": _registers(array.itemsize), "broadcast": 1}.get(lane, 0)
        for one in found:
            made = one if one.times <= _REGISTERS else replace(one, times=1, loops=still)
            if made.times:
                yield Work(names, weight * made.times, made.executions, statement.launch, registers)


def _access_class(direction: str, pattern: Pattern, width: Width) -> str:
    if pattern == "gather" and direction == "store":
        return "store_scatter"
    # One element again and again stays in a register, or is a store like others.
    single = pattern == "broadcast" and (width == "scalar" or direction == "store")
    return f"{direction}_contiguous" if single else f"{direction}_{pattern}"


def _registers(itemsize: int) -> int:
    return max(1, itemsize // _LANE_BYTES)


def _latency(operation: Operation) -> Fraction:
    """Return for how long others wait for an operation, in times of a floating-point one."""
    simple = operation.kind in _SIMPLE_OF_INTEGERS and not operation.dtype.startswith(("float", "complex"))
    return _SIMPLE_LATENCY if simple else Fraction(1)


def _own_loops(scop: Scop, statement: Statement) -> list[int]:
    """Return the loops of the program around a statement, by depth, that each work-item or vector runs on its own."""
    first, host = scop.launches[statement.launch].axes, host_loops(scop, statement)
    return [
        depth - host
        for depth, loop in enumerate(scop.loops_of(statement))
        if depth >= loops_with_barriers(scop, statement)
        and loop.kind == "loop"
        and not _runs_once(statement.domain, first + depth)
    ]


def _runs_once(domain: Any, dim: int) -> bool:
    low, high = domain.dim_min_val(dim), domain.dim_max_val(dim)
    return bool(low.is_int() and high.is_int() and low.eq(high))


def _nesting(nest: CountedNest, number: int, loops: Sequence[int]) -> Nesting:
    around = nest.around(number)[1:]
    if not loops:
        return "straight"
    return "unrolled" if all(around[depth].unrolled for depth in loops) else "loop"


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
    yield Work(_names("item"), Fraction(1), nest.root.iterations, nest.launch)
    for times, loop in address_work(scop, nest):
        if times:
            yield Work(_names("address"), times * loop.weight, loop.iterations, nest.launch)
    for test in guard_work(scop, nest):
        if test.kind == "control":
            yield Work(_names("guard"), test.times, test.domain, nest.launch)
    for loop in nest.loops.values():
        if not loop.unrolled:
            yield Work(_names("iteration"), loop.weight, loop.iterations, nest.launch)
            yield Work(_names("entry"), loop.weight, nest.entries(loop), nest.launch)


_FUNCTIONS = {
    **dict.fromkeys(("exp", "exp2", "exp10", "expm1"), "exp"),
    **dict.fromkeys(("log", "log2", "log10", "log1p"), "log"),
    **dict.fromkeys(("sin", "cos", "tan", "sinpi", "cospi"), "sin"),
    **{name: name for name in ("div", "sqrt", "rsqrt", "tanh", "pow")},
}
# CPUs have the same instructions for native functions, or libraries that are as fast.
_FUNCTIONS |= {f"native_{name}": _FUNCTIONS[name] for name in NATIVE}
_SIMPLE = {
    *("add", "mul", "madd", "fma", "min", "max", "abs", "cmp", "floor", "ceil", "round", "trunc", "sign", "conj"),
    *("atomic", "swap", "convert", "shuffle", "vote"),
}
_CLASSES = ("arith", "int", "idiv", *dict.fromkeys(_FUNCTIONS.values()), "call")
_PATTERNS = ("load_contiguous", "load_gather", "store_contiguous", "store_scatter")
_NAMED_ACCESSES: dict[tuple[Width, Nesting], tuple[str, ...]] = {
    **{("vector", nesting): ("load_broadcast", "load_hidden", "store_hidden", *_PATTERNS) for nesting in NESTINGS},
    ("scalar", "straight"): ("load", "store"),
    ("scalar", "unrolled"): _PATTERNS,
    ("scalar", "loop"): _PATTERNS,
}
_PLAIN = ("private", "chain", "forward", "iteration", "entry", "address", "guard", "item", "barrier")
IDENTIFIERS = (
    *(
        f"f_simd_{what}_{width}_{nesting}"
        for (width, nesting), accesses in _NAMED_ACCESSES.items()
        for what in (*_CLASSES, *accesses)
    ),
    *(name for what in _PLAIN for name in _names(what)),
)


def _operation_class(kind: str, dtype: str) -> str:
    if np.dtype(numpy_name(dtype)).kind in "iub":
        return "idiv" if kind in {"div", "floordiv", "mod"} else "int"
    return "arith" if kind in _SIMPLE else _FUNCTIONS.get(kind, "call")


def _unit(name: str) -> str:
    if re.search("_(gather|scatter|hidden)_vector", name):
        return "element"
    return "vector operation" if "_vector" in name else "work-item operation"


def _value(scop: Scop, sizes: Sizes, target: Target, name: str) -> Any:
    total: Any = 0.0
    for variables in _terms(scop, target.sub_group_size).get(name, {}).values():
        # Chains of several variables in one loop run beside each other; other work has one variable.
        each = [np.asarray(QuasiPolynomial.total(parts).evaluate(sizes), dtype=float) for parts in variables.values()]
        total = total + np.maximum(0.0, np.max(np.broadcast_arrays(*each), axis=0))
    return total if np.ndim(total) else float(total)


def _inventory(scop: Scop) -> list[str]:
    """Return the features that the kernel has where vectors are narrow enough, and where they are not."""
    found = {name for work in work_of(scop) for name in work.names}
    return [name for name in IDENTIFIERS if name in found]


def _terms(scop: Scop, lanes: int) -> dict[str, dict[str, dict[str, list[QuasiPolynomial]]]]:
    """Return counts by identifier, then by loop and variable for chains."""

    def compute() -> dict[str, dict[str, dict[str, list[QuasiPolynomial]]]]:
        found: Any = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
        for work in work_of(scop):
            for width, name in zip(WIDTHS, work.names, strict=True):
                with ISL_LOCK:
                    domain = _executing(work.domain, scop.launches[work.launch], width, lanes)
                if domain is None:
                    continue
                count = counts_of(scop).executions(domain, work.launch, None)
                if not count.is_zero:
                    each = 1 if width == "scalar" else work.registers or lanes
                    loop, variable = work.chain
                    found[name][loop][variable].append(count * (work.times * each))
        counts_of(scop).keep()
        return {name: {loop: dict(each) for loop, each in loops.items()} for name, loops in found.items()}

    return scop.derived("simd terms", lanes, compute)


SIMD = Family(
    "Work of one kind, in vectors of work-items or one by one, at one place of the loops",
    any_of(IDENTIFIERS),
    _unit,
    _value,
    examples=IDENTIFIERS,
    inventory=_inventory,
    remarks=counted_of_all,
    cost=lambda name: "overhead" if name.startswith(("f_simd_item_", "f_simd_barrier_")) else "on-chip",
)
