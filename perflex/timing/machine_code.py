"""Machine code of kernels for a GPU that need not be there: compiled by many processes, and kept."""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from perflex.child_process import ChildLostError, RemoteProcess
from perflex.compiled.amd import amd_compiler
from perflex.compiled.nvidia.cubin import compiler_of
from perflex.errors import MachineError, MeasurementError, MissingExtraError, PerflexError
from perflex.features.sized_kernel import sized_kernels
from perflex.machines.files import load_machine
from perflex.progress import progress_shown
from perflex.timing.launch.amd_code import amd_compilation
from perflex.timing.launch.cuda_code import compilation
from perflex.timing.launch.kept_code import keep, kept
from perflex.timing.results import MeasurementFailure

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from perflex.compiled.program import CompiledProgram
    from perflex.features.sized_kernel import SizedKernel
    from perflex.machines.machine import Machine
    from perflex.progress import Progress
    from perflex.timing.launch.amd_code import AmdCompilation
    from perflex.timing.launch.cuda_code import Compilation

Outcome: TypeAlias = "tuple[CompiledProgram, ...] | MeasurementFailure"
_LIMIT_S = 600.0
# How names of AMD's architectures begin.
_AMD = "gfx"


def machine_code(
    kernels: Sequence[Any], machine: str | Path | Machine, progress: bool | Progress | None = None
) -> list[Outcome]:
    """Compile kernels for a GPU of NVIDIA's or AMD's that need not be there.

    Many kernels are compiled by a process for each core. What comes of it is kept in the store, by source
    text, options, architecture and compiler. For NVIDIA's GPUs, kernels in OpenCL C are compiled as CUDA C++; for
    AMD's, by LLVM's clang, those in CUDA C as HIP: as close as that comes to what a driver's compiler makes of them. Of
    code for AMD's GPUs is kept what kernels take, but not their instructions.

    Parameters
    ----------
    kernels
        Measurement kernels, or pairs of a loopy kernel or one of `source_kernel`, and its sizes.
    machine
        What the code is for: a machine, its name, or its file.
    progress
        True for a progress bar; or called with (done, total, what).

    Returns
    -------
        For each kernel, in their order: the code of its device programs, in the order of their launches, as `explain`
        takes it; or a `MeasurementFailure` that says why there is none. Programs whose `digest` is equal compile to the
        same code and are launched alike.

    Raises
    ------
    MachineError
        The machine is no GPU, or its file does not say what code is for.
    MissingExtraError
        NVIDIA's compiler is not installed (extra ``cuda-code``), or nothing that reads source code.
    EnvironmentSetupError
        LLVM's compiler for AMD's GPUs is not installed.
    """
    architecture = architecture_of(load_machine(machine))
    # Without a compiler no kernel would compile.
    (amd_compiler if architecture.startswith(_AMD) else compiler_of)(architecture)
    jobs = sized_kernels(kernels)
    found: list[Outcome] = []
    with progress_shown(progress, "compile:") as report, _Compilers(architecture) as compilers:
        begun: list[Future[tuple[CompiledProgram, ...]]] = []
        for job in jobs:
            _tell(report, begun, len(jobs), job)
            begun.append(compilers.begin(job))
        for job, future in zip(jobs, begun, strict=True):
            _tell(report, begun, len(jobs), job)
            try:
                found.append(future.result())
            except MissingExtraError:
                raise  # what reads source code is not installed
            except PerflexError as error:
                found.append(MeasurementFailure(job.label, error.message, "prepare", error))
    return found


def architecture_of(machine: Machine) -> str:
    """Return what code is compiled for on a machine, as ``"sm_90"`` or ``"gfx90a"``."""
    if machine.kind == "gpu" and machine.target is not None:
        return machine.target
    if machine.kind == "gpu" and machine.compute_capability is not None:
        return f"sm_{machine.compute_capability:.1f}".replace(".", "")
    msg = (
        f"code is compiled for GPUs of NVIDIA and AMD, and machine {machine.name} says of neither what it is compiled "
        "for; give a machine file that states compute_capability or target"
    )
    raise MachineError(msg, machine=machine.name)


def _tell(report: Progress | None, begun: Sequence[Future[Any]], total: int, job: SizedKernel) -> None:
    if report is not None:
        report(sum(one.done() for one in begun), total, job.label)


class _Compilers:
    """Processes that compile, each of them asked by a thread; they end with the block."""

    def __init__(self, architecture: str) -> None:
        self._architecture = architecture
        self._pool = ThreadPoolExecutor(os.cpu_count() or 1)
        self._started: list[RemoteProcess] = []
        self._idle: list[RemoteProcess] = []
        self._over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # After an interrupt, say, nobody waits for what is at work.
        self._over = kind is not None
        if self._over:
            for process in self._started:
                process.kill()
        self._pool.shutdown(cancel_futures=self._over)
        for process in self._started:
            process.end()

    def begin(self, job: SizedKernel) -> Future[tuple[CompiledProgram, ...]]:
        """Generate a kernel's code, and have it compiled if it was not before."""
        try:
            make = amd_compilation if self._architecture.startswith(_AMD) else compilation
            one = make(job, self._architecture)
        except PerflexError as error:
            failed: Future[tuple[CompiledProgram, ...]] = Future()
            failed.set_exception(error)
            return failed
        # The store in use is that of this thread.
        return self._pool.submit(copy_context().run, self._code, one)

    def _code(self, one: Compilation | AmdCompilation) -> tuple[CompiledProgram, ...]:
        found: Any = kept(one.key, one.made)
        if found is None:
            found = self._compiled(one)
            keep(one.key, found)
        return one.code(found)

    def _compiled(self, one: Compilation | AmdCompilation) -> Any:
        try:
            process = self._taken()
            found = process.call(one.make, *one.arguments, limit_s=_LIMIT_S)
        except (OSError, ChildLostError) as error:
            msg = f"{one.request.label}: the compiler gave nothing: {error}"
            raise MeasurementError(msg, kernel=one.request.label) from error
        self._idle.append(process)
        return found

    def _taken(self) -> RemoteProcess:
        with suppress(IndexError):
            return self._idle.pop()
        process = RemoteProcess()
        self._started.append(process)
        if self._over:
            process.kill()
        return process
