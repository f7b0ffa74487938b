"""Counted features, volumes and traffic between cache levels in HTML, for notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perflex.html import Column, element, notebook, notice, significant, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.features.counted import CountedFeature
    from perflex.features.cpu.result import EcmEstimate
    from perflex.features.gpu.result import Volumes
    from perflex.html import Cell


def counted_html(counted: Sequence[CountedFeature]) -> str:
    """Return counted features for a notebook."""
    columns = [Column("feature"), Column("value", significant), Column("count"), Column("unit"), Column("remarks")]
    rows: list[tuple[Cell, ...]] = [
        (element("code", f.identifier), f.value, element("code", f.expression), f.unit, _remarks(f)) for f in counted
    ]
    return notebook(table(columns, rows, caption="Features"))


def _remarks(feature: CountedFeature) -> str:
    return "; ".join(text for text in ("" if feature.exact else str(feature.certainty), feature.note) if text)


_BYTES = {
    "l1_load": "L1 loads", "l2_l1_load": "L2 to L1", "l2_l1_store": "L1 to L2", "dram_load": "DRAM to L2",
    "dram_store": "L2 to DRAM",
}  # fmt: skip


def volumes_html(volumes: Volumes) -> str:
    """Return volumes for a notebook: bytes per launch of each array and of all."""
    columns = [Column("array"), *(Column(heading, significant, "MB", 1e-6) for heading in _BYTES.values())]
    parts = {**volumes.arrays, "all": volumes.total}
    rows: list[tuple[Cell, ...]] = [
        (name, *(float(getattr(part, field)) for field in _BYTES)) for name, part in parts.items()
    ]
    caches = f", caches {volumes.caches}" if volumes.caches else ""
    return notebook(
        element("p", f"{volumes.kernel} on {volumes.machine} (rules {volumes.variant}{caches})"),
        table(columns, rows, caption="Data volumes per launch"),
        element(
            "p",
            f"{volumes.resident_groups} resident work-groups per compute unit, {volumes.waves:.4g} waves; "
            f"oversubscription of L1 {volumes.oversub_l1:.3g}, of L2 {volumes.oversub_l2:.3g}",
        ),
    )


def traffic_html(estimate: EcmEstimate) -> str:
    """Return traffic between cache levels for a notebook; for arrays of sizes their range."""
    columns = [
        Column("level"),
        *(Column(heading, significant, "B/iteration") for heading in ("loads", "stores")),
        Column("time", significant, "cycles/iteration"),
    ]
    rows = [
        (level.name, _scalar(level.load_bytes), _scalar(level.store_bytes), _scalar(level.cycles))
        for level in estimate.levels
    ]
    return notebook(
        element("p", f"{estimate.kernel} on {estimate.machine}, {estimate.cores} core{'s' * (estimate.cores != 1)}"),
        [notice("warning", text) for text in estimate.approximated],
        table(columns, rows, caption="Traffic of the memory hierarchy"),
    )


def _scalar(value: object) -> Cell:
    if value is None or isinstance(value, int | float):
        return value
    import numpy as np

    found = np.asarray(value, dtype=np.float64)
    if found.size == 1:
        return float(found.ravel()[0])
    return f"{significant(float(found.min()))} to {significant(float(found.max()))}"
