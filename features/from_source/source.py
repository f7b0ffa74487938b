"""Kernels in OpenCL C and CUDA C, taken wherever a kernel is."""

from __future__ import annotations

import atexit
import ctypes
import gc
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np

from perflex.errors import PerflexError, UnsupportedKernelError
from perflex.features.from_source.arguments import given, integers_of, pointed_space
from perflex.features.from_source.copies import replace
from perflex.features.from_source.formulas import read_formula, sizes_in
from perflex.features.from_source.host_launches import TakenLaunch, offered_launch, taken_launch
from perflex.features.from_source.integers import Integer, Limit, NotAffineError, constant, own_name, variable
from perflex.features.from_source.kernel_function import ParsedKernel, parsed_kernel, required_work_group
from perflex.features.from_source.parsing import Language, Node, language_of
from perflex.features.from_source.recording import Unstated
from perflex.features.from_source.scops import ScopMaker
from perflex.features.from_source.stated import without_a_fit
from perflex.features.from_source.stated_subscripts import StandIns, is_access
from perflex.features.from_source.statements import Statements
from perflex.features.from_source.values import CType, TypeReader
from perflex.features.from_source.walk import Walk
from perflex.features.polynomials.cardinality import TooManyOperationsError, limited
from perflex.features.scop.checks import is_whole, read_fraction, require_whole
from perflex.features.scop.scop import Scop
from perflex.isl import ISL_LOCK, isl

# isl's operations until a kernel is given up, some ten seconds; without numbers for its sizes fewer, as they follow.
_MOST_OPERATIONS = 16_000_000
_MOST_WITHOUT_NUMBERS = 6_000_000
# Where there are numbers, a description without them saves time only if it is quickly made, or many are asked for.
_MOST_BESIDE_NUMBERS = 1_500_000
_MANY = 8
# Descriptions for values of sizes that a kernel keeps.
_MOST_KEPT = 256
_NAME = re.compile(r"\s*([A-Za-z_]\w*)\s*(?:<(.*)>)?\s*")


@dataclass(frozen=True)
class _Description:
    scop: Scop
    unstated: int  # How much data decide in it, or sizes whose values are not used
    limits: tuple[Limit, ...]  # Of unsigned integers: beyond them it is another kernel

    def holds(self, numbers: Mapping[str, int]) -> bool:
        with ISL_LOCK:
            return all(limit.holds(numbers) for limit in self.limits)


