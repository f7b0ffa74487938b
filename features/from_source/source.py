"""Kernels in OpenCL C and CUDA C, taken wherever a kernel is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from perflex.errors import PerflexError, UnsupportedKernelError
from perflex.features.from_source.formulas import read_formula, read_formulas
from perflex.features.from_source.integers import Integer, Limit, NotAffineError, constant, variable
from perflex.features.from_source.parsing import Language, Node, ParsedKernel, language_of, parsed_kernel
from perflex.features.from_source.places import image
from perflex.features.from_source.scops import ScopMaker
from perflex.features.from_source.statements import Statements
from perflex.features.from_source.values import CType, Pointer, Struct, TypeReader, Value, unknown_of
from perflex.features.from_source.walk import MemoryArray, Space, Unstated, Walk
from perflex.features.polynomials.cardinality import TooManyOperationsError, limited
from perflex.features.scop.checks import is_whole, read_fraction
from perflex.features.scop.scop import Scop
from perflex.isl import ISL_LOCK, isl

_Found = TypeVar("_Found")
# isl's operations until a kernel is given up; the largest of 400 public kernels take a tenth of it.
_MOST_OPERATIONS = 40_000_000
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+(\d+)[ \t]*(?://.*|/\*.*)?$", re.MULTILINE)
_NAME = re.compile(r"\s*([A-Za-z_]\w*)\s*(?:<(.*)>)?\s*")


@dataclass(frozen=True)
class _Description:
    scop: Scop
    unstated: int  # How much data decide in it, or sizes whose values are not used
    limits: tuple[Limit, ...]  # Of unsigned integers: beyond them it is another kernel


# Compared by identity, like loopy's kernels.
@dataclass(frozen=True, eq=False)
class SourceKernel:
    """A kernel in OpenCL C or CUDA C with its launch; made by `source_kernel`, taken wherever a kernel is.

    Attributes
    ----------
    path
        The file; headers are looked for beside it.
    source
        The file's text.
    name
        The kernel's function.
    template_arguments
        Template arguments, in their order.
    local
        Work-items of a work-group along each axis.
    groups
        Work-groups along each axis: numbers or formulas of sizes.
    defines
        Macros.
    folders
        Where headers are looked for, too.
    trips
        Average trip counts that are stated, by line.
    shapes
        Elements of arrays that are stated, as formulas, by array.
    """

    path: Path
    source: str = field(repr=False)
    name: str
    template_arguments: tuple[str, ...]
    local: tuple[int, ...]
    groups: tuple[str, ...]
    defines: Mapping[str, Any]
    folders: tuple[str, ...] = ()
    trips: Mapping[str, Fraction] = field(default_factory=dict)
    shapes: Mapping[str, str] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        """Return what other processes get: walks hold what clang parsed here."""
        return {name: value for name, value in self.__dict__.items() if name != "_walks"}

    def scop(self, sizes: Mapping[str, Any] | None = None) -> Scop:
        """Describe the kernel as a Scop.

        Parameters
        ----------
        sizes
            Values of integer arguments. Where more is known with them, the kernel is described for these values only.

        Returns
        -------
        Scop
            The description; its sizes are the integer arguments and the names in formulas of the launch.

        Raises
        ------
        UnsupportedKernelError
            Something cannot be described, or has to be stated; file and line are named.
        """
        found = self._described_at(())
        scalar = sizes is not None and all(np.ndim(value) == 0 for value in sizes.values())
        # With numbers more may be known: whether a loop runs once, say.
        if sizes and scalar and (isinstance(found, PerflexError) or found.unstated or found.limits):
            numbers = tuple(sorted((name, int(value)) for name, value in sizes.items()))
            if isinstance(found, PerflexError) or self._wraps_around(found, numbers):
                found = self._described_at(numbers)
            elif found.unstated:
                at = self._described_at(numbers)
                found = at if not isinstance(at, PerflexError) and at.unstated < found.unstated else found
        if isinstance(found, PerflexError):
            raise found
        return found.scop

    def _wraps_around(self, found: _Description, numbers: tuple[tuple[str, int], ...]) -> bool:
        """Return whether an unsigned integer exceeds its type at these sizes."""
        known: dict[Any, bool] = self.__dict__.setdefault("_wraps", {})
        if numbers not in known:
            with ISL_LOCK:
                known[numbers] = not all(limit.holds(dict(numbers)) for limit in found.limits)
        return known[numbers]

    def _described_at(self, numbers: tuple[tuple[str, int], ...]) -> _Description | PerflexError:
        """Return the description for some values, or why there is none."""
        known: dict[Any, _Description | PerflexError] = self.__dict__.setdefault("_scops", {})
        if numbers not in known:
            known[numbers] = self.attempted(lambda: self._described(dict(numbers)))
        return known[numbers]

    @property
    def sizes(self) -> tuple[str, ...]:
        """Names of its integer arguments, and of sizes in the formulas of its launch."""
        names = [str(each.spelling) for each, kind in self.parameters() if kind.is_integer]
        formulas = [
            each for text in (*self.groups, *self.shapes.values()) for each in read_formulas(text, self.defines)
        ]
        return tuple(dict.fromkeys([*names, *sorted({name for formula in formulas for name in formula.names})]))

    @property
    def arguments(self) -> tuple[tuple[str, str, str, int], ...]:
        """Name, address space (empty for values), element type and bytes of an element of each, in their order."""
        found = []
        for each, kind in self.parameters():
            array = kind.kind in {"pointer", "array"}
            element = kind.element if array and kind.element is not None else kind
            space = _space(each) if array else ""
            found.append((str(each.spelling), space, element.dtype or "float32", element.bytes))
        return tuple(found)

    def unstated(self, sizes: Mapping[str, Any] | None = None) -> tuple[Unstated, ...]:
        """Return what the source cannot say because data decide it; parameters as of `scop`."""
        with ISL_LOCK:
            walk = self.attempted(lambda: self.walked({} if sizes is None else sizes))
        if isinstance(walk, PerflexError):
            raise walk
        return tuple(walk.recorder.unstated.values())

    def attempted(self, describe: Callable[[], _Found]) -> _Found | PerflexError:
        """Return what describing the kernel gives, or why it cannot be described."""
        try:
            with limited(_MOST_OPERATIONS):
                return describe()
        except PerflexError as error:
            return error
        except NotAffineError as error:
            return UnsupportedKernelError(f"{self.path.name}: {error}", kernel=self.name)
        except TooManyOperationsError:
            msg = f"{self.path.name}: kernel {self.name!r} takes too long to describe; give numbers for its sizes"
            return UnsupportedKernelError(msg, kernel=self.name)

    def _described(self, numbers: Mapping[str, int]) -> _Description:
        walk = self.walked(numbers)
        self._require_stated(walk, numbers)
        values = {**self.defines, **numbers}
        shapes = {name: read_formulas(shape, values) for name, shape in self.shapes.items()}
        walk.sizes |= {name for shape in shapes.values() for extent in shape for name in extent.names}
        maker = ScopMaker(walk, shapes)
        return _Description(maker.scop(), len(walk.recorder.unstated) + maker.split, tuple(walk.recorder.limits))

    def _require_stated(self, walk: Walk, numbers: Mapping[str, int]) -> None:
        missing = [each for each in walk.recorder.unstated.values() if each.remedy]
        if not missing:
            return
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        hint = "" if numbers or not walk.sizes else f", or give numbers for {', '.join(sorted(walk.sizes))}"
        msg = f"{self.path.name}, {missing[0]}{more}{hint}"
        raise UnsupportedKernelError(msg, kernel=self.name, unstated=tuple(map(str, missing)))

    # The walk

    def walked(self, numbers: Mapping[str, Any], contents: Mapping[str, int] | None = None) -> Walk:
        """Return a walk with values of sizes, and of what integer arrays hold where that is known."""
        key = tuple(sorted(numbers.items())), tuple(sorted((contents or {}).items()))
        walks: dict[Any, Walk] = self.__dict__.setdefault("_walks", {})
        if key not in walks:
            # That with sizes as names and the last one.
            for other in [each for each in walks if each[0]]:
                del walks[other]
            walks[key] = self._walked(numbers, contents or {})
        return walks[key]

    def _walked(self, numbers: Mapping[str, Any], contents: Mapping[str, int]) -> Walk:
        kernel, values = self.parsed(), {**self.defines, **numbers}
        groups = tuple(read_formula(group, values) for group in self.groups)
        active = isl.Set("{ [] }")
        for letter, extents in (("g", groups), ("l", tuple(map(Integer.of, self.local)))):
            for axis, extent in enumerate(extents):
                place = variable(f"{letter}{axis}")
                active = active.intersect(place.ge_set(constant(0))).intersect(place.lt_set(extent.affine))
        walk = Walk(kernel, self.types(), set(), self.local, groups, active, numbers, contents)
        for group in groups:
            walk.sizes |= group.names
        for parameter in kernel.function.parameters:
            walk.variables[parameter.key] = _argument(walk, parameter)
        for name in sorted(walk.sizes):
            walk.active = walk.active.intersect(variable(name).ge_set(constant(0)))
        Statements(walk, self.trips).execute(kernel.function.body)
        return walk

    def parameters(self) -> list[tuple[Node, CType]]:
        """Return its parameters with their types."""
        types = self.types()
        return [(each, types.read(each.type)) for each in self.parsed().function.parameters]

    def parsed(self) -> ParsedKernel:
        """Return the kernel's function as clang reads it."""
        return parsed_kernel(self.path, self.source, self.name, self.defines, self.folders)

    @property
    def language(self) -> Language:
        """``"opencl"`` or ``"cuda"``."""
        return language_of(self.path, self.source)

    def types(self) -> TypeReader:
        """Return what reads types of this kernel, those of template parameters included."""
        names = self.parsed().function.template_parameters
        if len(names) != len(self.template_arguments):
            given = ", ".join(names) or "none"
            count = len(self.template_arguments)
            msg = (
                f"kernel {self.name!r} has {len(names)} template parameters ({given}), but {count} arguments are "
                f"given; write {self.name}<...>"
            )
            raise UnsupportedKernelError(msg, kernel=self.name)
        arguments = [str(self.defines.get(argument, argument)) for argument in self.template_arguments]
        return TypeReader(dict(zip(names, arguments, strict=True)))


