"""Machine code of kernels for NVIDIA's GPUs: compiled by NVRTC for an architecture, with or without such a device."""

from __future__ import annotations

import base64
from contextlib import suppress
from typing import TYPE_CHECKING

from perflex.compiled.nvidia.cubin import Compiled, GpuCode, compile_cuda, compiler_of
from perflex.compiled.program import Argument, CompiledProgram
from perflex.errors import MachineError, MeasurementError
from perflex.machines.residency import resources_in_log
from perflex.timing.launch.kept_code import keep, kept, place_of
from perflex.timing.launch.plan import size_launch
from perflex.timing.launch.source_plan import compile_plan_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.features.sized_kernel import SizedKernel
    from perflex.machines.machine import Machine
    from perflex.timing.launch.plan import Code, SizedLaunch

OPTIONS = ("--std=c++17", "--ptxas-options=-v")
"""Of the compiler, for every kernel."""
# What CuPy adds to the options it is given, and what changes code among it.
ADDED = ("-ftz=true",)
_MESSAGE_LINES = 4


def architecture_of(machine: Machine) -> str:
    """Return what code is compiled for on a machine, as ``"sm_90"``."""
    if machine.kind != "gpu" or "nvidia" not in machine.vendor.lower():
        msg = f"code is compiled for NVIDIA's GPUs only, not for {machine.name}; name a machine that is one"
        raise MachineError(msg, machine=machine.name)
    return f"sm_{machine.need('compute_capability'):.1f}".replace(".", "")


def code_for_machine(job: SizedKernel, machine: Machine) -> tuple[CompiledProgram, ...]:
    """Compile a kernel for a machine that need not be there, and return the code of its device programs."""
    architecture = architecture_of(machine)
    plan = compile_plan_of(job)
    launch = size_launch(plan, job.sizes, job.label)
    names = [(program.name, program.argument_names) for program in plan.programs]
    return cuda_programs(plan.code, names, launch, architecture, job.label)


def cuda_programs(
    code: Code, programs: Sequence[tuple[str, tuple[str, ...]]], launch: SizedLaunch, architecture: str, label: str
) -> tuple[CompiledProgram, ...]:
    """Compile CUDA C++ and return the code of its kernels."""
    compiled = _compiled(code, architecture)
    if not compiled.cubin:
        lines = [line.strip() for line in compiled.log.splitlines() if "error" in line][:_MESSAGE_LINES]
        msg = f"{label}: does not compile for {architecture}: {' | '.join(lines)}"
        raise MeasurementError(msg, kernel=label, log=compiled.log)
    told = resources_in_log(compiled.log)
    found = []
    for (name, arguments), grid in zip(programs, launch.grids, strict=True):
        entry = compiled.names.get(name, name)
        spilt = told[entry].spill_bytes if entry in told else None
        gpu = GpuCode(architecture, compiled.cubin, entry, grid.groups, grid.work_group, spilt)
        given = tuple(_argument(launch, argument) for argument in arguments)
        found.append(CompiledProgram(name, "cuda", (), given, gpu))
    return tuple(found)


def _compiled(code: Code, architecture: str) -> Compiled:
    """Compile, or take what was compiled of the same text."""
    added = () if any(option.startswith("-ftz=") for option in code.options) else ADDED
    options = (*OPTIONS, *added, *code.options)
    place = place_of(code.source, options, code.kernels, architecture, compiler_of(architecture).version)
    found = kept(place)
    with suppress(KeyError, TypeError, ValueError):
        return Compiled(base64.b64decode(found["cubin"]), found["log"], found["names"])
    made = compile_cuda(code.source, architecture, options, code.kernels)
    keep(place, {"cubin": base64.b64encode(made.cubin).decode(), "log": made.log, "names": dict(made.names)})
    return made


def _argument(launch: SizedLaunch, name: str) -> Argument:
    scalar = launch.scalars.get(name)
    return Argument(name, 8, is_array=True) if scalar is None else Argument(name, scalar.dtype.itemsize, is_array=False)
