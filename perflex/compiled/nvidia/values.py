"""Values of registers and predicates of work-items, as far as they follow from ids and the kernel's arguments.

An id is a number, or a range of numbers; so is what is computed from it. What instructions do is taken from the tables
of NVIDIA's CUDA Binary Utilities and from code whose source is known; an instruction that is not described here makes
its results unknown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import takewhile
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from perflex.compiled.nvidia.spans import Span, Split, axes_of, either, logical, monotone, related, signed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from perflex.compiled.nvidia.cubin import GpuInstruction

_MASK = 0xFFFFFFFF
_REGISTER = re.compile(r"(U?R)(\d+)$")
_PREDICATE = re.compile(r"!?(U?P(?:\d+|T))$")
_CONSTANT = re.compile(r"c\[0x0\]\[(0x[0-9a-f]+)\]$")
_NUMBER = re.compile(r"0x[0-9a-f]+$|\d+$")
_ZERO, _TRUE = {"RZ", "URZ"}, {"PT", "UPT"}
_PAIRS = {"WIDE", "64", "F64", "S64", "U64", "B64"}


@dataclass(frozen=True)
class Shifted:
    """What a register was when a loop's iteration began, plus a number."""

    register: str
    offset: int


@dataclass(frozen=True)
class Test:
    """Whether what a register was when an iteration began, plus an offset, compares so with a number."""

    relation: str
    signed: bool
    register: str
    offset: int
    bound: int | Span
    negated: bool = False


Value: TypeAlias = int | Span | Shifted | None
Truth: TypeAlias = bool | Test | Split | None


@dataclass
class Lane:
    """Registers and predicates that are known; others are not.

    Attributes
    ----------
    registers, predicates
        By name.
    special
        Of special registers, such as ``SR_TID.X``.
    constants
        Words of constant bank 0, by their first byte.
    """

    registers: dict[str, Value]
    predicates: dict[str, Truth]
    special: Mapping[str, int | Span]
    constants: Mapping[int, int]

    def copy(self) -> Lane:
        """Return a copy whose registers can be changed."""
        return Lane(dict(self.registers), dict(self.predicates), self.special, self.constants)

    def joined(self, other: Lane) -> Lane:
        """Return what is the same in both."""
        return replace(
            self,
            registers={key: one for key, one in self.registers.items() if other.registers.get(key) == one},
            predicates={key: one for key, one in self.predicates.items() if other.predicates.get(key) == one},
        )

    def truth(self, text: str) -> Truth:
        """Return the value of a predicate, ``"P0"`` or ``"!P0"``; True for an empty text."""
        name = text.removeprefix("!")
        value = True if not name or name in _TRUE else self.predicates.get(name)
        if not text.startswith("!") or value is None or isinstance(value, Split):
            return value
        return replace(value, negated=not value.negated) if isinstance(value, Test) else not value

    def value(self, text: str) -> Value:
        """Return the value of an operand of 32 bits."""
        if (known := self.registers.get(text)) is not None:
            return known
        if text.startswith("-"):
            found = self.value(text[1:])
            return monotone(lambda value: -value, [found])
        if text in _ZERO:
            return 0
        kind, number = _parsed(text)
        return number if kind == "number" else self.constants.get(number) if kind == "constant" else None

    def step(self, one: GpuInstruction) -> None:
        """Carry out an instruction."""
        guard = self.truth(one.predicate)
        if guard is False:
            return
        places = changed_by(one)
        before = [(self.registers.get(place), self.predicates.get(place)) for place in places]
        axes = self._axes_of(one)
        action = _ACTIONS.get(one.name)
        if action is None or "X" in one.modifiers or "EX" in one.modifiers:
            self.forget(one)
        else:
            action(self, one)
        for place in places if axes else ():
            # What follows from ids alone is known when these are.
            if _PREDICATE.match(place) and place not in self.predicates:
                self.decide(place, Split(axes))
            elif _REGISTER.match(place) and place not in self.registers:
                self.put(place, Span(-(1 << 31), (1 << 31) - 1, axes))
        if guard is not True:
            for place, (value, truth) in zip(places, before, strict=True):
                self._blend(place, value, truth, guard)

    def _axes_of(self, one: GpuInstruction) -> frozenset[str]:
        """Return the axes of what an instruction reads, if all of it follows from ids."""
        known = [self.value(text) if self.value(text) is not None else self.truth(text) for text in _read_by(one)]
        return frozenset() if None in known else axes_of(*known)

    def _blend(self, place: str, value: Value, truth: Truth, guard: Truth) -> None:
        """Let a place be what it was, or what it has become, as a guard decides."""
        axes = guard.axes if isinstance(guard, Split) else frozenset()
        now, decided = self.registers.get(place), self.predicates.get(place)
        if now != value:
            self.put(place, either(now, value, axes) if axes else None)
        if decided != truth:
            self.decide(place, Split(axes | axes_of(decided, truth)) if axes else None)

    def put(self, place: str, value: Value) -> None:
        """Give a register a value."""
        if value is None:
            self.registers.pop(place, None)
        elif place not in _ZERO:
            self.registers[place] = value

    def decide(self, place: str, value: Truth) -> None:
        """Give a predicate a value."""
        if value is None:
            self.predicates.pop(place, None)
        elif place not in _TRUE:
            self.predicates[place] = value

    def forget(self, one: GpuInstruction) -> None:
        """Make unknown what an instruction may change."""
        if one.name == "R2P":
            self.predicates = {}
        for place in changed_by(one):
            self.registers.pop(place, None)
            self.predicates.pop(place, None)


