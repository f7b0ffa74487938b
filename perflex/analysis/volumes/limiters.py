"""What limits a kernel: DRAM, L2, L1, local memory, arithmetic (Ernst et al., Section 2), or its many work-groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from perflex.analysis.volumes.concurrency import concurrency_limits
from perflex.features import counts_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.features import Scop
    from perflex.machines.machine import Machine

LIMITERS = ("DRAM", "L2", "L1", "local memory", "arithmetic", "group start", "latency")
"""Parts of a GPU that can limit a kernel, the farthest from its cores first."""
_UNITS = {"float32": "fp32_per_cycle", "float64": "fp64_per_cycle"}
# Each is one instruction, of which a unit for multiply-adds starts as many as of those.
_INSTRUCTIONS = ("add", "mul", "madd", "fma")


@dataclass(frozen=True)
class Limits:
    """The time that each part of a machine would need alone, in seconds per launch.

    Attributes
    ----------
    seconds
        By limiter, in the order of `LIMITERS`.
    uncounted
        Floating point operations whose throughput is not known, which the arithmetic leaves out.
    """

    seconds: Mapping[str, float]
    uncounted: tuple[str, ...] = field(default=())

    @property
    def limiter(self) -> str:
        """The part that needs the longest; ``"none"`` where no part needs any time."""
        return max(self.seconds, key=lambda name: self.seconds[name]) if self.predicted_s else "none"

    @property
    def predicted_s(self) -> float:
        """The longest time: all parts work at once."""
        return max(self.seconds.values())


def limits_of(volumes: Mapping[str, float], scop: Scop, sizes: Mapping[str, Any], machine: Machine) -> Limits:
    """Return what limits a kernel.

    Parameters
    ----------
    volumes
        ``f_l1_wavefronts``, ``f_lmem_wavefronts``, ``f_vol_l2_l1_load``, ``f_vol_l2_l1_store``, ``f_vol_dram_load``,
        ``f_vol_dram_store``, ``f_waves``, per launch.
    scop, sizes
        The kernel, for its operations. Additions, multiplications and multiply-adds are counted.
    machine
        Bandwidths, clock, compute units and operations per cycle. A compute unit completes one wavefront of L1 and
        one of local memory per cycle.

    Raises
    ------
    MachineError
        A fact of the machine is not known.
    """
    cycles_per_second = machine.need("compute_units") * machine.need("clock_hz")
    counts = counts_of(scop)
    arithmetic = 0.0
    uncounted = []
    used = {(op.dtype, op.kind) for statement in scop.statements for op in statement.operations}
    for dtype, kind in sorted(used):
        if dtype not in _UNITS or kind not in _INSTRUCTIONS:
            if dtype.startswith(("float", "complex")):
                uncounted.append(f"f_op_{dtype}_{kind}")
            continue
        executed = float(counts.operation_total(kind, dtype, None).evaluate(sizes))
        # Throughputs count a multiply-add as two operations.
        arithmetic += executed / (machine.need(_UNITS[dtype]) / 2 * cycles_per_second)
    seconds = {
        "DRAM": (volumes["f_vol_dram_load"] + volumes["f_vol_dram_store"]) / machine.need("dram_bandwidth"),
        "L2": (volumes["f_vol_l2_l1_load"] + volumes["f_vol_l2_l1_store"]) / machine.need("l2_bandwidth"),
        "L1": volumes["f_l1_wavefronts"] / cycles_per_second,
        "local memory": volumes["f_lmem_wavefronts"] / cycles_per_second,
        "arithmetic": arithmetic,
    }
    seconds |= concurrency_limits(volumes, scop, sizes, machine)
    return Limits(seconds, tuple(uncounted))
