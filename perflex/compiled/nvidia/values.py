"""Values of registers and predicates of work-items, as far as they follow from ids and the kernel's arguments.

An id is a number, or a range of numbers; so is what is computed from it. What instructions do is taken from the tables
of NVIDIA's CUDA Binary Utilities and from code whose source is known. What is not known has a `Mark`, which says why.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import takewhile
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from perflex.compiled.nvidia.operands import (
    CONSTANT,
    NUMBER,
    PREDICATE,
    REGISTER,
    changed_by,
    inputs_of,
    is_predicate,
    plain,
    width_of,
)
from perflex.compiled.nvidia.spans import (
    DATA,
    IDS,
    UNDESCRIBED,
    Mark,
    Shifted,
    Span,
    Split,
    Test,
    axes_of,
    carries,
    either,
    extreme,
    logical,
    merged,
    monotone,
    related,
    signed,
    weighted,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from perflex.compiled.nvidia.cubin import GpuInstruction

_MASK = 0xFFFFFFFF
_ZERO, _TRUE = {"RZ", "URZ"}, {"PT", "UPT"}
# They compute with floats; FLO finds the first bit of an integer.
_OF_FLOATS = re.compile(r"(?!FLO)(?:[FDH]|I2F|MUFU)")


# None where nothing was written yet, or an action does not tell; a test where it is zero unless that holds.
Value: TypeAlias = int | Span | Shifted | Test | Mark | None
Truth: TypeAlias = bool | Test | Split | Mark | None


def _joined_values(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    differing = (place for place in one if place in other and one[place] != other[place])
    return one | other | {place: merged(one[place], other[place]) for place in differing}


@dataclass
class Lane:
    """Registers and predicates, as far as they were written.

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
    constants: Mapping[int, int | Mark]

    def copy(self) -> Lane:
        """Return a copy whose registers can be changed."""
        return Lane(dict(self.registers), dict(self.predicates), self.special, self.constants)

    def joined(self, other: Lane) -> Lane:
        """Return what is known where control comes from either of two ways."""
        return replace(
            self,
            registers=_joined_values(self.registers, other.registers),
            predicates=_joined_values(self.predicates, other.predicates),
        )

    def truth(self, text: str) -> Truth:
        """Return the value of a predicate, ``"P0"`` or ``"!P0"``; True for an empty text."""
        name = text.removeprefix("!")
        value = True if not name or name in _TRUE else self.predicates.get(name)
        return _opposite(value) if text.startswith("!") else value

    def value(self, text: str) -> Value:
        """Return the value of an operand of 32 bits."""
        if (known := self.registers.get(text)) is not None:
            return known
        if text[:1] in {"-", "~"}:
            return weighted([(-1, self.value(text[1:])), *([(1, _MASK)] if text[0] == "~" else [])])
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
        before = [self._held(place).get(place) for place in places]
        action = _ACTIONS.get(one.name)
        if action is None or ("X" in one.modifiers and action not in {_add, _multiply_add}):
            self.forget(one)
        else:
            action(self, one)
        left = [place for place in places if place not in self._held(place) and place not in _TRUE]
        if left:
            unknown = self._unknown(one, dict(zip(places, before, strict=True)))
            for place in left:
                self._leave(place, unknown)
        if guard is not True:
            for place, value in zip(places, before, strict=True):
                self._blend(place, value, guard)

    def _held(self, place: str) -> dict[str, Any]:
        return self.predicates if is_predicate(place) else self.registers

    def _unknown(self, one: GpuInstruction, before: Mapping[str, Any]) -> Mark | frozenset[str]:
        """Return why results of an instruction are not known that its action does not tell; axes of ids that decide.

        Results may stand where inputs did before.
        """
        known = [before[text] if text in before else self._input(text) for text in inputs_of(one)]
        marks = [value for value in known if isinstance(value, Mark)]
        if _OF_FLOATS.match(one.name):
            return max(DATA, *marks, DATA)
        if marks or any(isinstance(value, Shifted | Test) for value in known):
            return max(IDS, *marks, IDS)
        return axes_of(*known) or Mark(UNDESCRIBED, one.name)

    def _input(self, text: str) -> Value | Truth:
        if text.startswith("["):
            return DATA
        if text.startswith("SR_"):
            return Mark(UNDESCRIBED, text)
        if match := CONSTANT.match(text):
            return self.constants.get(int(match[1], 16), Mark(UNDESCRIBED, text))
        return self._held(text).get(text)

    def _leave(self, place: str, unknown: Mark | frozenset[str]) -> None:
        """Say of a place why it is not known."""
        if isinstance(unknown, Mark):
            self._held(place)[place] = unknown
        elif is_predicate(place):
            self.predicates[place] = Split(unknown)
        else:
            self.registers[place] = Span(-(1 << 31), (1 << 31) - 1, unknown)

    def _blend(self, place: str, before: Value | Truth, guard: Truth) -> None:
        """Let a place be what it was, or what it has become, as a guard decides."""
        held = self._held(place)
        now = held.get(place)
        if before is None or now == before:
            return
        if not isinstance(guard, Split):
            held[place] = max(merged(now, before), merged(guard, None))
        elif is_predicate(place):
            held[place] = Split(guard.axes | axes_of(now, before))
        else:
            held[place] = either(now, before, guard.axes)

    def spoil(self, places: Iterable[str]) -> None:
        """Let data decide what places hold."""
        for place in places:
            if place not in _TRUE:
                self._held(place)[place] = DATA

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
        for place in changed_by(one):
            self.registers.pop(place, None)
            self.predicates.pop(place, None)


