"""From a loopy kernel to source code and what it takes to launch it, independent of sizes and devices."""

from __future__ import annotations

import sys
import warnings
import weakref
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field, replace
from threading import get_ident
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.devices.device import API_NAMES
from perflex.errors import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import loopy as lp

    from perflex.devices.device import Api


@dataclass(frozen=True)
class ArrayPlan:
    """A global array that a kernel is given.

    Attributes
    ----------
    name
        The array's name.
    dtype
        numpy dtype of its elements (of one lane for vector arrays).
    extents
        Pairs of length and stride, in elements, as symbolic expressions: the last element lies at the sum of
        ``(length - 1) * stride``.
    lanes
        Elements per access: 1 except for vector arrays.
    offset
        Symbolic distance of the first element from the buffer's start, in elements.
    read, written
        Whether the kernel reads and writes it; both for arrays that are updated.
    is_argument
        Whether it is an argument of the kernel, and no global temporary.
    """

    name: str
    dtype: Any
    extents: tuple[tuple[Any, Any], ...]
    lanes: int
    offset: Any
    read: bool
    written: bool
    is_argument: bool = True


@dataclass(frozen=True)
class DeviceProgram:
    """One device program of the source: its name, argument names in order, work-groups, and work-items of each.

    By axis these are expressions in the sizes; in a `LaunchRequest` they are numbers, of three axes or fewer.
    """

    name: str
    argument_names: tuple[str, ...]
    groups: tuple[Any, ...]
    work_group: tuple[Any, ...]

    @property
    def items(self) -> tuple[int, ...]:
        """All work-items by axis."""
        return tuple(g * w for g, w in zip(self.groups, self.work_group, strict=True))


@dataclass(frozen=True)
class Code:
    """A source, options of the compiler, and which of its kernels are meant where somebody wrote it."""

    source: str
    options: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()


@dataclass(frozen=True)
class LaunchPlan:
    """All that launching needs besides sizes and a device.

    Attributes
    ----------
    name
        The kernel's name.
    source
        Code of all programs, in OpenCL C or CUDA C++.
    programs
        In launch order; more than one when the kernel has global barriers.
    arrays
        Arguments and global temporaries, by name.
    scalars
        numpy dtype of every scalar argument, by name.
    parameters
        Names of the integer scalars: the size parameters.
    local_bytes
        Local memory of one work-group in bytes, symbolic.
    assumptions
        The kernel's assumptions on its parameters, an ``islpy.BasicSet``; None for none.
    most_elements
        Elements of an array that the code's subscripts reach: integers of the kernel's index type. What a written
        source reaches is known; its subscripts may have any width.
    local_arguments
        Bytes of local memory that a launch is given, by name: arguments in OpenCL, dynamic shared memory in CUDA.
    options
        Of the compiler, for this kernel only.
    written
        Whether somebody wrote the source, and did not have it generated.
    by_data
        What the values in arrays decide of a launch, so that made-up ones would give another time; empty for nothing.
    """

    name: str
    source: str
    programs: tuple[DeviceProgram, ...]
    arrays: Mapping[str, ArrayPlan]
    scalars: Mapping[str, Any]
    parameters: tuple[str, ...]
    local_bytes: Any = 0
    assumptions: Any = None
    most_elements: int = 2**63 - 1
    local_arguments: Mapping[str, int] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    written: bool = False
    by_data: str = ""

    @property
    def code(self) -> Code:
        """What is built."""
        return Code(self.source, self.options, tuple(each.name for each in self.programs) if self.written else ())


# Generating code takes 100 ms and more, and one kernel is launched with many sizes. The plan lives as long
# as the kernel object; comparing kernels by value would itself be slow.
_PLANS: dict[tuple[int, Api], LaunchPlan] = {}

# loopy's own errors are RuntimeErrors; kernels beyond its checks end in one of the others. One kernel that it
# cannot handle must not end the measurement of all.
_LOOPY_GIVES_UP = (RuntimeError, ValueError, TypeError, LookupError, AttributeError, AssertionError)


