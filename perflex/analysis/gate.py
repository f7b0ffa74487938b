"""Conditions on a kernel and its changes, which hold, are broken or cannot be told; baselines that changes are from."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from functools import cached_property
from math import inf, isclose, isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from perflex.calibration.calibration_file import calibration_content
from perflex.calibration.change import change_of
from perflex.calibration.interval import interval_at
from perflex.calibration.prediction import Prediction
from perflex.errors import FileFormatError, PerflexError, UnsupportedKernelError
from perflex.features import parse_feature
from perflex.features.counting.touched import certainty_of_all
from perflex.features.tiles.tile_kernel import TileKernel
from perflex.tables import Table, number, text
from perflex.version import __version__
from perflex.yaml_file import Fields, Finite, Positive, read_yaml, write_yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from perflex.analysis.comparison import Version
    from perflex.calibration.calibration import Calibration
    from perflex.features import Certainty

Verdict = Literal["holds", "broken", "cannot tell"]

SCHEMA = "perflex-baseline/1"
MARK = "<!-- perflex -->"
"""First line of a table for a pull request, by which its comment is found."""
_FEATURES = {
    "dram_bytes": ("f_vol_dram_load", "f_vol_dram_store"),
    "l2_bytes": ("f_vol_l2_l1_load", "f_vol_l2_l1_store"),
    "registers": ("f_registers",),
    "spills": ("f_spill_bytes",),
}
# What a number alone is of, and not of a ratio.
_ABSOLUTE = ("registers", "spills")
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_BYTES = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}
_UNITS = _SECONDS | _BYTES
# Commas in braces are of an identifier.
_COMMAS = re.compile(r",(?![^{]*\})")
_CONDITION = re.compile(r"(\w.*?)\s*(<=|>=|==|<|>)\s*(\d+\.?\d*(?:[eE][+-]?\d+)?)\s*([a-zA-Z]*)")
_EQUAL = 1e-9
_FORM = "write conditions such as 'time<=1.03, dram_bytes<=64MiB, spills==0, exact'"


@dataclass(frozen=True)
class Condition:
    """A limit of a metric, or of its ratio to what it was; ``exact`` has none."""

    text: str
    metric: str
    relation: str = ""
    limit: float = 0.0
    unit: str = ""

    @property
    def changes(self) -> bool:
        """Whether it is of a ratio to the old version."""
        return self.metric != "exact" and self.metric not in _ABSOLUTE and not self.unit

    @property
    def features(self) -> tuple[str, ...]:
        """Features whose sum the metric is; none for times and ``exact``."""
        return () if self.metric in {"time", "exact"} else _FEATURES.get(self.metric, (self.metric,))

    def met(self, value: float) -> bool:
        """Return whether a value meets it; numbers that differ by rounding are equal."""
        if isclose(value, self.limit, rel_tol=_EQUAL):
            return "=" in self.relation
        return value < self.limit if "<" in self.relation else value > self.limit and ">" in self.relation


def read_conditions(words: str) -> tuple[Condition, ...]:
    """Read conditions that commas separate, such as ``time<=1.03, spills==0``; a PerflexError says what is wrong."""
    found = []
    for each in map(str.strip, _COMMAS.split(words)):
        parts = _CONDITION.fullmatch(each)
        if each == "exact":
            found.append(Condition(each, each))
            continue
        if parts is None or parts[1] == "exact":
            msg = f"cannot read the condition {each!r}; {_FORM}"
            raise PerflexError(msg)
        metric, relation, limit, unit = parts.groups()
        known = _SECONDS if metric == "time" else _BYTES if metric.endswith("_bytes") else {}
        if unit and unit not in known:
            msg = f"the condition {each!r} has no unit {unit!r}; times have s, ms, us, ns, bytes B, KiB, MiB, GiB"
            raise PerflexError(msg)
        found.append(Condition(each, metric, relation, float(limit), unit))
        for name in found[-1].features:
            parse_feature(name)
    return tuple(found)


class Entry(Fields, frozen=True):
    """What a baseline holds of a kernel at sizes, and what that was made with."""

    kernel: str
    sizes: dict[str, int]
    perflex: str
    # Name and digest; digest.
    machine: str
    calibration: str
    launches: str
    caches: str
    seconds: Positive
    # By feature: those of the model, and of conditions.
    values: dict[str, Finite]


class _Baseline(Fields, frozen=True):
    kernels: list[Entry]


@dataclass(frozen=True, eq=False)
class Recorded:
    """The version of a kernel that a baseline holds."""

    entry: Entry
    calibration: Calibration
    confidence: float

    @cached_property
    def prediction(self) -> Prediction:
        """What was predicted of it."""
        values = {name: self.value(name) for name in self.calibration.model.input_features()}
        interval = interval_at(self.calibration, values, self.confidence)
        known = self.entry
        return Prediction(known.kernel, known.sizes, known.seconds, (), "nothing", values, self.calibration, interval)

    def value(self, identifier: str) -> float:
        """Return the value of a feature."""
        if identifier not in self.entry.values:
            msg = f"the baseline has no {identifier} of it; make it again with --update"
            raise PerflexError(msg, feature=identifier)
        return self.entry.values[identifier]


def entry_of(kernel: str, version: Version, conditions: Iterable[Condition]) -> Entry:
    """Return what a baseline is to hold of a version."""
    values = {name: float(value) for name, value in version.prediction.values.items()}
    values |= {name: version.value(name) for each in conditions if each.changes for name in each.features}
    seconds = float(version.prediction.seconds)
    return Entry(kernel, dict(version.sizes), **_made_with(version), seconds=seconds, values=values)


def _made_with(version: Version) -> dict[str, str]:
    calibration, machine = version.calibration, version.target.machine
    content = json.dumps(calibration_content(calibration), sort_keys=True, default=str)
    return {
        "perflex": __version__,
        "machine": "" if machine is None else f"{machine.name} {_digest(repr(machine))}",
        "calibration": _digest(content),
        "launches": calibration.launches,
        "caches": calibration.caches,
    }


def _digest(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def read_baseline(path: Path | str) -> list[Entry]:
    """Read a baseline's file; a FileFormatError names the line that is wrong, or says how to make it."""
    if not Path(path).exists():
        msg = f"there is no baseline {path}; make it with --update, or compare with a revision (--against)"
        raise FileFormatError(msg, path=path)
    return read_yaml(path, SCHEMA).read(_Baseline).kernels