def _argument(walk: Walk, parameter: Node) -> Value:
    """Return the value of a kernel's argument: arrays, sizes, and what is not known."""
    kind = walk.types.read(parameter.type)
    name = str(parameter.spelling)
    if kind.kind in {"pointer", "array"} and kind.element is not None:
        return _array(walk, name, kind.element, parameter)
    if kind.is_integer and name:  # without a name nothing can use it
        return walk.size(name, kind.dtype)
    if kind.kind == "struct" and kind.declared is not None:
        fields: dict[str, Value] = {}
        for each in kind.declared.get_fields():
            inner = walk.types.read(each.type)
            if inner.is_integer:
                fields[each.spelling] = walk.size(f"{name}_{each.spelling}", inner.dtype)
            elif inner.kind == "image":
                fields[each.spelling] = _declared(walk, image(f"{name}.{each.spelling}", inner))
            elif inner.kind == "pointer" and inner.element is not None:
                fields[each.spelling] = _array(walk, f"{name}.{each.spelling}", inner.element, each)
            else:
                fields[each.spelling] = unknown_of(inner, "uniform")
        return Struct(kind, fields)
    if kind.kind == "image":
        return _declared(walk, image(name, kind))
    return unknown_of(kind, "uniform")


def _array(walk: Walk, name: str, element: CType, declared: Any) -> Pointer:
    return _declared(walk, MemoryArray(name, _space(declared), element, restrict=declared.type.is_restrict_qualified()))


