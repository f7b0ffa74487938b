"""Places: variables and memory that C expressions name, loads from them, stores to them."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from math import prod
from typing import Any, Literal, Protocol

from perflex.features.from_source.integers import Integer, NotAffineError, signed, variable
from perflex.features.from_source.parsing import Node
from perflex.features.from_source.values import (
    INT,
    UNKNOWN,
    Address,
    CType,
    MemoryAccess,
    Place,
    Pointer,
    PrivateArray,
    Struct,
    Unknown,
    Value,
    held,
    known_part,
    reason_of,
    unknown_of,
)
from perflex.features.from_source.walk import WHY, MemoryArray, Space, Walk
from perflex.features.lowering.arithmetic_types import is_float, scalar_bytes

_IDS = ("threadIdx", "blockIdx", "blockDim", "gridDim")


class Evaluator(Protocol):
    """What evaluates expressions."""

    def value(self, cursor: Node) -> Value:
        """Evaluate an expression."""
        ...

    def converted(self, value: Value, kind: CType) -> Value:
        """Return a value as one of another type."""
        ...


class Places:
    """Finds, reads and writes places."""

    def __init__(self, walk: Walk, expressions: Evaluator) -> None:
        self._walk = walk
        self._expressions = expressions

    # Which place

    def place(self, cursor: Node) -> Place:
        """Return the place that an expression names."""
        kind, lane = cursor.kind, cursor.lane if cursor.kind == "UNEXPOSED_EXPR" else ""
        if lane:
            return self._hidden_lane(cursor, lane)
        if kind == "PAREN_EXPR" or (kind == "UNEXPOSED_EXPR" and len(cursor.operands) == 1):
            return self.place(cursor.operands[0])
        if kind == "DECL_REF_EXPR":
            return self._declared(cursor)
        if kind == "ARRAY_SUBSCRIPT_EXPR":
            array, subscript = cursor.children
            return self._element(self._array(array), self._expressions.value(subscript))
        if kind == "MEMBER_REF_EXPR":
            return self._member(cursor)
        if kind == "UNARY_OPERATOR" and cursor.sign == "*":
            return self._pointed(self._expressions.value(cursor.children[0]))
        return Place(self._walk.types.read(cursor.type), value=self._expressions.value(cursor))

    def _hidden_lane(self, cursor: Node, lane: str) -> Place:
        inner = cursor.operands[0]
        if (named := _named(inner)) in _IDS:
            return self._built_in(named, lane)
        pointed = cursor.words[-2] == "->"
        return replace(self._pointed(self._expressions.value(inner)) if pointed else self.place(inner), lane=lane)

    def _built_in(self, named: str, letter: str) -> Place:
        return Place(CType("scalar", "uint32"), value=self.index(named, "xyz".index(letter)))

    def _declared(self, cursor: Node) -> Place:
        walk, referenced = self._walk, cursor.referenced
        if referenced is None and cursor.value is not None:  # a template parameter in an instance
            return Place(INT, value=Integer.of(cursor.value))
        if referenced is None:
            raise walk.refuse(f"{cursor.spelling!r} is not declared", cursor.location.line)
        if referenced.kind == "TEMPLATE_NON_TYPE_PARAMETER":
            bound = walk.types.bound.get(referenced.spelling)
            if bound is None:
                cause = f"template parameter {referenced.spelling!r} has no value; write NAME<VALUE, ...>"
                raise walk.refuse(cause, cursor.location.line)
            truth = {"true": 1, "false": 0}
            return Place(INT, value=Integer.of(truth[bound] if bound in truth else int(bound.rstrip("uUlL"), 0)))
        if referenced.kind == "ENUM_CONSTANT_DECL":
            return Place(INT, value=Integer.of(int(referenced.enum_value)))
        key = referenced.key
        if key not in walk.variables:
            walk.variables[key] = self._file_variable(referenced)
        value, kind = walk.variables[key], walk.types.read(referenced.type)
        if isinstance(value, Address) and kind.kind != "pointer":
            return value.place
        return Place(kind.element if kind.kind == "reference" and kind.element is not None else kind, variable=key)

    def _member(self, cursor: Node) -> Place:
        if not cursor.operands:
            raise self._walk.refuse("members of classes are not read; write a function", cursor.location.line)
        owner = cursor.operands[0]
        named = _named(owner)
        if named in _IDS and cursor.spelling in "xyz":
            return self._built_in(named, cursor.spelling)
        kind = self._walk.types.read(owner.type)
        if kind.kind == "pointer":
            return self._field(self._pointed(self._expressions.value(owner)), cursor)
        place = self.place(owner)
        if "vector" in {kind.kind, place.type.kind}:
            return replace(place, lane=cursor.spelling)
        return self._field(place, cursor)

    def _field(self, place: Place, cursor: Node) -> Place:
        kind = self._walk.types.read(cursor.type)
        if place.memory is None:
            return replace(place, type=kind, path=(*place.path, cursor.spelling))
        parent = cursor.referenced.semantic_parent if cursor.referenced is not None else None
        bits = parent.type.get_offset(cursor.spelling) if parent is not None else -1
        if bits < 0:
            raise self._walk.refuse(f"where {cursor.spelling!r} lies in its struct is not known", cursor.location.line)
        memory = self.moved(_of_bytes(place.memory, 1), Integer.of(bits // 8))
        if kind.kind == "array":
            element, extents = kind.inner
            return Place(kind, replace(memory, element=element, extents=extents))
        return Place(kind, replace(memory, element=kind))

    def _array(self, cursor: Node) -> Value | Place:
        """Return what is subscripted: a pointer, or the place of a private array."""
        inner = cursor.stripped
        if inner.kind in {"DECL_REF_EXPR", "ARRAY_SUBSCRIPT_EXPR", "MEMBER_REF_EXPR"}:
            place = self.place(inner)
            if place.memory is None:
                value = self._held(place)
                if place.type.kind == "pointer" and isinstance(value, (Integer, Unknown)):
                    raise self._walk.refuse(f"which array {self._walk.text!r} accesses is not known")
                return value if isinstance(value, (Pointer, Address)) else place
            if place.memory.extents or place.type.kind == "array":
                return place.memory
        return self._expressions.value(cursor)

    def _element(self, array: Value | Place, subscript: Value) -> Place:
        if isinstance(array, Address):
            array = array.place
        if isinstance(array, Place):
            return replace(array, type=array.type.element or array.type, indices=(*array.indices, subscript))
        if not isinstance(array, Pointer):
            return Place(UNKNOWN, Pointer(None, Unknown("int64"), UNKNOWN))
        inner = array.extents[1:]
        kind = CType("array", element=array.element) if inner else array.element
        return Place(kind, replace(self.moved(array, subscript), extents=inner))

    def _pointed(self, value: Value) -> Place:
        if isinstance(value, Address):
            return value.place
        if isinstance(value, PrivateArray):
            return Place(value.element, value=unknown_of(value.element))
        return self._element(value, Integer.of(0))

    def pointed(self, pointer: Value) -> Place:
        """Return the place that a function's argument points to."""
        if isinstance(pointer, Address):
            return pointer.place
        if not isinstance(pointer, Pointer):
            raise self._walk.refuse(f"which array {self._walk.text!r} accesses is not known")
        return Place(pointer.element, replace(pointer, extents=()))

    def vector(self, pointer: Pointer, step: Value, dtype: str, lanes: int) -> Place:
        """Return the place of a vector, so many vectors behind a pointer; those of three lie without gaps here."""
        kind = CType("vector", dtype, lanes) if lanes > 1 else CType("scalar", dtype)
        return Place(kind, replace(self.moved(_of_bytes(pointer, scalar_bytes(dtype) * lanes), step), element=kind))

    def moved(self, pointer: Pointer, step: Value) -> Pointer:
        """Return a pointer so many elements further."""
        size = max(pointer.element.bytes, 1) * prod(extent or 1 for extent in pointer.extents[1:])
        if not isinstance(pointer.offset, Integer) or not isinstance(step, Integer):
            return replace(pointer, offset=Unknown("int64", reason=reason_of(pointer.offset, step)))
        try:
            return replace(pointer, offset=pointer.offset.plus(signed(step, self._walk).scaled(size)))
        except NotAffineError:
            return replace(pointer, offset=Unknown("int64", reason="not affine"))

    # Built-in indices

    def index(self, what: str, axis: int) -> Integer:
        """Return an id or extent of the launch along an axis, by CUDA's name."""
        local = what in {"threadIdx", "blockDim"}
        extents = self._walk.local if local else self._walk.groups
        extent = extents[axis] if axis < len(extents) else 1
        if what in {"blockDim", "gridDim"}:
            return extent.typed("uint32") if isinstance(extent, Integer) else Integer.of(extent, "uint32")
        return Integer.of(0 if extent == 1 else variable(f"{'l' if local else 'g'}{axis}"), "uint32")

    # Reading and writing

    def load(self, place: Place) -> Value:
        """Return a place's value; loads from memory are recorded."""
        if place.memory is None:
            return _lanes(self._held(place), place)
        if place.type.kind == "array":
            return place.memory
        self.access(place, "load")
        content = self._content(place)
        if content is not None:
            return content
        found, element = _lanes(unknown_of(place.type), place), self._accumulator(place.memory)
        return replace(found, chains={element: ()}) if element is not None and isinstance(found, Unknown) else found

    def _accumulator(self, memory: Pointer) -> Hashable:
        """Return what names an element in memory, if the innermost loop may update it in every iteration."""
        loops = self._walk.loops
        if not loops or self._walk.recorder.dry or not isinstance(memory.offset, Integer):
            return None
        counter = loops[-1].counter
        if memory.offset.involves((counter,)):
            return None
        terms = sorted(f"{'*'.join(sizes)} {term}" for sizes, term in memory.offset.terms.items())
        return (f"{memory.array}[{' + '.join(terms)}]", counter)

    def _content(self, place: Place) -> Integer | None:
        """Return the integer that a load gets from an array whose integers are all the same."""
        name = "" if place.memory is None else place.memory.array or ""
        found = self._walk.contents.get(name)
        lanes = len(lanes_named(place.lane)) if place.lane else place.type.lanes
        if found is None or not place.type.is_number or is_float(place.type.dtype) or lanes != 1:
            return None
        # Bytes of ones that are read as words of another width are other numbers; zeros are not.
        if found and self._walk.recorder.arrays[name].element.dtype != place.type.dtype:
            return None
        return Integer.of(found, place.type.dtype)

    def _held(self, place: Place) -> Value:
        if place.variable is None:
            value = place.value if place.value is not None else unknown_of(place.type)
        else:
            value = self._walk.variables[place.variable]
        if isinstance(value, PrivateArray) and place.indices:
            return _private_element(value, place)
        for name in place.path:
            if not isinstance(value, Struct):
                return unknown_of(place.type)
            value = value.fields.get(name, unknown_of(place.type, "undefined"))
        if isinstance(value, Unknown) and place.variable is not None and not place.path:
            return replace(value, chains={place.variable: ()} | dict(value.chains)) if value.constant is None else value
        if isinstance(value, Pointer) and place.indices:
            found = Place(UNKNOWN, memory=value)
            for subscript in place.indices:
                found = self._element(found.memory or value, subscript)
            return self.load(found)
        return value

    def store(self, place: Place, value: Value) -> None:
        """Write a value to a place; stores to memory are recorded."""
        value, variables = held(value), self._walk.variables
        if place.memory is not None:
            self.access(place, "store")
            element = self._accumulator(place.memory)
            if element is not None and isinstance(value, Unknown) and value.chains.get(element):
                self._follow(element, value)
            return
        if place.variable is None:
            return
        before = variables.get(place.variable)
        if isinstance(before, PrivateArray):
            at = _constants(place)
            elements = {} if at is None else {**before.elements, at: value}
            variables[place.variable] = replace(before, elements=elements)
        elif place.path:
            variables[place.variable] = _with_field(before, place.path, value, place.type)
        elif place.lane:
            if isinstance(before, (Integer, Unknown)):
                variables[place.variable] = _with_lane(before, place.lane, value)
        else:
            if isinstance(value, Unknown):
                self._follow(place.variable, value)
            variables[place.variable] = self._expressions.converted(value, place.type)

    def _follow(self, variable: Hashable, value: Unknown) -> None:
        """Note whether an assignment updates a variable from its old value, or begins anew."""
        executed = self._walk.recorder.executed[-1] if self._walk.recorder.executed else None
        chain = value.chains.get(variable)
        if self._walk.recorder.dry or self._walk.active.is_empty():
            return
        if chain and executed is not None and not executed.closed:
            executed.updates, executed.chain = variable, chain
        elif chain is None and not value.chains and is_float(value.dtype):
            executed = self._walk.record()
            if executed is not None and executed.updates is None:
                executed.resets = variable

    def access(self, place: Place, direction: Literal["load", "store"]) -> None:
        """Record a load or store."""
        walk, memory = self._walk, place.memory
        if memory is None:
            return
        if memory.array is None:
            raise walk.refuse(f"which array {walk.text!r} accesses is not known")
        kind = place.type if place.type.kind not in {"unknown", "array"} else memory.element
        size, offset = kind.bytes, memory.offset if isinstance(memory.offset, Integer) else None
        if place.lane and kind.kind == "vector":
            lanes, each = lanes_named(place.lane), scalar_bytes(kind.dtype)
            size, offset = each * len(lanes), offset and offset.plus(Integer.of(lanes[0] * each))
        if offset is None:
            walk.note("subscript", WHY[reason_of(memory.offset)])
        walk.access(MemoryAccess(memory.array, direction, offset, size, kind.dtype or "float32", walk.label, walk.text))

    # Variables outside functions

    def _file_variable(self, declared: Node) -> Value:
        walk = self._walk
        name, kind = declared.spelling, walk.types.read(declared.type)
        if declared.kind != "VAR_DECL":
            return Unknown("float32")
        if kind.kind == "image":
            return self.declared(image(name, kind))
        if kind.kind == "array":
            element, extents = kind.inner
            space = space_of(declared)
            initial = [each for each in declared.operands if each.kind == "INIT_LIST_EXPR"]
            if space == "private" and initial:
                return self._expressions.value(initial[-1])
            return self.declared(MemoryArray(name, "constant" if space == "private" else space, element, extents))
        if kind.is_integer:
            return walk.size(name, kind.dtype) if declared.value is None else Integer.of(declared.value, kind.dtype)
        if kind.kind == "pointer" and kind.element is not None:
            return self.declared(MemoryArray(name, "global", kind.element))
        return unknown_of(kind, "uniform")

    def declared(self, array: MemoryArray) -> Pointer:
        """Make an array known; return its beginning."""
        self._walk.recorder.arrays.setdefault(array.name, array)
        return array.start