@lru_cache(maxsize=1 << 16)
def _parsed(text: str) -> tuple[str, int]:
    """Return what an operand is, and its number, or its place among constants."""
    if match := CONSTANT.match(text):
        return "constant", int(match[1], 16)
    return ("number", int(text, 0) & _MASK) if NUMBER.match(text) else ("", 0)


def _sources(lane: Lane, one: GpuInstruction) -> list[Value]:
    return [lane.value(operand) for operand in plain(one)[1:]]


def _set(lane: Lane, one: GpuInstruction, value: Value) -> None:
    lane.forget(one)
    lane.put(plain(one)[0], value)


def total(values: Sequence[Value]) -> Value:
    """Return a sum of 32 bits; one of its parts may count a loop's iterations."""
    shifted = [value for value in values if isinstance(value, Shifted)]
    rest = [value for value in values if not isinstance(value, Shifted)]
    known = weighted([(1, value) for value in rest])
    if not shifted:
        return known
    if len(shifted) > 1 or not isinstance(known, int):
        return None
    return Shifted(shifted[0].register, shifted[0].offset + signed(known))


def _move(lane: Lane, one: GpuInstruction) -> None:
    _set(lane, one, lane.value(one.operands[1]))


def _load_constant(lane: Lane, one: GpuInstruction) -> None:
    match = CONSTANT.match(one.operands[1].replace("[RZ]", "[0x0]"))
    place = REGISTER.match(one.operands[0])
    lane.forget(one)
    if match and place and set(one.modifiers) <= {"64", "128"}:
        for more in range(width_of(one)):
            lane.put(f"{place[1]}{int(place[2]) + more}", lane.constants.get(int(match[1], 16) + 4 * more))


def _special(lane: Lane, one: GpuInstruction) -> None:
    _set(lane, one, lane.special.get(one.operands[1]))


def _zero(lane: Lane, one: GpuInstruction) -> None:
    place = REGISTER.match(one.operands[0])
    lane.forget(one)
    if place and one.operands[1] == "SRZ":
        for more in range(1 if "32" in one.modifiers else 2):
            lane.put(f"{place[1]}{int(place[2]) + more}", 0)


def _add(lane: Lane, one: GpuInstruction) -> None:
    values = [*_sources(lane, one), *_carried(lane, one)]
    told = [place for place in one.operands[1:3] if PREDICATE.match(place) and place not in _TRUE]
    # Subtracting zero carries, though zero is what is added: whether is not told.
    zero = any(text[0] == "-" and text[1:] != "RZ" and lane.value(text) == 0 for text in plain(one)[1:])
    carry = None if len(told) != 1 or "X" in one.modifiers or zero else _carries(values)
    _set(lane, one, None if "64" in one.modifiers else total(values))
    if carry is not None:
        lane.decide(told[0], carry)


def _carries(values: Sequence[Value]) -> bool | None:
    counters = [value for value in values if isinstance(value, Shifted)]
    known = [value for value in values if isinstance(value, int | Span)]
    return carries(known, counter=bool(counters)) if len(known) + len(counters) == len(values) else None


def _carried(lane: Lane, one: GpuInstruction) -> list[Value]:
    """Return what an instruction for upper words adds for sums of lower ones."""
    if "X" not in one.modifiers:
        return []
    texts = takewhile(PREDICATE.match, reversed(one.operands)) if "WIDE" not in one.modifiers else ()
    truths = [lane.truth(text) for text in texts]
    # Before Volta no operand shows the carry; of pairs it is not known where it is added.
    return [int(truth) if isinstance(truth, bool) else None for truth in truths or [None]]


def _multiply_add(lane: Lane, one: GpuInstruction) -> None:
    first, second, third = [*_sources(lane, one), 0][:3]
    if carried := _carried(lane, one):
        third = total([third, *carried])
    zero = first == 0 or second == 0
    factor: Value = first if second == 1 else 0 if zero else _product(first, second)
    upper = _upper(lane, one, [first, second]) if {"HI", "WIDE"} & set(one.modifiers) and third is not None else None
    _set(lane, one, upper if "HI" in one.modifiers else total([factor, third]))
    place = REGISTER.match(one.operands[0])
    if "WIDE" in one.modifiers and place:
        lane.put(f"{place[1]}{int(place[2]) + 1}", upper)


def _product(first: Value, second: Value) -> Value:
    for one, other in ((first, second), (second, first)):
        if isinstance(one, int):
            return weighted([(signed(one), other)])
    return monotone(lambda a, b: a * b, [first, second])


