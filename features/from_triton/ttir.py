"""Triton's intermediate code as text to a tree of operations; names become numbers, unique in the module."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import NamedTuple

from perflex.errors import UnsupportedKernelError

# What ends a block.
ENDS = {
    "scf.yield", "scf.condition", "tt.return", "cf.br", "cf.cond_br", "tt.reduce.return", "tt.scan.return",
    "tt.map_elementwise.return", "ub.unreachable",
}  # fmt: skip
_NAME = re.compile(r"%[\w$.-]+(?:#\d+)?")
# A loop's counter, or what it carries, before what it begins with.
_CARRIED = re.compile(r"(%[\w$.-]+) = ")
_OPERATION = re.compile(r"(?:((?:%[\w$.-]+|:\d{1,3}\b|, )+) = )?([a-z_][\w.]*)(.*)")
_ATTRIBUTE = re.compile(r"([\w.]+) = ([^,{}]+)")
_STRING = re.compile(r'(@?)"((?:[^"\\\n]|\\.)*)"(\(?)')
_SIGN = re.compile(r"->| :|[][(){}<>,]")
_TYPE = re.compile(r"(!tt\.tensordesc<)?(tensor<)?((?:\d+x)*)(?:!tt\.ptr<(.*)>|([a-z]\w*))(?:, #\w+)?(?(2)>)(?(1)>)$")
# Elements of a tile that Triton allows.
_LARGEST = 1 << 20
_BITS = re.compile(r"[a-z]+(\d+)")


class Type(NamedTuple):
    """A value's type: a tensor's shape, empty of a scalar, and its elements'; of pointers what they point to."""

    shape: tuple[int, ...]
    element: str
    pointer: bool = False
    descriptor: bool = False

    def pointee(self) -> Type:
        """Return the type of what is loaded from a pointer."""
        inner = self.element.removeprefix("!tt.ptr<")  # of a pointer to pointers
        return Type(self.shape, inner.removesuffix(">"), pointer=inner != self.element)

    @property
    def bytes(self) -> int:
        """Bytes of an element, or of what a pointer points to."""
        # A pointer and an index have 8; f8E4M3FN has 8 bits, and i1 takes a byte in memory.
        found = _BITS.match(self.element)
        return 8 if found is None else max(1, int(found.group(1)) // 8)


@dataclass(slots=True)
class Operation:
    """One operation; operands and results are numbers of values."""

    name: str
    operands: tuple[int, ...]
    results: tuple[int, ...]
    types: tuple[Type, ...]  # of the results
    given: tuple[Type, ...]  # of the operands, as far as the text states them
    text: str  # without results
    attributes: dict[str, str]
    regions: list[list[Block]]
    line: int


@dataclass(slots=True)
class Block:
    """Operations that follow one another, and the values that whoever goes there passes on."""

    label: str
    arguments: tuple[int, ...]
    operations: list[Operation]


@dataclass(slots=True)
class Function:
    """A function of the module: its arguments' names, numbers and types, and which are known multiples of 16."""

    name: str
    names: tuple[str, ...]
    arguments: tuple[int, ...]
    types: tuple[Type, ...]
    divisible: tuple[bool, ...]
    body: list[Block]


def parse_ttir(text: str) -> tuple[Function, dict[str, Function]]:
    """Return the kernel of a module and all of its functions by name.

    Raises
    ------
    UnsupportedKernelError
        The text is no TTIR, or of a later stage of the compiler.
    """
    if "#ttg." in text or "#triton_gpu." in text:
        msg = "this is TTGIR, which has lost what tiles are; give the .ttir file of the same kernel"
        raise UnsupportedKernelError(msg)
    parser, kernels, functions = _Parser(text), [], {}
    try:
        while parser.at < len(parser.lines):
            line = parser.next()
            if line.startswith("tt.func "):
                function = parser.function(line)
                functions[function.name] = function
                kernels += [function] if " public " in line else []
    except (LookupError, ValueError, AttributeError, RecursionError) as error:
        said = parser.lines[min(parser.at, len(parser.lines) - 1)][:80]
        msg = f"this is no TTIR that perflex can read (near {said!r}); give a .ttir file of Triton 3"
        raise UnsupportedKernelError(msg) from error
    if len(kernels) != 1:
        msg = f"the module has {len(kernels)} kernels; give TTIR of one"
        raise UnsupportedKernelError(msg)
    return kernels[0], functions


class _Parser:
    def __init__(self, text: str) -> None:
        lines = map(str.strip, _STRING.sub(_without_string, text).split("\n"))
        self.lines = [line for line in lines if line and not line.startswith("#loc")]
        self.at = self.count = 0
        self.scope: dict[str, int] = {}

    def next(self) -> str:
        """Return the next line, without locations."""
        self.at += 1
        line = self.lines[self.at - 1]
        while " loc(" in line:
            before, _, after = line.partition(" loc(")
            line = before + _split(f"({after}")[1]
        return line.rstrip()

    def define(self, names: Sequence[str]) -> tuple[int, ...]:
        """Return new numbers of names, of which ``%name:2`` stands for two values."""
        first = self.count
        for name, _, many in (one.partition(":") for one in names):
            self.scope[name] = self.count + 1
            for place in range(int(many or 1)):
                self.count += 1
                self.scope[f"{name}#{place}"] = self.count
        return tuple(range(first + 1, self.count + 1))

    def function(self, line: str) -> Function:
        head, _, rest = line.partition("@")[2].partition("(")
        parts = _split(f"({rest}")[0]
        names, _, kinds = zip(*(part.partition(": ") for part in parts), strict=True) if parts else ((), (), ())
        self.scope = {}
        divisible = tuple(bool(re.search(r"tt\.divisibility = (dense<)?16\b", kind)) for kind in kinds)
        arguments, types = self.define(names), tuple(map(_type, kinds))
        return Function(head, tuple(name[1:] for name in names), arguments, types, divisible, self.region()[0])

    def region(self, names: Sequence[str] = ()) -> tuple[list[Block], str]:
        """Read blocks and the line that closes them; names are of what is passed on to the first."""
        outer, self.scope = self.scope, self.scope.copy()
        blocks = [Block("", self.define(names), [])]
        while not (line := self.next()).startswith("}"):
            if line.startswith("^"):
                blocks.append(Block(re.split("[(:]", line)[0], self.define(_NAME.findall(line)), []))
            else:
                blocks[-1].operations.append(self.operation(line))
        if not blocks[-1].operations or blocks[-1].operations[-1].name not in ENDS:
            # Regions that yield nothing are printed without their end.
            blocks[-1].operations.append(Operation("scf.yield", (), (), (), (), "", {}, [], 0))
        self.scope = outer
        # The first block may have a label.
        return blocks[1:] if len(blocks) > 1 and not blocks[0].operations else blocks, line

    def operation(self, line: str) -> Operation:
        """Read an operation with its regions.

        Loops are ``scf.for %i = %lo to %hi step %s iter_args(%a = %b, ...) -> (types) : i32 {`` body ``}`` and
        ``scf.while (%a = %b, ...) : (types) -> types {`` condition ``} do {`` body ``}``.
        """
        number, found = self.at, _OPERATION.match(line)
        if found is None:
            raise ValueError(line)
        named, name, text = found.groups(default="")
        opened, text = text.endswith("{"), text.strip().rstrip(" {(")
        attributes = {}
        if name == "scf.for":
            kind = text.rpartition(" : ")[2] if " : " in text else "index"
            attributes = {"counter": kind, "unsigned": str(text.startswith("unsigned "))}
        names, regions = _CARRIED.findall(text), []
        text = _CARRIED.sub("", text)
        operands = tuple(self.scope[one] for one in _NAME.findall(text))
        while opened:
            region, tail = self.region(names)
            regions.append(region)
            names, opened = [], tail.endswith("{")
            text += "" if opened else tail.lstrip("})")
        attributes |= dict(_ATTRIBUTE.findall(text))
        given, types = _types(name, text)
        results = self.define(named.split(", ") if named else ())
        return Operation(name, operands, results, types, given, text, attributes, regions, number)


def _without_string(found: re.Match[str]) -> str:
    """Return the name of an operation or function, which has no brackets then; other strings become empty."""
    sign, inside, bracket = found.groups()
    return sign + (re.sub(r"[^\w.$]", "_", inside) if sign or bracket else '""') + bracket


@lru_cache(maxsize=1024)
def _split(text: str, separator: str = ",") -> tuple[list[str], str]:
    """Return the parts of a list, and what follows it if it stands in brackets; brackets hold parts together."""
    whole = text if text.startswith("(") else f"({text})"
    parts, depth, start = [], 0, 1
    for found in _SIGN.finditer(whole):
        sign = found.group()
        depth += (sign in "([{<") - (sign in ")]}>")
        if depth == 0 or (depth == 1 and sign == separator):
            parts.append(whole[start : found.start()].strip())
            start = found.end()
        if depth == 0:
            break
    if depth or (whole != text and start < len(whole)):
        raise ValueError(text)  # a bracket without its counterpart
    return [] if parts == [""] else parts, whole[start:]


def _types(name: str, text: str) -> tuple[tuple[Type, ...], tuple[Type, ...]]:
    """Return the types of operands and of results, as far as the text says; those of loops and branches not."""
    found = _split(f" {text}", " :")[0]
    if len(found) < 2 or name in ENDS or name == "tt.print" or name.startswith("scf."):
        return (), ()
    lists = re.split(r" (?:->|to) ", found[1].replace(" * ", ", "), maxsplit=1)
    given, *results = (tuple(map(_type, _split(one.strip())[0])) for one in lists)
    if results:
        return given, results[0]
    first, last = given[0], given[-1]
    if name in {"arith.cmpi", "arith.cmpf"}:
        return given, (Type(first.shape, "i1"),)
    return given, (first.pointee() if name == "tt.load" else first if name == "tt.addptr" else last,)


@lru_cache(maxsize=1024)
def _type(text: str) -> Type:
    """Return the type that a text names, behind which attributes may stand."""
    text = text.partition(" {")[0].strip()
    if text.startswith("<"):  # of a pointer, without its name
        text = f"!tt.ptr{text}" if "x" not in text else f"!tt.tensordesc{text}"
    found = _TYPE.match(text)
    if found is None:
        msg = f"unknown type {text}"
        raise ValueError(msg)
    descriptor, _, extents, pointee, element = found.groups()
    shape = tuple(map(int, extents.split("x")[:-1]))
    if prod(shape) > _LARGEST:
        msg = f"Triton has no tiles of so many elements: {text}"
        raise ValueError(msg)
    return Type(shape, element or pointee.split(",")[0], pointee is not None, descriptor is not None)