# Compared by identity, like loopy's kernels.
@dataclass(frozen=True, eq=False)
class SourceKernel:
    """A kernel in OpenCL C or CUDA C with its launch; made by `source_kernel`, taken wherever a kernel is.

    Attributes
    ----------
    path, source
        The file, beside which headers are looked for, and its text.
    name, template_arguments
        The kernel's function, and its template arguments in their order.
    local, groups
        Work-items of a work-group along each axis, and work-groups: numbers or formulas of sizes.
    defines, folders
        Macros, and where headers are looked for, too.
    trips, shapes
        What is stated: average trip counts by line, and elements of arrays as formulas, by array.
    language
        ``"opencl"``, ``"cuda"`` or ``"hip"``.
    stand_ins
        Subscripts that are stated by the text of the access.
    host_launch
        Line and text of the launch in the file's host code, where that was taken: ``"line 41: <<<n / 256, 256>>>"``.
    options
        Of the device's compiler.
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
    language: Language = "cuda"
    stand_ins: Mapping[str, str] = field(default_factory=dict)
    host_launch: str = ""
    options: tuple[str, ...] = ()

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
        MissingSizeError
            A value is no whole number.
        """
        numbers = dict(sizes or {})
        others = {name for name, _, kind in self.parameters() if not kind.is_integer} if numbers else set()
        require_whole(numbers, numbers.keys() - others, self.name)
        scalar = all(np.ndim(value) == 0 for value in numbers.values())
        numbers = {name: value for name, value in numbers.items() if name not in others}
        found = self._described_at({name: int(value) for name, value in numbers.items()} if scalar else {})
        if isinstance(found, PerflexError):
            raise found
        if not scalar and found.limits:
            self._require_limits(found, numbers)
        return found.scop

    def _require_limits(self, described: _Description, sizes: Mapping[str, Any]) -> None:
        """Stop where unsigned integers wrap around at one of many sizes: there it is another kernel."""
        columns = np.broadcast_arrays(*sizes.values())
        for row in dict.fromkeys(zip(*(column.ravel().tolist() for column in columns), strict=True)):
            numbers = dict(zip(sizes, map(int, row), strict=True))
            if not described.holds(numbers):
                shown = ", ".join(f"{name}={value}" for name, value in numbers.items())
                msg = f"kernel {self.name!r}: unsigned integers wrap around at {shown}; give these sizes alone"
                raise UnsupportedKernelError(msg, kernel=self.name)

    def _described_at(self, numbers: Mapping[str, int]) -> _Description | PerflexError:
        """Return the description for some values of sizes, or why there is none."""
        known: dict[Any, _Description | PerflexError] = self.__dict__.setdefault("_scops", {})
        key = tuple(sorted(numbers.items()))
        if key in known:
            return known[key]
        found = self._without_numbers(known) if numbers else None
        # A size is not negative, unlike an argument that says no extent.
        below = {name for name, value in numbers.items() if value < 0} - self._formula_names
        if not isinstance(found, _Description) or below or not found.holds(numbers):
            found = self._described(numbers)
        elif found.unstated:
            # With numbers more may be known: whether a loop runs once, say.
            at = self._described(numbers)
            found = at if isinstance(at, _Description) and at.unstated < found.unstated else found
        while len(known) >= _MOST_KEPT:
            known.pop(next(iter(known)))
        known[key] = found
        return found

    def _without_numbers(self, known: dict[Any, _Description | PerflexError]) -> _Description | PerflexError:
        """Return the description for all sizes, or why there is none that is worth its time."""
        most = min(_MOST_BESIDE_NUMBERS if len(known) < _MANY else _MOST_WITHOUT_NUMBERS, _MOST_WITHOUT_NUMBERS)
        for key in ((), most):
            if key in known:
                return known[key]
        found = self._described({}, most)
        known[() if isinstance(found, _Description) else most] = found
        return found

    @property
    def sizes(self) -> tuple[str, ...]:
        """Names of its integer arguments, and of sizes in the formulas of its launch."""
        names = [each for name, _, kind in self.parameters() for each in integers_of(name, kind, TypeReader())]
        return tuple(dict.fromkeys([*names, *sorted(self._formula_names)]))

    @property
    def _formula_names(self) -> set[str]:
        texts = (*self.groups, *self.shapes.values())
        return {name for text in texts for name in sizes_in(text, self.defines)}

    @property
    def arguments(self) -> tuple[tuple[str, str, str, int], ...]:
        """Name, address space (empty for values), element type and bytes of an element of each, in their order."""
        found = []
        for name, parameter, kind in self.parameters():
            array = kind.element if kind.kind == "pointer" else None
            element = array or kind
            found.append((name, pointed_space(parameter) if array else "", element.dtype or "float32", element.bytes))
        return tuple(found)

    def unstated(self, sizes: Mapping[str, Any] | None = None) -> tuple[Unstated, ...]:
        """Return what the source cannot say because data decide it; parameters as of `scop`."""
        return tuple(self.walked(sizes or {}).recorder.unstated.values())

    @contextmanager
    def describing(self, most: int = 0) -> Iterator[None]:
        """Say in the block that the kernel cannot be described where that is not affine or takes too long."""
        try:
            with limited(most or _MOST_OPERATIONS), _uncollected():
                yield
        except NotAffineError as error:
            msg = f"{self.path.name}: {error}"
            raise UnsupportedKernelError(msg, kernel=self.name) from None
        except TooManyOperationsError:
            msg = f"{self.path.name}: kernel {self.name!r} takes too long to describe; give numbers for its sizes"
            raise UnsupportedKernelError(msg, kernel=self.name) from None
        except (RecursionError, ctypes.ArgumentError):  # what calls of C make of the former
            msg = f"{self.path.name}: kernel {self.name!r} is nested too deep; split its expressions and branches"
            raise UnsupportedKernelError(msg, kernel=self.name) from None

    def _described(self, numbers: Mapping[str, int], most: int = 0) -> _Description | PerflexError:
        most = most or (_MOST_OPERATIONS if numbers else _MOST_WITHOUT_NUMBERS)
        try:
            walk = self.walked(numbers, most=most)
            if unfit := without_a_fit(walk, self.trips, self.shapes) or walk.stand_ins.unmet:
                msg = f"{self.path.name}: {unfit}"
                return UnsupportedKernelError(msg, kernel=self.name)
            if missing := [each for each in walk.recorder.unstated.values() if each.remedy]:
                more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
                hint = "" if numbers or not walk.sizes else f", or give numbers for {', '.join(sorted(walk.sizes))}"
                msg = f"{self.path.name}, {missing[0]}{more}{hint}"
                return UnsupportedKernelError(msg, kernel=self.name, unstated=tuple(map(str, missing)))
            with self.describing(most), walk.timed():
                values = {**self.defines, **numbers}
                shapes = {name: read_formula(shape, values) for name, shape in self.shapes.items()}
                walk.sizes |= {name for shape in shapes.values() for name in shape.names}
                walk.fix(self._formula_names)
                maker = ScopMaker(walk, shapes)
                scop = maker.scop()
            return _Description(scop, len(walk.recorder.unstated) + maker.split, tuple(walk.recorder.limits))
        except PerflexError as error:
            return error

    # The walk

    def walked(self, numbers: Mapping[str, Any], contents: Mapping[str, int] | None = None, *, most: int = 0) -> Walk:
        """Return a walk with values of sizes, and of what integer arrays hold where that is known.

        `most` are the operations that isl may do for it.
        """
        with self.describing(most or (_MOST_OPERATIONS if numbers else _MOST_WITHOUT_NUMBERS)):
            return _walked(self, tuple(sorted(numbers.items())), tuple(sorted((contents or {}).items())))

    def parameters(self) -> list[tuple[str, Node, CType]]:
        """Return its parameters with their names and types; C takes arrays for pointers there."""
        return _parameters(self.parsed())

    def parsed(self) -> ParsedKernel:
        """Return the kernel's function as clang reads it."""
        return _parsed(self)


