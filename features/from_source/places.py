"""Places: variables and memory that C expressions name, loads from them, stores to them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

from perflex.features.from_source.arguments import given, holds_pointers
from perflex.features.from_source.choices import with_element
from perflex.features.from_source.copies import replace
from perflex.features.from_source.integers import Integer, NotAffineError, own_name, signed, variable
from perflex.features.from_source.iterations import overlap
from perflex.features.from_source.layouts import base_begins, bytes_before, is_union, moved_parts
from perflex.features.from_source.loaded_pointers import loaded, require_kept
from perflex.features.from_source.parsing import Node
from perflex.features.from_source.recording import WHY, MemoryArray, Space
from perflex.features.from_source.stand_ins import stood_in
from perflex.features.from_source.values import (
    INT,
    UNKNOWN,
    Aggregate,
    Closure,
    CType,
    Direction,
    MemoryAccess,
    Place,
    Pointer,
    Unknown,
    Value,
    held,
    known_part,
    part_of,
    plain_name,
    result_of,
    unknown_of,
    with_part,
)
from perflex.features.from_source.walk import Condition, Walk
from perflex.features.lowering.arithmetic_types import is_float, scalar_bytes

# Where variables are declared that are in no function.
_SCOPES = {
    "TRANSLATION_UNIT",
    "NAMESPACE",
    "LINKAGE_SPEC",
    "UNEXPOSED_DECL",
    "STRUCT_DECL",
    "CLASS_DECL",
    "UNION_DECL",
    "CLASS_TEMPLATE",
    "CLASS_TEMPLATE_PARTIAL_SPECIALIZATION",
}
_LETTERS = "xyzwrgba"
_CASTS = {"CSTYLE_CAST_EXPR", "CXX_STATIC_CAST_EXPR", "CXX_CONST_CAST_EXPR", "CXX_FUNCTIONAL_CAST_EXPR"}
_IDS = ("threadIdx", "blockIdx", "blockDim", "gridDim")


class Evaluator(Protocol):
    """What evaluates expressions."""

    def value(self, cursor: Node) -> Value:
        """Evaluate an expression."""
        ...

    def subscript(self, cursor: Node) -> Value:
        """Evaluate a part of an address, whose arithmetic with integers is not counted."""
        ...

    def converted(self, value: Value, kind: CType) -> Value:
        """Return a value as one of another type."""
        ...

    def condition(self, cursor: Node) -> Condition:
        """Evaluate an expression as a condition."""
        ...

    def called(self, cursor: Node) -> Value:
        """Evaluate a call; of a function that returns a reference, the place."""
        ...

    def number(self, number: float, dtype: str) -> Value:
        """Return a constant of a type."""
        ...


class Places:
    """Finds, reads and writes places."""

    def __init__(self, walk: Walk, expressions: Evaluator) -> None:
        self._walk = walk
        self._expressions = expressions

    # Which place

    def place(self, cursor: Node) -> Place:
        """Return the place that an expression names."""
        kind = cursor.kind
        if kind == "UNEXPOSED_EXPR" and cursor.lane:
            return self._component(cursor)
        if kind == "PAREN_EXPR" or (kind == "UNEXPOSED_EXPR" and len(cursor.operands) == 1):
            place = self.place(cursor.operands[0])
            if place.memory is None or cursor.form != "RECORD":
                return place
            within = base_begins(cursor.operands[0].type, cursor.type)
            base = self._walk.types.read(cursor.type)
            return replace(place, type=base, memory=self.further(replace(place.memory, element=base), within))
        if kind == "DECL_REF_EXPR":
            return self._declared(cursor)
        if kind == "ARRAY_SUBSCRIPT_EXPR":
            array, subscript = cursor.children
            element = self._element(self._expressions.value(array), self._expressions.subscript(subscript))
            return stood_in(cursor, element, self._walk, self.index)
        if kind == "MEMBER_REF_EXPR":
            return self._member(cursor)
        if kind == "UNARY_OPERATOR" and cursor.sign == "*":
            element = self.pointed(self._expressions.value(cursor.children[0]))
            return stood_in(cursor, element, self._walk, self.index)
        if kind in _CASTS and _is_of_place(cursor):
            return self.place(cursor.operands[-1])
        if kind == "CALL_EXPR":
            found = self._expressions.called(cursor)
            return found if isinstance(found, Place) else Place(self._walk.types.read(cursor.type), value=found)
        return self._chosen(cursor) if kind == "CONDITIONAL_OPERATOR" else self._assigned(cursor)

    def _assigned(self, cursor: Node) -> Place:
        """Return the variable that an expression assigns to, or its value if it does not."""
        value = self._expressions.value(cursor)
        if _assigns(cursor) and cursor.children[0].stripped.kind == "DECL_REF_EXPR":
            return self.place(cursor.children[0])
        return Place(self._walk.types.read(cursor.type), value=value)

    def _chosen(self, cursor: Node) -> Place:
        """Return the place that a condition chooses."""
        test, then, other = cursor.children
        condition = self._expressions.condition(test)
        one, two, split = self._walk.branch(condition, lambda: self.place(then), lambda: self.place(other))
        found = one or two if one is None or two is None else self._walk.joined(one, two, split)
        return found if isinstance(found, Place) else Place(self._walk.types.read(cursor.type))

    def _component(self, cursor: Node) -> Place:
        """Return the part of a vector that an expression names behind a dot or an arrow."""
        inner = cursor.operands[0]
        place = self.pointed(self._expressions.value(inner)) if cursor.words[-2] == "->" else self.place(inner)
        if place.type.kind != "vector":
            raise self._walk.refuse(f"what {cursor.lane!r} names is not known; write it out", cursor)
        return _named(place, cursor.lane)

    def owner(self) -> Place:
        """Return the object of the method that is walked through."""
        found = self._walk.frames[-1].owner
        if found is None:
            raise self._walk.refuse("the object of a method is not known; write a function")
        return found

    def _declared(self, cursor: Node) -> Place:
        walk, referenced = self._walk, cursor.referenced
        if referenced is None and cursor.value is not None:  # a template parameter in an instance
            return Place(INT, value=Integer.of(cursor.value, literal=True))
        if referenced is None and cursor.operands:  # a function in the place of a template parameter
            return Place(UNKNOWN, value=self._expressions.value(cursor.operands[-1]))
        if referenced is None:
            raise walk.refuse(f"{cursor.spelling!r} is not declared", cursor)
        if referenced.kind in {"FUNCTION_DECL", "CXX_METHOD"}:
            return Place(UNKNOWN, value=Closure(referenced))
        if referenced.kind == "ENUM_CONSTANT_DECL":
            kind = walk.types.read(cursor.type)
            return Place(kind, value=Integer.of(int(referenced.enum_value), kind.dtype or "int32", literal=True))
        if referenced.spelling in _IDS and referenced.key not in walk.variables:
            axes: dict[int | str, Value] = {"xyz"[axis]: self.index(referenced.spelling, axis) for axis in range(3)}
            return Place(walk.types.read(referenced.type), value=Aggregate(axes))
        key = referenced.key
        if referenced.spelling in walk.fixed:
            walk.read.add(referenced.spelling)
        if key not in walk.variables:
            walk.variables[key] = self._file_variable(referenced)
        value, kind = walk.variables[key], walk.types.read(referenced.type)
        if isinstance(value, Place) and kind.kind != "pointer":
            return value
        kind = kind.element if kind.kind == "reference" and kind.element is not None else kind
        start = walk.recorder.arrays[walk.private[key]].start if key in walk.private else None
        return Place(kind, variable=key, private=start)

    def _member(self, cursor: Node) -> Place:
        kind = self._walk.types.read(cursor.type)
        if cursor.operands:
            owner = cursor.operands[0]
            owned = self._walk.types.read(owner.type)
            place = self.pointed(self._expressions.value(owner)) if owned.kind == "pointer" else self.place(owner)
        else:
            place = self.owner()
            owned = place.type
        if "vector" in {owned.kind, place.type.kind}:
            return _named(place, cursor.spelling)
        parent = cursor.referenced.semantic_parent if cursor.referenced is not None else None
        if cursor.referenced is not None and cursor.referenced.is_bitfield():
            raise self._walk.refuse(f"bit-field {cursor.spelling!r} is not read; use an integer", cursor)
        if place.memory is None:
            # What was written to another member of a union is not known as this one.
            within = None if parent is not None and is_union(parent.type) else cursor.spelling
            return replace(place, type=kind, steps=(*place.steps, within))
        structs = (each.declared for each in (owned.element or owned, place.type) if each.declared is not None)
        found = (bytes_before(struct, cursor.spelling) for struct in (*structs, *([parent.type] if parent else ())))
        offset = next((each for each in found if each is not None), None)
        if offset is None:
            raise self._walk.refuse(f"where {cursor.spelling!r} lies in its struct is not known", cursor)
        path = (*place.memory.path, cursor.spelling)
        return Place(kind, replace(self.further(place.memory, offset), element=kind, path=path))

    def further(self, pointer: Pointer, count: int) -> Pointer:
        """Return a pointer so many bytes further."""
        return replace(self.moved(_of_bytes(pointer, 1), Integer.of(count)), element=pointer.element)

    def _element(self, array: Value, subscript: Value) -> Place:
        if isinstance(array, Place):
            at = subscript.value if isinstance(subscript, Integer) else None
            if array.type.kind == "array" and array.type.element is not None:
                inner = array.type.element
                there = None if array.private is None else self.moved(array.private, subscript)
                there = there and replace(there, element=inner.element or inner if inner.kind == "array" else inner)
                return replace(array, type=inner, steps=(*array.steps, at), private=there)
            if array.type.kind == "vector" and len(array.lanes) == 1:
                lane = array.lanes[0] + at if at is not None else -1
                if lane in range(array.type.lanes):
                    return replace(array, lanes=(lane,))
                return replace(array, type=CType("scalar", array.type.dtype), lanes=(), steps=(*array.steps, None))
            # What lies beside a part is not known.
            return replace(array, steps=(*array.steps[:-1], None)) if array.steps and at != 0 else array
        if not isinstance(array, Pointer):
            return Place(UNKNOWN, Pointer(None, Unknown("int64"), UNKNOWN))
        return Place(array.element, self.moved(array, subscript))

    def pointed(self, pointer: Value) -> Place:
        """Return the place that a pointer points to."""
        return self._element(pointer, Integer.of(0))

    def vector(self, pointer: Pointer, step: Value, dtype: str, lanes: int, *, aligned: bool = False) -> Place:
        """Return the place of a vector, so many vectors behind a pointer; those of three have gaps if `aligned`."""
        kind = CType("vector", dtype, lanes) if lanes > 1 else CType("scalar", dtype)
        each = kind.bytes if aligned else scalar_bytes(dtype) * lanes
        memory = replace(self.moved(_of_bytes(pointer, each), step), element=kind)
        return Place(kind, memory, lanes=tuple(range(lanes)) if lanes == 3 else ())

    def moved(self, pointer: Pointer, step: Value) -> Pointer:
        """Return a pointer so many elements further."""
        size = max(pointer.element.bytes, 1)
        if pointer.ways:
            ways = (replace(way, pointer=self.moved(with_element(way, pointer), step)) for way in pointer.ways)
            return replace(pointer, ways=tuple(ways))
        if not isinstance(pointer.offset, Integer) or not isinstance(step, Integer):
            return replace(pointer, offset=Unknown("int64", reason=result_of(pointer.offset, step).reason))
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
        return Integer.of(0 if extent == 1 else variable(own_name(f"{'l' if local else 'g'}{axis}")), "uint32")

    # Reading and writing

    def load(self, place: Place) -> Value:
        """Return a place's value; loads from memory are recorded."""
        if place.memory is None:
            if place.private is not None and place.type.kind != "array":
                self._access(place, place.private, "load")
            value = held(_lanes(self._value(place), place))
            return place if place.type.kind == "array" and isinstance(value, Aggregate) else value
        if place.type.kind == "array" and place.type.element is not None:
            return replace(place.memory, element=place.type.element)
        self._access(place, place.memory, "load")
        content = self._content(place, place.memory.array or "")
        if content is not None:
            return content
        found = _lanes(loaded(self._walk, place.memory, place.type), place)
        element = self._accumulator(place.memory)
        return replace(found, chains={element: ()}) if element is not None and isinstance(found, Unknown) else found

    def _accumulator(self, memory: Pointer) -> Hashable:
        """Return what names an element in memory, if the innermost loop may update it in every iteration."""
        loops = [loop for loop in self._walk.loops if not loop.is_switch]
        if not loops or self._walk.recorder.dry or not isinstance(memory.offset, Integer):
            return None
        counter = loops[-1].counter
        if counter in memory.offset.names:
            return None
        terms = sorted(f"{'*'.join(sizes)} {term}" for sizes, term in memory.offset.terms.items())
        return (f"{memory.array}[{' + '.join(terms)}]", counter)

    def _content(self, place: Place, array: str) -> Integer | None:
        """Return the integer that a load gets from an array whose integers are all the same."""
        found, kind = self._walk.contents.get(array), place.type
        if found is None or not kind.is_number or is_float(kind.dtype) or (len(place.lanes) or kind.lanes) != 1:
            return None
        # Bytes of ones that are read as words of another width are other numbers; zeros are not.
        same = self._walk.recorder.arrays[array].element.dtype == kind.dtype
        return Integer.of(found, kind.dtype) if same or not found else None

    def _value(self, place: Place) -> Value:
        if place.variable is None:
            value = place.value if place.value is not None else unknown_of(place.type)
        else:
            value = self._walk.variables[place.variable]
        value = part_of(value, place.steps, place.type)
        if isinstance(value, Aggregate) and place.type.is_number:  # written as another type
            return unknown_of(place.type)
        if isinstance(value, Unknown) and value.constant is None and place.variable is not None and not place.steps:
            return replace(value, chains={place.variable: ()} | dict(value.chains))
        return value

    def store(self, place: Place, value: Value) -> None:
        """Write a value to a place; stores to memory are recorded."""
        variables = self._walk.variables
        if place.memory is not None:
            self._walk.settle(value)
            self._access(place, place.memory, "store")
            require_kept(self._walk, place.memory, place.type)
            element = self._accumulator(place.memory)
            if element is not None and isinstance(value, Unknown) and value.chains.get(element):
                self._follow(element, value)
            return
        if place.variable is None:
            raise self._walk.refuse("what is assigned to here is not known; write the assignment to a variable")
        if place.private is not None and place.type.kind != "array":
            self._access(place, place.private, "store")
        if place.lanes:
            value = _with_lanes(self._value(place), place.lanes, value)
        else:
            if isinstance(value, Unknown) and not place.steps and self._follow(place.variable, value):
                # What follows waits for the value from here on.
                chains = {variable: chain for variable, chain in value.chains.items() if variable != place.variable}
                value = replace(value, chains=chains)
            value = self._expressions.converted(value, place.type)
        variables[place.variable] = with_part(variables.get(place.variable), place.steps, value)

    def _follow(self, variable: Hashable, value: Unknown) -> bool:
        """Note whether an assignment updates a variable from its old value, or begins anew; return the former."""
        chain = value.chains.get(variable)
        if self._walk.recorder.dry or self._walk.active.is_empty():
            return False
        if chain:
            executed = self._walk.record() if self._walk.is_carried(variable) else None
            if executed is not None:
                executed.updates, executed.chain = variable, chain
            return True
        if chain is None and not value.chains and is_float(value.dtype):
            executed = self._walk.record()
            if executed is not None and executed.updates is None:
                executed.resets = variable
        return False

    def _access(self, place: Place, memory: Pointer, direction: Direction) -> None:
        walk = self._walk
        before = walk.active
        for way in memory.ways:
            walk.active = overlap(before, way.domain)
            walk.guards += not way.certain
            if not way.certain:
                walk.note_guard("data")
            self._access(place, way.pointer, direction)
            walk.guards -= not way.certain
        walk.active = before
        if memory.ways:
            return
        if memory.array is None:
            cause = f"which array {walk.text!r} accesses is not known; write an access of each, under conditions"
            raise walk.refuse(cause)
        begin = memory.offset if isinstance(memory.offset, Integer) else None
        if begin is None and memory.array not in walk.private.values():
            walk.note("subscript", WHY[result_of(memory.offset).reason])
        where = walk.label, walk.text, memory.assumed
        for part in moved_parts(place.type, place.lanes, walk.types):
            offset = begin and begin.plus(Integer.of(part.offset, begin.dtype))
            walk.access(MemoryAccess(memory.array, direction, offset, part.bytes, part.dtype, *where))

    # Variables outside functions

    def _file_variable(self, declared: Node) -> Value:
        walk = self._walk
        name, kind = declared.spelling, walk.types.read(declared.type)
        if declared.kind == "UNEXPOSED_DECL" and kind.is_number and declared.number is not None:
            return self._expressions.number(declared.number, kind.dtype)  # an instance of a template of variables
        around = declared.semantic_parent
        is_instance = declared.kind == "UNEXPOSED_DECL" and space_of(declared) != "private"
        if (declared.kind != "VAR_DECL" and not is_instance) or (around is not None and around.kind not in _SCOPES):
            raise walk.refuse(f"the value of {name!r} is not known here")
        if kind.kind == "array":
            element, extents = kind.inner
            space = space_of(declared)
            initial = [each for each in declared.operands if each.kind == "INIT_LIST_EXPR"]
            if space == "private" and initial:
                return self._expressions.value(initial[-1])
            space = "constant" if space == "private" else space
            return self.declared(declared, MemoryArray(name, space, element, extents))
        space = space_of(declared)
        if (
            space in {"local", "global"}
            and not declared.type.is_const_qualified()
            and not holds_pointers(kind, walk.types)
        ):
            return Place(kind, self.declared(declared, MemoryArray(name, space, kind, (1,))))
        if kind.is_integer and declared.value is not None:
            return Integer.of(declared.value, kind.dtype, literal=True)
        return given(walk, name, declared, kind)

    def declared(self, cursor: Node, array: MemoryArray) -> Pointer:
        """Make an array known by its name, or one like it where another has that; return its beginning."""
        walk, arrays = self._walk, self._walk.recorder.arrays
        # Instances of a template declare arrays of several extents.
        key = (cursor.key, array.extents, array.element.bytes)
        name = walk.named.get(key, array.name)
        while key not in walk.named and (name in arrays or name in walk.given):
            name += "_"
        walk.named[key] = name
        walk.given.setdefault(name, (name, cursor.hash))
        arrays[name] = replace(array, name=name)
        return arrays[name].start


