"""Loads of local memory that move several elements: what compilers make of a work-item's loads of neighbours.

The rule, from listings of CUDA's compiler (nvcc 13.0 for sm_75, sm_80 and sm_90), which knows where local arrays begin:

* loads that lie in one aligned block of 16 bytes are one instruction, if they are three quarters of it or more; else,
  those of an aligned half of it are one, if they are all of that half. A block has four elements at most, so those of
  two bytes have blocks of 8 bytes; single bytes are loaded one by one. What lies in a vector type has its alignment,
  and fills blocks of 16 bytes whatever its elements are;
* loads that come together are looked at: those of unrolled loops, and of one or several statements, between which the
  values would stay in registers (`perflex.features.scop.register_reuse`), so no barrier and no store to the array;
* a block is aligned if what else the address is made of (work-items, other loops, sizes) moves it by whole blocks: the
  loads of ``a[ly][k]`` over k are wide where a row has 16 elements, not where it has 17. ``b[k][lx]`` has neighbours in
  other work-items only.

Global pointers have the alignment of their elements, as far as a compiler knows, and their loads remain as they are.
Stores to neighbours, which compilers join as well, count one by one, as do loads of a loop that is not unrolled.
"""

from __future__ import annotations

from itertools import chain
from math import gcd

import numpy as np

from perflex.features.scop.address_maps import MOST_BYTES, vector_elements
from perflex.features.scop.register_reuse import MadeByAccess, Remaining, Value, agreed, made_loads
from perflex.features.scop.scop import Scop
from perflex.features.scop.written_out import Copy, copied_maps

# Numbers in a block, of scalar types.
_MOST_ELEMENTS = 4


def wide_loads(scop: Scop) -> MadeByAccess:
    """Return instructions by places of statement and access in the Scop.

    Has those loads of local memory alone that may be parts of blocks. A block counts for the first of its loads.
    """
    return scop.derived("wide loads", (), lambda: _wide_loads(scop))


def _wide_loads(scop: Scop) -> MadeByAccess:
    families: dict[object, list[tuple[Value, Remaining]]] = {}
    for value, left in made_loads(scop):
        launch = copied_maps(scop)[value.place[0]][1].launch
        families.setdefault((launch, value.family), []).append((value, left))
    found: dict[tuple[int, int], list[tuple[Copy, int, int]]] = {}
    wide: set[tuple[int, int]] = set()
    for loads in families.values():
        elements = min(_block(scop, value) for value, _ in loads)
        made = _instructions(scop, loads, elements) if elements > 1 else [len(left.elements) for _, left in loads]
        for (value, left), instructions in zip(loads, made, strict=True):
            key, (copy, _) = _key(scop, value), copied_maps(scop)[value.place[0]]
            found.setdefault(key, []).append((copy, instructions, left.loops))
            wide |= {key} if elements > 1 else set()
    return agreed(scop, {key: each for key, each in found.items() if key in wide})


def _key(scop: Scop, value: Value) -> tuple[int, int]:
    _, piece = copied_maps(scop)[value.place[0]]
    return piece.number, piece.accesses[value.place[1]].number


def _strides(scop: Scop, value: Value) -> list[int] | None:
    """Return the distances of neighbours along the axes, in elements; None where sizes decide them."""
    strides = copied_maps(scop)[value.place[0]][1].accesses[value.place[1]].strides
    return None if any(stride.parameters for stride in strides) else [int(stride.evaluate({})) for stride in strides]


def _block(scop: Scop, value: Value) -> int:
    """Return the number of elements in the largest aligned blocks of a load."""
    piece, position = value.place
    array = scop.array(copied_maps(scop)[piece][1].accesses[position].array)
    strides = _strides(scop, value)
    if array.space != "local" or strides is None or any(axis.denominator != 1 for axis in value.rests):
        return 1
    vector = _key(scop, value) in vector_elements(scop)
    if array.itemsize == 1 and not vector:
        return 1
    moves = (
        factor * stride
        for axis, stride in zip(value.rests, strides, strict=True)
        for _, factor in chain(axis.terms, axis.floors)
    )
    most = MOST_BYTES // array.itemsize
    return gcd(most if vector else min(most, _MOST_ELEMENTS), array.alignment // array.itemsize, *moves)


def _instructions(scop: Scop, loads: list[tuple[Value, Remaining]], elements: int) -> list[int]:
    """Return the instructions of each load, of those of a family in the order of the program."""
    places = [left.elements @ np.array(_strides(scop, value), dtype=np.int64) for value, left in loads]
    different = np.unique(np.concatenate(places))
    first = different.copy()
    for size in (1 << power for power in range(1, elements.bit_length())):
        _, block, counts = np.unique(different // size, return_inverse=True, return_counts=True)
        first = np.where(4 * counts[block] >= 3 * size, different // size * size, first)
    made: set[int] = set()
    found = []
    for each in places:
        new = set(first[np.searchsorted(different, each)].tolist()) - made
        made |= new
        found.append(len(new))
    return found
