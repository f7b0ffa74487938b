"""The histograms of the nvbench data, described by hand: loopy has no atomic updates of local memory.

All elements are zero in the data, so that all of them are counted in the first bin. An atomic update is one access, a
store, with the operation ``atomic``.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from perflex.features import scop_from_yaml

if TYPE_CHECKING:
    from perflex.features import Scop

BINS = 512


def _document(name: str, b: int, statements: list[str], barriers: list[int], *, local: bool) -> str:
    arrays = [("x", "global", "n"), ("bins", "global", str(BINS)), *([("part", "local", str(BINS))] if local else [])]
    lines = [
        "schema: perflex-scop/1",
        f"name: {name}",
        "parameters: [n]",
        'assumptions: "[n] -> { : n >= 1 }"',
        "launches:",
        f'- {{groups: ["floor((n+{b - 1})/{b})"], items: [{b}]}}',
        "arrays:",
        *(
            f"- {{name: {array}, space: {space}, dtype: uint32, shape: [{size}], strides: [1]}}"
            for array, space, size in arrays
        ),
        "statements:",
        *statements,
        "barriers:",
        *(f'- {{kind: local, domain: "[n] -> {{ [g, l] : {_grid(b)} }}", schedule: [{place}]}}' for place in barriers),
    ]
    return "\n".join(lines)


def _grid(b: int) -> str:
    return f"0 <= g and {b}*g < n and 0 <= l < {b}"


def _statement(
    name: str, b: int, where: str, accesses: list[tuple[str, str, str]], schedule: str, *, atomic: bool = False
) -> str:
    loop = ", r" if "r" in schedule else ""
    lines = [
        f"- name: {name}",
        f'  domain: "[n] -> {{ [g, l{loop}] : {_grid(b)} and {where} }}"',
        f"  schedule: {schedule}",
        "  accesses:",
        *(
            f'  - {{array: {array}, direction: {direction}, relation: "[n] -> {{ [g, l{loop}] -> [{place}] }}"}}'
            for array, direction, place in accesses
        ),
        *(["  operations: [{kind: atomic, dtype: uint32, count: 1}]"] if atomic else []),
    ]
    return "\n".join(lines)


@cache
def histogram_global(b: int) -> Scop:
    """One update of global memory for each element; valid where the launch has a work-item for each bin."""
    i = f"{b}*g + l"
    statements = [
        _statement("clear", b, f"{i} < {BINS}", [("bins", "store", i)], "[0]"),
        _statement("read", b, f"{i} < n", [("x", "load", i)], "[2]"),
        _statement("count", b, f"{i} < n", [("bins", "store", "0")], "[3]", atomic=True),
    ]
    return scop_from_yaml(_document("histogram_global", b, statements, [1], local=False))


@cache
def histogram_shared(b: int) -> Scop:
    """One update of local memory for each element; each work-group adds all of its bins to those in global memory."""
    i, place = f"{b}*g + l", f"{b}*r + l"
    own = f"0 <= r and {place} < {BINS}"
    statements = [
        _statement("clear", b, own, [("part", "store", place)], "[0, r, 0]"),
        _statement("read", b, f"{i} < n", [("x", "load", i)], "[2]"),
        _statement("count", b, f"{i} < n", [("part", "store", "0")], "[3]", atomic=True),
        _statement("fetch", b, own, [("part", "load", place)], "[5, r, 0]"),
        _statement("add", b, own, [("bins", "store", place)], "[5, r, 1]", atomic=True),
    ]
    return scop_from_yaml(_document("histogram_shared", b, statements, [1, 4], local=True))
