"""What instructions of NVIDIA's GPUs read and write, told from the operands as the disassembler writes them."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perflex.compiled.nvidia.cubin import GpuInstruction

REGISTER = re.compile(r"(U?R)(\d+)$")
PREDICATE = re.compile(r"!?(U?P(?:\d+|T))$")
CONSTANT = re.compile(r"c\[0x0\]\[(0x[0-9a-f]+)\]$")
NUMBER = re.compile(r"0x[0-9a-f]+$|\d+$")
NAME = re.compile(r"\bU?[RP]\d+")
"""Registers and predicates anywhere in operands."""
_PAIRS = {"WIDE", "64", "F64", "S64", "U64", "B64"}
# The conditions of jumps and barriers are read.
_WITHOUT_RESULTS = {"BRA", "EXIT", "RET", "BSSY", "BSYNC", "BREAK", "BAR"}
_OF_PREDICATES = {"PLOP3", "UPLOP3"}
_VOTES = {"VOTE", "VOTEU"}
# Beside those whose operands show addresses; calls return what is computed of data.
_READ_MEMORY = {"TEX", "TLD", "TLD4", "TMML", "TXD", "TXQ", "SULD", "SUATOM", "CALL"}


@lru_cache(maxsize=1 << 16)
def changed_by(one: GpuInstruction) -> tuple[str, ...]:
    """Return the registers and predicates that an instruction may change; of a call, all operands are."""
    if one.name == "R2P":
        mask = int(one.operands[-1], 0) if NUMBER.match(one.operands[-1]) else 0x7F
        return tuple(f"P{bit}" for bit in range(7) if mask >> bit & 1)
    found = []
    for text in _divided(one)[0]:
        if match := REGISTER.match(text):
            found += [f"{match[1]}{int(match[2]) + more}" for more in range(width_of(one))]
        elif PREDICATE.match(text):
            found.append(text.removeprefix("!"))
    return tuple(found)


@lru_cache(maxsize=1 << 16)
def inputs_of(one: GpuInstruction) -> tuple[str, ...]:
    """Return registers, predicates, words of constant bank 0 and special registers that results follow from.

    ``"[]"``, alone, stands for memory, whatever addresses and other operands are.
    """
    found: list[str] = []
    for text in _divided(one)[1]:
        inner = text.strip("-|~!")
        if "[" in text and not CONSTANT.match(inner):
            return ("[]",)
        found += [inner] if CONSTANT.match(inner) or inner.startswith("SR_") else NAME.findall(text)
    operands = plain(one)
    if one.name in {"IMAD", "UIMAD"} and {"WIDE", "HI"} & set(one.modifiers) and len(operands) > 3:
        # A pair is added.
        match = REGISTER.match(operands[3])
        found += [f"{match[1]}{int(match[2]) + 1}"] if match else []
    return ("[]",) if one.name in _READ_MEMORY else tuple(dict.fromkeys(found))


def _divided(one: GpuInstruction) -> tuple[list[str], list[str]]:
    """Return the operands that are results, and the others."""
    operands = list(one.operands)
    if one.name in _WITHOUT_RESULTS:
        return [], operands
    if one.name == "CALL":
        return operands, []
    if one.name in _VOTES:
        return operands[:-1], operands[-1:]
    count = 2
    if one.name not in _OF_PREDICATES:
        count = _predicates(operands, 0)
        if not one.name.endswith(("SETP", "SETP2")) and one.name != "FCHK":
            # Carries are written behind the result; one that is read comes last.
            count = _predicates(operands, count + 1)
    return operands[:count], operands[count:]


def _predicates(operands: list[str], begin: int) -> int:
    """Return the place behind the predicates that begin at a place."""
    while begin < len(operands) and PREDICATE.match(operands[begin]):
        begin += 1
    return begin


def width_of(one: GpuInstruction) -> int:
    """Return how many registers a result takes."""
    if "128" in one.modifiers or one.name.endswith("MMA") or one.name in {"LDSM", "TEX", "TLD", "SULD"}:
        return 4
    return 2 if one.name.startswith("D") or one.name == "CS2R" or _PAIRS & set(one.modifiers) else 1


def is_predicate(place: str) -> bool:
    """Return whether a register's name is a predicate's."""
    return "P" in place


@lru_cache(maxsize=1 << 16)
def plain(one: GpuInstruction) -> tuple[str, ...]:
    """Return the operands without predicates: the result and what it is made of."""
    return tuple(operand for operand in one.operands if not PREDICATE.match(operand))
