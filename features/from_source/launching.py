"""What launching a kernel from source code takes: its text, its arguments, and how far it reaches into its arrays.

Buffers are filled by whoever launches: integers with ones, and what has no elements of one type with zeros. Where data
decide a subscript, the walk is repeated with what integer arrays then hold, as far as the kernel does not write them.
What is still not known is refused: nobody could say what such a launch reads and writes.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from perflex.errors import MissingSizeError, PerflexError, UnsupportedKernelError
from perflex.features.from_source.copies import replace
from perflex.features.from_source.cuda_as_hip import hip_text
from perflex.features.from_source.formulas import read_formula
from perflex.features.from_source.integers import constant
from perflex.features.from_source.kernel_text import kernel_text
from perflex.features.from_source.opencl_as_cuda import cuda_text
from perflex.features.from_source.parsing import fields_of
from perflex.features.from_source.source import SourceKernel
from perflex.features.from_source.values import CType, Executed, MemoryAccess
from perflex.features.from_source.walk import Walk
from perflex.features.scop.checks import is_whole, require_whole
from perflex.isl import ISL_LOCK, isl

# Of data that have no elements of one type: an array of such bytes is filled with zeros.
BYTES = "V1"


@dataclass(frozen=True)
class Argument:
    """An argument: an array in global or constant memory, one in local memory, or a scalar.

    `dtype` is numpy's name of the elements, or `BYTES`.
    """

    name: str
    kind: Literal["array", "local", "scalar"]
    dtype: str


@dataclass(frozen=True)
class Reach:
    """How many bytes of an array a launch reaches, and whether it reads and writes it."""

    bytes: int
    read: bool = True
    written: bool = False


@dataclass(frozen=True)
class SourceLaunch:
    """A launch of a kernel from source code."""

    name: str  # As the compiler calls it, template arguments and namespaces included
    language: Literal["opencl", "cuda"]
    text: str  # See `kernel_text`
    arguments: tuple[Argument, ...]
    groups: tuple[int, ...]
    arrays: Mapping[str, Reach]  # How far each array argument is reached
    # Bytes of local memory whose extent the host decides: OpenCL's arguments, CUDA's dynamic shared memory.
    local_arguments: Mapping[str, int]
    local_bytes: int  # Of the other local memory
    by_data: str  # What depends on the values in arrays, by line; empty where nothing does


@dataclass(frozen=True)
class SourceProgram:
    """What compiling a kernel for a GPU takes.

    An argument is its name, what it is (``"array"``, ``"scalar"``, ``"other"``), and a scalar's type by numpy's name.
    """

    name: str
    language: Literal["opencl", "cuda", "hip"]  # Of the text
    text: str
    arguments: tuple[tuple[str, str, str], ...]
    groups: tuple[int, ...]


def source_program(
    kernel: SourceKernel, sizes: Mapping[str, Any], label: str, compiler: Literal["nvrtc", "clang"]
) -> SourceProgram:
    """Return what compiling a kernel takes, whatever it reaches: NVRTC knows CUDA C++, clang OpenCL C and HIP."""
    with ISL_LOCK:
        return _Launching(kernel, sizes, label).program(compiler)


def source_launch(kernel: SourceKernel, sizes: Mapping[str, Any], label: str) -> SourceLaunch:
    """Return what a launch takes; refuse arguments of other kinds, and where data decide what the kernel reaches."""
    with ISL_LOCK:
        return _Launching(kernel, sizes, label).launch()


def identity_of(kernel: SourceKernel) -> str:
    """Return a digest of all that a kernel's launches depend on but sizes and device: its text and its launch."""
    with ISL_LOCK:
        # Where lines stand changes nothing.
        lines = [line for line in kernel_text(kernel).splitlines() if line and not line.startswith("#line")]
        arguments = kernel.arguments
    stated = sorted((name, str(value)) for given in (kernel.trips, kernel.shapes) for name, value in given.items())
    name = (kernel.name, kernel.template_arguments)
    parts = (kernel.language, lines, name, arguments, kernel.local, kernel.groups, stated, *kernel.options)
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()