def _assigns(cursor: Node) -> bool:
    """Return whether an expression assigns to its first operand, and is this then."""
    if cursor.kind == "UNARY_OPERATOR":
        return cursor.sign in {"++x", "--x"}
    is_assignment = cursor.kind == "BINARY_OPERATOR" and cursor.binary_operator.name == "Assign"
    return is_assignment or cursor.kind == "COMPOUND_ASSIGNMENT_OPERATOR"


def seen_as(place: Place, element: CType) -> Place:
    """Return a variable's address as that of another type; what the bits are as numbers of that is not known."""
    own = place.type.inner[0]
    if place.type.kind == "vector" and len(place.lanes) < 2 and element == CType("scalar", own.dtype):
        return replace(place, lanes=place.lanes or (0,))
    other = {own.kind, element.kind} <= {"scalar", "vector", "struct"} and (own.is_number or element.is_number)
    if not other or (own.dtype, own.lanes) == (element.dtype, element.lanes):
        return place
    kind = CType("array", element=element) if place.type.kind == "array" else element
    return replace(place, type=kind, lanes=(), steps=(*place.steps, None))


def _is_of_place(cast: Node) -> bool:
    """Return whether a cast leads to the same place, as one to a reference: others read it first."""
    inner = cast.operands[-1:]
    names = {plain_name(each.type.get_canonical().spelling) for each in (cast, *inner)}
    return len(names) == len(inner) and inner[0].kind != "UNEXPOSED_EXPR"


