"""Which values addresses, masks and control flow depend on, and by how much a loop advances what it carries."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from itertools import chain, product
from typing import NamedTuple

from perflex.features.from_triton.ttir import ENDS, Block, Function, Operation

_Functions = Mapping[str, Function]
_LOADS = {"tt.load", "tt.descriptor_load", "tt.descriptor_gather"}
_LAYOUTS = {"tt.reshape", "ttg.convert_layout"}
# The operands that must be known: addresses, masks, conditions, bounds. What is stored stands between address and mask.
_KNOWN = {
    "tt.load": slice(2), "tt.store": slice(0, 3, 2), "tt.atomic_rmw": slice(0, 3, 2), "tt.atomic_cas": slice(1),
    "tt.atomic_load": slice(2), "tt.atomic_store": slice(0, 3, 2),
    "tt.descriptor_load": slice(None), "tt.descriptor_gather": slice(None), "scf.for": slice(3),
    "scf.if": slice(1), "scf.condition": slice(1), "cf.cond_br": slice(1),
}  # fmt: skip
# A block that a jump leads to, and what it passes on.
_GOAL = re.compile(r"(\^[^\s(,:]+)(\([^:]*:)?")


class Source(NamedTuple):
    """A load that an operand of a product comes from: its line, and whether the operand is just what is loaded."""

    line: int
    direct: bool
    transposed: bool


def _operations(functions: _Functions) -> Iterator[Operation]:
    """Yield all operations, those in regions too."""
    blocks = [block for function in functions.values() for block in function.body]
    for block in blocks:  # which grow in number
        for one in block.operations:
            yield one
            blocks += chain.from_iterable(one.regions)


def jumps(last: Operation) -> list[tuple[str, tuple[int, ...]]]:
    """Return the labels of the blocks that one may be followed by, each with the values that are passed on there."""
    found, start = [], 1 if last.name == "cf.cond_br" else 0
    for label, passed in _GOAL.findall(last.text) if last.name.startswith("cf.") else ():
        end = start + passed.count("%")
        found.append((label, last.operands[start:end]))
        start = end
    return found


def known_operands(one: Operation) -> tuple[int, ...]:
    """Return the operands of an operation that must be known."""
    # Of what is stored through a descriptor, all but the values, which come last.
    return one.operands[_KNOWN.get(one.name, slice(-1 if one.name.startswith("tt.descriptor_") else 0))]


def needed_values(functions: _Functions) -> set[int]:
    """Return the numbers of all values that an address, a mask, a condition or a bound depends on."""
    return _reached([number for one in _operations(functions) for number in known_operands(one)], functions)


def techniques(functions: _Functions) -> tuple[str, ...]:
    """Return in words what code has beside loads and stores whose places the program's number decides."""
    operations, needed = list(_operations(functions)), needed_values(functions)
    loads = {one.line: one for one in operations if one.name in _LOADS}
    loops = (one.regions[0][0].operations for one in operations if one.name == "scf.for")
    bodies = [body for body in loops if any(one.name == "tt.dot" for one in body)]
    # Without batches, one axis of programs decides both operands, or each axis one of them.
    several = False
    for sides in operand_sources(functions).values():
        places = [[number for source in side for number in loads[source.line].operands[:1]] for side in sides]
        first, second = (_axes(operations, _reached(some, functions)) for some in places)
        several |= bool(first & second) and len(first | second) > 1
    found = {
        "tensor descriptors": any(one.name.startswith("tt.descriptor_") for one in operations),
        "specialised warps": any("tt.warp_specialize" in one.text for one in operations),
        "addresses or conditions that arrays decide": any(not needed.isdisjoint(one.results) for one in loads.values()),
        "operands that both depend on several axes of programs, as batches and parts of k": several,
        "addresses with divisions in the loop, as convolutions": any(
            one.name.startswith(("arith.div", "arith.rem")) and not needed.isdisjoint(one.results)
            for body in bodies
            for one in body
        ),
    }
    return tuple(word for word, there in found.items() if there)


def _axes(operations: Collection[Operation], values: set[int]) -> set[str]:
    """Return the axes of the grid whose program numbers are among some values."""
    found = (one for one in operations if one.name == "tt.get_program_id")
    return {one.text[:1] for one in found if not values.isdisjoint(one.results)}


def written_arrays(kernel: Function, functions: _Functions) -> set[str]:
    """Return the arguments that the kernel may store to, or update."""
    stores = ("tt.store", "tt.atomic", "tt.descriptor_")
    changes = [one for one in _operations(functions) if one.name.startswith(stores) and one.name not in _LOADS]
    found = _reached([one.operands[0] for one in changes], functions, without=_LOADS)
    return {name for name, number in zip(kernel.names, kernel.arguments, strict=True) if number in found}


def read_arrays(kernel: Function, functions: _Functions) -> set[str]:
    """Return the arguments, arrays among them, that an address, a mask, a condition or a bound is loaded from."""
    needed = needed_values(functions)
    loads = [one for one in _operations(functions) if one.name == "tt.load" and not needed.isdisjoint(one.results)]
    found = _reached([one.operands[0] for one in loads], functions, without=_LOADS)
    return {name for name, number in zip(kernel.names, kernel.arguments, strict=True) if number in found}


