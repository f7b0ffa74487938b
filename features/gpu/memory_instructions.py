"""Memory instructions of work-groups: addresses of their sub-groups' work-items, sectors and banks that these hit."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import gcd, prod
from typing import TypeAlias

import numpy as np

from perflex.errors import UnsupportedKernelError
from perflex.features.gpu.resolved_launch import Issued, ResolvedLaunch, ResolvedPiece
from perflex.features.gpu.work_group_kinds import representatives, whole_grid
from perflex.machines.machine import Machine

# The address of a work-item that does not execute the instruction.
IDLE = np.int64(1) << 60


def first_of_each(addresses: np.ndarray, granule: int) -> tuple[np.ndarray, np.ndarray]:
    """Return granules in order along the last axis, and which is the first of its number; idle work-items are none."""
    granules = np.sort(addresses // granule, axis=-1)
    new = np.ones(granules.shape, dtype=bool)
    new[..., 1:] = granules[..., 1:] != granules[..., :-1]
    # All idle work-items fall into one granule behind the others.
    return granules, new & (granules != IDLE // granule)


def distinct(addresses: np.ndarray, granule: int) -> np.ndarray:
    """Return the number of distinct granules along the last axis, idle work-items left out."""
    counted: np.ndarray = first_of_each(addresses, granule)[1].sum(axis=-1)
    return counted


def bank_conflicts(addresses: np.ndarray, banks: int, width: int, unit: int) -> np.ndarray:
    """Return the most distinct units of memory on any one bank, along the last axis.

    Addresses in the same `unit` bytes are served together; `width` bytes of neighbouring addresses lie on one bank.
    """
    units, new = first_of_each(addresses, unit)
    bank = (units * unit // width) % banks
    # `bincount` knows no axes: each instruction gets bins of its own in one flat histogram.
    rows = np.arange(bank[..., 0].size).reshape((*bank.shape[:-1], 1)) * banks
    counts = np.bincount((bank + rows)[new], minlength=bank[..., 0].size * banks)
    most: np.ndarray = counts.reshape((*bank.shape[:-1], banks)).max(axis=-1)
    return most


def work_items(launch: ResolvedLaunch, group: Sequence[int]) -> dict[int, np.ndarray]:
    """Return values of the dimensions of a work-group and its work-items; of the latter with shape (1, work-items)."""
    # Work-items are numbered along axis 0 first: that is how sub-groups are cut from them.
    local = np.unravel_index(np.arange(prod(launch.items)), launch.items, order="F")
    return dict(enumerate([*map(np.asarray, group), *(values[None, :] for values in local)]))


def executing(launch: ResolvedLaunch, part: ResolvedPiece, points: Mapping[int, np.ndarray]) -> np.ndarray:
    """Return which work-items execute a part of a work-group at given values of its dimensions."""
    running = np.ones((1, 1), dtype=bool)
    first = len(launch.groups)
    for dim in range(first, first + len(launch.items)):
        low, high = part.ranges[dim]
        running = running & (points[dim] >= low) & (points[dim] <= high)
    for guard in part.constraints:
        running = running & (guard(points) >= 0)
    return running


def in_sub_groups(addresses: np.ndarray, lanes: int) -> np.ndarray:
    """Return addresses of shape (iterations, work-items) as (iterations, sub-groups, sub-group size)."""
    count, items = addresses.shape
    # The last sub-group may have idle work-items.
    filled = np.full((count, -(-items // lanes) * lanes), IDLE, dtype=np.int64)
    filled[:, :items] = addresses
    return filled.reshape(count, -1, lanes)


# Neither banks, lines nor segments tell addresses apart that differ by a multiple of this.
PERIOD = 1024


def _period(issued: Issued, word: int) -> int:
    """Return by multiples of which addresses do not differ."""
    # Moved by whole words, or elements of more, all addresses fall on other banks, but together as before.
    return max(issued.itemsize, word) if word else PERIOD


# Eight bytes each: 64 MB for one access.
_MOST_ADDRESSES = 8_000_000


@dataclass(frozen=True)
class Instructions:
    """Accesses whose instructions have the same addresses, up to multiples of `PERIOD`."""

    array: str
    direction: str
    itemsize: int  # bytes that a work-item moves with an instruction
    sources: Mapping[tuple[int, int], int]  # how many are of each access, by places of statement and access in the Scop
    times: float  # executions that each stands for, on average as stated
    # byte addresses, shape (iterations, sub-groups, sub-group size); `IDLE` where a work-item does not execute it
    addresses: np.ndarray
    weights: np.ndarray  # how often each iteration occurs, shape (iterations,)

    @property
    def count(self) -> int:
        """Number of such accesses."""
        return sum(self.sources.values())


def instructions(
    launch: ResolvedLaunch, group: tuple[int, ...], lanes: int, space: str, offsets: dict[str, int], word: int = 0
) -> Iterator[Instructions]:
    """Yield the memory instructions of a work-group in one address space.

    With the bytes of a bank's `word`, those have the same addresses that a bank's conflicts do not tell apart.
    """
    points = work_items(launch, group)
    parts = launch.within([(position, position) for position in group])
    joined = _joined(launch, parts, space)
    for pieces in joined.values():
        issued = pieces[0][1]
        steps, weights = _steps_of_all(launch, pieces)
        here = points | steps
        address = np.asarray(IDLE)
        for part, item in pieces:
            alive = executing(launch, part, here) & _reached(part, steps)
            moved = item.address(here) + int(item.offsets[0]) + offsets.get(item.access.array, 0)
            address = np.where(alive, moved, address)
        yield _made(launch, issued, ({issued.source: 1}, pieces[0][0].times), address, lanes, weights)
    for part in parts:
        known: dict[object, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        for (issued, shift), sources in _kinds(launch, part, space, offsets, joined, word).items():
            form = issued.address
            # Many differ by constants alone.
            same = (form.terms, form.floors, issued.loops, _period(issued, word))
            if same not in known:
                steps, weights = _iterations(launch, part, issued, same[-1])
                here = points | steps
                known[same] = weights, executing(launch, part, here), form(here) - form.constant
            weights, alive, moved = known[same]
            address = np.where(alive, moved + (form.constant + shift), IDLE)
            yield _made(launch, issued, (sources, part.times), address, lanes, weights)


def _made(
    launch: ResolvedLaunch,
    issued: Issued,
    number: tuple[Mapping[tuple[int, int], int], float],
    address: np.ndarray,
    lanes: int,
    weights: np.ndarray,
) -> Instructions:
    address = np.broadcast_to(address, (len(weights), prod(launch.items)))
    found = in_sub_groups(address, lanes)
    return Instructions(issued.access.array, issued.access.direction, issued.itemsize, *number, found, weights)


_Joined: TypeAlias = "dict[tuple[int, int], list[tuple[ResolvedPiece, Issued]]]"


def _joined(launch: ResolvedLaunch, parts: Sequence[ResolvedPiece], space: str) -> _Joined:
    """Return accesses whose instances in a work-group are several pieces: a sub-group executes these together."""
    found: _Joined = defaultdict(list)
    for part in parts:
        for issued in part.issued:
            if launch.spaces[issued.access.array] == space:
                found[issued.source].append((part, issued))
    return {
        source: pieces
        for source, pieces in found.items()
        # What is kept in registers is issued otherwise in each piece.
        if len(pieces) > 1
        and all(len(issued.offsets) == 1 and issued.loops == 0 for _, issued in pieces)
        and prod(len(values) for values in _common_ranges(launch, pieces)) * prod(launch.items) <= _MOST_ADDRESSES
    }


def _common_ranges(launch: ResolvedLaunch, pieces: Sequence[tuple[ResolvedPiece, Issued]]) -> list[range]:
    """Return the values of the sequential loops' dimensions that the pieces have together."""
    first = len(launch.groups) + len(launch.items)
    each = zip(*(part.ranges[first:] for part, _ in pieces), strict=True)
    return [range(min(low for low, _ in one), max(high for _, high in one) + 1) for one in each]