def image(name: str, kind: CType) -> MemoryArray:
    """Return an image; those that are only read are textures."""
    written = any(word in kind.declared.spelling for word in ("urf", "write"))
    return MemoryArray(name, "global" if written else "texture", kind)


def space_of(declared: Node) -> Space:
    """Return where a variable lies."""
    attributes = {child.kind for child in declared.children}
    canonical = declared.type.get_canonical()
    written = "" if canonical.kind.name == "POINTER" else canonical.spelling
    if "CUDASHARED_ATTR" in attributes or "__local" in written:
        return "local"
    if "CUDACONSTANT_ATTR" in attributes or "__constant" in written:
        return "constant"
    return "global" if "CUDADEVICE_ATTR" in attributes else "private"


def lanes_named(lane: str) -> list[int]:
    """Return which elements of a vector a component such as ``xy``, ``s03`` or ``hi`` names."""
    if lane in {"lo", "hi", "even", "odd"}:
        return [0, 1]
    if lane[0] in "sS" and len(lane) > 1:
        return [max("0123456789abcdef".find(each), 0) for each in lane[1:].lower()]
    return ["xyzwrgba".find(each) % 4 for each in lane]


def _lanes(value: Value, place: Place) -> Value:
    if not place.lane or not isinstance(value, (Integer, Unknown)):
        return value
    named = lanes_named(place.lane)
    if isinstance(value, Integer):
        return Unknown(value.dtype, len(named))
    if len(named) == 1 and named[0] < len(value.parts) and (part := value.parts[named[0]]) is not None:
        return part
    return replace(value, lanes=len(named), constant=None, source=None, parts=())


