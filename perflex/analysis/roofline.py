"""What limits a kernel: the times of DRAM, caches, arithmetic (Ernst et al., Section 2), and the instruction roofline.

The roofline is what a machine can do, walls of access patterns, and where a kernel stands. Source: Ding and Williams,
PMBS 2019; sections and equations without a name are theirs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isnan, prod
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from perflex.errors import MachineError
from perflex.features import counts_of
from perflex.features.families.arithmetic import INSTRUCTION_FEATURES
from perflex.features.families.registry import parse_feature
from perflex.features.gpu.memory_instructions import bank_conflicts, distinct
from perflex.features.gpu.volume_estimate import cache_transactions, l1_transactions, require_gpu
from perflex.features.target import Target
from perflex.machines.machine import CEILING_LEVELS, FACTS
from perflex.tables import Table, seconds, text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.calibration.calibration import Calibration
    from perflex.features import Scop
    from perflex.features.gpu.volume_result import Volumes
    from perflex.machines.machine import Machine

LIMIT_NAMES = {
    "dram": "DRAM",
    "l2": "L2",
    "l1": "L1",
    "local": "local memory",
    "instructions": "instruction issue",
    "arithmetic": "arithmetic",
    "groups": "group start",
    "latency": "latency",
}
"""Names by identifier, the farthest from a GPU's cores first."""
LIMITERS = tuple(LIMIT_NAMES[name] for name in ("dram", "l2", "l1", "local", "arithmetic", "groups", "latency"))
"""Parts of a GPU that can limit a kernel, the farthest from its cores first."""
_UNITS = {"float32": "fp32_per_cycle", "float64": "fp64_per_cycle"}
# Each is one instruction, of which a unit for multiply-adds starts as many as of those.
_INSTRUCTIONS = ("add", "mul", "madd", "fma")
_CYCLES = ("compute_units", "clock_hz")


@dataclass(frozen=True)
class Limits:
    """The time that each part of a machine would need alone, in seconds per launch, in the order of `LIMITERS`.

    `missing` has the facts that the machine's file lacks for other limiters, `uncounted` the floating point operations
    of unknown throughput, which the arithmetic leaves out.
    """

    seconds: Mapping[str, float]
    missing: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    uncounted: tuple[str, ...] = field(default=())

    @property
    def limiter(self) -> str:
        """The part that needs the longest, of those that are known; ``"none"`` where no part needs any time."""
        return max(self.seconds, key=lambda name: self.seconds[name]) if self.predicted_s else "none"

    @property
    def predicted_s(self) -> float:
        """The longest time, since all parts work at once; the least that it can be where some are not known."""
        return max(self.seconds.values(), default=0.0)

    def table(self) -> Table:
        """Return the time of each part, or which facts of the machine are needed to know it."""
        rows = [(name, self.seconds.get(name), list(map(_with_unit, self.missing.get(name, ())))) for name in LIMITERS]
        return Table("Limits", [text("part"), seconds("time_s"), text("needed", "the machine's file needs")], rows)


def _with_unit(fact: str) -> str:
    return f"{fact} ({FACTS[fact].unit})" if fact in FACTS else fact


def limits_of(volumes: Volumes, scop: Scop, sizes: Mapping[str, Any], machine: Machine) -> Limits:
    """Return what limits a kernel, from its volumes.

    Additions, multiplications and multiply-adds are counted. A compute unit completes one wavefront of L1 and one of
    local memory per cycle.
    """
    operations, uncounted = _arithmetic(scop, sizes)
    total, waves = volumes.total, volumes.loading_waves
    # Amounts, each with the facts whose product is how much of it is done in a second.
    work: dict[str, list[_Amount]] = {
        "dram": [(total.dram_load + total.dram_store, ("dram_bandwidth",))],
        "l2": [(total.l2_l1_load + total.l2_l1_store, ("l2_bandwidth",))],
        "l1": [(total.l1_wavefronts, _CYCLES)],
        "local": [(total.local_wavefronts_load + total.local_wavefronts_store, _CYCLES)],
        "arithmetic": operations,
        "groups": [(started_groups(scop, sizes), ("group_start_rate",))],
    }
    seconds: dict[str, float] = {}
    missing: dict[str, tuple[str, ...]] = {}
    for name, parts in work.items():
        lacking = _lacking(parts, machine)
        if any(isnan(amount) for amount, _ in parts):
            lacking = ("l1_rules", *lacking)
        if lacking:
            missing[LIMIT_NAMES[name]] = lacking
        else:
            seconds[LIMIT_NAMES[name]] = _seconds(parts, machine)
    if waves and machine.dram_latency is None:
        missing[LIMIT_NAMES["latency"]] = ("dram_latency",)
    else:
        seconds[LIMIT_NAMES["latency"]] = waves * (machine.dram_latency or 0.0)
    return Limits(seconds, missing, uncounted)


