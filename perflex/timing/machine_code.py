"""Machine code of kernels for a GPU that need not be there: compiled by many processes, and kept."""

from __future__ import annotations

import os
import pickle
from typing import TYPE_CHECKING, Any, TypeAlias

from perflex.child_process import process_pool
from perflex.compiled.nvidia.cubin import compiler_of
from perflex.errors import MissingExtraError, PerflexError
from perflex.features.sized_kernel import SizedKernel, sized_kernels
from perflex.machines.files import load_machine
from perflex.progress import RunOptions, progress_shown
from perflex.timing.launch.cuda_code import architecture_of, code_for_machine
from perflex.timing.results import MeasurementFailure
from perflex.workers import made_by

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Executor
    from pathlib import Path

    from perflex.compiled.program import CompiledProgram
    from perflex.machines.machine import Machine

# Kernels whose compilation takes as long as a process to begin.
_WORTH_A_PROCESS = 4

Outcome: TypeAlias = "tuple[CompiledProgram, ...] | MeasurementFailure"


def machine_code(kernels: Sequence[Any], machine: str | Path | Machine, run: RunOptions | None = None) -> list[Outcome]:
    """Compile kernels for a GPU of NVIDIA's that need not be there.

    Many kernels are compiled by a process for each core. Code stays in perflex's cache folder, by source text, options,
    architecture and compiler. Kernels in OpenCL C are compiled through CUDA C++, and never launched so.

    Parameters
    ----------
    kernels
        Measurement kernels, or pairs of a loopy kernel or one of `source_kernel`, and its sizes.
    machine
        What the code is for: a machine, its name, or its file.
    run
        Workers to use instead, and who is told of progress.

    Returns
    -------
        For each kernel, in their order: the code of its device programs, in the order of their launches, as `explain`
        takes it; or a `MeasurementFailure` that says why there is none. Programs whose `digest` is equal compile to the
        same code and are launched alike.

    Raises
    ------
    MachineError
        The machine is no GPU of NVIDIA's.
    MissingExtraError
        No compiler for it is installed (extra ``cuda-code``).
    """
    target, run = load_machine(machine), run or RunOptions()
    run.refuse_measuring("nothing is timed")
    # Without a compiler no kernel would compile.
    compiler_of(architecture_of(target))
    jobs = sized_kernels(kernels)
    found: list[Outcome] = []
    with progress_shown(run.progress, "compile:") as progress:
        outcomes = _all(jobs, target, run.executor)
        for number, job in enumerate(jobs):
            if progress is not None:
                progress(number, len(jobs), job.label)
            found.append(next(outcomes))
    return found


def _all(jobs: Sequence[SizedKernel], machine: Machine, executor: Executor | None) -> Iterator[Outcome]:
    """Yield what comes of each kernel, by the workers of an executor; in processes where that is worth it."""
    if executor is None and len(jobs) >= _WORTH_A_PROCESS and (os.cpu_count() or 1) > 1:
        with process_pool() as pool:
            yield from _all(jobs, machine, pool)
        return
    if executor is None:
        yield from (_outcome(job, machine) for job in jobs)
        return
    sent = [job for job in jobs if _can_be_sent(job)]
    made = made_by(executor, _outcome, ((job, machine) for job in sent))
    for job in jobs:
        yield next(made) if job in sent else _outcome(job, machine)


def _can_be_sent(job: SizedKernel) -> bool:
    """Return whether a kernel can go to another process: what a user's script makes may not."""
    try:
        pickle.dumps(job)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False
    return True


def _outcome(job: SizedKernel, machine: Machine) -> Outcome:
    try:
        return code_for_machine(job, machine)
    except MissingExtraError:
        raise  # what reads kernels is not installed
    except PerflexError as error:
        return MeasurementFailure(job.label, error.message, "prepare", error)