def _declared(walk: Walk, array: MemoryArray) -> Pointer:
    walk.recorder.arrays[array.name] = array
    return array.start


def _space(declared: Any) -> Space:
    """Return where a pointer argument points to."""
    pointee = declared.type.get_canonical().get_pointee().spelling
    return "local" if "__local" in pointee else "constant" if "__constant" in pointee else "global"


def source_kernel(
    source: str | Path,
    name: str,
    *,
    local: int | Sequence[int] | None = None,
    groups: str | int | Sequence[str | int] | None = None,
    global_size: str | int | Sequence[str | int] | None = None,
    defines: Mapping[str, Any] | None = None,
    folders: Sequence[str | Path] = (),
    stated: Mapping[str, Any] | None = None,
) -> SourceKernel:
    """Take a kernel from OpenCL C or CUDA C source code.

    Integer arguments of the kernel are its sizes, by their names. Array extents follow from the accesses. Needs the
    extra ``source`` (clang's library, no GPU and no toolkit). Headers that are not there are taken for empty.

    Where it is launched (`time_kernel`, `calibrate`), arrays are as long as the kernel reaches, and at least as
    stated. They hold numbers near one, integers are ones, and floating-point arguments that have no value are 0.75.
    A kernel that data lead elsewhere, or for an unknown number of trips, is not launched: data are made up.

    Parameters
    ----------
    source
        Path of a file, or its text.
    name
        The kernel's function, with template arguments where it has any: ``"reduce<float, 256>"``.
    local
        Work-items of a work-group (threads of a block) along each axis, axis 0 first; by default those of the kernel's
        ``reqd_work_group_size``. Axes that are left out have one work-item, and one work-group; one axis needs no list.
    groups
        Work-groups (blocks) along each axis: numbers, or formulas of sizes and macros such as ``"ceil_div(nx, 32)"``.
    global_size
        Work-items along each axis, instead of `groups`; rounded up to whole work-groups.
    defines
        Macros, as the host program sets them for the compiler.
    folders
        Where headers are looked for; the file's own folder comes first.
    stated
        What data decide: average trip counts by line (``{"34": 7.5}``, of a header ``{"dots.h:12": 4}``), and elements
        of arrays that are accessed anywhere by name (``{"x": "n*m"}``).

    Returns
    -------
    SourceKernel
        Taken wherever a kernel is.

    Raises
    ------
    UnsupportedKernelError
        The launch is incomplete, or the file is not there. What is in the source is looked at when it is counted.
    """
    path, text = _read(source)
    found = _NAME.fullmatch(name)
    if found is None:
        msg = f"cannot read the kernel's name {name!r}; write a function's name, or NAME<ARGUMENT, ...> of a template"
        raise UnsupportedKernelError(msg)
    shape = _axes(local) if local is not None else _required_work_group(found[1], text, defines or {})
    if (groups is None) == (global_size is None):
        msg = f"kernel {found[1]!r} needs the launch's extent; give groups=... or global_size=..., one of them"
        raise UnsupportedKernelError(msg, kernel=found[1])
    extents = _axes(groups if groups is not None else global_size)
    whole = all(is_whole(items) and items > 0 for items in shape)
    if not 1 <= len(shape) <= 3 or not 1 <= len(extents) <= 3 or not whole:
        msg = (
            f"kernel {found[1]!r}: work-group {local!r} and grid {groups if groups is not None else global_size!r}; "
            "give one to three whole numbers of work-items above zero, and as many numbers or formulas of the grid"
        )
        raise UnsupportedKernelError(msg, kernel=found[1])
    axes = max(len(shape), len(extents))
    shape += [1] * (axes - len(shape))
    extents += [1] * (axes - len(extents))
    if groups is None:
        extents = [f"ceil_div({extent}, {items})" for extent, items in zip(extents, shape, strict=True)]
    trips, shapes = _stated(found[1], stated or {})
    return SourceKernel(
        path,
        text,
        found[1],
        tuple(each.strip() for each in found[2].split(",")) if found[2] else (),
        tuple(map(int, shape)),
        tuple(map(str, extents)),
        dict(defines or {}),
        tuple(map(str, folders)),
        trips,
        shapes,
    )


