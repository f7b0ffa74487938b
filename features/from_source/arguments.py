"""What the host program gives: arguments, their fields, and variables outside functions; names of sizes and arrays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from perflex.errors import UnsupportedKernelError
from perflex.features.from_source.layouts import is_union
from perflex.features.from_source.parsing import fields_of
from perflex.features.from_source.recording import MemoryArray, Space
from perflex.features.from_source.values import Aggregate, CType, TypeReader, Value, unknown_of
from perflex.features.from_source.walk import Walk


def given(walk: Walk, path: str, declared: Any, kind: CType) -> Value:
    """Return a value that the host program gives: an array, a size, a struct of these, or what is not known.

    `path` is its name, behind those of the structs around it: ``p.n``.
    """
    name = path.replace(".", "_")
    if kind.kind == "pointer" and kind.element is not None:
        _require_alone(walk, name, path, declared)
        restrict = declared.type.is_restrict_qualified()
        array = MemoryArray(name, pointed_space(declared), kind.element, restrict=restrict)
        walk.recorder.arrays.setdefault(name, array)
        return array.start
    if kind.is_integer and declared.spelling:  # without a name nothing can use it
        _require_alone(walk, name, path, declared)
        size = walk.size(name, kind.dtype)
        if kind.dtype.startswith("u") and size.value is not None and size.value < 0:
            msg = f"argument {path!r} of kernel {walk.kernel.name!r} is unsigned, and cannot be negative"
            raise UnsupportedKernelError(msg, kernel=walk.kernel.name)
        if path != name:  # Which fields are read is not followed.
            walk.fix({name})
        return size
    parts: dict[int | str, Value] = {}
    for word, each, field in _fields(kind, walk.types):
        parts[word] = given(walk, f"{path}.{word}", each, field)
    return Aggregate(parts, "uniform") if parts else unknown_of(kind, "uniform")


def integers_of(path: str, kind: CType, types: TypeReader) -> Iterator[str]:
    """Yield the names of the integers in an argument: its own, or those of its fields."""
    if kind.is_integer:
        yield path
    for word, _, field in _fields(kind, types):
        yield from integers_of(f"{path}_{word}", field, types)


def pointed_space(declared: Any) -> Space:
    """Return where a pointer that is given points to."""
    pointee = declared.type.get_canonical().get_pointee().spelling
    return "local" if "__local" in pointee else "constant" if "__constant" in pointee else "global"


def holds_pointers(kind: CType, types: TypeReader) -> bool:
    """Return whether a value is a pointer, or has some in its fields."""
    return kind.kind == "pointer" or any(holds_pointers(field, types) for _, _, field in _fields(kind, types))


def _fields(kind: CType, types: TypeReader) -> list[tuple[str, Any, CType]]:
    """Return name, declaration and type of each field of a struct, but for those that share a place."""
    if kind.kind != "struct" or kind.declared is None or is_union(kind.declared):
        return []
    return [(each.spelling, each, types.read(each.type)) for each in fields_of(kind.declared) if each.spelling]


def _require_alone(walk: Walk, name: str, path: str, declared: Any) -> None:
    """Stop where a field would have the name of another field or argument, or of a variable outside functions."""
    other, first = walk.given.setdefault(name, (path, declared.hash))
    if (other, first) != (path, declared.hash):
        raise walk.refuse(f"{other!r} and {path!r} would both be called {name!r}; rename one of them")
