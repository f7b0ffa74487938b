"""A kernel's source beside its numbers: what each line does, and how much of the predicted time goes with it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from msgspec import structs

from perflex.features import Certainty, counts_of
from perflex.features.counting.touched import certainty_of_access, certainty_of_statement
from perflex.html import shown_by
from perflex.tables import Table, fixed, percent, text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from perflex.calibration.calibration import Calibration
    from perflex.features import SourceKernel
    from perflex.features.scop.scop import Scop, Statement
    from perflex.machines.machine import Machine


@dataclass(frozen=True)
class SourceLine:
    """What a line of a kernel's source does, in all work-items together.

    Attributes
    ----------
    line, text
        Its number, and what stands there; 0 stands for all lines of headers.
    operations
        Arithmetic operations; a multiply-add is one.
    accesses, bytes
        Loads and stores of elements of global and constant memory, and their bytes.
    local_accesses
        Loads and stores of elements of local (shared) memory.
    certainty
        Whether these are exact, upper bounds, or rest on what the user stated.
    share
        By how much of itself the predicted time is shorter without the line: what overlaps with other lines saves
        nothing, so that shares need not add up to one. None without a calibration.
    """

    line: int
    text: str
    operations: float = 0.0
    accesses: float = 0.0
    bytes: float = 0.0
    local_accesses: float = 0.0
    certainty: Certainty = field(default_factory=Certainty)
    share: float | None = None

    @property
    def exact(self) -> bool:
        """Whether the counts are exact."""
        return self.certainty.exact


class SourceLines(list[SourceLine]):
    """Lines of a kernel: a list that notebooks show as a table."""

    def table(self) -> Table:
        """Return a row for each line; without accesses of local memory, and without a calibration, columns less."""
        columns = [
            fixed("line"),
            text("text", "source", code=True),
            fixed("operations", meaning="of all work-items together; a multiply-add is one"),
            fixed("accesses", meaning="loads and stores of elements of global and constant memory"),
            fixed("bytes"),
            fixed("local_accesses", meaning="loads and stores of elements of local memory"),
            percent("share", meaning="by how much the predicted time is shorter without the line"),
            text("certainty", "remarks"),
        ]
        local = any(line.local_accesses for line in self)
        return Table("Lines of the source", columns, [
            (
                one.line or None, one.text, one.operations, one.accesses, one.bytes,
                one.local_accesses if local else None, one.share, "" if one.exact else str(one.certainty),
            )
            for one in self
        ])  # fmt: skip

    _repr_html_ = shown_by("result.html")


def source_lines(
    kernel: SourceKernel,
    sizes: Mapping[str, int],
    calibration: Calibration | None = None,
    *,
    machine: str | Path | Machine | None = None,
) -> SourceLines:
    """Return what the lines of a kernel do that access memory or compute, in their order.

    Parameters
    ----------
    kernel
        A kernel that `source_kernel` returned. What a statement of several lines does stands in its first line.
    sizes
        Value of each size parameter.
    calibration
        Predicts the kernel with and without each line.
    machine
        For features that need one, as for `Calibration.predict`.

    Raises
    ------
    MissingSizeError
        A size has no value, or one that the kernel is not valid for.
    UnsupportedKernelError
        The kernel cannot be described, or the calibration's model reads compiled code.
    """
    scop = kernel.scop(sizes)
    checked = scop.checked(sizes)
    text = kernel.source.splitlines()
    found: dict[int, SourceLine] = {}
    for statement in scop.statements:
        times = float(counts_of(scop).instances(statement).evaluate(checked))
        number = _number(statement)
        written = text[number - 1].strip() if 0 < number <= len(text) else "(headers)"
        found[number] = _with(found.get(number, SourceLine(number, written)), scop, statement, times)
    lines = SourceLines(
        one for _, one in sorted(found.items()) if one.operations + one.accesses + one.local_accesses > 0
    )
    whole = _predicted(scop, sizes, calibration, machine)
    for place, one in enumerate(lines if whole else ()):
        others = tuple(statement for statement in scop.statements if _number(statement) != one.line)
        rest = _predicted(structs.replace(scop, statements=others), sizes, calibration, machine)
        lines[place] = replace(one, share=1 - rest / whole)
    return lines


def _number(statement: Statement) -> int:
    return int(statement.line) if statement.line.isdigit() else 0


def _with(line: SourceLine, scop: Scop, statement: Statement, times: float) -> SourceLine:
    """Return a line with what a statement in it does, which is executed so many times."""
    # Arrays of a work-item's own are registers.
    accesses = [access for access in statement.accesses if scop.array(access.array).space != "private"]
    arrays = [scop.array(access.array) for access in accesses]
    far = [array.itemsize for array in arrays if array.space != "local"]
    return replace(
        line,
        operations=line.operations + times * sum(operation.count for operation in statement.operations),
        accesses=line.accesses + times * len(far),
        bytes=line.bytes + times * sum(far),
        local_accesses=line.local_accesses + times * (len(arrays) - len(far)),
        certainty=reduce(
            or_,
            (certainty_of_access(scop, statement, access) for access in accesses),
            line.certainty | certainty_of_statement(scop, statement),
        ),
    )


def _predicted(
    scop: Scop, sizes: Mapping[str, int], calibration: Calibration | None, machine: str | Path | Machine | None
) -> float:
    if calibration is None:
        return 0.0
    return float(calibration.evaluate(calibration.feature_values(scop, sizes, machine=machine)))
