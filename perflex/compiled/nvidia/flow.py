"""Control flow of a kernel for an NVIDIA GPU, the ways that one work-item can take, and trip counts of its loops."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from perflex.compiled.control_flow import UnknownFlowError
from perflex.compiled.nvidia.operands import NAME, NUMBER, REGISTER, changed_by, inputs_of, width_of
from perflex.compiled.nvidia.spans import UNDESCRIBED, Mark, Shifted, Span, Split, Test, axes_of, compare, ends, merged
from perflex.compiled.nvidia.values import Lane, total

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.compiled.control_flow import Loop
    from perflex.compiled.nvidia.cubin import GpuInstruction
    from perflex.compiled.nvidia.values import Value

_LONGEST = 10**9
# After how many looks the ways of a kernel are as known as they get; loops inside of loops take one more each.
_LOOKS = 12
_LOCAL = {"LDL", "STL"}
# R1 points to a work-item's own memory.
_SPILT = re.compile(r"\[R1(?:\+(0x[0-9a-f]+))?\]$")
# Names of registers that stand for words of that memory; GPUs have 255.
_FIRST_SPILT = 1000


@dataclass(frozen=True)
class GpuBlock:
    """Instructions that are executed one after another, and the numbers of the blocks that may follow."""

    instructions: tuple[GpuInstruction, ...]
    # Of two, the first one where the last instruction's conditions do not hold, else the other.
    followers: tuple[int, ...]

    @property
    def jumps(self) -> bool:
        """Whether conditions decide what follows."""
        return len(self.followers) > 1


def blocks_of(instructions: Sequence[GpuInstruction]) -> tuple[GpuBlock, ...]:
    """Return the basic blocks of a kernel that can be reached; the last one is empty and stands for its end."""
    end = len(instructions)
    places = {one.address: number for number, one in enumerate(instructions)}
    instructions = [_plainer(one, instructions, places) for one in instructions]
    starts = {0, end}
    for number, one in enumerate(instructions):
        if _ends_block(one):
            starts |= {number + 1, _target(one, places)} if one.name == "BRA" else {number + 1}
    after = dict(pairwise(sorted(starts)))
    ways = {first: _followers(instructions[last - 1], last, end, places) for first, last in after.items()}
    reached, waiting = {end}, [0]
    while waiting:
        first = waiting.pop()
        if first not in reached:
            reached.add(first)
            waiting += ways[first]
    numbers = {first: number for number, first in enumerate(sorted(reached))}
    # Code that control flow does not reach belongs to functions that are called.
    called = [one for first, last in after.items() if first not in reached for one in instructions[first:last]]
    changed = tuple(dict.fromkeys(name for one in called for name in changed_by(one)))
    blocks = [
        GpuBlock(
            tuple(
                replace(one, operands=changed) if one.name == "CALL" else one
                for one in instructions[first : after[first]]
            ),
            tuple(numbers[one] for one in ways[first]),
        )
        for first in sorted(reached - {end})
    ]
    return (*blocks, GpuBlock((), ()))


def _plainer(one: GpuInstruction, instructions: Sequence[GpuInstruction], places: Mapping[int, int]) -> GpuInstruction:
    """Return an instruction in a plainer form: a jump for a call that never returns, a selection for P2R."""
    if one.name == "CALL" and "NOINC" in one.modifiers and one.operands[-1].startswith("0x"):
        # So compilers leave long loops.
        start = places.get(int(one.operands[-1], 0))
        if start is not None and not _returns(instructions, start, places):
            return replace(one, name="BRA", modifiers=())
    if one.name == "P2R" and one.operands[-2:-1] == ("RZ",) and NUMBER.match(one.operands[-1]) and not one.modifiers:
        # Of the predicates, those whose bits the mask has are kept in a register.
        mask = int(one.operands[-1], 0)
        if mask.bit_count() == 1:
            place = f"P{mask.bit_length() - 1}"
            return replace(one, name="SEL", operands=(one.operands[0], hex(mask), "RZ", place), predicate="")
    return one


def _returns(instructions: Sequence[GpuInstruction], start: int, places: Mapping[int, int]) -> bool:
    """Return whether control may come from a place to the end of a function, those called on the way left out."""
    seen, waiting, end = set[int](), [start], len(instructions)
    while waiting:
        number = waiting.pop()
        if number == end or number in seen:
            continue
        seen.add(number)
        if instructions[number].name == "RET":
            return True
        ends = _ends_block(instructions[number])
        waiting += _followers(instructions[number], number + 1, end, places) if ends else [number + 1]
    return False


def sliced(blocks: Sequence[GpuBlock]) -> tuple[GpuBlock, ...]:
    """Return blocks with those instructions alone that what decides jumps follows from; the last one is kept always."""
    blocks = _unspilt(blocks)
    # What decides later jumps, by the block that begins with it.
    live: list[set[str]] = [set() for _ in blocks]
    found = list(blocks)
    changed = True
    while changed:
        changed = False
        for number in reversed(range(len(blocks))):
            kept, names = _needed(blocks[number], set().union(*(live[one] for one in blocks[number].followers)))
            changed = changed or names != live[number]
            live[number], found[number] = names, replace(blocks[number], instructions=kept)
    return tuple(found)


def _unspilt(blocks: Sequence[GpuBlock]) -> Sequence[GpuBlock]:
    """Return blocks that move spilt registers to others; the blocks themselves where more may change what is spilt."""
    every = [one for block in blocks for one in block.instructions]
    local = [one.address for one in every if one.name in _LOCAL]
    if not local:
        return blocks
    for one in every:
        # The pointer is set before, and nothing else has it.
        names = {*changed_by(one), *NAME.findall(" ".join(one.operands))}
        is_spill = one.name in _LOCAL and _word(one) is not None
        sets = {"PT", *changed_by(one)} == {"PT", "R1"} and one.address < min(local)
        if not is_spill and (one.name in _LOCAL or ("R1" in names and not sets)):
            return blocks
    return [
        replace(block, instructions=tuple(p for one in block.instructions for p in _moves(one))) for block in blocks
    ]


def _word(spill: GpuInstruction) -> int | None:
    """Return the word of a work-item's own memory that a register is spilt to; None of other accesses."""
    match = _SPILT.match(spill.operands[spill.name == "LDL"])
    place = int(match[1] or "0", 16) if match else 1
    return None if place % 4 or not set(spill.modifiers) <= {"64", "128", "LU"} else place // 4


