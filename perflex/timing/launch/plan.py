"""From a loopy kernel to source code and what it takes to launch it, independent of sizes and devices."""

from __future__ import annotations

import sys
import warnings
import weakref
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field, replace
from numbers import Complex, Real
from threading import get_ident
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.devices.device import API_NAMES
from perflex.errors import MeasurementError, MissingSizeError
from perflex.features.scop.checks import require_whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import loopy as lp

    from perflex.devices.device import Api, Device


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
    """One device program of the source: its name, argument names in order, and symbolic grid."""

    name: str
    argument_names: tuple[str, ...]
    groups: tuple[Any, ...]
    work_group: tuple[Any, ...]


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
        The kernel's assumptions on its parameters, an ``islpy.BasicSet``.
    most_elements
        Elements of an array that the code's subscripts reach: integers of the kernel's index type.
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
    local_bytes: Any
    assumptions: Any
    most_elements: int
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

    from perflex.timing.launch.code import compiler_options, device_code, program_name, retargeted
    from perflex.timing.launch.decided_by_data import decided_by_data

    unit = lp.preprocess_program(retargeted(kernel, api))
    unit = lp.linearize(lp.infer_unknown_types(unit, expect_completion=True))
    programs = _programs(unit, name)  # refuses what no code can be made for before that is tried
    plan = _from_linearized(unit, name, programs, device_code(unit, api))
    called = tuple(replace(program, name=program_name(program.name, api)) for program in programs)
    options = compiler_options(kernel, api)
    return replace(plan, programs=called, options=options, by_data=decided_by_data(unit.default_entrypoint))


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


# Scalars that are no sizes (a factor, say) need some value that neither vanishes nor grows.
_FLOAT_SCALAR = 0.75


@dataclass(frozen=True)
class Grid:
    """Work-groups and work-items per group of one launch, both with three axes or fewer."""

    groups: tuple[int, ...]
    work_group: tuple[int, ...]

    @property
    def items(self) -> tuple[int, ...]:
        """All work-items by axis."""
        return tuple(g * w for g, w in zip(self.groups, self.work_group, strict=True))


@dataclass(frozen=True)
class SizedLaunch:
    """A launch plan with numbers.

    Attributes
    ----------
    grids
        One per device program.
    lengths
        Buffer length of every array, in elements.
    scalars
        Value of every scalar argument.
    local_bytes
        Local memory per work-group in bytes.
    local_arguments
        Bytes of what the launch gives of it, by name.
    """

    grids: tuple[Grid, ...]
    lengths: Mapping[str, int]
    scalars: Mapping[str, Any]
    local_bytes: int
    local_arguments: Mapping[str, int] = field(default_factory=dict)


def size_launch(plan: LaunchPlan, sizes: Mapping[str, int], label: str) -> SizedLaunch:
    """Evaluate grids and buffer lengths."""
    missing = [name for name in plan.parameters if name not in sizes]
    if missing:
        msg = f"{label}: no value for size parameter {', '.join(missing)}; given: {dict(sizes) or 'none'}"
        raise MissingSizeError(msg, kernel=label, parameters=tuple(missing))
    require_whole(sizes, plan.parameters, label)
    values = {name: int(sizes[name]) for name in plan.parameters}
    _check_assumptions(plan, values, label)
    grids = tuple(
        _grid(program.groups, program.work_group, values, f"{label}: {program.name}") for program in plan.programs
    )
    scalars = {
        name: _scalar(name, dtype, values.get(name, np.asarray(sizes.get(name, _FLOAT_SCALAR))[()]), label)
        for name, dtype in plan.scalars.items()
    }
    return SizedLaunch(
        grids=grids,
        lengths={name: _length(array, values, plan.most_elements, label) for name, array in plan.arrays.items()},
        scalars=scalars,
        local_bytes=_number(plan.local_bytes, values),
        local_arguments=plan.local_arguments,
    )


def _scalar(name: str, dtype: Any, value: Any, label: str) -> Any:
    if not isinstance(value, (Complex if np.dtype(dtype).kind == "c" else Real, np.bool_)):
        msg = f"{label}: {name} must be a number, such as {_FLOAT_SCALAR}, not {value!s:.60}"
        raise MeasurementError(msg, kernel=label)
    try:
        # Floating-point numbers that are too large become infinite, integers an OverflowError.
        with np.errstate(over="raise"):
            return np.dtype(dtype).type(value)
    except (OverflowError, FloatingPointError) as error:
        msg = f"{label}: {name} = {value} does not fit the kernel's argument of type {np.dtype(dtype)}"
        raise MeasurementError(msg, kernel=label) from error


