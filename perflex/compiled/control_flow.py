"""Control flow of a function: basic blocks, edges, natural loops, and how often each block runs, without running it.

Loops: Aho, Lam, Sethi, Ullman: Compilers, 9.6. Executions are what control flow allows, what trip counts are known, and
how much arithmetic and how many stored bytes the kernel's description says: together a linear program. Where these
leave a choice (a vector loop and its scalar copy for what is left over, say), the cheapest way is taken, as compilers
mean it. (After implicit path enumeration: Y.-T. Li, S. Malik, Performance analysis of embedded software using implicit
path enumeration, DAC 1995.)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections import defaultdict
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from perflex.compiled.decoding import Instruction


class UnknownFlowError(Exception):
    """Control flow, or executions, that do not follow from the code, the ids and the arguments."""


@dataclass(frozen=True)
class Block:
    """Instructions that are executed one after another, and the numbers of the blocks that may follow."""

    instructions: tuple[Instruction, ...]
    followers: tuple[int, ...]


class Followed(Protocol):
    """A block of any processor."""

    @property
    def followers(self) -> tuple[int, ...]:
        """Numbers of the blocks that may follow."""


@dataclass(frozen=True)
class Loop:
    """A natural loop."""

    # The block that every iteration begins with, and all its blocks, inner loops' included.
    header: int
    body: frozenset[int]
    # Edges that lead to the header: from inside, and from outside.
    back_edges: tuple[tuple[int, int], ...]
    entries: tuple[tuple[int, int], ...]
    # How many loops it lies in, itself included.
    depth: int = 1


def blocks_of(instructions: Sequence[Instruction]) -> list[Block]:
    """Return the basic blocks of a function that can be reached; the first is where it begins."""
    places = {one.address: number for number, one in enumerate(instructions)}
    starts = {0}
    for number, one in enumerate(instructions):
        if one.flow not in {"next", "call"}:
            starts.add(number + 1)
            target = _target(one, places)
            if target is not None:
                starts.add(target)
    bounds = sorted(start for start in starts if start < len(instructions))
    after = dict(zip(bounds, [*bounds[1:], len(instructions)], strict=True))
    ends: dict[int, list[int]] = {}
    waiting = [0]
    while waiting:
        start = waiting.pop()
        if start not in ends:
            ends[start] = _ends(instructions, after[start], places)
            waiting += ends[start]
    numbers = {start: number for number, start in enumerate(sorted(ends))}
    return [
        Block(tuple(instructions[start : after[start]]), tuple(numbers[end] for end in ends[start]))
        for start in numbers
    ]


def _ends(instructions: Sequence[Instruction], after: int, places: Mapping[int, int]) -> list[int]:
    """Return where control may go after the instruction before `after`: where it falls through to comes first."""
    last = instructions[after - 1]
    if last.flow == "unknown" or (last.flow == "computed" and not last.symbol):
        what = "is none that is known" if last.flow == "unknown" else "goes on where a table in memory says"
        msg = f"the instruction at {last.address:#x} {what}"
        raise UnknownFlowError(msg)
    found = []
    if last.flow in {"next", "call", "branch"} and after < len(instructions):
        found.append(after)
    # A jump out of the function is a call that does not return here.
    target = _target(last, places)
    if target is not None and target not in found:
        found.append(target)
    return found


def _target(jump: Instruction, places: Mapping[int, int]) -> int | None:
    target = jump.operands[0] if jump.flow in {"jump", "branch"} else None
    return places.get(target) if isinstance(target, int) else None


def loops_of(blocks: Sequence[Followed]) -> list[Loop]:
    """Return the natural loops, outer ones before inner ones.

    Edges to one header are one loop unless their bodies differ: then compilers made one block of two headers, and the
    smaller body is an inner loop.
    """
    before: list[list[int]] = [[] for _ in blocks]
    for number, block in enumerate(blocks):
        for follower in block.followers:
            before[follower].append(number)
    dominators = dominators_of(len(blocks), before)
    bodies: dict[tuple[int, frozenset[int]], list[tuple[int, int]]] = {}
    for number, block in enumerate(blocks):
        for header in block.followers:
            if header in dominators[number]:
                body = frozenset(_body(number, header, before))
                bodies.setdefault((header, body), []).append((number, header))
    found = []
    for (header, body), back in bodies.items():
        depth = sum(header in other and body <= other for _, other in bodies)
        entries = tuple((one, header) for one in before[header] if (one, header) not in back)
        found.append(Loop(header, body, tuple(back), entries, depth))
    return sorted(found, key=lambda loop: (loop.depth, loop.header))


def dominators_of(count: int, before: Sequence[Sequence[int]]) -> list[set[int]]:
    """Return the blocks that every way from the first block to each block leads through, itself among them."""
    everything = set(range(count))
    found = [{0}, *(set(everything) for _ in range(count - 1))]
    changed = True
    while changed:
        changed = False
        for number in range(1, count):
            common = set.intersection(*(found[one] for one in before[number])) if before[number] else set()
            if common | {number} != found[number]:
                found[number] = common | {number}
                changed = True
    return found


def _body(latch: int, header: int, before: Sequence[Sequence[int]]) -> set[int]:
    body, waiting = {header}, [latch]
    while waiting:
        number = waiting.pop()
        if number not in body:
            body.add(number)
            waiting += before[number]
    return body


# Cycles that a deviation is taken to cost, so that no cheaper way is worth one: of an iteration too many or too few,
# of an operation, a stored byte, and a loaded byte more than the kernel's description has.
_TRIP, _OPERATION, _STORED, _LOADED = 1e6, 400.0, 100.0, 5.0
_INSTRUCTION, _ANY = 0.05, 1e-3


@dataclass(frozen=True)
class BlockFacts:
    """What one execution of a block does.

    Attributes
    ----------
    cycles
        Of the busiest port.
    counts
        By name: ``instructions``, ``loads``, ``stores``, ``spills``, ``gathers`` and ``scatters`` (elements),
        ``inserts``, ``shuffles``, ``packed_<type>`` and ``scalar_<type>`` (arithmetic instructions), ``lanes_<type>``
        (their elements), ``ops_<type>`` (their operations), ``div_<type>`` and ``sqrt_<type>`` (elements),
        ``calls``, ``calls_<kind>`` (vector registers that they compute), ``global_load_bytes``, ``global_store_bytes``.
    """

    cycles: float
    counts: defaultdict[str, float]


@dataclass(frozen=True)
class Totals:
    """What a kernel's description says of a work-group, or of its share: counts by the names of `BlockFacts`."""

    # Counts that executions should come to, that they should not exceed, and that they should reach: those of kernels
    # whose functions may be inlined, which adds operations.
    equal: Mapping[str, float]
    most: Mapping[str, float]
    least: Mapping[str, float] = field(default_factory=dict)

    def times(self, share: float) -> Totals:
        """Return a share of all of them."""
        return Totals(
            *({name: share * amount for name, amount in one.items()} for one in (self.equal, self.most, self.least))
        )