# How much of something a kernel does, with the facts whose product is how much of it is done in a second.
_Amount: TypeAlias = "tuple[float, tuple[str, ...]]"


def _arithmetic(scop: Scop, sizes: Mapping[str, Any]) -> tuple[list[_Amount], tuple[str, ...]]:
    """Return the floating point operations of a kernel, and those of unknown throughput."""
    counts = counts_of(scop)
    operations: list[_Amount] = []
    uncounted = []
    used = {(op.dtype, op.kind) for statement in scop.statements for op in statement.operations}
    for dtype, kind in sorted(used):
        if dtype in _UNITS and kind in _INSTRUCTIONS:
            # Throughputs count a multiply-add as two operations.
            executed = 2 * float(counts.operation_total(kind, dtype, None).evaluate(sizes))
            operations.append((executed, (_UNITS[dtype], *_CYCLES)))
        elif dtype.startswith(("float", "bfloat", "complex")):
            uncounted.append(f"f_op_{dtype}_{kind}")
    return operations, tuple(uncounted)


def _lacking(parts: Sequence[_Amount], machine: Machine) -> tuple[str, ...]:
    needed = dict.fromkeys(fact for amount, facts in parts if amount for fact in facts)
    return tuple(fact for fact in needed if getattr(machine, fact) is None)


def _seconds(parts: Sequence[_Amount], machine: Machine) -> float:
    return sum((amount / prod(machine.need(fact) for fact in facts) for amount, facts in parts if amount), start=0.0)


def started_groups(scop: Scop, sizes: Mapping[str, Any]) -> float:
    """Return how many work-groups the launches of a run start."""
    return sum(float(launch.group_count.evaluate(sizes)) for launch in scop.launches)


# Levels that all instructions are compared with, and the feature that counts each one's transactions.
MEMORY_LEVELS = {"l1": "f_txn_l1", "l2": "f_txn_l2", "dram": "f_txn_dram"}
# Walls are drawn for elements of this size where a kernel has none in global memory.
_ITEMSIZE = 4
# What a second of a level is made of: facts that multiply to bytes (or instructions) per second.
_FACTS = {
    # Each scheduler issues one instruction per cycle (Section III-A: 80 x 4 x 1.53 GHz = 489.6 GIPS).
    "instructions": ("compute_units", "schedulers_per_unit", "clock_hz"),
    "l1": ("compute_units", "clock_hz", "l1_bytes_per_cycle"),
    "local": ("compute_units", "clock_hz", "local_banks", "local_bank_bytes"),
    "l2": ("l2_bandwidth",),
    "dram": ("dram_bandwidth",),
}
_FEATURES = {
    "instructions": ("f_inst_total",),
    "l1": ("f_txn_l1", "f_txn_global"),
    "local": ("f_txn_local",),
    "l2": ("f_txn_l2",),
    "dram": ("f_txn_dram",),
}


@dataclass(frozen=True)
class Ceiling:
    """The most that a machine does at a level: instructions of sub-groups, or transactions, per second.

    `transaction_bytes` are those of one transaction, 0 for instructions; `source` says where the rate comes from.
    """

    level: str
    rate: float
    transaction_bytes: int
    source: str


@dataclass(frozen=True)
class Ceilings:
    """The ceilings of a machine by level, and why other levels have none."""

    machine: str
    known: Mapping[str, Ceiling]
    absent: Mapping[str, str]

    @property
    def peak(self) -> Ceiling:
        """Instructions per second; a MachineError where they are not known."""
        found = self.known.get("instructions")
        if found is None:
            msg = f"machine {self.machine} has no peak of instructions: {self.absent['instructions']}"
            raise MachineError(msg, machine=self.machine)
        return found


