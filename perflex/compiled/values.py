"""Values that are the same whenever a block begins: constants and pointers, followed along the ways control may go.

Sparse conditional constant propagation (M. Wegman, F. Zadeck, TOPLAS 13, 1991) over general registers and stack slots:
sizes, local sizes and pointers that a launch passes are known, work-group numbers and loaded data are not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from perflex.compiled.decoding import Address, Register

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.compiled.control_flow import Block, Loop
    from perflex.compiled.decoding import Instruction, Operand


@dataclass(frozen=True)
class Flags:
    """What set the flags."""

    # "compared" for the difference of `left` and `right`, "result" for an operation whose result is `left`, "shifted"
    # for a shift, which sets the overflow flag in its own way.
    kind: str
    # The numbers, of which the lowest `bits` count.
    left: int
    right: int
    bits: int


INVERSE = {"ne": "e", "ge": "l", "g": "le", "ae": "b", "a": "be", "ns": "s"}
"""Conditions, each with the one that holds where it does not."""
INVERSE |= {other: one for one, other in INVERSE.items()}


def signed(value: int, bits: int) -> int:
    """Return a number of so many bits as a signed one."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def holds(condition: str, flags: Flags) -> bool | None:
    """Return whether a condition such as ``"ne"`` holds; None where the flags do not tell."""
    if condition in {"ne", "ge", "g", "ae", "a", "ns"}:
        found = holds(INVERSE[condition], flags)
        return None if found is None else not found
    mask = (1 << flags.bits) - 1
    left, right = flags.left & mask, flags.right & mask
    if condition == "e":
        return left == right
    if condition == "s":
        return signed(left - right, flags.bits) < 0
    if condition in {"l", "le"} and flags.kind != "shifted":
        # Of other operations than comparisons only those that cannot overflow are followed.
        less = signed(left, flags.bits) < signed(right, flags.bits)
        return less or (condition == "le" and left == right)
    if flags.kind == "compared" and condition in {"b", "be"}:
        return left < right or (condition == "be" and left == right)
    return None


@dataclass(frozen=True)
class Pointer:
    """An address: the memory that it points into, and the byte in it, None where that varies."""

    region: str
    offset: int | None = 0


# None is a value that varies, or that nothing is known of.
Value: TypeAlias = "int | Pointer | None"
# What lies in memory when a function begins, by region and byte.
Memory: TypeAlias = "Mapping[tuple[str, int], int | Pointer]"

_MASK = (1 << 64) - 1
COUNTER = "counter "
"""What regions of counters begin with."""
_VECTOR_BYTES = 64
_ARGUMENTS = ("rdi", "rsi", "rdx", "rcx", "r8", "r9")
_CALLER_SAVED = (*_ARGUMENTS, "rax", "r10", "r11")


# A register, or a stack slot: the memory that it lies in, its first byte there and its bytes.
Place: TypeAlias = "str | tuple[str, int, int]"


@dataclass
class State:
    """Values of registers and stack slots, and what the last comparison compared."""

    values: dict[Place, Value] = field(default_factory=dict)
    flags: Flags | None = None

    def copy(self) -> State:
        """Return a state of its own."""
        return State(dict(self.values), self.flags)

    def joined(self, other: State) -> State:
        """Return what is the same in both."""
        places = self.values.keys() & other.values.keys()
        values = {place: join(self.values[place], other.values[place]) for place in places}
        return State(values, self.flags if self.flags == other.flags else None)

    def store(self, place: Pointer, width: float, value: Value) -> None:
        """Put a value into a stack slot, and forget those that overlap with it."""
        if place.offset is None or not place.region.startswith("frame"):
            return
        begin, end = place.offset, place.offset + width
        for key in list(self.values):
            if not isinstance(key, str) and key[0] == place.region and key[1] < end and begin < key[1] + key[2]:
                del self.values[key]
        if width <= 8:
            self.values[place.region, begin, int(width)] = _lowest(value, 8 * int(width))


def join(one: Value, other: Value) -> Value:
    """Return what two values have in common."""
    if one == other:
        return one
    if isinstance(one, Pointer) and isinstance(other, Pointer):
        return Pointer(one.region if one.region == other.region else "several", None)
    return None


