"""How often each block of a function runs, found without running it.

What control flow allows, what trip counts are known, and how much arithmetic and how many stored bytes the kernel's
description says: together a linear program. Where these leave a choice (a vector loop and its scalar copy for what is
left over, say), the cheapest way is taken, as compilers mean it. (After implicit path enumeration: Y.-T. Li, S. Malik,
Performance analysis of embedded software using implicit path enumeration, DAC 1995.)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from perflex.compiled.block_facts import BlockFacts
    from perflex.compiled.control_flow import Followed, Loop

# Cycles that a deviation is taken to cost, so that no cheaper way is worth one: of an iteration too many or too few,
# of an operation, a stored byte, and a loaded byte more than the kernel's description has.
_TRIP, _OPERATION, _STORED, _LOADED = 1e6, 400.0, 100.0, 5.0
_INSTRUCTION, _ANY = 0.05, 1e-3


@dataclass(frozen=True)
class Totals:
    """What a kernel's description says of a work-group, or of its share: counts by the names of `BlockFacts`.

    Attributes
    ----------
    equal
        Counts that executions should come to.
    most
        Counts that they should not exceed.
    least
        Counts that they should reach: of kernels whose functions may be inlined, which adds operations.
    """

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
        # Control flow alone can always be met, and everything else may be missed.
        return np.zeros(self.columns) if found.x is None else np.maximum(found.x[: self.columns], 0.0)


def block_executions(
    blocks: Sequence[Followed],
    edges: set[tuple[int, int]],
    facts: Sequence[BlockFacts],
    trips: Sequence[tuple[Loop, int]],
    totals: Totals,
) -> tuple[NDArray[np.float64], dict[tuple[int, int], float]]:
    """Return how often each block runs when the function is called once, and how often each edge is taken.

    Parameters
    ----------
    blocks
        Of the function.
    edges
        That control can take.
    facts
        Of the blocks.
    trips
        Loops with known iterations of each entry.
    totals
        What the call does.
    """
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