def _moves(one: GpuInstruction) -> list[GpuInstruction]:
    """Return moves for a spill, and any other instruction itself."""
    word = _word(one) if one.name in _LOCAL else None
    if word is None:
        return [one]
    register = one.operands[one.name == "STL"]
    match = REGISTER.match(register)
    found = []
    for more in range(width_of(one)):
        own = f"{match[1]}{int(match[2]) + more}" if match else register
        spilt = f"R{_FIRST_SPILT + word + more}"
        operands = (own, spilt) if one.name == "LDL" else (spilt, own)
        found.append(replace(one, name="MOV", modifiers=(), operands=operands))
    return found


def _needed(block: GpuBlock, live: set[str]) -> tuple[tuple[GpuInstruction, ...], set[str]]:
    """Return the instructions that others, and the jump, need after a block; and what is needed when it begins."""
    kept: list[GpuInstruction] = []
    for one in reversed(block.instructions):
        results = changed_by(one)
        needed = not live.isdisjoint(results) or (block.jumps and not kept)
        if needed or not kept:
            kept.append(one)
        if needed:
            live = (live if one.predicate else live.difference(results)) | _names(one)
    return tuple(reversed(kept)), live


def _names(one: GpuInstruction) -> set[str]:
    return set(NAME.findall(" ".join((one.predicate, *inputs_of(one)))))


# Of Maxwell and Pascal.
_STACKED = {"SSY", "SYNC", "PBK", "BRK", "PCNT", "CONT", "CAL", "PRET"}


def _followers(last: GpuInstruction, after: int, end: int, places: Mapping[int, int]) -> list[int]:
    """Return where control may go after a block's last instruction; the target of a jump comes last."""
    if not _ends_block(last):
        return [after]
    target = _target(last, places) if last.name == "BRA" else end
    return [after, target] if _conditions(last) and target != after else [target]


def _ends_block(one: GpuInstruction) -> bool:
    if one.name in _STACKED:
        msg = f"{one.name} at {one.address:#x} keeps a place to go to later, as before Volta, which is not followed"
        raise UnknownFlowError(msg)
    if one.name in {"BRX", "BRXU", "JMX", "JMXU", "JMP"}:
        msg = f"the target of the jump {one.name} at {one.address:#x} is computed at run time"
        raise UnknownFlowError(msg)
    # Taken where work-items of a sub-group have parted, to bring them together.
    return one.name in {"BRA", "EXIT", "RET"} and "DIV" not in one.modifiers


def _target(jump: GpuInstruction, places: Mapping[int, int]) -> int:
    address = int(jump.operands[-1], 0)
    if address not in places:
        msg = f"the jump at {jump.address:#x} leads out of the kernel"
        raise UnknownFlowError(msg)
    return places[address]