def _with_lane(before: Integer | Unknown, lane: str, value: Value) -> Unknown:
    """Return a vector of which elements were assigned."""
    if isinstance(before, Integer):
        return Unknown(before.dtype)
    named = lanes_named(lane)
    parts = list(before.parts or [None] * before.lanes)
    for place in named:
        if place < len(parts):
            parts[place] = known_part(value, before.dtype) if len(named) == 1 else None
    return replace(before, constant=None, source=None, parts=tuple(parts) if any(parts) else ())


def _of_bytes(pointer: Pointer, count: int) -> Pointer:
    """Return a pointer to elements of so many bytes."""
    return replace(pointer, element=CType("struct", struct_bytes=count), extents=())


def _constants(place: Place) -> tuple[Any, ...] | None:
    """Return the place in a private array, if it is known."""
    numbers = [index.value if isinstance(index, Integer) else None for index in place.indices]
    return None if None in numbers else (*numbers, *place.path)


def _private_element(array: PrivateArray, place: Place) -> Value:
    at = _constants(place)
    if len(place.indices) < len(array.extents):
        return array
    if at is not None and at in array.elements:
        return array.elements[at]
    if array.element.is_integer and not array.elements and at is not None:
        return Unknown(array.element.dtype, reason="undefined")
    return unknown_of(place.type if place.type.is_number else array.element)


def _with_field(before: Value | None, path: tuple[str, ...], value: Value, kind: CType) -> Struct:
    owner = before if isinstance(before, Struct) else Struct(kind)
    inner = value if len(path) == 1 else _with_field(owner.fields.get(path[0]), path[1:], value, kind)
    return replace(owner, fields={**owner.fields, path[0]: inner})


def _named(cursor: Node) -> str:
    inner = cursor.stripped
    return str(inner.spelling) if inner.kind == "DECL_REF_EXPR" else ""