def write_baseline(path: Path | str, entries: Sequence[Entry]) -> None:
    """Write a baseline, in the order of names and sizes; what the file holds of other kernels and sizes stays."""
    old = read_baseline(path) if Path(path).exists() else []
    kept = {(one.kernel, *sorted(one.sizes.items())): one for one in (*old, *entries)}
    content = [{name: getattr(kept[key], name) for name in Entry.__struct_fields__} for key in sorted(kept)]
    write_yaml(path, {"schema": SCHEMA, "kernels": content})


def recorded(entries: Sequence[Entry], kernel: str, version: Version) -> Recorded:
    """Return what a baseline holds of a kernel; a PerflexError where that cannot be compared with the version."""
    own = [one for one in entries if one.kernel == kernel]
    found = next((one for one in own if one.sizes == dict(version.sizes)), None)
    if found is None:
        at = ", ".join(f"{name}={value}" for name, value in version.sizes.items())
        msg = f"the baseline {f'has it at other sizes, not at {at}' if own else 'lacks it'}; add it with --update"
        raise PerflexError(msg, kernel=kernel)
    for name, value in _made_with(version).items():
        if getattr(found, name) != value:
            other = "other" if name.endswith("s") else "another"
            what = f"perflex {found.perflex}" if name == "perflex" else f"{other} {name}"
            msg = f"its baseline was made with {what}; make it again with --update"
            raise PerflexError(msg, kernel=kernel)
    return Recorded(found, version.calibration, version.confidence)


@dataclass(frozen=True)
class Judgement:
    """What became of a condition: the metric in its unit, or the ratio, and limits of it; why it cannot be told."""

    kernel: str
    sizes: Mapping[str, int]
    condition: str
    verdict: Verdict
    value: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str = ""

    @property
    def at(self) -> list[str]:
        """The sizes as texts."""
        return [f"{name}={value}" for name, value in self.sizes.items()]


def judge(kernel: str, condition: Condition, new: Version, old: Version | Recorded | None) -> Judgement:
    """Return whether a condition holds of a version, or of its change from an old one."""
    verdict: Verdict = "broken"
    try:
        if condition.metric == "exact":
            found = _certainty(new)
            verdict, reason = ("holds", "") if found.exact else ("broken", str(found))
            return Judgement(kernel, new.sizes, condition.text, verdict, reason=reason)
        value, low, high = _found(condition, new, old)
    except PerflexError as error:
        return Judgement(kernel, new.sizes, condition.text, "cannot tell", reason=error.message)
    reason = ""
    if condition.met(value):
        verdict = "holds"
    elif condition.met(low) or condition.met(high) or low < condition.limit < high:
        verdict, reason = "cannot tell", "the interval reaches across the limit"
    return Judgement(kernel, new.sizes, condition.text, verdict, value, low, high, reason)


def _certainty(new: Version) -> Certainty:
    if isinstance(new.scop, TileKernel):
        msg = "it is not known what counts of Triton kernels rest on; leave out 'exact'"
        raise UnsupportedKernelError(msg)
    return certainty_of_all(new.scop)


def _found(condition: Condition, new: Version, old: Version | Recorded | None) -> tuple[float, float, float]:
    """Return the value that a condition is of, and its limits."""
    if condition.changes and old is None:
        msg = "there is no old version; give --against REV, or --baseline FILE"
        raise PerflexError(msg)
    before = old if condition.changes else None
    if condition.metric != "time":
        value = sum(map(new.value, condition.features))
        if before is not None:
            value = _ratio(sum(map(before.value, condition.features)), value)
        if isnan(value):
            msg = f"{condition.metric} is not known; name a machine whose file has its facts"
            raise PerflexError(msg)
        found: list[Any] = [value] * 3
    elif before is not None:
        change = change_of(before.prediction, new.prediction, new.confidence)
        found = [change.ratio, change.low, change.high]
    else:
        found = [new.prediction.seconds, new.prediction.low, new.prediction.high]
    value, low, high = (float(each) / _UNITS.get(condition.unit, 1.0) for each in found)
    return value, low, high


def _ratio(old: float, new: float) -> float:
    return new / old if old else inf if new else 1.0


def gate_table(found: Iterable[Judgement]) -> Table:
    """Return a row for each condition."""
    columns = [
        text("kernel", code=True), text("at", "sizes"), text("condition", code=True), text("verdict"), number("value"),
        number("low", "from"), number("high", "to"), text("reason"),
    ]  # fmt: skip
    return Table.of("Conditions", columns, found)