class Propagation:
    """The values of a function, or of one iteration of a loop in it.

    Parameters
    ----------
    blocks, entry, memory
        The function's; what is known of registers when it, or the iteration, begins; what is known of memory.
    loop
        The loop.
    """

    def __init__(
        self, blocks: Sequence[Block], entry: Mapping[Place, Value], memory: Memory, loop: Loop | None = None
    ) -> None:
        self._blocks = blocks
        self._memory = memory
        self._loop = loop
        # At the beginning of each block; None for blocks that are never reached.
        self.before: list[State | None] = [None] * len(blocks)
        # Those that control can take.
        self.edges: set[tuple[int, int]] = set()
        self.before[0 if loop is None else loop.header] = State(dict(entry))
        self._run()

    def after(self, number: int, count: int | None = None) -> State:
        """Return the state after a block, or after its first `count` instructions."""
        state = self.before[number]
        if state is None:
            return State()
        state = state.copy()
        for one in self._blocks[number].instructions[:count]:
            self.step(state, one)
        return state

    def _run(self) -> None:
        waiting = {number for number, state in enumerate(self.before) if state is not None}
        # This ends, for joining makes values only less known.
        while waiting:
            number = min(waiting)
            waiting.remove(number)
            state = self.after(number)
            for follower in self._taken(self._blocks[number], state):
                self.edges.add((number, follower))
                if self._reach(follower, state):
                    waiting.add(follower)

    def _reach(self, follower: int, state: State) -> bool:
        """Join a state with that at the beginning of a block; return whether that changes it."""
        if self._loop is not None and (follower == self._loop.header or follower not in self._loop.body):
            return False
        known = self.before[follower]
        merged = state.copy() if known is None else known.joined(state)
        self.before[follower] = merged
        return merged != known

    def _taken(self, block: Block, state: State) -> tuple[int, ...]:
        last = block.instructions[-1]
        if len(block.followers) < 2 or state.flags is None:
            return block.followers
        outcome = holds(last.name[1:], state.flags)
        return block.followers if outcome is None else (block.followers[int(outcome)],)

    def iteration(self, loop: Loop) -> tuple[State, Propagation]:
        """Return what is known before a loop, and the values of one iteration.

        Registers and slots that iterations change, and whose first value is known, point in it into regions of their
        own, such as ``"counter rax"``.
        """
        starts = [self.after(source) for source, header in loop.entries if (source, header) in self.edges]
        start = starts[0] if starts else State()
        for other in starts[1:]:
            start = start.joined(other)
        before = self.before[loop.header]
        values = {} if before is None else dict(before.values)
        for place, value in start.values.items():
            known = value.offset is not None if isinstance(value, Pointer) else value is not None
            if known and values.get(place) != value:
                values[place] = Pointer(f"{COUNTER}{place}")
        return start, Propagation(self._blocks, values, self._memory, loop)

    def step(self, state: State, one: Instruction) -> None:
        """Change a state as an instruction does: what it writes, and is not described here, becomes unknown."""
        results, flags = ([], None) if one.repeated else self._results(state, one)
        changed: dict[str, Value] = dict.fromkeys(_CALLER_SAVED if one.flow == "call" else one.writes)
        for target, value in results:
            if isinstance(target, Register) and target.name in changed:
                changed[target.name] = _put(state.values.get(target.name), target, value)
        stored = dict(results)
        for access in one.accesses:
            if access.stores:
                # Where an index is not known, it is one of an array, whose elements are not followed.
                place = self.place(state, access.address)
                state.store(place, math.inf if one.repeated else access.address.width, stored.get(access.address))
        if one.flow == "call":
            # It may store a vector where an argument points to.
            for value in [state.values.get(name) for name in _ARGUMENTS]:
                if isinstance(value, Pointer):
                    state.store(value, _VECTOR_BYTES, None)
        # Vectors are not followed.
        state.values.update({name: value if name.startswith("r") else None for name, value in changed.items()})
        if one.changes_flags or one.flow == "call":
            state.flags = flags

    def place(self, state: State, address: Address) -> Pointer:
        """Return where an address points, as far as that is known."""
        if address.base == "rip" or (not address.base and not address.index):
            return Pointer("constants", None)
        base = state.values.get(address.base) if address.base else 0
        index = state.values.get(address.index) if address.index else 0
        if not isinstance(base, Pointer) and isinstance(index, Pointer) and address.scale == 1:
            base, index = index, base
        if not isinstance(base, Pointer):
            return Pointer("unknown", None)
        if base.offset is None or not isinstance(index, int):
            return Pointer(base.region, None)
        return Pointer(base.region, base.offset + signed(index, 64) * address.scale + address.displacement)

    def _load(self, state: State, address: Address) -> Value:
        place = self.place(state, address)
        if place.offset is None:
            return None
        for width in (address.width, 8):
            if (slot := (place.region, place.offset, width)) in state.values:
                return _lowest(state.values[slot], 8 * address.width)
        low, upper = (self._memory.get((place.region, place.offset + byte)) for byte in (0, 4))
        if address.width != 8 or upper is None:
            return _lowest(low, 8 * address.width)
        return low | upper << 32 if isinstance(low, int) and isinstance(upper, int) else None

    def read(self, state: State, operand: Operand) -> Value:
        """Return the value of an operand of an instruction, before it is executed."""
        if isinstance(operand, int):
            return operand
        if isinstance(operand, Address):
            return self._load(state, operand)
        value = state.values.get(operand.name)
        return None if operand.high else _lowest(value, operand.bits)

    def _results(  # noqa: PLR0911 - a branch for each kind
        self, state: State, one: Instruction
    ) -> tuple[list[tuple[Operand, Value]], Flags | None]:
        """Return what an instruction makes of its operands and of implicit registers, and what it compares."""
        name, operands = one.name, one.operands
        if name in _EXTENSIONS:
            target, source = _EXTENSIONS[name]
            value = self.read(state, source)
            wide = signed(value, source.bits) if isinstance(value, int) else None
            return [(target, wide >> source.bits if wide is not None and target.name == "rdx" else wide)], None
        if not operands:
            return [], None
        bits, values = bits_of(operands[0]), [self.read(state, operand) for operand in operands]
        if name == "lea":
            return [(operands[0], self._address_value(state, one))], None
        if name in {"push", "pop"}:
            return [(_STACK, _plus(state.values.get("rsp"), -(bits // 8) if name == "push" else bits // 8))], None
        if name == "xchg":
            return [(operands[0], values[1]), (operands[1], values[0])], None
        if name in {"mul", "div", "idiv"} or (name == "imul" and len(operands) == 1):
            low, high = Register("rax", bits), Register("rdx", bits)
            parts = _double(name, [self.read(state, low), self.read(state, high), values[0]], bits)
            # Of 8 bits, both results lie in ax.
            return list(zip((low, high), parts, strict=True)) if bits > 8 else [], None
        if name.startswith(("cmov", "set")):
            choices = values if name.startswith("cmov") else [0, 1]
            outcome = None if state.flags is None else holds(name.removeprefix("cmov").removeprefix("set"), state.flags)
            return [(operands[0], join(*choices) if outcome is None else choices[int(outcome)])], None
        if name in _MOVES:
            value = values[1]
            if isinstance(value, int) and name.startswith("movsx"):
                value = signed(value, bits_of(operands[1]))
            return [(operands[0], value)], None
        result = self._arithmetic(one, values, bits)
        return [(operands[0], result)], _flags(name, values, result, bits, state.flags)

    @staticmethod
    def _arithmetic(one: Instruction, values: Sequence[Value], bits: int) -> Value:
        if one.name == "xor" and one.operands[0] == one.operands[1]:
            return 0
        left, right = (*values, None)[:2] if len(values) < 3 else values[1:3]
        if one.name == "and" and isinstance(left, Pointer) and left.region.startswith("frame"):
            # An aligned frame: what lies where relative to the old one is not known, and need not be.
            return Pointer(f"frame@{one.address:x}")
        return _computed(one.name, left, right, bits)

    def _address_value(self, state: State, one: Instruction) -> Value:
        address = one.memory
        if address is None:
            return None
        base = state.values.get(address.base) if address.base else 0
        index = state.values.get(address.index) if address.index else 0
        if isinstance(base, Pointer) or isinstance(index, Pointer):
            return self.place(state, address)
        if isinstance(base, int) and isinstance(index, int):
            return (base + index * address.scale + address.displacement) & _MASK
        return None


_STACK = Register("rsp", 64)
_MOVES = {"mov", "movzx", "movsx", "movsxd"}
_SHIFTS = {"shl", "shr", "sar"}
# Instructions that extend a sign: what they write, and of what.
_EXTENSIONS = {
    "cwde": (Register("rax", 32), Register("rax", 16)),
    "cdqe": (Register("rax", 64), Register("rax", 32)),
    "cwd": (Register("rdx", 16), Register("rax", 16)),
    "cdq": (Register("rdx", 32), Register("rax", 32)),
    "cqo": (Register("rdx", 64), Register("rax", 64)),
}


def bits_of(operand: Operand) -> int:
    """Return how many bits an operand has; numbers have 64."""
    if isinstance(operand, Register):
        return operand.bits
    return 8 * operand.width if isinstance(operand, Address) else 64


def _lowest(value: Value, bits: int) -> Value:
    """Return the lowest bits of a value; what counts or points is known only where at least 32 are kept."""
    if isinstance(value, int) and bits:
        return value & ((1 << bits) - 1)
    return value if bits >= 32 else None


def _put(before: Value, place: Register, value: Value) -> Value:
    """Return what a register holds when a part of it is written."""
    # Writing 32 bits clears the others; writing fewer keeps them.
    if place.bits >= 32:
        return _lowest(value, place.bits)
    if place.high or not isinstance(before, int) or not isinstance(value, int):
        return None
    mask = (1 << place.bits) - 1
    return before & ~mask | value & mask


def _plus(value: Value, amount: int) -> Value:
    if isinstance(value, Pointer):
        return Pointer(value.region, None if value.offset is None else value.offset + amount)
    return None if value is None else (value + amount) & _MASK


def _double(name: str, values: Sequence[Value], bits: int) -> tuple[Value, Value]:
    """Return the lower and the upper half of a product, or a quotient and what is left."""
    low, upper, operand = values
    if not isinstance(low, int) or not isinstance(operand, int):
        return None, None
    if name == "imul":
        product = signed(low, bits) * signed(operand, bits)
        return product, product >> bits
    if name == "mul":
        return low * operand, low * operand >> bits
    if not isinstance(upper, int):
        return None, None
    whole = upper << bits | low
    if name == "idiv":
        whole, operand = signed(whole, 2 * bits), signed(operand, bits)
    if not operand:
        return None, None
    quotient = abs(whole) // abs(operand) * (1 if (whole < 0) == (operand < 0) else -1)
    return quotient, whole - quotient * operand


def _computed(name: str, left: Value, right: Value, bits: int) -> Value:
    """Return the result of integer arithmetic; None where it varies."""
    if name in {"inc", "dec"}:
        return _plus(left, 1 if name == "inc" else -1)
    if isinstance(left, Pointer) or isinstance(right, Pointer):
        return _moved_pointer(name, left, right, bits)
    if name in {"neg", "not"} and isinstance(left, int):
        return -left if name == "neg" else ~left
    if not isinstance(left, int) or not isinstance(right, int):
        return None
    return _of_numbers(name, left, right, bits)


def _moved_pointer(name: str, left: Value, right: Value, bits: int) -> Value:
    if name == "add" and isinstance(right, Pointer):
        left, right = right, left
    if name not in {"add", "sub"} or not isinstance(left, Pointer) or isinstance(right, Pointer):
        return None
    if right is None:
        return Pointer(left.region, None)
    right = signed(right, bits)
    return _plus(left, right if name == "add" else -right)


def _amount(value: int, bits: int) -> int:
    """Return by how many bits a shift moves an operand of so many."""
    return value & (63 if bits == 64 else 31)


def _of_numbers(name: str, left: int, right: int, bits: int) -> int | None:
    shift = _amount(right, bits)
    mask = (1 << bits) - 1
    return {
        "add": left + right,
        "sub": left - right,
        "cmp": left - right,
        "and": left & right,
        "andn": ~left & right,
        "test": left & right,
        "or": left | right,
        "xor": left ^ right,
        "imul": left * right,
        "shl": left << shift,
        "shlx": left << shift,
        "shr": (left & mask) >> shift,
        "shrx": (left & mask) >> shift,
        "sar": signed(left, bits) >> shift,
        "sarx": signed(left, bits) >> shift,
    }.get(name)


def _flags(name: str, values: Sequence[Value], result: Value, bits: int, before: Flags | None) -> Flags | None:
    left, right = values[0], values[1] if len(values) > 1 else None
    if name in {"cmp", "sub"}:
        return Flags("compared", left, right, bits) if isinstance(left, int) and isinstance(right, int) else None
    if name in _SHIFTS and isinstance(right, int) and not _amount(right, bits):
        # A shift by 0 bits keeps them.
        return before
    kind = "shifted" if name in _SHIFTS else "result"
    return Flags(kind, result, 0, bits) if isinstance(result, int) else None
