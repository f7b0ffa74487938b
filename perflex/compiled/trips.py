"""Trip counts of loops whose counter starts, steps and ends at numbers that are known before the launch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perflex.compiled.conditions import signed
from perflex.compiled.instructions import register
from perflex.compiled.values import join, operand_bits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.compiled.control_flow import Block, Loop
    from perflex.compiled.instructions import Instruction
    from perflex.compiled.values import Propagation, Value

_LONGEST = 10**12


def trip_count(loop: Loop, blocks: Sequence[Block], known: Propagation) -> int | None:
    """Return how many iterations each entry of a loop makes; None where that is not known.

    The loop has one back edge, which a comparison of a counter with a fixed number decides; each iteration adds a
    fixed number to the counter once.
    """
    if len(loop.back_edges) != 1:
        return None
    latch, header = loop.back_edges[0]
    block = blocks[latch]
    jump = block.instructions[-1]
    if len(block.followers) != 2 or jump.name == "jmp":
        return None
    place = _comparison(block)
    if place is None:
        return None
    compared = block.instructions[place]
    # Control stays in the loop where the condition holds, or where it does not.
    condition = jump.name[1:] if block.followers[1] == header else _inverse(jump.name[1:])
    state = known.after(latch, place)
    counter = register(compared.operands[0])
    step = _step(loop, blocks, counter)
    start = _start(loop, known, counter)
    if step is None or not isinstance(start, int) or "[" in compared.operands[0]:
        return None
    bits = operand_bits(compared.operands[0])
    if compared.name == "cmp":
        bound = known.read(state, compared.operands[1], compared)
        # Whether the counter was increased before it is compared, as usual.
        increased = _increased_before(blocks, counter, latch, place)
    else:
        bound, increased = 0, True
    if not isinstance(bound, int):
        return None
    return _iterations(condition, signed(start, bits) + (step if increased else 0), step, signed(bound, bits))


def _comparison(block: Block) -> int | None:
    """Return the place of what sets the flags of a block's jump, if it is a comparison or the counter's own step."""
    for place in range(len(block.instructions) - 2, -1, -1):
        one = block.instructions[place]
        if one.name in {"cmp", "add", "sub", "inc", "dec"}:
            return place
        if not one.name.startswith(("mov", "v", "lea", "nop", "k")) or one.name.startswith(
            ("vptest", "vucomi", "vcomi", "ko", "kt")
        ):
            return None
    return None


def _step(loop: Loop, blocks: Sequence[Block], counter: str) -> int | None:
    changes = [one for number in loop.body for one in blocks[number].instructions if _changes(one, counter)]
    if len(changes) != 1:
        return None
    one = changes[0]
    if one.name in {"inc", "dec"}:
        return 1 if one.name == "inc" else -1
    if one.name in {"add", "sub"} and one.operands[1][0] in "-0123456789":
        amount = signed(int(one.operands[1], 0), 64)
        return amount if one.name == "add" else -amount
    return None


def _changes(one: Instruction, counter: str) -> bool:
    if not one.operands or one.name.startswith(("cmp", "test", "j", "push", "nop", "bt")):
        return False
    if one.name == "call":
        return counter in {"rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11"}
    return "[" not in one.operands[0] and register(one.operands[0]) == counter


def _increased_before(blocks: Sequence[Block], counter: str, latch: int, place: int) -> bool:
    in_latch = [number for number, one in enumerate(blocks[latch].instructions) if _changes(one, counter)]
    return not in_latch or in_latch[0] < place


def _start(loop: Loop, known: Propagation, counter: str) -> Value:
    starts = [
        known.after(source).registers.get(counter) for source, _ in loop.entries if (source, loop.header) in known.edges
    ]
    if not starts:
        return None
    value = starts[0]
    for other in starts[1:]:
        value = join(value, other)
    return value


def _inverse(condition: str) -> str:
    pairs = {"e": "ne", "l": "ge", "le": "g", "b": "ae", "be": "a", "s": "ns"}
    pairs |= {other: one for one, other in pairs.items()}
    return pairs.get(condition, "")


def _iterations(condition: str, first: int, step: int, bound: int) -> int | None:
    """Return how often a loop runs whose counter is `first` at its first comparison."""
    if condition in {"ne", "nz"}:
        distance = bound - first
        if not step or distance % step or distance // step < 0:
            return None
        return distance // step + 1
    # In all others the counter approaches the bound from the side on which the loop goes on.
    upward = {"l": 0, "b": 0, "le": 1, "be": 1, "c": 0}
    downward = {"g": 0, "a": 0, "ge": 1, "ae": 1, "ns": 1}
    if condition in upward and step > 0:
        left = bound + upward[condition] - first
        return max(0, -(-left // step)) + 1 if left < _LONGEST else None
    if condition in downward and step < 0:
        left = first + downward[condition] - bound
        return max(0, -(-left // -step)) + 1 if left < _LONGEST else None
    return None
