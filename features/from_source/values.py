"""C types as far as counting needs them, and values of expressions that are no known integers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from perflex.features.from_source.integers import Integer
from perflex.features.lowering.arithmetic_types import common_type, scalar_bytes

Kind: TypeAlias = Literal["scalar", "vector", "struct", "pointer", "reference", "array", "void", "image", "unknown"]

_DTYPES = {
    "float": "float32", "double": "float64", "half": "float16", "__fp16": "float16", "_Float16": "float16",
    "int": "int32", "unsigned int": "uint32", "uint": "uint32", "long": "int64", "unsigned long": "uint64",
    "ulong": "uint64", "long long": "int64", "unsigned long long": "uint64", "size_t": "uint64", "short": "int16",
    "unsigned short": "uint16", "ushort": "uint16", "char": "int8", "signed char": "int8", "unsigned char": "uint8",
    "uchar": "uint8", "bool": "bool", "_Bool": "bool",
}  # fmt: skip
_POINTER_BYTES = 8
# What says nothing about a type's layout; "struct" and its like stand before names in C.
_QUALIFIERS = re.compile(
    r"\b(const|volatile|restrict|__restrict|__restrict__|__global|__local|__constant|__private|__generic|struct|union|enum"
    r"|static|extern)\b"
)
_VECTOR = re.compile(r"([a-z]+)(2|3|4|8|16)")
# As they are written: what CUDA's objects are is an integer.
_IMAGE = re.compile(
    r"(__(read|write)_(only|write) )?image[123]d\w*_t|cuda(Texture|Surface)Object_t|CU(tex|surf)Object|texture<.*>"
)
_ARRAYS = ("CONSTANTARRAY", "INCOMPLETEARRAY", "DEPENDENTSIZEDARRAY", "VARIABLEARRAY")


@dataclass(frozen=True)
class CType:
    """A type: for scalars and vectors the element type, for pointers and arrays what they lead to."""

    kind: Kind
    dtype: str = ""
    lanes: int = 1
    element: CType | None = None
    extent: int | None = None  # Of an array; None if it is not known
    struct_bytes: int = 0
    declared: Any = None  # clang's type

    @property
    def bytes(self) -> int:
        """Its size in memory; vectors of three have the space of four."""
        if self.is_number:
            return scalar_bytes(self.dtype) * (4 if self.lanes == 3 else self.lanes)
        if self.kind == "array" and self.element is not None:
            return self.element.bytes * (self.extent or 1)
        return self.struct_bytes if self.kind == "struct" else _POINTER_BYTES

    @property
    def is_integer(self) -> bool:
        """Whether it is an integer scalar."""
        return self.kind == "scalar" and not self.dtype.startswith("float")

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


def plain_name(name: str) -> str:
    """Return a type's name without qualifiers."""
    return " ".join(_QUALIFIERS.sub(" ", name).split())


def named_type(name: str) -> CType | None:
    """Return the scalar or vector type of a name such as ``float`` or ``uchar4``; None for other names."""
    if name in _DTYPES:
        return CType("scalar", _DTYPES[name])
    vector = _VECTOR.fullmatch(name)
    if vector and vector[1] in _DTYPES:
        return CType("vector", _DTYPES[vector[1]], int(vector[2]))
    return None


def type_name(dtype: str, lanes: int) -> str:
    """Return the C name of a scalar or vector type; empty where there is none."""
    name = next((name for name, known in _DTYPES.items() if known == dtype and " " not in name), "")
    return f"{name}{lanes}" if name and lanes > 1 else name


