"""Machine code of kernels that were built for a CPU through OpenCL, read from the program's binary."""

from __future__ import annotations

import os
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyopencl as cl

from perflex.compiled import layout
from perflex.compiled.elf import elf_object, inner_objects
from perflex.compiled.program import CompiledProgram
from perflex.devices.device import is_pocl
from perflex.errors import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perflex.compiled.elf import Function
    from perflex.devices.device import Device
    from perflex.timing.launch.plan import DeviceProgram
    from perflex.timing.launch.request import LaunchRequest

# From so many work-items along an axis on, PoCL compiles for grids of any size (its limit of small grids).
_POCL_SMALL = 65535


def runtime_of(device: Device) -> str:
    """Return ``"intel"`` or ``"pocl"``, the runtimes whose program binaries are understood; empty for others."""
    if device.kind != "cpu" or device.api != "opencl":
        return ""
    if is_pocl(device.platform):
        return "pocl"
    return "intel" if "intel" in device.platform.lower() else ""


def compiled_for(request: LaunchRequest, device: Device) -> str:
    """Return what has to be set so that a program's binary has the code that runs; empty where nothing has."""
    if runtime_of(device) != "pocl":
        return ""
    return ",".join(dict.fromkeys(map(specialised, request.programs)))


def specialised(program: DeviceProgram) -> str:
    """Return what PoCL calls code for a work-group's size, without global offset."""
    sides = "-".join(map(str, [*program.work_group, 1, 1][:3]))
    return f"{sides}-goffs0{'-smallgrid' if max(program.items) < _POCL_SMALL else ''}"


# PoCL puts functions for these work-groups into a program's binary; others it makes when a kernel is launched. It reads
# this once in a process.
_POCL_GROUPS = "POCL_BINARY_SPECIALIZE_WG"


def programs_in(program: Any, device: Device, request: LaunchRequest) -> tuple[CompiledProgram, ...]:
    """Return the machine code of each device program of a kernel."""
    runtime = runtime_of(device)
    if not runtime:
        msg = (
            f"{request.label}: the compiled code of {device} cannot be read, only that of Intel's CPU runtime and of "
            "PoCL; use a model without f_code features"
        )
        raise MeasurementError(msg, kernel=request.label, device=device)
    with _variable(_POCL_GROUPS, compiled_for(request, device)):
        binary = bytes(program.get_info(cl.program_info.BINARIES)[0])
        first = request.programs[0]
        # PoCL's code is for this work-group; Intel's for any, here with sides that differ, scalars beside vectors.
        work_group = first.work_group if runtime == "pocl" else (67, 5, 3)
        context = program.get_info(cl.program_info.CONTEXT)
        if not _layout_is_known(context, runtime, specialised(first), work_group):
            msg = (
                f"{request.label}: {device} passes arguments or sides of work-groups to compiled code in another way "
                "than perflex knows; update perflex, or use a model without f_code features"
            )
            raise MeasurementError(msg, kernel=request.label, device=device)
    found = []
    for one in request.programs:
        functions = _functions(binary, runtime, one.name, specialised(one))
        code = CompiledProgram(one.name, runtime, functions, request.arguments_of(one))
        if not code.parts(one.work_group):
            msg = f"{request.label}: the program binary of {device} has no machine code of {one.name}; update perflex"
            raise MeasurementError(msg, kernel=request.label, device=device)
        found.append(code)
    return tuple(found)


@lru_cache(maxsize=16)
def _layout_is_known(context: Any, runtime: str, work_group_name: str, work_group: tuple[int, ...]) -> bool:
    """Return whether code built in a context finds what it is passed where it is looked for."""
    binary = bytes(cl.Program(context, layout.SOURCE).build().get_info(cl.program_info.BINARIES)[0])
    functions = _functions(binary, runtime, layout.NAME, work_group_name)
    return layout.is_as_expected(CompiledProgram(layout.NAME, runtime, functions, layout.ARGUMENTS), work_group)


def _functions(binary: bytes, runtime: str, name: str, work_group_name: str) -> tuple[Function, ...]:
    if runtime != "pocl":
        return tuple(function for one in inner_objects(binary) for function in one.functions())
    # Files lie in the binary one after another, each behind its path.
    place = binary.find(f"/{name}/{work_group_name}/{name}.so".encode())
    found = elf_object(binary, binary.find(b"\x7fELF", place)) if place >= 0 else None
    return () if found is None else tuple(found.functions())


@contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    """Set an environment variable in the block, for drivers that look when they are asked."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
