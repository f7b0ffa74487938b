"""The machine: what estimators know of a device's hardware."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from perflex.errors import MachineError
from perflex.html import shown_by
from perflex.tables import Column, Table, fixed, number, text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# What each unit is in SI units; units of one dimension can stand for one another in a file.
UNITS: Mapping[str, Mapping[str, float]] = {
    unit: group
    for group in (
        {"1": 1.0},
        {"work-item": 1.0},
        {"work-group": 1.0},
        {"work-group/s": 1.0, "Mwork-group/s": 1e6},
        {"register": 1.0},
        {"s": 1.0, "ns": 1e-9},
        {"Hz": 1.0, "MHz": 1e6, "GHz": 1e9},
        {"B": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30},
        {"B/s": 1.0, "GB/s": 1e9, "TB/s": 1e12},
        {"B/cycle": 1.0},
        {"op/cycle": 1.0},
        {"instruction/s": 1.0, "Ginstruction/s": 1e9},
        {"core": 1.0},
        {"domain": 1.0},
        {"way": 1.0},
        {"cycle": 1.0},
    )
    for unit in group
}


def in_natural_unit(value: float, unit: str) -> tuple[float, str]:
    """Return a value in SI units in the largest unit of which it is one or more; bytes in units they are whole of."""
    fitting = [
        (factor, name)
        for name, factor in UNITS[unit].items()
        if value >= factor and (unit != "B" or value % factor == 0)
    ]
    factor, name = max(fitting, default=(1.0, unit))
    return value / factor, "" if name == "1" else name


@dataclass(frozen=True)
class Source:
    """Where a fact comes from."""

    # "datasheet" (the maker's documents), "reported" (by the operating system), "measured", "derived" from other facts,
    # or "assumed".
    kind: str
    # The document or measurement.
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


# Warp-level instructions, and the levels that transactions go to.
CEILING_LEVELS = ("instructions", "l1", "local", "l2", "dram")


@dataclass(frozen=True)
class PublishedCeiling:
    """The most of something that a machine does in a second."""

    # In instructions of sub-groups per second, or in B/s.
    rate: float
    source: Source


@dataclass(frozen=True)
class CacheLevel:
    """A cache level of a CPU (Alappat et al., YaskSite, Section V, Eq. 6 and 9)."""

    # "L1", "L2", ...; features call it so in lower case.
    name: str
    # Of one instance, and how many cores share it.
    size_bytes: int
    shared_by: int
    line_bytes: int
    # Associativity; None where it is not known.
    ways: int | None
    # Whether a store that misses fetches the line first.
    write_allocate: bool
    # Whether it is filled by evictions from the level before it.
    victim: bool
    # Of a core, from this level to the one before it (for the first level: to the registers), and the other way.
    load_bytes_per_cycle: float | None
    store_bytes_per_cycle: float | None
    # Whether both directions go at once: the time is the larger of the two, otherwise their sum.
    duplex: bool
    # How this level's time composes with that of the levels beyond it: "sum" or "max".
    overlap: str
    # Whether a hash of the whole address chooses the set, so that no stride keeps to a few of them; None where it is
    # not known.
    hashed: bool | None = None

    def sets(self, cores: int) -> tuple[int, int] | None:
        """Return the number of sets that address bits choose and the ways each of some working cores has of them.

        None where no stride can favour a set: with a hash, without known associativity, or with one set.
        """
        # Slices of Intel's last-level caches are chosen by a hash of the address (Maurice et al., RAID 2015), the sets
        # of first and second levels by the bits above those of the line.
        hashed = self.shared_by > 1 if self.hashed is None else self.hashed
        if hashed or self.ways is None:
            return None
        count = self.size_bytes // (self.line_bytes * self.ways)
        ways = max(1, self.ways // min(cores, self.shared_by))
        return (count, ways) if count > 1 else None

    def bytes_per_core(self, cores: int) -> int:
        """Return the part of an instance, in bytes, that each of some working cores has; they fill one after another.

        The sets are divided by the number of cores that share an instance and work; what is left over is nobody's.
        """
        users = min(cores, self.shared_by)
        set_bytes = self.line_bytes * (self.ways or 1)
        return self.size_bytes // set_bytes // users * set_bytes


@dataclass(frozen=True)
class MemoryStream:
    """A measured bandwidth of the memory."""

    # Of the benchmark, such as "copy".
    name: str
    # Arrays it loads, stores, and fetches only because it stores them.
    loads: int
    stores: int
    write_allocates: int
    # B/s of all of its traffic, write-allocate included, of one domain with all its cores working.
    bandwidth: float

    @property
    def stored_part(self) -> float:
        """The part of its traffic that goes to the memory."""
        return self.stores / (self.loads + self.stores + self.write_allocates)


KINDS = ("gpu", "cpu")
L1_RULES = ("nvidia", "nvidia_volta", "amd_cdna2", "amd_rdna2", "sector_banks")
"""Whose first cache a GPU has: how many cycles an instruction takes there."""


@dataclass(frozen=True)
class Fact:
    """What a machine's fact is."""

    # In SI.
    unit: str
    whole: bool = True
    zero: bool = False
    # Machines that it is about.
    kinds: tuple[str, ...] = ("gpu",)


