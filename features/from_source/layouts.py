"""How values lie in memory: the parts that loads and stores of vectors and structs move."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from perflex.features.from_source.copies import replace
from perflex.features.from_source.parsing import fields_of, raising
from perflex.features.from_source.values import CType, TypeReader
from perflex.features.lowering.arithmetic_types import scalar_bytes

# No access of a GPU is wider.
_WIDEST = 16


@dataclass(frozen=True)
class Part:
    """What one access moves of a value: where it begins, its size and the type of its elements."""

    offset: int
    bytes: int
    dtype: str


def moved_parts(kind: CType, lanes: Sequence[int], types: TypeReader) -> list[Part]:
    """Return the parts in which a value is moved, or some elements of a vector.

    OpenCL's vectors are moved whole. Structs, CUDA's vectors among them, are moved field by field, or in parts as wide
    as their alignment where that is stated.
    """
    if lanes:
        return _elements(kind.dtype, lanes)
    if kind.declared is None or kind.kind not in {"struct", "vector"}:
        return [Part(0, kind.bytes, kind.dtype or "int64")]
    align, leaves = max(kind.declared.get_align(), 1), list(_leaves(kind, types))
    if align <= max((_alignment(each) for _, each in _members(kind.declared)), default=1):
        # Of a packed struct no part is more aligned than the struct.
        return [part for leaf in leaves for part in _cut(leaf, align)]
    first = {leaf.offset: leaf.dtype for leaf in reversed(leaves)}
    whole = _cut(Part(0, kind.bytes, "uint8"), min(align, _WIDEST))
    return [replace(part, dtype=first[max(at for at in first if at <= part.offset)]) for part in whole]


def bytes_before(struct: Any, name: str) -> int | None:
    """Return where a field lies in clang's type of a struct, also one of a struct that it is derived from."""
    bits = struct.get_canonical().get_offset(name)
    if bits >= 0:
        return int(bits) // 8
    own = struct.get_canonical().get_declaration()
    inner = ((begin, bytes_before(base.type, name)) for begin, base in _bases(own))
    return next((begin + offset for begin, offset in inner if offset is not None), None)


def base_begins(derived: Any, base: Any) -> int:
    """Return where clang's type of a struct lies in one that is derived from it, or is it."""
    own, wanted = (each.get_canonical().get_declaration() for each in (derived, base))
    if own.kind.name == "NO_DECL_FOUND" or own == wanted:
        return 0
    inner = ((begin, each.type.get_canonical().get_declaration()) for begin, each in _bases(own))
    return next((begin + base_begins(each.type, base) for begin, each in inner if each == wanted or _bases(each)), 0)


def is_union(struct: Any) -> bool:
    """Return whether clang's type is a union, whose fields lie at the same place."""
    return bool(struct.get_declaration().kind.name == "UNION_DECL")


def _elements(dtype: str, lanes: Sequence[int]) -> list[Part]:
    """Return elements of a vector; neighbours are one part where their number is a power of two, as vectors have it."""
    each, chosen = scalar_bytes(dtype), sorted(set(lanes))
    begins = [0, *(place for place, (one, two) in enumerate(pairwise(chosen), 1) if two != one + 1), len(chosen)]
    found = []
    for begin, end in pairwise(begins):
        count = end - begin
        run = Part(chosen[begin] * each, count * each, dtype)
        found += _cut(run, each if count & (count - 1) else run.bytes)
    return found


def _cut(part: Part, most: int) -> list[Part]:
    """Return a part in parts of so many bytes at most."""
    begins = range(0, part.bytes, most)
    return [replace(part, offset=part.offset + begin, bytes=min(most, part.bytes - begin)) for begin in begins]


def _leaves(kind: CType, types: TypeReader) -> Iterator[Part]:
    """Yield the numbers in a struct or array; of a union those of its largest member."""
    if kind.kind == "array" and kind.element is not None:
        inner = list(_leaves(kind.element, types))
        for place in range(kind.extent or 0):
            yield from (replace(each, offset=each.offset + place * kind.element.bytes) for each in inner)
        return
    if kind.declared is None or kind.kind not in {"struct", "vector"}:
        yield Part(0, kind.bytes, kind.dtype or "int64")
        return
    if kind.kind == "vector" and kind.declared.get_align() > scalar_bytes(kind.dtype):
        yield from _cut(Part(0, kind.bytes, kind.dtype), min(kind.declared.get_align(), _WIDEST))
        return
    members = [(offset, types.read(each.type)) for offset, each in _members(kind.declared)]
    if is_union(kind.declared):
        members = [max(members, key=lambda each: each[1].bytes)] if members else []
    for offset, member in members:
        yield from (replace(each, offset=each.offset + offset) for each in _leaves(member, types))


def _members(struct: Any) -> list[tuple[int, Any]]:
    """Return the structs that a struct is derived from, and its fields, with where they begin; bit-fields by words."""
    found, words = _bases(struct.get_declaration()), set[int]()
    for each in fields_of(struct):
        begin = each.get_field_offsetof() // 8
        if each.is_bitfield():
            begin -= begin % max(each.type.get_size(), 1)
            if begin in words or not each.spelling:
                continue
            words.add(begin)
        found.append((begin, each))
    return found


def bases_of(struct: Any) -> list[Any]:
    """Return clang's cursors of the structs that a type is directly derived from."""
    with raising():
        return [each for each in struct.get_declaration().get_children() if each.kind.name == "CXX_BASE_SPECIFIER"]


def _bases(own: Any) -> list[tuple[int, Any]]:
    return [(each.get_base_offsetof(own) // 8, each) for each in bases_of(own.type)]


def _alignment(member: Any) -> int:
    return max(int(member.type.get_canonical().get_align()), 1)
