"""Arithmetic: operations per sub-group (paper Sections 5 and 6.1.2) and per work-item, chains, and instructions."""

from __future__ import annotations

import re
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.errors import UnknownFeatureError, UnsupportedKernelError
from perflex.features.counting.chains import chained_operations, chains_of, outer_loops
from perflex.features.counting.scop_counts import counts_of
from perflex.features.counting.touched import Certainty, certainty_of_all, certainty_of_statement
from perflex.features.families.feature import Amount, Family, Remarks, any_of, counted_of_all
from perflex.features.instructions.instruction_counts import INSTRUCTION_CLASSES, instruction_class, instructions_of
from perflex.features.instructions.operation_slots import flops_of
from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
from perflex.features.scop.address_maps import loops_with_barriers
from perflex.features.scop.scop import Operation
from perflex.features.scop.words import OPERATIONS as KINDS
from perflex.features.scop.words import read_operation

if TYPE_CHECKING:
    from perflex.features.counting.scop_counts import AccessCounts
    from perflex.features.families.feature import Sizes
    from perflex.features.scop.scop import Scop, Statement
    from perflex.features.target import Target


def _total(scop: Scop, _sizes: Any, target: Target, what: tuple[str, str]) -> QuasiPolynomial:
    return counts_of(scop).operation_total(what[1], what[0], target.sub_group_size)


def _remarks(scop: Scop, sizes: Any, target: Target, what: tuple[str, str]) -> Remarks:
    certainty = counts_of(scop).operation_certainty.get((what[1], what[0]), Certainty())
    return Remarks(str(_total(scop, sizes, target, what)), certainty)


def _covers(what: tuple[str, str], part: AccessCounts | Operation, _sizes: Sizes) -> bool | None:
    # A model with one feature of a type means to count all operations of the type.
    return part.kind == what[1] if isinstance(part, Operation) and part.dtype == what[0] else None


OPERATIONS = Family(
    "Executed operations of one kind and type, counted once per sub-group",
    "f_op_.*",
    "sub-group operation",
    count=_total,
    examples=tuple(f"f_op_{dtype}_{kind}" for dtype in ("float32", "float64", "int32") for kind in KINDS),
    read=lambda match: read_operation(match[0]),
    inventory=lambda scop: sorted({f"f_op_{op.dtype}_{op.kind}" for one in scop.statements for op in one.operations}),
    amount=lambda _scop, _sizes, target, _what: Amount(float(target.sub_group_size), "op"),
    remarks=_remarks,
    covers=_covers,
    cost="on-chip",
)

_FLOPS = ("f_flop_float32", "f_flop_float64")


def _flops(scop: Scop, dtype: str) -> QuasiPolynomial:
    counts = counts_of(scop)
    kinds = {(op.kind, op.dtype): flops_of(op.kind, op.dtype) for one in scop.statements for op in one.operations}
    return QuasiPolynomial.total(
        counts.operation_total(*kind, None) * flops[dtype] for kind, flops in kinds.items() if dtype in flops
    )


def _inventory_of_flops(scop: Scop) -> list[str]:
    try:
        return [name for name in _FLOPS if not _flops(scop, name.removeprefix("f_flop_")).is_zero]
    # What a function is made of is not known: it has no such count.
    except UnsupportedKernelError:
        return []


FLOPS = Family(
    "Floating-point operations of one type, as counters of GPUs count them: a multiply-add is two, a function many",
    "f_flop_(float32|float64)",
    "operation",
    count=lambda scop, _sizes, _target, dtype: _flops(scop, dtype),
    examples=_FLOPS,
    inventory=_inventory_of_flops,
    amount=lambda *_: Amount(1.0, "op"),
    remarks=lambda scop, _sizes, _target, dtype: Remarks(str(_flops(scop, dtype)), certainty_of_all(scop)),
    covers=lambda dtype, part, _: True if isinstance(part, Operation) and part.dtype == dtype else None,
    cost="on-chip",
)


def _read_chain(match: re.Match[str]) -> tuple[str, str, int]:
    name, found, after = match[1].partition("_after:")
    if found and not re.fullmatch(r"[0-9]{1,9}", after):
        msg = f"feature {match[0]!r}: the field after must be a number of operations, e.g. _after:48"
        raise UnknownFeatureError(msg, feature=match[0])
    return *read_operation(f"f_op_{name}"), int(after or 0)


