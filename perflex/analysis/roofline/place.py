"""Where a kernel stands on the instruction roofline: instructions, transactions, intensities, the nearest limit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from perflex.errors import MachineError
from perflex.features.families.instructions import INSTRUCTION_FEATURES, InstructionFeature
from perflex.features.gpu.transactions import cache_transactions, l1_transactions, require_gpu
from perflex.features.target import Target

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.analysis.roofline.ceilings import Ceilings
    from perflex.features import Scop
    from perflex.machines.machine import Machine

# Levels that all instructions are compared with, and the feature that counts each one's transactions.
MEMORY_LEVELS = {"l1": "f_txn_l1", "l2": "f_txn_l2", "dram": "f_txn_dram"}
# Walls are drawn for elements of this size where a kernel has none in global memory.
_ITEMSIZE = 4


@dataclass(frozen=True)
class RooflinePlace:
    """A kernel at given sizes on a machine's instruction roofline; counts are per run of the kernel.

    Attributes
    ----------
    name
        What the kernel is called.
    sizes
        Its sizes.
    instructions
        ``f_inst_...`` by identifier.
    transactions
        ``f_txn_...`` by identifier; those that could not be estimated are missing.
    sub_group_size
        Work-items of a sub-group.
    itemsize
        Bytes of the elements that most accesses of global memory are to; 4 where there are none.
    ceilings
        The machine's.
    seconds, seconds_kind
        Time of a run and what it is: ``"measured"``, ``"predicted"``, or ``"bound"`` for the least that the ceilings
        allow; None and ``""`` without one.
    absent
        Why transactions are missing, by identifier.
    """

    name: str
    sizes: Mapping[str, int]
    instructions: Mapping[str, float]
    transactions: Mapping[str, float]
    sub_group_size: int
    itemsize: int
    ceilings: Ceilings
    seconds: float | None = None
    seconds_kind: str = ""
    absent: Mapping[str, str] = field(default_factory=dict)

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
        """Seconds that each ceiling alone takes for the kernel."""
        # Predicated work-items do not shorten the issue: the ceiling is on sub-groups' instructions.
        amounts = {"instructions": self.instructions["f_inst_total"]}
        amounts |= {level: self.transactions.get(name, 0.0) for level, name in MEMORY_LEVELS.items()}
        amounts["local"] = self.transactions.get("f_txn_local", 0.0)
        known = self.ceilings.known
        return {level: amount / known[level].rate for level, amount in amounts.items() if level in known and amount}

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
    register_reuse: bool = True,
) -> RooflinePlace:
    """Return where a kernel stands, without a time.

    Parameters
    ----------
    scop, sizes
        The kernel and a value for each size parameter.
    machine, ceilings
        A GPU and its ceilings.
    name
        What to call the kernel; its own name if empty.
    registers
        32-bit registers per work-item, which may limit residency.
    register_reuse
        Whether loads are those that remain when compilers keep values in registers; else those of the source.

    Raises
    ------
    MissingSizeError
        A size has no value.
    UnsupportedKernelError
        An access is too irregular.
    MachineError
        The machine is no GPU, or lacks a fact that transactions of L1 need.
    """
    require_gpu(machine)
    given = scop.checked({one: sizes[one] for one in scop.parameters if one in sizes})
    spaces = [scop.array(access.array) for part in scop.statements for access in part.accesses]
    widths = [array.itemsize for array in spaces if array.space == "global"]
    lanes = int(machine.need("sub_group_size"))
    transactions = l1_transactions(scop, given, machine, register_reuse=register_reuse)
    absent = {}
    try:
        transactions |= cache_transactions(scop, given, machine, registers, register_reuse=register_reuse)
    # Volumes need more facts than L1's transactions; without them a place still has its L1 intensity.
    except MachineError as error:
        absent = dict.fromkeys(("f_txn_l2", "f_txn_dram"), error.message)
    target = Target(lanes, machine, register_reuse=register_reuse)
    return RooflinePlace(
        name or scop.name,
        dict(given),
        {known: float(InstructionFeature(known).value(scop, given, target)) for known in INSTRUCTION_FEATURES},
        transactions,
        lanes,
        max(widths, key=widths.count, default=_ITEMSIZE),
        ceilings,
        absent=absent,
    )
