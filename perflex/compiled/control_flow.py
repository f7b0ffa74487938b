"""Control flow of a function: basic blocks, edges, and natural loops (Aho, Lam, Sethi, Ullman: Compilers, 9.6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.compiled.instructions import Instruction

_RETURNS = {"ret", "ud2", "hlt"}


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
    """A natural loop.

    Attributes
    ----------
    header
        The block that every iteration begins with.
    body
        Its blocks, inner loops' included.
    back_edges, entries
        Edges that lead to the header: from inside, and from outside.
    depth
        How many loops it lies in, itself included.
    """

    header: int
    body: frozenset[int]
    back_edges: tuple[tuple[int, int], ...]
    entries: tuple[tuple[int, int], ...]
    depth: int = 1


def blocks_of(instructions: Sequence[Instruction]) -> list[Block]:
    """Return the basic blocks of a function that can be reached; the first is where it begins."""
    places = {one.address: number for number, one in enumerate(instructions)}
    starts = {0}
    for number, one in enumerate(instructions):
        if one.name.startswith("j") or one.name in _RETURNS:
            starts.add(number + 1)
            target = _target(one, places)
            if target is not None:
                starts.add(target)
    bounds = sorted(start for start in starts if start < len(instructions))
    after = dict(zip(bounds, [*bounds[1:], len(instructions)], strict=True))
    ends = {start: _ends(instructions, after[start], places) for start in bounds}
    reached, waiting = set(), [0]
    while waiting:
        start = waiting.pop()
        if start not in reached:
            reached.add(start)
            waiting += ends[start]
    numbers = {start: number for number, start in enumerate(sorted(reached))}
    return [
        Block(tuple(instructions[start : after[start]]), tuple(numbers[end] for end in ends[start]))
        for start in sorted(reached)
    ]


def _ends(instructions: Sequence[Instruction], after: int, places: Mapping[int, int]) -> list[int]:
    """Return where control may go after the instruction before `after`: where it falls through to comes first."""
    last = instructions[after - 1]
    found = []
    if last.name != "jmp" and last.name not in _RETURNS and after < len(instructions):
        found.append(after)
    target = _target(last, places) if last.name.startswith("j") else None
    # A jump out of the function is a call that does not return here.
    if target is not None and target not in found:
        found.append(target)
    return found


def _target(jump: Instruction, places: Mapping[int, int]) -> int | None:
    text = jump.operands[0] if jump.operands else ""
    return places.get(int(text, 0)) if text[:1].isdigit() else None


def loops_of(blocks: Sequence[Followed]) -> list[Loop]:
    """Return the natural loops, outer ones before inner ones.

    Edges to one header are one loop unless their bodies differ: then compilers made one block of two headers, and the
    smaller body is an inner loop.
    """
    before: list[list[int]] = [[] for _ in blocks]
    for number, block in enumerate(blocks):
        for follower in block.followers:
            before[follower].append(number)
    dominators = _dominators(len(blocks), before)
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


def _dominators(count: int, before: Sequence[Sequence[int]]) -> list[set[int]]:
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