class TypeReader:
    """Reads clang's types; template parameters are what they were bound to."""

    def __init__(self, bound: Mapping[str, str]) -> None:
        self.bound: Mapping[str, str] = bound
        # By what clang knows a type by as long as the file's unit is there, which a type that was read keeps.
        self._known: dict[tuple[Any, ...], tuple[Any, CType]] = {}

    def read(self, declared: Any) -> CType:
        """Return the type that clang names."""
        key = tuple(declared.data)
        if key not in self._known:
            self._known[key] = declared, self._read(declared)
        return self._known[key][1]

    def _read(self, declared: Any) -> CType:
        canonical = declared.get_canonical()
        written = plain_name(declared.spelling)
        plain = plain_name(canonical.spelling)
        if _IMAGE.fullmatch(written) or _IMAGE.fullmatch(plain):
            return CType("image", declared=declared if _IMAGE.fullmatch(written) else canonical)
        found = named_type(self.bound.get(written) or self.bound.get(plain) or plain)
        if found is not None:
            return found
        kind = canonical.kind.name
        if kind in {"POINTER", "LVALUEREFERENCE"}:
            word: Kind = "pointer" if kind == "POINTER" else "reference"
            element = _inside(declared.get_pointee(), canonical.get_pointee())
            return CType(word, element=self.read(element), declared=canonical)
        if kind in _ARRAYS:
            extent = canonical.element_count if kind == "CONSTANTARRAY" else None
            element = _inside(declared.get_array_element_type(), canonical.get_array_element_type())
            return CType("array", element=self.read(element), extent=extent, declared=canonical)
        if kind in {"EXTVECTOR", "VECTOR"}:
            return CType("vector", self.read(canonical.element_type).dtype, canonical.element_count)
        if kind == "ENUM":
            return INT
        if kind == "VOID":
            return CType("void")
        if kind == "RECORD":
            return CType("struct", struct_bytes=max(canonical.get_size(), 0), declared=canonical)
        return UNKNOWN


def _inside(written: Any, canonical: Any) -> Any:
    """Return a type as it is written, for only that has the names of template parameters; else the canonical one."""
    return canonical if written.kind.name == "INVALID" else written


# Why a value is not known: it comes from arrays; from float arguments and constants; it is no affine integer; it
# changes irregularly from iteration to iteration; nothing was assigned to it.
Reason: TypeAlias = Literal["data", "uniform", "not affine", "carried", "undefined"]
# Of two reasons the one that is told.
_ORDER: tuple[Reason, ...] = ("data", "carried", "not affine", "uniform", "undefined")


@dataclass(frozen=True)
class MemoryAccess:
    """A load or store of `bytes` bytes at an offset; None where the offset is not known."""

    array: str
    direction: Literal["load", "store"]
    offset: Integer | None
    bytes: int
    dtype: str
    line: str
    text: str
    outer: tuple[Integer, ...] | None = None  # An image's subscripts but the last, to which the offset belongs


@dataclass(eq=False)
class Executed:
    """Accesses and operations that are executed together, or a barrier."""

    domain: Any  # isl set without dimensions
    loops: tuple[int, ...]  # Places among those that the walk entered
    order: tuple[int, ...]
    guarded: bool
    line: str
    barrier: bool = False
    closed: bool = False
    accesses: list[MemoryAccess] = field(default_factory=list)
    operations: Counter[tuple[str, str]] = field(default_factory=Counter)
    updates: Hashable = None  # The variable that it updates from its old value
    chain: tuple[tuple[str, str], ...] = ()  # The operations on that way
    resets: Hashable = None  # The variable that it sets afresh

    @property
    def atomic(self) -> bool:
        """Whether it is an atomic update, which is nothing else."""
        return any(kind == "atomic" for _, kind in self.operations)


