"""Variants in their order, with all that decides on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from perflex.calibration.row_predictions import knowledge_of, resting_on
from perflex.errors import CalibrationError
from perflex.html import shown_by
from perflex.machines.residency import Resources
from perflex.search.accuracy import Accuracy
from perflex.search.costs import KINDS, dominating, variant_costs
from perflex.search.variant_doubts import doubt_lines
from perflex.tables import Table, fixed, number, percent, seconds, text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from perflex.calibration.built_target import Knowledge
    from perflex.calibration.calibration import Calibration
    from perflex.features.tiles.tile_program import TileResources
    from perflex.search.promise import KeepDecision
    from perflex.search.variants import Measured, Variants

    Array = NDArray[np.float64]
    Indices = NDArray[np.intp]

_SHOWN = 10


@dataclass(frozen=True)
class Ranked:
    """A variant's place among its rivals."""

    # 1 for the fastest: by measured time where all were to be timed, else by predicted time.
    rank: int
    name: str
    # Whether it is worth being compiled and run, and why.
    kept: bool
    reason: str
    # In the output feature's unit, seconds for a wall time; its 95 % interval is nan where there is none.
    predicted: float
    low: float
    high: float
    # The time that decides on the place, as a multiple of the fastest one's.
    ratio: float
    # The kind of cost that dominates (``"memory"``, ``"on-chip"``, ``"overhead"`` or ``"other"``), and its share of the
    # predicted time, a fraction.
    dominating: str
    share: float
    # Seconds of each kind of cost.
    costs: Mapping[str, float] = field(repr=False)
    # What each cost of the model contributes (`Model.terms`), in the same unit; where predictions are corrected by what
    # was learned, is known of other devices, or was measured of variants, multiplied by the same factor.
    terms: Mapping[str, float] = field(repr=False)
    # What the prediction rests on: ``"nothing"`` of the variant but counts, its compiled ``"code"``, or, of a
    # transferred calibration, a ``"timing on other devices"``; where measured variants correct it, a
    # ``"timing of other variants"``.
    knowledge: Knowledge
    # In seconds; nan where it was not timed or could not be.
    measured: float
    # Reasons not to rely on the prediction, as short texts. Those for which kernels are built again, such as conflict
    # misses, are looked for in the first 20 that are kept.
    doubts: tuple[str, ...]
    # Its settings, for variants of a space or a launch.
    settings: Mapping[str, Any] = field(repr=False)
    # What its compiled code takes, of those that were compiled.
    code: TileResources | Resources | None
    # Among the variants.
    number: int = field(repr=False)

    def __str__(self) -> str:
        """Return one line: place, name, the time that decides, how many times the fastest's it is; the prediction."""
        predicted, mark = f"{self.predicted:.4g}", " (doubtful)" if self.doubts else ""
        timed = not math.isnan(self.measured)
        shown = f"measured {self.measured:.4g}" if timed else "not measured" if math.isnan(self.ratio) else predicted
        ratio = "" if math.isnan(self.ratio) else f" ({self.ratio:.2f} times the fastest)"
        rest = "" if shown == predicted else f", predicted {predicted}"
        return f"{self.rank}. {self.name}: {shown}{ratio}{rest}{mark}"


