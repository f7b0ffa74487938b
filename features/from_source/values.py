"""C types as far as counting needs them, and values of expressions: floats may be integers plus constants, too."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np

from perflex.features.from_source.copies import replace
from perflex.features.from_source.integers import Integer, NotAffineError, Where, signed
from perflex.features.from_source.parsing import fields_of, kind_of
from perflex.features.from_source.pending import Pending
from perflex.features.lowering.arithmetic_types import common_type, is_float, scalar_bytes
from perflex.features.scop.words import UPDATES
from perflex.isl import isl

Kind: TypeAlias = Literal["scalar", "vector", "struct", "pointer", "reference", "array", "void", "unknown"]

_DTYPES = {
    "float": "float32", "double": "float64", "half": "float16", "__fp16": "float16", "_Float16": "float16",
    "__half": "float16", "__bf16": "bfloat16", "__nv_bfloat16": "bfloat16", "int": "int32",
    "unsigned int": "uint32", "uint": "uint32", "long": "int64",
    "unsigned long": "uint64", "ulong": "uint64", "long long": "int64", "longlong": "int64",
    "unsigned long long": "uint64", "ulonglong": "uint64", "size_t": "uint64", "short": "int16",
    "unsigned short": "uint16", "ushort": "uint16", "char": "int8", "signed char": "int8", "unsigned char": "uint8",
    "uchar": "uint8", "bool": "bool", "_Bool": "bool", "wchar_t": "int32", "char16_t": "uint16", "char32_t": "uint32",
    "long double": "float64",  # on devices
}  # fmt: skip
_POINTER_BYTES = 8
# The denominator of the finest constants that are known beside integers.
FINEST = 1024
# What says nothing about a type's layout; "struct" and its like stand before names in C.
_QUALIFIERS = re.compile(
    r"\b(const|volatile|restrict|__restrict|__restrict__|__global|__local|__constant|__private|__generic|struct|union|enum"
    r"|static|extern)\b"
)
# By clang's names.
_LEADING: Mapping[str, Kind] = {
    "POINTER": "pointer", "LVALUEREFERENCE": "reference", "RVALUEREFERENCE": "reference",
    "CONSTANTARRAY": "array", "INCOMPLETEARRAY": "array",
    "DEPENDENTSIZEDARRAY": "array", "VARIABLEARRAY": "array",
}  # fmt: skip


# Numbers that nothing is known of, by clang's names.
_UNREAD = {"INT128", "UINT128", "FLOAT128", "IBM128", "COMPLEX"}


@dataclass(frozen=True)
class CType:
    """A type: for scalars and vectors the element type, for pointers and arrays what they lead to."""

    kind: Kind
    dtype: str = ""
    lanes: int = 1
    element: CType | None = None
    extent: int | None = None  # Of an array; None if it is not known
    struct_bytes: int = 0  # Of structs, CUDA's vectors among them
    declared: Any = None  # clang's type

    @property
    def bytes(self) -> int:
        """Its size in memory; OpenCL's vectors of three have the space of four."""
        if self.is_number and not self.struct_bytes:
            return scalar_bytes(self.dtype) * (4 if self.lanes == 3 else self.lanes)
        if self.kind == "array" and self.element is not None:
            return self.element.bytes * (self.extent or 1)
        return self.struct_bytes if self.kind in {"struct", "vector"} else _POINTER_BYTES

    @property
    def is_integer(self) -> bool:
        """Whether it is an integer scalar."""
        return self.kind == "scalar" and not is_float(self.dtype)

    @property
    def is_number(self) -> bool:
        """Whether it is a scalar or a vector."""
        return self.kind in {"scalar", "vector"}

    @property
    def inner(self) -> tuple[CType, tuple[int | None, ...]]:
        """The element type of an array of arrays, and all its extents, outermost first."""
        element, extents = self, []
        while element.kind == "array" and element.element is not None:
            extents.append(element.extent)
            element = element.element
        return element, tuple(extents)


UNKNOWN = CType("unknown")
INT = CType("scalar", "int32")
# By their names, such as ``float`` or ``uchar4``.
NAMED_TYPES = {
    f"{name}{lanes or ''}": CType("vector" if lanes else "scalar", dtype, lanes or 1)
    for name, dtype in _DTYPES.items()
    for lanes in (0, 2, 3, 4, 8, 16)
}


def plain_name(name: str) -> str:
    """Return a type's name without qualifiers."""
    return " ".join(_QUALIFIERS.sub(" ", name).split())