def _parameters(parsed: ParsedKernel) -> list[tuple[str, Node, CType]]:
    found, types = [], TypeReader()
    for number, each in enumerate(parsed.function.parameters):
        kind = types.read(each.type)
        kind = replace(kind, kind="pointer") if kind.kind == "array" else kind
        found.append((str(each.spelling) or f"argument{number}", each, kind))
    return found


@contextmanager
def _uncollected() -> Iterator[None]:
    """Let Python not look for garbage in the block: what clang parsed is many objects, of which none is garbage."""
    looks = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if looks:
            gc.enable()


# What clang parsed stays with it, so few are kept, and none goes to other processes with its kernel.
@lru_cache(maxsize=4)
def _parsed(kernel: SourceKernel) -> ParsedKernel:
    given = kernel.template_arguments, kernel.defines, kernel.folders, kernel.language
    return parsed_kernel(kernel.path, kernel.source, kernel.name, *given)


@lru_cache(maxsize=4)
def _walked(kernel: SourceKernel, numbers: tuple[tuple[str, Any], ...], contents: tuple[tuple[str, int], ...]) -> Walk:
    parsed, values = kernel.parsed(), {**kernel.defines, **dict(numbers)}
    groups = tuple(read_formula(group, values, alone=True) for group in kernel.groups)
    active = isl.Set("{ [] }")
    for letter, extents in (("g", groups), ("l", tuple(map(Integer.of, kernel.local)))):
        for axis, extent in enumerate(extents):
            place = variable(own_name(f"{letter}{axis}"))
            active = active.intersect(place.ge_set(constant(0))).intersect(place.lt_set(extent.affine))
    sizes = {name for group in groups for name in group.names}
    stated = dict(numbers), dict(contents), kernel.trips, StandIns(kernel.stand_ins)
    walk = Walk(parsed, TypeReader(), sizes, kernel.local, groups, active, *stated)
    walk.types.refuse = walk.refuse
    for name, parameter, kind in kernel.parameters():
        walk.variables[parameter.key] = given(walk, name, parameter, kind)
    for name in sorted(walk.sizes):
        walk.active = walk.active.intersect(variable(name).ge_set(constant(0)))
    with walk.timed():
        Statements(walk).execute(parsed.function.body)
    return walk


# See parsing.py: both hold what clang parsed.
atexit.register(_parsed.cache_clear)
atexit.register(_walked.cache_clear)


