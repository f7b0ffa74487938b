"""What the ECM estimator returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from perflex.features.polynomials.computed_once import computed_once
from perflex.html import shown_by

if TYPE_CHECKING:
    from collections.abc import Callable

    from perflex.features.cpu.conflicts import Conflict

MEMORY = "memory"


@dataclass(frozen=True)
class LevelTraffic:
    """Traffic between a level of the memory hierarchy and the one before it; of the first level, the registers.

    NestValues are floats, or arrays of the shape of the sizes and block sizes.

    Attributes
    ----------
    name
        The cache level's name, or ``"memory"``.
    load_bytes, store_bytes
        Bytes per iteration towards the core, write-allocates included, and away from it.
    allocate_bytes
        The part of the loads that only stores need.
    cycles
        Cycles per iteration of one core; None where the machine has no bandwidth for it.
    launch_load_bytes, launch_store_bytes, launch_cycles
        The same for one run of the kernel with all its launches.
    """

    name: str
    load_bytes: Any
    store_bytes: Any
    allocate_bytes: Any
    cycles: Any
    launch_load_bytes: Any
    launch_store_bytes: Any
    launch_cycles: Any

    @property
    def bytes(self) -> Any:
        """Bytes per iteration, both ways."""
        return self.load_bytes + self.store_bytes

    @property
    def launch_bytes(self) -> Any:
        """Bytes per run of the kernel, both ways."""
        return self.launch_load_bytes + self.launch_store_bytes


@dataclass(frozen=True)
class Condition:
    """A layer condition: when a cache holds what the reuse over a loop needs.

    Attributes
    ----------
    level
        The cache.
    loop
        The loop; ``"all"`` for the condition that all data fit.
    inequality
        In the sizes and block sizes, in units of a common factor of bytes. It is the one that holds around the
        sizes given.
    symbol
        The size or block size it is solved for, empty if there is none in it.
    largest
        Largest whole number of `symbol` that meets it, with the others as given; None if there is no such number.
    met
        Whether it is met at the sizes given.
    needed_bytes, cache_bytes
        What the reuse needs at the sizes given, and what a core has of the cache.
    hits, misses, evicts
        Accesses per iteration that the cache serves, those that it does not, and stores that leave it, once this
        condition is met and none for a longer reuse; those of the nest it belongs to.
    reach
        Distance of the reuse in bytes, as a polynomial.
    """

    level: str
    loop: str
    inequality: str
    symbol: str
    largest: int | None
    met: bool
    needed_bytes: float
    cache_bytes: int
    hits: int
    misses: int
    evicts: int
    reach: str


@dataclass(frozen=True)
class EcmEstimate:
    """Traffic of a kernel between the levels of a CPU's memory hierarchy.

    Attributes
    ----------
    kernel, machine
        Names.
    levels
        Traffic of each cache level, the first one first, and of the memory.
    iterations
        Executions of the innermost body per run of the kernel: of the nest that has most.
    memory_stream
        Name of the bandwidth that the memory's cycles are computed with, per size; empty if there is none.
    memory_penalty
        Cycles per iteration that lines from and to the memory take beyond the bandwidth.
    cores
        Cores at work.
    varying
        Loops whose range depends on others: volumes are means over their ranges, conditions those of the largest.
    approximated
        What of the kernel is not followed exactly, as sentences; empty where all is.
    find_conditions, find_conflicts
        Compute the conditions, and the conflicts.
    """

    kernel: str
    machine: str
    levels: tuple[LevelTraffic, ...]
    iterations: Any
    memory_stream: Any
    memory_penalty: Any
    cores: int
    varying: tuple[str, ...]
    approximated: tuple[str, ...]
    find_conditions: Callable[[], tuple[Condition, ...]] = field(repr=False, compare=False)
    find_conflicts: Callable[[], tuple[Conflict, ...]] = field(repr=False, compare=False)

    @computed_once
    def conditions(self) -> tuple[Condition, ...]:
        """Layer conditions of all caches, of each the longest reuse first; empty for arrays of sizes."""
        return self.find_conditions()

    @computed_once
    def conflicts(self) -> tuple[Conflict, ...]:
        """What crowded sets cost, of each cache and array the worst; empty for arrays of sizes."""
        return self.find_conflicts()

    def level(self, name: str) -> LevelTraffic:
        """Return the traffic of a level by its name, upper or lower case; ``"mem"`` is the memory."""
        wanted = MEMORY if name.lower() == "mem" else name.lower()
        return next(level for level in self.levels if level.name.lower() == wanted)

    _repr_html_ = shown_by("perflex.features.result_html:traffic_html")

    def features(self) -> dict[str, Any]:
        """Return bytes and cycles per run of the kernel, by feature identifier; cycles that are known."""
        values = {}
        for level in self.levels:
            short = "mem" if level.name == MEMORY else level.name.lower()
            values[f"f_ecm_vol_{short}"] = level.launch_bytes
            if level.launch_cycles is not None:
                values[f"f_ecm_cycles_{short}"] = level.launch_cycles
        return values
