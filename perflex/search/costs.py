"""What pruning gives: each variant's place, and why it is kept or dropped."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.expression.contributions import contributions
from perflex.expression.tree import Name, Product, Sum, evaluate, walk
from perflex.file_io import saving
from perflex.html import shown_by
from perflex.search.described.space import DescribedSpace
from perflex.search.variant_doubts import doubt_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from perflex.expression.model import Model
    from perflex.expression.tree import Node
    from perflex.search.promise import KeepDecision
    from perflex.search.variants import Candidates

    Array = NDArray[np.float64]
    Indices = NDArray[np.intp]

KINDS = ("memory", "on-chip", "overhead", "other")


def feature_kind(identifier: str) -> str:
    """Return the kind of cost of a feature; accesses of which the identifier does not say the space are of memory."""
    from perflex.features import parse_feature

    return parse_feature(identifier).cost or "memory"


def model_costs(
    model: Model,
    params: Mapping[str, float],
    columns: Mapping[str, Array],
    kind_of: Callable[[str], str] = feature_kind,
) -> dict[str, Array]:
    """Return how much of each prediction is a cost of each of `KINDS`, shape ``(n,)``; together they are the whole.

    `columns` has the values of each input feature, shape ``(n,)``.
    """
    count = next((len(column) for column in columns.values()), 1)
    values: dict[str, Any] = {**columns, **{name: params[name] for name in model.params()}}
    found: dict[str, Any] = {}
    for sign, term, value in contributions(model.tree, values):
        for kind, share in _shares(term, values, kind_of).items():
            found[kind] = found.get(kind, 0.0) + sign * share * value
    return {kind: np.array(np.broadcast_to(found.get(kind, 0.0), (count,)), dtype=np.float64) for kind in KINDS}


def dominating(costs: Mapping[str, Array]) -> tuple[list[str], Array]:
    """Return the kind of the largest cost of each prediction and its share, shape ``(n,)``."""
    # A calibration may allow negative costs; those dominate nothing.
    table = np.stack([np.maximum(costs[kind], 0.0) for kind in KINDS])
    total = table.sum(axis=0)
    largest = table.argmax(axis=0)
    with np.errstate(all="ignore"):
        share = np.where(total > 0, table.max(axis=0) / total, np.nan)
    return [KINDS[place] for place in largest], share


def _shares(node: Node, values: Mapping[str, Any], kind_of: Callable[[str], str]) -> dict[str, Any]:
    """Return the kinds of cost in a term, and the share of its value that each is."""
    if isinstance(node, Product):
        inner = [factor for power, factor in node.factors if power > 0 and isinstance(factor, Sum) and _counts(factor)]
        # Only one sum can be split by kind: the other factors scale each of its terms alike.
        if len(inner) == 1:
            return _shares(inner[0], values, kind_of)
    if not isinstance(node, Sum):
        return {_kind(node, kind_of): 1.0}
    whole = evaluate(node, values)
    total: dict[str, Any] = {}
    with np.errstate(all="ignore"):
        for sign, term in node.terms:
            part = np.where(np.asarray(whole) != 0, sign * np.asarray(evaluate(term, values)) / whole, 0.0)
            for kind, share in _shares(term, values, kind_of).items():
                total[kind] = total.get(kind, 0.0) + part * share
    return total


def _counts(node: Node) -> bool:
    return any(isinstance(inner, Name) and not inner.is_parameter for inner in walk(node))


def _kind(node: Node, kind_of: Callable[[str], str]) -> str:
    features = [inner.identifier for inner in walk(node) if isinstance(inner, Name) and not inner.is_parameter]
    if not features:
        return "overhead"  # a constant time
    kinds = {kind_of(feature) for feature in features}
    return next(kind for kind in ("memory", "on-chip", "other", "overhead") if kind in kinds)


_SHOWN = 10


@dataclass(frozen=True)
class PrunedVariant:
    """A variant's place in a pruning."""

    # 1 for the one predicted fastest.
    rank: int
    name: str
    # Whether it is worth being compiled and run.
    kept: bool
    # Why it is kept or dropped.
    reason: str
    # Predicted time and its 95 % interval in seconds; the interval is nan where there is none.
    predicted: float
    low: float
    high: float
    # Predicted time as a multiple of the fastest predicted.
    ratio: float
    # The cost that dominates: ``"memory"``, ``"on-chip"``, ``"overhead"`` or ``"other"``; of a described kernel, the
    # parameter of its model.
    dominating: str
    # Its share of the predicted time (of a described kernel, of the analytic model's), a fraction.
    share: float
    # Seconds of each kind of cost.
    costs: Mapping[str, float] = field(repr=False)
    # In seconds; nan where it was not.
    measured: float = math.nan
    # Reasons not to rely on the prediction, as short texts. Of dropped variants those of the model's range alone: what
    # kernels tell, such as conflict misses, makes them slower than predicted.
    doubts: tuple[str, ...] = ()
    # Its settings, for variants of a space.
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)
    # Among the candidates.
    number: int = field(default=0, repr=False)


@dataclass(frozen=True, repr=False, eq=False)
class Pruning:
    """Variants by predicted time, and which of them are kept."""

    # The variants: their kernels and feature values, or a described space.
    candidates: Candidates | DescribedSpace
    # Predicted times in seconds and their 95 % intervals, shape ``(n,)``; intervals are nan where there are none.
    predicted: Array
    low: Array
    high: Array
    # Measured times in seconds that the decision rests on, shape ``(n,)``; nan elsewhere.
    measured: Array
    # Seconds of each kind of cost, shape ``(n,)``.
    costs: Mapping[str, Array]
    # How many are kept, and what that promises.
    decision: KeepDecision
    # Reasons not to rely on each prediction; none for a described space, which is predicted from its own times.
    doubts: Sequence[tuple[str, ...]] = field(default=(), kw_only=True)

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
        """Return a variant's kernel; one of a space is built anew, one that is described by formulas refused."""
        return self.candidates.kernel(variant.number)

    @property
    def doubt_lines(self) -> list[str]:
        """Reasons not to rely on the predictions of kept variants, in a few lines."""
        return doubt_lines([variant.name for variant in self.kept], [variant.doubts for variant in self.kept])

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
                doubts=self.doubts[number] if self.doubts else (),
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
                "doubts": list(variant.doubts),
            }
            for variant in self.variants
        ]

    def _file_rows(self) -> list[dict[str, Any]]:
        """Return what `to_csv` writes."""
        return [{**row, "doubts": "; ".join(row["doubts"])} for row in self.table()]

    def to_csv(self, path: Path | str) -> None:
        """Write every variant to a file; a `FileFormatError` where that cannot be written."""
        rows = self._file_rows()
        with saving(path) as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)

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
        lines += [f"  doubtful: {line}" for line in self.doubt_lines]
        return "\n".join(lines)

    _repr_html_ = shown_by("pruning.html")
