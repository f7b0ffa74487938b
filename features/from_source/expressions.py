"""C expressions: what they evaluate to, and the accesses and operations that evaluating them executes."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from perflex.features.from_source.floats import FINEST, exact, exact_result, is_known, rational, truncated
from perflex.features.from_source.integers import Integer, NotAffineError, constant, integer_operation, wrapped
from perflex.features.from_source.parsing import Node
from perflex.features.from_source.places import Places
from perflex.features.from_source.values import (
    Address,
    CType,
    Pointer,
    PrivateArray,
    Struct,
    Unknown,
    Value,
    chains_of,
    dtype_of,
    held,
    known_part,
    lanes_of,
    named_type,
    reason_of,
    unknown_of,
    vector_of,
)
from perflex.features.from_source.walk import Condition, Walk, overlap
from perflex.features.lowering.arithmetic_types import common_type, is_float, scalar_bytes

_COMPARISONS = {"LT": "lt_set", "GT": "gt_set", "LE": "le_set", "GE": "ge_set", "EQ": "eq_set", "NE": "ne_set"}
_OPPOSITE = {"LT": "GE", "GT": "LE", "LE": "GT", "GE": "LT", "EQ": "NE", "NE": "EQ"}
_MIRRORED = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE", "EQ": "EQ", "NE": "NE"}
# Operations by clang's names.
_KINDS = {
    "Add": "add", "Sub": "add", "Mul": "mul", "Div": "div", "Rem": "mod", "Shl": "shift", "Shr": "shift", "And": "bit",
    "Or": "bit", "Xor": "bit",
}  # fmt: skip
_SUFFIX = re.compile(r"[uUlLfFhH]+$")
# Above each integer.
_BEYOND = 2.0**64


class Expressions:
    """Evaluates expressions."""

    def __init__(self, walk: Walk, call: Callable[[Node], Value]) -> None:
        self.walk = walk
        self.places = Places(walk, self)
        self._readers: dict[str, Callable[[Node], Value]] = {
            "PAREN_EXPR": lambda cursor: self.value(cursor.children[0]),
            "UNEXPOSED_EXPR": self._unexposed,
            "FLOATING_LITERAL": self._float_literal,
            "UNARY_OPERATOR": self._unary,
            "BINARY_OPERATOR": self._binary,
            "COMPOUND_ASSIGNMENT_OPERATOR": self._compound,
            "CONDITIONAL_OPERATOR": self._conditional,
            "CALL_EXPR": call,
            "CXX_UNARY_EXPR": self._size_of,
        }
        for reader, names in (
            (self._literal, "INTEGER_LITERAL CXX_BOOL_LITERAL_EXPR CHARACTER_LITERAL"),
            (self._named, "DECL_REF_EXPR ARRAY_SUBSCRIPT_EXPR MEMBER_REF_EXPR"),
            (self._cast, "CSTYLE_CAST_EXPR CXX_STATIC_CAST_EXPR CXX_REINTERPRET_CAST_EXPR CXX_FUNCTIONAL_CAST_EXPR"),
            (self._cast, "CXX_CONST_CAST_EXPR"),
            (self._list, "INIT_LIST_EXPR COMPOUND_LITERAL_EXPR"),
            (lambda _: Unknown("int64", reason="uniform"), "STRING_LITERAL CXX_NULL_PTR_LITERAL_EXPR GNU_NULL_EXPR"),
        ):
            self._readers |= dict.fromkeys(names.split(), reader)

    # Values

    def value(self, cursor: Node) -> Value:
        """Evaluate an expression."""
        reader = self._readers.get(cursor.kind)
        if reader is None:
            name = cursor.kind.lower().replace("_", " ")
            raise self.walk.refuse(f"{name} is not read; write it without", cursor.location.line)
        return reader(cursor)

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
        if len(inner) == 1:
            whole = self.walk.types.read(inner[0].type)
            vector = "vector" in {whole.kind, whole.element.kind if whole.element else ""}
            if vector and kind.kind == "scalar" and kind.dtype != "bool":
                cause = "which element of a vector a macro names is not known; write it without the macro"
                raise self.walk.refuse(cause, cursor.location.line)
            value = self.value(inner[0])
            return self.converted(value, kind) if kind.is_number else value
        if cursor.value is not None:
            return Integer.of(cursor.value)
        return [self.value(each) for each in inner][-1] if inner else unknown_of(kind)

    def _literal(self, cursor: Node) -> Integer:
        number = cursor.value
        if number is None:
            word = cursor.words[0]
            number = int(_SUFFIX.sub("", word), 0) if word[0].isdigit() else int(word == "true")
        return Integer.of(number, self.walk.types.read(cursor.type).dtype or "int32")

    def _float_literal(self, cursor: Node) -> Unknown:
        dtype = self.walk.types.read(cursor.type).dtype or "float32"
        word = cursor.words[0] if cursor.words else ""
        try:
            number = float.fromhex(word) if word.lower().startswith("0x") else float(_SUFFIX.sub("", word))
        except ValueError:
            return Unknown(dtype, reason="uniform")
        return Unknown(dtype, reason="uniform", constant=number, source=rational(number))

    def _list(self, cursor: Node) -> Value:
        kind = self.walk.types.read(cursor.type)
        values = [self.value(each) for each in cursor.operands]
        if kind.kind == "struct" and kind.declared is not None:
            names = [each.spelling for each in kind.declared.get_fields()]
            return Struct(kind, dict(zip(names, values, strict=False)))
        if kind.kind == "array":
            element, extents = kind.inner
            return PrivateArray(element, extents, _elements(values))
        if len(values) == 1 and kind.is_number:
            return self.converted(values[0], kind)
        return vector_of(kind, values) if kind.kind == "vector" else unknown_of(kind)

    def _size_of(self, cursor: Node) -> Integer:
        number = cursor.value
        if number is None:
            words = " ".join(cursor.words).split(" ", 2)[-1].rstrip(" )")
            kind = named_type(self.walk.types.bound.get(words, words))
            if kind is None:
                cause = f"sizeof({words}) is not known; state the template parameter"
                raise self.walk.refuse(cause, cursor.location.line)
            number = kind.bytes
        return Integer.of(number, "uint64")

    # Conversions

    def converted(self, value: Value, kind: CType) -> Value:
        """Return a value as one of another type."""
        if isinstance(value, Pointer):
            if kind.kind == "pointer" and kind.element is not None and kind.element.kind not in {"void", "unknown"}:
                return value if value.extents else replace(value, element=kind.element)
            return value
        if not kind.is_number or not isinstance(value, (Integer, Unknown)):
            return value
        if isinstance(value, Integer):
            if not is_float(kind.dtype):
                return self._cut(value, kind.dtype)
            number = value.value
            if number is None:
                self.walk.operation("convert", kind.dtype)
            constant = None if number is None else float(number)
            return Unknown(kind.dtype, kind.lanes, "uniform", constant, exact(value, self.walk))
        if value.dtype == kind.dtype and (value.lanes == kind.lanes or kind.kind == "scalar"):
            return value
        if value.constant is not None and kind.is_integer and math.isfinite(value.constant):
            # Beyond all integers C says nothing of it.
            known = abs(value.constant) < _BEYOND
            return Integer.of(int(value.constant), kind.dtype) if known else Unknown(kind.dtype, reason="undefined")
        if kind.is_integer and value.source is not None:
            return truncated(value.source, kind.dtype, self.walk)
        lanes = kind.lanes if kind.kind == "vector" else 1
        return replace(value, dtype=kind.dtype, lanes=lanes, product=None, parts=())

    def _cut(self, value: Integer, dtype: str) -> Value:
        """Return an integer as another integer type holds it, as far as it changes."""
        try:
            if dtype == "bool":
                return self._truth(self._compared("NE", value, Integer.of(0)))
            if value.dtype.startswith("u") and scalar_bytes(dtype) > scalar_bytes(value.dtype):
                return replace(Integer.of(wrapped(value, self.walk), dtype), cut=value.cut)
        except NotAffineError:
            return Unknown("bool", reason="not affine") if dtype == "bool" else value.typed(dtype)
        return value.typed(dtype)

    def _cast(self, cursor: Node) -> Value:
        inner = cursor.operands
        kind = self.walk.types.read(cursor.type)
        if not inner:
            return unknown_of(kind, "uniform")
        value = self.value(inner[-1])
        pointee = kind.element if kind.kind == "pointer" else None
        if not isinstance(value, Pointer) or pointee is None or pointee.kind in {"void", "unknown"}:
            return self.converted(value, kind)
        element, extents = pointee.inner
        return Pointer(value.array, value.offset, element, (None, *extents) if extents else ())

    # Conditions

    def condition(self, cursor: Node) -> Condition:
        """Evaluate an expression as a condition."""
        cursor = cursor.stripped
        if cursor.kind == "BINARY_OPERATOR":
            name = cursor.binary_operator.name
            left, right = cursor.children
            if name in {"LAnd", "LOr"}:
                return self._both_conditions(name, left, right)
            if name in {"EQ", "NE"} and (_is_null(left) or _is_null(right)):
                pointer = self.truth(self.value(left if _is_null(right) else right))
                return pointer if name == "NE" else pointer.negated()
            if name in _COMPARISONS:
                return self.comparison(name, self.value(left), self.value(right))
        if cursor.kind == "UNARY_OPERATOR" and cursor.sign == "!":
            return self.condition(cursor.children[0]).negated()
        return self.truth(self.value(cursor))

    def truth(self, value: Value) -> Condition:
        """Return where a value is not zero."""
        if isinstance(value, Unknown) and value.constant is not None:
            value = Integer.of(int(value.constant != 0))
        if isinstance(value, Pointer) and value.array is not None and not value.nullable:  # arguments are never null
            value = Integer.of(1)
        if isinstance(value, Integer):
            return self.comparison("NE", value, Integer.of(0))
        return Condition(reason=reason_of(value))

    def _both_conditions(self, name: str, left: Node, right: Node) -> Condition:
        one = self.condition(left)
        walk, before = self.walk, self.walk.active
        if one.known:
            # The second is evaluated where the first leaves it open.
            walk.active = before.intersect(one.true if name == "LAnd" else one.false)
            if walk.active.is_empty():
                walk.active = before
                return one
        else:
            walk.guards += 1
        two = self.condition(right)
        walk.guards -= not one.known
        walk.active = before
        if not one.known or not two.known:
            reason = one.reason if not one.known else two.reason
            if name == "LAnd":
                may = overlap(*(each.true if each.known else each.may for each in (one, two)))
                return Condition(reason=reason, may=may)
            may_not = overlap(*(each.false if each.known else each.may_not for each in (one, two)))
            return Condition(reason=reason, may_not=may_not)
        if name == "LAnd":
            return Condition(one.true.intersect(two.true), one.false.union(two.false))
        return Condition(one.true.union(two.true), one.false.intersect(two.false))

    def comparison(self, name: str, left: Value, right: Value) -> Condition:
        """Return where two values compare."""
        try:
            if isinstance(left, Integer) and isinstance(right, Integer):
                return self._compared(name, left, right)
            if is_known(left) and is_known(right) and (known := self._compared_floats(name, left, right)):
                return known
        except NotAffineError:
            return Condition(reason="not affine")
        dtype = dtype_of(left, right)
        self.walk.operation("cmp", dtype, lanes_of(left, right))
        return Condition(reason=reason_of(left, right))

    def _compared_floats(self, name: str, left: Value, right: Value) -> Condition | None:
        """Return where two numbers compare of which one at least is a float; None if that is not known."""
        one, two = (exact(each, self.walk) for each in (left, right))
        if one is None:
            one, two, right, name = two, one, left, _MIRRORED[name]
        if one is None:
            return None
        # isl compares whole numbers: floats become some.
        if two is not None:
            return self._compared(name, one.scaled(FINEST), two.scaled(FINEST))
        limit = right.constant if isinstance(right, Unknown) else None
        if limit is None or not abs(limit) < _BEYOND or name in {"EQ", "NE"}:
            return None
        nearest = math.floor(limit * FINEST) if name in {"LE", "GT"} else math.ceil(limit * FINEST)
        return self._compared(name, one.scaled(FINEST), Integer.of(nearest, "int64"))

    def _compared(self, name: str, one: Integer, two: Integer) -> Condition:
        """Return where two integers compare; NotAffineError where that is not affine."""
        dtype = common_type(one.dtype, two.dtype)
        if dtype.startswith("u"):
            one, two = (Integer.of(wrapped(each.typed(dtype), self.walk), dtype) for each in (one, two))
        difference = one.plus(two, -1).affine
        zero = constant(0)
        holds, fails = _COMPARISONS[name], _COMPARISONS[_OPPOSITE[name]]
        return Condition(getattr(difference, holds)(zero), getattr(difference, fails)(zero))

    def _truth(self, condition: Condition) -> Value:
        """Return a condition as a number."""
        if not condition.known:
            return Unknown("int32", reason=condition.reason)
        one = constant(1).intersect_domain(condition.true)
        zero = constant(0).intersect_domain(condition.false)
        return Integer.of(one.union_add(zero).coalesce())

    def _conditional(self, cursor: Node) -> Value:
        test, then, other = cursor.children
        condition = self.condition(test)
        one, two, split = self.walk.branch(condition, lambda: self.value(then), lambda: self.value(other))
        if one is None or two is None:
            found = two if one is None else one
            return unknown_of(self.walk.types.read(cursor.type)) if found is None else found
        return held(self.walk.joined(one, two, split))

    # Operators

    def _unary(self, cursor: Node) -> Value:
        sign = cursor.sign
        inner = cursor.children[0]
        if sign in {"x++", "++x", "x--", "--x"}:
            return self._stepped(sign, inner)
        if sign == "&":
            place = self.places.place(inner)
            return place.memory if place.memory is not None else Address(place)
        if sign == "*":
            return self._named(cursor)
        if sign == "!":
            return self._truth(self.condition(cursor))
        value = self.value(inner)
        if isinstance(value, Integer) and sign in {"-", "~"}:
            return value.scaled(-1) if sign == "-" else value.scaled(-1).plus(Integer.of(-1, value.dtype))
        if isinstance(value, Unknown) and sign == "-":
            source = None if value.source is None else value.source.scaled(-1)
            return replace(value, constant=None if value.constant is None else -value.constant, source=source, parts=())
        if isinstance(value, Unknown) and sign == "~":
            self.walk.operation("bit", value.dtype, value.lanes)
        return value

    def _stepped(self, sign: str, inner: Node) -> Value:
        place = self.places.place(inner)
        before = self.places.load(place)
        step = Integer.of(1 if "+" in sign else -1)
        if isinstance(before, Integer):
            after: Value = before.plus(step).typed(before.dtype)
        elif isinstance(before, Pointer):
            after = self.places.moved(before, step)
        else:
            after = self.arithmetic("Add", before, step)
        self.places.store(place, after)
        return after if sign.endswith("x") else before

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
        if name in {"LAnd", "LOr", *_COMPARISONS}:
            return self._truth(self.condition(cursor))
        return self.arithmetic(name, self.value(left), self.value(right))

    def _compound(self, cursor: Node) -> Value:
        left, right = cursor.children
        name = cursor.binary_operator.name.removesuffix("Assign")
        value = self.value(right)
        place = self.places.place(left)
        result = self.converted(self.arithmetic(name, self.places.load(place), value), self.walk.types.read(left.type))
        self.places.store(place, result)
        return result

    def arithmetic(self, name: str, one: Value, two: Value) -> Value:
        """Return what a binary operator of clang's name gives."""
        for pointer, step in ((one, two), (two, one)):
            if isinstance(pointer, Pointer) and isinstance(step, (Integer, Unknown)) and name in {"Add", "Sub"}:
                signed = step.scaled(-1) if name == "Sub" and isinstance(step, Integer) else step
                return self.places.moved(pointer, signed)
        if not isinstance(one, (Integer, Unknown)) or not isinstance(two, (Integer, Unknown)):
            return Unknown("int64" if isinstance(one, Pointer) else "float32")
        if isinstance(one, Integer) and isinstance(two, Integer):
            dtype = common_type(one.dtype, two.dtype)
            try:
                return integer_operation(name, one, two, self.walk).typed(dtype)
            except NotAffineError:
                return Unknown(dtype, reason="not affine")
        found = self._inexact(name, one, two)
        return self._by_element(name, one, two, found) if found.lanes > 1 else found

    def _by_element(self, name: str, one: Integer | Unknown, two: Integer | Unknown, found: Unknown) -> Unknown:
        """Return a vector with the elements that are known."""
        kept = any(isinstance(each, Unknown) and each.parts for each in (one, two))
        if not kept or name not in {"Add", "Sub", "Mul"}:
            return found
        parts = []
        self.walk.recorder.dry += 1
        for place in range(found.lanes):
            pair = [each.parts[place] if isinstance(each, Unknown) and each.parts else each for each in (one, two)]
            first, second = (each if each is not None and lanes_of(each) == 1 else None for each in pair)
            result = None if first is None or second is None else self.arithmetic(name, first, second)
            parts.append(None if result is None else known_part(result, found.dtype))
        self.walk.recorder.dry -= 1
        return replace(found, parts=tuple(parts) if any(parts) else ())

    def operated(self, kind: str, values: Sequence[Integer | Unknown], dtype: str = "", lanes: int = 0) -> Unknown:
        """Record an operation on numbers that are not all known; return its result."""
        dtype, lanes = dtype or dtype_of(*values), lanes or lanes_of(*values)
        self.walk.operation(kind, dtype, lanes)
        return Unknown(dtype, lanes, reason_of(*values), chains=chains_of(values, (dtype, kind)))

    def _inexact(self, name: str, one: Integer | Unknown, two: Integer | Unknown) -> Unknown:
        dtype, lanes = dtype_of(one, two), lanes_of(one, two)
        if is_float(dtype):
            one, two = self._as_float(one, dtype), self._as_float(two, dtype)
            folded = _folded(name, one, two)
            if folded is not None:
                if any(each.source.argument for each in (one, two) if isinstance(each, Unknown) and each.source):
                    self.walk.operation(_KINDS.get(name, name.lower()), dtype, lanes)
                return Unknown(dtype, lanes, "uniform", folded, rational(folded) if lanes == 1 else None)
        kind = _KINDS.get(name, name.lower())
        source = exact_result(name, one, two, self.walk) if is_float(dtype) else None
        if kind == "add" and is_float(dtype):
            factor = next((each for each in (one, two) if isinstance(each, Unknown) and each.product is not None), None)
            if factor is not None and factor.product is not None and factor.dtype == dtype:
                fused = self._fused(factor, factor.product.operations, two if factor is one else one)
                return replace(fused, source=source)
        found = replace(self.operated(kind, (one, two)), source=source)
        return replace(found, product=self.walk.record()) if kind == "mul" else found

    def _fused(self, factor: Unknown, operations: Counter[tuple[str, str]], rest: Integer | Unknown) -> Unknown:
        """Return a product that feeds a sum, one operation where it was recorded as a product."""
        dtype, lanes = factor.dtype, lanes_of(factor, rest)
        operations[dtype, "mul"] -= lanes
        if not operations[dtype, "mul"]:
            del operations[dtype, "mul"]
        through = replace(factor, chains={key: chain[:-1] for key, chain in factor.chains.items()})
        return self.operated("madd", (through, rest))

    def _as_float(self, value: Integer | Unknown, dtype: str) -> Integer | Unknown:
        found = self.converted(value, CType("scalar", dtype)) if isinstance(value, Integer) else value
        return found if isinstance(found, Unknown) else value


