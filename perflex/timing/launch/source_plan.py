"""What it takes to launch a kernel: generated from loopy's, or as a kernel in OpenCL C or CUDA C is written."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from perflex.devices.device import API_NAMES
from perflex.errors import MeasurementError, UnsupportedKernelError
from perflex.features.from_source.launching import source_launch, source_program
from perflex.features.from_source.source import SourceKernel
from perflex.timing.launch.plan import ArrayPlan, DeviceProgram, LaunchPlan, plan_launch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.devices.device import Api
    from perflex.features.from_source.launching import SourceLaunch
    from perflex.features.sized_kernel import SizedKernel

_NEEDED = {"cuda": "CuPy (pip install 'perflex[cuda]')", "opencl": "its vendor's OpenCL driver"}
# What OpenCL C's compiler of NVIDIA takes by default, which is less exact than CUDA C++'s in quotients and roots.
_OPENCL_OPTIONS = ("-prec-div=false", "-prec-sqrt=false")

# Options of one compiler, and what stands for them elsewhere; nothing where code is so by default.
_SAME_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "nvrtc": {
        "-cl-fast-relaxed-math": "--use_fast_math", "-cl-mad-enable": "", "-cl-denorms-are-zero": "-ftz=true",
        "-ffast-math": "--use_fast_math",
    },
    "clang": {"--use_fast_math": "-ffast-math", "-use_fast_math": "-ffast-math"},
}  # fmt: skip


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
        written = API_NAMES[launch.language]
        msg = (
            f"{job.label}: kernel {kernel.name!r} is written in {written} C and cannot be launched through "
            f"{API_NAMES[api]}; name a device that {written} reaches, as perflex devices lists them, "
            f"which needs {_NEEDED[launch.language]}"
        )
        raise MeasurementError(msg, kernel=job.label)
    return _plan(kernel, launch)


def compile_plan_of(
    job: SizedKernel, compiler: Literal["nvrtc", "clang"]
) -> tuple[LaunchPlan, Literal["opencl", "cuda", "hip"]]:
    """Return what compiling a kernel takes, and its language; no more is asked of source code, nor launched so.

    Raises
    ------
    MeasurementError
        No code can be generated, or it cannot be written in what the compiler knows.
    MissingSizeError
        A size has no value.
    """
    kernel = job.translation_unit
    if not isinstance(kernel, SourceKernel):
        api: Api = "cuda" if compiler == "nvrtc" else "opencl"
        return plan_launch(kernel, api), api
    try:
        found = source_program(kernel, job.sizes, job.label, compiler)
    except UnsupportedKernelError as error:
        msg = f"{job.label}: {error.message}"
        raise MeasurementError(msg, kernel=job.label) from error
    scalars = {name: np.dtype(dtype) for name, kind, dtype in found.arguments if kind == "scalar"}
    program = DeviceProgram(found.name, tuple(name for name, *_ in found.arguments), found.groups, kernel.local)
    of_nvrtc = _OPENCL_OPTIONS if (kernel.language, compiler) == ("opencl", "nvrtc") else ()
    options = (*of_nvrtc, *(f"-I{folder}" for folder in kernel.folders), *_options_for(kernel, compiler))
    return _written(kernel, found.text, program, {}, scalars, options), found.language


def _written(
    kernel: SourceKernel,
    text: str,
    program: DeviceProgram,
    arrays: Mapping[str, ArrayPlan],
    scalars: Mapping[str, np.dtype[Any]],
    options: tuple[str, ...],
) -> LaunchPlan:
    parameters = tuple(sorted(name for name, dtype in scalars.items() if dtype.kind in "iub"))
    return LaunchPlan(kernel.name, text, (program,), arrays, scalars, parameters, options=options, written=True)


def _options_for(kernel: SourceKernel, compiler: Literal["nvrtc", "clang"]) -> tuple[str, ...]:
    """Return a kernel's options in the words of a compiler; a MeasurementError for those that it has no word for."""
    if (kernel.language, compiler) in {("cuda", "nvrtc"), ("opencl", "clang"), ("hip", "clang")}:
        return kernel.options
    known = _SAME_OPTIONS[compiler]
    if unknown := [option for option in kernel.options if option not in known]:
        msg = f"kernel {kernel.name!r}: {compiler} has no option like {unknown[0]} of {kernel.language}; leave it out"
        raise MeasurementError(msg, kernel=kernel.name)
    return tuple(filter(None, (known[option] for option in kernel.options)))


def names_taken(job: SizedKernel, api: Api) -> tuple[str, ...]:
    """Return the names of sizes and scalars that a launch of a kernel takes; errors as `plan_of`."""
    kernel = job.translation_unit
    if isinstance(kernel, SourceKernel):
        return tuple(
            dict.fromkeys([*kernel.sizes, *(n for n, _, kind in kernel.parameters() if kind.kind == "scalar")])
        )
    plan = plan_launch(kernel, api)
    return tuple(dict.fromkeys([*plan.parameters, *plan.scalars]))


def _plan(kernel: SourceKernel, launch: SourceLaunch) -> LaunchPlan:
    arrays = {}
    for argument in launch.arguments:
        if argument.kind != "array":
            continue
        reach, dtype = launch.arrays[argument.name], np.dtype(argument.dtype)
        length = -(-reach.bytes // dtype.itemsize)
        arrays[argument.name] = ArrayPlan(argument.name, dtype, ((length, 1),), 1, 0, reach.read, reach.written)
    scalars = {each.name: np.dtype(each.dtype) for each in launch.arguments if each.kind == "scalar"}
    program = DeviceProgram(launch.name, tuple(each.name for each in launch.arguments), launch.groups, kernel.local)
    on_opencl = launch.language == "opencl"
    options = (*(() if on_opencl else (f"-I{one}" for one in kernel.folders)), *kernel.options)
    # CUDA's arrays of dynamic extent all begin at one place.
    given = launch.local_arguments.values()
    return replace(
        _written(kernel, launch.text, program, arrays, scalars, options),
        local_bytes=launch.local_bytes + (sum(given) if on_opencl else max(given, default=0)),
        local_arguments=launch.local_arguments,
        by_data=launch.by_data,
    )
