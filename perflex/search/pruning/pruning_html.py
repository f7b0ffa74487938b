"""Prunings and rankings in HTML, for notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perflex.html import Column, element, fixed, notebook, notice, percent, significant, table, times, whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.search.pruning.pruned import Pruning
    from perflex.search.pruning.ranking import RankedVariant

# More rows than anybody reads; the object itself has them all.
_SHOWN = 100


def pruning_html(pruning: Pruning) -> str:
    """Return a pruning for a notebook: how many are kept and why, and the kept variants."""
    kept = pruning.kept[:_SHOWN]
    seconds = [variant.predicted for variant in kept]
    columns = [
        Column("variant"),
        Column("rank", whole, meaning="1 for the one predicted fastest of all variants"),
        times("predicted", seconds),
        times("95 % from", seconds, meaning="lower end of the prediction's 95 % interval"),
        times("to", seconds, meaning="upper end of the prediction's 95 % interval"),
        Column("ratio", fixed(2), meaning="predicted time over that of the fastest predicted"),
        Column("dominates"),
        percent("of the time", digits=0, meaning="share of the dominating cost in the predicted time"),
        times("measured", [variant.measured for variant in kept]),
        Column("reason"),
    ]
    rows = [
        (v.name, v.rank, v.predicted, v.low, v.high, v.ratio, v.dominating, v.share, v.measured, v.reason) for v in kept
    ]
    more = len(pruning.kept) - len(kept)
    return notebook(
        None if pruning.decision.met else notice("warning", "the promise is not met"),
        element(
            "p",
            element("strong", f"{len(pruning.kept)} of {len(pruning.predicted)} variants kept"),
            f" ({100 * pruning.share:.3g} %): {pruning.decision.explanation}",
        ),
        table(columns, rows, caption=f"Kept variants{f', the first {_SHOWN}' if more else ''}"),
        [notice("remark", f"left out: {cause} ({count})") for cause, count in pruning.excluded.items()],
    )


def ranking_html(ranking: Sequence[RankedVariant]) -> str:
    """Return ranked variants for a notebook."""
    shown = ranking[:_SHOWN]
    columns = [
        Column("variant"),
        Column("rank", whole),
        Column("predicted", significant, meaning="in the output feature's unit: seconds for a wall time"),
        Column("ratio", fixed(2), meaning="as a multiple of the fastest"),
        Column("rests on"),
        Column("remarks"),
    ]
    rests = {"nothing": "counts"}
    rows = [(v.name, v.rank, v.predicted, v.ratio, rests.get(v.knowledge, v.knowledge), v.failure) for v in shown]
    caption = f"Variants by predicted time{f', the first {_SHOWN}' if len(ranking) > _SHOWN else ''}"
    return notebook(table(columns, rows, caption=caption))
