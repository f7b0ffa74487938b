"""The file of a pruning: what ``perflex prune --json`` prints."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - beside what msgspec reads
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from perflex.reports.json_file import Stamp, convert

FORMAT = "perflex-pruning/1"


_Seconds = Annotated[float, Meta(gt=0)]


class VariantEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A variant; times in seconds, None where they are not known."""

    rank: int
    variant: str
    kept: bool
    predicted_s: _Seconds | None
    low_s: float | None
    high_s: float | None
    ratio: float | None
    dominating: str
    share: float
    measured_s: _Seconds | None
    reason: str


class CheckEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What measurements say, as `perflex.search.pruning.report.PruningCheck` has it."""

    measured: int
    kept_measured: int
    geomean_error: float | None
    median_error: float | None
    rms_error: float | None
    max_error: float | None
    spearman: float | None
    loss: float | None
    coverage: float | None


class PruningFile(Stamp, frozen=True, kw_only=True):
    """A pruning of a space of loopy kernels."""

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


def pruning_from(content: Any, path: Path) -> PruningFile:
    """Return a pruning from the content of its file.

    Raises
    ------
    FileFormatError
        It is of another version, or damaged.
    """
    return convert(content, PruningFile, path, FORMAT, "perflex prune --json")
