"""Values of the interpreter: integers of many programs and loop iterations at once, known exactly or not at all.

An array has an axis for programs, one for each loop whose iterations are computed together, then those of the tile;
axes along which nothing changes have length 1. An integer tile is kept as a sum of such arrays, a mask as their
conjunction, since addresses and masks are nearly always sums and conjunctions of rows and columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import prod
from typing import Any

import numpy as np

from perflex.features.from_triton.ttir import Type

# Terms are added up where the sum is small; a sum of more elements than the second is not computed at once.
_SMALL = 1 << 13
_MOST = 1 << 25


class TooLargeError(Exception):
    """Fewer programs must be computed at once."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value that depends on data: on what, for messages."""

    cause: str


@dataclass(frozen=True, slots=True)
class Value:
    """A known tile; its value is the sum of the terms, or their conjunction where it is a mask."""

    terms: tuple[np.ndarray[Any, Any], ...]
    type: Type
    # Axes before those of the tile.
    depth: int
    # The array that it was loaded from.
    origin: str = ""

    @property
    def is_mask(self) -> bool:
        """Whether it is of truth values."""
        return self.type.element == "i1"

    def at(self, depth: int) -> Value:
        """Return it with further axes of iterations, along which it is the same."""
        if depth == self.depth:
            return self
        new = tuple(range(self.depth, depth))
        return replace(self, terms=tuple(np.expand_dims(term, new) for term in self.terms), depth=depth)

    def whole(self) -> np.ndarray[Any, Any]:
        """Return the sum or conjunction as one array; its axes may have length 1."""
        if len(self.terms) == 1:
            return self.terms[0]
        bounded(self.terms)
        return reduce(np.logical_and if self.is_mask else np.add, self.terms)

    def moved(self, move: Callable[[np.ndarray[Any, Any], int], np.ndarray[Any, Any]], kind: Type) -> Value:
        """Return it with the tile's axes changed in each term: `move` takes a term and the number of axes before."""
        return Value(tuple(move(term, self.depth) for term in self.terms), kind, self.depth)


@dataclass(frozen=True, slots=True)
class Pointer:
    """Addresses: bytes from the beginning of an array, which stands at a multiple of 256 bytes."""

    base: str
    offset: Value
    type: Type

    def at(self, depth: int) -> Pointer:
        """Return it with further axes of iterations."""
        return replace(self, offset=self.offset.at(depth))


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A tensor in memory that is accessed by tiles: sizes and strides in elements, one for each axis."""

    pointer: Pointer
    sizes: tuple[Value, ...]
    strides: tuple[Value, ...]
    type: Type

    def at(self, _depth: int) -> Descriptor:
        """Return it as it is; what it holds is aligned where it is used."""
        return self


Any_ = Value | Pointer | Descriptor | Unknown


def bounded(arrays: Iterable[np.ndarray[Any, Any]]) -> None:
    """Raise where arrays together have more elements than are computed at once."""
    if prod(np.broadcast_shapes(*(array.shape for array in arrays))) > _MOST:
        raise TooLargeError


def scalar(number: Any, kind: Type, depth: int = 1) -> Value:
    """Return a number, or an array with `depth` axes of numbers, as a value."""
    array = np.asarray(number)
    return Value((array.reshape(array.shape or (1,) * depth),), kind, depth)


def total(terms: Sequence[np.ndarray[Any, Any]], kind: Type, depth: int) -> Value:
    """Return a sum or conjunction with small terms put together, and integers wrapped as the hardware does."""
    join: Any = np.logical_and if kind.element == "i1" else np.add
    found: list[np.ndarray[Any, Any]] = []
    for term in terms:
        for place, other in enumerate(found):
            if prod(np.broadcast_shapes(term.shape, other.shape)) <= max(_SMALL, term.size, other.size):
                found[place] = join(term, other)
                break
        else:
            found.append(term)
    if kind.element in {"f16", "bf16"}:  # rounded as numpy does not
        raise ValueError(kind)
    if kind.element == "f32":
        return Value((reduce(np.add, found).astype(np.float32),), kind, depth)
    bits = kind.bytes * 8
    if kind.element[0] == "i" and kind.element not in {"i1", "index"} and bits < 64:
        limit = 1 << (bits - 1)
        if sum(float(term.min()) for term in found) < -limit or sum(float(term.max()) for term in found) >= limit:
            bounded(found)
            return Value((wrapped(reduce(np.add, found), bits),), kind, depth)
    return Value(tuple(found), kind, depth)


def wrapped(array: np.ndarray[Any, Any], bits: int) -> np.ndarray[Any, Any]:
    """Return integers as signed ones of so many bits."""
    return array.astype(f"i{bits // 8}").astype(np.int64) if bits < 64 else array


def unsigned(array: np.ndarray[Any, Any], bits: int) -> np.ndarray[Any, Any]:
    """Return integers of so many bits as those without a sign."""
    return array & ((1 << bits) - 1) if bits < 64 else array.astype(np.uint64)


def _divided(first: np.ndarray[Any, Any], second: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    # Programs that do not get here may divide by zero.
    second = np.where(second == 0, 1, second)
    quotient = np.abs(first) // np.abs(second)
    signed: np.ndarray[Any, Any] = np.where((first < 0) != (second < 0), -quotient, quotient)
    return signed


def _remainder(first: np.ndarray[Any, Any], second: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    rest: np.ndarray[Any, Any] = np.fmod(first, np.where(second == 0, second.dtype.type(1), second))
    return rest


def _floored(first: np.ndarray[Any, Any], second: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    quotient: np.ndarray[Any, Any] = first // np.where(second == 0, second.dtype.type(1), second)
    return quotient


def _shift(shifted: Any) -> Callable[[np.ndarray[Any, Any], np.ndarray[Any, Any]], Any]:
    # A shift by all bits or more has no value; numpy's differs from one processor to the next.
    return lambda first, second: shifted(first, np.clip(second, 0, 63))


SIGNED: dict[str, Callable[..., Any]] = {
    "divsi": _divided,
    "remsi": _remainder,
    "floordivsi": _floored,
    "ceildivsi": lambda first, second: -_floored(-first, second),
    "minsi": np.minimum,
    "maxsi": np.maximum,
    "shli": _shift(np.left_shift),
    "shrsi": _shift(np.right_shift),
    "muli": np.multiply,
    "andi": np.bitwise_and,
    "ori": np.bitwise_or,
    "xori": np.bitwise_xor,
}
UNSIGNED: dict[str, Callable[..., Any]] = {
    "divui": _floored,
    "remui": _remainder,
    "ceildivui": lambda first, second: -_floored(-first, second),
    "minui": np.minimum,
    "maxui": np.maximum,
    "shrui": _shift(np.right_shift),
    "mulhiui": lambda first, second: first * second >> 32,
}
COMPARED: dict[str, Callable[..., Any]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal
}  # fmt: skip
# Of floating-point numbers that sizes decide, such as a ceiling of a quotient.
REAL: dict[str, Callable[..., Any]] = {
    "addf": np.add, "subf": np.subtract, "mulf": np.multiply, "divf": lambda x, y: x / np.where(y == 0, 1, y),
    "negf": np.negative, "minnumf": np.minimum, "maxnumf": np.maximum, "minimumf": np.minimum, "maximumf": np.maximum,
    "ceil": np.ceil, "floor": np.floor, "sqrt": lambda x: np.sqrt(np.maximum(x, 0)), "absf": np.abs, "exp2": np.exp2,
    "log2": lambda x: np.log2(np.maximum(x, 1e-300)),
}  # fmt: skip