class _Launching:
    def __init__(self, kernel: SourceKernel, sizes: Mapping[str, Any], label: str) -> None:
        # Where data lead is asked anew.
        self._kernel = replace(kernel, stand_ins={}) if kernel.stand_ins else kernel
        self._label = label
        self._sizes = sizes
        self._declared = {name: kind for name, _, kind in kernel.parameters()}
        self._spaces = {name: space for name, space, *_ in kernel.arguments}
        names = sorted(kernel.sizes)
        if missing := [name for name in names if name not in sizes]:
            msg = f"{label}: no value for size parameter {', '.join(missing)}; given: {dict(sizes) or 'none'}"
            raise MissingSizeError(msg, kernel=label, parameters=tuple(missing))
        require_whole(sizes, names, label)
        self._numbers = {name: int(value) for name, value in sizes.items() if is_whole(value)}

    def launch(self) -> SourceLaunch:
        if self._kernel.language == "hip":
            raise self._refuse("it is written in HIP, which is only counted and predicted")
        arguments = tuple(self._argument(name, kind) for name, kind in self._declared.items())
        walk, by_data = self._known_walk()
        self._require_own(walk)
        with self._kernel.describing():
            reached = self._reached(walk)
        local = {each.name: each.bytes for each in walk.recorder.arrays.values() if each.space == "local"}
        for name, size in local.items():
            if size is not None and name in reached and reached[name].bytes > size:
                raise self._refuse(f"reaches byte {reached[name].bytes} of {name!r}, which has {size}")
        return SourceLaunch(
            name=self._name(),
            language="opencl" if self._kernel.language == "opencl" else "cuda",
            text=kernel_text(self._kernel),
            arguments=arguments,
            groups=tuple(self._number(group) for group in self._kernel.groups),
            arrays={each.name: self._array(each.name, reached) for each in arguments if each.kind == "array"},
            local_arguments={
                name: reached.get(name, Reach(16)).bytes for name, size in sorted(local.items()) if size is None
            },
            local_bytes=sum(size or 0 for size in local.values()),
            by_data=by_data,
        )

    def program(self, compiler: Literal["nvrtc", "clang"]) -> SourceProgram:
        """Return what compiling takes."""
        own = self._kernel
        language: Literal["opencl", "cuda", "hip"] = "cuda"
        if compiler == "clang":
            language = "opencl" if own.language == "opencl" else "hip"
            text = kernel_text(own) if language == "opencl" else hip_text(own, self._name())
        elif own.language == "hip":
            raise self._refuse("it is written in HIP, which is compiled for AMD's GPUs only")
        else:
            text = cuda_text(own) if own.language == "opencl" else kernel_text(own)
        arguments = tuple((name, *_passed(kind)) for name, kind in self._declared.items())
        return SourceProgram(self._name(), language, text, arguments, tuple(map(self._number, own.groups)))

    def _refuse(self, cause: str) -> UnsupportedKernelError:
        msg = f"{self._kernel.path.name}: kernel {self._kernel.name!r} cannot be launched: {cause}"
        return UnsupportedKernelError(msg, kernel=self._label)

    # Arguments

    def _number(self, formula: str) -> int:
        return read_formula(formula, {**self._kernel.defines, **self._numbers}).value or 0

    def _argument(self, name: str, kind: CType) -> Argument:
        if kind.kind == "pointer" and kind.element is not None:
            if kind.element.kind == "pointer":
                raise self._refuse(f"argument {name!r} holds pointers; only the host program knows where they point")
            where: Literal["local", "array"] = "local" if self._spaces[name] == "local" else "array"
            return Argument(name, where, filled_dtype(kind.element))
        if kind.kind == "scalar" and kind.dtype != "bfloat16":
            return Argument(name, "scalar", kind.dtype)
        what = {"struct": "a struct", "vector": "a vector", "scalar": "of bfloat16"}.get(kind.kind, "of unknown type")
        raise self._refuse(f"argument {name!r} is {what}; only arrays and scalars are given; pass its parts")

    def _array(self, name: str, reached: Mapping[str, Reach]) -> Reach:
        element = self._declared[name].element
        each = max(element.bytes if element is not None else 1, 1)
        found = reached.get(name, Reach(each))
        stated = self._number(self._kernel.shapes[name]) * each if name in self._kernel.shapes else 0
        return replace(found, bytes=max(found.bytes, stated, each))

    # Program

    def _name(self) -> str:
        arguments = self._kernel.template_arguments
        return self._kernel.parsed().function.qualified + (f"<{', '.join(arguments)}>" if arguments else "")

    # Reach

    def _known_walk(self) -> tuple[Walk, str]:
        """Return a walk in which all subscripts are known: with sizes as names, as numbers, or with the data, too.

        Beside it, what only the data tell.
        """
        if self._kernel.trips:
            line, count = next(iter(self._kernel.trips.items()))
            cause = (
                f"the trip count of line {line} is stated as {float(count):g}, and made-up data would give another; "
                "give its times (calibrate --times)"
            )
            raise self._refuse(cause)
        walk = None
        with suppress(PerflexError):
            walk = self._kernel.walked({})
        if walk is None or _unknown(walk):
            walk = self._kernel.walked(self._numbers)
        by_data = _unknown(walk)
        if by_data:
            walk = self._kernel.walked(self._numbers, _contents(walk))
        if unknown := _unknown(walk):
            raise self._refuse(f"line {unknown}, and with made-up data it might reach anything; give its times instead")
        return walk, f"line {by_data}" if by_data else ""

    def _require_own(self, walk: Walk) -> None:
        """Stop where the host program decides more than arguments and launch."""
        for name in sorted(walk.sizes - {*self._declared, *self._sizes}):
            raise self._refuse(f"variable {name!r} is no argument, and only the host program knows its value")
        for array in walk.recorder.arrays.values():
            if array.space != "local" and array.name not in self._declared and array.bytes is None:
                raise self._refuse(f"array {array.name!r} is no argument, and only the host program can set it")

    def _reached(self, walk: Walk) -> dict[str, Reach]:
        found: dict[str, Reach] = {}
        values = " and ".join(f"{name} = {value}" for name, value in self._numbers.items())
        given = isl.Set(f"[{', '.join(self._numbers)}] -> {{ [] : {values} }}")
        for executed, access in _accesses(walk):
            domain = executed.domain.intersect(given)
            if access.offset is None or domain.is_empty():
                continue
            offset = constant(0)
            for product, term in access.offset.terms.items():
                offset = offset.add(term.scale_val(isl.Val(math.prod(self._numbers[name] for name in product))))
            values = isl.Map.from_pw_aff(offset).intersect_domain(domain).range().project_out_all_params()
            ends = values.dim_min_val(0), values.dim_max_val(0)
            if not all(end.is_int() for end in ends):
                raise self._refuse(f"line {access.line} reaches {access.array!r} without end")
            least, most = (int(end.to_python()) for end in ends)
            if least < 0:
                cause = f"line {access.line} reaches {-least} bytes before the first element of {access.array!r}"
                raise self._refuse(f"{cause}; pass a pointer to the first one")
            before = found.get(access.array, Reach(0, read=False))
            found[access.array] = Reach(
                max(before.bytes, most + access.bytes),
                before.read or access.direction == "load" or executed.atomic,
                before.written or access.direction == "store",
            )
        return found


