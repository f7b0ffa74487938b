"""Initialisers: what lists in braces, and their absence, make of structs, arrays and vectors."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from perflex.features.from_source.integers import Integer
from perflex.features.from_source.layouts import is_union
from perflex.features.from_source.parsing import Node, fields_of
from perflex.features.from_source.values import Aggregate, CType, TypeReader, Unknown, Value, rational, vector_of
from perflex.features.lowering.arithmetic_types import is_float

# Longer arrays are not kept element by element.
_MOST_ELEMENTS = 4096


class Initialisers:
    """Evaluates initialisers; parts that they leave out are zero."""

    def __init__(
        self, types: TypeReader, value: Callable[[Node], Value], converted: Callable[[Value, CType], Value]
    ) -> None:
        self._types = types
        self._value = value
        self._converted = converted

    def zero(self, kind: CType) -> Value:
        """Return the zero of a type."""
        members = self._members(kind)
        if kind.kind == "vector":
            return vector_of(kind, [self.zero(each) for _, each in members])
        if kind.kind in {"struct", "array"}:
            return Aggregate({key: self.zero(each) for key, each in members}, "data")
        if is_float(kind.dtype):
            return Unknown(kind.dtype, reason="uniform", constant=0.0, literal=True, source=rational(0.0))
        return Integer.of(0, kind.dtype or "int64", literal=True)

    def listed(self, cursor: Node, kind: CType) -> Value:
        """Return what a list in braces makes of a type."""
        given = deque(cursor.operands)
        if not given:
            return self.zero(kind)
        if kind.kind in {"scalar", "pointer", "reference"} or (kind.kind != "array" and self._is_whole(given, kind)):
            return self._converted(self._value(given[-1]), kind)
        return self._filled(given, kind)

    def _is_whole(self, given: deque[Node], kind: CType) -> bool:
        """Return whether a list has one value, of the whole type."""
        return len(given) == 1 and self._types.read(given[0].type).kind == kind.kind

    def _filled(self, given: deque[Node], kind: CType) -> Value:
        """Return a value whose members are taken from what is given, one after another."""
        members = self._members(kind)
        names = {key: place for place, (key, _) in enumerate(members)}
        parts = {key: self.zero(each) for key, each in members}
        place = 0
        while given and place < len(members):
            node = given[0]
            if node.type.kind.name == "VOID" and node.kind == "UNEXPOSED_EXPR":  # with a designator
                where, node = node.children[0], node.children[-1]
                named = names.get(str(where.spelling) if where.kind == "MEMBER_REF" else where.value or 0)
                if named is None:
                    return Aggregate(rest="data")
                place = named
            key, member = members[place]
            parts[key] = self._member(given, node, member)
            place += 1
        if kind.kind == "vector":
            return vector_of(kind, list(parts.values()))
        return Aggregate(rest="data") if kind.declared is not None and self._overlap(kind) else Aggregate(parts, "data")

    def _member(self, given: deque[Node], node: Node, kind: CType) -> Value:
        if node.kind == "INIT_LIST_EXPR":
            given.popleft()
            return self.listed(node, kind)
        # Inner braces may be left out.
        if kind.kind in {"struct", "array", "vector"} and self._types.read(node.type).kind == "scalar":
            return self._filled(given, kind)
        given.popleft()
        return self._converted(self._value(node), kind)

    def _overlap(self, kind: CType) -> bool:
        return kind.kind == "struct" and is_union(kind.declared)

    def _members(self, kind: CType) -> list[tuple[int | str, CType]]:
        if kind.kind == "struct":
            return [(each.spelling, self._types.read(each.type)) for each in fields_of(kind.declared)]
        element = CType("scalar", kind.dtype) if kind.kind == "vector" else kind.element
        extent = kind.lanes if kind.kind == "vector" else kind.extent or 0
        return [(place, element) for place in range(extent if extent <= _MOST_ELEMENTS else 0) if element is not None]
