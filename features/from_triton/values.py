"""Values of the interpreter, and what operations make of them: integers of many programs and iterations at once.

An array has an axis for programs, one for each loop whose iterations are computed together, then those of the tile;
axes along which nothing changes have length 1. An integer tile is kept as a sum of such arrays, a mask as their
conjunction, since addresses and masks are nearly always sums and conjunctions of rows and columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import prod
from typing import Any

import numpy as np

from perflex.features.from_triton.ttir import Operation, Type

Array = np.ndarray[Any, Any]
_Function = Callable[..., Any]
# Terms are added up where the sum is small; a sum of more elements than the second is not computed at once.
_SMALL = 1 << 13
_MOST = 1 << 25
_HINT = re.compile(r"tt\.(contiguity|divisibility) = dense<\[?([\d, ]+)\]?>")


class TooLargeError(Exception):
    """Fewer programs must be computed at once."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value that depends on data: on what, for messages."""

    cause: str


@dataclass(frozen=True, slots=True)
class Value:
    """A known tile: the sum of its terms, of a mask their conjunction; of pointers bytes from an array's beginning."""

    terms: tuple[Array, ...]
    type: Type
    depth: int  # axes before those of the tile
    array: str = ""  # that it was loaded from, or leads to; an array stands at a multiple of 256 bytes

    def at(self, depth: int) -> Value:
        """Return it with further axes of iterations, along which it is the same."""
        if depth == self.depth:
            return self
        place, new = self.depth, (1,) * (depth - self.depth)
        terms = tuple(term.reshape(term.shape[:place] + new + term.shape[place:]) for term in self.terms)
        return Value(terms, self.type, depth, self.array)

    def whole(self) -> Array:
        """Return the sum or conjunction as one array; its axes may have length 1."""
        if len(self.terms) == 1:
            return self.terms[0]
        bounded(self.terms)
        return reduce(np.logical_and if is_mask(self.type) else np.add, self.terms)


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A tensor in memory that is accessed by tiles: sizes and strides in elements, one for each axis."""

    pointer: Value
    sizes: tuple[Value, ...]
    strides: tuple[Value, ...]
    type: Type


Any_ = Value | Descriptor | Unknown


def is_mask(kind: Type) -> bool:
    """Return whether values of a type are truth values."""
    return kind.element == "i1" and not kind.pointer


def bounded(arrays: Iterable[Array]) -> None:
    """Raise where arrays together have more elements than are computed at once."""
    if prod(np.broadcast_shapes(*(array.shape for array in arrays))) > _MOST:
        raise TooLargeError


def total(terms: Sequence[Array], kind: Type, depth: int, array: str = "") -> Value:
    """Return a sum or conjunction with small terms put together, and integers wrapped as the hardware does."""
    element = "i64" if kind.pointer else kind.element
    join: Any = np.logical_and if is_mask(kind) else np.add
    found: list[Array] = []
    for term in terms:
        for place, other in enumerate(found):
            if prod(np.broadcast_shapes(term.shape, other.shape)) <= max(_SMALL, term.size, other.size):
                found[place] = join(term, other)
                break
        else:
            found.append(term)
    if element in {"f16", "bf16"}:  # rounded as numpy does not
        raise ValueError(kind)
    if element == "f32":
        found = [reduce(np.add, found).astype(np.float32)]
    elif element[0] == "i" and element not in {"i1", "i64", "index"} and kind.bytes < 8:
        limit = 1 << (kind.bytes * 8 - 1)
        if sum(float(term.min()) for term in found) < -limit or sum(float(term.max()) for term in found) >= limit:
            bounded(found)
            found = [reduce(np.add, found).astype(f"i{kind.bytes}").astype(np.int64)]
    return Value(tuple(found), kind, depth, array)


def where(mask: Array, first: Value, second: Value, kind: Type) -> Value:
    """Return the one value where a mask of elements or of tiles holds, and the other elsewhere."""
    if mask.ndim == first.depth:
        mask = mask.reshape(mask.shape + (1,) * len(kind.shape))
    arrays = mask, first.whole(), second.whole()
    bounded(arrays)
    return Value((np.where(*arrays),), kind, first.depth, first.array)


def unsigned(value: Value) -> Array:
    """Return integers as those without a sign."""
    array, bits = value.whole().astype(np.int64, copy=False), value.type.bytes * 8
    return array & ((1 << bits) - 1) if bits < 64 else array.astype(np.uint64)


def said(one: Operation, value: Any_) -> Any_:
    """Return a value as the code says that it is: neighbours follow one another from multiples of a number."""
    hints = {name: [int(word) for word in many.split(", ")] for name, many in _HINT.findall(one.text)}
    if not hints or not isinstance(value, Value):
        return value
    depth, shape = value.depth, value.type.shape or (1,)  # a number is a tile of one element
    runs, multiples = (hints.get(name, [1]) * len(shape) for name in ("contiguity", "divisibility"))
    step = value.type.bytes if value.type.pointer else 1
    whole = value.whole()
    array = np.broadcast_to(whole if value.type.shape else whole[..., None], whole.shape[:depth] + shape)
    bounded([array])
    # Of several axes the one whose neighbours are neighbours.
    near = [axis for axis in range(len(shape)) if runs[axis] > 1]
    near += [axis for axis in range(len(shape)) if (np.diff(array, axis=depth + axis)[..., :1] == step).all()]
    axis = near[0] if near else len(shape) - 1
    run, rows = runs[axis], np.moveaxis(array, depth + axis, -1)
    first = rows[..., :: run if run > 1 else rows.shape[-1]]
    # No run follows the one before.
    first = first - first % multiples[axis] + np.arange(first.shape[-1]) * 2 * run * multiples[axis] * step
    moved = np.repeat(first, rows.shape[-1] // first.shape[-1], -1)
    moved = moved + (np.arange(rows.shape[-1]) % run * step if run > 1 else rows - rows[..., :1])
    array = np.moveaxis(moved, -1, depth + axis)
    return replace(value, terms=(array.reshape(whole.shape[:depth] + value.type.shape),))


def made(one: Operation, depth: int, operands: Sequence[Any]) -> Any_:
    """Return what an operation makes of known values; an AttributeError or the like where it is not followed."""
    name, kind = one.name.rpartition(".")[2], one.types[0] if one.types else Type((), "i1")
    pointers = sum(value.type.pointer for value in operands)
    if pointers != (_POINTERS[name] if kind.pointer or kind.descriptor else 0):
        raise TypeError(kind)
    if name in _MOVES:
        value: Value = operands[0]
        return Value(tuple(_MOVES[name](term, depth, one) for term in value.terms), kind, value.depth, value.array)
    table = _OF_MASKS if is_mask(kind) and name in _OF_MASKS else _RESULTS
    make: _Function = table.get(name, _elementwise)
    found = make(one, depth, *operands)
    if isinstance(found, np.ndarray):
        found = (found,)
    # What is made of one value alone comes from the same array.
    array = operands[0].array if kind.pointer or len(operands) == 1 else ""
    result: Any_ = total(found, kind, depth, array) if isinstance(found, tuple) else found
    return result


def axis(one: Operation, depth: int) -> int:
    """Return the axis of an operation along one, behind those of the batch."""
    return depth + int(one.attributes["axis"].split(" ")[0])


def dtype(kind: Type) -> type:
    """Return the type of numpy's that holds values of a type."""
    return bool if is_mask(kind) else np.int64 if kind.pointer or kind.element[0] == "i" else float


