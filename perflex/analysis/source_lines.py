"""A kernel's source beside its numbers: what each line does, and how much of the predicted time goes with it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from msgspec import structs

from perflex.features import counts_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from perflex.calibration.calibration import Calibration
    from perflex.features import SourceKernel
    from perflex.features.scop.scop import Scop, Statement
    from perflex.machines.machine import Machine


@dataclass(frozen=True)
class SourceLine:
    """What a line of a kernel's source does, in all work-items together."""

    # Its number; 0 stands for all lines of headers.
    line: int
    text: str
    # Loads and stores of global and constant memory.
    accesses: float
    bytes: float
    # Loads and stores of local (shared) memory.
    local_accesses: float
    # Arithmetic operations; a multiply-add is one.
    operations: float
    # By how much of itself the predicted time is shorter without the line: what overlaps with other lines saves
    # nothing, so that shares need not add up to one. None without a calibration.
    share: float | None = None


def source_lines(
    kernel: SourceKernel,
    sizes: Mapping[str, int],
    calibration: Calibration | None = None,
    *,
    machine: str | Path | Machine | None = None,
) -> tuple[SourceLine, ...]:
    """Return what the lines of a kernel do that access memory or compute, in their order.

    Parameters
    ----------
    kernel
        A kernel that `source_kernel` returned.
    sizes
        Value of each size parameter.
    calibration
        Predicts the kernel with and without each line.
    machine
        For features that need one, as for `Calibration.predict`.

    Raises
    ------
    UnsupportedKernelError
        The kernel cannot be described, or the calibration's model reads compiled code.
    """
    scop = kernel.scop(sizes)
    text = kernel.source.splitlines()
    by_line: dict[int, list[Statement]] = {}
    for statement in scop.statements:
        by_line.setdefault(int(statement.line) if statement.line.isdigit() else 0, []).append(statement)
    whole = _predicted(scop, sizes, calibration, machine)
    lines = []
    for line, own in sorted(by_line.items()):
        written = text[line - 1].strip() if 0 < line <= len(text) else "(headers)"
        found_line = _counted(SourceLine(line, written, 0, 0, 0, 0), scop, own, sizes)
        if not found_line.accesses + found_line.local_accesses + found_line.operations:
            continue
        if calibration is not None and whole:
            rest = structs.replace(scop, statements=tuple(one for one in scop.statements if one not in own))
            found_line = replace(found_line, share=1 - _predicted(rest, sizes, calibration, machine) / whole)
        lines.append(found_line)
    return tuple(lines)


def _counted(line: SourceLine, scop: Scop, own: list[Statement], sizes: Mapping[str, int]) -> SourceLine:
    counts = counts_of(scop)
    for statement in own:
        times = float(counts.instances(statement).evaluate(sizes))
        arrays = [scop.array(access.array) for access in statement.accesses]
        shared = [array for array in arrays if array.space == "local"]
        line = replace(
            line,
            accesses=line.accesses + times * (len(arrays) - len(shared)),
            bytes=line.bytes + times * sum(array.itemsize for array in arrays if array.space != "local"),
            local_accesses=line.local_accesses + times * len(shared),
            operations=line.operations + times * sum(float(one.count) for one in statement.operations),
        )
    return line


def _predicted(
    scop: Scop, sizes: Mapping[str, int], calibration: Calibration | None, machine: str | Path | Machine | None
) -> float:
    if calibration is None:
        return 0.0
    return float(calibration.evaluate(calibration.feature_values(scop, sizes, machine=machine)))
