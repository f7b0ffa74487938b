"""The machine: what estimators know of a device's hardware."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from perflex.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.machines.ceilings import PublishedCeiling
    from perflex.machines.levels import CacheLevel, MemoryStream
    from perflex.machines.units import Source

KINDS = ("gpu", "cpu")
L1_RULES = ("nvidia", "nvidia_volta", "amd_cdna2", "amd_rdna2", "sector_banks")
"""Whose first cache a GPU has: how many cycles an instruction takes there."""


@dataclass(frozen=True)
class Fact:
    """What a machine's fact is.

    Attributes
    ----------
    unit
        Its SI unit.
    whole, zero
        Whether it is a whole number, and whether it may be zero.
    kinds
        Machines that it is about.
    """

    unit: str
    whole: bool = True
    zero: bool = False
    kinds: tuple[str, ...] = ("gpu",)


# Any: the dataclass field that stands for the fact.
def _fact(unit: str, *, whole: bool = True, zero: bool = False, kinds: tuple[str, ...] = ("gpu",)) -> Any:
    return field(default=None, metadata={"fact": Fact(unit, whole, zero, kinds)})


@dataclass(frozen=True)
class Machine:
    """Hardware facts of a device, in SI units; None where a fact is not known.

    Attributes
    ----------
    name
        What ``--machine`` takes.
    aliases
        Names that drivers give the device.
    vendor, kind
        Its maker; ``"gpu"`` or ``"cpu"``.
    compute_units, clock_hz, sub_group_size
        Compute units, the clock they run at under load, and work-items that execute together.
    l1_bytes, line_bytes, sector_bytes
        Of a compute unit's first cache: size, what is allocated at once, and what is fetched at once.
    l1_rules
        One of `L1_RULES`; None where it is not known, so that there is no estimate of that cache's cycles.
    l1_banks, l1_bank_bytes, l1_bytes_per_cycle
        Banks of that cache, their width, and bytes per cycle and compute unit.
    l2_bytes, l2_effective_bytes, l2_bandwidth, dram_bandwidth
        Size of the second cache, the part of it that data can rely on, and bandwidths in B/s.
    local_bytes, local_bytes_per_group
        Local memory of a compute unit, and the most that one work-group can have.
    local_reserved_bytes, local_granularity_bytes
        What each work-group takes beside its own local memory, and in which steps it is given; None for nothing
        and single bytes.
    local_banks, local_bank_bytes
        Banks of local memory and their width.
    max_items_per_unit, max_groups_per_unit, max_items_per_group
        Limits on resident work-items and work-groups of a compute unit, and on a work-group.
    compute_capability
        NVIDIA's version of the hardware's abilities, as 9.0: what code is compiled for.
    schedulers_per_unit
        Parts of a compute unit with a register file of their own; None for one part.
    registers_per_unit, registers_per_item_max, register_granularity
        32-bit registers of a compute unit, most for one work-item, and the step in which a work-item gets them.
    group_start_rate, dram_latency
        Work-groups that the device starts per second at most, and the time of a load that no cache holds, in s.
    fp32_per_cycle, fp64_per_cycle
        Operations per cycle and compute unit; a multiply-add is two.
    int32_per_cycle, int32_mul_per_cycle, special_per_cycle
        Results per cycle and compute unit: integer additions, comparisons and bit operations; integer multiplications
        or multiply-adds; special functions (reciprocals, roots, exponentials, logarithms, sines).
    atomics_per_cycle, distinct_atomics_per_cycle
        Atomic updates of global memory per cycle over all compute units: of one address, and of different ones.
    l2_bytes_per_cycle
        Bytes per cycle that one compute unit gets from the second cache.
    l1_latency, local_latency, l2_latency, arithmetic_latency
        Cycles after which a load that L1, local memory or L2 serves, or a float32 multiply-add, can be used.
    iterations_together
        Iterations of a loop whose loads are issued together, since its compiler unrolls and reorders them.
    su_line_bytes
        Line size that Su's closed forms use for the first cache; None for `line_bytes`.
    cores, cores_per_domain, domains
        Of a CPU: cores, cores that share one memory interface (a domain), and domains.
    domain_efficiency
        Part of the sum of the domains' bandwidths that all domains together reach; None for all of it.
    simd_bytes
        Width of a CPU's vector registers.
    memory_load_penalty, memory_store_penalty
        Cycles that a line loaded from memory, or stored to it, takes beyond what the bandwidth says; None for none.
    levels
        A CPU's caches, the one next to the core first.
    memory_streams
        Measured bandwidths of a CPU's memory.
    curves
        Coefficients (a, b, c) of capacity curves ``a exp(-b exp(-c O))`` of the oversubscription O, by name.
    sources
        Where each known fact comes from; a level's are named ``L1.size_bytes``, a stream's ``memory.copy``.
    ceilings
        Published ceilings of the instruction roofline, which precede those that the facts give.
    """

    name: str
    aliases: tuple[str, ...] = ()
    vendor: str = ""
    kind: str = "gpu"
    l1_rules: str | None = None
    compute_units: int | None = _fact("1", kinds=KINDS)
    clock_hz: float | None = _fact("Hz", whole=False, kinds=KINDS)
    sub_group_size: int | None = _fact("work-item")
    l1_bytes: int | None = _fact("B")
    line_bytes: int | None = _fact("B", kinds=KINDS)
    sector_bytes: int | None = _fact("B")
    l1_banks: int | None = _fact("1")
    l1_bank_bytes: int | None = _fact("B")
    l1_bytes_per_cycle: float | None = _fact("B/cycle", whole=False)
    l2_bytes: int | None = _fact("B")
    l2_effective_bytes: int | None = _fact("B")
    l2_bandwidth: float | None = _fact("B/s", whole=False)
    dram_bandwidth: float | None = _fact("B/s", whole=False, kinds=KINDS)
    local_bytes: int | None = _fact("B")
    local_bytes_per_group: int | None = _fact("B")
    local_reserved_bytes: int | None = _fact("B", zero=True)
    local_granularity_bytes: int | None = _fact("B")
    local_banks: int | None = _fact("1")
    local_bank_bytes: int | None = _fact("B")
    max_items_per_unit: int | None = _fact("work-item")
    max_groups_per_unit: int | None = _fact("work-group")
    max_items_per_group: int | None = _fact("work-item")
    compute_capability: float | None = _fact("1", whole=False)
    schedulers_per_unit: int | None = _fact("1")
    registers_per_unit: int | None = _fact("register")
    registers_per_item_max: int | None = _fact("register")
    register_granularity: int | None = _fact("register")
    group_start_rate: float | None = _fact("work-group/s", whole=False)
    dram_latency: float | None = _fact("s", whole=False)
    fp32_per_cycle: float | None = _fact("op/cycle", whole=False, kinds=KINDS)
    fp64_per_cycle: float | None = _fact("op/cycle", whole=False, kinds=KINDS)
    int32_per_cycle: float | None = _fact("op/cycle", whole=False)
    int32_mul_per_cycle: float | None = _fact("op/cycle", whole=False)
    special_per_cycle: float | None = _fact("op/cycle", whole=False)
    atomics_per_cycle: float | None = _fact("op/cycle", whole=False)
    distinct_atomics_per_cycle: float | None = _fact("op/cycle", whole=False)
    l2_bytes_per_cycle: float | None = _fact("B/cycle", whole=False)
    l1_latency: float | None = _fact("cycle", whole=False)
    local_latency: float | None = _fact("cycle", whole=False)
    l2_latency: float | None = _fact("cycle", whole=False)
    arithmetic_latency: float | None = _fact("cycle", whole=False)
    iterations_together: int | None = _fact("1")
    su_line_bytes: int | None = _fact("B")
    cores: int | None = _fact("core", kinds=("cpu",))
    cores_per_domain: int | None = _fact("core", kinds=("cpu",))
    domains: int | None = _fact("domain", kinds=("cpu",))
    domain_efficiency: float | None = _fact("1", whole=False, kinds=("cpu",))
    simd_bytes: int | None = _fact("B", kinds=("cpu",))
    memory_load_penalty: float | None = _fact("cycle", whole=False, zero=True, kinds=("cpu",))
    memory_store_penalty: float | None = _fact("cycle", whole=False, zero=True, kinds=("cpu",))
    levels: tuple[CacheLevel, ...] = ()
    memory_streams: tuple[MemoryStream, ...] = ()
    # Dictionaries have no hash; machines that are equal hash alike without them, too.
    curves: Mapping[str, tuple[float, float, float]] = field(default_factory=dict, hash=False)
    sources: Mapping[str, Source] = field(default_factory=dict, hash=False, compare=False, repr=False)
    ceilings: Mapping[str, PublishedCeiling] = field(default_factory=dict, hash=False)

    def need(self, fact: str) -> float:
        """Return a fact that must be known; whole numbers are exact up to 2**53.

        Raises
        ------
        MachineError
            It is not known for this machine.
        """
        value: float | None = getattr(self, fact)
        if value is None:
            unit = FACTS[fact].unit
            msg = f"machine {self.name} has no fact {fact}; give a machine file that states it (unit {unit})"
            raise MachineError(msg, machine=self.name, fact=fact)
        return value

    def need_l1_rules(self) -> str:
        """Return whose rules the first cache follows, which must be known.

        Raises
        ------
        MachineError
            They are not known for this machine.
        """
        if self.l1_rules not in L1_RULES:
            msg = (
                f"machine {self.name} has no fact l1_rules, without which cycles of its L1 cache are not known; give a "
                f"machine file that states it, one of {', '.join(L1_RULES)}"
            )
            raise MachineError(msg, machine=self.name, fact="l1_rules")
        return self.l1_rules

    def need_levels(self) -> tuple[CacheLevel, ...]:
        """Return the cache levels, which must be known.

        Raises
        ------
        MachineError
            They are not known for this machine.
        """
        if not self.levels:
            msg = f"machine {self.name} has no cache levels; give a machine file of a CPU that has a field levels"
            raise MachineError(msg, machine=self.name, fact="levels")
        return self.levels

    def known(self) -> dict[str, float]:
        """Return the facts that are known, by name, in SI units."""
        values = {name: getattr(self, name) for name in FACTS}
        return {name: value for name, value in values.items() if value is not None}


FACTS: Mapping[str, Fact] = {
    entry.name: entry.metadata["fact"] for entry in fields(Machine) if "fact" in entry.metadata
}
