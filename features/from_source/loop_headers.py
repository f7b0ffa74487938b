"""The parts of a C loop: what is executed first, its test, its step, its body, and what it assigns."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import takewhile

from perflex.features.from_source.parsing import Node

_LOOPS = {"FOR_STMT", "WHILE_STMT", "DO_STMT"}
# What ends a statement, not that around it.
_LEFT_BY = {name: {"BREAK_STMT", "CONTINUE_STMT"} for name in _LOOPS} | {"SWITCH_STMT": {"BREAK_STMT"}}
_OPENING, _CLOSING = {"(", "[", "{"}, {")", "]", "}"}
_LOOP_WORDS, _UNROLL = {"for", "while", "do"}, {"unroll", "opencl_unroll_hint"}
_STEPS = {"x++", "++x", "x--", "--x"}


class Header:
    """The parts of a loop."""

    def __init__(self, cursor: Node, unroll: int | None = None) -> None:
        *parts, self.body = cursor.children
        self.cursor = cursor
        # As `Loop.unroll`.
        self.unroll = unroll
        # Whether a part of it, or only what it points to.
        self.assigned: dict[Hashable, bool] = {}
        for key, is_part in assigned(cursor):
            self.assigned[key] = self.assigned.get(key, False) or is_part
        self.first: Node | None = None
        self.test: Node | None = None
        self.step: Node | None = None
        self.tested_last = cursor.kind == "DO_STMT"
        if self.tested_last:
            self.body, self.test = cursor.children
        elif cursor.kind == "WHILE_STMT":
            self.test = parts[0]
        elif len(parts) == 3:
            self.first, self.test, self.step = parts
        else:  # libclang leaves out those that are empty
            there = [
                name for name, filled in zip(("first", "test", "step"), _filled(cursor.words), strict=True) if filled
            ]
            if len(there) != len(parts):  # a macro
                there = _guessed(parts)
            vars(self).update(zip(there, parts, strict=True))


def unroll_of(words: Sequence[str], macros: Mapping[str, str]) -> int | None:
    """Return what stands before a loop of how far to unroll it, as `Loop.unroll`; `macros` are names and texts."""
    hint = list(takewhile(lambda word: word not in _LOOP_WORDS, words))
    if "nounroll" in hint:
        return 1
    place = next((place for place, word in enumerate(hint) if word in _UNROLL), None)
    if place is None:
        return None
    behind = list(takewhile(lambda word: word != "#", hint[place + 1 :]))
    # Without a number, or with one that no text tells, it is all.
    text = next((word for word in behind if word not in _OPENING | _CLOSING), "")
    for _ in macros:  # each once: some name themselves
        text = macros.get(text, text).strip("() ")
    number = re.fullmatch(r"(\d+)[uUlL]*", text)
    return 0 if number is None else int(number[1]) or None


def _filled(words: Sequence[str]) -> list[bool]:
    """Return which of the three parts of a for loop's header are not empty."""
    found, depth, last = [False] * 3, 0, 0
    for word in words[1:]:
        depth += (word in _OPENING) - (word in _CLOSING)
        if not depth or (depth == 1 and last == 2 and word == ";"):
            break
        if depth == 1 and word == ";":
            last += 1
        elif depth > 1 or word != "(" or any(found):
            found[last] = True
    return found


def _guessed(parts: Sequence[Node]) -> list[str]:
    """Return which parts those are that are there, where macros hide it."""
    found = []
    for place, part in enumerate(parts):
        begins = part.kind == "DECL_STMT" or (_assigns(part) and place == 0 and len(parts) > 1)
        found.append("first" if begins else "step" if _assigns(part) else "test")
    return found


def _assigns(part: Node) -> bool:
    part = part.stripped
    if part.kind == "UNARY_OPERATOR":
        return part.sign in _STEPS
    assigns = part.kind == "BINARY_OPERATOR" and part.binary_operator.name in {"Assign", "Comma"}
    return assigns or part.kind == "COMPOUND_ASSIGNMENT_OPERATOR"


def assigned(cursor: Node) -> Iterator[tuple[Hashable, bool]]:
    """Yield the variables of which a loop may change a part, or what one points to, in the order of the source."""
    targets: list[Node] = []
    if cursor.kind == "CALL_EXPR":
        # The first of an operator of a class is its left operand.
        targets = cursor.children[0 if cursor.spelling.startswith("operator") else 1 :]
    elif cursor.children and (_assigns(cursor) or (cursor.kind == "UNARY_OPERATOR" and cursor.sign == "&")):
        targets = cursor.children[:1]
    for each in targets:
        target, is_part = each, True
        while True:
            is_pointer = target.kind in {"MEMBER_REF_EXPR", "DECL_REF_EXPR"} and target.form == "POINTER"
            is_part = is_part and (target is each or not is_pointer)
            if target.kind == "DECL_REF_EXPR" or not target.children:
                break
            target = target.children[0]
        if target.kind == "DECL_REF_EXPR" and target.referenced is not None:
            yield target.referenced.key, is_part
    for part in cursor.children:
        yield from assigned(part)


def contains(cursor: Node, names: set[str]) -> bool:
    """Return whether a body has statements of some kinds of its own: of loops inside it only returns are."""
    return any(
        child.kind in names or contains(child, names - _LEFT_BY.get(child.kind, set())) for child in cursor.children
    )
