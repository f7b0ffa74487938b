"""Putting numbers into a launch plan: grid, buffer lengths and scalar arguments for given sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.errors import MeasurementError, MissingSizeError
from perflex.features.scop.whole_sizes import require_whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.devices.device import Device
    from perflex.timing.launch.plan import ArrayPlan, LaunchPlan

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
    """

    grids: tuple[Grid, ...]
    lengths: Mapping[str, int]
    scalars: Mapping[str, Any]
    local_bytes: int


def size_launch(plan: LaunchPlan, sizes: Mapping[str, int], label: str) -> SizedLaunch:
    """Evaluate grids and buffer lengths.

    Raises
    ------
    MissingSizeError
        Size parameters have no value, or one that is no whole number.
    MeasurementError
        The sizes violate the kernel's assumptions, do not fit its arguments, leave nothing to launch, or make an array
        larger than subscripts reach.
    """
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
        name: _scalar(name, dtype, values[name] if dtype.kind in "iu" else sizes.get(name, _FLOAT_SCALAR), label)
        for name, dtype in plan.scalars.items()
    }
    return SizedLaunch(
        grids=grids,
        lengths={name: _length(array, values, plan.most_elements, label) for name, array in plan.arrays.items()},
        scalars=scalars,
        local_bytes=_number(plan.local_bytes, values),
    )


def _scalar(name: str, dtype: Any, value: Any, label: str) -> Any:
    try:
        return np.dtype(dtype).type(value)
    except OverflowError as error:
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
    """Refuse a launch that the device cannot hold, with both numbers.

    Parameters
    ----------
    buffer_bytes
        Size of every buffer, those for resetting included.

    Raises
    ------
    MeasurementError
        A work-group, the work-groups of an axis, local memory, one buffer or all buffers exceed what the device has.
    """
    _check_grids(launch, device, label)
    if launch.local_bytes > device.local_memory_bytes:
        _refuse(label, f"{launch.local_bytes} B of local memory", device.local_memory_bytes, "B", device)
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
            _refuse(
                label,
                f"a work-group of {work_items} work-items",
                device.max_work_group_size,
                "work-items",
                device,
            )
        # An axis that the device states no limit for has one work-item.
        limits = (*device.max_work_item_sizes, *(1,) * 3)
        for axis, (size, limit) in enumerate(zip(grid.work_group, limits, strict=False)):
            if device.max_work_item_sizes and size > limit:
                _refuse(label, f"{size} work-items on axis {axis}", limit, "work-items", device)
        for axis, (count, limit) in enumerate(zip(grid.groups, device.max_groups, strict=False)):
            if count > limit:
                _refuse(label, f"{count} work-groups on axis {axis}", limit, "work-groups", device)


def _refuse(label: str, need: str, limit: int, unit: str, device: Device) -> None:
    msg = f"{label}: needs {need}, {device} allows {limit} {unit}; choose smaller sizes"
    raise MeasurementError(msg, kernel=label, device=device)
