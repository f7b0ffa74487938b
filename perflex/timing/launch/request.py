"""All that building and launching one kernel with sizes needs, as plain data that can go to another process."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field, replace
from math import prod
from numbers import Complex, Real
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.compiled.program import Argument
from perflex.devices.device import Device
from perflex.errors import MeasurementError, MissingSizeError
from perflex.features.scop.checks import require_whole
from perflex.timing.launch.buffers import assign_slots, named_data
from perflex.timing.launch.source_plan import plan_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.features.sized_kernel import SizedKernel
    from perflex.timing.launch.buffers import BufferSlot
    from perflex.timing.launch.plan import ArrayPlan, Code, DeviceProgram, LaunchPlan

# In the code, not among the arguments: a kernel may compute in double precision what it stores in single.
_DOUBLE = re.compile(r"\bdouble\d*\b")


@dataclass(frozen=True)
class LaunchRequest:
    """A kernel with sizes, ready to be built.

    Attributes
    ----------
    label
        Which kernel and sizes, for messages.
    sizes
        Value of each size parameter.
    code
        Code of all programs, in OpenCL C or CUDA C++, and how it is built.
    programs
        The device programs in launch order, with numbers of work-groups and work-items.
    lengths
        Buffer length of every array, in elements.
    scalars
        Value of every scalar argument.
    local_bytes
        Local memory per work-group in bytes.
    local_arguments
        Bytes of what the launch gives of it, by name.
    slots
        Place of every array in the buffer pool, and of what it is restored from.
    dtypes
        Element type of every array.
    by_data
        As of `LaunchPlan`.
    results
        Names of the array arguments that it writes.
    data
        What arrays hold that do not hold made-up data, shape ``(length,)`` each.
    """

    label: str
    sizes: Mapping[str, int]
    code: Code
    programs: tuple[DeviceProgram, ...]
    lengths: Mapping[str, int]
    scalars: Mapping[str, Any]
    local_bytes: int
    local_arguments: Mapping[str, int]
    slots: Mapping[str, tuple[BufferSlot, BufferSlot | None]]
    dtypes: Mapping[str, np.dtype[Any]]
    by_data: str = ""
    results: tuple[str, ...] = ()
    data: Mapping[str, np.ndarray[tuple[int], np.dtype[Any]]] = field(default_factory=dict)

    def given(self) -> dict[str, np.ndarray[tuple[int], np.dtype[Any]]]:
        """Return what arrays that it reads hold where results are compared, shape ``(length,)`` each."""
        read = [name for name, (slot, _) in self.slots.items() if slot.role != "out"]
        made = {name: named_data(name, self.dtypes[name], self.lengths[name]) for name in read}
        return {**made, **self.data}

    def with_data(self, arrays: Mapping[str, Any]) -> LaunchRequest:
        """Return the request with data of a user's, as `perflex.time_kernel` takes them.

        Raises
        ------
        MeasurementError
            There is no such array, its elements are of another type, it has fewer than the kernel reaches, or data
            decide what the kernel does and some arrays have made-up ones.
        """
        found, slots = {}, dict(self.slots)
        for name, values in arrays.items():
            found[name] = self._data_of(name, values)
            slot, origin = self.slots[name]
            digest = hashlib.sha256(found[name].tobytes()).hexdigest()
            # Of its own: other kernels' arrays hold something else.
            own = replace(origin or slot, role=f"{(origin or slot).role} {digest}")
            slots[name] = (own, None) if origin is None else (slot, own)
        made_up = [name for name, (slot, _) in self.slots.items() if slot.role != "out" and name not in found]
        if self.by_data and made_up:
            msg = (
                f"{self.label}: data decide its time ({self.by_data}), and those of {', '.join(made_up)} would be made "
                "up; give all arrays that it reads (arrays=)"
            )
            raise MeasurementError(msg, kernel=self.label)
        return replace(self, slots=slots, data=found, by_data="")

    def _data_of(self, name: str, values: Any) -> np.ndarray[tuple[int], np.dtype[Any]]:
        if name not in self.slots:
            msg = f"{self.label}: there is no array {name}; it has {', '.join(self.slots) or 'none'}"
            raise MeasurementError(msg, kernel=self.label)
        # As they lie in memory, in whatever order that is.
        flat, length = np.ravel(np.asarray(values), order="K"), self.lengths[name]
        if flat.dtype != self.dtypes[name] or flat.size < length:
            msg = (
                f"{self.label}: array {name} has {flat.size} elements of {flat.dtype}; give at least {length} of "
                f"{self.dtypes[name]}"
            )
            raise MeasurementError(msg, kernel=self.label)
        return np.ascontiguousarray(flat[:length])

    def arguments_of(self, program: DeviceProgram) -> tuple[Argument, ...]:
        """Return what a device program is passed, as its compiled code finds it."""
        sizes = [(name, self.scalars.get(name)) for name in program.argument_names]
        return tuple(
            Argument(name, 8 if scalar is None else scalar.dtype.itemsize, is_array=scalar is None)
            for name, scalar in sizes
        )

    @property
    def buffer_bytes(self) -> dict[str, int]:
        """Bytes of every array."""
        return {name: self.lengths[name] * dtype.itemsize for name, dtype in self.dtypes.items()}

    @property
    def slot_bytes(self) -> dict[BufferSlot, int]:
        """Bytes of every slot, those that arrays are restored from included."""
        sizes: dict[BufferSlot, int] = {}
        for name, size in self.buffer_bytes.items():
            slot, origin = self.slots[name]
            sizes[slot] = size
            if origin is not None:
                sizes[origin] = size
        return sizes


def request_for(job: SizedKernel | LaunchRequest, device: object) -> SizedKernel | LaunchRequest:
    """Return what a device's backend builds a kernel from: a `LaunchRequest` for a `Device`, for others the kernel."""
    if isinstance(job, LaunchRequest) or not isinstance(device, Device):
        return job
    return launch_request(job, device)


