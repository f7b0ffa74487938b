"""The file of a roofline: what ``perflex roofline --json`` prints."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path  # noqa: TC003 - beside what msgspec reads
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from perflex.analysis.roofline.ceilings import Ceiling, Ceilings
from perflex.analysis.roofline.place import RooflinePlace
from perflex.analysis.roofline.walls import Wall
from perflex.errors import FileFormatError
from perflex.features.families.instructions import INSTRUCTION_FEATURES
from perflex.reports.json_file import Stamp, convert

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT = "perflex-roofline/1"
_COMMAND = "perflex roofline --json"


_Positive = Annotated[float, Meta(gt=0)]


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


class _Roofline(Stamp, frozen=True, kw_only=True):
    device: str | None
    machine: str
    ceilings: dict[str, _Ceiling]
    absent_ceilings: dict[str, str]
    local_walls: dict[str, _Positive]
    # Counts stand between the other fields by their identifiers.
    kernels: list[dict[str, Any]]


@dataclass(frozen=True)
class RooflineFile:
    """Kernels on a machine's roofline.

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


def roofline_from(content: Any, path: Path) -> RooflineFile:
    """Return a roofline from the content of its file.

    Raises
    ------
    FileFormatError
        It is of another version, or damaged.
    """
    file = convert(content, _Roofline, path, FORMAT, _COMMAND)
    if not file.kernels or "instructions" not in file.ceilings:
        what = "kernel" if not file.kernels else "ceiling of instructions"
        msg = f"{path} is damaged: it has no {what}; make it again with {_COMMAND}"
        raise FileFormatError(msg, path=path)
    ceilings = Ceilings(
        file.machine,
        {
            level: Ceiling(level, found.rate, found.transaction_bytes or 0, found.source)
            for level, found in file.ceilings.items()
        },
        file.absent_ceilings,
    )
    kernels = [convert({"schema": FORMAT, **entry}, _Kernel, path, FORMAT, _COMMAND) for entry in file.kernels]
    places = [_place(known, entry, ceilings, path) for known, entry in zip(kernels, file.kernels, strict=True)]
    return RooflineFile(
        file.perflex,
        file.date,
        file.device or "",
        ceilings,
        tuple(places),
        tuple(_walls(known.global_walls) for known in kernels),
        _walls(file.local_walls),
    )


def _walls(found: Mapping[str, float]) -> tuple[Wall, ...]:
    return tuple(Wall(name, intensity) for name, intensity in found.items())


def _place(known: _Kernel, entry: Mapping[str, Any], ceilings: Ceilings, path: Path) -> RooflinePlace:
    counts = {name: value for name, value in entry.items() if name.startswith(("f_inst_", "f_txn_"))}
    missing = [name for name in INSTRUCTION_FEATURES if name not in counts]
    wrong = [name for name, value in counts.items() if not (isinstance(value, int | float) and value >= 0)]
    if missing or wrong:
        what = f"no {missing[0]}" if missing else f"{wrong[0]} is no count"
        msg = f"{path} is damaged: of kernel {known.kernel!r} {what}; make it again with {_COMMAND}"
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