@lru_cache(maxsize=1 << 16)
def _parsed(text: str) -> tuple[str, int]:
    """Return what an operand is, and its number, or its place among constants."""
    if match := _CONSTANT.match(text):
        return "constant", int(match[1], 16)
    return ("number", int(text, 0) & _MASK) if _NUMBER.match(text) else ("", 0)


@lru_cache(maxsize=1 << 16)
def changed_by(one: GpuInstruction) -> tuple[str, ...]:
    """Return the registers and predicates that an instruction may change; of a call, all operands are."""
    if one.name == "CALL":
        return one.operands
    # The conditions of jumps and barriers are read.
    rest = [] if one.name in {"BRA", "EXIT", "RET", "BSSY", "BSYNC", "BREAK", "BAR"} else list(one.operands)
    found = []
    while rest and _PREDICATE.match(rest[0]):
        found.append(rest.pop(0).removeprefix("!"))
    match = _REGISTER.match(rest[0]) if rest and not one.name.endswith("SETP") else None
    if match is not None:
        found += [f"{match[1]}{int(match[2]) + more}" for more in range(_width(one))]
        # Carries are written behind the result.
        found += [operand.removeprefix("!") for operand in takewhile(_PREDICATE.match, rest[1:])]
    return tuple(found)


@lru_cache(maxsize=1 << 16)
def _read_by(one: GpuInstruction) -> tuple[str, ...]:
    """Return the operands that an instruction reads: those behind its results."""
    rest = list(one.operands)
    while rest and _PREDICATE.match(rest[0]):
        rest.pop(0)
    rest = rest if one.name.endswith("SETP") else rest[1:]
    # Carries are written behind the result; one that is read comes last.
    while rest and _PREDICATE.match(rest[0]):
        rest.pop(0)
    return tuple(rest)


def _width(one: GpuInstruction) -> int:
    if "128" in one.modifiers or one.name.endswith("MMA") or one.name in {"LDSM", "TEX", "TLD", "SULD"}:
        return 4
    return 2 if one.name.startswith("D") or one.name == "CS2R" or _PAIRS & set(one.modifiers) else 1


def _plain(one: GpuInstruction) -> list[str]:
    """Return the operands without predicates: the result and what it is made of."""
    return [operand for operand in one.operands if not _PREDICATE.match(operand)]


def _sources(lane: Lane, one: GpuInstruction) -> list[Value]:
    return [lane.value(operand) for operand in _plain(one)[1:]]


def _set(lane: Lane, one: GpuInstruction, value: Value) -> None:
    lane.forget(one)
    lane.put(_plain(one)[0], value)


def _numbers(values: Sequence[Value]) -> list[int] | None:
    numbers = [value for value in values if isinstance(value, int)]
    return numbers if len(numbers) == len(values) else None


def total(values: Sequence[Value]) -> Value:
    """Return a sum of 32 bits; one of its parts may count a loop's iterations."""
    shifted = [value for value in values if isinstance(value, Shifted)]
    rest = [value for value in values if not isinstance(value, Shifted)]
    known = monotone(lambda *numbers: sum(numbers), rest)
    if not shifted:
        return known
    if len(shifted) > 1 or not isinstance(known, int):
        return None
    return Shifted(shifted[0].register, shifted[0].offset + signed(known))


def _move(lane: Lane, one: GpuInstruction) -> None:
    _set(lane, one, lane.value(one.operands[1]))


def _load_constant(lane: Lane, one: GpuInstruction) -> None:
    match = _CONSTANT.match(one.operands[1])
    place = _REGISTER.match(one.operands[0])
    lane.forget(one)
    if match and place and set(one.modifiers) <= {"64", "128"}:
        for more in range(_width(one)):
            lane.put(f"{place[1]}{int(place[2]) + more}", lane.constants.get(int(match[1], 16) + 4 * more))


