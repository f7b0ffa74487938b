"""Executes a kernel for all work-items, one after another, and counts what it loads, stores and computes."""

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import product as combinations

from oracles.c_text.evaluating import Expressions
from oracles.c_text.parser import Parser
from oracles.c_text.types import (
    VOID,
    WORDS,
    CType,
    Memory,
    Place,
    UndefinedError,
    Value,
    array,
    converted,
    leaves,
    pointer,
    scalar,
    struct,
    vector,
)

_MOST_STEPS = 400_000


@dataclass
class Counts:
    """What a launch does: over all work-items together; barriers by work-item."""

    bytes: Counter = field(default_factory=Counter)  # By direction and array
    touched: dict = field(default_factory=dict)  # Offsets of bytes, by array
    operations: Counter = field(default_factory=Counter)  # By type and kind
    barriers: int = 0

    @property
    def footprints(self):
        """Bytes of each array that are touched."""
        return {name: len(found) for name, found in self.touched.items()}


class Machine(Expressions):
    """One launch of a kernel."""

    def __init__(self, text, sizes, *, cuda, seed=0):
        self.unit = Parser(text).parsed()
        self.cuda, self.sizes, self.seed = cuda, sizes, seed
        self.counts, self.ids, self.steps = Counts(), {}, 0
        self.local, self.scopes, self.bound = {}, [{}], {}
        self.known = {}
        self.globals = self.scopes
        for name, value in self.unit.enumerators.items():
            self.scopes[0][name] = replace(self.value(value), literal=True)
        for kind, name, space, initial in self.unit.variables:
            self.declare(kind, name, "constant" if space == "private" and kind[0] == "arr" else space, initial)

    def run(self, kernel, local, groups):
        """Execute a kernel; return its counts."""
        (function,) = self.unit.functions[kernel]
        arguments = {name: self.argument(kind, name, space) for kind, name, space in function.parameters}
        for group in combinations(*map(range, groups)):
            self.local = {}
            for item in combinations(*map(range, local)):
                every = {"blockIdx": group, "threadIdx": item, "blockDim": local, "gridDim": groups}
                self.ids = {
                    name: (*values, *((1,) * 3 if "Dim" in name else (0,) * 3)) for name, values in every.items()
                }
                # Work-items have arguments of their own.
                own = {name: self.copied(each, name) for name, each in arguments.items()}
                self.scopes = [self.globals[0], own]
                self.execute(function.body)
        return self.counts

    def argument(self, kind, name, space):
        found = self.resolve(kind)
        if found.kind == "pointer":
            memory = Memory(name, space if space != "private" else "global")
            return Value(found, (memory, 0))
        if found.kind == "struct":
            cells = {at: self.argument_part(f"{name}_{label}", each) for label, at, each in found.fields}
            return Value(found, cells)
        return Value(found, self.argument_part(name, found))

    def argument_part(self, name, kind):
        if kind.kind == "pointer":
            return Memory(name, "global"), 0
        return self.sizes[name] if kind.is_integer else 0.75

    def copied(self, value, name):
        memory = Memory(name)
        if value.type.kind == "pointer" and value.value[0].space == "local":
            value = replace(value, value=(self.local.setdefault(name, Memory(name, "local")), 0))
        self.store(Place(value.type, memory), value)
        return Place(value.type, memory)

    # Types

    def resolve(self, kind):
        """Return the type that is written."""
        if isinstance(kind, CType):
            return kind
        key = id(kind), tuple(self.bound.items())
        if key not in self.known:
            self.known[key] = kind, self._resolved(kind)
        return self.known[key][1]

    def _resolved(self, kind):
        word, inner, *rest = kind
        if word == "base":
            return self.named(inner, rest[0])
        found = self.resolve(inner)
        if word == "arr":
            return array(found, self.value(rest[0]).value if rest[0] is not None else 0)
        return pointer(found) if word == "ptr" else found

    def named(self, name, arguments):
        """Return the type of a name."""
        if name in self.unit.typedefs:
            return self.resolve(self.unit.typedefs[name])
        if name in self.unit.structs:
            fields, methods, templates = self.unit.structs[name]
            before, self.bound = self.bound, {**self.bound, **self.evaluated(templates, arguments)}
            made = struct(name, [(label, self.resolve(each)) for label, each in fields])
            made = replace(made, function=(methods, {label: self.bound[label] for label in templates}))
            self.bound = before
            return made
        known = {**{word: scalar(each) for word, each in WORDS.items()}, "void": VOID, **self.bound}
        digits = name.lstrip("abcdefghijklmnopqrstuvwxyz")
        of = name.removesuffix(digits)
        return known.get(name) or vector(known[of], int(digits), cuda=self.cuda)

    def evaluated(self, names, arguments):
        """Return template arguments by name."""
        return {
            name: self.resolve(each) if each[0] in {"base", "ptr"} else self.value(each).value
            for name, each in zip(names, arguments, strict=False)
        }

    # Memory

    def load(self, place):
        """Return what lies at a place; counted where it is memory."""
        kind, memory = place.type, place.memory
        if kind.kind == "array":
            return Value(pointer(kind.of), (memory, place.offset))
        self.access(place, "load")
        if kind.kind == "struct":
            # Parts of a variable that were not set may be copied.
            parts = [
                (at, each)
                for at, each in leaves(kind)
                if memory.space != "private" or place.offset + at in memory.cells
            ]
            return Value(kind, {at: self.cell(memory, place.offset + at, each) for at, each in parts})
        if kind.kind == "vector":
            lanes = range(kind.count) if place.lanes is None else place.lanes
            values = tuple(self.cell(memory, place.offset + each * kind.of.size, kind.of) for each in lanes)
            one = len(values) == 1
            return Value(kind.of if one else vector(kind.of, len(values), cuda=self.cuda), values[0] if one else values)
        return Value(kind, self.cell(memory, place.offset, kind))

    def cell(self, memory, offset, kind):
        if offset not in memory.cells:
            if memory.space == "private" or kind.kind == "pointer":
                msg = f"{memory.name} is read before it was set"
                raise UndefinedError(msg)
            drawn = random.Random(f"{self.seed} {memory.name} {offset}")  # noqa: S311
            memory.cells[offset] = drawn.uniform(-2, 2) if kind.is_float else drawn.randrange(8)
        found = memory.cells[offset]
        if kind.kind == "scalar" and kind.is_float != isinstance(found, float):
            msg = "a number is read as one of another kind"
            raise UndefinedError(msg)
        return found

    def store(self, place, given):
        """Write a value to a place."""
        self.access(place, "store")
        kind, cells = place.type, place.memory.cells
        if kind.kind in {"struct", "array"}:
            cells.update({place.offset + at: each for at, each in given.value.items()})
        elif kind.kind == "vector":
            lanes = range(kind.count) if place.lanes is None else place.lanes
            values = given.value if given.type.kind == "vector" else (given.value,) * len(lanes)
            for lane, each in zip(lanes, values, strict=True):
                cells[place.offset + lane * kind.of.size] = converted(each, kind.of)
        else:
            cells[place.offset] = converted(given.value, kind) if kind.kind == "scalar" else given.value

    def access(self, place, direction):
        memory, kind = place.memory, place.type
        if memory.space == "private":
            return
        lanes = place.lanes
        parts = [(place.offset, kind.size)]
        if kind.kind == "struct":  # Nobody moves what lies between its parts
            parts = [(place.offset + at, each.size) for at, each in leaves(kind)]
        if lanes is not None:
            parts = [(place.offset + lane * kind.of.size, kind.of.size) for lane in lanes]
        if parts[0][0] < 0:
            msg = "what lies before an array is accessed"
            raise UndefinedError(msg)
        key = direction, memory.name
        self.counts.bytes[key] += sum(size for _, size in parts)
        if memory.space == "local":
            return
        touched = self.counts.touched.setdefault(memory.name, set())
        for start, size in parts:
            touched.update(range(start, start + size))

    def operation(self, kind, of, count=1):
        self.counts.operations[of.name, kind] += count

    # Statements: what ends them early is returned

    def execute(self, statement):
        self.steps += 1
        if self.steps > _MOST_STEPS:
            msg = "it takes too long"
            raise UndefinedError(msg)
        return getattr(self, f"do_{statement[0]}")(*statement[1:])

    def do_block(self, statements):
        self.scopes.append({})
        try:
            for each in statements:
                if (left := self.execute(each)) is not None:
                    return left
        finally:
            self.scopes.pop()
        return None

    def do_expr(self, expression):
        self.evaluate(expression)

    def do_decl(self, declared):
        for each in declared:
            self.declare(*each)

    def do_if(self, test, then, other):
        if self.holds(test):
            return self.execute(then)
        return None if other is None else self.execute(other)

    def do_while(self, test, body):
        return self.do_for(("block", []), test, None, body)

    def do_for(self, first, test, step, body):
        self.scopes.append({})
        try:
            self.execute(first)
            while test is None or self.holds(test):
                left = self.execute(body)
                if left == "break":
                    break
                if left not in (None, "continue"):
                    return left
                if step is not None:
                    self.evaluate(step)
        finally:
            self.scopes.pop()
        return None

    def do_do(self, test, body):
        while True:
            left = self.execute(body)
            if left == "break":
                return None
            if left not in (None, "continue"):
                return left
            if not self.holds(test):
                return None

    def do_switch(self, test, body):
        chosen, statements = self.value(test).value, body[1]
        labels = [
            place for place, each in enumerate(statements)
            if each[0] == "case" and each[1] is not None and self.value(each[1]).value == chosen
        ] or [place for place, each in enumerate(statements) if each == ("case", None)]  # fmt: skip
        left = self.do_block(statements[labels[0] :]) if labels else None
        return None if left == "break" else left

    def do_case(self, _value):
        return None

    def do_break(self, _):
        return "break"

    def do_continue(self, _):
        return "continue"

    def do_return(self, value):
        return Value(VOID, None) if value is None else self.evaluate(value)

    def holds(self, test):
        value = self.value(test)
        return value.value is not None if value.type.kind == "pointer" else bool(value.value)

    def declare(self, kind, name, space, initial):
        if kind[0] == "ref":
            self.scopes[-1][name] = self.evaluate(initial)
            return
        space = "private" if kind[0] == "ptr" else space  # Then it is that of what it points to
        if space == "local":
            found = self.resolve(kind)
            self.scopes[-1][name] = Place(found, self.local.setdefault(name, Memory(name, "local")))
            return
        given = None
        if kind[1] == "auto":
            given = self.value(initial)
        elif initial is not None and initial[0] != "list":
            given = self.converted(self.value(initial), self.resolve(kind))
        found = given.type if kind[1] == "auto" else self.resolve(kind)
        place = Place(found, Memory(name, space))
        self.scopes[-1][name] = place
        if initial is not None and initial[0] == "list":
            given = self.filled(found, initial[1])
        if given is not None:
            self.store(replace(place, memory=Memory(name, "private", place.memory.cells)), given)

    def filled(self, kind, items):
        """Return a struct, array or vector of a list in braces; what is not in the list is zero."""
        cells = {at: 0.0 if each.is_float else 0 for at, each in leaves(kind) if each.kind == "scalar"}
        inner = [(at, each) for _, at, each in kind.fields]
        if kind.kind != "struct":
            inner = [(place * kind.of.size, kind.of) for place in range(kind.count)]
        for (at, each), item in zip(inner, items, strict=False):
            given = self.filled(each, item[1]) if item[0] == "list" else self.converted(self.value(item), each)
            parts = given.value if isinstance(given.value, dict) else {0: given.value}
            if each.kind == "vector" and not isinstance(given.value, dict):
                parts = dict(zip([start for start, _ in leaves(each)], given.value, strict=True))
            cells.update({at + start: part for start, part in parts.items()})
        return Value(kind, tuple(cells.values()) if kind.kind == "vector" else cells)


def execute(text, kernel, launch, sizes, *, cuda, seed=0):
    """Return the counts of a kernel: `launch` is its work-items and work-groups."""
    return Machine(text, sizes, cuda=cuda, seed=seed).run(kernel, *launch)
