"""What conflict misses make doubtful of a prediction, for kernels on CPUs with and without a machine's file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perflex.errors import UnsupportedKernelError
from perflex.features.cpu.estimate import estimate_ecm
from perflex.machines.levels import CacheLevel
from perflex.machines.machine import Machine

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.features.scop.scop import Scop

# As far as other models of time go wrong by themselves, fewer bytes more are no reason for doubt.
_DOUBTFUL = 1.3
_KEPT = 256
# L1 of 64 sets, L2 of 1024: so it is on Intel's cores from Haswell to Ice Lake (8 or 12, 4 to 20 ways) and AMD's from
# Zen to Zen 3 (8 ways each). Sizes and lines of the smallest of them that work-groups meet on servers.
_ASSUMED = Machine(
    name="assumed",
    kind="cpu",
    levels=tuple(
        CacheLevel(name, 64 * sets * 8, 1, 64, 8, True, False, None, None, True, "sum", hashed=False)
        for name, sets in (("L1", 64), ("L2", 1024))
    ),
)


def conflict_doubts(scop: Scop, sizes: Mapping[str, Any], machine: Machine | None = None) -> tuple[str, ...]:
    """Return what conflict misses a kernel has that models without cache sets do not see.

    Parameters
    ----------
    scop
        The kernel.
    sizes
        Value of each size, a number.
    machine
        The CPU; without one, or with one whose file has no cache levels, L1 of 32 KiB and L2 of 512 KiB with 8 ways
        are assumed, and said to be. A GPU has no such doubts: how its caches choose sets is not known.

    Returns
    -------
    tuple of str
        One sentence for each cache beyond which 1.3 times the bytes cross, or more, that would cross without
        conflicts: the array, the distance of its accesses, and by how much to pad its pitch. Empty where there is
        none, and for kernels whose accesses are too irregular to tell.

    Raises
    ------
    MissingSizeError
        A size has no value.

    Notes
    -----
    The kernel's loops are read once, and what is found stays with it; later calls at other sizes take some
    milliseconds.
    """
    scop.check_sizes(sizes)
    if machine is not None and machine.kind != "cpu":
        return ()
    where = machine if machine is not None and machine.levels else _ASSUMED
    used = tuple((name, int(sizes[name])) for name in scop.parameters)
    return scop.derived("conflict doubts", (used, where), lambda: _found(scop, dict(used), where), most=_KEPT)


def volume_doubts(scop: Scop, sizes: Mapping[str, Any], machine: Machine | None = None) -> tuple[str, ...]:
    """Return what of a kernel its cache volumes follow only approximately; arguments as `conflict_doubts`."""
    scop.check_sizes(sizes)
    if machine is not None and machine.kind != "cpu":
        return ()
    where = machine if machine is not None and machine.levels else _ASSUMED
    try:
        approximated = estimate_ecm(scop, sizes, where).approximated
    except UnsupportedKernelError:
        return ()
    return tuple(f"cache volumes are approximate: {note}" for note in approximated)


def _found(scop: Scop, sizes: Mapping[str, int], machine: Machine) -> tuple[str, ...]:
    try:
        conflicts = estimate_ecm(scop, sizes, machine).conflicts
    except UnsupportedKernelError:
        return ()
    worst = {one.level: one for one in sorted(conflicts, key=lambda one: one.lost) if one.more >= _DOUBTFUL}
    note = " (no machine file: its size and ways are assumed)" if machine is _ASSUMED else ""
    return tuple(f"conflict misses in {one}{note}" for one in worst.values())
