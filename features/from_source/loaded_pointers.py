"""Pointers that kernels load from memory: each points into an array of its own, called by where it is loaded from."""

from __future__ import annotations

from perflex.features.from_source.copies import replace
from perflex.features.from_source.integers import Integer
from perflex.features.from_source.layouts import bytes_before, is_union
from perflex.features.from_source.parsing import fields_of
from perflex.features.from_source.recording import MemoryArray
from perflex.features.from_source.values import Aggregate, CType, Pointer, Unknown, Value, unknown_of
from perflex.features.from_source.walk import Walk

# Arrays behind pointers that lie in arrays behind pointers; what is deeper is not followed.
_DEEPEST = 3


def loaded(walk: Walk, memory: Pointer, kind: CType) -> Value:
    """Return a value of a type that is loaded: pointers, structs with pointers; of others nothing is known.

    Where the address is a number, it is the beginning of an array, else anywhere in an array that all such pointers
    point into. Pointers to structs like the one around them, as in lists and trees, point into the same array.
    """
    if kind.kind == "struct":
        fields = _pointers_in(walk, kind)
        return Aggregate({name: loaded(walk, _field(memory, name, at), each) for name, at, each in fields}, "data")
    array = walk.recorder.arrays.get(memory.array or "")
    if kind.kind != "pointer" or kind.element is None or array is None or array.name in walk.repointed:
        return unknown_of(kind)
    deep = walk.pointed.get(array.name, 0)
    if array.space in {"local", "private"} or array.name in walk.private.values() or deep >= _DEEPEST:
        return unknown_of(kind)
    walk.pointers_of.add(array.name)
    if kind.element.kind == "struct" and _is_same(kind.element, array.element):
        return Pointer(array.name, Unknown("int64"), kind.element, nullable=True)
    at = memory.offset.value if isinstance(memory.offset, Integer) else None
    element = "any" if at is None else str(at // max(array.element.bytes, 1))
    name = "_".join([array.name, *([element] if element != "0" or not memory.path else []), *memory.path])
    place = f"{array.name}[{'any' if at is None else at}].{'.'.join(memory.path)}"
    if walk.given.setdefault(name, (place, 0)) != (place, 0):
        return unknown_of(kind)
    walk.pointed[name] = deep + 1
    walk.recorder.arrays.setdefault(name, MemoryArray(name, "global", kind.element, restrict=False))
    return Pointer(name, Unknown("int64") if at is None else Integer.of(0, "int64"), kind.element, nullable=True)


def _is_same(one: CType, two: CType) -> bool:
    """Return whether two types are the same struct, constant or not."""
    declared = [each.declared.get_declaration() for each in (one, two) if each.declared is not None]
    return len(declared) == 2 and bool(declared[0] == declared[1])


def require_kept(walk: Walk, memory: Pointer, kind: CType) -> None:
    """Stop where a value is stored that changes pointers that are loaded elsewhere."""
    if kind.kind != "pointer" and not (kind.kind == "struct" and _pointers_in(walk, kind)):
        return
    for array in (way.pointer.array for way in memory.ways) if memory.ways else (memory.array,):
        walk.repointed |= {array} if array is not None else set()
        if array in walk.pointers_of:
            cause = (
                f"the kernel stores pointers in {array!r} and loads pointers from it, so where these point is not known"
            )
            raise walk.refuse(f"{cause}; pass the pointers as arguments")


def _field(struct: Pointer, name: str, at: int) -> Pointer:
    offset = struct.offset.plus(Integer.of(at)) if isinstance(struct.offset, Integer) else struct.offset
    return replace(struct, offset=offset, path=(*struct.path, name))


def _pointers_in(walk: Walk, kind: CType) -> list[tuple[str, int, CType]]:
    """Return name, place in bytes and type of the fields of a struct that are pointers, or hold some."""
    key = tuple(kind.declared.data) if kind.declared is not None and not is_union(kind.declared) else ()
    if key and key not in walk.types.pointers:
        found = walk.types.pointers[key] = []
        for each in fields_of(kind.declared):
            inner = walk.types.read(each.type)
            at = bytes_before(kind.declared, each.spelling) if each.spelling else None
            if at is not None and (inner.kind == "pointer" or (inner.kind == "struct" and _pointers_in(walk, inner))):
                found.append((each.spelling, at, inner))
    return walk.types.pointers.get(key, [])
