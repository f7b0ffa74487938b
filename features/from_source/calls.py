"""Calls: indices, barriers, atomic updates and mathematics of OpenCL C and CUDA C; other functions are inlined."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from math import prod

from perflex.features.from_source.expressions import Expressions
from perflex.features.from_source.images import Images
from perflex.features.from_source.integers import Integer, NotAffineError, constant, tidy
from perflex.features.from_source.parsing import Node, functions
from perflex.features.from_source.values import (
    Address,
    CType,
    Place,
    Pointer,
    PrivateArray,
    Struct,
    Unknown,
    Value,
    dtype_of,
    held,
    lanes_of,
    plain_name,
    reason_of,
    type_name,
    unknown_of,
    vector_of,
)
from perflex.features.from_source.walk import Frame, Walk
from perflex.features.lowering.arithmetic_types import is_float
from perflex.features.scop.words import operation_of_function
from perflex.isl import isl

_MOST_INLINED = 32
_OPENCL_IDS = {
    "get_local_id": "threadIdx", "get_group_id": "blockIdx", "get_local_size": "blockDim", "get_num_groups": "gridDim",
    "get_enqueued_local_size": "blockDim",
}  # fmt: skip
_BARRIERS = {"barrier", "work_group_barrier", "__syncthreads", "sync", "__syncthreads_or", "__syncthreads_and",
             "__syncthreads_count"}  # fmt: skip
_OPENCL_EXTENTS = {
    "get_global_id", "get_global_size", "get_global_offset", "get_work_dim", "get_local_linear_id",
}  # fmt: skip
# They cost time that no feature counts, and change no value.
_IGNORED = {
    "mem_fence", "read_mem_fence", "write_mem_fence", "__threadfence", "__threadfence_block", "__threadfence_system",
    "__syncwarp", "printf", "assert", "__trap", "prefetch", "__prof_trigger", "__nanosleep", "sub_group_barrier",
}  # fmt: skip
_ARITHMETIC = {
    **dict.fromkeys(("mul24", "__mul24", "__umul24", "__fmul_rn", "__dmul_rn", "__hmul"), "Mul"),
    **dict.fromkeys(("__fadd_rn", "__dadd_rn", "__hadd"), "Add"), "__fsub_rn": "Sub", "__fdiv_rn": "Div",
}  # fmt: skip
_FUSED = {"fma", "mad", "fmaf", "__fmaf_rn", "__fma_rn", "__hfma"}
_EXTREMES = re.compile(r"(?:u|i|f|fast_)?(min|max)f?|__vi(min|max)_s32")
_ATOMIC = re.compile(r"atomic_\w+|atom_\w+|atomic[A-Z]\w*")
_HINTED = {"__ldg", "__ldcg", "__ldcs", "__ldca", "__ldlu"}
_HINTED_STORES = {"__stcg", "__stcs", "__stwb", "__stwt"}
_VECTOR_MEMORY = re.compile(r"v(load|store)a?(_half)?(\d*)(_r\w+)?")
_SHUFFLE = re.compile(r"(__)?shfl(_\w+)?|(intel_)?sub_group_(shuffle|broadcast|rotate|clustered_rotate)\w*")
_VOTE = re.compile(
    r"(__)?(any|all|ballot)(_sync)?|__activemask|__match_\w+|sub_group_(any|all|ballot|elect|non_uniform)\w*"
)
# Sums, scans and the like over a sub-group or work-group, of which hardware and library make something of their own.
_COLLECTIVE = re.compile(r"(intel_)?sub_group_\w+|work_group_\w+|__reduce_\w+")
_GROUPS = {"this_thread_block", "tiled_partition", "this_grid", "coalesced_threads"}
_RANKS = {"thread_rank", "size", "num_threads", "meta_group_rank", "meta_group_size"}
_REINTERPRETED = re.compile(
    r"convert_\w+|as_\w+|__(int|uint|float|double|longlong)2?\w*_(as_)?\w+|__half2float|__float2half"
)
_DECORATED = re.compile(r"^(native_|half_|fast_|__builtin_|__)|(_rn|_rz|_rd|_ru)$")
# Functions whose names are others in features.
_NAMES = {
    "fabs": "abs", "rint": "round", "nearbyint": "round", "powr": "pow", "pown": "pow", "fsqrt": "sqrt",
    "frsqrt": "rsqrt", "rotate": "shift", "funnelshift_l": "shift", "funnelshift_r": "shift", "mulhi": "mul",
    "umulhi": "mul", "mul_hi": "mul", "isnan": "cmp", "isinf": "cmp", "isfinite": "cmp", "fdim": "add",
    "remainder": "fmod",
    **dict.fromkeys(("fdividef", "divide", "recip", "frcp", "rcp"), "div"),
    **dict.fromkeys(("popcount", "popc", "popcll", "clz", "clzll", "ffs", "brev"), "bit"),
    **dict.fromkeys(("bitselect", "signbit", "copysign"), "bit"),
}  # fmt: skip
_CONSTANTS = {"inf", "inff", "huge_val", "huge_valf", "nan", "nanf"}
_FOLDED = {each.__name__: each for each in (math.log2, math.log, math.sqrt, math.floor, math.ceil, math.exp2)}


class Calls:
    """Evaluates calls."""

    def __init__(self, walk: Walk, execute: Callable[[Node], None]) -> None:
        self._walk = walk
        self._execute = execute
        self.expressions: Expressions

    def value(self, cursor: Node) -> Value:
        """Evaluate a call."""
        name, arguments = self._called(cursor)
        found = self._index(name, arguments, cursor) or self._effect(name, arguments) or self._memory(name, arguments)
        if found is not None:
            return found
        function = self._defined(name, cursor.referenced)
        if function is None and (fetched := Images(self._walk, self.expressions).value(name, arguments, cursor)):
            return fetched
        if function is None:
            return self._number(name, arguments, cursor)
        return self._inlined(function, arguments, cursor)

    def _called(self, cursor: Node) -> tuple[str, list[Node]]:
        """Return a function's name and the arguments; in templates clang knows neither by itself."""
        inner, arguments = cursor.children, cursor.arguments
        name = str(cursor.spelling or "")
        if not name and inner:
            named = [each for each in _below(inner[0]) if each.spelling]
            # The function stands before what is written as template arguments.
            name = min(named, key=lambda each: each.kind != "OVERLOADED_DECL_REF").spelling if named else ""
        if not arguments and len(inner) > 1 and inner[0].kind != "TYPE_REF":
            arguments = inner[1:]
        return name, arguments

    # Indices

    def _index(self, name: str, arguments: list[Node], cursor: Node) -> Value | None:
        places = self.expressions.places
        if name in _OPENCL_IDS or name in _OPENCL_EXTENTS:
            axis = self.expressions.constant(arguments[0]) if arguments else 0
            if axis is None or not 0 <= axis <= 2:
                raise self._walk.refuse(f"the axis of {name} must be 0, 1 or 2")
            if name in _OPENCL_IDS:
                return places.index(_OPENCL_IDS[name], axis).typed("uint64")
            extent = self._walk.local[axis] if axis < len(self._walk.local) else 1
            if name == "get_global_id":
                groups, inside = places.index("blockIdx", axis), places.index("threadIdx", axis)
                return groups.scaled(extent).plus(inside).typed("uint64")
            if name == "get_global_size":
                return places.index("gridDim", axis).scaled(extent).typed("uint64")
            if name == "get_global_offset":
                return Integer.of(0, "uint64")
            if name == "get_work_dim":
                return Integer.of(len(self._walk.local), "uint32")
            return self._linear_id().typed("uint64")
        if name in _RANKS and not arguments:
            return self._rank(name, cursor)
        return Unknown("int32", reason="uniform") if name in _GROUPS else None

    def _linear_id(self) -> Integer:
        found, step = Integer.of(0), 1
        for axis, extent in enumerate(self._walk.local):
            found = found.plus(self.expressions.places.index("threadIdx", axis).scaled(step))
            step *= extent
        return found

    def _rank(self, name: str, cursor: Node) -> Integer:
        """Return what a cooperative group tells of itself: a work-group, or a tile of stated size."""
        inner = cursor.children
        owner = inner[0].children[0].type.spelling if inner and inner[0].children else ""
        tile = re.search(r"tile<(\d+)", owner)
        items = prod(self._walk.local)
        if tile is None:
            return self._linear_id() if name == "thread_rank" else Integer.of(items)
        width = int(tile[1])
        rank = self._linear_id().affine
        if name == "thread_rank":
            return Integer.of(rank.mod_val(isl.Val(width)), "uint32")
        if name == "meta_group_rank":
            return Integer.of(rank.div(constant(width)).floor(), "uint32")
        return Integer.of(items // width if name == "meta_group_size" else width, "uint32")

    # Effects and memory

    def _effect(self, name: str, arguments: list[Node]) -> Value | None:
        if name in _BARRIERS:
            for argument in arguments:
                self.expressions.value(argument)
            self._walk.barrier()
            return Integer.of(0) if not name.startswith("__syncthreads_") else Unknown("int32")
        if name in _IGNORED:
            return Integer.of(0)
        return None

    def _memory(self, name: str, arguments: list[Node]) -> Value | None:
        places, value = self.expressions.places, self.expressions.value
        if _ATOMIC.fullmatch(name) and arguments and not name.endswith(("init", "flag_clear")):
            place = places.pointed(value(arguments[0]))
            for argument in arguments[1:]:
                value(argument)
            self._walk.recorder.close()
            dtype = place.type.dtype or "int32"
            if "load" not in name:
                self._walk.operation("atomic", dtype)
                places.store(place, Unknown(dtype))
            else:
                places.load(place)
            self._walk.recorder.close()
            return Unknown(dtype)
        if name in _HINTED:
            return places.load(places.pointed(value(arguments[0])))
        if name in _HINTED_STORES:
            place = places.pointed(value(arguments[0]))
            places.store(place, value(arguments[1]))
            return Integer.of(0)
        found = _VECTOR_MEMORY.fullmatch(name)
        return self._vector_access(found[1], int(found[3] or 1), arguments, half=bool(found[2])) if found else None

    def _vector_access(self, word: str, lanes: int, arguments: list[Node], *, half: bool) -> Value:
        places, value = self.expressions.places, self.expressions.value
        given = value(arguments[0]) if word == "store" else None
        step, pointer = value(arguments[-2]), value(arguments[-1])
        if not isinstance(pointer, Pointer):
            return Unknown("float32", lanes)
        place = places.vector(pointer, step, "float16" if half else pointer.element.dtype, lanes)
        if given is not None:
            places.store(place, given)
            return given
        found = places.load(place)
        return replace(found, dtype="float32") if half and isinstance(found, Unknown) else found

    # Numbers

    def _number(self, name: str, arguments: list[Node], cursor: Node) -> Value:
        kind = self._walk.types.read(cursor.type)
        if not name or name in {"dim3", "texture"} or name.startswith("make_"):
            return self._constructed(arguments, kind)
        expressions = self.expressions
        values = [expressions.value(argument) for argument in arguments]
        numbers = [each for each in values if isinstance(each, (Integer, Unknown))]
        if name in _ARITHMETIC:
            return expressions.arithmetic(_ARITHMETIC[name], values[0], values[1])
        if name == "mad24":
            return expressions.arithmetic("Add", expressions.arithmetic("Mul", *values[:2]), values[2])
        if name in _FUSED and len(numbers) == len(values):
            return self._operation("fma" if "fma" in name else "madd", numbers, kind)
        extreme = _EXTREMES.fullmatch(name)
        if extreme and len(numbers) == 2:
            return self._extreme(extreme[1] or extreme[2], *numbers)
        if name in {"abs", "labs", "llabs"} and len(numbers) == 1 and isinstance(numbers[0], Integer):
            expression = numbers[0].affine
            return Integer.of(expression.max(expression.neg()), numbers[0].dtype)
        if len(numbers) == len(values) and (word := self._exchanged(name)):
            return self._operation(word, numbers, kind)
        if _REINTERPRETED.fullmatch(name) and values:
            return self._reinterpreted(name, values[0], kind)
        return self._function(name, values, numbers, kind)

    def _exchanged(self, name: str) -> str:
        """Return the operation of a function by which work-items exchange values; empty for others."""
        if name in {"any", "all"} and self._walk.kernel.language == "opencl":  # of a vector's elements
            return "bit"
        if _SHUFFLE.fullmatch(name):
            return "shuffle"
        return "vote" if _VOTE.fullmatch(name) else f"call:{name}" if _COLLECTIVE.fullmatch(name) else ""

    def _function(self, name: str, values: list[Value], numbers: list[Integer | Unknown], kind: CType) -> Value:
        base = _DECORATED.sub("", _DECORATED.sub("", name))
        single = _NAMES.get(base[:-1], base[:-1])
        if base.endswith("f") and operation_of_function(single) == single:
            base = base[:-1]
        if base in _CONSTANTS:
            return Unknown(kind.dtype, reason="uniform")
        fold = _FOLDED.get(base)
        if fold is not None and len(values) == 1:
            known = self.expressions.converted(values[0], CType("scalar", kind.dtype or "float32"))
            if isinstance(known, Unknown) and known.constant is not None and known.constant > 0:
                return Unknown(known.dtype, reason="uniform", constant=float(fold(known.constant)))
        if base == "sincos":
            for pointer in values[1:]:
                if isinstance(pointer, (Pointer, Address)):
                    self.expressions.places.store(
                        self.expressions.places.pointed(pointer), Unknown(dtype_of(values[0]))
                    )
            self._operation("sin", numbers, kind)
            return self._operation("cos", numbers, kind)
        if any(isinstance(each, (Pointer, Address)) for each in values):
            cause = f"function {name!r} is not defined here, and what it loads and stores is not known; give its source"
            raise self._walk.refuse(cause)
        named = _NAMES.get(base, base)
        word = operation_of_function(named)
        return self._operation(word if not word.startswith("call:") else f"call:{name}", numbers, kind)

    def _operation(self, word: str, numbers: list[Integer | Unknown], kind: CType) -> Unknown:
        dtype = kind.dtype if kind.is_number else dtype_of(*numbers)
        counted = dtype_of(*numbers) if numbers and not is_float(dtype) else dtype
        lanes = max(kind.lanes if kind.is_number else 1, lanes_of(*numbers))
        found = self.expressions.operated(word, numbers, counted, lanes)
        return replace(found, dtype=dtype, lanes=lanes if kind.kind == "vector" else kind.lanes, reason="data")

    def _extreme(self, word: str, one: Integer | Unknown, two: Integer | Unknown) -> Value:
        if isinstance(one, Integer) and isinstance(two, Integer):
            try:
                first, second = one.affine, two.affine
                found = first.min(second) if word == "min" else first.max(second)
                return Integer.of(tidy(found.coalesce()), dtype_of(one, two))
            except NotAffineError:
                return Unknown(dtype_of(one, two), reason="not affine")
        return self.expressions.operated(word, (one, two))

    def _reinterpreted(self, name: str, value: Value, kind: CType) -> Value:
        if not kind.is_number:
            return value
        if "as_" in name and (isinstance(value, Unknown) or (isinstance(value, Integer) and not kind.is_integer)):
            return Unknown(kind.dtype, kind.lanes, reason_of(value))
        return self.expressions.converted(value, kind)

    def _constructed(self, arguments: list[Node], kind: CType) -> Value:
        values = [self.expressions.value(argument) for argument in arguments]
        if len(values) == 1:
            value = values[0]
            return self.expressions.converted(value, kind) if kind.is_number else value
        if kind.kind == "struct" and kind.declared is not None and kind.declared.spelling.endswith("dim3"):
            padded = [*values, *[Integer.of(1, "uint32")] * 3]
            return Struct(kind, dict(zip("xyz", padded, strict=False)))
        return vector_of(kind, values) if kind.is_number and values else unknown_of(kind)

    # Functions of the source

    def _defined(self, name: str, referenced: Node | None) -> Node | None:
        if referenced is not None and ("FUNCTION" in referenced.kind or referenced.kind == "CXX_METHOD"):
            definition = referenced.definition or referenced
            if definition.body is not None:
                return definition
            pattern = definition.template
            if pattern is not None and pattern.body is not None:
                return pattern
            if referenced.kind == "FUNCTION_DECL" and pattern is None:
                return None
        if name in self._specialised:
            raise self._walk.refuse(
                f"which specialisation of {name!r} a template calls is not known; call it elsewhere"
            )
        return self._functions.get(name)

    @cached_property
    def _specialised(self) -> set[str]:
        """The names of templates that have bodies of their own for some arguments."""
        found = functions(self._walk.kernel.root)
        return {each.spelling for each in found if each.get_num_template_arguments() > 0}

    @cached_property
    def _functions(self) -> dict[str, Node]:
        """All functions with bodies by name, of several the first."""
        return {each.spelling: each for each in reversed(list(functions(self._walk.kernel.root)))}

    def _bind(self, function: Node, values: list[Value], cursor: Node) -> dict[str, str]:
        """Return a template's arguments by name: those that are written, and types that follow from values."""
        types = self._walk.types
        names = function.template_parameters
        if not names:
            return {}
        words = " ".join(cursor.words)
        written = re.match(rf"(?:\w+ :: )*{re.escape(function.spelling)} < ([^()<>]*) >", words)
        found = dict(zip(names, (each.strip() for each in written[1].split(",")) if written else (), strict=False))
        found = {name: types.bound.get(word, self._evaluated(word)) for name, word in found.items()}
        for parameter, value in zip(function.parameters, values, strict=False):
            word = plain_name(parameter.type.spelling).rstrip("*&[] ")
            dtype = value.element.dtype if isinstance(value, (Pointer, PrivateArray)) else getattr(value, "dtype", "")
            if word in names and word not in found and (name := type_name(dtype, lanes_of(value))):
                found[word] = name
        return found

    def _evaluated(self, word: str) -> str:
        """Return a template argument that is a constant of the source as its number."""
        word = str(self._walk.kernel.defines.get(word, word))
        for child in self._walk.kernel.root.children:
            if child.spelling == word and child.kind == "VAR_DECL" and child.value is not None:
                return str(child.value)
        return word

    def _given(
        self, function: Node, arguments: list[Node]
    ) -> tuple[list[tuple[Node, Value]], list[tuple[Node, Place]]]:
        """Return the value of each parameter, and the places that parameters are written back to."""
        places = self.expressions.places
        given: list[tuple[Node, Value]] = []
        back: list[tuple[Node, Place]] = []
        for parameter, argument in zip(function.parameters, arguments, strict=False):
            kind = self._walk.types.read(parameter.type)
            if kind.kind == "reference":
                place = places.place(argument)
                given.append((parameter, places.load(place) if place.memory is None else Address(place)))
                if place.memory is None:
                    back.append((parameter, place))
                continue
            value = self.expressions.value(argument)
            given.append((parameter, value))
            if kind.kind in {"array", "pointer"} and not isinstance(value, (Pointer, Integer, Unknown, Address)):
                back.append((parameter, places.place(argument)))
        return given, back

    def _inlined(self, function: Node, arguments: list[Node], cursor: Node) -> Value:
        walk = self._walk
        if walk.inlined >= _MOST_INLINED:
            raise walk.refuse(f"function {function.spelling!r} calls itself; write it as a loop")
        given, back = self._given(function, arguments)
        bound = walk.types.bound
        walk.types.bound = {**bound, **self._bind(function, [value for _, value in given], cursor)}
        for parameter, value in given:
            walk.variables[parameter.key] = held(self.expressions.converted(value, walk.types.read(parameter.type)))
        line, file, before = walk.line, walk.file, walk.active
        walk.frames.append(Frame(walk.guards))
        walk.inlined += 1
        self._execute(function.body)
        walk.inlined -= 1
        frame = walk.frames.pop()
        walk.active, walk.line, walk.file = before, line, file
        for parameter, place in back:
            value = walk.variables[parameter.key]
            if place.variable is not None and not place.indices and not place.path and not place.lane:
                walk.variables[place.variable] = value
            elif place.variable is not None:
                self.expressions.places.store(place, value)
        kind = walk.types.read(function.result_type)
        walk.types.bound = bound
        if frame.value is None:
            return unknown_of(kind)
        return held(self.expressions.converted(frame.value, kind))


def _below(cursor: Node) -> list[Node]:
    """Return a cursor and what it hides."""
    found = [cursor]
    for inner in [*cursor.operands, *cursor.children]:
        found += _below(inner)
    return found