def _axes(extents: Any) -> list[Any]:
    """Return extents along each axis; those of one axis may stand alone."""
    return list(extents) if isinstance(extents, Iterable) and not isinstance(extents, str) else [extents]


def _required_work_group(name: str, text: str, defines: Mapping[str, Any]) -> list[int]:
    """Return the work-group that the kernel's ``reqd_work_group_size`` states."""
    stated = re.search(rf"reqd_work_group_size\s*\(([^()]*)\)[^{{}};]*?\b{re.escape(name)}\s*\(", text)
    written: dict[str, set[str]] = {}
    for macro, number in _MACRO.findall(text):
        written.setdefault(macro, set()).add(number)
    # Of several definitions the compiler's conditions choose one, which is not known here.
    values = {macro: min(numbers) for macro, numbers in written.items() if len(numbers) == 1} | dict(defines)
    extents = [read_formula(each.strip(), values).value for each in stated[1].split(",")] if stated else []
    known = [extent for extent in extents if extent is not None]
    if not known or len(known) < len(extents):
        bounds = re.search(rf"__launch_bounds__\s*\(\s*([^(),]*)[^{{}};]*?\b{re.escape(name)}\s*\(", text)
        most = f"; its __launch_bounds__ allows {bounds[1].strip()} work-items" if bounds else ""
        msg = f"kernel {name!r} needs its work-group{most}; give local=(32, 8), --local 32,8 on the command line"
        raise UnsupportedKernelError(msg, kernel=name)
    return known


def _stated(name: str, stated: Mapping[str, Any]) -> tuple[dict[str, Fraction], dict[str, str]]:
    """Return trip counts by line and shapes by array."""
    trips, shapes = {}, {}
    for key, value in stated.items():
        if not str(key).rpartition(":")[2].isdigit():
            shapes[str(key)] = str(value)
            continue
        count = read_fraction(str(value))
        if count is None or count <= 0:
            msg = f"the trip count of line {key} must be a number above zero, not {value!r}"
            raise UnsupportedKernelError(msg, kernel=name)
        trips[str(key)] = count
    return trips, shapes


def _read(source: str | Path) -> tuple[Path, str]:
    if isinstance(source, str) and ("\n" in source or "{" in source):
        return Path("kernel.cu" if "__global__" in source else "kernel.cl"), source
    path = Path(source)
    try:
        return path.resolve(), path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        msg = f"cannot read {path}: {error.strerror}; give the path of a .cl or .cu file, or its text"
        raise UnsupportedKernelError(msg, path=path) from error