def _steps_of_all(
    launch: ResolvedLaunch, pieces: Sequence[tuple[ResolvedPiece, Issued]]
) -> tuple[dict[int, np.ndarray], np.ndarray]:
    """Return values of the sequential loops' dimensions, as `_iterations`, each for itself."""
    ranges, first = _common_ranges(launch, pieces), len(launch.groups) + len(launch.items)
    every = np.meshgrid(*(np.asarray(values, dtype=np.int64) for values in ranges), indexing="ij")
    steps = {first + place: values.reshape(-1, 1) for place, values in enumerate(every)}
    return steps, np.ones(prod(map(len, ranges)), dtype=np.int64)


def _reached(part: ResolvedPiece, steps: Mapping[int, np.ndarray]) -> np.ndarray:
    """Return which values of the sequential loops' dimensions are in a piece's box."""
    inside = np.ones((1, 1), dtype=bool)
    for dim, values in steps.items():
        low, high = part.ranges[dim]
        inside = inside & (values >= low) & (values <= high)
    return inside


def _kinds(
    launch: ResolvedLaunch, part: ResolvedPiece, space: str, offsets: dict[str, int], others: _Joined, word: int
) -> dict[tuple[Issued, int], Counter[tuple[int, int]]]:
    """Return the instructions of each kind: the first of its accesses and what to add to its address.

    Accesses of `others` are left out.
    """
    kinds: dict[tuple[object, ...], tuple[Issued, int]] = {}
    counts: dict[tuple[Issued, int], Counter[tuple[int, int]]] = defaultdict(Counter)
    for issued in part.issued:
        access, form = issued.access, issued.address
        if launch.spaces[access.array] != space or issued.source in others:
            continue
        shifts = issued.offsets + offsets.get(access.array, 0)
        # Accesses a multiple of the period apart have equal sectors and conflicts: one stands for all.
        rests = (form.constant + shifts) % _period(issued, word)
        residues, first, numbers = np.unique(rests, return_index=True, return_counts=True)
        for residue, at, number in zip(residues.tolist(), first.tolist(), numbers.tolist(), strict=True):
            same = (access.array, access.direction, form.terms, form.floors, issued.itemsize, issued.loops, residue)
            counts[kinds.setdefault(same, (issued, int(shifts[at])))][issued.source] += number
    return counts