def _longest(scop: Scop, sizes: Sizes, target: Target, what: tuple[str, str, int]) -> Any:
    total: Any = 0
    for variables in chains_of(scop).values():
        lengths = [_lengths(scop, statements, sizes, target.sub_group_size, *what) for statements in variables.values()]
        longest, matching = lengths[0]
        for other, other_matching in lengths[1:]:
            matching = np.where(np.asarray(other) > longest, other_matching, matching)
            longest = np.maximum(longest, other)
        total = total + matching
    return total if np.ndim(total) else float(total)


def _lengths(
    scop: Scop, statements: list[Statement], sizes: Sizes, lanes: int, dtype: str, kind: str, after: int
) -> tuple[Any, Any]:
    """Return all operations of one variable's chains and those of this kind, beyond those that are free."""
    counts = counts_of(scop)
    every: Any = 0.0
    matching: Any = 0.0
    for statement in statements:
        instances = np.asarray(counts.instances(statement, lanes).evaluate(sizes), dtype=float)
        every = every + instances * chained_operations(statement)
        matching = matching + instances * chained_operations(statement, kind, dtype)
    if not after:
        return every, matching
    first = statements[0]
    # A chain begins anew each time the loops are entered, and `after` operations of each are free.
    outer = max(outer_loops(scop, first), loops_with_barriers(scop, first))
    runs = np.asarray(counts.sub_group_runs(first, outer, lanes).evaluate(sizes), dtype=float)
    beyond = np.maximum(0.0, every - after * runs)
    # `after` is a number of operations of all kinds: what is free is spread over them in proportion.
    return beyond, matching * np.divide(beyond, every, out=np.zeros_like(beyond), where=every > 0)


def _chained(scop: Scop) -> list[Statement]:
    return [one for variables in chains_of(scop).values() for statements in variables.values() for one in statements]


def _chain_remarks(scop: Scop, _sizes: Sizes | None, _target: Target, what: tuple[str, str, int]) -> Remarks:
    counted = [certainty_of_statement(scop, one) for one in _chained(scop) if chained_operations(one, what[1], what[0])]
    return Remarks("longest chain, at the given sizes", reduce(or_, counted, Certainty()))


CHAINS = Family(
    "Operations of one kind in the longest dependence chain, counted once per sub-group",
    "f_chain_(.*)",
    "chained sub-group operation",
    _longest,
    examples=tuple(f"f_chain_float32_{kind}" for kind in ("add", "mul", "madd")),
    read=_read_chain,
    inventory=lambda scop: sorted(
        {
            f"f_chain_{op.dtype}_{op.kind}"
            for one in _chained(scop)
            if one.recurrence
            for op in one.recurrence.operations
        }
    ),
    present=lambda scop, _, what: any(chained_operations(one, what[1], what[0]) for one in _chained(scop)),
    remarks=_chain_remarks,
    cost="on-chip",
)

INSTRUCTION_FEATURES = tuple(f"f_inst_{kind}" for kind in (*INSTRUCTION_CLASSES, "total", "thread", "predication"))
_UNITS = {"thread": "work-item instruction", "predication": "1"}


def _instructions(scop: Scop, sizes: Sizes, target: Target, kind: str) -> Any:
    size = target.sub_group_size
    if kind == "predication":
        threads, places = (_instructions(scop, sizes, target, one) for one in ("thread", "total"))
        # Thread predication (Ding and Williams): work-item instructions over the lanes of all issued instructions.
        places = places * size
        # Where nothing runs, nothing is predicated.
        share = np.where(places > 0, threads / np.maximum(places, 1), 1.0)
        return share if np.ndim(places) else float(share)
    by_class = instructions_of(scop, None if kind == "thread" else size)
    count = by_class[kind] if kind in by_class else QuasiPolynomial.total(by_class.values())
    return count.evaluate(sizes)


def _absent(scop: Scop) -> set[str]:
    return {f"f_inst_{kind}" for kind, count in instructions_of(scop, None).items() if count.is_zero}


def _instructions_cover(kind: str, part: AccessCounts | Operation, _sizes: Sizes) -> bool | None:
    of = instruction_class(part.dtype) if isinstance(part, Operation) else f"ldst_{part.array.memory}"
    return True if kind in {of, "total", "thread"} else None


INSTRUCTIONS = Family(
    "Executed instructions of a class, or what follows from them",
    f"f_inst_({any_of((*INSTRUCTION_CLASSES, 'total', 'thread', 'predication'))})",
    lambda kind: _UNITS.get(kind, "sub-group instruction"),
    _instructions,
    examples=INSTRUCTION_FEATURES,
    inventory=lambda scop: [name for name in INSTRUCTION_FEATURES if name not in _absent(scop)],
    remarks=counted_of_all,
    covers=_instructions_cover,
    cost="on-chip",
)