def launch_request(job: SizedKernel, device: Device) -> LaunchRequest:
    """Generate a kernel's code, put in the sizes, and check that the device can hold the launch; see `request_for`."""
    label, plan = job.label, plan_of(job, device.api)
    # A file may have other kernels; what this one lacks its compiler tells.
    if not plan.written and not device.double_precision and _DOUBLE.search(plan.source):
        msg = f"{label}: computes in double precision, which {device} does not have; use float32"
        raise MeasurementError(msg, kernel=label, device=str(device))
    request = size_launch(plan, job.sizes, label)
    check_limits(request, device)
    return request


# Scalars that are no sizes (a factor, say) need some value that neither vanishes nor grows.
_FLOAT_SCALAR = 0.75


def size_launch(plan: LaunchPlan, sizes: Mapping[str, Any], label: str) -> LaunchRequest:
    """Put sizes into a plan, for whatever device."""
    missing = [name for name in plan.parameters if name not in sizes]
    if missing:
        msg = f"{label}: no value for size parameter {', '.join(missing)}; given: {dict(sizes) or 'none'}"
        raise MissingSizeError(msg, kernel=label, parameters=tuple(missing))
    require_whole(sizes, plan.parameters, label)
    values = {name: int(sizes[name]) for name in plan.parameters}
    _check_assumptions(plan, values, label)
    scalars = {
        name: _scalar(name, dtype, values.get(name, np.asarray(sizes.get(name, _FLOAT_SCALAR))[()]), label)
        for name, dtype in plan.scalars.items()
    }
    return LaunchRequest(
        label=label,
        sizes=dict(sizes),
        code=plan.code,
        programs=tuple(_with_grid(program, values, label) for program in plan.programs),
        lengths={name: _length(array, values, plan.most_elements, label) for name, array in plan.arrays.items()},
        scalars=scalars,
        local_bytes=_number(plan.local_bytes, values),
        local_arguments=plan.local_arguments,
        slots=assign_slots(list(plan.arrays.values())),
        dtypes={name: array.dtype for name, array in plan.arrays.items()},
        by_data=plan.by_data,
        results=tuple(name for name, array in plan.arrays.items() if array.written and array.is_argument),
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


def _with_grid(program: DeviceProgram, values: Mapping[str, int], label: str) -> DeviceProgram:
    axes = max(len(program.groups), len(program.work_group), 1)
    groups, work_group = (
        tuple(_number(e, values) for e in axis_sizes) + (1,) * (axes - len(axis_sizes))
        for axis_sizes in (program.groups, program.work_group)
    )
    if min(*groups, *work_group) <= 0:
        msg = f"{label}: {program.name}: nothing to launch for sizes {values}: {groups} work-groups of {work_group}"
        raise MeasurementError(msg, kernel=f"{label}: {program.name}")
    return replace(program, groups=groups, work_group=work_group)


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


def check_limits(request: LaunchRequest, device: Device) -> None:
    """Refuse a launch that the device cannot hold, with both numbers."""
    label, sizes = request.label, request.buffer_bytes
    for program in request.programs:
        _check_grid(program, device, label)
    # What a kernel declares itself may be less than what a launch may ask for.
    most = max(device.local_memory_bytes, device.most_local_memory_bytes if request.local_arguments else 0)
    if request.local_bytes > most:
        _refuse(label, f"{request.local_bytes} B of local memory", most, "B", device)
    for name, size in sizes.items():
        if size > device.max_allocation_bytes:
            _refuse(label, f"array {name} of {size} B", device.max_allocation_bytes, "B per buffer", device)
    # Arrays that a kernel updates are restored before each launch from a copy, which takes memory, too.
    total = sum(request.slot_bytes.values())
    if total > device.global_memory_bytes:
        _refuse(label, f"{total} B of device memory", device.global_memory_bytes, "B", device)


def _check_grid(program: DeviceProgram, device: Device, label: str) -> None:
    work_items = prod(program.work_group)
    if work_items > device.max_work_group_size:
        _refuse(label, f"a work-group of {work_items} work-items", device.max_work_group_size, "work-items", device)
    # An axis that the device states no limit for has one work-item.
    limits = (*device.max_work_item_sizes, *(1,) * 3)
    for axis, (size, limit) in enumerate(zip(program.work_group, limits, strict=False)):
        if device.max_work_item_sizes and size > limit:
            _refuse(label, f"{size} work-items on axis {axis}", limit, "work-items", device)
    for axis, (count, limit) in enumerate(zip(program.groups, device.max_groups, strict=False)):
        if count > limit:
            _refuse(label, f"{count} work-groups on axis {axis}", limit, "work-groups", device)


def _refuse(label: str, need: str, limit: int, unit: str, device: Device) -> None:
    smaller = "a smaller work-group" if unit == "work-items" else "smaller sizes"
    msg = f"{label}: needs {need}, {device} allows {limit} {unit}; choose {smaller}"
    raise MeasurementError(msg, kernel=label, device=device)
