"""Values that are the same whenever a block begins: constants and pointers, followed along the ways control may go.

Sparse conditional constant propagation (M. Wegman, F. Zadeck, TOPLAS 13, 1991) over general registers and stack slots:
sizes, local sizes and pointers that a launch passes are known, work-group numbers and loaded data are not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from perflex.compiled.instructions import register

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.compiled.control_flow import Block
    from perflex.compiled.instructions import Address, Instruction


@dataclass(frozen=True)
class Flags:
    """What set the flags."""

    # "compared" for the difference of `left` and `right`, "result" for an operation whose result is `left`.
    kind: str
    # The numbers, of which the lowest `bits` count.
    left: int
    right: int
    bits: int


def signed(value: int, bits: int) -> int:
    """Return a number of so many bits as a signed one."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def holds(condition: str, flags: Flags) -> bool | None:
    """Return whether a condition such as ``"ne"`` holds; None where the flags do not tell."""
    inverse = {"ne": "e", "nz": "e", "ge": "l", "nl": "l", "g": "le", "nle": "le", "ae": "b", "nb": "b", "nc": "b",
               "a": "be", "nbe": "be", "ns": "s"}  # fmt: skip
    if condition in inverse:
        found = holds(inverse[condition], flags)
        return None if found is None else not found
    mask = (1 << flags.bits) - 1
    left, right = flags.left & mask, flags.right & mask
    if condition in {"e", "z"}:
        return left == right
    if condition == "s":
        return signed(left - right, flags.bits) < 0
    if condition in {"l", "le"}:
        # Of other operations than comparisons only those that cannot overflow are followed.
        less = signed(left, flags.bits) < signed(right, flags.bits)
        return less or (condition == "le" and left == right)
    if flags.kind == "compared" and condition in {"b", "c", "be"}:
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
_NO_RESULT = ("cmp", "test", "vptest", "kortest", "ktest", "ucomi", "vucomi", "comi", "vcomi", "bt")
_CALLER_SAVED = ("rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11")
_BITS = {"al": 8, "ax": 16}
# States that still change after so many visits of a block count as unknown.
_MOST_VISITS = 40


@dataclass
class State:
    """Values of registers, and what the last comparison compared."""

    registers: dict[str, Value] = field(default_factory=dict)
    flags: Flags | None = None

    def copy(self) -> State:
        """Return a state of its own."""
        return State(dict(self.registers), self.flags)

    def joined(self, other: State) -> State:
        """Return what is the same in both."""
        names = self.registers.keys() & other.registers.keys()
        values = {name: join(self.registers[name], other.registers[name]) for name in names}
        return State(values, self.flags if self.flags == other.flags else None)


def join(one: Value, other: Value) -> Value:
    """Return what two values have in common."""
    if one == other:
        return one
    if isinstance(one, Pointer) and isinstance(other, Pointer):
        return Pointer(one.region if one.region == other.region else "several", None)
    return None