def _number(expression: Any, values: Mapping[str, int]) -> int:
    if isinstance(expression, int):
        return expression
    from pymbolic import evaluate

    return int(evaluate(expression, dict(values)))


def _grid(groups: tuple[Any, ...], work_group: tuple[Any, ...], values: Mapping[str, int], label: str) -> Grid:
    axes = max(len(groups), len(work_group), 1)
    numbers = [
        tuple(_number(e, values) for e in axis_sizes) + (1,) * (axes - len(axis_sizes))
        for axis_sizes in (groups, work_group)
    ]
    if min(*numbers[0], *numbers[1]) <= 0:
        msg = f"{label}: nothing to launch for sizes {values}: {numbers[0]} work-groups of {numbers[1]}"
        raise MeasurementError(msg, kernel=label)
    return Grid(*numbers)


def _length(array: ArrayPlan, values: Mapping[str, int], most: int, label: str) -> int:
    last = sum((_number(n, values) - 1) * _number(stride, values) for n, stride in array.extents)
    # Beyond, a subscript would become negative: the launch would read and write elsewhere.
    if last // array.lanes > most:
        msg = (
            f"{label}: array {array.name} has {last + array.lanes} elements, subscripts of this kernel's code reach "
            f"{most}; choose smaller sizes, or a kernel with a larger index_dtype"
        )
        raise MeasurementError(msg, kernel=label, access=array.name)
    return max(1, array.lanes + last + _number(array.offset, values))


def _check_assumptions(plan: LaunchPlan, values: Mapping[str, int], label: str) -> None:
    from perflex.isl import isl

    assumptions = plan.assumptions
    if assumptions is None:
        return
    remaining = assumptions
    for position in range(assumptions.dim(isl.dim_type.param)):
        name = assumptions.get_dim_name(isl.dim_type.param, position)
        if name in values:
            remaining = remaining.fix_val(isl.dim_type.param, position, isl.Val(values[name]))
    if remaining.is_empty():
        msg = f"{label}: sizes {values} violate the kernel's assumptions {assumptions}"
        raise MeasurementError(msg, kernel=label)


def check_limits(launch: SizedLaunch, buffer_bytes: Mapping[str, int], device: Device, label: str) -> None:
    """Refuse a launch that the device cannot hold, with both numbers."""
    _check_grids(launch, device, label)
    # What a kernel declares itself may be less than what a launch may ask for.
    most = max(device.local_memory_bytes, device.most_local_memory_bytes if launch.local_arguments else 0)
    if launch.local_bytes > most:
        _refuse(label, f"{launch.local_bytes} B of local memory", most, "B", device)
    for name, size in buffer_bytes.items():
        if size > device.max_allocation_bytes:
            _refuse(label, f"array {name} of {size} B", device.max_allocation_bytes, "B per buffer", device)
    total = sum(buffer_bytes.values())
    if total > device.global_memory_bytes:
        _refuse(label, f"{total} B of device memory", device.global_memory_bytes, "B", device)


def _check_grids(launch: SizedLaunch, device: Device, label: str) -> None:
    for grid in launch.grids:
        work_items = int(np.prod(grid.work_group))
        if work_items > device.max_work_group_size:
            need = f"a work-group of {work_items} work-items"
            _refuse(label, need, device.max_work_group_size, "work-items", device)
        # An axis that the device states no limit for has one work-item.
        limits = (*device.max_work_item_sizes, *(1,) * 3)
        for axis, (size, limit) in enumerate(zip(grid.work_group, limits, strict=False)):
            if device.max_work_item_sizes and size > limit:
                _refuse(label, f"{size} work-items on axis {axis}", limit, "work-items", device)
        for axis, (count, limit) in enumerate(zip(grid.groups, device.max_groups, strict=False)):
            if count > limit:
                _refuse(label, f"{count} work-groups on axis {axis}", limit, "work-groups", device)


def _refuse(label: str, need: str, limit: int, unit: str, device: Device) -> None:
    smaller = "a smaller work-group" if unit == "work-items" else "smaller sizes"
    msg = f"{label}: needs {need}, {device} allows {limit} {unit}; choose {smaller}"
    raise MeasurementError(msg, kernel=label, device=device)
