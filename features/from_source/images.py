"""Textures and surfaces of CUDA, images of OpenCL: a fetch or a store is one access of one element."""

from __future__ import annotations

import re
from collections.abc import Sequence

from perflex.features.from_source.expressions import Expressions
from perflex.features.from_source.floats import exact, floor_of
from perflex.features.from_source.integers import Integer, NotAffineError
from perflex.features.from_source.parsing import Node
from perflex.features.from_source.values import (
    CType,
    MemoryAccess,
    Pointer,
    Unknown,
    Value,
    named_type,
    reason_of,
    unknown_of,
)
from perflex.features.from_source.walk import WHY, Walk

_CUDA = re.compile(r"(tex|surf)([123]D|Cubemap)(Layered)?(fetch|Lod|Grad|read|write)?")
_OPENCL = re.compile(r"(read|write)_image(?:f|i|ui|h)")
_OPENCL_TYPE = re.compile(r"image([123])d(_array)?")
# What is not described: several elements at once, and questions about an image.
_OTHERS = re.compile(r"tex\w*gather|get_image_\w+")


class Images:
    """Records accesses of images."""

    def __init__(self, walk: Walk, expressions: Expressions) -> None:
        self._walk = walk
        self._expressions = expressions

    def value(self, name: str, arguments: list[Node], cursor: Node) -> Value | None:
        """Return what a function of images gives; None for other functions."""
        if _OTHERS.fullmatch(name):
            raise self._walk.refuse(f"{name} is not read; use fetches of single elements")
        if found := _CUDA.fullmatch(name):
            return self._cuda(found, arguments, cursor)
        if found := _OPENCL.fullmatch(name):
            return self._opencl(found[1], arguments, cursor)
        return None

    def _cuda(self, found: re.Match[str], arguments: list[Node], cursor: Node) -> Value:
        values = [self._expressions.value(argument) for argument in arguments]
        read, last = self._walk.types.read, found[4]
        kind = self._element(cursor, values)
        if last == "write":
            kind = read(arguments[0].type)
            values = values[1:]
        elif cursor.type.kind.name == "VOID":  # surf2Dread(&result, surface, x, y)
            target, *values = values
            kind = read(arguments[0].type).element or kind
            self._expressions.places.store(self._expressions.places.pointed(target), unknown_of(kind))
        axes = 3 if found[2] == "Cubemap" else int(found[2][0])
        # The level of a texture of several, and the face of a cube, are chosen by what coordinates are worth.
        known = found[2] != "Cubemap" and last not in {"Lod", "Grad"}
        axes += bool(found[3])
        coordinates: list[Integer | None] = [None] * axes
        if known:
            coordinates = self._coordinates(values[1 : 1 + axes])
        if found[1] == "surf" and coordinates[0] is not None:  # in bytes
            coordinates[0] = self._texel(coordinates[0], kind)
        self._access(values[0], "store" if last == "write" else "load", coordinates, values[1:], kind)
        return unknown_of(read(cursor.type) if read(cursor.type).is_number else kind)

    def _opencl(self, word: str, arguments: list[Node], cursor: Node) -> Value:
        values = [self._expressions.value(argument) for argument in arguments]
        image, where = values[0], values[1] if word == "write" else values[-1]
        kind = self._walk.types.read(arguments[-1].type if word == "write" else cursor.type)
        shape = _OPENCL_TYPE.search(image.element.declared.spelling) if isinstance(image, Pointer) else None
        axes = int(shape[1]) + bool(shape[2]) if shape else 1
        parts = (where,) if axes == 1 else where.parts if isinstance(where, Unknown) else ()
        coordinates = self._coordinates(parts[:axes]) if parts else [None] * axes
        sampler = values[1] if word == "read" and len(values) > 2 else None
        normalised = isinstance(sampler, Integer) and (sampler.value or 0) % 2
        if normalised and isinstance(where, Unknown) and where.dtype.startswith("float"):
            coordinates = [None] * axes
        self._access(image, "store" if word == "write" else "load", coordinates, [where], kind)
        return unknown_of(kind)

    def _element(self, cursor: Node, values: Sequence[Value]) -> CType:
        """Return the type of a texture's elements: that of the reference, or the one that the fetch names."""
        read, image = self._walk.types.read, values[0] if values else None
        if isinstance(image, Pointer) and image.element.declared is not None:
            referenced = image.element.declared
            if referenced.get_num_template_arguments() > 0:
                return read(referenced.get_template_argument_type(0))
        kind = read(cursor.type)
        written = re.match(r"\w+ < ([^()<>]*) >", " ".join(cursor.words))
        if not kind.is_number and written:
            kind = named_type(self._walk.types.bound.get(written[1], written[1])) or kind
        return kind

    def _coordinates(self, values: Sequence[Value | None]) -> list[Integer | None]:
        """Return the element along each axis, where the coordinates are integers plus constants."""
        # Constants alone may as well be normalised coordinates.
        constants = [each.constant if isinstance(each, Unknown) else None for each in values]
        if all(each is not None for each in constants) and any(each % 1 for each in constants if each is not None):
            return [None] * len(values)
        known = [None if each is None else exact(each, self._walk) for each in values]
        return [None if each is None else floor_of(each) for each in known]

    def _texel(self, coordinate: Integer, kind: CType) -> Integer | None:
        size = max(kind.bytes, 1)
        try:
            return Integer.of(coordinate.affine.div(Integer.of(size).affine).floor(), "int64")
        except NotAffineError:
            return None

    def _access(
        self, image: Value, direction: str, coordinates: Sequence[Integer | None], given: Sequence[Value], kind: CType
    ) -> None:
        walk = self._walk
        if not isinstance(image, Pointer) or image.array is None or image.element.kind != "image":
            raise walk.refuse(f"which image {walk.text!r} accesses is not known")
        if not kind.is_number:
            raise walk.refuse(f"of which type the elements of {image.array!r} are is not known; write it out")
        known = [each for each in coordinates if each is not None]
        offset, outer = None, tuple(Integer.of(0) for _ in coordinates[1:])
        if len(known) == len(coordinates):
            offset, outer = known[0].scaled(kind.bytes), tuple(reversed(known[1:]))
        else:
            walk.note("subscript", WHY[reason_of(*given)])
        walk.access(
            MemoryAccess(
                image.array, "store" if direction == "store" else "load", offset, kind.bytes, kind.dtype, walk.label,
                walk.text, outer,
            )
        )  # fmt: skip
