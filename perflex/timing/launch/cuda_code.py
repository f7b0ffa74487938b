"""Machine code of kernels for NVIDIA's GPUs: compiled by NVRTC for an architecture, with or without such a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perflex.compiled.nvidia.compiler import compile_cuda
from perflex.compiled.nvidia.cubin import GpuCode
from perflex.compiled.program import Argument, CompiledProgram
from perflex.errors import MachineError, MeasurementError
from perflex.machines.resources import resources_in_log
from perflex.timing.launch.plan import plan_launch
from perflex.timing.launch.sizes import size_launch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.features.sized_kernel import SizedKernel
    from perflex.machines.machine import Machine
    from perflex.timing.launch.sizes import SizedLaunch

OPTIONS = ("--std=c++17", "--ptxas-options=-v")
"""Of the compiler, for every kernel."""
# What CuPy adds to the options it is given, and what changes code among it.
ADDED = ("-ftz=true",)
_MESSAGE_LINES = 4


def architecture_of(machine: Machine) -> str:
    """Return what code is compiled for on a machine, as ``"sm_90"``.

    Raises
    ------
    MachineError
        The machine is no NVIDIA GPU, or its compute capability is not known.
    """
    if machine.kind != "gpu" or "nvidia" not in machine.vendor.lower():
        msg = f"code is compiled for NVIDIA's GPUs only, not for {machine.name}; name a machine that is one"
        raise MachineError(msg, machine=machine.name)
    return f"sm_{machine.need('compute_capability'):.1f}".replace(".", "")


def code_for_machine(job: SizedKernel, machine: Machine) -> tuple[CompiledProgram, ...]:
    """Compile a kernel for a machine that need not be there, and return the code of its device programs.

    Raises
    ------
    MeasurementError
        No code can be generated, it does not compile, or the sizes do not fit the kernel.
    MissingSizeError
        A size parameter has no value.
    MachineError
        The machine is none that code is compiled for.
    MissingExtraError
        The compiler is not installed, or makes no code for the machine.
    """
    architecture = architecture_of(machine)
    plan = plan_launch(job.translation_unit, "cuda")
    launch = size_launch(plan, job.sizes, job.label)
    names = [(program.name, program.argument_names) for program in plan.programs]
    return cuda_programs(plan.source, names, launch, architecture, job.label)


def cuda_programs(
    source: str,
    programs: Sequence[tuple[str, tuple[str, ...]]],
    launch: SizedLaunch,
    architecture: str,
    label: str,
) -> tuple[CompiledProgram, ...]:
    """Compile CUDA C++ and return the code of its kernels.

    Parameters
    ----------
    source
        The code.
    programs
        Name and argument names of each kernel.
    launch
        Their grids and scalars.
    architecture
        As ``"sm_90"``.
    label
        Which kernel it is, for messages.

    Raises
    ------
    MeasurementError
        It does not compile.
    MissingExtraError
        The compiler is not installed, or makes no code for the architecture.
    """
    compiled = compile_cuda(source, architecture, (*OPTIONS, *ADDED))
    if not compiled.cubin:
        lines = [line.strip() for line in compiled.log.splitlines() if "error" in line][:_MESSAGE_LINES]
        msg = f"{label}: does not compile for {architecture}: {' | '.join(lines)}"
        raise MeasurementError(msg, kernel=label, log=compiled.log)
    told = resources_in_log(compiled.log)
    return tuple(
        CompiledProgram(
            name,
            "cuda",
            (),
            tuple(_argument(launch, argument) for argument in arguments),
            GpuCode(
                architecture,
                compiled.cubin,
                name,
                grid.groups,
                grid.work_group,
                told[name].spill_bytes if name in told else None,
            ),
        )
        for (name, arguments), grid in zip(programs, launch.grids, strict=True)
    )


def _argument(launch: SizedLaunch, name: str) -> Argument:
    scalar = launch.scalars.get(name)
    return Argument(name, 8, is_array=True) if scalar is None else Argument(name, scalar.dtype.itemsize, is_array=False)