def _reshaped(term: Array, depth: int, one: Operation) -> Array:
    wide = np.broadcast_to(term, term.shape[:depth] + one.given[0].shape)
    bounded([wide])
    return wide.reshape(term.shape[:depth] + one.types[0].shape)


def _transposed(term: Array, depth: int, one: Operation) -> Array:
    order = one.text.partition("array<i32:")[2].partition(">")[0].split(",")
    return term.transpose(*range(depth), *(depth + int(axis) for axis in order))


# How an operation changes the axes of a tile, which stand in a term behind so many others.
_MOVES: dict[str, Callable[[Array, int, Operation], Array]] = {
    "splat": lambda term, _, one: term.reshape(term.shape + (1,) * len(one.types[0].shape)),
    "unsplat": lambda term, depth, _: term.reshape(term.shape[:depth]),
    "broadcast": lambda term, _, __: term,
    "expand_dims": lambda term, depth, one: np.expand_dims(term, axis(one, depth)),
    "trans": _transposed,
    "reshape": _reshaped,
}


def _divisor(number: Array) -> Array:
    # Programs that do not get here may divide by zero.
    return np.where(number == 0, number.dtype.type(1), number)


def _bits(number: Array) -> Array:
    # A shift by all bits or more has no value; numpy's differs from one processor to the next.
    return np.clip(number, 0, 63)


