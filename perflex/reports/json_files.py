"""What ``--json`` printed, read again: predictions, prunings, rooflines, of a known version, with one-line errors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path  # noqa: TC003 - beside what msgspec reads
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from perflex.analysis.roofline import Ceiling, Ceilings, RooflinePlace, Wall
from perflex.errors import FileFormatError
from perflex.features.families.arithmetic import INSTRUCTION_FEATURES
from perflex.file_io import read_text

if TYPE_CHECKING:
    from collections.abc import Mapping

PREDICTION = "perflex-prediction/1"
PRUNING = "perflex-pruning/1"
ROOFLINE = "perflex-roofline/1"
_ROOFLINE_COMMAND = "perflex roofline --json"
_Schema = TypeVar("_Schema")
_Positive = Annotated[float, Meta(gt=0)]


class _Stamp(msgspec.Struct, frozen=True, kw_only=True):
    schema: str
    perflex: str
    date: str


class LineEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a kernel's source, as `perflex.analysis.source_lines.SourceLine` has it."""

    line: int
    text: str
    operations: float
    accesses: float
    bytes: float
    local_accesses: float
    certainty: str
    share: float | None = None

    @property
    def exact(self) -> bool:
        """Whether the counts are exact."""
        return self.certainty == "exact"


class PredictionEntry(_Stamp, frozen=True, kw_only=True):
    """A prediction at some sizes: one of those that ``perflex predict --json`` prints; times in seconds."""

    kernel: str
    device: dict[str, Any]
    calibrated: str
    machine: str | None
    launches: str | None = None
    caches: str | None = None
    sizes: dict[str, int]
    predicted_s: float | None
    knowledge: str
    doubts: list[str]
    terms: dict[str, float | None]
    low_s: float | None = None
    high_s: float | None = None
    confidence: float | None = None
    measured_s: float | None = None
    measured_on: str = ""
    disturbed: bool = False
    lines: list[LineEntry] = []


class VariantEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A variant; times in seconds, None where they are not known."""

    rank: int
    variant: str
    kept: bool
    predicted_s: _Positive | None
    low_s: float | None
    high_s: float | None
    ratio: float | None
    dominating: str
    share: float
    measured_s: _Positive | None
    reason: str
    doubts: list[str] = []

    @property
    def error(self) -> float | None:
        """Predicted over measured time, less 1."""
        known = self.measured_s is not None and self.predicted_s is not None
        return self.predicted_s / self.measured_s - 1 if known else None  # type: ignore[operator]


class CheckEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What measurements say, as `perflex.search.pruning_picture.PruningCheck` has it."""

    measured: int
    kept_measured: int
    geomean_error: float | None
    median_error: float | None
    rms_error: float | None
    max_error: float | None
    spearman: float | None
    loss: float | None
    coverage: float | None


class PruningFile(_Stamp, frozen=True, kw_only=True):
    """A pruning of a space of loopy kernels: what ``perflex prune --json`` prints."""

    device: dict[str, Any]
    calibrated: str
    variants: int
    kept: list[str]
    explanation: str
    met: bool
    excluded: dict[str, int]
    batch: list[str]
    table: Annotated[list[VariantEntry], Meta(min_length=1)]
    check: CheckEntry | None = None
    measured_on: str = ""


class _Ceiling(msgspec.Struct, frozen=True, kw_only=True):
    rate: _Positive
    transaction_bytes: int | None
    source: str


class _Kernel(msgspec.Struct, frozen=True, kw_only=True):
    kernel: str
    sizes: dict[str, int]
    sub_group_size: Annotated[int, Meta(ge=1)]
    itemsize: Annotated[int, Meta(ge=1)]
    global_walls: dict[str, _Positive]
    time_s: _Positive | None
    time: str | None
    absent: dict[str, str]


class _Roofline(_Stamp, frozen=True, kw_only=True):
    device: str | None
    machine: str
    ceilings: dict[str, _Ceiling]
    absent_ceilings: dict[str, str]
    local_walls: dict[str, _Positive]
    # Counts stand between the other fields by their identifiers.
    kernels: list[dict[str, Any]]


@dataclass(frozen=True)
class RooflineFile:
    """Kernels on a machine's roofline: what ``perflex roofline --json`` prints.

    Attributes
    ----------
    perflex, date
        Version that made the file, and when.
    device
        Where times are from; empty where there are none.
    ceilings
        The machine's.
    places
        The kernels.
    walls, words
        Walls of global memory for each kernel, and of local memory.
    """

    perflex: str
    date: str
    device: str
    ceilings: Ceilings
    places: tuple[RooflinePlace, ...]
    walls: tuple[tuple[Wall, ...], ...]
    words: tuple[Wall, ...]


