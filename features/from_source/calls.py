"""Calls: indices, barriers, atomic updates and mathematics of OpenCL C and CUDA C; other functions are inlined."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping
from functools import cached_property

from perflex.features.from_source.copies import replace
from perflex.features.from_source.expressions import Expressions
from perflex.features.from_source.inlining import Inlining
from perflex.features.from_source.integers import Integer
from perflex.features.from_source.kernel_function import declared_functions, is_ours
from perflex.features.from_source.mathematics import (
    CONSTANTS,
    CONVERSIONS,
    PARTS,
    REGISTERS,
    ROUNDED,
    ROUNDS,
    STORING,
    counted_as,
    folded,
    operation_of,
    operators_of,
    packed,
)
from perflex.features.from_source.mathematics import plain_name as plain_function
from perflex.features.from_source.parsing import Node
from perflex.features.from_source.values import (
    BarrierKind,
    Closure,
    CType,
    Place,
    Pointer,
    Unknown,
    Value,
    held,
    rational,
    result_of,
    rounded,
    unknown_of,
    vector_of,
)
from perflex.features.from_source.walk import Walk
from perflex.features.lowering.arithmetic_types import is_float

# Sums of products of CUDA's indices along an axis.
_OPENCL_IDS: Mapping[str, tuple[str, ...]] = {
    "get_local_id": ("threadIdx",), "get_group_id": ("blockIdx",), "get_local_size": ("blockDim",),
    "get_enqueued_local_size": ("blockDim",), "get_num_groups": ("gridDim",), "get_global_offset": (),
    "get_global_id": ("blockIdx*blockDim", "threadIdx"), "get_global_size": ("gridDim*blockDim",),
}  # fmt: skip
# NVIDIA's special registers: indices along an axis by CUDA's names, and those of which nothing is known.
_REGISTERS = {"tid": "threadIdx", "ctaid": "blockIdx", "ntid": "blockDim", "nctaid": "gridDim"}
_OTHER_REGISTERS = re.compile(r"n?(warpid|smid)|lanemask_(eq|[gl][et])|clock(_hi|64)?|globaltimer(_lo|_hi)?")
_LANES = 32
# Variables may hold functions, and arguments of templates stand for some.
_VARIABLES = {"VAR_DECL", "PARM_DECL", "FIELD_DECL", "TEMPLATE_NON_TYPE_PARAMETER"}
_BARRIERS: Mapping[str, BarrierKind] = {
    **dict.fromkeys(("barrier", "work_group_barrier", "__syncthreads"), "local"),
    **dict.fromkeys(("__syncthreads_or", "__syncthreads_and", "__syncthreads_count"), "local"),
    **dict.fromkeys(("__syncwarp", "sub_group_barrier"), "sub_group"),
    "sync": "global",  # of the group of all work-groups
}
# They cost time that no feature counts, and change no value.
_IGNORED = {
    "atomic_work_item_fence",
    "mem_fence", "read_mem_fence", "write_mem_fence", "__threadfence", "__threadfence_block", "__threadfence_system",
    "printf", "assert", "__trap", "prefetch", "__prof_trigger", "__nanosleep",
    "__builtin_assume", "__builtin_unreachable",
}  # fmt: skip
_SWAP = re.compile(r"atomic(Exch|CAS|Inc|Dec)\w*|atom(ic)?_(xchg|cmpxchg|exchange|compare_exchange|flag)\w*")
_ATOMIC = re.compile(r"atomic_\w+|atom_\w+|atomic[A-Z]\w*")
# What compilers are told of their first argument.
_TOLD = re.compile(r"__builtin_(expect(_with_probability)?|assume_aligned)")
_HINTED = re.compile(r"__ld(g|cg|cs|ca|lu|cv)|__st(cg|cs|wb|wt)")
_VECTOR_MEMORY = re.compile(r"v(load|store)(a?)(_half)?(\d*)(_r\w+)?")
# Fetches, stores and questions of textures, surfaces and images.
_IMAGES = re.compile(r"(tex|surf)([123]D|Cubemap)\w*|(read|write)_image\w+|get_image_\w+")


class Calls:
    """Evaluates calls."""

    def __init__(self, walk: Walk, execute: Callable[[Node], None]) -> None:
        self._walk = walk
        self._execute = execute

    def begin(self, expressions: Expressions) -> None:
        """Take what evaluates the arguments."""
        self.expressions = expressions
        self._inlining = Inlining(self._walk, expressions, self._execute)
        self.closure, self.begun = self._inlining.closure, self._inlining.begun
        self.require_plain_end = self._inlining.require_plain_end

    def called(self, cursor: Node) -> Value:
        """Evaluate a call; of a function that returns a reference, the place."""
        if not cursor.arguments and (number := cursor.number) is not None:
            return self.expressions.number(number, self._walk.types.read(cursor.type).dtype)
        function, arguments = cursor.referenced, cursor.arguments
        if (function is None and cursor.children) or (function is not None and function.kind in _VARIABLES):
            held_function = self.expressions.value(cursor.children[0])
            function = held_function.function if isinstance(held_function, Closure) else None
        if function is None or "TEMPLATE" in function.kind:
            named = f"{cursor.spelling!r} calls" if cursor.spelling else "is called here"
            raise self._walk.refuse(f"which function {named} is not known; define it in this file, or a macro it needs")
        defined = self._defined(function)
        if (copied := self._copied(function, arguments)) is not None:
            return copied
        if function.kind == "CONSTRUCTOR":
            return self._new(defined or function, cursor)
        if defined is not None:
            return self._own(defined, cursor, arguments)
        if self._is_declared(function):
            cause = f"function {function.spelling!r} is declared, but its body is not in this file; give its source"
            raise self._walk.refuse(cause)
        name = str(function.spelling)
        found = self._index(name, arguments) or self._memory(name, arguments)
        if found is not None:
            return found
        if _IMAGES.fullmatch(name):
            cause = f"{name} accesses a texture, surface or image; write the fetch as a load from a buffer"
            raise self._walk.refuse(cause)
        return self._number(name, arguments, cursor)

    def last_of(self, cursor: Node) -> Value:
        """Return the value of GNU's statements in an expression, which is that of the last."""
        *statements, last = cursor.children[0].children
        for each in statements:
            self._execute(each)
        return self.expressions.value(last)

    def _new(self, constructor: Node, cursor: Node) -> Value:
        """Return an object, or a vector."""
        kind, zeroed = self._walk.types.read(cursor.type), not cursor.arguments and bool(cursor.children)
        if not kind.is_number:
            zeroed = zeroed and constructor.is_default_method()
            return self._inlining.constructed(constructor, cursor.arguments, kind, zeroed=zeroed)
        if cursor.arguments:
            return self._constructed([self.expressions.value(each) for each in cursor.arguments], kind)
        return self.expressions.initialisers.zero(kind) if zeroed else unknown_of(kind, "undefined")

    def _own(self, function: Node, cursor: Node, arguments: list[Node]) -> Value:
        """Return what a function of the source gives, of a method with its object."""
        if function.kind not in {"CXX_METHOD", "CONVERSION_FUNCTION"} or function.is_static_method():
            return self._inlining.called(function, arguments)
        places, named = self.expressions.places, cursor.children[0]
        if named.kind != "MEMBER_REF_EXPR":  # An operator, whose first operand is the object.
            held_function = self.expressions.value(arguments[0]) if function.spelling == "operator()" else None
            if isinstance(held_function, Closure):
                return self._inlining.closure_called(held_function, function, arguments[1:])
            owner, arguments = places.place(arguments[0]), arguments[1:]
        elif not named.operands:
            owner = places.owner()
        elif self._walk.types.read(named.operands[0].type).kind == "pointer":
            owner = places.pointed(self.expressions.value(named.operands[0]))
        else:
            owner = places.place(named.operands[0])
        if owner.variable is None and owner.memory is None:  # A method of a value that no variable holds.
            return self._inlining.of_value(function, arguments, owner)
        return self._inlining.called(function, arguments, owner)

    def _copied(self, function: Node, arguments: list[Node]) -> Value | None:
        """Return what C++ copies by functions of classes that nobody wrote."""
        if (
            function.kind not in {"CONSTRUCTOR", "CXX_METHOD"}
            or not arguments
            or not function.cursor.is_default_method()
        ):
            return None
        own = function.semantic_parent
        if own is None or arguments[-1].type.get_canonical().get_declaration() != own.cursor:
            return None
        value = self.expressions.value(arguments[-1])
        if function.spelling == "operator=":
            self.expressions.places.store(self.expressions.places.place(arguments[0]), value)
        return value

    # Indices

    def _index(self, name: str, arguments: list[Node]) -> Value | None:
        if name in _OPENCL_IDS:
            axis = self.expressions.constant(arguments[0])
            if axis is None or axis not in range(3):
                raise self._walk.refuse(f"the axis of {name} must be 0, 1 or 2")
            found = Integer.of(0, "uint64")
            for product in _OPENCL_IDS[name]:
                first, *others = (self.expressions.places.index(each, axis) for each in product.split("*"))
                found = found.plus(first.times(others[0], ()) if others else first)
            return found
        if name == "get_work_dim":
            return Integer.of(len(self._walk.local), "uint32")
        if name == "get_local_linear_id":
            return self._linear_id().typed("uint64")
        if name == "get_global_linear_id":
            found = Integer.of(0, "uint64")
            for axis in reversed(range(len(self._walk.local))):
                group, items, item = (
                    self.expressions.places.index(each, axis) for each in ("blockIdx", "blockDim", "threadIdx")
                )
                size = items.times(self.expressions.places.index("gridDim", axis), self._walk.sizes)
                found = found.times(size, self._walk.sizes).plus(group.times(items, ())).plus(item)
            return found.typed("uint64")
        return None

    def register(self, name: str) -> Value | None:
        """Return what a special register of NVIDIA's GPUs holds; None of one that is not known."""
        what, _, axis = name.partition(".")
        if what in _REGISTERS and axis in {"x", "y", "z"}:
            return self.expressions.places.index(_REGISTERS[what], "xyz".index(axis))
        if name == "laneid":
            found = self.expressions.arithmetic("Rem", self._linear_id(), Integer.of(_LANES, "uint32", literal=True))
            return replace(found, pending=None) if isinstance(found, Integer) else found
        return Unknown("uint64" if "64" in name else "uint32") if _OTHER_REGISTERS.fullmatch(name) else None

    def _linear_id(self) -> Integer:
        found, step = Integer.of(0), 1
        for axis, extent in enumerate(self._walk.local):
            found = found.plus(self.expressions.places.index("threadIdx", axis).scaled(step))
            step *= extent
        return found

    # Barriers and memory

    def _memory(self, name: str, arguments: list[Node]) -> Value | None:
        places, value = self.expressions.places, self.expressions.value
        if name in _IGNORED:
            for argument in arguments if name == "printf" or (name == "assert" and self._asserts) else ():
                value(argument)
            return Integer.of(0)
        if name in _BARRIERS:
            for argument in arguments:
                value(argument)
            self._walk.barrier(_BARRIERS[name])
            return Unknown("int32") if name.startswith("__syncthreads_") else Integer.of(0)
        if _ATOMIC.fullmatch(name) and arguments and not name.endswith(("init", "flag_clear")):
            pointer, *operands = map(value, arguments)
            self._walk.settle(*operands)
            place = places.pointed(pointer)
            if place.memory is not None and place.memory.ways:
                raise self._walk.refuse(f"which array {name} updates is not known; write an update of each")
            self._walk.recorder.close()
            dtype = place.type.dtype or "int32"
            if "load" in name:
                places.load(place)
            else:
                self._walk.operation("swap" if _SWAP.fullmatch(name) else "atomic", dtype)
                places.store(place, Unknown(dtype))
            self._walk.recorder.close()
            return Unknown(dtype)
        if _HINTED.fullmatch(name):
            place = places.pointed(value(arguments[0]))
            if len(arguments) == 1:
                return places.load(place)
            places.store(place, value(arguments[1]))
            return Integer.of(0)
        found = _VECTOR_MEMORY.fullmatch(name)
        return self._vector_access(found, arguments) if found else None

    def _vector_access(self, name: re.Match[str], arguments: list[Node]) -> Value:
        places = self.expressions.places
        lanes, half = int(name[4] or 1), bool(name[3])
        given = self.expressions.value(arguments[0]) if name[1] == "store" else None
        step, pointer = map(self.expressions.subscript, arguments[-2:])
        if not isinstance(pointer, Pointer):
            return Unknown("float32", lanes)
        dtype = "float16" if half else pointer.element.dtype
        place = places.vector(pointer, step, dtype, lanes, aligned=bool(name[2]))
        if given is not None:
            places.store(place, given)
            return given
        found = places.load(place)
        return replace(found, dtype="float32") if half and isinstance(found, Unknown) else found

    # Numbers

    def _number(self, name: str, arguments: list[Node], cursor: Node) -> Value:
        kind = self._walk.types.read(cursor.type)
        expressions = self.expressions
        values = [expressions.value(argument) for argument in arguments]
        if name.startswith("make_"):
            return self._constructed(values, kind)
        numbers = [each for each in values if isinstance(each, (Integer, Unknown))]
        operators = operators_of(name)
        # ``__hadd`` of integers is their mean.
        if operators and len(numbers) == len(values) and not (name == "__hadd" and kind.is_integer):
            if ROUNDED.search(name):  # Compilers do not fuse these.
                values = [held(each) for each in values]
            found = values[0] if len(values) > 1 else Unknown(kind.dtype, kind.lanes, result_of(*values).reason)
            for operator, operand in zip(operators, values[1:], strict=False):
                found = expressions.arithmetic(operator, found, operand)
            return held(found) if ROUNDED.search(name) else found
        if (chosen := self._chosen(name, values)) is not None:
            return chosen
        word = operation_of(name)
        if word and len(numbers) == len(values):
            of_elements = name in {"any", "all"} and self._walk.kernel.language == "opencl"
            return self._operation("bit" if of_elements else word, numbers, kind)
        if PARTS.fullmatch(name):
            return self._constructed(values, kind)
        if CONVERSIONS.fullmatch(name) and values:
            return self._as_type(name, values[0], kind)
        return self._function(name, values, numbers, kind)

    def _as_type(self, name: str, value: Value, kind: CType) -> Value:
        """Return a number as one of another type, by its value or its bits."""
        if isinstance(value, Integer) and value.value == 0 and kind.kind == "scalar":
            return self.expressions.initialisers.zero(kind)
        if "as_" in name and kind.is_number:
            return self.expressions.reread(value, kind)
        if "_sat" in name or ROUNDS.search(name):
            return self.expressions.rounded(value, kind, saturates="_sat" in name)
        return self.expressions.converted(value, kind)

    def _function(self, name: str, values: list[Value], numbers: list[Integer | Unknown], kind: CType) -> Value:
        base = plain_function(name)
        if base in {*CONSTANTS, *REGISTERS}:
            return Unknown(kind.dtype, reason="uniform" if base in CONSTANTS else "data")
        number, literal = self._folded(base, values, kind)
        if number is not None and literal:
            return Unknown(kind.dtype, reason="uniform", constant=number, literal=True, source=rational(number))
        pointers = [each for each in values if isinstance(each, (Pointer, Place))]
        if pointers and base not in STORING:
            cause = f"function {name!r} is not defined here, and what it loads and stores is not known; give its source"
            raise self._walk.refuse(cause)
        for pointer in pointers:
            place = self.expressions.places.pointed(pointer)
            self.expressions.places.store(place, unknown_of(place.type))
        dtype, lanes, words = packed(name)
        for word in words:
            self.expressions.operated(word, numbers, dtype, lanes)
        if words:
            return Unknown(kind.dtype)
        lanes = max((each.lanes for each in numbers if isinstance(each, Unknown)), default=1)
        found: Value = unknown_of(kind)
        for word, count in counted_as(base, lanes):
            found = self._operation(word if not word.startswith("call:") else f"call:{name}", numbers, kind, count)
        if number is not None and isinstance(found, Unknown):
            return replace(found, constant=number, source=rational(number))
        return found

    def _folded(self, base: str, values: list[Value], kind: CType) -> tuple[float | None, bool]:
        """Return what a function gives of a known number, and whether the text alone says it."""
        known = self.expressions.converted(values[0], CType("scalar", kind.dtype or "float32")) if values else None
        if len(values) != 1 or not isinstance(known, Unknown):
            return None, False
        return rounded(folded(base, known.constant), kind.dtype), known.literal

    def _chosen(self, name: str, values: list[Value]) -> Value | None:
        """Return which of its operands a function gives, if it computes nothing else."""
        expressions, first = self.expressions, values[0] if values else None
        if _TOLD.fullmatch(name):
            return first
        if name in {"abs", "labs", "llabs"} and isinstance(first, Integer) and len(values) == 1:
            unsigned = first.dtype.startswith("u")
            return first if unsigned else expressions.arithmetic("max", first, first.scaled(-1))
        if name == "clamp" and all(isinstance(each, Integer) for each in values):
            return expressions.arithmetic("min", expressions.arithmetic("max", values[0], values[1]), values[2])
        if name == "select" and isinstance(first, (Integer, Unknown)) and result_of(first).lanes == 1:
            condition = expressions.truth(values[2])
            return self._walk.joined(values[1], first, condition)
        return None

    def _operation(self, word: str, numbers: list[Integer | Unknown], kind: CType, count: int = 0) -> Unknown:
        computed = result_of(*numbers)
        dtype = kind.dtype if kind.is_number else computed.dtype
        counted = computed.dtype if numbers and not is_float(dtype) else dtype
        lanes = max(kind.lanes if kind.is_number else 1, computed.lanes)
        found = self.expressions.operated(word, numbers, counted, count or lanes)
        return replace(found, dtype=dtype, lanes=lanes if kind.kind == "vector" else kind.lanes, reason="data")

    def _constructed(self, values: list[Value], kind: CType) -> Value:
        if len(values) == 1:
            return self.expressions.converted(values[0], kind) if kind.is_number else values[0]
        return vector_of(kind, values) if kind.is_number and values else unknown_of(kind)

    # Functions of the source

    def _defined(self, function: Node) -> Node | None:
        """Return where a function has its body; an instance of a template may have it in the template alone."""
        definition = function.definition or function
        ways = (definition, definition.template)
        return next((each for each in ways if each is not None and each.body is not None), None)

    def _is_declared(self, function: Node) -> bool:
        """Return whether the source declares a function; others are built in."""
        first = function.canonical
        if first.location.file is None or is_ours(first.location.file.name):
            return False
        return first.key in self._declared or first.kind in {"CXX_METHOD", "CONVERSION_FUNCTION"}

    @cached_property
    def _asserts(self) -> bool:
        """Whether assertions are evaluated."""
        kernel = self._walk.kernel
        return "NDEBUG" not in kernel.defines and not re.search(
            r"^\s*#\s*define\s+NDEBUG\b", kernel.source, re.MULTILINE
        )

    @cached_property
    def _declared(self) -> set[Hashable]:
        return {each.canonical.key for each in declared_functions(self._walk.kernel.root)}