def _quotient(first: Array, second: Array) -> Any:
    quotient = np.abs(first) // np.abs(_divisor(second))
    return np.where((first < 0) != (second < 0), -quotient, quotient)


_COMPARED: dict[str, _Function] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal
}  # fmt: skip
_LOGICAL: dict[str, _Function] = {
    "ori": np.logical_or, "xori": np.logical_xor, "addi": np.logical_xor, "subi": np.logical_xor
}  # fmt: skip
# Of integers; of floating-point numbers that sizes decide, such as a quotient's ceiling; of integers without a sign.
_NUMBERS: dict[str, _Function] = {
    "divsi": _quotient, "remsi": lambda x, y: np.fmod(x, _divisor(y)), "floordivsi": lambda x, y: x // _divisor(y),
    "ceildivsi": lambda x, y: -(-x // _divisor(y)), "minsi": np.minimum, "maxsi": np.maximum,
    "shli": lambda x, y: np.left_shift(x, _bits(y)), "shrsi": lambda x, y: np.right_shift(x, _bits(y)),
    "andi": np.bitwise_and, "ori": np.bitwise_or, "xori": np.bitwise_xor,
    "addf": np.add, "subf": np.subtract, "mulf": np.multiply, "divf": lambda x, y: x / np.where(y == 0, 1, y),
    "negf": np.negative, "minnumf": np.minimum, "maxnumf": np.maximum, "minimumf": np.minimum, "maximumf": np.maximum,
    "ceil": np.ceil, "floor": np.floor, "sqrt": lambda x: np.sqrt(np.maximum(x, 0)), "absf": np.abs, "exp2": np.exp2,
    "log2": lambda x: np.log2(np.maximum(x, 1e-300)),
}  # fmt: skip
_UNSIGNED: dict[str, _Function] = {
    "divui": lambda x, y: x // _divisor(y), "remui": lambda x, y: np.fmod(x, _divisor(y)), "minui": np.minimum,
    "maxui": np.maximum, "shrui": lambda x, y: x >> _bits(y),
}  # fmt: skip


def _elementwise(one: Operation, _: int, *operands: Value) -> Any:
    name, compared = one.name.rpartition(".")[2], one.text.split(",")[0]
    positive = name in _UNSIGNED or (name == "cmpi" and compared[0] == "u")
    arrays = [unsigned(value) if positive else value.whole() for value in operands]
    bounded(arrays)
    if name in {"cmpi", "cmpf"}:
        return _COMPARED[compared[-2:]](*arrays)
    if name in _UNSIGNED and not is_mask(one.types[0]):
        return _UNSIGNED[name](*arrays).astype(np.int64)
    return (_LOGICAL if is_mask(one.types[0]) else _NUMBERS)[name](*arrays)


def _product(_one: Operation, _: int, *operands: Value) -> tuple[Array, ...]:
    many, factor = sorted(operands, key=lambda value: -len(value.terms))
    by = factor.whole()
    for term in many.terms:
        bounded((term, by))
    return tuple(term * by for term in many.terms)


def _upper(one: Operation, _: int, first: Value, second: Value) -> Any:
    if one.types[0].bytes != 4:  # 64 bits have no wider type
        raise ValueError(one)
    return (unsigned(first) * unsigned(second)) >> 32


def _truncated(one: Operation, _: int, value: Value) -> Any:
    # Beyond the type's range there is no value; numpy's differs from one processor to the next.
    limit = 2.0 ** (one.types[0].bytes * 8 - 1)
    return np.clip(np.nan_to_num(np.trunc(value.whole())), -limit, np.nextafter(limit, 0)).astype(np.int64)


def _range(one: Operation, depth: int) -> Array:
    start, end = (int(one.attributes[name].split(" ")[0]) for name in ("start", "end"))
    if (end - start,) != one.types[0].shape:
        raise ValueError(one)
    return np.arange(start, end).reshape((1,) * depth + (-1,))


def _constant(one: Operation, depth: int) -> Value:
    """Return a constant; its tile has one element."""
    text = one.text.split(" : ")[0].strip().removeprefix("dense<").removesuffix(">")
    kind = one.types[0] if one.types else Type((), "i1")
    number: Any = {"true": 1, "false": 0}.get(text)
    if number is None and kind.element[0] == "i":
        number = int(text, 0)
    elif number is None:  # infinities are written as the bits of float32
        bits = text.startswith("0x") and len(text) == 10
        number = np.uint32(int(text, 16)).view(np.float32) if bits else float(text)
    return Value((np.full((1,) * (depth + len(kind.shape)), number, dtype(kind)),), kind, depth)


def _selected(one: Operation, _: int, mask: Value, first: Value, second: Value) -> Any_:
    kind = one.types[0]
    if kind.pointer and first.array != second.array:
        return Unknown("which of several arrays a program takes")
    return where(mask.whole(), first, second, kind)


def _bitcast(one: Operation, _: int, value: Value) -> Any:
    before, kind = value.type.element, one.types[0]
    if kind.pointer:
        return value.terms
    array, numbers = value.whole(), {"i32": np.int32, "f32": np.float32, "i64": np.int64, "f64": np.float64}
    if not before[0] == kind.element[0] == "i":  # else truth values as bytes and back
        if before[1:] != kind.element[1:]:
            raise TypeError(kind)
        array = array.astype(numbers[before]).view(numbers[kind.element])
    return array.astype(dtype(kind))


def _histogram(one: Operation, depth: int, value: Value, *masks: Value) -> Array:
    """Return how many elements have each of the values from 0 on."""
    arrays, bins = [one_.whole() for one_ in (value, *masks)], one.types[0].shape[0]
    numbers, *held = np.broadcast_arrays(*arrays, np.ones((1,) * depth + one.given[0].shape, bool))
    batch = numbers.shape[:depth]
    inside = np.logical_and.reduce([(numbers >= 0) & (numbers < bins), *held])
    places = np.arange(prod(batch)).reshape(*batch, 1) * bins + numbers
    return np.bincount(places[inside], minlength=prod(batch) * bins).reshape(*batch, bins)


# What operations make of their operands: a value, or an array or terms of one.
_RESULTS: dict[str, _Function] = {
    "addi": lambda _, __, first, second: (*first.terms, *second.terms),
    "subi": lambda _, __, first, second: (*first.terms, *(-term for term in second.terms)),
    "muli": _product,  # a sum times a number stays a sum
    **dict.fromkeys(("index_cast", "extf", "truncf", "sitofp", "trunci"), lambda _, __, value: value.terms),
    # A truth value's only bit is its sign.
    "extsi": lambda _, __, value: -value.whole().astype(np.int64) if is_mask(value.type) else value.terms,
    "extui": lambda _, __, value: unsigned(value),
    "fptosi": _truncated,
    "mulhiui": _upper,
    "constant": _constant,
    "make_range": _range,
    "select": _selected,
    "addptr": lambda _, __, to, by: (*to.terms, *(term * to.type.bytes for term in by.terms)),
    "bitcast": _bitcast,
    "int_to_ptr": lambda one, _, to: replace(to, type=one.types[0], array=f"{to.array or 'memory'}[]"),
    "make_tensor_descriptor": lambda one, _, to, *around: Descriptor(
        to, around[: len(around) // 2], around[len(around) // 2 :], one.types[0]
    ),
    "histogram": _histogram,
}
# Operations that make pointers, or what holds one, and of how many.
_POINTERS = {**dict.fromkeys((*_MOVES, "addptr", "bitcast", "make_tensor_descriptor"), 1), "select": 2, "int_to_ptr": 0}
# Of truth values, that differ; conditions that must all hold stay apart.
_OF_MASKS: dict[str, _Function] = {
    **dict.fromkeys(("andi", "muli"), _RESULTS["addi"]),
    **dict.fromkeys(("addi", "subi"), _elementwise),
    "trunci": lambda _, __, value: (value.whole() & 1).astype(bool),
}