def _special(lane: Lane, one: GpuInstruction) -> None:
    _set(lane, one, lane.special.get(one.operands[1]))


def _zero(lane: Lane, one: GpuInstruction) -> None:
    place = _REGISTER.match(one.operands[0])
    lane.forget(one)
    if place and one.operands[1] == "SRZ":
        for more in range(1 if "32" in one.modifiers else 2):
            lane.put(f"{place[1]}{int(place[2]) + more}", 0)


def _add(lane: Lane, one: GpuInstruction) -> None:
    _set(lane, one, None if "64" in one.modifiers else total(_sources(lane, one)))


def _multiply_add(lane: Lane, one: GpuInstruction) -> None:
    first, second, third = [*_sources(lane, one), 0][:3]
    zero = first == 0 or second == 0
    factor = first if second == 1 else 0 if zero else monotone(lambda a, b: a * b, [first, second])
    upper = _upper(lane, one, [first, second]) if {"HI", "WIDE"} & set(one.modifiers) else None
    _set(lane, one, upper if "HI" in one.modifiers else total([factor, third]))
    place = _REGISTER.match(one.operands[0])
    if "WIDE" in one.modifiers and place:
        lane.put(f"{place[1]}{int(place[2]) + 1}", upper)


def _upper(lane: Lane, one: GpuInstruction, factors: Sequence[Value]) -> Value:
    """Return the upper word of a product to which a pair of registers is added."""
    added = _plain(one)[3] if len(_plain(one)) > 3 else ""
    place = _REGISTER.match(added)
    low, high = lane.value(added), lane.value(f"{place[1]}{int(place[2]) + 1}") if place else 0
    if not isinstance(low, int) or not (place or added in _ZERO):
        return None
    signs = "U32" not in one.modifiers
    return monotone(lambda a, b, c: (a * b + (c << 32) + low) >> 32, [*factors, high], is_signed=signs)


def _shift_add(lane: Lane, one: GpuInstruction) -> None:
    """Shift a number to the left, take its upper word where that is asked for, and add another."""
    values = _sources(lane, one)
    kind = set(one.modifiers)
    result: Value = None
    if len(values) == 3 and kind in (set(), {"HI", "SX32"}):
        result = monotone(lambda a, b, by: (a << (by & 31) >> (32 if kind else 0)) + b, values)
    elif len(values) == 4 and kind == {"HI"}:
        upper = monotone(
            lambda low, high, by: (high << 32 | low) << by >> 32, [values[0], *values[2:]], is_signed=False
        )
        result = total([upper, values[1]])
    _set(lane, one, result)


def _logic(lane: Lane, one: GpuInstruction) -> None:
    *values, table = _sources(lane, one)[:4]
    told = one.operands[0] if _PREDICATE.match(one.operands[0]) else ""
    known = [value for value in values if isinstance(value, int | Span)]
    result = logical(table, known) if len(known) == 3 and isinstance(table, int) else None
    _set(lane, one, result)
    if told:
        lane.decide(told, None if result is None else related("NE", result, 0, is_signed=True))


def _shift(lane: Lane, one: GpuInstruction) -> None:
    values, kind = _sources(lane, one), one.modifiers
    result: Value = None
    amount = values[1] if len(values) > 1 else None
    if isinstance(amount, int) and amount < 32:
        low, high = values[0], values[2] if len(values) > 2 else None
        if kind[:2] == ("L", "U32") and "HI" not in kind:
            result = monotone(lambda value: value << amount, [low])
        elif kind in {("R", "U32", "HI"), ("R", "S32", "HI")}:
            result = monotone(lambda value: value >> amount, [high], is_signed="S32" in kind)
    _set(lane, one, result)


def _select(lane: Lane, one: GpuInstruction) -> None:
    chosen = lane.truth(one.operands[-1])
    first, second = _sources(lane, one)[:2]
    result: Value = None
    if isinstance(chosen, bool):
        result = first if chosen else second
    elif isinstance(chosen, Split):
        result = either(first, second, chosen.axes)
    _set(lane, one, result)


def _extreme(lane: Lane, one: GpuInstruction) -> None:
    least = lane.truth(one.operands[-1])
    result: Value = None
    if isinstance(least, bool) and not {"U16x2", "S16x2"} & set(one.modifiers):
        chosen: Callable[..., int] = min if least else max
        result = monotone(chosen, _sources(lane, one)[:2], is_signed="U32" not in one.modifiers)
    _set(lane, one, result)