def ceilings_of(machine: Machine, calibration: Calibration | None = None) -> Ceilings:
    """Return the ceilings of a GPU (Section III-A, Equation 2); a MachineError if it is none.

    A level's rate is, in this order: the one published for the machine, the one that its facts give, or the inverse
    of what a calibrated model, linear in ``f_inst_total`` or a feature ``f_txn_...``, says that one of these takes.
    """
    require_gpu(machine)
    sizes = {
        "instructions": 0,
        **dict.fromkeys(("l1", "l2", "dram"), int(machine.need("sector_bytes"))),
        "local": int(machine.need("local_banks") * machine.need("local_bank_bytes")),
    }
    known, absent = {}, {}
    for level in CEILING_LEVELS:
        published = machine.ceilings.get(level)
        found = _from_facts(machine, level)
        if published is not None:
            found = published.rate, str(published.source)
        if found is not None:
            # Rates in bytes become rates of transactions; instructions are counted already.
            known[level] = Ceiling(level, found[0] / (sizes[level] or 1), sizes[level], found[1])
            continue
        calibrated = _calibrated(calibration, level)
        if calibrated is not None:
            known[level] = Ceiling(level, calibrated[0], sizes[level], calibrated[1])
        else:
            missing = [name for name in _FACTS[level] if getattr(machine, name) is None]
            absent[level] = f"machine {machine.name} has no fact {', '.join(missing)}"
    return Ceilings(machine.name, known, absent)


def _from_facts(machine: Machine, level: str) -> tuple[float, str] | None:
    rate, texts = 1.0, []
    for name in _FACTS[level]:
        value = getattr(machine, name)
        if value is None:
            return None
        rate *= value
        origin = machine.sources.get(name)
        texts.append(f"{origin.kind}: {origin.text}" if origin else f"{name} of the machine")
    return rate, f"{' x '.join(_FACTS[level])}; {'; '.join(dict.fromkeys(texts))}"


def _calibrated(calibration: Calibration | None, level: str) -> tuple[float, str] | None:
    """Return the inverse of the seconds that one more of a feature takes, if that is the same for any number of it."""
    if calibration is None:
        return None
    inputs = calibration.model.input_features()
    for name in _FEATURES[level]:
        if name not in inputs:
            continue
        none = dict.fromkeys(inputs, 0.0)
        # A billion at a time: one takes too little time to tell it from rounding.
        first, second, third = (
            float(calibration.model.evaluate(calibration.params, {**none, name: amount})) for amount in (0.0, 1e9, 2e9)
        )
        step = (second - first) / 1e9
        # Second differences vanish where the cost is linear: with an overlap there is no single rate.
        if step > 0 and abs(third - 2 * second + first) <= 1e-6 * (third - first):
            return 1 / step, f"calibrated: {name} on {calibration.device.get('name', 'an unnamed device')}"
    return None


@dataclass(frozen=True)
class Wall:
    """A pattern of access, and its load and store instructions per transaction."""

    name: str
    intensity: float


def pattern_transactions(stride: int, itemsize: int, *, lanes: int = 32, sector: int = 32) -> int:
    """Return the transactions of one sub-group's access of global memory, `stride` elements apart, aligned."""
    return int(distinct(np.arange(lanes, dtype=np.int64) * stride * itemsize, sector))