def _upper(lane: Lane, one: GpuInstruction, factors: Sequence[Value]) -> Value:
    """Return the upper word of a product to which a pair of registers is added."""
    added = plain(one)[3] if len(plain(one)) > 3 else ""
    place = REGISTER.match(added)
    low, high = lane.value(added), lane.value(f"{place[1]}{int(place[2]) + 1}") if place else 0
    if not (isinstance(low, int) or (isinstance(low, Span) and low.least >= 0)) or not (place or added in _ZERO):
        return None
    signs = "U32" not in one.modifiers
    fixed, given = (low, []) if isinstance(low, int) else (0, [low])
    return monotone(lambda a, b, c, d=fixed: (a * b + (c << 32) + d) >> 32, [*factors, high, *given], is_signed=signs)


def _shift_add(lane: Lane, one: GpuInstruction) -> None:
    """Shift a number to the left, take its upper word where that is asked for, and add another."""
    values = _sources(lane, one)
    kind = set(one.modifiers)
    result: Value = None
    if len(values) == 3 and not kind and isinstance(values[2], int):
        result = weighted([(1 << (values[2] & 31), values[0]), (1, values[1])])
    elif len(values) == 3 and kind in (set(), {"HI", "SX32"}):
        result = monotone(lambda a, b, by: (a << (by & 31) >> (32 if kind else 0)) + b, values)
    elif len(values) == 4 and kind == {"HI"}:
        upper = monotone(
            lambda low, high, by: (high << 32 | low) << by >> 32, [values[0], *values[2:]], is_signed=False
        )
        result = total([upper, values[1]])
    _set(lane, one, result)


def _logic(lane: Lane, one: GpuInstruction) -> None:
    *values, table = _sources(lane, one)[:4]
    told = one.operands[0] if PREDICATE.match(one.operands[0]) else ""
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
            result = weighted([(1 << amount, low)])
        elif kind in {("R", "U32", "HI"), ("R", "S32", "HI")}:
            result = monotone(lambda value: value >> amount, [high], is_signed="S32" in kind)
    _set(lane, one, result)


def _opposite(value: Truth) -> Truth:
    if isinstance(value, Test):
        return replace(value, negated=not value.negated)
    return not value if isinstance(value, bool) else value


def _select(lane: Lane, one: GpuInstruction) -> None:
    chosen = lane.truth(one.operands[-1])
    first, second = _sources(lane, one)[:2]
    result: Value = None
    if isinstance(chosen, bool):
        result = first if chosen else second
    elif isinstance(chosen, Test) and (first, second).count(0) == 1:
        # So compilers keep a predicate in a register.
        result = replace(chosen, negated=not chosen.negated) if first == 0 else chosen
    elif isinstance(chosen, Split):
        result = either(first, second, chosen.axes)
    _set(lane, one, result)


def _extreme(lane: Lane, one: GpuInstruction) -> None:
    """Take the smaller or the larger of two numbers, of which the first may be a sum."""
    least = lane.truth(one.operands[-1])
    result: Value = None
    if isinstance(least, bool) and set(one.modifiers) <= {"U32", "S32"}:
        *added, other = _sources(lane, one)
        result = extreme(total(added), other, least=least, is_signed="U32" not in one.modifiers)
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
    with_it = lane.truth(one.operands[4]) if len(one.operands) > 4 else None
    joined = next((word for word in one.modifiers if word in {"AND", "OR", "XOR"}), "")
    found: Truth = None
    if relation in _MIRRORED:
        if isinstance(first, int | Span) and isinstance(second, int | Span):
            found = related(relation, first, second, is_signed=signed)
        elif isinstance(first, Shifted) and isinstance(second, int | Span):
            found = Test(relation, signed, first.register, first.offset, second)
        elif isinstance(first, int | Span) and isinstance(second, Shifted):
            found = Test(_MIRRORED[relation], signed, second.register, second.offset, first)
        elif isinstance(first, Test) and second == 0 and relation in {"EQ", "NE"}:
            found = first if relation == "NE" else _opposite(first)
    if "EX" in one.modifiers:
        found = _extended(lane.truth(one.operands[-1]), found, first, second)
    for place, value in zip(targets, (found, _opposite(found)), strict=True):
        lane.decide(place, _joined(joined, value, with_it))


def _extended(low: Truth, high: Truth, first: Value, second: Value) -> Truth:
    """Return how numbers of 64 bits compare: as their upper words do, where these are equal as the lower ones."""
    if not isinstance(first, int | Span) or not isinstance(second, int | Span):
        # Loops end where a counter is a number, and run less than 2 ** 32 times: lower words tell.
        return low if isinstance(low, Test) and low.relation in {"EQ", "NE"} else None
    same = related("EQ", first, second, is_signed=True)
    if isinstance(same, Split):
        return same
    return high if not same else None if isinstance(low, Mark) else low


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
            result = _opposite(tests[0])
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
    **dict.fromkeys(("IMNMX", "UIMNMX", "VIMNMX", "UVIMNMX", "VIADDMNMX"), _extreme),
    "HFMA2": _halves,
    **dict.fromkeys(("ISETP", "UISETP"), _compare),
    **dict.fromkeys(("PLOP3", "UPLOP3"), _combine),
}
