"""What pruning gives: each variant's place, and why it is kept or dropped."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.errors import FileFormatError
from perflex.file_io import writing
from perflex.html import shown_by
from perflex.search.described.space import DescribedSpace
from perflex.search.pruning.costs import dominating

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from perflex.search.pruning.promise import KeepDecision
    from perflex.search.spaces.candidates import Candidates

    Array = NDArray[np.float64]
    Indices = NDArray[np.intp]

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
        Predicted time and its 95 % interval in seconds; the interval is nan where there is none.
    ratio
        Predicted time as a multiple of the fastest predicted.
    dominating
        The cost that dominates: ``"memory"``, ``"on-chip"``, ``"overhead"`` or ``"other"``; of a described kernel, the
        parameter of its model.
    share
        Its share of the predicted time (of a described kernel, of the analytic model's), a fraction.
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


@dataclass(frozen=True, repr=False, eq=False)
class Pruning:
    """Variants by predicted time, and which of them are kept.

    Attributes
    ----------
    candidates
        The variants: their kernels and feature values, or a described space.
    predicted, low, high
        Predicted times in seconds and their 95 % intervals, shape ``(n,)``; intervals are nan where there are none.
    measured
        Measured times in seconds that the decision rests on, shape ``(n,)``; nan elsewhere.
    costs
        Seconds of each kind of cost, shape ``(n,)``.
    decision
        How many are kept, and what that promises.
    """

    candidates: Candidates | DescribedSpace
    predicted: Array
    low: Array
    high: Array
    measured: Array
    costs: Mapping[str, Array]
    decision: KeepDecision

    @property
    def excluded(self) -> Mapping[str, int]:
        """How many variants could not be predicted, by cause; repeated kernels are among them."""
        return self.candidates.excluded

    @cached_property
    def variants(self) -> tuple[PrunedVariant, ...]:
        """All variants, fastest predicted first."""
        return self._listed(self._ranked)

    @cached_property
    def kept(self) -> tuple[PrunedVariant, ...]:
        """The variants worth being compiled and run, the most promising first."""
        return self._listed(self.decision.kept)

    @property
    def dropped(self) -> tuple[PrunedVariant, ...]:
        """The others, fastest predicted first."""
        return tuple(variant for variant in self.variants if not variant.kept)

    @property
    def share(self) -> float:
        """Share of the variants that is kept, a fraction."""
        return len(self.decision.kept) / len(self.predicted)

    def kernel(self, variant: PrunedVariant) -> Any:
        """Return a variant's kernel; one of a space is built anew.

        Raises
        ------
        CalibrationError
            The kernel is described by formulas, and was never perflex's to build.
        """
        return self.candidates.kernel(variant.number)

    @cached_property
    def _ranked(self) -> Indices:
        return np.argsort(self.predicted, kind="stable")

    @cached_property
    def _dominating(self) -> tuple[list[str], Array]:
        return dominating(self.costs)

    @cached_property
    def _fastest(self) -> float:
        return float(self.predicted.min())

    @cached_property
    def _fastest_measured(self) -> float:
        return float(np.nanmin(self.measured))

    def _listed(self, numbers: Indices) -> tuple[PrunedVariant, ...]:
        described = isinstance(self.candidates, DescribedSpace)
        settings = getattr(self.candidates, "configurations" if described else "settings", ())
        names = self.candidates.names
        (kinds, shares), kept = self._dominating, set(self.decision.kept.tolist())
        ranks = np.argsort(self._ranked)
        return tuple(
            PrunedVariant(
                rank=int(ranks[number]) + 1,
                name=names[number],
                kept=number in kept,
                reason=self._reason(number, kept=number in kept),
                predicted=float(self.predicted[number]),
                low=float(self.low[number]),
                high=float(self.high[number]),
                ratio=float(self.predicted[number]) / self._fastest,
                dominating=kinds[number],
                share=float(shares[number]),
                costs={kind: float(cost[number]) for kind, cost in self.costs.items()},
                measured=float(self.measured[number]),
                settings=settings[number] if settings else {},
                number=number,
            )
            for number in numbers.tolist()
        )

    def _reason(self, number: int, *, kept: bool) -> str:
        if not math.isnan(self.measured[number]):
            times = self.measured[number] / self._fastest_measured
            return "the fastest measured" if kept else f"measured {times:.3g} times the fastest"
        if kept:
            return "predicted among the fastest"
        if math.isinf(self.predicted[number]):
            return "its short launch failed"
        kinds, shares = self._dominating
        promised = ", beyond what the promise needs" if math.isfinite(self.decision.threshold_ratio) else ""
        ratio = self.predicted[number] / self._fastest
        cause = f"{kinds[number]} dominates ({100 * shares[number]:.0f} %)"
        return f"predicted {ratio:.3g} times the fastest{promised}; {cause}"

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

    def _file_rows(self) -> list[dict[str, Any]]:
        """Return what `to_csv` writes."""
        return self.table()

    def to_csv(self, path: Path | str) -> None:
        """Write every variant to a file.

        Raises
        ------
        FileFormatError
            The file cannot be written.
        """
        rows = self._file_rows()
        try:
            with writing(path) as file:
                writer = csv.DictWriter(file, list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)
        except OSError as error:
            msg = f"cannot write {path}: {error.strerror or error}; name another file"
            raise FileFormatError(msg, path=path) from error

    def __repr__(self) -> str:
        lines = [f"{len(self.kept)} of {len(self.predicted)} variants kept ({100 * self.share:.3g} %)"]
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

    _repr_html_ = shown_by("perflex.search.pruning.pruning_html:pruning_html")
