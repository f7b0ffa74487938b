"""The ECM model of a machine as a model string (YaskSite, Equations 6 and 7), and its in-core time."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any

from perflex.errors import MachineError, UnsupportedKernelError

if TYPE_CHECKING:
    from pathlib import Path

    from perflex.expression.model import Model
    from perflex.features.scop.scop import Scop
    from perflex.machines.machine import Machine

# What a floating point unit does in one slot; a multiply-add counts as two operations in a machine's throughput.
_ONE_SLOT = ("add", "mul", "madd")
_FACTS = {"float32": "fp32_per_cycle", "float64": "fp64_per_cycle"}


def ecm_model(
    machine: Machine | str | Path, *, cores: int = 1, in_core: str = "0", output: str = "f_cl_wall_time"
) -> Model:
    """Return the ECM model of a machine: the time of a launch without any parameter to be fitted.

    The features ``f_ecm_cycles_<level>`` of all levels and the memory's penalty, composed in the machine's overlap
    hypothesis, on some cores that fill one domain after the other, divided by the clock.

    Parameters
    ----------
    machine
        A machine with cache levels and a clock, its name, or its file; kernels have to be evaluated for this machine
        (``machine=`` of predictions, or `using_machine`).
    cores
        Working cores, to which the kernel is dealt as by `estimate_ecm`; features end in ``_cores:<n>``.
    in_core
        Cycles of the in-core instructions of a launch on one core, an expression over features: of `in_core_cycles`, or
        your own, such as ``"1.5 * f_thread_items"``.
    output
        The feature that it predicts, in seconds.

    Returns
    -------
    Model
        Without parameters: ``model.eval_with_kernel({}, kernel, sizes)``.

    Raises
    ------
    MachineError, FileFormatError
        There is no such machine, or it has no cache levels, no clock, or fewer cores.
    ModelSyntaxError
        `in_core` cannot be read.

    Source: YaskSite, Equations 6 and 7.
    """
    from perflex.expression.model import Model
    from perflex.machines.files import load_machine

    machine = load_machine(machine)
    levels, clock = machine.need_levels(), machine.need("clock_hz")
    full, each, rest = cores_by_domain(machine, cores)
    on = "" if cores == 1 else f"_cores:{cores}"
    beyond = memory = f"f_ecm_cycles_mem{on}"
    if machine.memory_load_penalty or machine.memory_store_penalty:
        # One core alone waits for its lines; the memory's bandwidth says what many get.
        beyond = f"({memory} + f_ecm_cycles_penalty{on})"
    # Equation 6 nests its operators around the memory's time.
    for level in reversed(levels):
        own = f"f_ecm_cycles_{level.name.lower()}{on}"
        beyond = f"({own} + {beyond})" if level.overlap == "sum" else f"max({own}, {beyond})"
    # In-core instructions overlap with all transfers (Section V).
    single = f"max({in_core}, {beyond})"
    if cores == 1:
        return Model(output, f"{single} / {clock!r}")
    # Equation 7: a domain's cores share its memory, so that it saturates; the speeds of domains add up.
    times = [(full, f"max({single} / {each}, {memory})")] if full else []
    times += [(1, f"max({single} / {rest}, {memory})")] if rest else []
    if len(times) == 1:
        (number, time), domains = times[0], full + bool(rest)
        cycles = time if number == 1 else f"{time} / {number}"
    else:
        domains = full + 1
        cycles = f"1 / ({' + '.join(f'{number} / {time}' for number, time in times)})"
    # Beyond one domain, performance is multiplied by the measured stream efficiency (Section V, Rome).
    efficiency = machine.domain_efficiency if domains > 1 and machine.domain_efficiency else 1.0
    return Model(output, f"{cycles} / {clock * efficiency!r}")


def cores_by_domain(machine: Machine, cores: int) -> tuple[int, int, int]:
    """Return how some working cores fill the domains of a machine: full ones, cores in each, cores in the last one.

    Raises
    ------
    MachineError
        The machine has fewer cores, or their number is not known.
    """
    most = int(machine.need("cores"))
    if not 1 <= cores <= most:
        msg = f"machine {machine.name} has {most} cores, not {cores}; give 1 to {most}"
        raise MachineError(msg, machine=machine.name, fact="cores")
    each = machine.cores_per_domain or most
    return cores // each, each, cores % each


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
        Work-items per sub-group that operations are counted by; that of the prediction, or the time would be wrong
        where there are work-items.

    Raises
    ------
    UnsupportedKernelError
        The kernel does something else than these three (divisions, functions), or its launches fill sub-groups
        differently; its in-core time has to be supplied.
    MachineError
        The machine's throughput is not known.
    """
    from perflex.features import extract_scop
    from perflex.machines.files import load_machine

    machine = load_machine(machine)
    scop = extract_scop(kernel)
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
    lanes = _lanes(scop, sub_group_size)
    parts = [
        # Operation features count sub-groups' instructions, each of as many operations as it has work-items.
        f"{lanes / (machine.need(_FACTS[dtype]) / 2)!r} * ({' + '.join(identifiers)})"
        for dtype, identifiers in terms.items()
    ]
    return " + ".join(parts) or "0"


def _lanes(scop: Scop, sub_group_size: int) -> float:
    """Return the work-items that a sub-group has: one where the kernel is loops alone."""
    groups = {scop.launches[one.launch].group_size for one in scop.statements if one.operations}
    lanes = {items / ceil(items / sub_group_size) for items in groups}
    if len(lanes) > 1:
        sizes = " and ".join(map(str, sorted(groups)))
        msg = (
            f"kernel {scop.name} has work-groups of {sizes} work-items, whose sub-groups of {sub_group_size} are not "
            "equally full; supply its in-core time in cycles (in_core=...)"
        )
        raise UnsupportedKernelError(msg, kernel=scop.name)
    return lanes.pop() if lanes else 1.0
