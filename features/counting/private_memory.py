"""Private arrays that lie in memory, and what work-items move between it and their registers.

Registers have no addresses: an array whose elements are chosen while the kernel runs lies in memory of the work-item's
own, such as one that a loop goes through which compilers leave a loop.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from perflex.errors import UnsupportedKernelError
from perflex.features.counting.loop_tree import moves, nests_of
from perflex.features.counting.scop_counts import counts_of
from perflex.features.scop.register_reuse import made_of, remaining_by_access
from perflex.isl import ISL_LOCK

if TYPE_CHECKING:
    from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
    from perflex.features.scop.register_reuse import MadeByAccess
    from perflex.features.scop.scop import Scop

_WORD_BYTES = 4


@dataclass(frozen=True)
class PrivateUse:
    """Memory of a launch's work-items beside their registers, and what they move."""

    bytes_per_item: float
    # Words of four bytes that sub-groups move, each for all of its work-items at once.
    loads: float
    stores: float


def arrays_in_memory(scop: Scop) -> frozenset[str]:
    """Return the names of private arrays that lie in memory."""

    def compute() -> frozenset[str]:
        if all(array.space != "private" or not array.shape for array in scop.arrays):
            return frozenset()
        with ISL_LOCK:
            return frozenset(
                access.array
                for nest in nests_of(scop)
                for number in nest.paths
                for access in scop.statements[number].accesses
                if scop.array(access.array).space == "private" and moves(scop, access, nest, number)
            )

    return scop.derived("private arrays in memory", (), compute)


def private_uses(
    scop: Scop, sizes: Mapping[str, int], sub_group_size: int, spilt: Mapping[int, float] | None = None
) -> dict[int, PrivateUse]:
    """Return the private memory of the launches that have some, by their numbers, per run of each.

    `spilt` has the shares of all other private arrays that find no register, by the numbers of launches.
    """
    found, inside = {}, arrays_in_memory(scop)
    for launch in range(len(scop.launches)):
        shares = dict.fromkeys(inside, 1.0)
        if share := (spilt or {}).get(launch, 0.0):
            others = (one for one in scop.arrays if one.space == "private" and one.shape)
            shares = {one.name: share for one in others} | shares
        moved = {"load": 0.0, "store": 0.0}
        taken = set()
        for array, direction, count in _words(scop, launch, sub_group_size, shares):
            taken.add(array)
            moved[direction] += shares[array] * float(count.evaluate(sizes))
        if taken:
            arrays = [scop.array(name) for name in taken]
            held = sum(
                shares[one.name] * prod(int(each.evaluate(sizes)) for each in one.shape) * one.itemsize
                for one in arrays
            )
            found[launch] = PrivateUse(held, moved["load"], moved["store"])
    return found


def _words(
    scop: Scop, launch: int, sub_group_size: int, arrays: Collection[str]
) -> Iterator[tuple[str, str, QuasiPolynomial]]:
    """Yield array, direction and words of a launch's accesses to some private arrays, as if these lay in memory."""
    if not arrays:
        return
    counts = counts_of(scop)
    remaining: MadeByAccess = {}
    # What is not known to be one element is not known to be the same one.
    with suppress(UnsupportedKernelError):
        remaining = remaining_by_access(scop)
    for number, statement in enumerate(scop.statements):
        for place, access in enumerate(statement.accesses if statement.launch == launch else ()):
            each = scop.weight(statement) * -(-scop.array(access.array).itemsize // _WORD_BYTES)
            for one in made_of(remaining, scop, number, place) if access.array in arrays else ():
                if one.times:
                    with ISL_LOCK:
                        domain = one.executions
                    words = counts.executions(domain, launch, sub_group_size) * (each * one.times)
                    yield access.array, access.direction, words
