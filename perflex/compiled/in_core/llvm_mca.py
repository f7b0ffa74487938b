"""Cycles by llvm-mca, the machine code analyzer of LLVM, which simulates a core out of order.

Source: LLVM, llvm-mca - LLVM Machine Code Analyzer (Command Guide).
"""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

from perflex.compiled.in_core.piece import PieceCycles
from perflex.errors import UnsupportedKernelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.compiled.in_core.piece import Piece
    from perflex.compiled.in_core.source import CycleSource

# Cycles of an iteration are the difference of two runs, which leaves out how the first iterations begin.
_FEW, _MANY = 100, 200
_LIMIT_S = 120.0


class _NotReadError(Exception):
    """The program refused the code."""


def llvm_mca_cycles(source: CycleSource, pieces: Sequence[Piece]) -> list[PieceCycles]:
    """Return what llvm-mca says of each piece; all of them are given to it at once.

    Raises
    ------
    UnsupportedKernelError
        The program did not end in time, or its output cannot be read.
    """
    if not pieces:
        return []
    try:
        few, many = (_regions(source, pieces, iterations) for iterations in (_FEW, _MANY))
    except _NotReadError as error:
        if len(pieces) == 1:
            return [PieceCycles(unknown=str(error))]
        # The program refuses all for the sake of one.
        half = len(pieces) // 2
        return [*llvm_mca_cycles(source, pieces[:half]), *llvm_mca_cycles(source, pieces[half:])]
    return [
        PieceCycles(
            float(few[number]["BlockRThroughput"]),
            (many[number]["TotalCycles"] - few[number]["TotalCycles"]) / (_MANY - _FEW) if piece.repeated else 0.0,
        )
        for number, piece in enumerate(pieces)
    ]


def _regions(source: CycleSource, pieces: Sequence[Piece], iterations: int) -> list[dict[str, Any]]:
    """Return the summary of each piece; an empty piece takes no cycles."""
    parts = []
    for number, piece in enumerate(pieces):
        if piece.lines:
            parts += [f"# LLVM-MCA-BEGIN {number}", *piece.lines, f"# LLVM-MCA-END {number}"]
    found: list[dict[str, Any]] = [{"BlockRThroughput": 0.0, "TotalCycles": 0} for _ in pieces]
    if not parts:
        return found
    words = [source.program, "-json", f"-mcpu={source.core}", f"-iterations={iterations}", "-instruction-info=0"]
    try:
        done = subprocess.run(  # noqa: S603 - a program that the user asked for
            [*words, "-resource-pressure=0"], input="\n".join(parts) + "\n", capture_output=True, check=False,
            timeout=_LIMIT_S, encoding="utf-8", errors="replace",
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        msg = f"{source} gave no cycles ({error}); use another source of cycles"
        raise UnsupportedKernelError(msg) from error
    if done.returncode:
        raise _NotReadError(refused_instruction(done.stderr))
    for number, summary in read_summaries(done.stdout, source).items():
        found[number] = summary
    return found


def refused_instruction(errors: str) -> str:
    """Return the instruction that llvm-mca refuses, or its first words, from what it wrote on standard error."""
    lines = errors.splitlines()
    for number, line in enumerate(lines):
        if "note: instruction:" in line:
            return " ".join(line.partition("note: instruction:")[2].split())
        # The line after an error of the assembler is the source's.
        if ": error: " in line and number + 1 < len(lines):
            return " ".join(lines[number + 1].split())
    return next((line.strip() for line in lines if line.strip()), "no reason given")


def read_summaries(text: str, source: CycleSource) -> dict[int, dict[str, Any]]:
    """Return the summary of each region by its number, from llvm-mca's JSON.

    Raises
    ------
    UnsupportedKernelError
        The text is not what llvm-mca writes.
    """
    try:
        regions = json.loads(text)["CodeRegions"]
        found = {int(one["Name"]): one["SummaryView"] for one in regions}
        complete = all({"BlockRThroughput", "TotalCycles"} <= one.keys() for one in found.values())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        msg = f"the output of {source} cannot be read ({error}); use another version of it"
        raise UnsupportedKernelError(msg) from error
    if not complete:
        msg = f"the output of {source} has no cycles; use another version of it"
        raise UnsupportedKernelError(msg)
    return found