def read_json(path: Path) -> Any:
    """Return the content of a JSON file.

    Raises
    ------
    FileFormatError
        It cannot be read, or is no JSON.
    """
    try:
        return msgspec.json.decode(read_text(path).encode())
    except msgspec.DecodeError as error:
        msg = f"{path} is damaged: {error}; make it again"
        raise FileFormatError(msg, path=path) from error


def kind_of(content: Any) -> str:
    """Return what a file says it is, or the first in its list, without its version; or an empty text."""
    return _schema(content[0] if isinstance(content, list) and content else content).partition("/")[0]


def predictions_from(content: Any, path: Path) -> list[PredictionEntry]:
    """Return predictions from the content of their file.

    Raises
    ------
    FileFormatError
        One is of another version, or damaged.
    """
    return [_convert(each, PredictionEntry, path, PREDICTION, "perflex predict --json") for each in content]


def pruning_from(content: Any, path: Path) -> PruningFile:
    """Return a pruning from the content of its file.

    Raises
    ------
    FileFormatError
        It is of another version, or damaged.
    """
    return _convert(content, PruningFile, path, PRUNING, "perflex prune --json")


def roofline_from(content: Any, path: Path) -> RooflineFile:
    """Return a roofline from the content of its file.

    Raises
    ------
    FileFormatError
        It is of another version, or damaged.
    """
    file = _convert(content, _Roofline, path, ROOFLINE, _ROOFLINE_COMMAND)
    if not file.kernels or "instructions" not in file.ceilings:
        what = "kernel" if not file.kernels else "ceiling of instructions"
        msg = f"{path} is damaged: it has no {what}; make it again with {_ROOFLINE_COMMAND}"
        raise FileFormatError(msg, path=path)
    known = {
        level: Ceiling(level, found.rate, found.transaction_bytes or 0, found.source)
        for level, found in file.ceilings.items()
    }
    ceilings = Ceilings(file.machine, known, file.absent_ceilings)
    kernels = [
        _convert({"schema": ROOFLINE, **entry}, _Kernel, path, ROOFLINE, _ROOFLINE_COMMAND) for entry in file.kernels
    ]
    return RooflineFile(
        file.perflex,
        file.date,
        file.device or "",
        ceilings,
        tuple(_place(one, entry, ceilings, path) for one, entry in zip(kernels, file.kernels, strict=True)),
        tuple(_walls(one.global_walls) for one in kernels),
        _walls(file.local_walls),
    )


def _schema(content: Any) -> str:
    found = content.get("schema", "") if isinstance(content, dict) else ""
    return found if isinstance(found, str) else ""


def _convert(content: Any, kind: type[_Schema], path: Path, form: str, command: str) -> _Schema:
    """Return the content of a file of a known name and version, which a command makes, as an object."""
    name, _, version = form.partition("/")
    found = _schema(content).partition("/")[2]
    if found != version:
        newer = found.isdecimal() and int(found[:9]) > int(version)
        fix = "update perflex to read it" if newer else f"make it again with {command}"
        msg = f"{path}: version {found!r} of {name} is not version {version}; {fix}"
        raise FileFormatError(msg, path=path, field="schema")
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        msg = f"{path} is damaged: {str(error).replace('`$', '`(top)')}; make it again with {command}"
        raise FileFormatError(msg, path=path) from error


def _walls(found: Mapping[str, float]) -> tuple[Wall, ...]:
    return tuple(Wall(name, intensity) for name, intensity in found.items())


def _place(known: _Kernel, entry: Mapping[str, Any], ceilings: Ceilings, path: Path) -> RooflinePlace:
    counts = {name: value for name, value in entry.items() if name.startswith(("f_inst_", "f_txn_"))}
    missing = [name for name in INSTRUCTION_FEATURES if name not in counts]
    wrong = [name for name, value in counts.items() if not (isinstance(value, int | float) and value >= 0)]
    if missing or wrong:
        what = f"no {missing[0]}" if missing else f"{wrong[0]} is no count"
        msg = f"{path} is damaged: of kernel {known.kernel!r} {what}; make it again with {_ROOFLINE_COMMAND}"
        raise FileFormatError(msg, path=path, field=(missing or wrong)[0])
    return RooflinePlace(
        known.kernel,
        known.sizes,
        {name: float(value) for name, value in counts.items() if name.startswith("f_inst_")},
        {name: float(value) for name, value in counts.items() if name.startswith("f_txn_")},
        known.sub_group_size,
        known.itemsize,
        ceilings,
        known.time_s,
        known.time or "",
        known.absent,
    )