class Propagation:
    """The values of a function."""

    def __init__(self, blocks: Sequence[Block], entry: Mapping[str, Value], memory: Memory) -> None:
        self._blocks = blocks
        self._memory = memory
        self._slots: dict[tuple[str, int], Value] = {}
        # At the beginning of each block; None for blocks that are never reached.
        self.before: list[State | None] = [None] * len(blocks)
        # Those that control can take.
        self.edges: set[tuple[int, int]] = set()
        self.before[0] = State(dict(entry))
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
        changed, rounds = True, 0
        # Slots may change what blocks load that were visited before: all are visited until nothing changes.
        while changed and rounds < _MOST_VISITS:
            changed, rounds = False, rounds + 1
            slots = dict(self._slots)
            for number, block in enumerate(self._blocks):
                if self.before[number] is None:
                    continue
                state = self.after(number)
                for follower in self._taken(block, state):
                    self.edges.add((number, follower))
                    known = self.before[follower]
                    merged = state.copy() if known is None else known.joined(state)
                    if known is None or merged != known:
                        self.before[follower] = merged
                        changed = True
            changed = changed or slots != self._slots

    def _taken(self, block: Block, state: State) -> tuple[int, ...]:
        last = block.instructions[-1]
        if len(block.followers) < 2 or state.flags is None:
            return block.followers
        outcome = holds(last.name[1:], state.flags)
        return block.followers if outcome is None else (block.followers[int(outcome)],)

    def step(self, state: State, one: Instruction) -> None:
        """Change a state as an instruction does."""
        name = one.name
        if not one.operands or name.startswith("j") or name in {"nop", "push", "pop", "leave"}:
            if name in {"push", "pop"}:
                self._stack(state, one)
            return
        if name == "call":
            state.flags = None
            for saved in _CALLER_SAVED:
                state.registers[saved] = None
            return
        if one.width or name.startswith(("k", "v")):
            self._vector(state, one)
            return
        result = self._result(state, one)
        if not name.startswith(_NO_RESULT):
            self._write(state, one, result)

    def _stack(self, state: State, one: Instruction) -> None:
        size = -8 if one.name == "push" else 8
        state.registers["rsp"] = _plus(state.registers.get("rsp"), size)
        if one.name == "pop":
            state.registers[register(one.operands[0])] = None

    def _vector(self, state: State, one: Instruction) -> None:
        """Forget what a vector instruction writes: general registers, and the slots that it stores to."""
        address = one.memory
        if address is not None and one.writes_memory:
            place = self.place(state, address)
            if place.offset is not None and place.region.startswith("frame"):
                # Slots that only a vector was stored to are of 8 bytes.
                for byte in range(place.offset, place.offset + max(address.width, 8), 4):
                    if byte % 8 == 0 or (place.region, byte) in self._slots:
                        self._slots[place.region, byte] = None
        elif (target := register(one.operands[0])).startswith("r"):
            state.registers[target] = None
        if one.name.startswith(_NO_RESULT):
            state.flags = None

    def place(self, state: State, address: Address) -> Pointer:
        """Return where an address points, as far as that is known."""
        if address.base == "rip" or (not address.base and not address.index):
            return Pointer("constants", None)
        base = state.registers.get(address.base) if address.base else 0
        index = state.registers.get(address.index) if address.index else 0
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
        key = (place.region, place.offset)
        found = self._slots.get(key) if key in self._slots else self._memory.get(key)
        return found & ((1 << 8 * address.width) - 1) if isinstance(found, int) and address.width else found

    def read(self, state: State, operand: str, one: Instruction) -> Value:
        """Return the value of an operand of an instruction, before it is executed."""
        if "[" in operand:
            return self._load(state, one.memory) if one.memory is not None else None
        if operand[0].isdigit() or operand[0] == "-":
            return int(operand, 0)
        value = state.registers.get(register(operand))
        if isinstance(value, int) and operand_bits(operand) < 64:
            return value & ((1 << operand_bits(operand)) - 1)
        return value

    def _write(self, state: State, one: Instruction, value: Value) -> None:
        target = one.operands[0]
        if "[" in target:
            address = one.memory
            place = Pointer("unknown", None) if address is None else self.place(state, address)
            if place.offset is not None and place.region.startswith("frame"):
                key = (place.region, place.offset)
                self._slots[key] = join(self._slots[key], value) if key in self._slots else value
            return
        bits = operand_bits(target)
        if isinstance(value, int):
            value &= (1 << bits) - 1
        # Writing 32 bits clears the others; writing fewer keeps them.
        state.registers[register(target)] = value if bits >= 32 else None

    def _result(self, state: State, one: Instruction) -> Value:
        name, operands = one.name, one.operands
        bits = operand_bits(operands[0]) if "[" not in operands[0] else 8 * (one.memory.width if one.memory else 8)
        if name == "lea":
            return self._address_value(state, one)
        values = [self.read(state, operand, one) for operand in operands]
        if name.startswith("cmov"):
            outcome = None if state.flags is None else holds(name[4:], state.flags)
            return join(values[0], values[1]) if outcome is None else values[int(outcome)]
        if name.startswith("mov"):
            return _moved(name, values[1], operands[1], one)
        if name == "xor" and operands[0] == operands[1]:
            state.flags = Flags("result", 0, 0, bits)
            return 0
        left = values[0]
        result = _computed(name, values, bits)
        state.flags = _flags(name, values, result, bits, state.flags)
        if result is None and name == "and" and isinstance(left, Pointer) and left.region.startswith("frame"):
            # An aligned frame: what lies where relative to the old one is not known, and need not be.
            return Pointer(f"frame@{one.address:x}", 0)
        return result

    def _address_value(self, state: State, one: Instruction) -> Value:
        address = one.memory
        if address is None:
            return None
        base = state.registers.get(address.base) if address.base else 0
        index = state.registers.get(address.index) if address.index else 0
        if isinstance(base, Pointer) or isinstance(index, Pointer):
            return self.place(state, address)
        if isinstance(base, int) and isinstance(index, int):
            return (base + index * address.scale + address.displacement) & _MASK
        return None


def operand_bits(operand: str) -> int:
    """Return how many bits a general register has, by its name in an instruction."""
    if operand.startswith("e") or (operand.startswith("r") and operand.endswith("d")):
        return 32
    if operand.startswith("r") and operand[-1] not in "wb":
        return 64
    return 8 if operand.endswith(("l", "h", "b")) else 16


def _moved(name: str, value: Value, source: str, one: Instruction) -> Value:
    if not isinstance(value, int) or not name.startswith(("movsx", "movs")):
        return value
    width = 8 * (one.memory.width if "[" in source and one.memory else operand_bits(source) // 8)
    return signed(value, width) & _MASK


def _plus(value: Value, amount: int) -> Value:
    if isinstance(value, Pointer):
        return Pointer(value.region, None if value.offset is None else value.offset + amount)
    return None if value is None else (value + amount) & _MASK


def _computed(name: str, values: Sequence[Value], bits: int) -> Value:
    """Return the result of integer arithmetic; None where it varies."""
    left, right = values[0], values[1] if len(values) > 1 else None
    if name in {"inc", "dec"}:
        return _plus(left, 1 if name == "inc" else -1)
    if isinstance(left, Pointer) or isinstance(right, Pointer):
        return _moved_pointer(name, left, right, bits)
    if name == "imul" and len(values) == 3:
        left, right = values[1], values[2]
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


def _of_numbers(name: str, left: int, right: int, bits: int) -> int | None:
    shift = right & (63 if bits == 64 else 31)
    mask = (1 << bits) - 1
    return {
        "add": left + right,
        "sub": left - right,
        "cmp": left - right,
        "and": left & right,
        "test": left & right,
        "or": left | right,
        "xor": left ^ right,
        "imul": left * right,
        "shl": left << shift,
        "sal": left << shift,
        "shr": (left & mask) >> shift,
        "sar": signed(left, bits) >> shift,
    }.get(name)


def _flags(name: str, values: Sequence[Value], result: Value, bits: int, before: Flags | None) -> Flags | None:
    if name == "not":
        return before
    left, right = values[0], values[1] if len(values) > 1 else None
    if name in {"cmp", "sub"}:
        return Flags("compared", left, right, bits) if isinstance(left, int) and isinstance(right, int) else None
    return Flags("result", result, 0, bits) if isinstance(result, int) else None
