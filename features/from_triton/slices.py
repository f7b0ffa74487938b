"""Which values addresses, masks and control flow depend on, and by how much a loop advances what it carries."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from perflex.features.from_triton.ttir import ENDS, Block, Function, Operation

_PRODUCTS = {"tt.dot"}
_LOADS = {"tt.load", "tt.descriptor_load", "tt.descriptor_gather"}
_LAYOUTS = {"tt.reshape", "ttg.convert_layout"}
# What they store stands between address and mask.
_MASKED = {"tt.store", "tt.atomic_rmw"}
_FIRST = {"tt.atomic_cas", "scf.if", "cf.cond_br", "scf.condition"}


@dataclass(frozen=True)
class Advances:
    """How the iterations of a loop follow from its beginning."""

    # For each value that it carries the numbers of what it advances by: () where it stays, None where it is not needed.
    deltas: tuple[tuple[int, ...] | None, ...]
    # What must be computed for that, in order.
    before: tuple[Operation, ...]


def operations_in(blocks: list[Block]) -> Iterator[Operation]:
    """Yield all operations, those in regions too."""
    for block in blocks:
        for one in block.operations:
            yield one
            for region in one.regions:
                yield from operations_in(region)


def written_arrays(kernel: Function, functions: Mapping[str, Function]) -> set[str]:
    """Return the arguments that the kernel may store to, or update."""
    wanted = [
        one.operands[0]
        for function in functions.values()
        for one in operations_in(function.body)
        if one.name == "tt.store" or (one.name.startswith(("tt.atomic", "tt.descriptor_")) and one.name not in _LOADS)
    ]
    found = _reached(wanted, functions, without=_LOADS)
    return {name for name, number in zip(kernel.names, kernel.arguments, strict=True) if number in found}


def addressed(one: Operation) -> tuple[int, ...]:
    """Return the operands of an operation that must be known: addresses, masks, conditions, bounds."""
    name, operands = one.name, one.operands
    if name == "tt.load":
        return operands[: 2 if len(operands) > 1 else 1]
    if name.startswith("tt.descriptor_"):
        # The descriptor and its indices; what is stored comes last.
        return operands if name in _LOADS else operands[:-1]
    return (
        operands[:3]
        if name == "scf.for"
        else (*operands[:1], *operands[2:3])
        if name in _MASKED
        else (operands[:1] if name in _FIRST else ())
    )


def needed_values(functions: Mapping[str, Function]) -> set[int]:
    """Return the numbers of all values that an address, a mask, a condition or a bound depends on."""
    operations = (one for function in functions.values() for one in operations_in(function.body))
    return _reached([number for one in operations for number in addressed(one)], functions)


def _reached(wanted: list[int], functions: Mapping[str, Function], without: Collection[str] = ()) -> set[int]:
    """Return the numbers of values and of all that they are made of; some operations lead no further."""
    sources: dict[int, list[int]] = {}
    for function in functions.values():
        for one in operations_in(function.body):
            if one.name not in without:
                _link(one, functions, sources)
        labels = {block.label: block for block in function.body}
        for block in function.body:
            _link_jump(block, labels, sources)
    found: set[int] = set()
    while wanted:
        number = wanted.pop()
        if number not in found:
            found.add(number)
            wanted += sources.get(number, ())
    return found


def _link(one: Operation, functions: Mapping[str, Function], sources: dict[int, list[int]]) -> None:
    """Note what the results and block arguments of an operation are made of."""

    def note(numbers: tuple[int, ...], *others: tuple[int, ...]) -> None:
        for place, number in enumerate(numbers):
            sources.setdefault(number, []).extend(other[place] for other in others if place < len(other))

    if one.name == "scf.for":
        body = one.regions[0][0]
        last = body.operations[-1].operands
        note(one.results, one.operands[3:], last)
        note(body.arguments[1:], one.operands[3:], last)
        sources.setdefault(body.arguments[0], []).extend(one.operands[:3])
    elif one.name == "scf.while":
        test, body = one.regions[0][0], one.regions[1][0]
        passed, last = test.operations[-1].operands[1:], body.operations[-1].operands
        note(one.results, passed)
        note(body.arguments, passed)
        note(test.arguments, one.operands, last)
    elif one.name == "scf.if":
        note(one.results, *(region[-1].operations[-1].operands for region in one.regions))
        for number in one.results:
            sources[number].append(one.operands[0])
    elif one.name == "tt.call":
        function = functions[one.text[1:].split("(")[0]]
        note(function.arguments, one.operands)
        returned = [block.operations[-1].operands for block in function.body if block.operations]
        note(one.results, *returned)
    elif one.name not in ENDS:
        # A value that is loaded needs all that the load is given.
        for number in one.results:
            sources.setdefault(number, []).extend(one.operands)


def _link_jump(block: Block, labels: Mapping[str, Block], sources: dict[int, list[int]]) -> None:
    last = block.operations[-1] if block.operations else None
    if last is None or not last.name.startswith("cf."):
        return
    start = 1 if last.name == "cf.cond_br" else 0
    for part in last.text.split("^")[1:]:
        goal = labels["^" + part.split("(")[0].split(",")[0].split(" ")[0].split(":")[0]]
        for number in goal.arguments:
            sources.setdefault(number, []).append(last.operands[start])
            start += 1


def advances(loop: Operation, needed: set[int]) -> Advances | None:
    """Return how a loop advances what it carries, if that is by amounts that do not depend on what it carries."""
    body = loop.regions[0][0]
    made = {number: one for one in body.operations for number in one.results}
    carried, last = set(body.arguments[1:]), body.operations[-1].operands
    deltas: list[tuple[int, ...] | None] = []
    for number, end in zip(body.arguments[1:], last, strict=True):
        if number not in needed and not needed.intersection(loop.results[len(deltas) : len(deltas) + 1]):
            deltas.append(None)
            continue
        found = _added(number, end, made)
        if found is None:
            return None
        deltas.append(found)
    wanted, before = [number for one in deltas for number in one or ()], set()
    while wanted:
        number = wanted.pop()
        if number in carried:
            return None
        one = made.get(number)
        if one is not None and number not in before:
            if one.regions:
                return None
            before.add(number)
            wanted += one.operands
    return Advances(tuple(deltas), tuple(one for one in body.operations if before.intersection(one.results)))


def _added(number: int, end: int, made: Mapping[int, Operation]) -> tuple[int, ...] | None:
    """Return what was added to a value that a loop carries; None where it is something else than a sum."""
    added: list[int] = []
    while end != number:
        one = made.get(end)
        if one is None or one.name not in {"tt.addptr", "arith.addi"}:
            return None
        first, second = one.operands
        # Of a sum either part may be what the loop carries.
        if one.name == "arith.addi" and not _reaches(first, number, made) and _reaches(second, number, made):
            first, second = second, first
        added.append(second)
        end = first
    return tuple(added)


def _reaches(start: int, number: int, made: Mapping[int, Operation]) -> bool:
    while start != number:
        one = made.get(start)
        if one is None or one.name not in {"tt.addptr", "arith.addi"}:
            return False
        start = one.operands[0]
    return True


@dataclass(frozen=True)
class Source:
    """A load that an operand of a product comes from: its line, and whether the operand is just what is loaded."""

    line: int
    direct: bool
    transposed: bool


def operand_sources(functions: Mapping[str, Function]) -> dict[int, tuple[tuple[Source, ...], tuple[Source, ...]]]:
    """Return the loads that the two operands of each product come from, by the product's line."""
    made = {number: one for each in functions.values() for one in operations_in(each.body) for number in one.results}
    products = [one for each in functions.values() for one in operations_in(each.body) if one.name in _PRODUCTS]
    return {one.line: (_loads(one.operands[0], made), _loads(one.operands[1], made)) for one in products}


def _loads(start: int, made: Mapping[int, Operation]) -> tuple[Source, ...]:
    found: list[Source] = []
    wanted, seen = [(start, True, False)], set[int]()
    while wanted:
        number, direct, transposed = wanted.pop()
        one = made.get(number)
        if one is None or number in seen or one.regions or one.name in _PRODUCTS:
            continue
        seen.add(number)
        if one.name in _LOADS:
            # Scalars and scales of a row are no operands.
            if len(one.types[0].shape) > 1:
                found.append(Source(one.line, direct, transposed))
            continue
        if one.name == "tt.trans":
            transposed = not transposed
        elif one.name not in _LAYOUTS:
            direct = False
        wanted += [(operand, direct, transposed) for operand in one.operands]
    return tuple(found)