# Any: the dataclass field that stands for the fact.
def _fact(unit: str, *, whole: bool = True, zero: bool = False, kinds: tuple[str, ...] = ("gpu",)) -> Any:
    return field(default=None, metadata={"fact": Fact(unit, whole, zero, kinds)})


# Compute capabilities whose compute units have 16 load/store units, and whose banks of local memory are half as fast.
_FEWER_LOAD_STORE_UNITS = {7.5, 8.6, 8.7, 8.9}
_HALF_LOCAL_MEMORY = {7.5}
_VOLTA = 7


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
    l1_bytes_per_cycle
        Bytes per cycle and compute unit of that cache.
    l2_bytes, l2_effective_bytes, l2_bandwidth, dram_bandwidth
        Size of the second cache, the part of it that data can rely on, and bandwidths in B/s; of a CPU's memory that
        of all domains together.
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
    target
        AMD's name of the same by LLVM, as ``"gfx90a"``.
    units_per_group
        Compute units over which a work-group's sub-groups are spread, with local memory in common; None for one. Two on
        RDNA (work-group processor mode).
    schedulers_per_unit
        Sub-groups' arithmetic instructions that a compute unit starts per cycle: one by each scheduler, or two where
        it has two dispatch units.
    register_files_per_unit
        Parts of a compute unit with a register file of their own; None for one part per scheduler.
    registers_per_unit, registers_per_item_max, register_granularity
        32-bit registers of a compute unit, most for one work-item, and the step in which a work-item gets them.
    group_start_rate, dram_latency
        Work-groups that the device starts per second at most, and the time of a load that no cache holds, in s.
    fp32_per_cycle, fp64_per_cycle
        Operations per cycle and compute unit; a multiply-add is two.
    tensor_fp16_per_cycle, tensor_tf32_per_cycle, tensor_fp8_per_cycle, tensor_int8_per_cycle, tensor_fp64_per_cycle
        Operations per cycle and compute unit of tensor or matrix cores on dense operands; a multiply-add is two. Those
        of float16 (and of bfloat16, where there is such), TF32 and 8-bit floats are added up in float32. Where a type
        has none, the fact is not known. `clock_hz` may be above the clock that they hold.
    int32_per_cycle, int32_mul_per_cycle, special_per_cycle
        Results per cycle and compute unit: integer additions, comparisons and bit operations; integer multiplications
        or multiply-adds; special functions (reciprocals, roots, exponentials, logarithms, sines).
    load_store_per_cycle
        Work-items whose addresses of loads and stores a compute unit takes per cycle, of global and of local memory;
        None for `load_store_units`.
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
    page_bytes, tlb_entries
        A CPU's pages of memory, and how many of them each core maps at a time; None for 4 KiB and 2048.
    memory_load_penalty, memory_store_penalty
        Cycles that a line loaded from memory, or stored to it, takes beyond what the bandwidth says; None for none.
    levels
        A CPU's caches, the one next to the core first.
    memory_streams
        Measured bandwidths of a CPU's memory.
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
    target: str | None = None
    compute_units: int | None = _fact("1", kinds=KINDS)
    clock_hz: float | None = _fact("Hz", whole=False, kinds=KINDS)
    sub_group_size: int | None = _fact("work-item")
    l1_bytes: int | None = _fact("B")
    line_bytes: int | None = _fact("B", kinds=KINDS)
    sector_bytes: int | None = _fact("B")
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
    units_per_group: int | None = _fact("1")
    schedulers_per_unit: int | None = _fact("1")
    register_files_per_unit: int | None = _fact("1")
    registers_per_unit: int | None = _fact("register")
    registers_per_item_max: int | None = _fact("register")
    register_granularity: int | None = _fact("register")
    group_start_rate: float | None = _fact("work-group/s", whole=False)
    dram_latency: float | None = _fact("s", whole=False)
    fp32_per_cycle: float | None = _fact("op/cycle", whole=False, kinds=KINDS)
    fp64_per_cycle: float | None = _fact("op/cycle", whole=False, kinds=KINDS)
    tensor_fp16_per_cycle: float | None = _fact("op/cycle", whole=False)
    tensor_tf32_per_cycle: float | None = _fact("op/cycle", whole=False)
    tensor_fp8_per_cycle: float | None = _fact("op/cycle", whole=False)
    tensor_int8_per_cycle: float | None = _fact("op/cycle", whole=False)
    tensor_fp64_per_cycle: float | None = _fact("op/cycle", whole=False)
    int32_per_cycle: float | None = _fact("op/cycle", whole=False)
    int32_mul_per_cycle: float | None = _fact("op/cycle", whole=False)
    special_per_cycle: float | None = _fact("op/cycle", whole=False)
    load_store_per_cycle: float | None = _fact("op/cycle", whole=False)
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
    page_bytes: int | None = _fact("B", kinds=("cpu",))
    tlb_entries: int | None = _fact("1", kinds=("cpu",))
    memory_load_penalty: float | None = _fact("cycle", whole=False, zero=True, kinds=("cpu",))
    memory_store_penalty: float | None = _fact("cycle", whole=False, zero=True, kinds=("cpu",))
    levels: tuple[CacheLevel, ...] = ()
    memory_streams: tuple[MemoryStream, ...] = ()
    # Dictionaries have no hash; machines that are equal hash alike without them, too.
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

    @property
    def parts_per_unit(self) -> int:
        """Parts of a compute unit, to which its sub-groups are dealt out."""
        return self.register_files_per_unit or int(self.need("schedulers_per_unit"))

    @property
    def load_store_units(self) -> float:
        """Work-items whose addresses a compute unit takes per cycle: as stated, else by the compute capability.

        NVIDIA's units have 32 load/store units, those of Turing and of GeForce, RTX and L cards since then 16
        (architecture white papers of Turing, GA102 and Ada). Of others, 32 are the banks of local memory.
        """
        if self.load_store_per_cycle is not None:
            return self.load_store_per_cycle
        return 16.0 if self.compute_capability in _FEWER_LOAD_STORE_UNITS else 32.0

    @property
    def l1_keeps_private(self) -> bool:
        """Whether the first cache keeps work-items' own memory: not on Maxwell and Pascal (Maxwell Tuning Guide)."""
        return self.compute_capability is None or not 5 <= self.compute_capability < _VOLTA

    @property
    def local_wavefronts_per_cycle(self) -> float:
        """Wavefronts of local memory per cycle of a compute unit.

        All banks serve a word in each cycle, but on Turing in every other one: 64 bytes per cycle, where GA102 has 128
        (NVIDIA's white paper of GA102, 2nd generation RTX: shared memory).
        """
        return 0.5 if self.compute_capability in _HALF_LOCAL_MEMORY else 1.0

    def need_l1_rules(self) -> str:
        """Return whose rules the first cache follows, which must be known."""
        if self.l1_rules not in L1_RULES:
            msg = (
                f"machine {self.name} has no fact l1_rules, without which cycles of its L1 cache are not known; give a "
                f"machine file that states it, one of {', '.join(L1_RULES)}"
            )
            raise MachineError(msg, machine=self.name, fact="l1_rules")
        return self.l1_rules

    def need_levels(self) -> tuple[CacheLevel, ...]:
        """Return the cache levels, which must be known."""
        if not self.levels:
            msg = f"machine {self.name} has no cache levels; give a machine file of a CPU that has a field levels"
            raise MachineError(msg, machine=self.name, fact="levels")
        return self.levels

    def known(self) -> dict[str, float]:
        """Return the facts that are known, by name, in SI units."""
        values = {name: getattr(self, name) for name in FACTS}
        return {name: value for name, value in values.items() if value is not None}

    def unknown(self) -> list[str]:
        """Return the facts that machines of its kind have and that are not known of it."""
        return [name for name, fact in FACTS.items() if getattr(self, name) is None and self.kind in fact.kinds]

    def _numbered(self) -> dict[Source, int]:
        # Sources are cited by number, as in a paper, for many facts share one.
        cited = dict.fromkeys([*self.sources.values(), *(one.source for one in self.ceilings.values())])
        return {source: number for number, source in enumerate(cited, start=1)}

    def source_lines(self) -> list[str]:
        """Return the sources that the tables cite, a line each."""
        return [f"[{number}] {source}" for source, number in self._numbered().items()]

    def _cited(self, key: str) -> str:
        """Return the numbers of the sources of a fact, or of all facts of a level."""
        numbers = self._numbered()
        found = {numbers[source] for name, source in self.sources.items() if name == key or name.startswith(f"{key}.")}
        return "".join(f"[{number}]" for number in sorted(found))

    def tables(self) -> list[Table]:
        """Return facts, cache levels, bandwidths of the memory and ceilings of the roofline; of what there is."""
        facts: list[Sequence[Any]] = [
            (name, *in_natural_unit(value, FACTS[name].unit), self._cited(name)) for name, value in self.known().items()
        ]
        words = (("l1_rules", self.l1_rules), ("target", self.target))
        facts += [(name, word, "", self._cited(name)) for name, word in words if word]
        levels = [
            (*(getattr(level, column.name) for column in _LEVELS[:-1]), self._cited(level.name))
            for level in self.levels
        ]
        streams = [
            (one.name, one.bandwidth, one.loads, one.stores, one.write_allocates, self._cited(f"memory.{one.name}"))
            for one in self.memory_streams
        ]
        rates = [
            (
                level,
                *in_natural_unit(one.rate, "instruction/s" if level == "instructions" else "B/s"),
                f"[{self._numbered()[one.source]}]",
            )
            for level, one in self.ceilings.items()
        ]
        found = [
            Table("Facts", _FACTS, facts),
            Table("Cache levels", _LEVELS, levels),
            Table("Bandwidths of a domain's memory, by arrays in it", _STREAMS, streams),
            Table("Ceilings of the roofline", [text("level"), *_FACTS[1:]], rates),
        ]
        return [table for table in found if table.rows]

    _repr_html_ = shown_by("machine.html")


def _exactly(value: float) -> str:
    return f"{value:.10g}"


_FACTS = (text("fact"), Column("value", write=_exactly), text("unit"), text("source"))
_LEVELS = (
    text("name", "level"),
    Column("size_bytes", "size", write=_exactly, unit="KiB", factor=1 / 1024),
    fixed("shared_by", unit="cores"),
    fixed("line_bytes", "line", unit="B"),
    fixed("ways"),
    number("load_bytes_per_cycle", "load", unit="B/cycle"),
    number("store_bytes_per_cycle", "store", unit="B/cycle"),
    text("duplex", "both at once"),
    text("write_allocate"),
    text("victim"),
    text("overlap", "with what is beyond"),
    text("source"),
)
_STREAMS = (
    text("name", "benchmark"), number("bandwidth", unit="GB/s", factor=1e-9), fixed("loads"), fixed("stores"),
    fixed("write_allocates"), text("source"),
)  # fmt: skip


FACTS: Mapping[str, Fact] = {
    entry.name: entry.metadata["fact"] for entry in fields(Machine) if "fact" in entry.metadata
}
