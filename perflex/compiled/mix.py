"""What single instructions do: arithmetic by width and type, gathers, shuffles, inserts, accesses."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perflex.compiled.instructions import Instruction

_ARITHMETIC = re.compile(r"v?(fn?m(?:add|sub|addsub|subadd)\d{3}|add|sub|mul|min|max|addsub)([sp])([sd])$")
_DIVISION = re.compile(r"v?(div|sqrt)([sp])([sd])$")
_INDEXED = re.compile(r"v(p?)(?:gather|scatter)([dq])([sp]?[sdq])$")
_SHUFFLE = re.compile(
    r"v?(p?shuf|p?unpck|p?perm|p?insr|p?extr|insert|extract|p?align|p?broadcast|p?compress|p?expand|"
    r"mov(?:lhps|hlps|[lh]p[sd]|ddup|s[lh]dup))"
)
# Elements that go into or out of a vector one by one: what compilers make of gathers and scatters without instructions.
_INSERT = re.compile(r"v?(insertps|pinsr[dq]|pextr[dq]|extractps|mov[lh]p[sd])$")
_PRODUCT = re.compile(r"v?p(?:mul|madd)")
_CONVERT = re.compile(r"v?cvt")
_MOVE = re.compile(r"v?(mov(ap|up|s|dqa|dqu|d|q|nt)|lddqu|p?maskmov)")


def arithmetic_of(one: Instruction) -> tuple[str, int, float] | None:
    """Return element type, lanes and operations of floating-point arithmetic other than divisions; None of others.

    A fused product and sum are two operations; minimum and maximum are one.
    """
    match = _ARITHMETIC.match(one.name)
    if match is None:
        return None
    lanes = _lanes(one, match[2], match[3])
    return _dtype(match[3]), lanes, lanes * (2.0 if match[1].startswith("f") else 1.0)


def division_of(one: Instruction) -> tuple[str, str, int] | None:
    """Return kind (``"div"`` or ``"sqrt"``), element type and lanes of a division or square root; None of others."""
    match = _DIVISION.match(one.name)
    return (match[1], _dtype(match[3]), _lanes(one, match[2], match[3])) if match else None


def indexed_lanes(one: Instruction) -> int:
    """Return how many elements a gather or scatter instruction accesses; 0 for other instructions."""
    match = _INDEXED.match(one.name)
    if match is None:
        return 0
    element = 4 if match[3] in {"ps", "d"} else 8
    index = 4 if match[2] == "d" else 8
    vectors = re.findall(r"([xyz])mm", " ".join(one.operands))
    widths = sorted({"x": 16, "y": 32, "z": 64}[letter] for letter in vectors)
    # The wider of data and indices fills its register.
    return widths[-1] // max(element, index)


def is_gather(one: Instruction) -> bool:
    """Return whether an instruction loads from addresses in a vector."""
    return "gather" in one.name


def is_scatter(one: Instruction) -> bool:
    """Return whether an instruction stores to addresses in a vector."""
    return "scatter" in one.name


def is_shuffle(one: Instruction) -> bool:
    """Return whether an instruction moves elements between lanes, other than from memory to all of them."""
    if "broadcast" in one.name and "[" in one.operands[-1]:
        return False
    return _SHUFFLE.match(one.name) is not None


def is_insert(one: Instruction) -> bool:
    """Return whether an instruction puts one element into a vector, or takes one out."""
    return _INSERT.match(one.name) is not None


def is_move(one: Instruction) -> bool:
    """Return whether an instruction only moves a vector or an element between registers and memory."""
    return _MOVE.match(one.name) is not None


def is_conversion(one: Instruction) -> bool:
    """Return whether an instruction converts elements to another type."""
    return _CONVERT.match(one.name) is not None


def is_product(one: Instruction) -> bool:
    """Return whether an instruction multiplies integers in vectors."""
    return _PRODUCT.match(one.name) is not None


def is_vector(one: Instruction) -> bool:
    """Return whether an instruction computes in vector registers."""
    return one.width > 0


def _dtype(letter: str) -> str:
    return "float64" if letter == "d" else "float32"


def _lanes(one: Instruction, packed: str, letter: str) -> int:
    return (one.width or 16) // (8 if letter == "d" else 4) if packed == "p" else 1
