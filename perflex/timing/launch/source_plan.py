"""What it takes to launch a kernel: generated from loopy's, or as a kernel in OpenCL C or CUDA C is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perflex.devices.device import API_NAMES
from perflex.errors import MeasurementError, UnsupportedKernelError
from perflex.features.from_source.launching import source_launch
from perflex.features.from_source.source import SourceKernel
from perflex.timing.launch.plan import ArrayPlan, DeviceProgram, LaunchPlan, plan_launch

if TYPE_CHECKING:
    from perflex.devices.device import Api
    from perflex.features.from_source.launching import SourceLaunch
    from perflex.features.sized_kernel import SizedKernel

# What a source's own code reaches is known; its subscripts may have any width.
_MOST_ELEMENTS = 2**63 - 1


def plan_of(job: SizedKernel, api: Api) -> LaunchPlan:
    """Return how to launch a kernel; that of one from source code holds for its sizes only.

    Raises
    ------
    MeasurementError
        No code can be generated, it is written for another interface, or nobody knows what it would reach.
    MissingSizeError
        A size has no value.
    """
    kernel = job.translation_unit
    if not isinstance(kernel, SourceKernel):
        return plan_launch(kernel, api)
    try:
        launch = source_launch(kernel, job.sizes, job.label)
    except UnsupportedKernelError as error:
        msg = f"{job.label}: {error.message}"
        raise MeasurementError(msg, kernel=job.label) from error
    if launch.language != api:
        msg = (
            f"{job.label}: kernel {kernel.name!r} is written in {API_NAMES[launch.language]} C and cannot be launched "
            f"through {API_NAMES[api]}; choose another device, or write the kernel for it"
        )
        raise MeasurementError(msg, kernel=job.label)
    return _plan(kernel, launch)


def _plan(kernel: SourceKernel, launch: SourceLaunch) -> LaunchPlan:
    arrays = {}
    for argument in launch.arguments:
        if argument.kind != "array":
            continue
        reach, dtype = launch.arrays[argument.name], np.dtype(argument.dtype)
        length = -(-reach.bytes // dtype.itemsize)
        arrays[argument.name] = ArrayPlan(argument.name, dtype, ((length, 1),), 1, 0, reach.read, reach.written)
    scalars = {each.name: np.dtype(each.dtype) for each in launch.arguments if each.kind == "scalar"}
    names = tuple(argument.name for argument in launch.arguments)
    on_opencl = launch.language == "opencl"
    # CUDA's arrays of dynamic extent all begin at one place.
    given = launch.local_arguments.values()
    return LaunchPlan(
        name=kernel.name,
        source=launch.text,
        programs=(DeviceProgram(launch.name, names, launch.groups, kernel.local),),
        arrays=arrays,
        scalars=scalars,
        parameters=tuple(sorted(name for name, dtype in scalars.items() if dtype.kind in "iub")),
        local_bytes=launch.local_bytes + (sum(given) if on_opencl else max(given, default=0)),
        assumptions=None,
        most_elements=_MOST_ELEMENTS,
        local_arguments=launch.local_arguments,
        options=tuple(_including(folder, launch.language) for folder in launch.folders),
        written=True,
    )


def _including(folder: str, language: str) -> str:
    # In OpenCL options are one text. Some drivers take quotes for part of the path, so only where it needs them.
    return f'-I "{folder}"' if language == "opencl" and " " in folder else f"-I{folder}"
