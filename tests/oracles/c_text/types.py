"""Types and values of C as the interpreter holds them: every object is bytes' places in a memory, with a type."""

from dataclasses import dataclass, field
from functools import cache


class UndefinedError(Exception):
    """What C does not define, such as a variable that is read before it was set: no kernel to compare with."""


@dataclass(frozen=True)
class CType:
    """A type; `of` is what pointers, references, arrays and vectors lead to."""

    kind: str  # "scalar", "vector", "pointer", "array", "struct", "void" or "function"
    name: str = ""
    of: "CType | None" = None
    count: int = 1
    size: int = 0
    align: int = 1
    fields: tuple = ()  # Of structs: name, offset, type
    function: object = field(default=None, compare=False)

    @property
    def is_float(self):
        return self.kind == "scalar" and self.name.startswith("float")

    @property
    def is_integer(self):
        return self.kind == "scalar" and not self.name.startswith("float")


@cache
def scalar(name):
    """Return a number's type, such as ``uint8``."""
    size = 1 if name == "bool" else int(name.lstrip("abcdefghijklmnopqrstuvwxyz")) // 8
    return CType("scalar", name, None, 1, size, size)


@cache
def vector(of, count, *, cuda):
    """Return a vector's type: in CUDA those of three have no fourth element in memory."""
    size = of.size * (4 if count == 3 and not cuda else count)
    align = size if not cuda or count in {2, 4} else of.size
    return CType("vector", f"{of.name}x{count}", of, count, size, min(align, 16) if cuda else align)


def pointer(to):
    """Return the type of a pointer."""
    return CType("pointer", "", to, 1, 8, 8)


def array(of, count):
    """Return the type of an array."""
    return CType("array", "", of, count, of.size * count, of.align)


def struct(name, fields):
    """Return the type of a struct with fields (name, type), with C's gaps."""
    offset, placed, align = 0, [], 1
    for label, kind in fields:
        offset += -offset % kind.align
        placed.append((label, offset, kind))
        offset, align = offset + kind.size, max(align, kind.align)
    return CType("struct", name, None, 1, max(offset + -offset % align, 1), align, tuple(placed))


VOID = CType("void")
BOOL, INT, UINT = scalar("bool"), scalar("int32"), scalar("uint32")
WORDS = {
    "bool": "bool", "char": "int8", "signed char": "int8", "short": "int16", "int": "int32", "long": "int64",
    "unsigned": "uint32", "unsigned int": "uint32", "unsigned char": "uint8", "unsigned short": "uint16",
    "unsigned long": "uint64", "unsigned long long": "uint64", "long long": "int64", "float": "float32",
    "double": "float64", "uchar": "uint8", "ushort": "uint16", "uint": "uint32", "ulong": "uint64",
    "size_t": "uint64", "int32_t": "int32", "uint32_t": "uint32", "uint8_t": "uint8", "int64_t": "int64",
}  # fmt: skip


@dataclass
class Memory:
    """One object in memory: what lies at each offset."""

    name: str
    space: str = "private"
    cells: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Place:
    """An object of a type at an offset of a memory; `lanes` are those of a vector that are named."""

    type: CType
    memory: Memory
    offset: int = 0
    lanes: tuple | None = None


@dataclass(frozen=True)
class Value:
    """A value; a pointer is a memory and an offset, vectors are tuples, structs and arrays what lies at each offset."""

    type: CType
    value: object
    product: bool = False  # Whether it was just multiplied: a sum makes a multiply-add of it
    literal: bool = False  # Whether the text alone says what it is: nothing is computed


def leaves(kind, offset=0):
    """Yield offset and type of each number and pointer in a type."""
    if kind.kind == "struct":
        for _, start, inner in kind.fields:
            yield from leaves(inner, offset + start)
    elif kind.kind in {"array", "vector"}:
        for place in range(kind.count):
            yield from leaves(kind.of, offset + place * kind.of.size)
    else:
        yield offset, kind


def common(one, two):
    """Return the type that two numbers are computed in."""
    if one.is_float or two.is_float:
        floats = [each for each in (one, two) if each.is_float]
        return max(floats, key=lambda each: each.size)
    one, two = (INT if each.size < 4 else each for each in (one, two))
    if one.size != two.size:
        return max(one, two, key=lambda each: each.size)
    return one if one.name.startswith("u") else two


def converted(value, kind):
    """Return a number as a type holds it."""
    if kind.is_float:
        return float(value)
    if kind.name == "bool":
        return int(bool(value))
    bits, number = 8 * kind.size, int(value)
    if not kind.name.startswith("u"):
        return (number + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)
    if isinstance(value, float) and number < 0:
        msg = "a negative float as an unsigned integer"
        raise UndefinedError(msg)
    return number % (1 << bits)