def plan_launch(kernel: lp.TranslationUnit, api: Api = "opencl") -> LaunchPlan:
    """Generate code for a kernel and work out how to launch it; remembered per kernel object."""
    key = (id(kernel), api)
    if key not in _PLANS:
        _PLANS[key] = _plan(kernel, api)
        weakref.finalize(kernel, _PLANS.pop, key, None)
    return _PLANS[key]


def _plan(kernel: lp.TranslationUnit, api: Api) -> LaunchPlan:
    if len(kernel.entrypoints) != 1:
        msg = f"only kernels with one entry point can be launched, this one has {sorted(kernel.entrypoints)}"
        raise MeasurementError(msg, kernel=kernel)
    name = kernel.default_entrypoint.name
    try:
        with _silenced():
            return _generated(kernel, name, api)
    except _LOOPY_GIVES_UP as error:
        language = API_NAMES[api]
        msg = f"loopy cannot generate {language} code for kernel {name!r}: {_brief(error)}"
        raise MeasurementError(msg, kernel=name) from error


def _generated(kernel: lp.TranslationUnit, name: str, api: Api) -> LaunchPlan:
    import loopy as lp

    from perflex.timing.launch.code import compiler_options, cuda_name, device_code, retargeted
    from perflex.timing.launch.decided_by_data import decided_by_data

    unit = lp.preprocess_program(retargeted(kernel, api))
    unit = lp.linearize(lp.infer_unknown_types(unit, expect_completion=True))
    programs = _programs(unit, name)  # refuses what no code can be made for before that is tried
    plan = _from_linearized(unit, name, programs, device_code(unit, api))
    if api == "cuda":
        programs = tuple(replace(program, name=cuda_name(program.name)) for program in programs)
    options = compiler_options(kernel, api)
    return replace(plan, programs=programs, options=options, by_data=decided_by_data(unit.default_entrypoint))


class _OthersOnly:
    """A stream without what the thread writes that made this object."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._thread = get_ident()

    def write(self, text: str) -> int:
        return len(text) if get_ident() == self._thread else int(self._stream.write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def _silenced() -> Iterator[None]:
    """Keep loopy's prints of a failing kernel and its remarks (on its own cache, on nesting) to itself."""
    from perflex.isl import ISL_LOCK

    # One thread at a time: each puts back what it found.
    with ISL_LOCK, redirect_stdout(_OthersOnly(sys.stdout)), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _brief(error: BaseException) -> str:
    text = " ".join(str(error).split())[:400]
    return text if text and isinstance(error, RuntimeError) else f"{type(error).__name__}: {text}"


def _from_linearized(
    unit: lp.TranslationUnit, name: str, programs: tuple[DeviceProgram, ...], source: str
) -> LaunchPlan:
    from loopy.kernel.data import AddressSpace, ValueArg

    entry = unit.default_entrypoint
    passed = dict.fromkeys(argument for program in programs for argument in program.argument_names)
    arrays: dict[str, ArrayPlan] = {}
    scalars: dict[str, Any] = {}
    for argument in passed:
        variable = entry.get_var_descriptor(argument)
        if isinstance(variable, ValueArg):
            scalars[argument] = variable.dtype.numpy_dtype
        else:
            arrays[argument] = _array(entry, variable, name)
    local_bytes = sum(
        variable.nbytes
        for variable in entry.temporary_variables.values()
        if variable.address_space == AddressSpace.LOCAL and not variable.base_storage
    )
    parameters = {n for n, dtype in scalars.items() if dtype.kind in "iu"}
    return LaunchPlan(
        name=name,
        source=source,
        programs=programs,
        arrays=arrays,
        scalars=scalars,
        parameters=tuple(sorted(parameters | _symbols(programs, arrays, local_bytes))),
        local_bytes=local_bytes,
        assumptions=entry.assumptions,
        most_elements=int(np.iinfo(entry.index_dtype.numpy_dtype).max),
    )


