"""Cache levels of a machine and its memory's bandwidths, as the ECM model reads them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CacheLevel:
    """A cache level of a CPU.

    Attributes
    ----------
    name
        ``"L1"``, ``"L2"``, ...; features call it so in lower case.
    size_bytes
        Size of one instance.
    shared_by
        Cores that share an instance.
    line_bytes
        Size of a cache line.
    ways
        Associativity; None where it is not known.
    write_allocate
        Whether a store that misses fetches the line first.
    victim
        Whether it is filled by evictions from the level before it.
    load_bytes_per_cycle
        Bytes per cycle and core from this level to the one before it (for the first level: to the registers).
    store_bytes_per_cycle
        Bytes per cycle and core the other way.
    duplex
        Whether both directions go at once: the time is the larger of the two, otherwise their sum.
    overlap
        How this level's time composes with that of the levels beyond it: ``"sum"`` or ``"max"``.
    hashed
        Whether a hash of the whole address chooses the set, so that no stride keeps to a few of them; None where it is
        not known.

    Notes
    -----
    Source: Alappat et al., YaskSite, Section V, Eq. 6 and 9.
    """

    name: str
    size_bytes: int
    shared_by: int
    line_bytes: int
    ways: int | None
    write_allocate: bool
    victim: bool
    load_bytes_per_cycle: float | None
    store_bytes_per_cycle: float | None
    duplex: bool
    overlap: str
    hashed: bool | None = None

    def sets(self, cores: int) -> tuple[int, int] | None:
        """Return the number of sets that address bits choose and the ways each of some working cores has of them.

        None where no stride can favour a set: with a hash, without known associativity, or with one set. Where it is
        not known, caches that cores share are taken as hashed.

        Parameters
        ----------
        cores
            Working cores, as in `bytes_per_core`.

        Notes
        -----
        Source: the slices of Intel's last-level caches are chosen by a hash of the address (Maurice et al., RAID 2015);
        first and second levels by the bits above those of the line.
        """
        hashed = self.shared_by > 1 if self.hashed is None else self.hashed
        if hashed or self.ways is None:
            return None
        count = self.size_bytes // (self.line_bytes * self.ways)
        ways = max(1, self.ways // min(cores, self.shared_by))
        return (count, ways) if count > 1 else None

    def bytes_per_core(self, cores: int) -> int:
        """Return the part of an instance that each of some working cores has, in bytes.

        The sets are divided by the number of cores that share an instance and work; what is left over is nobody's.

        Parameters
        ----------
        cores
            Working cores, placed so that they fill one instance after the other.
        """
        users = min(cores, self.shared_by)
        set_bytes = self.line_bytes * (self.ways or 1)
        return self.size_bytes // set_bytes // users * set_bytes


@dataclass(frozen=True)
class MemoryStream:
    """A measured bandwidth of the memory.

    Attributes
    ----------
    name
        Name of the benchmark, e.g. ``"copy"``.
    loads, stores, write_allocates
        Arrays it loads, stores, and fetches only because it stores them.
    bandwidth
        B/s of all of its traffic, write-allocate included, of one domain with all its cores working.
    """

    name: str
    loads: int
    stores: int
    write_allocates: int
    bandwidth: float

    @property
    def stored_part(self) -> float:
        """The part of its traffic that goes to the memory."""
        return self.stores / (self.loads + self.stores + self.write_allocates)
