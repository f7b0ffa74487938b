"""Textures and surfaces of CUDA, images of OpenCL: a fetch or a store is one access of one element."""

from __future__ import annotations

import re
from collections.abc import Sequence

from perflex.features.from_source.expressions import Expressions
from perflex.features.from_source.integers import Integer
from perflex.features.from_source.parsing import Node
from perflex.features.from_source.values import (
    NAMED_TYPES,
    CType,
    Direction,
    MemoryAccess,
    Pointer,
    Unknown,
    Value,
    exact,
    result_of,
    unknown_of,
)
from perflex.features.from_source.walk import WHY, Walk
from perflex.features.lowering.arithmetic_types import is_float

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
        cuda, opencl = _CUDA.fullmatch(name), _OPENCL.fullmatch(name)
        if cuda is None and opencl is None:
            return None
        values = [self._expressions.value(argument) for argument in arguments]
        if cuda is not None:
            return self._cuda(cuda, arguments, values, cursor)
        return self._opencl("store" if name.startswith("write") else "load", arguments, values, cursor)

    def _cuda(self, found: re.Match[str], arguments: list[Node], values: list[Value], cursor: Node) -> Value:
        read, last = self._walk.types.read, found[4]
        kind = self._element(cursor, values)
        if last == "write":
            kind = read(arguments[0].type)
            values = values[1:]
        elif cursor.type.kind.name == "VOID":  # surf2Dread(&result, surface, x, y)
            target, *values = values
            kind = read(arguments[0].type).element or kind
            self._expressions.places.store(self._expressions.places.pointed(target), unknown_of(kind))
        axes = (3 if found[2] == "Cubemap" else int(found[2][0])) + bool(found[3])
        # The level of a texture of several, and the face of a cube, are chosen by what coordinates are worth.
        chosen = found[2] == "Cubemap" or last in {"Lod", "Grad"}
        coordinates = self._coordinates([None] * axes if chosen else values[1 : 1 + axes])
        if found[1] == "surf" and coordinates[0] is not None:  # in bytes
            texel = self._expressions.arithmetic("Div", coordinates[0], Integer.of(max(kind.bytes, 1)))
            coordinates[0] = texel if isinstance(texel, Integer) else None
        self._access(values[0], "store" if last == "write" else "load", coordinates, values[1:], kind)
        return unknown_of(read(cursor.type) if read(cursor.type).is_number else kind)

    def _opencl(self, direction: Direction, arguments: list[Node], values: list[Value], cursor: Node) -> Value:
        image, where = values[0], values[1] if direction == "store" else values[-1]
        kind = self._walk.types.read(arguments[-1].type if direction == "store" else cursor.type)
        shape = _OPENCL_TYPE.search(image.element.declared.spelling) if isinstance(image, Pointer) else None
        axes = int(shape[1]) + bool(shape[2]) if shape else 1
        parts = (where,) if axes == 1 else where.parts if isinstance(where, Unknown) else ()
        sampler = values[1] if direction == "load" and len(values) > 2 else None
        if isinstance(sampler, Integer) and (sampler.value or 0) % 2 and is_float(result_of(where).dtype):  # normalised
            parts = ()
        coordinates = self._coordinates(parts[:axes] or [None] * axes)
        self._access(image, direction, coordinates, [where], kind)
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
            kind = NAMED_TYPES.get(self._walk.types.bound.get(written[1], written[1])) or kind
        return kind

    def _coordinates(self, values: Sequence[Value | None]) -> list[Integer | None]:
        """Return the element along each axis, where the coordinates are integers plus constants."""
        # Constants alone may as well be normalised coordinates.
        constants = [each.constant for each in values if isinstance(each, Unknown) and each.constant is not None]
        if len(constants) == len(values) and any(each % 1 for each in constants):
            return [None] * len(values)
        known = (exact(each, self._walk) for each in values)
        return [each if each is None else each.floor() for each in known]

    def _access(
        self, image: Value, direction: Direction, coordinates: list[Integer | None], given: list[Value], kind: CType
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
            walk.note("subscript", WHY[result_of(*given).reason])
        place = walk.label, walk.text
        walk.access(MemoryAccess(image.array, direction, offset, kind.bytes, kind.dtype, *place, outer))