def _symbols(programs: tuple[DeviceProgram, ...], arrays: Mapping[str, ArrayPlan], local_bytes: Any) -> set[str]:
    """Return every name that grids, shapes and local memory depend on."""
    from pymbolic.mapper.dependency import DependencyMapper

    expressions = [e for program in programs for e in (*program.groups, *program.work_group)]
    for array in arrays.values():
        expressions += [e for extent in array.extents for e in extent] + [array.offset]
    find = DependencyMapper(composite_leaves=False)
    return {str(symbol) for e in [*expressions, local_bytes] for symbol in find(e)}


def _programs(unit: lp.TranslationUnit, name: str) -> tuple[DeviceProgram, ...]:
    from loopy.schedule import CallKernel, EnterLoop, ReturnFromKernel, get_insn_ids_for_block_at
    from loopy.schedule.tools import get_subkernel_arg_info

    entry = unit.default_entrypoint
    programs: list[DeviceProgram] = []
    on_device = False
    for index, item in enumerate(entry.linearization):
        if isinstance(item, CallKernel):
            on_device = True
            info = get_subkernel_arg_info(entry, item.kernel_name)
            groups, work_group = entry.get_grid_sizes_for_insn_ids_as_exprs(
                get_insn_ids_for_block_at(entry.linearization, index), unit.callables_table
            )
            names = tuple(info.passed_names)
            programs.append(DeviceProgram(item.kernel_name, names, tuple(groups), tuple(work_group)))
        elif isinstance(item, ReturnFromKernel):
            on_device = False
        elif isinstance(item, EnterLoop) and not on_device:
            msg = f"kernel {name!r} loops over {item.iname!r} around its launches; time its body instead"
            raise MeasurementError(msg, kernel=name, loop=item.iname)
    return tuple(programs)


def _array(entry: Any, variable: Any, name: str) -> ArrayPlan:
    from loopy.kernel.array import ArrayBase, FixedStrideArrayDimTag, VectorArrayDimTag
    from loopy.kernel.data import ImageArg, TemporaryVariable

    if isinstance(variable, ImageArg) or not isinstance(variable, ArrayBase):
        msg = f"kernel {name!r}: argument {variable.name!r} is an image or of a kind that cannot be launched"
        raise MeasurementError(msg, kernel=name)
    shape = getattr(variable, "storage_shape", None) or variable.shape
    if not isinstance(shape, tuple) or any(length is None for length in shape):
        msg = f"kernel {name!r}: array {variable.name!r} has no known shape; state it in the kernel's arguments"
        raise MeasurementError(msg, kernel=name, access=variable.name)
    extents: list[tuple[Any, Any]] = []
    lanes = 1
    if isinstance(variable, TemporaryVariable) or not variable.dim_tags:
        stride: Any = 1
        for length in reversed(shape):
            extents.append((length, stride))
            stride *= length
    else:
        for length, tag in zip(shape, variable.dim_tags, strict=True):
            if isinstance(tag, FixedStrideArrayDimTag):
                extents.append((length, tag.stride))
            elif isinstance(tag, VectorArrayDimTag):
                lanes = variable.vector_size(entry.target)
            else:
                msg = f"kernel {name!r}: array {variable.name!r} has a dimension without a fixed stride ({tag})"
                raise MeasurementError(msg, kernel=name, access=variable.name)
    written = variable.name in entry.get_written_variables()
    return ArrayPlan(
        name=variable.name,
        dtype=variable.dtype.numpy_dtype,
        extents=tuple(extents),
        lanes=lanes,
        offset=getattr(variable, "offset", 0) or 0,
        read=variable.name in entry.get_read_variables() or not written,
        written=written,
        is_argument=not isinstance(variable, TemporaryVariable),
    )
