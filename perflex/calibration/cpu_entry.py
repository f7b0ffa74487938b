"""The CPU in a calibration's file, from which the machine of its features is made anew."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from perflex.machines.reported import ReportedCache, ReportedCpu
from perflex.yaml_file import Fields


class _Cache(Fields, frozen=True):
    level: Annotated[int, Meta(ge=1)]
    size_bytes: Annotated[int, Meta(ge=1)]
    line_bytes: Annotated[int, Meta(ge=1)]
    shared_by: Annotated[int, Meta(ge=1)]
    ways: Annotated[int, Meta(ge=1)] | None


class CpuEntry(Fields, frozen=True):
    """What the operating system reported of a CPU; see `perflex.machines.reported.ReportedCpu`."""

    model: str
    vendor: str
    cores: Annotated[int, Meta(ge=1)]
    domains: Annotated[int, Meta(ge=1)] | None
    simd_bytes: Annotated[int, Meta(ge=1)] | None
    caches: Annotated[tuple[_Cache, ...], Meta(min_length=1)]

    @classmethod
    def of(cls, cpu: ReportedCpu) -> CpuEntry:
        """Return the entry of a CPU."""
        caches = tuple(_Cache(c.level, c.size_bytes, c.line_bytes, c.shared_by, c.ways) for c in cpu.caches)
        return cls(cpu.model, cpu.vendor, cpu.cores, cpu.domains, cpu.simd_bytes, caches)

    def reported(self) -> ReportedCpu:
        """Return what it says."""
        caches = tuple(ReportedCache(*msgspec.structs.astuple(cache)) for cache in self.caches)
        return ReportedCpu(self.model, self.vendor, self.cores, self.domains, self.simd_bytes, caches)