def _passed(kind: CType) -> tuple[str, str]:
    """Return what an argument is for who compiles, and the type of a scalar."""
    if kind.kind == "scalar" and kind.dtype != "bfloat16":
        return "scalar", kind.dtype
    return "array" if kind.kind == "pointer" else "other", ""


def filled_dtype(element: CType) -> str:
    """Return the type of data that an array is filled with: that of its elements, or zero bytes."""
    if element.is_number:
        return element.dtype if element.dtype != "bfloat16" else BYTES  # numpy has no such type
    if element.kind != "struct" or element.declared is None:
        return BYTES
    # Structs of one type of elements, such as points of three floats.
    fields = {each.type.get_canonical().spelling for each in fields_of(element.declared)}
    return {"float": "float32", "double": "float64"}.get(", ".join(fields), BYTES)


def _contents(walk: Walk) -> dict[str, int]:
    """Return what the integers in arrays are that the kernel does not write, by array; others have no such value."""
    written = {access.array for _, access in _accesses(walk) if access.direction == "store"}
    found = {}
    for array in walk.recorder.arrays.values():
        # An array with extents is no argument: it may have a table of its own.
        if array.space == "local" or array.name in written or array.extents:
            continue
        kind = np.dtype(filled_dtype(array.element)).kind
        if kind in "iubV":
            found[array.name] = int(kind != "V")
    return found


def _unknown(walk: Walk) -> str:
    """Return the first place where data decide what is reached, and how; empty where there is none."""
    for each in walk.recorder.unstated.values():
        if each.matter == "trip count":
            return f"{each.line}: trip count of {each.text!r} is not known ({each.why})"
    for _, access in _accesses(walk):
        if access.offset is None:
            return f"{access.line}: data decide what {access.text!r} accesses"
    return ""


def _accesses(walk: Walk) -> Iterator[tuple[Executed, MemoryAccess]]:
    for executed in walk.recorder.executed:
        for access in executed.accesses:
            yield executed, access
