"""Triton's intermediate code as text to a tree of operations; names become numbers, unique in the module."""

from __future__ import annotations

import re
from collections import ChainMap
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import NamedTuple

from perflex.errors import UnsupportedKernelError

_NAME = re.compile(r"%[\w$.-]+(?:#\d+)?")
_RESULTS = re.compile(r"(%[\w$.:, %-]+?) = ")
_OPERATION = re.compile(r'"?([a-z_][\w.]*)"?')
_ATTRIBUTE = re.compile(r"([\w.]+) = ([^,{}]+)")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_TENSOR = re.compile(r"(?:tensor<)?((?:\d+x)*)(!tt\.ptr<(.*)>|[\w]+)$")
_ARGUMENT = re.compile(r"(%[\w$.-]+): ([^%]+)")
# Elements of a tile that Triton allows.
_LARGEST = 1 << 20
_DIVISIBLE = re.compile(r"tt\.divisibility = (dense<)?16\b")
_BITS = re.compile(r"\D+(\d+)")
# What ends a block.
ENDS = {
    "scf.yield", "scf.condition", "tt.return", "cf.br", "cf.cond_br", "tt.reduce.return", "tt.scan.return",
    "tt.map_elementwise.return", "ub.unreachable",
}  # fmt: skip
_OPENING, _CLOSING = "([{", ")]}"


class Type(NamedTuple):
    """A value's type: a tensor's shape, empty of a scalar, and its elements'; of pointers what they point to."""

    shape: tuple[int, ...]
    element: str
    pointer: bool = False
    descriptor: bool = False

    def pointee(self) -> Type:
        """Return the type of what is loaded from a pointer."""
        if self.element.startswith("!"):  # a pointer itself
            return Type(self.shape, self.element.removeprefix("!tt.ptr<").removesuffix(">"), pointer=True)
        return Type(self.shape, self.element)

    @property
    def bytes(self) -> int:
        """Bytes of an element, or of what a pointer points to."""
        found = None if self.element.startswith("!") else _BITS.match(self.element)
        # index is as wide as a pointer; f8E4M3FN has 8 bits, and i1 takes a byte in memory.
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
    regions: list[list[Block]] = field(default_factory=list)
    line: int = 0


@dataclass(slots=True)
class Block:
    """Operations that follow one another, and the values that whoever goes there passes on."""

    label: str
    arguments: tuple[int, ...]
    operations: list[Operation] = field(default_factory=list)


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
    parser = _Parser(text)
    try:
        kernels = parser.module()
    except (LookupError, ValueError, AttributeError, RecursionError) as error:
        said = parser.lines[min(parser.at, len(parser.lines) - 1)][:80] if parser.lines else ""
        msg = f"this is no TTIR that perflex can read (near {said!r}); give a .ttir file of Triton 3"
        raise UnsupportedKernelError(msg) from error
    if len(kernels) != 1:
        msg = f"the module has {len(kernels)} kernels; give TTIR of one"
        raise UnsupportedKernelError(msg)
    return kernels[0], parser.functions


@lru_cache(maxsize=1024)
def read_type(text: str) -> Type:
    """Return the type that a text names."""
    text = text.strip()
    if text.startswith("!tt.tensordesc<"):
        inner = read_type(text[len("!tt.tensordesc<") : -1].removeprefix("tensor<").removesuffix(">").split(", #")[0])
        return Type(inner.shape, inner.element, descriptor=True)
    found = _TENSOR.match(text.removesuffix(">") if text.startswith("tensor<") else text)
    if found is None:
        msg = f"unknown type {text}"
        raise ValueError(msg)
    shape = tuple(map(int, found.group(1).split("x")[:-1]))
    if prod(shape) > _LARGEST:
        msg = f"Triton has no tiles of so many elements: {text}"
        raise ValueError(msg)
    pointee = found.group(3)
    return Type(shape, found.group(2) if pointee is None else pointee.split(",")[0], pointee is not None)


