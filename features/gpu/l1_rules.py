"""Cycles of the first cache by the rules of each maker: how many a sub-group's instruction takes.

A machine says which rules its first cache follows (`l1_rules` of its file); without that there is no estimate, since
one maker's rules are far off on another's hardware.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perflex.errors import MachineError
from perflex.features.gpu.wavefronts import IDLE, bank_conflicts, distinct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.features.gpu.l1 import Cycles
    from perflex.machines.machine import Machine

# NVIDIA: bytes of a line, lines looked up per cycle, and what a look-up takes beyond them.
_NVIDIA_LINE = 128
_LINES_PER_CYCLE = 4
_TAG_OFFSET = 2
# Volta, from box stencils of range 3 in the L1 of a V100 with rows of 1 to 32 work-items (Warpspeed, notebook
# stencil-verify of 2020-06-05): 0.68 to 0.79 cycles for each line.
_VOLTA_CYCLES_PER_LINE = 0.75
# CDNA 2: work-items whose addresses arrive in a cycle, those that are looked up together, bytes of a line, tag banks.
_QUARTER = 16
_QUAD = 4
_CDNA_LINE = 64
_CDNA_TAGS = 4
# RDNA 2: bytes of a line, tag banks, and work-items per cycle of elements beyond four bytes.
_RDNA_LINE = 128
_RDNA_TAGS = 4
_RDNA_WIDE = 8
_WORD = 4
# GPGPU-Sim: bytes of a sector, banks.
_SECTOR = 32
_SECTOR_BANKS = 4


def nvidia_cycles(addresses: np.ndarray, itemsize: int) -> np.ndarray:
    """Return the cycles of each iteration's instructions: the larger of data and tag cycles of each.

    Arguments are those of `cdna2_cycles`. Elements of eight bytes and more are served to parts of a sub-group in turn,
    128 bytes at most.
    """
    tags = distinct(addresses, _NVIDIA_LINE)
    tag_cycles = np.where(tags > 0, -(-(tags + _TAG_OFFSET) // _LINES_PER_CYCLE), 0)
    cycles: np.ndarray = np.maximum(_nvidia_data(addresses, itemsize), tag_cycles).sum(axis=-1)
    return cycles


def volta_cycles(addresses: np.ndarray, itemsize: int) -> np.ndarray:
    """Return the cycles of each iteration's instructions on Volta, which looks up fewer lines in a cycle.

    Arguments and data cycles are those of `nvidia_cycles`.
    """
    tag_cycles = _VOLTA_CYCLES_PER_LINE * distinct(addresses, _NVIDIA_LINE)
    cycles: np.ndarray = np.maximum(_nvidia_data(addresses, itemsize), tag_cycles).sum(axis=-1)
    return cycles


def _nvidia_data(addresses: np.ndarray, itemsize: int) -> np.ndarray:
    # 32 banks of 4 bytes: smaller elements share a bank's word, larger ones span banks.
    lanes, width = addresses.shape[-1], max(itemsize, _WORD)
    split = addresses.reshape(*addresses.shape[:-1], max(1, lanes * itemsize // _NVIDIA_LINE), -1)
    cycles: np.ndarray = bank_conflicts(split, _NVIDIA_LINE // width, width, width).sum(axis=-1)
    return cycles


def cdna2_cycles(addresses: np.ndarray, itemsize: int) -> np.ndarray:
    """Return the cycles of each iteration's instructions on CDNA 2.

    A quarter of a sub-group's addresses, 16, are looked at together, as four quads of neighbours. Elements of four
    bytes: if each quad's lie within 16 bytes, all quads are looked up at once; else the quads' first work-items are,
    then their second, and so on. Wider elements: one quad after the other. A look-up takes as many cycles as there are
    different lines on one of four tag banks (the line's number modulo four), or different elements at one place of
    the 64-byte lines, whatever is more.

    Parameters
    ----------
    addresses
        Byte addresses, shape (iterations, sub-groups, sub-group size); a multiple of 16 work-items.
    itemsize
        Bytes of an element.
    """
    width = max(itemsize, _WORD)
    quads = addresses.reshape(len(addresses), -1, _QUARTER // _QUAD, _QUAD)
    if itemsize > _WORD:
        wide: np.ndarray = _cdna2_look_up(quads, width).sum(axis=(-1, -2))
        return wide
    there = quads != IDLE
    first = np.where(there, quads, IDLE).min(axis=-1)
    last = np.where(there, quads, -IDLE).max(axis=-1) + itemsize
    near = (last - first <= _QUAD * _WORD).all(axis=-1)
    at_once = _cdna2_look_up(quads.reshape(*quads.shape[:-2], _QUARTER), width)
    in_turn = _cdna2_look_up(quads.swapaxes(-1, -2), width).sum(axis=-1)
    narrow: np.ndarray = np.where(near, at_once, in_turn).sum(axis=-1)
    return narrow


def _cdna2_look_up(addresses: np.ndarray, width: int) -> np.ndarray:
    tags = bank_conflicts(addresses, _CDNA_TAGS, _CDNA_LINE, _CDNA_LINE)
    cycles: np.ndarray = np.maximum(tags, bank_conflicts(addresses, _CDNA_LINE // width, width, width))
    return cycles


def rdna2_cycles(addresses: np.ndarray, itemsize: int) -> np.ndarray:
    """Return the cycles of each iteration's instructions on RDNA 2; arguments as `cdna2_cycles`.

    The largest of: different elements at one place of the 128-byte lines, different lines on one of four tag banks, and
    for elements of more than four bytes an eighth of the work-items.
    """
    width = max(itemsize, _WORD)
    data = bank_conflicts(addresses, _RDNA_LINE // width, width, width)
    lines = bank_conflicts(addresses, _RDNA_TAGS, _RDNA_LINE, _RDNA_LINE)
    wide = -(-(addresses != IDLE).sum(axis=-1) // _RDNA_WIDE) if itemsize > _WORD else 0
    cycles: np.ndarray = np.maximum(np.maximum(data, lines), wide).sum(axis=-1)
    return cycles


def sector_bank_cycles(addresses: np.ndarray, itemsize: int) -> np.ndarray:  # noqa: ARG001 - as the other rules
    """Return the cycles of each iteration's instructions where four banks deliver a sector per cycle each.

    So does the cache that GPGPU-Sim simulates (configuration QV100); arguments as `cdna2_cycles`.
    """
    cycles: np.ndarray = bank_conflicts(addresses, _SECTOR_BANKS, _SECTOR, _SECTOR).sum(axis=-1)
    return cycles


_RULES: Mapping[str, Cycles] = {
    "nvidia": nvidia_cycles,
    "nvidia_volta": volta_cycles,
    "amd_cdna2": cdna2_cycles,
    "amd_rdna2": rdna2_cycles,
    "sector_banks": sector_bank_cycles,
}
_PERIODS: Mapping[str, int] = {
    "nvidia": _NVIDIA_LINE,
    "nvidia_volta": _NVIDIA_LINE,
    "amd_cdna2": _CDNA_TAGS * _CDNA_LINE,
    "amd_rdna2": _RDNA_TAGS * _RDNA_LINE,
    "sector_banks": _SECTOR_BANKS * _SECTOR,
}


def l1_cycles(machine: Machine) -> Cycles:
    """Return what counts the cycles of a machine's first cache.

    Raises
    ------
    MachineError
        It is not known which rules that cache follows.
    """
    return _RULES[machine.need_l1_rules()]


def l1_period(machine: Machine) -> int:
    """Return the bytes after which addresses take the same cycles, since all banks and tags repeat.

    Raises
    ------
    MachineError
        It is not known which rules that cache follows.
    """
    return _PERIODS[machine.need_l1_rules()]


def require_nvidia(machine: Machine, variant: str) -> None:
    """Stop unless a machine's first cache follows the rules of NVIDIA's GPUs.

    Raises
    ------
    MachineError
        It follows others, or these are not known.
    """
    rules = machine.need_l1_rules()
    if not rules.startswith("nvidia"):
        msg = (
            f"the rules {variant} are for NVIDIA's GPUs, and the L1 cache of machine {machine.name} follows {rules}; "
            "take the rules current"
        )
        raise MachineError(msg, machine=machine.name, fact="l1_rules")
