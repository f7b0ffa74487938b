"""What pruning gives: each variant's place, and why it is kept or dropped."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perflex.errors import FileFormatError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.search.pruning.promise import KeepDecision
    from perflex.search.spaces.candidates import Candidates

__all__ = ["PrunedVariant", "Pruning"]

_SHOWN = 10


@dataclass(frozen=True)
class PrunedVariant:
    """A variant's place in a pruning.

    Attributes
    ----------
    rank
        1 for the one predicted fastest.
    name
        Of the variant.
    kept
        Whether it is worth being compiled and run.
    reason
        Why it is kept or dropped.
    predicted, low, high
        Predicted time and its 95 % interval in seconds; the interval is nan where the calibration gives none.
    ratio
        Predicted time as a multiple of the fastest predicted.
    dominating
        The cost that dominates: ``"memory"``, ``"on-chip"``, ``"overhead"`` or ``"other"``.
    share
        Its share of the predicted time, a fraction.
    costs
        Seconds of each kind of cost.
    measured
        In seconds; nan where it was not.
    settings
        Its settings, for variants of a space.
    number
        Among the candidates.
    """

    rank: int
    name: str
    kept: bool
    reason: str
    predicted: float
    low: float
    high: float
    ratio: float
    dominating: str
    share: float
    costs: Mapping[str, float] = field(repr=False)
    measured: float = math.nan
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)
    number: int = field(default=0, repr=False)


@dataclass(frozen=True, repr=False)
class Pruning:
    """Variants by predicted time, and which of them are kept.

    Attributes
    ----------
    variants
        All of them, fastest predicted first.
    decision
        How many are kept, and what that promises.
    excluded
        How many variants could not be predicted, by cause; repeated kernels are among them.
    candidates
        Feature values and kernels.
    """

    variants: tuple[PrunedVariant, ...]
    decision: KeepDecision
    excluded: Mapping[str, int]
    candidates: Candidates

    @property
    def kept(self) -> tuple[PrunedVariant, ...]:
        """The variants worth being compiled and run, fastest predicted first."""
        return tuple(variant for variant in self.variants if variant.kept)

    @property
    def dropped(self) -> tuple[PrunedVariant, ...]:
        """The others."""
        return tuple(variant for variant in self.variants if not variant.kept)

    @property
    def share(self) -> float:
        """Share of the variants that is kept, a fraction."""
        return len(self.kept) / len(self.variants)

    def kernel(self, variant: PrunedVariant) -> Any:
        """Return a variant's kernel; one of a space is built anew."""
        return self.candidates.kernel(variant.number)

    def table(self) -> list[dict[str, Any]]:
        """Return one dictionary per variant, fastest predicted first; times in seconds."""
        return [
            {
                "rank": variant.rank,
                "variant": variant.name,
                "kept": variant.kept,
                "predicted_s": variant.predicted,
                "low_s": variant.low,
                "high_s": variant.high,
                "ratio": variant.ratio,
                "dominating": variant.dominating,
                "share": variant.share,
                **{f"{kind}_s": cost for kind, cost in variant.costs.items()},
                "measured_s": variant.measured,
                "reason": variant.reason,
            }
            for variant in self.variants
        ]

    def to_csv(self, path: Path | str) -> None:
        """Write `table` to a file.

        Raises
        ------
        FileFormatError
            The file cannot be written.
        """
        rows = self.table()
        try:
            with Path(path).open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)
        except OSError as error:
            msg = f"cannot write {path}: {error.strerror or error}; name another file"
            raise FileFormatError(msg, path=path) from error

    def __repr__(self) -> str:
        lines = [f"{len(self.kept)} of {len(self.variants)} variants kept ({100 * self.share:.3g} %)"]
        lines.append(f"  {self.decision.explanation}")
        lines += [
            f"  {variant.rank}. {variant.name}: {1e3 * variant.predicted:.4g} ms ({variant.ratio:.2f} x), "
            f"{variant.dominating} {100 * variant.share:.0f} %"
            for variant in self.kept[:_SHOWN]
        ]
        if len(self.kept) > _SHOWN:
            lines.append(f"  and {len(self.kept) - _SHOWN} more")
        lines += [f"  left out: {cause} ({count})" for cause, count in self.excluded.items()]
        return "\n".join(lines)
