"""Straight code as tools take it, and what they say of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from perflex.compiled.instructions import disassembler

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.compiled.elf import Function
    from perflex.compiled.instructions import Instruction

# What perflex counts no cycles of either: calls have costs of their own.
_LEFT_OUT = ("nop", "endbr", "call", "lcall", "data16", "ret", "ud2", "hlt")


@dataclass(frozen=True)
class Piece:
    """Code without its jumps' targets, as AT&T syntax; ``repeated`` where chains between iterations matter, too."""

    lines: tuple[str, ...]
    repeated: bool


@dataclass(frozen=True)
class PieceCycles:
    """What a tool says of a piece.

    Attributes
    ----------
    busiest
        Cycles of each execution if no instruction waits for another's result.
    chained
        Cycles of each iteration if the piece is repeated, with what its iterations wait for; 0 where not asked.
    unknown
        Why the tool cannot say, with the instruction; empty where it can.
    """

    busiest: float = 0.0
    chained: float = 0.0
    unknown: str = ""


def piece_of(function: Function, instructions: Sequence[Instruction], *, repeated: bool) -> Piece:
    """Return instructions of a function as a tool takes them.

    Raises
    ------
    MissingExtraError
        The disassembler is not installed.
    """
    engine = disassembler(att=True)
    lines = []
    for one in instructions:
        first = one.address - function.address
        for _, _, name, operands in engine.disasm_lite(function.code[first : first + one.size], one.address):
            if not name.startswith(_LEFT_OUT):
                # Addresses of code say nothing to a tool, and labels need not be defined.
                target = operands if not name.startswith("j") or operands.startswith("*") else ".Lelsewhere"
                lines.append(f"{name} {target}".strip())
    return Piece(tuple(lines), repeated)
