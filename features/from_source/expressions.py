"""C expressions: what they evaluate to, and the accesses and operations that evaluating them executes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol

from perflex.features.from_source.arithmetic import COMPARISONS, Arithmetic, negative
from perflex.features.from_source.copies import replace
from perflex.features.from_source.initialisers import Initialisers
from perflex.features.from_source.integers import Integer
from perflex.features.from_source.iterations import overlap
from perflex.features.from_source.layouts import base_begins
from perflex.features.from_source.parsing import Node, kind_of
from perflex.features.from_source.places import Places
from perflex.features.from_source.values import (
    Closure,
    Place,
    Pointer,
    Unknown,
    Value,
    held,
    rational,
    rounded,
    unknown_of,
    vector_of,
)
from perflex.features.from_source.walk import Condition, Walk
from perflex.features.lowering.arithmetic_types import is_float

_SUFFIX = re.compile(r"[uUlLfFhH]+$")


class Calls(Protocol):
    """What evaluates calls."""

    def begin(self, expressions: Expressions) -> None:
        """Take what evaluates the arguments."""

    def called(self, cursor: Node) -> Value:
        """Evaluate a call; of a function that returns a reference, the place."""
        ...

    def closure(self, cursor: Node) -> Value:
        """Return a lambda."""
        ...

    def last_of(self, cursor: Node) -> Value:
        """Execute statements; return the value of the last."""
        ...


class Expressions(Arithmetic):
    """Evaluates expressions."""

    def __init__(self, walk: Walk, calls: Calls) -> None:
        super().__init__(walk, Places(walk, self))
        self.initialisers = Initialisers(walk.types, self.value, self.converted)
        calls.begin(self)
        self.called = calls.called
        self._readers: dict[str, Callable[[Node], Value]] = {
            "PAREN_EXPR": lambda cursor: self.value(cursor.children[0]),
            "UNEXPOSED_EXPR": self._unexposed,
            "FLOATING_LITERAL": self._float_literal,
            "UNARY_OPERATOR": self._unary,
            "BINARY_OPERATOR": self._binary,
            "COMPOUND_ASSIGNMENT_OPERATOR": self._compound,
            "CONDITIONAL_OPERATOR": self._conditional,
            "CALL_EXPR": self._called,
            "LAMBDA_EXPR": calls.closure,
            "StmtExpr": calls.last_of,
            "CXX_THIS_EXPR": lambda _: self._address(self.places.owner()),
        }
        for reader, names in (
            (self._integer, "INTEGER_LITERAL CXX_BOOL_LITERAL_EXPR CHARACTER_LITERAL CXX_UNARY_EXPR"),
            (self._named, "DECL_REF_EXPR ARRAY_SUBSCRIPT_EXPR MEMBER_REF_EXPR"),
            (self._cast, "CSTYLE_CAST_EXPR CXX_STATIC_CAST_EXPR CXX_REINTERPRET_CAST_EXPR CXX_FUNCTIONAL_CAST_EXPR"),
            (self._cast, "CXX_CONST_CAST_EXPR"),
            (self._list, "INIT_LIST_EXPR COMPOUND_LITERAL_EXPR"),
            (lambda _: Integer.of(0, "int64"), "CXX_NULL_PTR_LITERAL_EXPR GNU_NULL_EXPR"),
            (lambda _: Unknown("int64", reason="uniform"), "STRING_LITERAL"),
        ):
            self._readers |= dict.fromkeys(names.split(), reader)

    # Values

    def value(self, cursor: Node) -> Value:
        """Evaluate an expression."""
        self.walk.count_step()
        reader = self._readers.get(cursor.kind)
        if reader is None:
            name = cursor.kind.lower().replace("_", " ")
            raise self.walk.refuse(f"{name} is not read; write it without", cursor)
        return reader(cursor)

    def discarded(self, cursor: Node) -> None:
        """Evaluate an expression whose value nobody reads."""
        inner = cursor.stripped
        (self.called if inner.kind == "CALL_EXPR" else self.value)(inner)

    def _called(self, cursor: Node) -> Value:
        found = self.called(cursor)
        return self.places.load(found) if isinstance(found, Place) else found

    def _address(self, place: Place) -> Value:
        if place.memory is not None:
            return place.memory
        if isinstance(place.value, Closure):
            return place.value
        return self.places.load(place) if place.type.kind == "array" else place

    def subscript(self, cursor: Node) -> Value:
        """Evaluate a part of an address, whose arithmetic with integers is not counted."""
        before, self.walk.addressing = self.walk.addressing, True
        value = self.value(cursor)
        self.walk.addressing = before
        return value

    def _named(self, cursor: Node) -> Value:
        return self.places.load(self.places.place(cursor))

    def constant(self, cursor: Node) -> int | None:
        """Return the value of an expression if it is a known number."""
        value = self.value(cursor)
        return value.value if isinstance(value, Integer) else None

    def _unexposed(self, cursor: Node) -> Value:
        if cursor.lane:
            return self._named(cursor)
        inner, kind = cursor.operands, self.walk.types.read(cursor.type)
        if kind_of(cursor.type) in {"DEPENDENT", "OVERLOAD"}:
            raise self.walk.refuse("clang does not understand an expression here; write it out", cursor)
        if len(inner) == 1:
            whole = self.walk.types.read(inner[0].type)
            vector = "vector" in {whole.kind, whole.element.kind if whole.element else ""}
            if vector and kind.kind == "scalar" and kind.dtype != "bool":
                cause = "which element of a vector a macro names is not known; write it without the macro"
                raise self.walk.refuse(cause, cursor)
            value = self.value(inner[0])
            if isinstance(value, Pointer) and kind.kind == "pointer":
                value = self.places.further(value, base_begins(inner[0].type.get_pointee(), cursor.type.get_pointee()))
            if kind.is_number and cursor.extent != inner[0].extent:  # no conversion, but ``as_int``
                return self.reread(value, kind)
            return self.converted(value, kind) if kind.is_number else value
        if cursor.value is not None:
            return Integer.of(cursor.value, literal=True)
        if inner and (len(inner) != 4 or inner[0].extent != inner[2].extent):
            raise self.walk.refuse("an expression here is not read; write it out", cursor)
        return self._value_or_other(inner[0], inner[-1]) if inner else unknown_of(kind)

    def _value_or_other(self, cursor: Node, other: Node) -> Value:
        """Return what ``a ?: b`` gives."""
        first = self.value(cursor)
        one, two, split = self.walk.branch(self.truth(first), lambda: first, lambda: self.value(other))
        return self.walk.joined(one, two, split) if one is not None and two is not None else held(one or two or first)

    def _integer(self, cursor: Node) -> Integer:
        number = cursor.value
        if number is None:
            raise self.walk.refuse("this number is not understood; write it out", cursor)
        return Integer.of(number, self.walk.types.read(cursor.type).dtype or "int32", literal=True)

    def _float_literal(self, cursor: Node) -> Value:
        dtype = self.walk.types.read(cursor.type).dtype or "float32"
        word = cursor.word
        try:
            number = float.fromhex(word) if word.lower().startswith("0x") else float(_SUFFIX.sub("", word))
        except ValueError:  # in a macro of another file
            found = cursor.number
            return Unknown(dtype, reason="uniform") if found is None else self.number(found, dtype)
        return self.number(number, dtype)

    @staticmethod
    def number(number: float, dtype: str) -> Integer | Unknown:
        """Return a constant of a type."""
        if not is_float(dtype):
            return Integer.of(int(number), dtype, literal=True)
        known = rounded(number, dtype)
        return Unknown(dtype, reason="uniform", constant=known, literal=True, source=rational(known))

    def _list(self, cursor: Node) -> Value:
        kind = self.walk.types.read(cursor.type)
        if kind.kind != "vector" or kind.struct_bytes:
            return self.initialisers.listed(cursor, kind)
        values = [self.value(each) for each in cursor.operands]
        return self.converted(values[0], kind) if len(values) == 1 else vector_of(kind, values)

    def _cast(self, cursor: Node) -> Value:
        inner = cursor.operands
        kind = self.walk.types.read(cursor.type)
        return self.converted(self.value(inner[-1]), kind) if inner else unknown_of(kind, "uniform")

    # Conditions

    def condition(self, cursor: Node) -> Condition:
        """Evaluate an expression as a condition."""
        cursor = cursor.stripped
        if cursor.kind == "BINARY_OPERATOR":
            name = cursor.binary_operator.name
            left, right = cursor.children
            if name in {"LAnd", "LOr"}:
                return self._two_conditions(left, right, either=name == "LOr")
            if name in COMPARISONS:
                return self.comparison(name, self.value(left), self.value(right))
        if cursor.kind == "UNARY_OPERATOR" and cursor.sign == "!":
            return self.condition(cursor.children[0]).negated()
        return self.truth(self.value(cursor))

    def _two_conditions(self, left: Node, right: Node, *, either: bool) -> Condition:
        """Return where both conditions hold, or `either` one: where it is not that both fail."""
        walk, before = self.walk, self.walk.active
        one = self.condition(left)
        one = one.negated() if either else one
        # The second is evaluated where the first leaves it open.
        walk.active = before.intersect(one.true) if one.known else before
        walk.guards += not one.known
        two, variables = one, walk.variables
        if not walk.active.is_empty():
            walk.variables = dict(variables)
            two = self.condition(right)
            two = two.negated() if either else two
            walk.rejoin_those(variables, Condition(one.true, one.false) if one.known else Condition())
        walk.guards -= not one.known
        walk.active = before
        if one.known and two.known:
            found = Condition(one.true.intersect(two.true), one.false.union(two.false))
        else:
            may = overlap(*(each.true if each.known else each.may for each in (one, two)))
            found = Condition(reason=two.reason if one.known else one.reason, may=may)
        return found.negated() if either else found

    def _conditional(self, cursor: Node) -> Value:
        test, then, other = cursor.children
        ways = (lambda: self.value(then)), (lambda: self.value(other))
        one, two, split = self.walk.branch(self.condition(test), *ways)
        if one is not None and two is not None:
            return self.walk.joined(one, two, split)
        found = one or two or unknown_of(self.walk.types.read(cursor.type))
        # Which way is taken is no part of the text, even if ranges of indices and sizes say it.
        found = held(found)
        return replace(found, literal=False) if isinstance(found, (Integer, Unknown)) else found

    # Operators

    def _unary(self, cursor: Node) -> Value:
        sign = cursor.sign
        inner = cursor.children[0]
        if sign in {"x++", "++x", "x--", "--x"}:
            before, after = self._updated(inner, "Add", Integer.of(1 if "+" in sign else -1, literal=True))
            return after if sign.endswith("x") else before
        if sign == "&":
            return self._address(self.places.place(inner))
        if sign == "*":
            return self._named(cursor)
        if sign == "!":
            return self.as_number(self.condition(cursor))
        value = self.value(inner)
        if isinstance(value, Integer) and sign in {"-", "~"}:
            ones = Integer.of(-1, value.dtype, literal=True)
            return value.scaled(-1) if sign == "-" else self.arithmetic("Xor", value, ones)
        if isinstance(value, Unknown) and sign == "-":
            return negative(value)
        if isinstance(value, Unknown) and sign == "~":
            self.walk.operation("bit", value.dtype, value.lanes)
        return value

    def _binary(self, cursor: Node) -> Value:
        name = cursor.binary_operator.name
        left, right = cursor.children
        if name == "Assign":
            value = self.converted(self.value(right), self.walk.types.read(left.type))
            self.places.store(self.places.place(left), value)
            return value
        if name == "Comma":
            self.value(left)
            return self.value(right)
        if name in {"LAnd", "LOr", *COMPARISONS}:
            return self.as_number(self.condition(cursor))
        evaluate = self.subscript if self.walk.types.read(cursor.type).kind == "pointer" else self.value
        return self.arithmetic(name, evaluate(left), evaluate(right))

    def _compound(self, cursor: Node) -> Value:
        left, right = cursor.children
        evaluate = self.subscript if self.walk.types.read(left.type).kind == "pointer" else self.value
        return self._updated(left, cursor.binary_operator.name.removesuffix("Assign"), evaluate(right))[1]

    def _updated(self, left: Node, name: str, operand: Value) -> tuple[Value, Value]:
        """Assign what an operator gives for an expression and an operand to it; return its values before and after."""
        place = self.places.place(left)
        before = self.places.load(place)
        after = self.converted(self.arithmetic(name, before, operand), self.walk.types.read(left.type))
        self.places.store(place, after)
        return before, after