def _conditions(jump: GpuInstruction) -> list[str]:
    """Return the predicates that must hold for a jump to be taken."""
    inner = {"BRA": jump.operands[:-1], "EXIT": jump.operands}.get(jump.name, ())
    return [text for text in [jump.predicate, *inner] if text not in {"", "PT", "UPT"}]


def taken(lane: Lane, block: GpuBlock) -> bool | Test | Split | Mark:
    """Return whether the jump that ends a block is taken."""
    conditions = _conditions(block.instructions[-1])
    found = [Mark(UNDESCRIBED, text) if (truth := lane.truth(text)) is None else truth for text in conditions]
    if False in found:
        return False
    unknown = [one for one in found if one is not True]
    if len(unknown) > 1:
        axes = axes_of(*unknown)
        return Split(axes) if axes else max(merged(one, None) for one in unknown)
    return unknown[0] if unknown else True


@dataclass(frozen=True)
class Ways:
    """What work-items can do."""

    edges: frozenset[tuple[int, int]]
    # Loops that it can come to, with the iterations of each entry; None where they are not known.
    trips: tuple[tuple[Loop, int | None], ...]
    # Along which ids differ that decide these.
    axes: frozenset[str] = frozenset()

    # Why jumps are not decided, but those that are trips of loops, by their blocks.
    marks: tuple[tuple[int, Mark], ...] = ()


def ways_of(blocks: Sequence[GpuBlock], loops: Sequence[Loop], begin: Lane) -> Ways:
    """Return what work-items can do whose registers are known so far when they begin."""
    trips: dict[Loop, int] = {}
    jumps: dict[int, bool | Test | Split | Mark] = {}
    leaving: dict[tuple[int, int], dict[str, Value]] = {}
    edges: dict[tuple[int, int], Lane] = {}
    axes: frozenset[str] = frozenset()
    for _ in range(_LOOKS):
        edges = _propagated(blocks, {0: begin}, leaving)
        jumps = {source: taken(lane, blocks[source]) for (source, _), lane in edges.items() if blocks[source].jumps}
        axes = axes_of(*jumps.values())
        if axes:
            break
        found = False
        for loop in loops:
            told = None if loop in trips else _iterations(loop, blocks, edges)
            if isinstance(told, Split):
                axes |= told.axes
            elif told is not None:
                trips[loop], after = told
                for way in _exits(loop, edges):
                    leaving[way] = after
                found = True
        if axes or not found:
            break
    met = tuple((loop, trips.get(loop)) for loop in loops if any(edge in edges for edge in loop.back_edges))
    latches = {source for loop in trips for source, _ in loop.back_edges}
    marks = ((source, why) for source, why in jumps.items() if isinstance(why, Mark) and source not in latches)
    return Ways(frozenset(edges), met, axes, tuple(sorted(marks)))


def _propagated(
    blocks: Sequence[GpuBlock],
    begin: Mapping[int, Lane],
    leaving: Mapping[tuple[int, int], Mapping[str, Value]],
    within: frozenset[int] | None = None,
) -> dict[tuple[int, int], Lane]:
    """Return what is known on each edge that can be taken from the first block, inside of some blocks."""
    edges: dict[tuple[int, int], Lane] = {}
    # Blocks from which each is come to, so far.
    sources: dict[int, dict[int, None]] = {}
    states = dict(begin)
    (first,) = begin
    waiting = {first}
    while waiting:
        # In the order of the code, so that most blocks are looked at once.
        number = min(waiting)
        waiting.remove(number)
        block = blocks[number]
        lane = states[number].copy()
        for one in block.instructions:
            lane.step(one)
        told = taken(lane, block) if block.jumps else None
        for place, follower in enumerate(block.followers):
            if isinstance(told, bool) and told == (place == 0):
                continue
            edge = number, follower
            known = lane.copy()
            known.registers.update(leaving.get(edge, {}))
            edges[edge] = known
            sources.setdefault(follower, {})[number] = None
            # A loop's next iteration is another matter where one is looked at.
            if within is not None and (follower not in within or follower == first):
                continue
            incoming = [edges[source, follower] for source in sources[follower]]
            incoming += [begin[follower]] if follower in begin else []
            joined = incoming[0]
            for other in incoming[1:]:
                joined = joined.joined(other)
            if follower not in states or states[follower] != joined:
                states[follower] = joined
                waiting.add(follower)
    return edges


def _exits(loop: Loop, edges: Mapping[tuple[int, int], Lane]) -> list[tuple[int, int]]:
    return [edge for edge in edges if edge[0] in loop.body and edge[1] not in loop.body]


