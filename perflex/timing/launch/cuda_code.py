"""Machine code of kernels for NVIDIA's GPUs: compiled by NVRTC for an architecture, with or without such a device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from perflex.compiled.nvidia.cubin import Compiled, GpuCode, compile_cuda, compiler_of
from perflex.compiled.program import CompiledProgram
from perflex.errors import MeasurementError
from perflex.machines.residency import resources_in_log
from perflex.timing.launch.kept_code import key_of
from perflex.timing.launch.request import size_launch
from perflex.timing.launch.source_plan import compile_plan_of

if TYPE_CHECKING:
    from perflex.features.sized_kernel import SizedKernel
    from perflex.timing.launch.request import LaunchRequest

# Functions and methods without a word for it run on the device: such as are constant expressions, too.
OPTIONS = ("--std=c++17", "-default-device", "--ptxas-options=-v")
"""Of the compiler, for every kernel."""
_MESSAGE_LINES = 4


@dataclass(frozen=True)
class Compilation:
    """A kernel to be compiled, with what NVRTC is given and the key under which what comes of it is kept."""

    request: LaunchRequest
    arguments: tuple[str, str, tuple[str, ...], tuple[str, ...]]
    key: str
    make, made = staticmethod(compile_cuda), Compiled

    def code(self, compiled: Compiled) -> tuple[CompiledProgram, ...]:
        """Return the code of its device programs; a MeasurementError where it does not compile."""
        architecture = self.arguments[1]
        if not compiled.cubin:
            raise why_not(self.request.label, architecture, compiled.log)
        return programs_in(compiled, self.request, architecture)


def compilation(job: SizedKernel, architecture: str) -> Compilation:
    """Return what compiling a kernel takes; errors as `compile_plan_of`."""
    plan, _ = compile_plan_of(job, "nvrtc")
    arguments = plan.source, architecture, (*OPTIONS, *plan.options), plan.code.kernels
    key = key_of(*arguments, compiler_of(architecture).version)
    return Compilation(size_launch(plan, job.sizes, job.label), arguments, key)


def programs_in(compiled: Compiled, request: LaunchRequest, architecture: str) -> tuple[CompiledProgram, ...]:
    """Return the code of each device program of a launch."""
    told = resources_in_log(compiled.log)
    found = []
    for program in request.programs:
        entry = compiled.names.get(program.name, program.name)
        spilt = told[entry].spill_bytes if entry in told else None
        gpu = GpuCode(architecture, compiled.cubin, entry, program.groups, program.work_group, spilt)
        found.append(CompiledProgram(program.name, "cuda", (), request.arguments_of(program), gpu))
    return tuple(found)


def why_not(label: str, architecture: str, log: str) -> MeasurementError:
    """Return what a compiler says of a kernel that it does not compile."""
    lines = [line.strip() for line in log.splitlines() if "error" in line][:_MESSAGE_LINES]
    if any('class "cl_vec<' in line and "has no member" in line for line in lines):
        # Before, its C++ has no structures without a name.
        lines = ["OpenCL C with elements of vectors (.x, .s0) needs NVRTC 13 or newer, which is for sm_75 and newer"]
    msg = f"{label}: does not compile for {architecture}: {' | '.join(lines)}"
    return MeasurementError(msg, kernel=label, log=log)
