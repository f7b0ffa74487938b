"""Two versions of a kernel: what each takes, what differs between them, and what is predicted of that."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import cached_property
from math import isclose, nan
from typing import TYPE_CHECKING, Any

from perflex.analysis.explanation import limiters_of
from perflex.analysis.source_lines import source_lines
from perflex.calibration.built_target import needing_code
from perflex.calibration.change import change_of
from perflex.features import SourceKernel, count_features, extract_scop, parse_feature
from perflex.features.gpu.volume_estimate import estimate_volumes
from perflex.features.gpu.waves import local_bytes
from perflex.features.target import using_machine
from perflex.features.tiles.tile_kernel import TileKernel
from perflex.html import shown_by
from perflex.tables import Table, number, seconds, text
from perflex.timing.machine_code import machine_code
from perflex.timing.results import MeasurementFailure

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from perflex.calibration.calibration import Calibration
    from perflex.calibration.change import Change
    from perflex.calibration.prediction import Prediction
    from perflex.compiled.program import CompiledProgram
    from perflex.features.target import Target
    from perflex.machines.machine import Machine

# Numbers that differ by less are equal: they may be summed in another order.
_EQUAL = 1e-9


@dataclass(frozen=True, eq=False)
class Version:
    """A version of a kernel at given sizes, as a calibration sees it; counted when it is first asked for."""

    kernel: Any
    sizes: Mapping[str, int]
    calibration: Calibration
    machine: str | Path | Machine | None = None
    confidence: float = 0.95

    @cached_property
    def prediction(self) -> Prediction:
        """What the calibration says of it."""
        return self.calibration.explain(self.kernel, self.sizes, self.confidence, machine=self.machine)

    @cached_property
    def scop(self) -> Any:
        """Its description, or a program of tiles."""
        return extract_scop(self.kernel, self.sizes)

    @cached_property
    def target(self) -> Target:
        """What it is counted for."""
        return self.calibration.target(self.machine)

    @cached_property
    def _code(self) -> tuple[CompiledProgram, ...]:
        (found,) = machine_code([(self.kernel, self.sizes)], self.target.need_machine())
        if isinstance(found, MeasurementFailure):
            raise found.error
        return found

    def value(self, identifier: str) -> float:
        """Return the value of a feature; one of machine code is of the kernel compiled for the machine."""
        feature, target = parse_feature(identifier), self.target
        if feature.family.needs in {"code", "build"}:
            target = replace(target, code=self._code)
        return float(feature.value(self.scop, self.scop.checked(self.sizes), target))

    def counts(self) -> dict[str, tuple[float, str]]:
        """Return value and unit of all that is counted, on a GPU with volumes, whatever names arrays have."""
        scop, target = self.scop, self.target
        sizes = scop.checked(self.sizes)
        with using_machine(target.machine):
            counted = count_features(scop, self.sizes, sub_group_size=target.sub_group_size)
        names = "|".join(re.escape(one.name) for one in getattr(scop, "arrays", ()))
        found: dict[str, tuple[float, str]] = {}
        for one in counted:
            name = re.sub(rf"array:(?:{names})(?=_|$)", "array:*", one.identifier)
            found[name] = (found.get(name, (0.0,))[0] + (nan if one.value is None else one.value), one.unit)
        if not isinstance(scop, TileKernel):
            local = max((local_bytes(scop, place, sizes) for place in range(len(scop.launches))), default=0)
            found["local memory of a work-group"] = float(local), "B"
            if target.machine is not None and target.machine.kind == "gpu":
                volumes = estimate_volumes(scop, sizes, target.machine, caches=target.caches).features()
                found |= {name: (value, parse_feature(name).unit) for name, value in volumes.items()}
        return found


@dataclass(frozen=True, eq=False)
class Comparison:
    """What differs between two versions of a kernel at given sizes.

    Attributes
    ----------
    old, new
        What is predicted of each.
    change
        Ratio of both times, and its limits.
    counts
        What is counted differently.
    lines
        Lines that one version has alone, or that take another time, of kernels in source code; the times are by how
        much predictions are shorter without them.
    """

    old: Prediction
    new: Prediction
    change: Change
    counts: Table
    lines: Table

    @property
    def verdict(self) -> str:
        """What a reader is told first."""
        if not self.counts.rows and _equal(float(self.old.seconds), float(self.new.seconds)):
            return "no change"
        if self.change.low <= 1 <= self.change.high:
            return "within the model's uncertainty"
        return "slower" if self.change.ratio > 1 else "faster"

    @property
    def limiters(self) -> tuple[str, str]:
        """What limits the old version, and the new one."""
        old, new = (next((each.name for each in limiters_of(one)), "") for one in (self.old, self.new))
        return old, new

    def tables(self) -> list[Table]:
        """Return what notebooks show."""
        return [one for one in (change_table([self]), self.counts, self.lines) if one.rows]

    _repr_html_ = shown_by("result.html")


def change_table(found: Sequence[Comparison]) -> Table:
    """Return a row for each size: both times, their ratio with its limits, and what that means."""
    columns = [
        text("sizes"), seconds("old_s"), seconds("new_s"), number("ratio", "new/old"), number("low", "from"),
        number("high", "to"), text("verdict"),
    ]  # fmt: skip
    rows = [
        (one.new.at, one.old.seconds, one.new.seconds, one.change.ratio, one.change.low, one.change.high, one.verdict)
        for one in found
    ]
    return Table(f"Predicted change of {found[0].new.kernel}", columns, rows)


def compare(old: Version, new: Version) -> Comparison:
    """Compare two versions of a kernel; raises what `Calibration.explain` and `count_features` raise."""
    change = change_of(old.prediction, new.prediction, new.confidence)
    columns = [text("name", "count", code=True), number("old"), number("new"), number("ratio"), text("unit")]
    counts = Table(f"Counts that differ at {new.prediction.at}", columns, list(_changed_counts(old, new)))
    columns = [
        text("old_line"),
        text("new_line"),
        text("text", "source", code=True),
        seconds("old_s"),
        seconds("new_s"),
    ]
    lines = Table(f"Lines that differ at {new.prediction.at}, and the time that goes with them", columns, [])
    found = Comparison(old.prediction, new.prediction, change, counts, lines)
    readable = isinstance(old.kernel, SourceKernel) and isinstance(new.kernel, SourceKernel)
    if found.verdict == "no change" or not readable or needing_code(new.calibration.model.input_features()):
        return found
    return replace(found, lines=replace(lines, rows=list(_changed_lines(old, new))))


def _equal(one: float, two: float) -> bool:
    return isclose(one, two, rel_tol=_EQUAL) or (one != one and two != two)  # noqa: PLR0124 - neither is known


def _changed_counts(old: Version, new: Version) -> Iterator[Sequence[Any]]:
    before, after = old.counts(), new.counts()
    for name in dict.fromkeys((*before, *after)):
        (one, unit), (two, own) = before.get(name, (0.0, "")), after.get(name, (0.0, ""))
        if not _equal(one, two):
            yield name, one, two, two / one if one else None, own or unit


def _changed_lines(old: Version, new: Version) -> Iterator[Sequence[Any]]:
    """Yield lines of both versions in their order, of which 0 stands for all of headers."""
    (a, before), (b, after) = _lines(old), _lines(new)
    pairs: list[tuple[int, int]] = []
    for kind, i, end_i, j, end_j in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        alone = [*((n, -1) for n in range(i, end_i)), *((-1, n) for n in range(j, end_j))]
        pairs += zip(range(i, end_i), range(j, end_j), strict=True) if kind == "equal" else alone
    for i, j in pairs:
        one, two = before.get(i), after.get(j)
        if (one is not None or two is not None) and (min(i, j) < 0 or not _equal(one or 0.0, two or 0.0)):
            yield i if i > 0 else None, j if j > 0 else None, b[j] if j >= 0 else a[i], one, two


def _lines(one: Version) -> tuple[list[str], dict[int, float]]:
    """Return the lines of a source by number, without indents, and the time that goes with some of them."""
    found = source_lines(one.kernel, one.sizes, one.calibration, machine=one.machine)
    times = {line.line: float(one.prediction.seconds) * (line.share or 0.0) for line in found}
    return ["(headers)", *(" ".join(line.split()) for line in one.kernel.source.splitlines())], times