class _Rows:
    """The constraints of a linear program, with slack variables where they may be missed."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.entries: list[tuple[int, int, float]] = []
        self.right: list[float] = []
        self.costs: list[float] = []

    def add(self, row: Mapping[int, float], right: float, below: float = 0.0, above: float = 0.0) -> None:
        """Add an equation; where it may be missed, each unit below or above costs so much."""
        number = len(self.right)
        self.entries += [(number, column, value) for column, value in row.items()]
        self.right.append(right)
        if below or above:
            for sign, cost in ((1.0, below), (-1.0, above)):
                self.entries.append((number, self.columns + len(self.costs), sign))
                self.costs.append(cost)

    def cheapest(self, costs: Sequence[float]) -> NDArray[np.float64]:
        """Return the cheapest values of the first columns, whose costs are given."""
        from scipy.optimize import linprog
        from scipy.sparse import coo_array

        if not costs:
            return np.zeros(0)
        numbers, columns, values = zip(*self.entries, strict=True)
        every = [*costs, *self.costs]
        matrix = coo_array((values, (numbers, columns)), shape=(len(self.right), len(every))).tocsr()
        found = linprog(every, A_eq=matrix, b_eq=self.right, method="highs")
        if found.x is None:
            # Everything else may be missed.
            msg = f"no numbers of executions fit the control flow ({found.message.split('.')[0]}); it may never end"
            raise UnknownFlowError(msg)
        taken: NDArray[np.float64] = np.maximum(found.x[: self.columns], 0.0)
        return taken


def block_executions(
    blocks: Sequence[Followed],
    edges: set[tuple[int, int]],
    facts: Sequence[BlockFacts],
    trips: Sequence[tuple[Loop, int]],
    totals: Totals,
) -> tuple[NDArray[np.float64], dict[tuple[int, int], float]]:
    """Return how often each block runs when the function is called once, and how often each edge is taken."""
    chosen = sorted(edges)
    place = {edge: number for number, edge in enumerate(chosen)}
    rows = _Rows(len(chosen))
    incoming: list[list[int]] = [[] for _ in blocks]
    for edge, column in place.items():
        incoming[edge[1]].append(column)
    for number in range(len(blocks)):
        row = dict.fromkeys(incoming[number], 1.0)
        outgoing = [column for edge, column in place.items() if edge[0] == number]
        for column in outgoing:
            row[column] = row.get(column, 0.0) - 1.0
        # Blocks that return have no edge out.
        if outgoing:
            rows.add(row, -1.0 if number == 0 else 0.0)
    for loop, trip in trips:
        row = {place[edge]: 1.0 for edge in loop.back_edges if edge in place}
        for edge in loop.entries:
            if edge in place:
                row[place[edge]] = row.get(place[edge], 0.0) - (trip - 1.0)
        rows.add(row, 0.0, _TRIP, _TRIP)
    for wanted, below, above in ((totals.equal, 1.0, 1.0), (totals.most, 0.0, 1.0), (totals.least, 1.0, 0.0)):
        for name, amount in wanted.items():
            _add_total(rows, _Total(name, amount, below, above), facts, incoming)
    cycles = [one.cycles + _INSTRUCTION * one.counts["instructions"] + _ANY for one in facts]
    taken = rows.cheapest([cycles[edge[1]] for edge in chosen])
    runs = [sum(taken[column] for column in columns) for columns in incoming]
    runs[0] += 1.0
    return np.array(runs), {edge: float(taken[column]) for edge, column in place.items()}


@dataclass(frozen=True)
class _Total:
    """A count, what it should be, and whether less and more than that are misses (1) or free (0)."""

    name: str
    amount: float
    below: float
    above: float

    @property
    def cost(self) -> float:
        """Cycles that each unit missed is taken to cost."""
        if self.name == "global_load_bytes":
            return _LOADED
        return _STORED if self.name.endswith("bytes") else _OPERATION


def _add_total(rows: _Rows, total: _Total, facts: Sequence[BlockFacts], incoming: Sequence[Sequence[int]]) -> None:
    row: dict[int, float] = {}
    for one, columns in zip(facts, incoming, strict=True):
        if one.counts[total.name]:
            for column in columns:
                row[column] = row.get(column, 0.0) + one.counts[total.name]
    # What no block does, the compiler did in another way: in a function that is called, say.
    if row:
        cost = total.cost
        rows.add(row, total.amount - facts[0].counts[total.name], cost * total.below, cost * total.above)