class Written(TypedDict, total=False):
    """What a source is written in, where neither its suffix nor its text says so; options of the device's compiler."""

    language: Language | None
    options: Sequence[str]


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
    **written: Unpack[Written],
) -> SourceKernel:
    """Take a kernel from OpenCL C, CUDA C or HIP source code.

    Integer arguments of the kernel are its sizes, by their names. Array extents follow from the accesses. Needs the
    extra ``source`` (clang's library, no GPU and no toolkit). Headers that are not there are taken for empty.

    Where it is launched (`time_kernel`, `calibrate`), arrays are as long as the kernel reaches, and at least as
    stated. They hold numbers near one, integers are ones, and floating-point arguments that have no value are 0.75.
    A kernel in which data decide a subscript or a trip count is not timed: data are made up. CUDA C is compiled as
    ``nvcc`` does by default, denormal numbers and exact divisions included.

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
        What data decide: average trip counts by line (``{"34": 7.5}``, of a header ``{"dots.h:12": 4}``), elements
        of arrays that are accessed anywhere by name (``{"x": "n*m"}``), and subscripts by the text of the access
        (``{"x[col[j]]": "8*i + j"}``), of which ``"anywhere"`` means any element.
    **written
        ``language="opencl"``, ``"cuda"`` or ``"hip"``, where neither the file's suffix nor its text says so; and
        ``options``, with which the device's compiler builds the kernel, such as ``["-cl-fast-relaxed-math"]`` or
        ``["--use_fast_math"]``. They change its time and its compiled code, but nothing that is counted in the source.

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
        words = "write a function's name without its namespace, or NAME<ARGUMENT, ...> of a template"
        msg = f"cannot read the kernel's name {name!r}; {words}"
        raise UnsupportedKernelError(msg)
    arguments = tuple(each.strip() for each in found[2].split(",")) if found[2] else ()
    options = _compiler_options(found[1], written.pop("options", ()))
    language = written.pop("language", None) or language_of(path, text)
    if written:
        msg = f"source_kernel() got an unexpected keyword argument {next(iter(written))!r}"
        raise TypeError(msg)
    if language not in {"opencl", "cuda", "hip"}:
        msg = f"there is no language {language!r}; give 'opencl', 'cuda' or 'hip'"
        raise UnsupportedKernelError(msg)
    compiled = defines or {}, folders, language
    taken = None
    if local is None and groups is None and global_size is None and language != "opencl":
        taken = _of_host(path, text, found[1], arguments, *compiled)
    if taken is not None:
        local, groups = taken.local, taken.groups
    work_group = required_work_group(path, text, found[1], *compiled) if local is None else _axes(local)
    if work_group is None:
        bounds = re.search(rf"__launch_bounds__\s*\(\s*([^(),]*)[^{{}};]*?\b{re.escape(found[1])}\s*\(", text)
        hint = f"; its __launch_bounds__ allows {bounds[1].strip()} work-items" if bounds else ""
        words = "give local=(32, 8) and groups=..., on the command line FILE:KERNEL<<<(n/32, m/8), (32, 8)>>>"
        msg = f"kernel {found[1]!r} needs its launch{hint}; {words}{offered_launch(text, found[1])}"
        raise UnsupportedKernelError(msg, kernel=found[1])
    if (groups is None) == (global_size is None):
        words = "needs the launch's extent; give groups=... or global_size=... (--groups, --global), one of them"
        msg = f"kernel {found[1]!r} {words}{'' if groups else offered_launch(text, found[1])}"
        raise UnsupportedKernelError(msg, kernel=found[1])
    shape, extents = work_group, _axes(groups if groups is not None else global_size)
    if {len(shape), len(extents)} - {1, 2, 3} or not all(is_whole(items) and items > 0 for items in shape):
        msg = (
            f"kernel {found[1]!r}: work-group {shape!r} and grid {extents!r}; "
            "give one to three whole numbers of work-items above zero, and as many numbers or formulas of the grid"
        )
        raise UnsupportedKernelError(msg, kernel=found[1])
    axes = max(len(shape), len(extents))
    shape, extents = ([*each, *[1] * (axes - len(each))] for each in (shape, extents))
    if groups is None:
        extents = [f"ceil_div({extent}, {items})" for extent, items in zip(extents, shape, strict=True)]
    stand_ins = {str(key): str(value) for key, value in (stated or {}).items() if is_access(str(key))}
    launch = tuple(map(int, shape)), tuple(map(str, extents)), dict(defines or {}), tuple(map(str, folders))
    return SourceKernel(
        path,
        text,
        found[1],
        arguments,
        *launch,
        *_stated(found[1], stated or {}),
        language,
        stand_ins,
        "" if taken is None else f"line {taken.line}: {taken.text}",
        options,
    )


def _compiler_options(name: str, given: Sequence[str]) -> tuple[str, ...]:
    """Return options of the device's compiler; those that change what is counted are stated otherwise."""
    options = (given,) if isinstance(given, str) else tuple(map(str, given))
    if counted := [option for option in options if option.startswith(("-D", "-I", "-U", "--define", "--include"))]:
        msg = f"kernel {name!r}: macros and folders are stated with defines and folders, not as option {counted[0]}"
        raise UnsupportedKernelError(msg, kernel=name)
    return options


def _of_host(
    path: Path,
    text: str,
    name: str,
    arguments: tuple[str, ...],
    defines: Mapping[str, Any],
    folders: Sequence[str | Path],
    language: Language,
) -> TakenLaunch | None:
    """Return the launch of a kernel that its file does, if that can be taken."""
    if not offered_launch(text, name):
        return None
    parsed = parsed_kernel(path, text, name, arguments, defines, tuple(map(str, folders)), language)
    parameters = [(own, kind.is_integer) for own, _, kind in _parameters(parsed)]
    return taken_launch(text, name, arguments, parameters, defines)


def _axes(extents: Any) -> list[Any]:
    """Return extents along each axis; those of one axis may stand alone."""
    return list(extents) if isinstance(extents, Iterable) and not isinstance(extents, str) else [extents]


def _stated(name: str, stated: Mapping[str, Any]) -> tuple[dict[str, Fraction], dict[str, str]]:
    """Return trip counts by line and shapes by array."""
    trips, shapes = {}, {}
    for key, value in stated.items():
        if is_access(str(key)):
            continue
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