def _iterations(
    launch: ResolvedLaunch, part: ResolvedPiece, issued: Issued, period: int
) -> tuple[dict[int, np.ndarray], np.ndarray]:
    """Return values of the sequential loops' dimensions, shape (iterations, 1), and how often each stands for one.

    Of a loop that only moves addresses, iterations are left out that repeat others modulo the period.
    """
    values: list[tuple[int, np.ndarray, np.ndarray]] = []
    form, dims = issued.address, len(part.ranges)
    guarded = frozenset[int]().union(*(guard.dims for guard in part.constraints))
    for dim in range(len(launch.groups) + len(launch.items), dims):
        start, end = part.ranges[dim]
        # What is kept in registers is loaded once for all iterations.
        count = end - start + 1 if dim < dims - issued.loops else 1
        kept = count
        # Guards and floors tell iterations apart by more than the address, so none of theirs stands for another.
        if dim not in guarded and dim not in form.floor_dims:
            # Addresses repeat modulo the period after so many; a loop that moves none (gcd with 0) keeps one.
            kept = min(count, period // gcd(period, form.coefficient(dim)))
        times = np.full(kept, count // kept, dtype=np.int64)
        times[: count % kept] += 1
        values.append((dim, np.arange(start, start + kept, dtype=np.int64), times))
    total = prod(len(times) for _, _, times in values)
    if total * prod(launch.items) > _MOST_ADDRESSES:
        msg = (
            f"{issued.access.text} in kernel {launch.kernel!r} has {total} different iterations in a work-group, "
            "more than data volumes can look at; simplify its guards and subscripts or give smaller sizes"
        )
        raise UnsupportedKernelError(msg, kernel=launch.kernel, access=issued.access.text)
    weights = np.ones(1, dtype=np.int64)
    for _, _, times in values:
        weights = (weights[:, None] * times).ravel()
    shape = tuple(len(times) for _, _, times in values)
    indices = np.unravel_index(np.arange(total), shape) if shape else ()
    steps = {dim: chosen[index][:, None] for (dim, chosen, _), index in zip(values, indices, strict=True)}
    return steps, weights


def local_wavefronts(launch: ResolvedLaunch, machine: Machine) -> dict[tuple[str, str], float]:
    """Return the cycles that accesses of local arrays take in a launch, by array and direction.

    An instruction takes as many as there are distinct words on one bank, over all sub-groups of a work-group; elements
    of more than a word are served to parts of a sub-group in turn.
    """
    total: dict[tuple[str, str], float] = defaultdict(float)
    if "local" not in launch.spaces.values():
        return total
    lanes, word = int(machine.need("sub_group_size")), int(machine.need("local_bank_bytes"))
    # Period 1: a work-group's local addresses start anew, so that only guards tell work-groups apart.
    for group, weight in representatives(launch, whole_grid(launch, 1), 1):
        for item in instructions(launch, group, lanes, "local", {}, word):
            each = wavefronts(item, machine)[0].sum(axis=-1)
            total[item.array, item.direction] += weight * item.count * item.times * float(each @ item.weights)
    return total


def wavefronts(item: Instructions, machine: Machine) -> tuple[np.ndarray, np.ndarray]:
    """Return wavefronts of local memory and the least without conflicts, shape (iterations, sub-groups) each."""
    lanes, banks, word = (int(machine.need(name)) for name in ("sub_group_size", "local_banks", "local_bank_bytes"))
    width = max(item.itemsize, word)
    parts = max(1, lanes * width // (banks * word))
    split = item.addresses.reshape(*item.addresses.shape[:-1], parts, -1)
    found = bank_conflicts(split, banks * word // width, width, width)
    return found.sum(axis=-1), (found > 0).sum(axis=-1)