class TypeReader:
    """Reads clang's types; `refuse` makes the error of one that is not read, where that stops anything."""

    def __init__(self) -> None:
        self.refuse: Callable[[str], Exception] | None = None
        # By what clang knows a type by as long as the file's unit is there, which a type that was read keeps.
        self._known: dict[bytes, tuple[Any, CType]] = {}
        # The fields of a struct that are pointers or hold some: name, place in bytes, type.
        self.pointers: dict[tuple[Any, ...], list[tuple[str, int, CType]]] = {}

    def read(self, declared: Any) -> CType:
        """Return the type that clang names."""
        key = bytes(declared)
        if key not in self._known:
            self._known[key] = declared, self._read(declared)
        return self._known[key][1]

    def _read(self, declared: Any) -> CType:
        canonical = declared.get_canonical()
        plain = plain_name(canonical.spelling)
        found, kind = NAMED_TYPES.get(plain), kind_of(canonical)
        if found is not None and (kind != "RECORD" or self._is_vector(canonical, found)):
            size = max(canonical.get_size(), 0) if kind == "RECORD" else 0
            return replace(found, struct_bytes=size, declared=canonical) if size else found
        if word := _LEADING.get(kind):
            inside = "get_array_element_type" if word == "array" else "get_pointee"
            element = getattr(canonical, inside)()
            extent = canonical.element_count if kind == "CONSTANTARRAY" else None
            return CType(word, element=self.read(element), extent=extent, declared=canonical)
        if kind in _UNREAD and self.refuse is not None:
            raise self.refuse(f"numbers of type {plain!r} are not read; use numbers of other types")
        if kind in {"EXTVECTOR", "VECTOR"}:
            return CType("vector", self.read(canonical.element_type).dtype, canonical.element_count)
        if kind == "RECORD":
            return CType("struct", struct_bytes=max(canonical.get_size(), 0), declared=canonical)
        if kind == "ENUM":
            return self.read(canonical.get_declaration().enum_type)
        return CType("void") if kind == "VOID" else UNKNOWN

    def _is_vector(self, struct: Any, kind: CType) -> bool:
        """Return whether a struct with the name of a vector is laid out as one: programs have others of such names."""
        fields = [(each.spelling, self.read(each.type)) for each in fields_of(struct)]
        return fields == [(name, CType("scalar", kind.dtype)) for name in "xyzw"[: kind.lanes]]


# Why a value is not known: it comes from arrays; from float arguments and constants; it is no affine integer; it
# changes irregularly from iteration to iteration; nothing was assigned to it.
Reason: TypeAlias = Literal["data", "uniform", "not affine", "carried", "undefined"]
# Of two reasons the one that is told.
_ORDER: tuple[Reason, ...] = ("data", "carried", "not affine", "uniform", "undefined")


BarrierKind: TypeAlias = Literal["local", "global", "sub_group"]
Direction: TypeAlias = Literal["load", "store"]


@dataclass(frozen=True)
class MemoryAccess:
    """A load or store of `bytes` bytes at an offset; None where the offset is not known."""

    array: str
    direction: Direction
    offset: Integer | None
    bytes: int
    dtype: str
    line: str
    text: str
    assumed: str = ""  # What the user stated of it, in words


@dataclass(eq=False)
class Executed:
    """Accesses and operations that are executed together, or a barrier."""

    domain: Any  # isl set without dimensions
    loops: tuple[int, ...]  # Places among those that the walk entered
    order: tuple[int, ...]
    guarded: bool
    line: str
    barrier: BarrierKind | None = None
    closed: bool = False
    accesses: list[MemoryAccess] = field(default_factory=list)
    operations: Counter[tuple[str, str]] = field(default_factory=Counter)
    updates: Hashable = None  # The variable that it updates from its old value
    chain: tuple[tuple[str, str], ...] = ()  # The operations on that way
    resets: Hashable = None  # The variable that it sets afresh

    @property
    def atomic(self) -> bool:
        """Whether it is an atomic update, which is nothing else."""
        return any(kind in UPDATES for _, kind in self.operations)