def _folded(name: str, one: Integer | Unknown, two: Integer | Unknown) -> float | None:
    if not isinstance(one, Unknown) or not isinstance(two, Unknown) or one.constant is None or two.constant is None:
        return None
    first, second = one.constant, two.constant
    try:
        found = {"Add": first + second, "Sub": first - second, "Mul": first * second}.get(name)
        return first / second if name == "Div" and second else found
    except OverflowError:
        return None


def _is_null(cursor: Node) -> bool:
    """Return whether an expression is a null pointer: ``nullptr``, ``NULL`` or 0 where a pointer is wanted."""
    if cursor.type.get_canonical().kind.name not in {"POINTER", "NULLPTR"}:
        return False
    while cursor.kind in ("PAREN_EXPR", "UNEXPOSED_EXPR", "CSTYLE_CAST_EXPR") and cursor.children:
        cursor = cursor.children[-1]
    literal = cursor.kind == "INTEGER_LITERAL" and cursor.value == 0
    return literal or cursor.kind in ("CXX_NULL_PTR_LITERAL_EXPR", "GNU_NULL_EXPR")


def _elements(values: list[Value]) -> dict[tuple[Any, ...], Value]:
    """Return the elements of an initialiser's lists by their places."""
    found: dict[tuple[Any, ...], Value] = {}
    for place, value in enumerate(values):
        if isinstance(value, PrivateArray):
            found |= {(place, *inner): each for inner, each in value.elements.items()}
        else:
            found[place,] = held(value)
    return found