@dataclass(frozen=True)
class Unknown:
    """A number that is not known when kernels are counted."""

    dtype: str
    lanes: int = 1
    reason: Reason = "data"
    constant: float | None = None  # Of float literals and what follows from them
    # Of floats, the integer that was converted to it, plus a rational constant.
    source: Integer | None = None
    parts: tuple[Integer | Unknown | None, ...] = ()  # Of vectors, elements that are known; None for others
    product: Executed | None = None  # Where it was multiplied, if it is a product that no variable holds
    # Operations on the way from variables' values to it.
    chains: Mapping[Hashable, tuple[tuple[str, str], ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Pointer:
    """A pointer into an array; `array` is None where it is not known which."""

    array: str | None
    offset: Integer | Unknown  # In bytes
    element: CType
    extents: tuple[int | None, ...] = ()  # Of an array that it is the beginning of, outermost first
    nullable: bool = False  # Whether it may be null: on some ways to here it is


@dataclass(frozen=True)
class Struct:
    """A struct in registers."""

    type: CType
    fields: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class PrivateArray:
    """An array in registers, with the elements that were assigned at known places."""

    element: CType
    extents: tuple[int | None, ...]
    elements: Mapping[tuple[Any, ...], Value] = field(default_factory=dict)


@dataclass(frozen=True)
class Place:
    """Where a value is read from and written to: in memory, in a variable, or nowhere (`value` alone)."""

    type: CType
    memory: Pointer | None = None
    variable: Hashable = None
    indices: tuple[Value, ...] = ()  # In a private array
    path: tuple[str, ...] = ()  # Fields in a struct
    lane: str = ""  # Elements of a vector, as written
    value: Value | None = None


@dataclass(frozen=True)
class Address:
    """The address of a variable, as ``&x`` gives it."""

    place: Place


Value: TypeAlias = Integer | Unknown | Pointer | Struct | PrivateArray | Address


def unknown_of(kind: CType, reason: Reason = "data") -> Value:
    """Return a value of a type of which nothing is known."""
    if kind.kind == "struct":
        return Struct(kind)
    if kind.kind == "pointer" and kind.element is not None:
        return Pointer(None, Unknown("int64"), kind.element)
    if kind.is_number:
        return Unknown(kind.dtype, kind.lanes, reason)
    return Unknown("float32", 1, reason)


def reason_of(*values: Value) -> Reason:
    """Return why something computed from values is not known."""
    reasons = {value.reason for value in values if isinstance(value, Unknown)}
    return next((reason for reason in _ORDER if reason in reasons), "not affine")


def dtype_of(*values: Value) -> str:
    """Return the type in which C computes with values."""
    found = [value.dtype for value in values if isinstance(value, (Integer, Unknown))]
    result = found[0] if found else "int32"
    for dtype in found[1:]:
        result = common_type(result, dtype)
    return result


def lanes_of(*values: Value) -> int:
    """Return the elements of the widest vector among values."""
    return max((value.lanes for value in values if isinstance(value, Unknown)), default=1)


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
    """Return a value as a variable holds it: compilers fuse products with sums inside one expression only."""
    return replace(value, product=None) if isinstance(value, Unknown) and value.product is not None else value


def known_part(value: Value, dtype: str) -> Integer | Unknown | None:
    """Return an element of a vector of a type, if it is known."""
    if isinstance(value, Unknown) and (value.source is not None or value.constant is not None):
        return replace(value, product=None) if value.lanes == 1 and value.dtype == dtype else None
    return value if isinstance(value, Integer) and value.dtype == dtype else None


def vector_of(kind: CType, values: Sequence[Value]) -> Unknown:
    """Return a vector of given elements."""
    parts = tuple(known_part(value, kind.dtype) for value in values) if len(values) == kind.lanes > 1 else ()
    return Unknown(kind.dtype, kind.lanes, reason_of(*values), parts=parts if any(parts) else ())


def changed(value: Value, reason: Reason) -> Value:
    """Return what is left of a value after changes that are not known."""
    if isinstance(value, Integer):
        return Unknown(value.dtype, reason=reason)
    if isinstance(value, Pointer):
        return replace(value, offset=Unknown("int64", reason=reason), extents=())
    if isinstance(value, Unknown) and value.reason == "undefined":
        return replace(value, reason="data", constant=None, source=None, parts=())
    if isinstance(value, Unknown):
        return replace(value, constant=None, source=None, parts=(), chains={})
    if isinstance(value, PrivateArray):
        return replace(value, elements={})
    return unknown_of(value.type) if isinstance(value, Struct) else value
