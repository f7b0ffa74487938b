"""A flaw of a kernel that costs time, and the kernel in which flaws are looked for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypeAlias

from perflex.calibration.change import change_of
from perflex.errors import PerflexError
from perflex.features.from_source.host_code import HostCode
from perflex.features.gpu.requests import Requests, requests_of
from perflex.features.target import using_machine

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.analysis.cures import Place
    from perflex.calibration.calibration import Calibration
    from perflex.calibration.change import Change
    from perflex.calibration.prediction import Prediction
    from perflex.features import AccessCounts, QuasiPolynomial, Scop, SourceKernel, Target
    from perflex.machines.machine import Machine

Kind: TypeAlias = Literal[
    "coalescing", "bank-conflicts", "divergence", "float64", "repeated-loads", "few-groups", "last-wave",
    "group-starts", "occupancy", "spills", "launch-bound",
]  # fmt: skip
MEANINGS: Mapping[Kind, str] = {
    "coalescing": "Work-items of a sub-group access elements that lie apart, so that a request takes more sectors",
    "bank-conflicts": "Work-items of a sub-group access different words on one bank of local memory",
    "divergence": "Work-items of a sub-group go different ways, one after the other",
    "float64": "A constant without f makes float32 arithmetic float64",
    "repeated-loads": "Work-items of a work-group load the same elements that local memory could hold",
    "few-groups": "There are fewer work-groups than compute units",
    "last-wave": "Few work-groups are left for the last wave",
    "group-starts": "Starting work-groups takes longer than what they do",
    "occupancy": "Registers or local memory leave room for few work-groups",
    "spills": "Values that do not fit into registers are stored and loaded again",
    "launch-bound": "The launch takes longer than the kernel",
}

_OF_LAUNCHES = {"few-groups", "last-wave", "group-starts", "occupancy", "spills", "launch-bound"}


@dataclass(frozen=True)
class Finding:
    """A flaw of a kernel.

    Attributes
    ----------
    kind
        One of `MEANINGS`.
    line, column
        Where it is: ``"12"``, ``"header.h:12"`` or empty for the launch; the column of what is meant, from 1.
    what, cure
        What was found, and what mends it, in words.
    found, mended
        The number in `what`, and what it is with the cure; None where that is not known.
    change
        Predicted time with the cure over that without; None where that cannot be told.
    reason
        Why it cannot be told.
    """

    kind: Kind
    line: str
    column: int
    what: str
    cure: str
    found: float
    mended: float | None = None
    change: Change | None = None
    reason: str = ""

    @property
    def where(self) -> str:
        """Its line in words; the launch, or the kernel where lines are not known."""
        return f"line {self.line}" if self.line else "launch" if self.kind in _OF_LAUNCHES else "kernel"


@dataclass(frozen=True)
class Case:
    """A kernel at sizes on a target, what predicts it, and where it is in OpenCL C or CUDA C, its source."""

    scop: Scop
    sizes: Mapping[str, int]
    target: Target
    calibration: Calibration
    kernel: SourceKernel | None = None
    confidence: float = 0.95

    @property
    def machine(self) -> Machine:
        """The GPU."""
        return self.target.need_machine()

    @cached_property
    def code(self) -> list[str]:
        """The lines of its source without comments and strings."""
        return [] if self.kernel is None else HostCode(self.kernel.source).text.splitlines()

    @cached_property
    def function_lines(self) -> range:
        """The numbers of its function's lines."""
        if self.kernel is None:
            return range(0)
        extent = self.kernel.parsed().function.extent
        return range(extent.start.line, extent.end.line + 1)

    @property
    def function(self) -> str:
        """The text of its function without comments and strings."""
        return "\n".join(self.code[number - 1] for number in self.function_lines)

    @cached_property
    def prediction(self) -> Prediction:
        """Of the description, as those of mended ones."""
        return self.predicted(self.scop)

    def predicted(self, scop: Scop, registers: int | None = None) -> Prediction:
        """Return the prediction of a description, with registers other than those of the target."""
        held = self.target.registers_per_item if registers is None else registers
        with using_machine(self.target.machine, registers=held):
            return self.calibration.explain(scop, self.sizes, self.confidence)

    @cached_property
    def requests(self) -> Mapping[Place, Requests]:
        """Of each access."""
        return requests_of(self.scop, self.sizes, self.machine)

    def at(self, count: QuasiPolynomial) -> float:
        """Return a count at the sizes."""
        return float(count.evaluate(self.sizes))

    def access_at(self, place: Place) -> tuple[str, str, str]:
        """Return line, direction and array of an access."""
        statement = self.scop.statements[place[0]]
        access = statement.accesses[place[1]]
        return access.line or statement.line, access.direction, access.array

    def line_of(self, place: Place) -> str:
        """Return the line of an access."""
        return self.access_at(place)[0]

    def step(self, item: AccessCounts) -> int:
        """Return how many elements apart neighbours along axis 0 of the work-group access; 0 where that varies."""
        stride = item.local_strides[0] if item.local_strides else None
        return 0 if stride is None else abs(int(self.at(stride)))

    def column(self, line: str, pattern: str) -> int:
        """Return the column of what matches first in a line, or of its first letter; 1 in headers."""
        text = self.code[int(line) - 1] if line.isdigit() and 0 < int(line) <= len(self.code) else ""
        found = re.search(pattern, text) or re.search(r"\S", text)
        return 1 if found is None else found.start() + 1

    def condition_line(self, line: str) -> str:
        """Return the line of the condition that a statement stands under, if there is one; else its own."""
        above = [number for number in self.function_lines if line.isdigit() and number <= int(line)]
        return next((str(number) for number in reversed(above) if _CONDITION.search(self.code[number - 1])), line)

    def column_of(self, line: str, array: str) -> int:
        """Return the column of an access of an array in a line."""
        return self.column(line, rf"\b{re.escape(array)}\s*\[")

    def saved(self, scop: Scop, registers: int | None = None) -> tuple[Change | None, str]:
        """Return the change to a mended kernel's prediction, or why there is none."""
        try:
            return change_of(self.prediction, self.predicted(scop, registers), self.confidence), ""
        except PerflexError as error:
            return None, error.message

    def without(self, feature: str) -> float:
        """Return the share of the time that is left where a feature counts nothing; 1 where the model lacks it."""
        values = self.prediction.values
        if not values.get(feature):
            return 1.0
        return float(self.calibration.evaluate({**values, feature: 0.0}) / self.calibration.evaluate(values))


_CONDITION = re.compile(r"\b(?:if|switch)\b|\?")