@dataclass(frozen=True, repr=False, eq=False)
class Ranking(Sequence[Ranked]):
    """Ranked variants, fastest first: a sequence of `Ranked` that notebooks show as a table."""

    variants: Variants
    calibration: Calibration
    # Predicted times in seconds and their 95 % intervals, shape ``(n,)``; intervals are nan where there are none.
    predicted: Array
    low: Array
    high: Array
    # Measured times in seconds, shape ``(n,)``; nan elsewhere.
    measured: Array
    # How many are kept, and what that promises.
    decision: KeepDecision
    # Reasons not to rely on each prediction.
    doubts: Sequence[tuple[str, ...]]
    # Whether the order is that of measured times.
    timed: bool = False
    # Whether measured variants correct the predictions; a measured one's own time is not seen by its prediction.
    corrected: bool = False

    @overload
    def __getitem__(self, place: int) -> Ranked: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Ranked, ...]: ...
    def __getitem__(self, place: int | slice) -> Ranked | tuple[Ranked, ...]:
        """Return a place, or several."""
        return self._places[place]

    def __len__(self) -> int:
        """Return the number of variants."""
        return len(self.predicted)

    @property
    def kept(self) -> tuple[Ranked, ...]:
        """The variants worth being compiled and run, fastest first."""
        return tuple(place for place in self if place.kept)

    @property
    def dropped(self) -> tuple[Ranked, ...]:
        """The others, fastest first."""
        return tuple(place for place in self if not place.kept)

    @property
    def excluded(self) -> Mapping[str, int]:
        """How many variants could not be predicted, by cause; repeated kernels are among them."""
        return self.variants.excluded

    @property
    def doubt_lines(self) -> list[str]:
        """Reasons not to rely on the predictions of kept variants, in a few lines."""
        return doubt_lines([place.name for place in self.kept], [place.doubts for place in self.kept])

    @property
    def correction(self) -> str:
        """That measured variants correct the predictions, in words; empty where they do not."""
        return "predictions are corrected by the times of measured variants" if self.corrected else ""

    def kernel(self, place: Ranked) -> Any:
        """Return a variant's kernel; one of a space is built anew."""
        return self.variants.kernel(place.number)

    def with_times(self, times: Measured) -> Ranking:
        """Return the same with measured times in s by name; what is kept, and the order, stay as they are."""
        index, given = self.variants.measured_rows(times)
        measured = self.measured.copy()
        measured[index] = given
        return replace(self, measured=measured)

    @cached_property
    def _places(self) -> tuple[Ranked, ...]:
        variants, calibration = self.variants, self.calibration
        columns = variants.columns(calibration.model.input_features())
        labels = [label for label, _ in variants.known_as(calibration)] or [""] * len(self)
        with np.errstate(all="ignore"):
            factor = self.predicted / calibration.model.evaluate(calibration.fit, columns)
        terms = {
            name: np.broadcast_to(value * factor, (len(self),)).tolist()
            for name, value in calibration.model.terms(calibration.params, columns).items()
        }
        costs = {kind: factor * cost for kind, cost in variant_costs(variants, calibration).items()}
        (kinds, shares), kept = dominating(costs), set(self.decision.kept.tolist())
        deciding = self.measured if self.timed else self.predicted
        order = order_of(self.predicted, deciding)
        knowledge = resting_on(calibration, labels)
        if self.corrected:
            knowledge = ["timing of other variants"] * len(self)
        elif variants.kernels:
            knowledge = [
                knowledge_of(calibration, *each)
                for each in zip(variants.kernels, zip(labels, strict=True), strict=True)
            ]
        knowledge = ["code" if n in variants.code and one == "nothing" else one for n, one in enumerate(knowledge)]
        fastest = deciding[order[0]]
        return tuple(
            Ranked(
                rank=place,
                name=variants.names[number],
                kept=number in kept,
                reason=self._reason(number, kinds[number], shares[number], kept=number in kept),
                predicted=float(self.predicted[number]),
                low=float(self.low[number]),
                high=float(self.high[number]),
                ratio=float(deciding[number] / fastest),
                dominating=kinds[number],
                share=float(shares[number]),
                costs={kind: float(cost[number]) for kind, cost in costs.items()},
                terms={name: value[number] for name, value in terms.items()},
                knowledge=knowledge[number],
                measured=float(self.measured[number]),
                doubts=self.doubts[number],
                settings=variants.settings[number] if variants.settings else {},
                code=_code_of(variants, number),
                number=number,
            )
            for place, number in enumerate(order.tolist(), start=1)
        )

    def _reason(self, number: int, kind: str, share: float, *, kept: bool) -> str:
        if not math.isnan(self.measured[number]):
            times = self.measured[number] / np.nanmin(self.measured)
            return "the fastest measured" if times == 1 else f"measured {times:.3g} times the fastest"
        if kept:
            return "predicted among the fastest"
        promised = ", beyond what the promise needs" if math.isfinite(self.decision.threshold_ratio) else ""
        ratio = self.predicted[number] / self.predicted.min()
        return f"predicted {ratio:.3g} times the fastest{promised}; {kind} dominates ({100 * share:.0f} %)"

    def table(self, *, kept: bool = False) -> Table:
        """Return a row for each variant, or for those that are kept, fastest first; times in seconds."""
        chosen = "Kept variants" if kept and self.dropped else "Variants"
        unit = "in the output feature's unit: seconds for a wall time"
        return Table(
            f"{chosen} by {'measured' if self.timed else 'predicted'} time",
            [
                text("variant"),
                fixed("rank", meaning="1 for the fastest of all variants"),
                text("kept", place="files"),
                seconds("predicted_s", meaning=unit),
                seconds("low_s", meaning="lower end of the prediction's 95 % interval"),
                seconds("high_s", meaning="upper end of the prediction's 95 % interval"),
                seconds("measured_s"),
                fixed("ratio", digits=2, meaning="as a multiple of the fastest"),
                text("dominating", "dominates", meaning="the kind of cost with the largest share of predicted time"),
                percent("share", digits=0, meaning="share of the dominating cost in the predicted time"),
                fixed("registers", meaning="of a work-item, as compiled"),
                number("local_bytes", "shared memory", unit="B", meaning="of a program, as compiled"),
                number("spilt_bytes", "spilt", unit="B", meaning="of a work-item, as compiled"),
                number("private_bytes", "private memory", unit="B", meaning="of a work-item, as compiled"),
                text("doubtful"),
                *(seconds(f"{kind}_s", place="files") for kind in KINDS),
                text("knowledge", "rests on", place="files"),
                text("reason", place="pages"),
                text("doubts", place="files"),
            ],
            [
                (
                    *(one.name, one.rank, one.kept, one.predicted, one.low, one.high, one.measured, one.ratio),
                    *(one.dominating, one.share, *_taken(one.code), bool(one.doubts), *one.costs.values()),
                    *(one.knowledge, one.reason, list(one.doubts)),
                )
                for one in (self.kept if kept else self)
            ],
        )

    def to_csv(self, path: Path | str) -> None:
        """Write every variant to a file; a `FileFormatError` where that cannot be written."""
        self.table().to_csv(path)

    def check(self, times: Measured | None = None) -> RankingCheck:
        """Compare with measured times in s by name, by default those that are known here.

        A CalibrationError where there are none, or a name or a time is wrong.
        """
        known = self if times is None else self.with_times(times)
        rows = np.flatnonzero(np.isfinite(known.measured))
        if not rows.size:
            msg = "no variant has a measured time to compare with; time some, or give times by name"
            raise CalibrationError(msg)
        measured, low, high = known.measured[rows], known.low[rows], known.high[rows]
        kept = measured[np.isin(rows, known.decision.kept)]
        inside = (low <= measured) & (measured <= high)
        return RankingCheck(
            Accuracy.of(known.predicted[rows], measured, [0] * rows.size),
            kept.size,
            float(kept.min() / measured.min() - 1) if kept.size else math.nan,
            float(inside[np.isfinite(low)].mean()) if np.isfinite(low).any() else math.nan,
        )

    def __repr__(self) -> str:
        lines = [f"{len(self.kept)} of {len(self)} variants kept ({100 * len(self.kept) / len(self):.3g} %)"]
        lines += [f"  {line}" for line in (self.decision.explanation, self.correction) if line]
        lines += [f"  {place}" for place in self.kept[:_SHOWN]]
        if len(self.kept) > _SHOWN:
            lines.append(f"  and {len(self.kept) - _SHOWN} more")
        lines += [f"  left out: {line}" for line in self.variants.left_out]
        lines += [f"  doubtful: {line}" for line in self.doubt_lines]
        return "\n".join(lines)

    _repr_html_ = shown_by("ranking.html")


