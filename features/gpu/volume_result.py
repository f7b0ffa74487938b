"""Data volumes of a kernel, per launch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

from perflex.html import shown_by
from perflex.tables import Table, fixed, number, text


@dataclass(frozen=True)
class ArrayVolumes:
    """Volumes of one array, or of all together; bytes per launch unless said otherwise."""

    # L1 cycles that loads and stores of global memory take, over all compute units (Section 4.2); nan where the
    # machine's ``l1_rules`` are not known.
    l1_wavefronts: float = 0.0
    # local_wavefronts_load, local_wavefronts_store: cycles that accesses of local memory take, over all compute
    # units.
    local_wavefronts_load: float = 0.0
    local_wavefronts_store: float = 0.0
    written: float = 0.0  # What work-items store, each element as often as it is stored
    l1_load: float = 0.0  # Distinct sectors of each sub-group and load instruction
    l2_l1_compulsory: float = 0.0  # Distinct sectors of each work-group (Section 4.3)
    l2_l1_shared: float = 0.0  # What of it another work-group on the same compute unit has loaded already
    l2_l1_capacity: float = 0.0  # Repeated loads of a work-group that miss the L1 cache (Section 4.5)
    # l2_l1_load, l2_l1_store: volumes between L2 and L1; stores are written through.
    l2_l1_load: float = 0.0
    l2_l1_store: float = 0.0
    # wave_load, wave_store: footprint of a wave, times the number of waves (Section 4.4).
    wave_load: float = 0.0
    wave_store: float = 0.0
    # overlap_x, overlap_y, overlap_z: what of the loads the sets adjacent in x, y, z have touched; of y without x, of
    # z without both.
    overlap_x: float = 0.0
    overlap_y: float = 0.0
    overlap_z: float = 0.0
    # hit_xy, hit_z: what of it is still in the L2 cache (Section 4.4.2).
    hit_xy: float = 0.0
    hit_z: float = 0.0
    hit_farther: float = 0.0  # What else work-groups further back have left in the L2 cache
    # Partly written sectors that leave the L2 cache before they are complete: stored, and read back.
    store_evict: float = 0.0
    dram_capacity: float = 0.0  # Repeated loads of a wave that miss the L2 cache
    # hit_again, kept_store: loads that find in L2 what the run before has left, and stores that stay there until the
    # next run overwrites them; 0 where caches are cold.
    hit_again: float = 0.0
    kept_store: float = 0.0
    # dram_load, dram_store: volumes between DRAM and L2.
    dram_load: float = 0.0
    dram_store: float = 0.0

    @classmethod
    def total(cls, parts: Iterable[ArrayVolumes]) -> ArrayVolumes:
        """Return the sum of volumes."""
        parts = list(parts)
        return cls(**{field.name: sum(getattr(part, field.name) for part in parts) for field in fields(cls)})

    def times(self, factor: float) -> ArrayVolumes:
        """Return the volumes of so many launches."""
        return ArrayVolumes(**{field.name: factor * getattr(self, field.name) for field in fields(self)})


@dataclass(frozen=True)
class Volumes:
    """What a kernel moves through a machine's memory hierarchy, and what that estimate rests on."""

    # What was estimated, and for which machine.
    kernel: str
    machine: str
    arrays: Mapping[str, ArrayVolumes]
    total: ArrayVolumes
    # Work-groups that a compute unit holds at once; of several launches, in the one that takes most waves.
    resident_groups: float
    # Waves of all launches, of work-groups in which anything runs. Of several launches, the rest are means over waves.
    waves: float
    # Statement instances of a wave, on average.
    wave_items: float
    # Bytes that the loads of a work-group take in the L1 cache, whole lines.
    l1_alloc: float
    # Oversubscription of the L1 cache, and of the L2 cache by the y set, the z set and the wave.
    oversub_l1: float
    oversub_l2_y: float
    oversub_l2_z: float
    oversub_l2: float
    # ``"warm"`` if the L2 cache holds what the same run, just before, has left; ``"cold"`` if launches find nothing.
    caches: str = ""
    # Waves that load from DRAM one after the other: of each launch that does so, at least one.
    loading_waves: float = 0.0

    def table(self) -> Table:
        """Return a row for each array and one for all, with what is not zero everywhere."""
        parts = [*self.arrays.items(), ("all", self.total)]
        columns = [
            fixed(one.name) if "wavefronts" in one.name else number(one.name, unit="MB", factor=1e-6)
            for one in fields(ArrayVolumes)
            if any(getattr(part, one.name) for _, part in parts)
        ]
        rows = [(name, *(getattr(part, column.name) for column in columns)) for name, part in parts]
        return Table("Data volumes per launch", [text("array"), *columns], rows)

    @property
    def heading(self) -> str:
        """What it is of, and what fills the machine."""
        caches = f" (caches {self.caches})" if self.caches else ""
        return (
            f"{self.kernel} on {self.machine}{caches}: {self.resident_groups:g} resident work-groups per compute unit, "
            f"{self.waves:.4g} waves; oversubscription of L1 {self.oversub_l1:.3g}, of L2 {self.oversub_l2:.3g}"
        )

    _repr_html_ = shown_by("result.html")

    def features(self) -> dict[str, float]:
        """Return the values by feature identifier; bytes, wavefronts and ratios, per launch."""
        total = self.total
        return {
            "f_l1_wavefronts": total.l1_wavefronts,
            "f_lmem_wavefronts": total.local_wavefronts_load + total.local_wavefronts_store,
            "f_lmem_wavefronts_load": total.local_wavefronts_load,
            "f_lmem_wavefronts_store": total.local_wavefronts_store,
            "f_vol_l1_load": total.l1_load,
            "f_vol_l2_l1_load": total.l2_l1_load,
            "f_vol_l2_l1_store": total.l2_l1_store,
            "f_vol_dram_load": total.dram_load,
            "f_vol_dram_store": total.dram_store,
            "f_oversub_l1": self.oversub_l1,
            "f_oversub_l2": self.oversub_l2,
        }
