"""Kernels of HeCBench that are known exactly, with the GPU's own durations (``hecbench_rtx3080``)."""

from __future__ import annotations

import multiprocessing
import signal
import tarfile
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hecbench

from perflex import load_machine
from perflex.errors import FileFormatError, PerflexError
from perflex.features import Target
from perflex.features.from_source.parsing import clang
from perflex.features.values import feature_values

from .rows import MeasuredRow

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from perflex.features import Scop

# Seconds that a kernel may take to be read and counted.
LIMIT_S = 40


def rows(folder: Path, workers: int = 2) -> Iterator[MeasuredRow]:
    """Yield kernels of which every loop, guard, subscript and size is known; what takes longer is left out.

    The machine file in the folder has the clock that Nsight Compute locked.
    """
    beside = [up / "kernel_sources" / "hecbench.tar.gz" for up in folder.parents[:3]]
    archive = next((one for one in beside if one.is_file()), None)
    machine = next(folder.glob("*.yaml"), None)
    if archive is None or machine is None:
        msg = f"no kernel_sources/hecbench.tar.gz beside {folder}, or no machine file in it"
        raise FileFormatError(msg, path=folder)
    with ExitStack() as stack:
        sources = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        with tarfile.open(archive) as packed:
            packed.extractall(sources, filter="data")
        clang()  # Its library is loaded once.
        cases = [case for case in hecbench.cases_of(folder, sources) if case.launch == "same"]
        pool = stack.enter_context(multiprocessing.get_context("fork").Pool(workers))
        tasks = [(case, sources, machine) for case in cases]
        seen: set[str] = set()
        for case, found in zip(cases, pool.imap(_read, tasks), strict=True):
            if found is None or case.key in seen:
                continue
            seen.add(case.key)
            label = f"{case.program} {case.name} grid={case.groups} block={case.local} {len(seen)}"
            yield MeasuredRow(
                data="hecbench", gpu=machine.stem, machine=str(machine), program=case.program,
                case=f"{case.program} {case.kernel}", label=label, launches=((*found, 1),), seconds=case.time_s,
                warm=False, timed="gpu", least_seconds=0.0,
            )  # fmt: skip


def _read(task: tuple[hecbench.Case, Path, Path]) -> tuple[Scop, Mapping[str, int]] | None:
    """Return a kernel and its sizes; None where it is not known exactly, or takes too long."""
    case, sources, machine = task
    signal.signal(signal.SIGALRM, _over)
    signal.alarm(LIMIT_S)
    try:
        kernel = hecbench.opened(case, sources)
        sizes, known = hecbench.sizes_of(case, kernel)
        if not known or kernel.unstated(sizes):
            return None
        scop = kernel.scop(sizes)
        if any(statement.guarded for statement in scop.statements):
            return None
        # Counts are kept, and found again where all rows are counted.
        feature_values(("f_peak_dram", "f_peak_latency"), scop, sizes, Target(machine=load_machine(machine)))
    except (PerflexError, TimeoutError):
        return None
    finally:
        signal.alarm(0)
    return scop, sizes


def _over(*_: Any) -> None:
    raise TimeoutError