class _Parser:
    def __init__(self, text: str) -> None:
        # Names in quotes may hold brackets.
        text = re.sub(r'@"([^"]*)"', lambda found: "@" + re.sub(r"[^\w.$]", "_", found.group(1)), text)
        self.lines = [line for line in map(str.strip, _without_locations(text).split("\n")) if line]
        self.at = 0
        self.count = 0
        self.functions: dict[str, Function] = {}
        self.scope: ChainMap[str, int] = ChainMap()

    def module(self) -> list[Function]:
        kernels = []
        while self.at < len(self.lines):
            line = self.lines[self.at]
            self.at += 1
            if line.startswith("tt.func "):
                function = self.function(line)
                self.functions[function.name] = function
                if " public " in line:
                    kernels.append(function)
        return kernels

    def function(self, line: str) -> Function:
        name = line[line.index("@") + 1 : line.index("(")]
        head = line[line.index("(") + 1 : _closing(line, line.index("("))]
        # Their other attributes say nothing that addresses depend on.
        found = [(_ARGUMENT.match(re.sub(r" \{[^{}]*\}", "", part).strip()), part) for part in split(head)]
        names = tuple(one.group(1) for one, _ in found if one)
        types = tuple(read_type(one.group(2)) for one, _ in found if one)
        divisible = tuple(bool(_DIVISIBLE.search(part)) for one, part in found if one)
        self.scope = ChainMap()
        arguments = tuple(map(self.define, names))
        return Function(name, tuple(one[1:] for one in names), arguments, types, divisible, self.region())

    def define(self, name: str) -> int:
        self.count += 1
        self.scope[name] = self.count
        return self.count

    def region(self, given: tuple[int, ...] = ()) -> list[Block]:
        """Read blocks up to the line that closes them, which stays to be read."""
        blocks = [Block("", given)]
        while not (line := self.lines[self.at]).startswith("}"):
            self.at += 1
            if line.startswith("^"):
                label, _, rest = line.partition(":" if "(" not in line else "(")
                names = [part.split(":")[0].strip() for part in split(rest[: rest.rindex(")")])] if "(" in line else []
                if blocks == [Block("", given)]:  # its first block, with a label
                    blocks = []
                blocks.append(Block(label.strip(), tuple(map(self.define, names))))
            else:
                blocks[-1].operations.append(self.operation(line))
        if not blocks[-1].operations or blocks[-1].operations[-1].name not in ENDS:
            # Regions that yield nothing are printed without their end.
            blocks[-1].operations.append(Operation("scf.yield", (), (), (), (), "", {}))
        return blocks

    def operation(self, line: str) -> Operation:
        number = self.at
        named = _RESULTS.match(line) if line.startswith("%") else None
        rest = line[named.end() :] if named else line
        found = _OPERATION.match(rest)
        if found is None:
            raise ValueError(rest)
        name = found.group(1)
        opened = rest.endswith("{")
        text = _STRING.sub('""', rest[found.end() :].rstrip("{").strip())
        if opened:
            text = text.removesuffix("(").strip()
        attributes = dict(_ATTRIBUTE.findall(text))
        if name == "scf.for":
            operation = self.loop(name, text, number)
        elif name == "scf.while":
            operation = self.while_loop(name, text)
        else:
            operands = self.used(_before_types(text))
            operation = Operation(name, operands, (), (), (), text, attributes)
            regions = []
            while opened:
                self.scope = self.scope.new_child()
                regions.append(self.region())
                self.scope = self.scope.parents
                tail = self.lines[self.at]
                opened = tail.endswith("{")
                text += tail.lstrip("})").rstrip("{") if not opened else ""
                self.at += 1
            operation.regions = regions
            operation.text = text
        operation.line = number
        operation.given, operation.types = _types(operation)
        if named:
            operation.results = self.results(named.group(1))
        return operation

    def results(self, text: str) -> tuple[int, ...]:
        found: list[int] = []
        for part in text.split(","):
            name, _, many = part.strip().partition(":")
            if many:
                numbers = [self.define(f"{name}#{place}") for place in range(int(many))]
                self.scope[name] = numbers[0]
                found += numbers
            else:
                found.append(self.define(name))
        return tuple(found)

    def used(self, text: str) -> tuple[int, ...]:
        return tuple(self.scope[name] for name in _NAME.findall(text))

    def loop(self, name: str, text: str, number: int) -> Operation:
        """``scf.for %i = %lo to %hi step %s iter_args(%a = %b, ...) -> (types) : i32 {``."""
        kind = text.rpartition(" : ")[2].strip() if " : " in text else "index"
        known = {"counter": kind, "unsigned": str(text.startswith("unsigned "))}
        counter, _, rest = text.removeprefix("unsigned ").partition(" = ")
        bounds, _, carried = rest.partition(" iter_args(")
        pairs = [part.split(" = ") for part in split(carried[: _closing(f"({carried}", 0) - 1])] if carried else []
        bounds = bounds.split(" : ")[0].split(" -> ")[0]
        operands = self.used(bounds) + tuple(self.scope[start.strip()] for _, start in pairs)
        self.scope = self.scope.new_child()
        given = (self.define(counter.strip()), *(self.define(inner.strip()) for inner, _ in pairs))
        body = self.region(given)
        self.scope = self.scope.parents
        tail = self.lines[self.at]
        self.at += 1
        types = carried[_closing(f"({carried}", 0) - 1 + 1 :] if carried else ""
        return Operation(name, operands, (), (), (), types, known | dict(_ATTRIBUTE.findall(tail)), [body], number)

    def while_loop(self, name: str, text: str) -> Operation:
        """``scf.while (%a = %b, ...) : (types) -> types {`` condition ``} do {`` body ``}``."""
        if not text.startswith("("):  # it carries nothing
            text = f"() {text}"
        head = text[1 : _closing(text, 0)]
        pairs = [part.split(" = ") for part in split(head)]
        operands = tuple(self.scope[start.strip()] for _, start in pairs)
        regions = []
        for names in ([inner.strip() for inner, _ in pairs], []):
            self.scope = self.scope.new_child()
            regions.append(self.region(tuple(map(self.define, names))))
            self.scope = self.scope.parents
            self.at += 1
        return Operation(name, operands, (), (), (), text[_closing(text, 0) + 1 :], {}, regions)