def space_of(declared: Node) -> Space:
    """Return where a variable lies."""
    attributes = {child.kind for child in declared.children}
    written = "" if declared.form == "POINTER" else declared.type.get_canonical().spelling
    if "CUDASHARED_ATTR" in attributes or "__local" in written:
        return "local"
    if "CUDACONSTANT_ATTR" in attributes or "__constant" in written:
        return "constant"
    return "global" if "CUDADEVICE_ATTR" in attributes or "__global" in written else "private"


def _named(place: Place, lane: str) -> Place:
    """Return the part of a vector, or of a part of one, that a component such as ``xy``, ``s03`` or ``hi`` names."""
    inside = place.lanes or tuple(range(4 if place.type.lanes == 3 else place.type.lanes))
    half = (len(inside) + 1) // 2
    parts = {"lo": inside[:half], "hi": inside[half:], "even": inside[::2], "odd": inside[1::2]}
    if lane in parts:
        return replace(place, lanes=parts[lane])
    is_numbered = lane[:1] in "sS" and len(lane) > 1
    numbers = ("0123456789abcdef".find(each) for each in lane[1:].lower()) if is_numbered else map(_LETTERS.find, lane)
    return replace(place, lanes=tuple(inside[number % 16 % (16 if is_numbered else 4)] for number in numbers))


def _lanes(value: Value, place: Place) -> Value:
    if not place.lanes or not isinstance(value, Unknown):
        return value
    first, *others = place.lanes
    if not others and first < len(value.parts) and (part := value.parts[first]) is not None:
        return part
    return replace(value, lanes=len(place.lanes), constant=None, source=None, parts=())


def _with_lanes(before: Value, lanes: tuple[int, ...], value: Value) -> Value:
    """Return a vector of which elements were assigned."""
    if not isinstance(before, Unknown):
        return Unknown(result_of(before).dtype)
    parts = list(before.parts or [None] * before.lanes)
    for lane in lanes:
        if lane < len(parts):
            parts[lane] = known_part(value, before.dtype) if len(lanes) == 1 else None
    return replace(before, constant=None, source=None, parts=tuple(parts) if any(parts) else ())


def _of_bytes(pointer: Pointer, count: int) -> Pointer:
    """Return a pointer to elements of so many bytes."""
    return replace(pointer, element=CType("struct", struct_bytes=count))