@dataclass(frozen=True)
class Unknown:
    """A number that is not known when kernels are counted."""

    dtype: str
    lanes: int = 1
    reason: Reason = "data"
    constant: float | None = None  # Of floats, the value if it is known
    literal: bool = False  # Whether the text says the constant: compilers compute with it
    # Of floats, the integer that was converted to it, plus a rational constant.
    source: Integer | None = None
    parts: tuple[Integer | Unknown | None, ...] = ()  # Of vectors, elements that are known; None for others
    product: Executed | None = None  # Where it was multiplied, if it is a product that no variable holds
    counted: Integer | None = None  # Of a loop's variable, what it would be if the loop began with 0
    # Operations on the way from variables' values to it.
    chains: Mapping[Hashable, tuple[tuple[str, str], ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Pointer:
    """A pointer into an array; `array` is None where it is not known which."""

    array: str | None
    offset: Integer | Unknown  # In bytes
    element: CType
    nullable: bool = False  # Whether it may be null: on some ways to here it is
    assumed: str = ""  # What the user stated of the offset, in words
    ways: tuple[Way, ...] = ()  # Where it points into one of several arrays
    path: tuple[str, ...] = ()  # The fields that lead to where it points


@dataclass(frozen=True)
class Way:
    """One of the pointers that a chosen pointer may be: in a set, None for everywhere; else data decide."""

    pointer: Pointer
    domain: Any = None
    certain: bool = True


@dataclass(frozen=True)
class Aggregate:
    """A struct or an array in registers, with the parts that were assigned, by field or subscript."""

    parts: Mapping[int | str, Value] = field(default_factory=dict)
    rest: Reason = "undefined"  # Why the other parts are not known


@dataclass(frozen=True)
class Closure:
    """A function as a value; of a lambda with what it captured when it was made (None: nothing by value)."""

    function: Any = None  # clang's node; None of a lambda, whose calls name it
    captured: Mapping[Hashable, Value] | None = None
    by_reference: frozenset[Hashable] = frozenset()  # Of what lambdas that capture by value take as it is then


@dataclass(frozen=True)
class Place:
    """Where a value is: in memory, in a variable, or nowhere (`value` alone). As a value it is an address (``&x``)."""

    type: CType
    memory: Pointer | None = None
    variable: Hashable = None
    steps: tuple[int | str | None, ...] = ()  # Fields and subscripts that lead to a part; None for unknown subscripts
    lanes: tuple[int, ...] = ()  # Of a vector, where they are named
    value: Value | None = None
    private: Pointer | None = None  # Of an element of a private array: where it lies in it


Value: TypeAlias = Integer | Unknown | Pointer | Aggregate | Place | Closure


def unknown_of(kind: CType, reason: Reason = "data") -> Value:
    """Return a value of a type of which nothing is known."""
    if kind.kind in {"struct", "array"}:
        return Aggregate(rest=reason)
    if kind.kind == "pointer" and kind.element is not None:
        return Pointer(None, Unknown("int64", reason=reason), kind.element)
    return Unknown(kind.dtype or "float32", kind.lanes, reason)


def result_of(*values: Value) -> Unknown:
    """Return what computing with values gives: in C's type, as wide as the widest vector, and why it is not known."""
    dtypes = [value.dtype for value in values if isinstance(value, (Integer, Unknown))] or ["int32"]
    unknown = [value for value in values if isinstance(value, Unknown)]
    return Unknown(
        common_type(*dtypes) if len(dtypes) > 1 else dtypes[0],
        max((value.lanes for value in unknown), default=1),
        min((value.reason for value in unknown), key=_ORDER.index, default="not affine"),
    )


def rounded(number: float | None, dtype: str) -> float | None:
    """Return a number as a floating-point type holds it, as far as it is known."""
    if number is None or dtype not in {"float16", "float32"}:
        return number
    with np.errstate(over="ignore"):
        return float(np.dtype(dtype).type(number))


@lru_cache(maxsize=256)
def rational(number: float | None) -> Integer | None:
    """Return a float that is a whole number of `FINEST` parts of one; 0.1 is none, which floats cannot hold."""
    if number is None or not math.isfinite(number) or number * FINEST % 1 or abs(number) > 2**40:
        return None
    return Integer.of(isl.PwAff(f"{{ [] -> [({round(number * FINEST)}/{FINEST})] }}"), "int64")


def exact(value: Value | None, where: Where) -> Integer | None:
    """Return a number as an integer plus a rational constant; None if it is none."""
    if isinstance(value, Integer):
        with suppress(NotAffineError):
            return signed(value, where)
    if not isinstance(value, Unknown) or value.lanes > 1:
        return None
    return value.source if value.source is not None else rational(value.constant)


def chains_of(values: Sequence[Value], operation: tuple[str, str]) -> dict[Hashable, tuple[tuple[str, str], ...]]:
    """Return the longest chains through an operation on values."""
    found: dict[Hashable, tuple[tuple[str, str], ...]] = {}
    for value in values:
        if isinstance(value, Unknown):
            for variable, chain in value.chains.items():
                if len(chain) >= len(found.get(variable, ())):
                    found[variable] = (*chain, operation)
    return found


def held(value: Value) -> Value:
    """Return what a variable or function gives: compilers fuse products with sums inside one expression only."""
    if isinstance(value, Integer) and value.pending is not None and value.pending.kind == "mul":
        return replace(value, pending=Pending(before=(value.pending,)))
    return replace(value, product=None) if isinstance(value, Unknown) and value.product is not None else value


def known_part(value: Value, dtype: str) -> Integer | Unknown | None:
    """Return an element of a vector of a type, if it is known."""
    if isinstance(value, Unknown) and (value.source is not None or value.constant is not None):
        return value if value.lanes == 1 and value.dtype == dtype else None
    return value if isinstance(value, Integer) and value.dtype == dtype else None


def vector_of(kind: CType, values: Sequence[Value]) -> Unknown:
    """Return a vector of given elements."""
    parts = tuple(known_part(value, kind.dtype) for value in values) if len(values) == kind.lanes > 1 else ()
    return Unknown(kind.dtype, kind.lanes, result_of(*values).reason, parts=parts if any(parts) else ())


def somewhere(pointer: Pointer, reason: Reason) -> Pointer:
    """Return a pointer of which is known into which arrays it may point, and no more."""
    ways = tuple(replace(way, pointer=somewhere(way.pointer, reason)) for way in pointer.ways)
    return replace(pointer, offset=Unknown("int64", reason=reason), ways=ways)


def changed(value: Value, reason: Reason) -> Value:
    """Return what is left of a value after changes that are not known."""
    if isinstance(value, Integer):
        return Unknown(value.dtype, reason=reason)
    if isinstance(value, Pointer):
        return somewhere(value, reason)
    if isinstance(value, Unknown):
        why: Reason = "data" if value.reason == "undefined" else value.reason
        return replace(value, reason=why, constant=None, source=None, parts=(), counted=None, chains={})
    return Aggregate(rest=reason) if isinstance(value, Aggregate) else value


def part_of(value: Value, steps: Sequence[int | str | None], kind: CType) -> Value:
    """Return a part of a struct or array, of a type."""
    for step in steps:
        if not isinstance(value, Aggregate) or step is None:
            return unknown_of(kind)
        if step not in value.parts:
            return unknown_of(kind, value.rest)
        value = value.parts[step]
    # Of a part that one of two ways set nothing is known, not even of which type it is.
    if isinstance(value, Unknown) and kind.kind in {"struct", "array"}:
        return unknown_of(kind, value.reason)
    return value


def with_part(before: Value | None, steps: Sequence[int | str | None], value: Value) -> Value:
    """Return a struct or array after an assignment to a part; one at an unknown place may be to any."""
    if not steps:
        return value
    owner = before if isinstance(before, Aggregate) else Aggregate(rest="data")
    first, *others = steps
    if first is None:
        return changed(before, "data") if isinstance(before, (Integer, Unknown)) else Aggregate(rest="data")
    inner = with_part(owner.parts.get(first, Aggregate(rest=owner.rest)), others, value)
    return replace(owner, parts={**owner.parts, first: inner})


def with_parts(whole: Aggregate, parts: Mapping[int | str, Value], rest: Reason | None = None) -> Aggregate:
    """Return a struct or array with other parts, itself where these are its own: what did not change stays known."""
    why = rest or whole.rest
    same = parts.keys() == whole.parts.keys() and all(whole.parts[key] is part for key, part in parts.items())
    return whole if same and why == whole.rest else Aggregate(parts, why)


def counted_by(value: Value) -> Integer | None:
    """Return the number in a value that loops may count with: itself, or where a pointer points."""
    if isinstance(value, Pointer):
        return value.offset if isinstance(value.offset, Integer) else None
    if isinstance(value, Unknown):
        return value.source if value.lanes == 1 else None
    return value if isinstance(value, Integer) else None


def with_count(value: Value, offset: Integer) -> Value:
    """Return a value that loops count with at another number."""
    if isinstance(value, Unknown):
        return replace(value, source=offset, constant=None, chains={})
    return replace(value, offset=offset) if isinstance(value, Pointer) else offset


def places_in(value: Value | None) -> Iterator[Place]:
    """Yield the variables that a value points to."""
    if isinstance(value, Place):
        yield value
    for part in value.parts.values() if isinstance(value, Aggregate) else ():
        yield from places_in(part)
