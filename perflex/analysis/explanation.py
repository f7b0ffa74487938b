"""Why a kernel takes as long as it does: what limits it, what would next, and its flaws with what each costs."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import structs

from perflex.analysis.cures import access_counts
from perflex.analysis.finding import Case
from perflex.analysis.findings import find
from perflex.analysis.source_lines import SourceLines, source_lines
from perflex.errors import MissingSizeError, PerflexError
from perflex.features import extract_scop
from perflex.features.from_source.source import SourceKernel
from perflex.features.sized_kernel import with_own_sizes
from perflex.features.target import using_code, using_machine
from perflex.features.tiles.tile_kernel import TileKernel
from perflex.html import shown_by
from perflex.tables import Table, percent, seconds, text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from perflex.analysis.finding import Finding
    from perflex.calibration.calibration import Calibration
    from perflex.calibration.prediction import Prediction
    from perflex.calibration.record import CalibrationRecord
    from perflex.compiled.program import CompiledProgram
    from perflex.features.scop.scop import Scop, Statement
    from perflex.machines.machine import Machine

_RESOURCES = {
    "issue": "issuing instructions", "fp32": "float32 arithmetic", "fp64": "float64 arithmetic",
    "int32": "integer arithmetic", "special": "special functions", "ldst": "addresses of loads and stores",
    "l1": "L1 cache", "local": "local memory", "atomic_local": "atomics in local memory", "barrier": "barriers",
    "l2": "L2 bandwidth", "dram": "DRAM bandwidth", "latency": "waiting for loads and results",
    "atomic": "atomics in global memory", "group": "starts of work-groups",
}  # fmt: skip
_OF_TILES = {
    "launch": "the launch", "dram": "DRAM bandwidth", "l2": "L2 bandwidth", "tensor": "tensor cores",
    "shared": "shared memory", "issue": "issuing instructions", "special": "special functions", "rows": "reductions",
    "chain": "waiting for results", "wait": "waiting for loads", "starting": "starts of programs",
    "starts": "starts of programs", "ends": "stores behind the loop",
}  # fmt: skip
_NAMES = {
    "f_sync_kernel_launch": "the launch",
    **{f"f_peak_{key}": name for key, name in _RESOURCES.items()},
    **{f"f_tile_{when}{key}": name for key, name in _OF_TILES.items() for when in ("", "full_", "last_", "wait_")},
}
# Costs without which the time is shorter by less limit nothing.
_LEAST = 0.01
_MOST_LIMITERS = 3


@dataclass(frozen=True)
class Limiter:
    """A cost of a kernel.

    Attributes
    ----------
    name, features
        What it is, and the features that count it.
    seconds
        Predicted time without it, and without the limiters before it; in the unit of the prediction.
    """

    name: str
    features: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, eq=False)
class Explanation:
    """Why a kernel takes as long as it does.

    Attributes
    ----------
    prediction
        Its time, with interval and doubts.
    limiters
        The cost without which it would be fastest, the one that would limit it then, and so on, three at most.
    findings
        Its flaws, what saves most first.
    unknown
        Why flaws were not looked for, or not all; empty otherwise.
    case
        What findings rest on; None for programs of tiles.
    """

    prediction: Prediction
    limiters: tuple[Limiter, ...]
    findings: tuple[Finding, ...] = ()
    unknown: str = ""
    case: Case | None = field(default=None, repr=False)

    @cached_property
    def lines(self) -> SourceLines:
        """Of a kernel from source code, what each line does, and its share of the time."""
        case = self.case
        if case is None or case.kernel is None:
            return SourceLines()
        with using_machine(case.target.machine, registers=case.target.registers_per_item):
            return source_lines(case.kernel, case.sizes, case.calibration)

    def access_shares(self) -> dict[str, list[tuple[str, float]]]:
        """Return by line what it loads and stores, and by how much the predicted time is shorter without that."""
        shares: dict[str, list[tuple[str, float]]] = {}
        if self.case is not None:
            scop, whole = self.case.scop, float(self.case.prediction.seconds)
            for line, direction, array in dict.fromkeys(map(self.case.access_at, access_counts(scop))):
                if scop.array(array).space != "private":
                    rest = float(self.case.predicted(_without_access(scop, line, direction, array)).seconds)
                    shares.setdefault(line, []).append((f"{direction} {array}", 1 - rest / whole))
        return shares

    def finding_table(self) -> Table:
        """Return a row for each finding."""
        whole = float(self.prediction.seconds)
        columns = [
            text("line"), text("kind"), text("what", "found"), seconds("mended_s", "with the cure"),
            seconds("low_s", "from"), seconds("high_s", "to"), text("cure"), text("reason", "why no saving"),
        ]  # fmt: skip
        rows = []
        for one in self.findings:
            times = [None] * 3 if one.change is None else [one.change.ratio, one.change.low, one.change.high]
            scaled = [None if ratio is None else whole * ratio for ratio in times]
            rows.append((one.where.removeprefix("line "), one.kind, one.what, *scaled, one.cure, one.reason))
        return Table("Findings", columns, rows)

    def limiter_table(self) -> Table:
        """Return a row for each cost that limits the kernel."""
        whole, rows = float(self.prediction.seconds), []
        for one in self.limiters:
            rows.append((one.name, whole, one.seconds, 1 - one.seconds / whole))
            whole = one.seconds
        columns = [
            text("limiter"), seconds("with_s", "time"), seconds("without_s", "without it"),
            percent("share", meaning="by how much the time is shorter without it"),
        ]  # fmt: skip
        return Table("Limits, one after the other", columns, rows)

    def tables(self) -> list[Table]:
        """Return what notebooks show below the source."""
        return [self.limiter_table(), *([self.finding_table()] if self.findings else [])]

    _repr_html_ = shown_by("explanation.html", listing="perflex.reports.explanation_part:listing")


def explain(
    kernel: Any,
    sizes: Mapping[str, int],
    calibration: Calibration,
    confidence: float = 0.95,
    *,
    machine: str | Path | Machine | None = None,
    registers: int | None = None,
    code: tuple[CompiledProgram, ...] | None = None,
    name: str = "",
) -> Explanation:
    """Return what limits a kernel and what is wrong with it, with the time that each flaw costs.

    Parameters
    ----------
    kernel, sizes
        As for `Calibration.explain`; one value of each size.
    calibration
        What predicts it, and the kernel with each flaw mended.
    confidence
        Share of measurements that shall lie inside of intervals.
    machine
        As for `Calibration.explain`. Flaws are looked for where it is a GPU.
    registers
        32-bit registers of a work-item; by default those of the code.
    code
        What the kernel is compiled to, for registers and spills; None where that is not known.
    name
        Of the kernel, as for `Calibration.explain`.

    Raises
    ------
    CalibrationError, MissingSizeError, UnsupportedKernelError, MachineError
        As `Calibration.explain`.
    """
    if array := next((size for size, value in sizes.items() if np.ndim(value)), None):
        msg = f"a kernel is explained at one value of each size, and {array} has several; explain one after another"
        raise MissingSizeError(msg, parameters=(array,))
    found = calibration.target(machine).machine
    with using_machine(found, registers=registers), using_code(code):
        target = calibration.target(None)
        prediction = calibration.explain(kernel, sizes, confidence, name=name)
        limits = limiters_of(prediction)
        unit, given = with_own_sizes(kernel, sizes)
        if isinstance(unit, TileKernel):
            return Explanation(prediction, limits, unknown="flaws of programs of tiles are not known")
        source = unit if isinstance(unit, SourceKernel) else None
        case = Case(extract_scop(unit, given), given, target, calibration, source, confidence)
        findings, unknown = _found(case)
    return Explanation(prediction, limits, findings, unknown, case)


def _found(case: Case) -> tuple[tuple[Finding, ...], str]:
    """Return the findings, or why there are none."""
    if case.target.machine is None or case.target.machine.kind != "gpu":
        return (), "flaws are looked for on GPUs; name one with --machine (machine=)"
    findings, reasons = find(case)
    return tuple(findings), "; ".join(f"some flaws cannot be told: {reason}" for reason in reasons)


def _without_access(scop: Scop, line: str, direction: str, array: str) -> Scop:
    def left(one: Statement) -> Statement:
        kept = [x for x in one.accesses if ((x.line or one.line), x.direction, x.array) != (line, direction, array)]
        return one if len(kept) == len(one.accesses) else structs.replace(one, accesses=tuple(kept))

    return structs.replace(scop, statements=tuple(map(left, scop.statements)))


def limiters_of(prediction: Prediction) -> tuple[Limiter, ...]:
    """Return the cost without which a kernel would be fastest, the one that would limit it then, and the next one."""
    record, values = prediction.calibration, dict(prediction.values)
    costs: dict[str, list[str]] = defaultdict(list)
    for feature, value in values.items():
        # Others of tiles say how often something is done.
        if value and (feature in _NAMES or not feature.startswith("f_tile_")):
            costs[_NAMES.get(feature, feature)].append(feature)
    whole = left = float(record.evaluate(values))
    found: list[Limiter] = []
    while costs and len(found) < _MOST_LIMITERS:
        without = {name: _evaluated(record, {**values, **dict.fromkeys(own, 0.0)}) for name, own in costs.items()}
        best = min(without, key=lambda name: without[name])
        if without[best] > (1 - _LEAST) * left:
            break
        left, features = without[best], costs.pop(best)
        values |= dict.fromkeys(features, 0.0)
        found.append(Limiter(best, tuple(features), left / whole * float(prediction.seconds)))
    return tuple(found)


def _evaluated(record: CalibrationRecord, values: Mapping[str, Any]) -> float:
    """Return what a model says of values; infinity where it has none, as where it divides by one that is zero."""
    with suppress(PerflexError):
        return float(record.evaluate(values))
    return inf
