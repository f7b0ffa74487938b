"""C statements: declarations, branches, switches, and what ends iterations and functions."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import takewhile

from perflex.features.from_source.calls import Calls
from perflex.features.from_source.expressions import Expressions
from perflex.features.from_source.integers import Integer
from perflex.features.from_source.iterations import EVERYWHERE, NOWHERE
from perflex.features.from_source.loop_headers import Header, unroll_of
from perflex.features.from_source.loops import LoopWalk
from perflex.features.from_source.parsing import Node
from perflex.features.from_source.places import space_of
from perflex.features.from_source.recording import MemoryArray, Space
from perflex.features.from_source.values import Aggregate, Place, Value, unknown_of
from perflex.features.from_source.walk import Condition, Exit, Loop, Walk

_REFUSED = {
    **dict.fromkeys(("GOTO_STMT", "LABEL_STMT", "INDIRECT_GOTO_STMT"), "goto is not read; write a loop or a condition"),
    **dict.fromkeys(("ASM_STMT", "MS_ASM_STMT"), "assembly is not read; write it in C"),
}
# A case that names more numbers is not read.
_MOST_LABELS = 256
# Assembly that reads a special register.
_REGISTER = re.compile(r"\s*mov\.[bus](?:32|64)\s+%0\s*,\s*%%?([a-z_0-9.]+)\s*;?\s*")


class Statements:
    """Walks through statements."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self._calls = Calls(walk, self.execute)
        self.expressions = Expressions(walk, self._calls)
        self._walkers: dict[str, Callable[[Node], None]] = {
            "DECL_STMT": self._declarations,
            "IF_STMT": self._if,
            "SWITCH_STMT": self._switch,
            "BREAK_STMT": lambda _: walk.leave_loop("break"),
            "CONTINUE_STMT": lambda _: walk.leave_loop("continue"),
            "RETURN_STMT": self._return,
            "NULL_STMT": lambda _: None,
            "ASM_STMT": self._assembly,
            **dict.fromkeys(("FOR_STMT", "WHILE_STMT", "DO_STMT"), self._loop),
            "COMPOUND_STMT": lambda cursor: self._all(cursor.children),
            "UNEXPOSED_STMT": self._attributed,
        }

    def execute(self, cursor: Node) -> None:
        """Walk through a statement."""
        walk = self._walk
        if walk.active.is_empty():
            return
        walk.recorder.close()
        walk.go_to(cursor)
        walker = self._walkers.get(cursor.kind)
        if walker is None and not cursor.is_expression:
            name = cursor.kind.lower().replace("_", " ")
            raise walk.refuse(_REFUSED.get(cursor.kind, f"{name} is not read; write it otherwise"))
        (walker or self.expressions.discarded)(cursor)
        walk.recorder.close()

    def _all(self, statements: list[Node]) -> None:
        for statement in statements:
            self.execute(statement)

    def _attributed(self, cursor: Node) -> None:
        for child in cursor.children:
            if child.kind in {"FOR_STMT", "WHILE_STMT", "DO_STMT"}:
                self._loop(child, unroll_of(cursor.words, self._walk.kernel.macros))
            else:
                self.execute(child)

    def _loop(self, cursor: Node, unroll: int | None = None) -> None:
        header = Header(cursor, unroll)
        if header.first is not None:
            self.execute(header.first)
        LoopWalk(self._walk, self.expressions, self.execute, header).execute()

    def _assembly(self, cursor: Node) -> None:
        words = cursor.words[cursor.words.index("(") + 1 :] if "(" in cursor.words else []
        text = "".join(word[1:-1] for word in takewhile(lambda word: word.startswith('"'), words))
        found, outputs = _REGISTER.fullmatch(text), cursor.children
        value = self._calls.register(found[1]) if found is not None and len(outputs) == 1 else None
        if value is None:
            raise self._walk.refuse(_REFUSED[cursor.kind])
        self.expressions.places.store(self.expressions.places.place(outputs[0]), value)

    def _return(self, cursor: Node) -> None:
        evaluate = self.expressions.places.place if self._walk.frames[-1].by_reference else self.expressions.value
        self._walk.leave_function(evaluate(cursor.children[0]) if cursor.children else None)

    def _if(self, cursor: Node) -> None:
        test, then, *other = self._behind_declared(cursor)
        condition = self.expressions.condition(test)
        self._walk.branch(condition, lambda: self.execute(then), lambda: self._all(other))

    # Declarations

    def _declarations(self, cursor: Node) -> None:
        for child in [cursor] if cursor.kind == "VAR_DECL" else cursor.children:
            if child.kind == "VAR_DECL":
                self._walk.declare(child.key)
                self._walk.variables[child.key] = self._declared(child)

    def _behind_declared(self, cursor: Node) -> list[Node]:
        """Declare what the head of a statement declares; return the parts behind."""
        parts = cursor.children
        while parts[0].kind in {"DECL_STMT", "VAR_DECL"}:
            self._declarations(parts[0])
            parts = parts[1:]
        # ``if (i = n; i < 4)``
        if len(parts) > 2 and parts[0].is_expression and parts[1].is_expression and _is_two_in_head(cursor.words):
            self.expressions.discarded(parts[0])
            parts = parts[1:]
        return parts

    def _declared(self, cursor: Node) -> Value:
        """Return what a variable is when it is declared."""
        kind, space = self._walk.types.read(cursor.type), space_of(cursor)
        if space == "private" and cursor.storage_class.name == "STATIC" and not _is_constant(cursor):
            space = "global"
        places, initial = self.expressions.places, cursor.operands
        self._calls.require_plain_end(kind.inner[0])
        if kind.kind == "array":
            return self._declared_array(cursor, space, initial)
        if space in {"local", "global"}:
            return Place(kind, places.declared(cursor, MemoryArray(cursor.spelling, space, kind, (1,))))
        if not initial:
            return unknown_of(kind, "undefined")
        if kind.kind == "reference":
            return places.place(initial[-1])
        # ``T *x = SharedMemory<T>()`` and ``T *x = shared.getPointer()`` are idioms for shared memory in templates.
        element, words = kind.element if kind.kind == "pointer" else None, initial[-1].words[:8]
        if element is not None and any("haredMemory" in word or word == "getPointer" for word in words):
            return places.declared(cursor, MemoryArray(cursor.spelling, "local", element))
        value = self.expressions.converted(self.expressions.value(initial[-1]), kind)
        if not kind.is_number:
            return value
        places.store(Place(kind, variable=cursor.key), value)
        return self._walk.variables[cursor.key]

    def _declared_array(self, cursor: Node, space: Space, initial: list[Node]) -> Value:
        element, extents = self._walk.types.read(cursor.type).inner
        lists = [each for each in initial if each.kind == "INIT_LIST_EXPR"]
        if space == "private":
            if None not in extents:
                array = MemoryArray(cursor.spelling, "private", element, extents)
                self._walk.private[cursor.key] = self.expressions.places.declared(cursor, array).array or ""
            given = self.expressions.value(lists[-1]) if lists else None
            if given is None and element.kind == "struct":
                return self._calls.begun(self._walk.types.read(cursor.type))
            return given if isinstance(given, Aggregate) else Aggregate()
        # All extents that are written stand among the children, innermost first; some have template parameters.
        written = [each for each in initial if each.kind != "INIT_LIST_EXPR"]
        known = tuple(
            self.expressions.constant(written[place]) if extent is None and place < len(written) else extent
            for place, extent in zip(range(len(extents))[::-1], extents, strict=True)
        )
        return self.expressions.places.declared(cursor, MemoryArray(cursor.spelling, space, element, known))

    # Switches

    def _switch(self, cursor: Node) -> None:
        walk = self._walk
        value = self.expressions.value(self._behind_declared(cursor)[0])
        cases = self._cases(cursor.children[-1])
        labels = [label for own, _ in cases for label in own if label is not None]
        conditions = [self._condition(value, own, labels) for own, _ in cases]
        unknown = next((each for each in conditions if not each.known), None)
        if unknown is not None:
            walk.note_guard(unknown.reason)
        before, variables, passed = walk.active, walk.variables, walk.active
        walk.guards += unknown is not None
        walk.loops.append(Loop("", walk.guards))
        walk.active = NOWHERE
        # A case without an end goes on into the next one, where others come in.
        for condition, (_, statements) in zip(conditions, cases, strict=True):
            begun = before.intersect(condition.true) if condition.known else before
            walk.rejoin([Exit(begun, condition.known, variables)])
            walk.variables = dict(walk.variables)
            self._all(statements)
            passed = passed.subtract(begun) if condition.known else passed
        walk.rejoin([*walk.loops.pop().breaks, Exit(passed, unknown is None, variables)])
        walk.guards -= unknown is not None
        walk.active = before if walk.active.is_equal(before) else walk.active

    def _condition(self, value: Value, own: list[int | None], labels: list[int]) -> Condition:
        """Return where a switch goes to a case with labels of its `own`."""
        others = [each for each in labels if each not in own] if None in own else own
        equal = [self.expressions.comparison("EQ", value, Integer.of(label or 0)) for label in others]
        condition = next((each for each in equal if not each.known), Condition(NOWHERE, EVERYWHERE))
        for each in equal if condition.known else ():
            condition = Condition(condition.true.union(each.true), condition.false.intersect(each.false))
        return condition.negated() if None in own else condition

    def _cases(self, body: Node) -> list[tuple[list[int | None], list[Node]]]:
        """Return labels (None for default) and statements of each case."""
        found: list[tuple[list[int | None], list[Node]]] = []
        for statement in body.children if body.kind == "COMPOUND_STMT" else [body]:
            labels: list[int | None] = []
            inner = statement
            while inner.kind in {"CASE_STMT", "DEFAULT_STMT"}:
                labels += self._labels(inner.children[:-1]) if inner.kind == "CASE_STMT" else [None]
                inner = inner.children[-1]
            if labels:
                found.append((labels, []))
            if found:
                found[-1][1].extend(inner.children if inner.kind == "COMPOUND_STMT" else [inner])
            elif inner.kind == "DECL_STMT":
                self.execute(inner)
        return found

    def _labels(self, ends: list[Node]) -> range:
        """Return the numbers of a case: one, or those between two."""
        numbers = [number for end in ends if (number := self.expressions.constant(end)) is not None]
        if len(numbers) < len(ends) or numbers[-1] - numbers[0] >= _MOST_LABELS:
            raise self._walk.refuse("the numbers of this case are not known, or too many; write conditions")
        return range(numbers[0], numbers[-1] + 1)


def _is_two_in_head(words: list[str]) -> bool:
    """Return whether a statement has a semicolon between the parentheses at its beginning."""
    depth = 0
    for word in words:
        depth += (word == "(") - (word == ")")
        if (word == ";" and depth == 1) or (word == ")" and not depth):
            return word == ";"
    return False


def _is_constant(declared: Node) -> bool:
    """Return whether nothing assigns to a variable."""
    kind = declared.type.get_canonical()
    while "ARRAY" in kind.kind.name:
        kind = kind.get_array_element_type()
    return bool(kind.is_const_qualified())
