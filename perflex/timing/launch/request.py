"""All that building and launching one kernel with sizes needs, as plain data that can go to another process."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.devices.device import Device
from perflex.errors import MeasurementError
from perflex.timing.launch.buffers import assign_slots, named_data
from perflex.timing.launch.plan import check_limits, size_launch
from perflex.timing.launch.source_plan import plan_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.features.sized_kernel import SizedKernel
    from perflex.timing.launch.buffers import Slot
    from perflex.timing.launch.plan import Code, SizedLaunch

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
        Name and argument names of each device program, in launch order.
    launch
        Grids, buffer lengths and scalars.
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
    programs: tuple[tuple[str, tuple[str, ...]], ...]
    launch: SizedLaunch
    slots: Mapping[str, tuple[Slot, Slot | None]]
    dtypes: Mapping[str, np.dtype[Any]]
    by_data: str = ""
    results: tuple[str, ...] = ()
    data: Mapping[str, np.ndarray[tuple[int], np.dtype[Any]]] = field(default_factory=dict)

    def given(self) -> dict[str, np.ndarray[tuple[int], np.dtype[Any]]]:
        """Return what arrays that it reads hold where results are compared, shape ``(length,)`` each."""
        read = [name for name, (slot, _) in self.slots.items() if slot.role != "out"]
        made = {name: named_data(name, self.dtypes[name], self.launch.lengths[name]) for name in read}
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
        flat, length = np.ravel(np.asarray(values), order="K"), self.launch.lengths[name]
        if flat.dtype != self.dtypes[name] or flat.size < length:
            msg = (
                f"{self.label}: array {name} has {flat.size} elements of {flat.dtype}; give at least {length} of "
                f"{self.dtypes[name]}"
            )
            raise MeasurementError(msg, kernel=self.label)
        return np.ascontiguousarray(flat[:length])

    @property
    def buffer_bytes(self) -> dict[str, int]:
        """Bytes of every array."""
        return {name: self.launch.lengths[name] * dtype.itemsize for name, dtype in self.dtypes.items()}

    @property
    def slot_bytes(self) -> dict[Slot, int]:
        """Bytes of every slot, those that arrays are restored from included."""
        sizes: dict[Slot, int] = {}
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
    label, sizes = job.label, job.sizes
    plan = plan_of(job, device.api)
    # A file may have other kernels; what this one lacks its compiler tells.
    if not plan.written and not device.double_precision and _DOUBLE.search(plan.source):
        msg = f"{label}: computes in double precision, which {device} does not have; use float32"
        raise MeasurementError(msg, kernel=label, device=str(device))
    request = LaunchRequest(
        label=label,
        sizes=dict(sizes),
        code=plan.code,
        programs=tuple((program.name, program.argument_names) for program in plan.programs),
        launch=size_launch(plan, sizes, label),
        slots=assign_slots(list(plan.arrays.values())),
        dtypes={name: array.dtype for name, array in plan.arrays.items()},
        by_data=plan.by_data,
        results=tuple(name for name, array in plan.arrays.items() if array.written and array.is_argument),
    )
    sizes_held = request.buffer_bytes
    # Arrays that a kernel updates are restored before each launch from a copy, which takes memory, too.
    restored = {f"{name} (copy)": sizes_held[name] for name, (_, origin) in request.slots.items() if origin}
    check_limits(request.launch, {**sizes_held, **restored}, device, label)
    return request