@dataclass(frozen=True)
class RankingCheck:
    """What measurements say of a ranking."""

    # Of all that were measured, as one group.
    accuracy: Accuracy
    kept_measured: int
    # The fastest kept over the fastest of all measured, less 1; nan where none of the kept was measured.
    loss: float
    # Share of measured times inside the 95 % intervals; nan where there are no intervals.
    coverage: float

    def __str__(self) -> str:
        found = self.accuracy
        parts = {
            "geometric mean error": found.geometric_mean,
            "median": found.median,
            "rms": found.rms,
            "maximum": found.maximum,
            "fastest kept behind the fastest measured by": self.loss,
            "inside the 95 % interval": self.coverage,
        }
        said = [f"{name} {100 * value:.3g} %" for name, value in parts.items() if not math.isnan(value)]
        order = "" if math.isnan(found.spearman) else f"; rank correlation {found.spearman:.3f}"
        return f"{found.cases} variants measured, {self.kept_measured} of the kept; {'; '.join(said)}{order}"


def order_of(predicted: Array, deciding: Array) -> Indices:
    """Return the numbers of variants, the fastest first; not a number is sorted last."""
    return np.lexsort((predicted, deciding))


def _code_of(variants: Variants, number: int) -> TileResources | Resources | None:
    if number in variants.code:
        return variants.code[number].resources
    return getattr(variants.kernels[number], "resources", None) if variants.kernels else None


def _taken(code: TileResources | Resources | None) -> tuple[float | None, ...]:
    if code is None:
        return (None,) * 4
    if isinstance(code, Resources):
        return code.registers, code.local_bytes, code.spill_bytes, code.private_bytes
    return code.registers, code.local_bytes, code.spilt_bytes, None