def _reached(wanted: list[int], functions: _Functions, without: Collection[str] = ()) -> set[int]:
    """Return the numbers of values and of all that they are made of; some operations lead no further."""
    sources = defaultdict[int, list[int]](list)
    for one in _operations(functions):
        for number, source in () if one.name in without else _made_of(one, functions):
            sources[number].append(source)
    for function in functions.values():
        arguments = {block.label: block.arguments for block in function.body}
        for block in function.body:
            for label, passed in jumps(block.operations[-1]):
                for number, source in zip(arguments[label], passed, strict=True):
                    sources[number].append(source)
    found: set[int] = set()
    while wanted:
        number = wanted.pop()
        if number not in found:
            found.add(number)
            wanted += sources[number]
    return found


def _made_of(one: Operation, functions: _Functions) -> Iterator[tuple[int, int]]:
    """Yield the results and block arguments of an operation, each with a value that it is made of."""
    bodies, ends = [region[0] for region in one.regions], [region[-1].operations[-1].operands for region in one.regions]
    made: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    if one.name == "scf.for":
        yield from product(bodies[0].arguments[:1], one.operands[:3])
        made += product((one.results, bodies[0].arguments[1:]), (one.operands[3:], *ends))
    elif one.name == "scf.while":
        made += product((one.results, bodies[1].arguments), (ends[0][1:],))
        made += product((bodies[0].arguments,), (one.operands, ends[1]))
    elif one.name == "scf.if":
        yield from product(one.results, one.operands)
        made += product((one.results,), ends)
    elif one.name == "tt.call":
        called = functions[one.text[1:].split("(")[0]]
        made += product((one.results,), [block.operations[-1].operands for block in called.body])
        made += [(called.arguments, one.operands)]
    elif one.name not in ENDS:
        # A value that is loaded needs all that the load is given.
        yield from product(one.results, one.operands)
    for numbers, sources in made:
        yield from zip(numbers, sources, strict=False)


def advances(loop: Operation, needed: set[int]) -> tuple[list[tuple[int, ...] | None], list[Operation]] | None:
    """Return by which values a loop advances each that it carries, and what computes them, in order.

    A value stays where there are none, and is not needed where they are None. All is None where what a loop carries is
    more than a sum, or what it advances by depends on what it carries.
    """
    body = loop.regions[0][0]
    carried, sums = body.arguments[1:], _sums(body)
    deltas: list[tuple[int, ...] | None] = []
    for number, end, result in zip(carried, body.operations[-1].operands, loop.results, strict=True):
        start, added = sums.get(end, (None, ()))
        if start != number and not needed.isdisjoint((number, result)):
            return None
        deltas.append(None if needed.isdisjoint((number, result)) else added)
    wanted, before = {number for one in deltas for number in one or ()}, list[Operation]()
    for one in reversed(body.operations):
        if not wanted.isdisjoint(one.results):
            wanted.update(one.operands)
            before.insert(0, one)
    known = wanted.isdisjoint(carried) and not any(one.regions for one in before)
    return (deltas, before) if known else None


def _sums(body: Block) -> dict[int, tuple[int, tuple[int, ...]]]:
    """Return the values that are a sum of one that a loop carries and of others: which one, and what others."""
    found: dict[int, tuple[int, tuple[int, ...]]] = {number: (number, ()) for number in body.arguments[1:]}
    for one in body.operations:
        if one.name in {"tt.addptr", "arith.addi"}:
            first, second = one.operands
            # Of a sum of integers either part may be what the loop carries.
            if first not in found and one.name == "arith.addi":
                first, second = second, first
            if first in found:
                found[one.results[0]] = (found[first][0], (second, *found[first][1]))
    return found


def operand_sources(functions: _Functions) -> dict[int, tuple[tuple[Source, ...], tuple[Source, ...]]]:
    """Return the loads that the two operands of each product come from, by the product's line."""
    made = {number: one for one in _operations(functions) for number in one.results}
    products = [one for one in made.values() if one.name == "tt.dot"]
    return {one.line: (_loads(one.operands[0], made), _loads(one.operands[1], made)) for one in products}


def _loads(start: int, made: Mapping[int, Operation]) -> tuple[Source, ...]:
    found: list[Source] = []
    wanted, seen = [(start, True, False)], set[int]()
    while wanted:
        number, direct, transposed = wanted.pop()
        one = made.get(number)
        if one is None or number in seen or one.regions or one.name == "tt.dot":
            continue
        seen.add(number)
        if one.name not in _LOADS:
            direct &= one.name in {"tt.trans", *_LAYOUTS}
            transposed ^= one.name == "tt.trans"
            wanted += [(operand, direct, transposed) for operand in one.operands]
        elif len(one.types[0].shape) > 1:  # scalars and scales of a row are no operands
            found.append(Source(one.line, direct, transposed))
    return tuple(found)
