"""Kernels with the times that others measured, as calibrations take them instead of a device."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.errors import CalibrationError
from perflex.features.scop.checks import is_number
from perflex.features.sized_kernel import sized_kernels
from perflex.machines.residency import Resources

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from perflex.features.sized_kernel import SizedKernel


@dataclass(frozen=True)
class TimedKernel:
    """A kernel with its sizes and its measured time.

    Attributes
    ----------
    kernel
        A loopy translation unit, what `annotate` returned for one, or a Scop.
    sizes
        Value of each size parameter.
    seconds
        Time of one launch in seconds: positive and finite.
    name
        Label of the row; by default the kernel's name with its sizes. Rows with one label get numbers.
    generator
        What the kernel is a variant of: intervals and diagnoses leave out all rows of one such at a time. By default
        the kernel's name.
    spread
        Interquartile range of the timings over their median; nan where it is not known.
    repeatability
        By which fraction `seconds` is expected to differ from one such measurement to the next; nan likewise.
    registers
        32-bit registers per work-item of the kernel as it was built there; None likewise.
    """

    kernel: Any
    sizes: Mapping[str, Any]
    seconds: float
    name: str = ""
    generator: str = ""
    spread: float = math.nan
    repeatability: float = math.nan
    registers: int | None = None

    def __post_init__(self) -> None:
        """Check the numbers, and find the names that are not given."""
        [alone] = sized_kernels([(self.kernel, self.sizes)])
        for field, known in (("name", alone.label), ("generator", alone.group)):
            if not getattr(self, field):
                object.__setattr__(self, field, known)
        if not (is_number(self.seconds) and 0 < self.seconds < math.inf):
            msg = f"the time of {self.name} must be positive and finite, not {self.seconds} s"
            raise CalibrationError(msg, kernel=self.name)
        for field in ("spread", "repeatability"):
            value = getattr(self, field)
            if not is_number(value) or value < 0 or value == math.inf:
                msg = f"the {field} of {self.name} must be a fraction of zero or more, not {value}"
                raise CalibrationError(msg, kernel=self.name)
        if self.registers is not None and not (is_number(self.registers) and self.registers >= 1):
            msg = f"{self.name} has {self.registers} registers; state one or more, or None where it is not known"
            raise CalibrationError(msg, kernel=self.name)


@dataclass(frozen=True)
class TimesTable:
    """Kernels of one device with the times that others measured (`load_times` reads one from a file).

    Attributes
    ----------
    rows
        The kernels; one that was measured several times may stand there as often.
    device
        Name of the device as far as it is known, or the empty string.
    source
        Where the times come from, such as a file's name.
    sha256
        Digest of that file; empty if there is none.

    Raises
    ------
    CalibrationError
        There are no rows.
    """

    rows: tuple[TimedKernel, ...]
    device: str = ""
    source: str = "a table"
    sha256: str = ""

    def __post_init__(self) -> None:
        """Take any sequence of rows."""
        object.__setattr__(self, "rows", tuple(self.rows))
        if not self.rows:
            msg = f"{self.source} has no times; give some kernels with their times"
            raise CalibrationError(msg)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)

    def take(self, numbers: Sequence[int]) -> TimesTable:
        """Return the table reduced to the given row numbers, in that order."""
        return TimesTable(tuple(self.rows[number] for number in numbers), self.device, self.source, self.sha256)

    def __str__(self) -> str:
        return f"{self.source}{f', {self.device}' if self.device else ''}"


@dataclass(frozen=True)
class RowTimes:
    """Times of rows."""

    seconds: NDArray[np.float64]
    spread: NDArray[np.float64]
    repeatability: NDArray[np.float64]


class KnownTimes:
    """A table of times, found by the labels that its rows have where they are counted."""

    def __init__(self, table: TimesTable) -> None:
        self.table = table
        self.kernels: list[SizedKernel] = sized_kernels(table.rows)
        self._known = {one.label: row for one, row in zip(self.kernels, table.rows, strict=True)}

    def __str__(self) -> str:
        return self.table.device

    def times(self, rows: Sequence[SizedKernel]) -> RowTimes:
        """Return the times of some of the kernels."""
        known = [self._known[row.label] for row in rows]
        return RowTimes(
            np.array([row.seconds for row in known]),
            np.array([row.spread for row in known]),
            np.array([row.repeatability for row in known]),
        )

    def resources(self) -> list[Resources | None] | None:
        """Return what each kernel takes as far as the table says; None where it says nothing."""
        stated = [None if row.registers is None else Resources(registers=row.registers) for row in self.table.rows]
        return stated if any(stated) else None