def _iterations(
    loop: Loop, blocks: Sequence[GpuBlock], edges: Mapping[tuple[int, int], Lane]
) -> tuple[int, dict[str, Value]] | Split | None:
    """Return how many iterations each entry of a loop makes, and what registers are known to be after that.

    The loop is left at its one back edge only; what decides there is a register to which each iteration adds a number.
    """
    back = [edge for edge in loop.back_edges if edge in edges]
    entries = [edges[edge] for edge in loop.entries if edge in edges]
    if len(back) != 1 or not entries or any(source != back[0][0] for source, _ in _exits(loop, edges)):
        return None
    start = entries[0]
    for other in entries[1:]:
        start = start.joined(other)
    header = start.joined(edges[back[0]])
    # Registers that iterations change stand for what they were when one began.
    both = (start.registers, edges[back[0]].registers)
    changed = {name for name, value in header.registers.items() if any(one.get(name) != value for one in both)}
    lane = _iteration(loop, blocks, (start, header), {name: Shifted(name, 0) for name in changed}).get(back[0])
    latch = blocks[back[0][0]]
    if lane is None or not latch.jumps:
        return None
    test = taken(lane, latch)
    if latch.followers[1] != loop.header and isinstance(test, Test):
        test = Test(test.relation, test.signed, test.register, test.offset, test.bound, not test.negated)
    if not isinstance(test, Test):
        return None
    first, last = start.registers.get(test.register), lane.registers.get(test.register)
    if not isinstance(first, int | Span) or not isinstance(last, Shifted) or last.register != test.register:
        return None
    count = _counts(test, first, last.offset)
    if not isinstance(count, int):
        return count
    after: dict[str, Value] = {}
    for name, value in lane.registers.items():
        begun = start.registers.get(name)
        if isinstance(value, Shifted) and value.register == name and isinstance(begun, int | Span):
            after[name] = total([begun, value.offset * count & 0xFFFFFFFF])
    return count, after


def _iteration(
    loop: Loop, blocks: Sequence[GpuBlock], begin: tuple[Lane, Lane], changed: Mapping[str, Shifted]
) -> dict[tuple[int, int], Lane]:
    """Return what is known on the edges of a loop in any of its iterations.

    `begin` is what is known before the loop, and before any iteration; `changed` are the registers that iterations
    change, as they are when one begins.
    """
    start, inner = begin[0], begin[1].copy()
    inner.registers |= changed
    edges = _propagated(blocks, {loop.header: inner}, {}, loop.body)
    ends_of = [edges[edge].registers for edge in loop.back_edges if edge in edges]
    # Upper words of counters do not change, which only this tells.
    kept = (name for name, value in changed.items() if all(one.get(name) == value for one in ends_of))
    known = {name: start.registers[name] for name in kept if isinstance(start.registers.get(name), int | Span)}
    if not ends_of or not known:
        return edges
    inner.registers |= known
    return _propagated(blocks, {loop.header: inner}, {}, loop.body)


def _counts(test: Test, first: int | Span, step: int) -> int | Split | None:
    """Return how often a loop runs that goes on while a test holds."""
    axes, starts = axes_of(first, test.bound), ends(first)
    # Counts only grow, or only fall, from one end to the other, but where equality is tested or counters wrap.
    turns = 1 << (31 if test.signed else 32)
    wraps = len({(start + test.offset) // turns for start in starts}) > 1
    if axes and (wraps or test.relation in {"EQ", "NE"}):
        return Split(axes)
    bounds = ends(test.bound, is_signed=test.signed)
    found = {_count(replace(test, bound=bound), start, step) for bound in bounds for start in starts}
    return Split(axes) if len(found) > 1 else found.pop()


def _count(test: Test, first: int, step: int) -> int | None:
    """Return how often a loop runs that goes on while a test holds."""

    def number(value: int) -> int:
        value &= 0xFFFFFFFF
        return value - (1 << 32) if test.signed and value >> 31 else value

    bound, start = number(ends(test.bound)[0]), number(first + test.offset)
    relation = test.relation
    if test.negated:
        relation = {"LT": "GE", "GE": "LT", "GT": "LE", "LE": "GT", "EQ": "NE", "NE": "EQ"}[relation]
    if not compare(relation, start, bound):
        return 1
    if relation == "EQ":
        return 2 if step else None
    distance = bound - start
    if relation == "NE":
        # Counters wrap: those that come up to zero from below begin at large numbers where these have no sign.
        way = (distance if step > 0 else -distance) & 0xFFFFFFFF
        return way // abs(step) + 1 if step and not way % abs(step) else None
    if (relation in {"LT", "LE"}) != (step > 0) or not step:
        return None
    inclusive = relation in {"LE", "GE"}
    count = (abs(distance) + (1 if inclusive else 0) + abs(step) - 1) // abs(step) + 1
    return count if count < _LONGEST else None
