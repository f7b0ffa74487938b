"""Machine code of kernels for NVIDIA's GPUs: compiled by NVRTC for an architecture, with or without such a device."""

from __future__ import annotations

import base64
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perflex.compiled.nvidia.cubin import Compiled, GpuCode, compile_cuda, compiler_of
from perflex.compiled.program import Argument, CompiledProgram
from perflex.errors import MeasurementError
from perflex.machines.residency import resources_in_log
from perflex.timing.launch.kept_code import keep, kept, place_of
from perflex.timing.launch.plan import size_launch
from perflex.timing.launch.source_plan import compile_plan_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from perflex.features.sized_kernel import SizedKernel
    from perflex.timing.launch.plan import Code, SizedLaunch

OPTIONS = ("--std=c++17", "--ptxas-options=-v")
"""Of the compiler, for every kernel."""
# What CuPy adds to the options it is given, and what changes code among it.
ADDED = ("-ftz=true",)
_MESSAGE_LINES = 4


@dataclass(frozen=True)
class Compilation:
    """A kernel to be compiled, with what NVRTC is given and the file where what comes of it is kept."""

    label: str
    arguments: tuple[str, str, tuple[str, ...], tuple[str, ...]]
    place: Path
    programs: Sequence[tuple[str, tuple[str, ...]]]
    launch: SizedLaunch
    make = staticmethod(compile_cuda)

    def kept(self) -> Compiled | None:
        """Return what was compiled before of the same text; None where nothing is kept."""
        found = kept(self.place)
        with suppress(KeyError, TypeError, ValueError):
            return Compiled(base64.b64decode(found["cubin"]), found["log"], found["names"])
        return None

    def keep(self, made: Compiled) -> None:
        """Keep what was compiled."""
        keep(self.place, {"cubin": base64.b64encode(made.cubin).decode(), "log": made.log, "names": dict(made.names)})

    def code(self, compiled: Compiled) -> tuple[CompiledProgram, ...]:
        """Return the code of its device programs; a MeasurementError where it does not compile."""
        architecture = self.arguments[1]
        if not compiled.cubin:
            raise why_not(self.label, architecture, compiled.log)
        told = resources_in_log(compiled.log)
        found = []
        for (name, arguments), grid in zip(self.programs, self.launch.grids, strict=True):
            entry = compiled.names.get(name, name)
            spilt = told[entry].spill_bytes if entry in told else None
            gpu = GpuCode(architecture, compiled.cubin, entry, grid.groups, grid.work_group, spilt)
            given = tuple(argument_of(self.launch, argument) for argument in arguments)
            found.append(CompiledProgram(name, "cuda", (), given, gpu))
        return tuple(found)


def compilation(job: SizedKernel, architecture: str) -> Compilation:
    """Return what compiling a kernel takes; errors as `compile_plan_of`."""
    plan, _ = compile_plan_of(job, "nvrtc")
    launch = size_launch(plan, job.sizes, job.label)
    names = [(program.name, program.argument_names) for program in plan.programs]
    return _compilation(plan.code, names, launch, architecture, job.label)


def _compilation(
    code: Code, programs: Sequence[tuple[str, tuple[str, ...]]], launch: SizedLaunch, architecture: str, label: str
) -> Compilation:
    added = () if any(option.startswith("-ftz=") for option in code.options) else ADDED
    arguments = code.source, architecture, (*OPTIONS, *added, *code.options), code.kernels
    return Compilation(label, arguments, place_of(*arguments, compiler_of(architecture).version), programs, launch)


def cuda_programs(
    code: Code, programs: Sequence[tuple[str, tuple[str, ...]]], launch: SizedLaunch, architecture: str, label: str
) -> tuple[CompiledProgram, ...]:
    """Compile CUDA C++ and return the code of its kernels."""
    return compiled_here(_compilation(code, programs, launch, architecture, label))


def compiled_here(one: Compilation) -> tuple[CompiledProgram, ...]:
    """Compile in this process what is not kept, and return the code."""
    found = one.kept()
    if found is None:
        found = one.make(*one.arguments)
        one.keep(found)
    return one.code(found)


def why_not(label: str, architecture: str, log: str) -> MeasurementError:
    """Return what a compiler says of a kernel that it does not compile."""
    lines = [line.strip() for line in log.splitlines() if "error" in line][:_MESSAGE_LINES]
    if any('class "cl_vec<' in line and "has no member" in line for line in lines):
        # Before, its C++ has no structures without a name.
        lines = ["OpenCL C with elements of vectors (.x, .s0) needs NVRTC 13 or newer, which is for sm_75 and newer"]
    msg = f"{label}: does not compile for {architecture}: {' | '.join(lines)}"
    return MeasurementError(msg, kernel=label, log=log)


def argument_of(launch: SizedLaunch, name: str) -> Argument:
    """Return an argument of a program that is launched."""
    scalar = launch.scalars.get(name)
    return Argument(name, 8, is_array=True) if scalar is None else Argument(name, scalar.dtype.itemsize, is_array=False)
