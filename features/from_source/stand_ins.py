"""Subscripts that users state in the place of those that data decide, as formulas of what the source names there."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from perflex.errors import UnsupportedKernelError
from perflex.features.annotation import ANYWHERE
from perflex.features.from_source.copies import replace
from perflex.features.from_source.formulas import read_formula
from perflex.features.from_source.integers import Integer
from perflex.features.from_source.parsing import Node
from perflex.features.from_source.stated_subscripts import plain
from perflex.features.from_source.values import Place, Unknown, Value
from perflex.features.from_source.walk import Walk

# As in what is stated of loopy kernels, and what CUDA calls them.
_IDS = {"lid": "threadIdx", "gid": "blockIdx"}


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
