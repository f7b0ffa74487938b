"""In-core time from operation counts and a machine's throughputs, as part of a model string."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perflex.errors import UnsupportedKernelError

if TYPE_CHECKING:
    from pathlib import Path

    from perflex.machines.machine import Machine

# What a floating point unit does in one slot; a multiply-add counts as two operations in a machine's throughput.
_ONE_SLOT = ("add", "mul", "madd")
_FACTS = {"float32": "fp32_per_cycle", "float64": "fp64_per_cycle"}


def in_core_cycles(machine: Machine | str | Path, kernel: Any, *, sub_group_size: int = 32) -> str:
    """Return the cycles of a kernel's arithmetic on one core, as an expression over operation counts.

    Additions, multiplications and multiply-adds each take one slot of a floating point unit, of which a core has
    ``fp32_per_cycle/2`` or ``fp64_per_cycle/2`` per cycle, however they are spread over units: the time of code that
    fills them all. Integer arithmetic counts as hidden. It is a lower bound: dependences and instructions that only
    move data are not in it.

    Parameters
    ----------
    machine
        The machine, its name, or its file; with its throughput for each element type that the kernel computes in.
    kernel
        Loopy kernel, measurement kernel, or Scop.
    sub_group_size
        Work-items per sub-group that operations are counted by; that of the prediction, or the time would be wrong.

    Raises
    ------
    UnsupportedKernelError
        The kernel does something else than these three (divisions, functions); its in-core time has to be supplied.
    MachineError
        The machine's throughput is not known.
    """
    from perflex.features import Scop, extract_scop
    from perflex.machines.lookup import load_machine

    machine = load_machine(machine)
    scop = kernel if isinstance(kernel, Scop) else extract_scop(getattr(kernel, "kernel", kernel))
    terms: dict[str, list[str]] = {}
    for dtype, kind in sorted({(op.dtype, op.kind) for statement in scop.statements for op in statement.operations}):
        identifier = f"f_op_{dtype}_{kind}"
        if dtype.startswith(("int", "uint", "bool")):
            continue
        if dtype not in _FACTS or kind not in _ONE_SLOT:
            msg = (
                f"kernel {scop.name} has operations {identifier}, whose throughput machine files do not state; "
                "supply its in-core time in cycles (in_core=...)"
            )
            raise UnsupportedKernelError(msg, kernel=scop.name, feature=identifier)
        terms.setdefault(dtype, []).append(identifier)
    parts = [
        # Operation features count sub-groups' instructions, each of as many operations as it has work-items.
        f"{sub_group_size / (machine.need(_FACTS[dtype]) / 2)!r} * ({' + '.join(identifiers)})"
        for dtype, identifiers in terms.items()
    ]
    return " + ".join(parts) or "0"