def global_walls(itemsize: int = 4, *, lanes: int = 32, sector: int = 32) -> tuple[Wall, ...]:
    """Return the walls of global memory (Section III-A): one element for all, neighbours, and a sector for each.

    With elements of four bytes and sub-groups of 32: stride-0 at 1, stride-1 at 1/4, stride-8 at 1/32.
    """
    strides = dict.fromkeys((0, 1, max(1, sector // itemsize)))
    return tuple(
        Wall(f"stride-{stride}", 1 / pattern_transactions(stride, itemsize, lanes=lanes, sector=sector))
        for stride in strides
    )


def local_walls(*, lanes: int = 32, banks: int = 32, width: int = 4) -> tuple[Wall, ...]:
    """Return the walls of local memory (Section III-A): no conflict at 1, and 2-way to 32-way conflicts.

    A conflict is n-way if n work-items want different words of one bank, which takes n transactions.
    """
    walls = []
    ways = 1
    while ways <= min(lanes, banks):
        # The number of banks is a power of two, so a stride of 2**k words makes 2**k-way conflicts.
        words = np.arange(lanes, dtype=np.int64) * ways
        count = int(bank_conflicts(words * width, banks, width, width))
        walls.append(Wall("no conflict" if count == 1 else f"{count}-way", 1 / count))
        ways *= 2
    return tuple(walls)


@dataclass(frozen=True)
class RooflinePlace:
    """A kernel at given sizes on a machine's instruction roofline; counts are per run of the kernel, by identifier."""

    name: str
    sizes: Mapping[str, int]
    instructions: Mapping[str, float]
    # Those that could not be estimated are missing; `absent` says why.
    transactions: Mapping[str, float]
    sub_group_size: int
    # Of the elements that most accesses of global memory are to; 4 where there are none.
    itemsize: int
    ceilings: Ceilings
    # Time of a run and what it is: "measured", "predicted", or "bound" for the least that the ceilings allow.
    seconds: float | None = None
    seconds_kind: str = ""
    absent: Mapping[str, str] = field(default_factory=dict)
    arithmetic_s: float = 0.0  # time of floating point operations alone, as in `Limits`; 0 where it is not known

    @property
    def normalised(self) -> float:
        """Work-item instructions divided by the sub-group size (Section III-B)."""
        return self.instructions["f_inst_thread"] / self.sub_group_size

    @property
    def intensities(self) -> dict[str, float]:
        """Instructions per transaction: of each memory level, and of loads and stores alone (Section III-B).

        ``l1``, ``l2`` and ``dram`` compare all instructions, ``global`` and ``local`` sub-groups' loads and stores of
        that memory with its own transactions.
        """
        pairs = {level: (self.normalised, self.transactions.get(name)) for level, name in MEMORY_LEVELS.items()}
        for space in ("global", "local"):
            pairs[space] = (self.instructions[f"f_inst_ldst_{space}"], self.transactions.get(f"f_txn_{space}"))
        return {name: count / number for name, (count, number) in pairs.items() if number}

    @property
    def limits(self) -> dict[str, float]:
        """Seconds that each ceiling alone takes for the kernel, and its floating point operations."""
        # Predicated work-items do not shorten the issue: the ceiling is on sub-groups' instructions.
        amounts = {"instructions": self.instructions["f_inst_total"]}
        amounts |= {level: self.transactions.get(name, 0.0) for level, name in MEMORY_LEVELS.items()}
        amounts["local"] = self.transactions.get("f_txn_local", 0.0)
        known = self.ceilings.known
        limits = {level: amount / known[level].rate for level, amount in amounts.items() if level in known and amount}
        return limits | ({"arithmetic": self.arithmetic_s} if self.arithmetic_s else {})

    @property
    def nearest(self) -> str:
        """The ceiling that takes the longest; that of instructions where the kernel does nothing."""
        limits = self.limits or {"instructions": 0.0}
        # Local memory is part of L1's transactions: where both say the same, L1 is meant.
        return max(limits, key=lambda level: (limits[level], level == "l1"))

    @property
    def bound_s(self) -> float:
        """The least time that the ceilings allow, in seconds."""
        return max(self.limits.values(), default=0.0)

    def rate(self, instructions: float) -> float | None:
        """Return so many instructions per second, in 1e9; None without a time, or in none."""
        return instructions / self.seconds / 1e9 if self.seconds else None

    @property
    def gips(self) -> float | None:
        """Work-item instructions per second and sub-group size, in 1e9."""
        return self.rate(self.normalised)

    @property
    def warp_gips(self) -> float | None:
        """Sub-group instructions per second, in 1e9."""
        return self.rate(self.instructions["f_inst_total"])


def place_of(
    scop: Scop,
    sizes: Mapping[str, int],
    machine: Machine,
    ceilings: Ceilings,
    *,
    name: str = "",
    registers: int | None = None,
) -> RooflinePlace:
    """Return where a kernel stands on a GPU, without a time; `registers` are 32-bit ones per work-item.

    Loads are those that remain when compilers keep values in registers.
    """
    require_gpu(machine)
    given = scop.checked({one: sizes[one] for one in scop.parameters if one in sizes})
    spaces = [scop.array(access.array) for part in scop.statements for access in part.accesses]
    widths = [array.itemsize for array in spaces if array.memory == "global"]
    lanes = int(machine.need("sub_group_size"))
    transactions = l1_transactions(scop, given, machine)
    absent = {}
    try:
        transactions |= cache_transactions(scop, given, machine, registers)
    # Volumes need more facts than L1's transactions; without them a place still has its L1 intensity.
    except MachineError as error:
        absent = dict.fromkeys(("f_txn_l2", "f_txn_dram"), error.message)
    target = Target(lanes, machine)
    operations, _ = _arithmetic(scop, given)
    if lacking := _lacking(operations, machine):
        absent["arithmetic"] = f"machine {machine.name} has no fact {', '.join(lacking)}"
    return RooflinePlace(
        name or scop.name,
        dict(given),
        {known: float(parse_feature(known).value(scop, given, target)) for known in INSTRUCTION_FEATURES},
        transactions,
        lanes,
        max(widths, key=widths.count, default=_ITEMSIZE),
        ceilings,
        absent=absent,
        arithmetic_s=0.0 if lacking else _seconds(operations, machine),
    )