def _without_locations(text: str) -> str:
    kept, start = [], 0
    text = re.sub(r"^#loc.*$", "", text, flags=re.MULTILINE)
    for found in re.finditer(r" loc\(", text):
        if found.start() < start:
            continue
        kept.append(text[start : found.start()])
        start = _closing(text, found.end() - 1) + 1
    return "".join((*kept, text[start:]))


def _closing(text: str, opening: int) -> int:
    """Return where the bracket that opens there is closed; brackets in strings do not count."""
    depth, quoted = 0, False
    for place in range(opening, len(text)):
        sign = text[place]
        if sign == '"' and text[place - 1] != "\\":
            quoted = not quoted
        elif not quoted and sign in _OPENING:
            depth += 1
        elif not quoted and sign in _CLOSING:
            depth -= 1
            if depth == 0:
                return place
    raise ValueError(text[opening : opening + 80])


def split(text: str) -> list[str]:
    """Return the parts of a list, whose commas within brackets belong to the parts."""
    parts, depth, start = [], 0, 0
    for place, sign in enumerate(text):
        if sign in "([{<":
            depth += 1
        elif sign in ")]}" or (sign == ">" and text[place - 1] != "-"):
            depth -= 1
        elif sign == "," and depth == 0:
            parts.append(text[start:place])
            start = place + 1
    last = text[start:]
    return [*parts, last] if last.strip() else parts


def _types_at(text: str) -> int:
    """Return where the types begin, behind the first colon outside of brackets; -1 where there are none."""
    depth = 0
    for place, sign in enumerate(text):
        if sign in _OPENING:
            depth += 1
        elif sign in _CLOSING:
            depth -= 1
        elif depth == 0 and sign == ":" and text[place - 1 : place] in {" ", ""}:
            return place
    return -1


def _before_types(text: str) -> str:
    place = _types_at(text)
    return text if place < 0 else text[:place]


def _types(operation: Operation) -> tuple[tuple[Type, ...], tuple[Type, ...]]:
    """Return the types of operands and of results, as far as the text says."""
    text, name = operation.text, operation.name
    if name in {"scf.for", "scf.if"}:  # -> (types) : i32
        _, arrow, after = text.partition("->")
        after = after.split(" : ")[0].strip()
        return (), _listed(after) if arrow else ()
    place = _types_at(text)
    if place < 0 or name in ENDS or name == "tt.print":
        return (), ()
    text = text[place + 1 :].strip()
    for sign in (" -> ", " to "):
        before, there, after = text.partition(sign)
        if there:
            return _listed(before.replace(" * ", ", ")), _listed(after)
    given = _listed(text)
    first, last = given[0], given[-1]
    if name in {"arith.cmpi", "arith.cmpf"}:
        return given, (Type(first.shape, "i1"),)
    return given, (first.pointee() if name == "tt.load" else first if name == "tt.addptr" else last,)


def _listed(text: str) -> tuple[Type, ...]:
    text = text.strip()
    if text.startswith("("):
        text = text[1 : _closing(text, 0)]
    return tuple(_read_type_or_none(part) for part in split(text.split(" {")[0]))


def _read_type_or_none(text: str) -> Type:
    text = text.strip()
    if text.startswith("<"):  # of a pointer, without its name
        text = f"!tt.ptr{text}" if "x" not in text else f"!tt.tensordesc{text}"
    return read_type(text)
