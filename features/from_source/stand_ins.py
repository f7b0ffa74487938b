"""Subscripts that users state in the place of those that data decide, as formulas of what the source names there."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from perflex.errors import UnsupportedKernelError
from perflex.features.annotation import ANYWHERE
from perflex.features.from_source.formulas import read_formula
from perflex.features.from_source.integers import Integer, NotAffineError
from perflex.features.from_source.parsing import Node
from perflex.features.from_source.values import Place, Unknown, Value

if TYPE_CHECKING:
    from perflex.features.from_source.expressions import Expressions
    from perflex.features.from_source.loop_headers import Header
    from perflex.features.from_source.walk import Walk

# As in what is stated of loopy kernels, and what CUDA calls them.
_IDS = {"lid": "threadIdx", "gid": "blockIdx"}
_ONES = {"x++": 1, "++x": 1, "x--": -1, "--x": -1}


class StandIns(dict[str, str]):
    """Stated subscripts by the text of the access, and which of them were met."""

    def __init__(self, stated: Mapping[str, str]) -> None:
        super().__init__({plain(key): value for key, value in stated.items()})
        self.met: set[str] = set()

    @property
    def unmet(self) -> str:
        """What fits no access, in words; empty if all do."""
        text = next((key for key in self if key not in self.met), None)
        words = "fits no access; write the access as the source does"
        return "" if text is None else f"what is stated for {text!r} {words}"


def is_access(key: str) -> bool:
    """Return whether something is stated for an access, rather than a line or an array."""
    return "[" in key or key.lstrip().startswith("*")


def plain(text: str) -> str:
    """Return a text without blanks, but between words."""
    return re.sub(r"(?<!\w)\s+|\s+(?!\w)", "", text.strip())


def stood_in(cursor: Node, place: Place, walk: Walk, index: Callable[[str, int], Integer]) -> Place:
    """Return the place that an expression names, in an array the one that is stated where data decide it."""
    stated = walk.stand_ins
    if not stated or place.memory is None:
        return place
    text = plain(" ".join(cursor.words))
    value = stated.get(text)
    if value is None:
        return place
    stated.met.add(text)
    if isinstance(place.memory.offset, Integer) or value.strip() == ANYWHERE or walk.recorder.dry:
        return place
    ids = {f"{word}{axis}": index(cuda, axis) for word, cuda in _IDS.items() for axis in range(len(walk.local))}
    element = _element(text, value, {**ids, **_named(cursor, walk)}, walk)
    offset = element.typed("int64").scaled(max(place.type.bytes, 1))
    return replace(place, memory=replace(place.memory, offset=offset, assumed=f"{text} as {value}"))


def _element(text: str, value: str, known: Mapping[str, Integer], walk: Walk) -> Integer:
    try:
        found = read_formula(value, {**walk.kernel.defines, **known})
    except UnsupportedKernelError as error:
        raise walk.refuse(f"{value!r}, stated for {text}: {error.message}") from None
    there = walk.sizes.union(*(each.names for each in known.values()))
    if unknown := sorted(found.names - there):
        cause = f"names {unknown[0]!r}, which is not known there; known: {', '.join(sorted({*known, *walk.sizes}))}"
        raise walk.refuse(f"{value!r}, stated for {text}, {cause}")
    return found


def _named(cursor: Node, walk: Walk) -> dict[str, Integer]:
    """Return what names stand for: variables of the access itself, else the last that were declared."""
    own = [each.referenced.key for each in cursor.preorder() if each.kind == "DECL_REF_EXPR" and each.referenced]
    found: dict[str, Integer] = {}
    for key in (*walk.variables, *(key for key in own if key in walk.variables)):
        name, number = key[0] if isinstance(key, tuple) else "", _number(walk.variables[key])
        found.pop(name, None)
        if number is not None:
            found[name] = number
    return found


def _number(value: Value) -> Integer | None:
    return value.counted if isinstance(value, Unknown) else value if isinstance(value, Integer) else None


def counted(value: Value, header: Header, key: Hashable, iteration: Integer, expressions: Expressions) -> Value:
    """Return a variable at the start of an iteration with what it would be if the loop began with 0.

    Of a variable that data set before the loop, and that the header or the end of the body adds the same to each time.
    """
    parts = [part for part in (header.step, header.body) if part is not None]
    steps, walk = [step for part in parts for step in _changes(part, key)], expressions.walk
    if not walk.stand_ins or not isinstance(value, Unknown) or len(steps) != 1:
        return value
    [step] = steps
    if step.kind == "UNARY_OPERATOR":
        each: Value = Integer.of(_ONES[step.sign])
    else:
        with walk.trial():
            each = expressions.value(step.children[1])
    if not isinstance(each, Integer):
        return value
    try:
        times = each.times(iteration, walk.sizes)
    except NotAffineError:
        return value
    subtracts = step.kind != "UNARY_OPERATOR" and step.binary_operator.name == "SubAssign"
    return replace(value, counted=times.scaled(-1) if subtracts else times)


def _changes(part: Node, key: Hashable) -> Iterator[Node]:
    """Yield the expressions that add to a variable in the step of a loop, or as statements of its body."""
    for each in part.children if part.kind == "COMPOUND_STMT" else part.preorder():
        target = each.children[0].stripped if each.children else each
        adds = each.kind == "COMPOUND_ASSIGNMENT_OPERATOR" and each.binary_operator.name in {"AddAssign", "SubAssign"}
        adds = adds or (each.kind == "UNARY_OPERATOR" and each.sign in _ONES)
        if adds and target.kind == "DECL_REF_EXPR" and target.referenced is not None and target.referenced.key == key:
            yield each