def _halves(lane: Lane, one: GpuInstruction) -> None:
    """Two sums of half precision; with a product of zeros they are how compilers make a number."""
    result: Value = None
    if len(one.operands) == 5 and {word.lstrip("-") for word in one.operands[1:3]} == {"RZ"}:
        words = [word.replace("INF", "inf").replace("QNAN", "nan").replace(" ", "") for word in one.operands[3:]]
        if all(re.match(r"[-+]?(?:\d|inf)", word) for word in words):
            high, low = (int(np.float16(float(word)).view(np.uint16)) for word in words)
            result = high << 16 | low
    _set(lane, one, result)


_MIRRORED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE", "EQ": "EQ", "NE": "NE"}


def _compare(lane: Lane, one: GpuInstruction) -> None:
    relation, signed = one.modifiers[0], "U32" not in one.modifiers
    targets, (first, second) = one.operands[:2], [lane.value(text) for text in one.operands[2:4]]
    with_it = lane.truth(one.operands[4]) if len(one.operands) == 5 else None
    joined = next((word for word in one.modifiers if word in {"AND", "OR", "XOR"}), "")
    found: Truth = None
    if relation in _MIRRORED:
        if isinstance(first, int | Span) and isinstance(second, int | Span):
            found = related(relation, first, second, is_signed=signed)
        elif isinstance(first, Shifted) and isinstance(second, int | Span):
            found = Test(relation, signed, first.register, first.offset, second)
        elif isinstance(first, int | Span) and isinstance(second, Shifted):
            found = Test(_MIRRORED[relation], signed, second.register, second.offset, first)
    opposite = not found if isinstance(found, bool) else found
    if isinstance(opposite, Test):
        opposite = replace(opposite, negated=True)
    for place, value in zip(targets, (found, opposite), strict=True):
        lane.decide(place, _joined(joined, value, with_it))


def _joined(how: str, first: Truth, second: Truth) -> Truth:
    """Return two truths joined; one of them may suffice."""
    for one, other in ((first, second), (second, first)):
        if how == "AND" and isinstance(one, bool):
            return other if one else False
        if how == "OR" and isinstance(one, bool):
            return True if one else other
    if how == "XOR" and isinstance(first, bool) and isinstance(second, bool):
        return first != second
    # Whatever the other one is, more is known of fewer ids.
    axes = axes_of(first, second)
    return Split(axes) if axes else None


def _combine(lane: Lane, one: GpuInstruction) -> None:
    """Make a predicate of three by a truth table, and another one by a second table."""
    values = [lane.truth(text) for text in one.operands[2:5]]
    tests = [value for value in values if isinstance(value, Test)]
    for place, text in zip(one.operands[:2], one.operands[5:7], strict=False):
        table = int(text, 0)
        found = {case: _entries(values, table, case) for case in (False, True)}
        result: Truth = None
        if found[False] == found[True] and len(found[True]) == 1:
            result = found[True].copy().pop()
        elif len(tests) == 1 and found == {False: {False}, True: {True}}:
            result = tests[0]
        elif len(tests) == 1 and found == {False: {True}, True: {False}}:
            result = replace(tests[0], negated=not tests[0].negated)
        elif axes := axes_of(*values):
            result = Split(axes)
        lane.decide(place, result)


def _entries(values: Sequence[Truth], table: int, case: bool) -> set[bool]:
    """Return what a truth table may give where tests come out so, and what is unknown may be anything."""
    choices = [
        (value,) if isinstance(value, bool) else (case,) if isinstance(value, Test) else (False, True)
        for value in values
    ]
    return {bool(table >> (4 * a + 2 * b + c) & 1) for a in choices[0] for b in choices[1] for c in choices[2]}


_ACTIONS: Mapping[str, Callable[[Lane, GpuInstruction], None]] = {
    **dict.fromkeys(("MOV", "UMOV", "MOV32I", "R2UR"), _move),
    **dict.fromkeys(("LDC", "ULDC", "LDCU"), _load_constant),
    **dict.fromkeys(("S2R", "S2UR"), _special),
    "CS2R": _zero,
    **dict.fromkeys(("IADD3", "UIADD3", "IADD", "VIADD", "UVIADD", "IADD32I"), _add),
    **dict.fromkeys(("IMAD", "UIMAD"), _multiply_add),
    **dict.fromkeys(("LEA", "ULEA"), _shift_add),
    **dict.fromkeys(("LOP3", "ULOP3"), _logic),
    **dict.fromkeys(("SHF", "USHF"), _shift),
    **dict.fromkeys(("SEL", "USEL"), _select),
    **dict.fromkeys(("IMNMX", "UIMNMX", "VIMNMX", "UVIMNMX"), _extreme),
    "HFMA2": _halves,
    **dict.fromkeys(("ISETP", "UISETP"), _compare),
    **dict.fromkeys(("PLOP3", "UPLOP3"), _combine),
}
