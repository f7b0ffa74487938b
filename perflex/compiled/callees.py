"""Functions that machine code calls: which mathematical function a symbol names, and how many vectors it computes."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from perflex.compiled.instructions import register

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.compiled.instructions import Instruction

KINDS = ("exp", "log", "trig", "tanh", "pow", "root", "integer", "other")
# The first that is found in a symbol's stem decides. PoCL's helpers of sine and of powers are named by their methods.
_STEMS = (
    ("integer", re.compile(r"^[iu](?:8|16|32|64)?(?:div|rem)")),
    ("pow", re.compile(r"pow|rootn|epln|expep")),
    ("tanh", re.compile(r"(?:sin|cos|tan)h")),
    ("trig", re.compile(r"sin|cos|tan|argreduction|piby2")),
    ("root", re.compile(r"sqrt|cbrt|hypot")),
    ("exp", re.compile(r"exp")),
    ("log", re.compile(r"log")),
)
# Intel's names: element type and lanes follow the stem, __ocl_svml_z0_expf16. Those of the vector ABI of GNU: lanes
# precede it, _ZGVeN16v_expf.
_SVML = re.compile(r"_*(?:ocl_)?svml_(?:[a-z]\d_)?((?:exp|log)(?:10|2|1p|m1)|[a-z]+?2??)(f?)(\d+)(?:_\w+)?$")
_GNU = re.compile(r"_ZGV[a-e][NM](\d+)\w*?_([a-z]+?)(f?)$")
_MANGLED = re.compile(r"_Z\d+_*(?:cl|pocl)?_*(\w+)")
_REGISTER_BYTES = 64.0


@lru_cache(maxsize=1024)
def callee(symbol: str) -> tuple[str, float]:
    """Return the kind of function that a symbol names, one of `KINDS`, and how many vector registers it computes.

    Calls of single elements, and of symbols that are not understood, compute one.
    """
    stem, lanes, single = symbol, 1, True
    if match := _SVML.match(symbol):
        stem, single, lanes = match[1], bool(match[2]), int(match[3])
    elif match := _GNU.match(symbol):
        lanes, stem, single = int(match[1]), match[2], bool(match[3])
    elif match := _MANGLED.match(symbol):
        stem = match[1]
    kind = next((kind for kind, pattern in _STEMS if pattern.search(stem.lower())), "other")
    wide = 4 if single or kind == "integer" else 8
    return kind, max(1.0, lanes * wide / _REGISTER_BYTES)


def with_callees(instructions: Sequence[Instruction], symbols: Mapping[int, str]) -> list[Instruction]:
    """Return instructions whose calls know the symbol that they call.

    Parameters
    ----------
    instructions
        Of a function, in the order of their addresses.
    symbols
        Symbols by address: of functions, and of places that a linker fills with the address of one.
    """
    held: dict[str, str] = {}
    found = []
    for one in instructions:
        inside = (symbols[place] for place in range(one.address + 1, one.address + one.size) if place in symbols)
        symbol = next(inside, "")
        if one.name == "call":
            target = one.operands[0] if one.operands else ""
            if not symbol and target.startswith("0x"):
                symbol = symbols.get(int(target, 16), "")
            # Addresses are loaded shortly before the call, or before the loop that it is in.
            symbol = symbol or held.get(register(target), "")
            found.append(replace(one, symbol=symbol))
            continue
        if symbol and one.operands and "[" not in one.operands[0]:
            held[register(one.operands[0])] = symbol
        found.append(one)
    return found
