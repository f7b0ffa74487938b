"""What programs access and compute, summed up by operation of the kernel."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from perflex.features.from_triton.ttir import Operation, Type
from perflex.features.from_triton.values import TooLargeError

_Array = np.ndarray[Any, Any]
_SECTOR = 32
# Elements whose addresses are computed at once.
_AT_ONCE = 1 << 21
_LARGEST_KEY = 1 << 62
# Where an operation stands: its line, and those of the loops around it.
Place = tuple[int, tuple[int, ...]]
# They move data between work-items or say how, and compute nothing.
_NO_WORK = {
    "constant", "make_range", "splat", "broadcast", "expand_dims", "reshape", "trans", "unsplat", "addptr", "bitcast",
    "join", "split", "cat", "get_program_id", "get_num_programs", "make_tensor_descriptor", "assert", "print",
    "assume", "barrier", "return", "yield", "int_to_ptr", "ptr_to_int", "poison", "fp_to_fp", "extf", "truncf",
    "extsi", "extui", "trunci", "index_cast", "unrealized_conversion_cast", "fence", "experimental_descriptor_fence",
}  # fmt: skip
_SPECIAL = {"divf", "remf", "divsi", "divui", "remsi", "remui", "precise_divf", "precise_sqrt", "extern_elementwise"}
_MOVED = {"reduce", "scan", "histogram", "gather", "sort"}


@dataclass(frozen=True)
class Tile:
    """The elements of one access, for each program and iteration: offsets in bytes are sums, masks conjunctions."""

    offsets: tuple[_Array, ...]
    masks: tuple[_Array, ...]
    active: _Array
    type: Type


@dataclass
class AccessTally:
    """What an access touches over the programs and iterations that were interpreted."""

    array: str
    direction: str
    itemsize: int
    shape: tuple[int, ...]
    executions: int = 0
    elements: int = 0
    sectors: int = 0
    # How often an execution touches a tile that none of its program's before did, in all and programs that were asked.
    tiles: int = 0
    programs: int = 0
    # Of these tiles, those that other loads of the same program touched before.
    again: int = 0
    # Bytes of aligned consecutive elements that one load instruction can take: at most 16.
    vector: int = 16
    # Along which axis of the tile they follow one another, if along any.
    axis: int = -1
    stride: int = 0
    # For each program what tile it touches first, as a number.
    first: _Array | None = None


@dataclass
class LoopTally:
    """How often a loop is entered, and its iterations in all."""

    entries: int = 0
    iterations: int = 0
    attributes: dict[str, str] = field(default_factory=dict)


@dataclass
class Tally:
    """All that was interpreted of a kernel, by place."""

    # By place, array and direction: a pointer may lead to one array or another.
    accesses: dict[tuple[int, tuple[int, ...], str, str], AccessTally] = field(default_factory=dict)
    loops: dict[Place, LoopTally] = field(default_factory=dict)
    # Executions by shape m, n, k and types of the operands and of the sum.
    dots: dict[tuple[Place, tuple[int, int, int], tuple[str, str, str]], int] = field(default_factory=dict)
    # Elements by kind and type.
    operations: dict[tuple[tuple[int, ...], str, str], int] = field(default_factory=dict)
    # Whether tiles that programs share are told apart, and nothing else; or whether vectors are all that is asked.
    sharing: bool = False
    vectors: bool = False
    # Tiles that loads touch first, by array and place: numbers of tiles, and which of them are touched.
    seen: dict[str, dict[Any, tuple[_Array, _Array]]] = field(default_factory=dict)

    def begun(self) -> Tally:
        """Return an empty one to which a run adds; a run that fails leaves nothing."""
        return Tally(sharing=self.sharing, vectors=self.vectors)

    def add(self, other: Tally) -> None:
        """Add what another run found."""
        for place, loop in other.loops.items():
            mine = self.loops.setdefault(place, LoopTally(attributes=loop.attributes))
            mine.entries, mine.iterations = mine.entries + loop.entries, mine.iterations + loop.iterations
        for key, count in other.dots.items():
            self.dots[key] = self.dots.get(key, 0) + count
        for name, count in other.operations.items():
            self.operations[name] = self.operations.get(name, 0) + count
        for where, access in other.accesses.items():
            if (old := self.accesses.get(where)) is None:
                self.accesses[where] = access
                continue
            for what in ("executions", "elements", "sectors", "tiles", "programs", "again"):
                setattr(old, what, getattr(old, what) + getattr(access, what))
            old.vector = min(old.vector, access.vector)
            if old.axis < 0:
                old.axis, old.stride = access.axis, access.stride
            if old.first is not None and access.first is not None:
                old.first = np.concatenate([old.first, access.first])

    def enter(self, one: Operation, loops: tuple[int, ...], counts: tuple[int, int]) -> None:
        """Note how often a loop was entered, and its iterations."""
        entries, iterations = counts
        tally = self.loops.setdefault((one.line, loops), LoopTally(attributes=one.attributes))
        tally.entries += entries
        tally.iterations += iterations

    def dot(self, one: Operation, loops: tuple[int, ...], executions: int) -> None:
        """Note a product of tiles."""
        first, second = one.given[:2]
        third = one.types[0]
        batch = prod(third.shape[:-2])
        shape = (third.shape[-2], third.shape[-1], first.shape[-1])
        precise = one.text.partition("inputPrecision = ")[2].split(" ")[0]
        kind = {"tf32": "tf32", "tf32x3": "tf32x3"}.get(precise, "f32") if first.element == "f32" else first.element
        key = ((one.line, loops), shape, (kind, second.element, third.element))
        self.dots[key] = self.dots.get(key, 0) + executions * batch

    def compute(self, one: Operation, loops: tuple[int, ...], executions: int) -> None:
        """Note an operation on the elements of a tile; scalar ones do not count."""
        group, _, name = one.name.rpartition(".")
        kinds = one.given if name in _MOVED else one.types
        if name in _NO_WORK or not kinds or not kinds[0].shape or group in {"scf", "cf"}:
            return
        special = group == "math" and name not in {"absf", "fma", "ceil", "floor"}
        kind = "reduction" if name in _MOVED else "special" if special or name in _SPECIAL else "elementwise"
        element = one.given[0].element if name in {"cmpf", "cmpi"} else kinds[0].element
        key = (loops, kind, element)
        self.operations[key] = self.operations.get(key, 0) + executions * prod(kinds[0].shape)

    def access(self, one: Operation, loops: tuple[int, ...], what: tuple[str, str], tile: Tile) -> None:
        """Note a load, a store or an atomic update of memory."""
        key = (one.line, loops, *what)
        tally = self.accesses.setdefault(key, AccessTally(*what, tile.type.bytes, tile.type.shape))
        if self.sharing:
            if tally.first is None:
                tally.first = _Cases(tile).tiles(tile)[:, 0]
            return
        cases = _Cases(tile)
        # What lies outside of a tensor, a descriptor does not load element by element.
        tally.vector = min(tally.vector, cases.vector(masked="descriptor" not in one.name))
        if self.vectors:
            return
        elements, sectors = cases.counted()
        tally.executions += int(cases.counts.sum())
        tally.elements += int(elements @ cases.counts)
        tally.sectors += int(sectors @ cases.counts)
        tally.programs += tile.active.shape[0]
        numbers = cases.tiles(tile)
        tally.tiles += _distinct(numbers, tile.active)
        if what[1] == "load":
            here = numbers, tile.active.reshape(numbers.shape)
            earlier = self.seen.setdefault(what[0], {})
            tally.again += _common(here, [touched for place, touched in earlier.items() if place != key])
            earlier.setdefault(key, here)
        tally.axis, tally.stride = cases.rows()


class _Cases:
    """The different forms that an access takes: patterns along the tile, masks, and places within a sector."""

    def __init__(self, tile: Tile) -> None:
        self.tile, batch = tile, tile.active.shape
        depth, self.shape = len(batch), tile.type.shape
        self.patterns: list[_Array] = []
        self.starts = np.zeros((1,) * depth, np.int64)
        found: list[_Array] = []
        for place, term in enumerate((*tile.offsets, *tile.masks)):
            rows = term.reshape(-1, prod(term.shape[depth:]))
            if place < len(tile.offsets):
                first = rows[:, 0]
                self.starts = self.starts + first.reshape(term.shape[:depth])
                rows = rows - first[:, None]
            unique, inverse = _unique_rows(rows)
            self.patterns.append(unique.reshape(-1, *term.shape[depth:]))
            found.append(inverse.reshape(term.shape[:depth]))
        found.append(self.starts % _SECTOR)
        bounds = [*(len(one) for one in self.patterns), _SECTOR]
        key, largest = np.zeros(batch, np.int64), 1
        for ids, bound in zip(found, bounds, strict=True):
            if largest * bound > _LARGEST_KEY:
                unique, key = np.unique(key, return_inverse=True)
                key, largest = key.reshape(batch), len(unique)
            key, largest = key * bound + ids, largest * bound
        _, places, self.counts = np.unique(key[tile.active], return_index=True, return_counts=True)
        self.all_ids = found
        self.ids = [np.broadcast_to(ids, batch)[tile.active][places] for ids in found]

    def part(self, start: int, end: int, *, masks: bool) -> list[_Array]:
        """Return the patterns of some cases, of offsets or of masks."""
        count = len(self.tile.offsets)
        places = range(count, len(self.patterns)) if masks else range(count)
        return [self.patterns[place][self.ids[place][start:end]] for place in places]

    def counted(self) -> tuple[_Array, _Array]:
        """Return how many elements each case accesses, and of how many sectors."""
        size, cases = prod(self.shape), len(self.counts)
        if size > _AT_ONCE * 16:
            raise TooLargeError
        elements, sectors = np.zeros(cases, np.int64), np.zeros(cases, np.int64)
        step = max(1, _AT_ONCE // size)
        for start in range(0, cases, step):
            end = min(cases, start + step)
            shape = (end - start, *self.shape)
            offsets: _Array = np.zeros((1,) * len(shape), np.int64)
            for part in self.part(start, end, masks=False):
                offsets = offsets + part
            offsets = offsets + self.ids[-1][start:end].reshape(-1, *(1,) * len(self.shape))
            held = np.ones((1,) * len(shape), bool)
            for part in self.part(start, end, masks=True):
                held = held & part
            held = np.broadcast_to(held, shape).reshape(end - start, -1)
            elements[start:end] = held.sum(1)
            sectors[start:end] = self.touched(np.broadcast_to(offsets, shape).reshape(end - start, -1), held)
        return elements, sectors

    def touched(self, offsets: _Array, held: _Array) -> _Array:
        """Return how many sectors the held elements of each row lie in."""
        width = self.tile.type.bytes
        # An element that is not aligned lies in two.
        ends = [offsets // _SECTOR]
        if width > 1 and ((offsets % width) != 0).any():
            ends.append((offsets + width - 1) // _SECTOR)
        none = np.iinfo(np.int64).min
        numbers = np.concatenate([np.where(held, one, none) for one in ends], axis=1)
        numbers.sort(axis=1)
        different: _Array = (numbers[:, 1:] != numbers[:, :-1]).sum(1) + (numbers[:, 0] != none)
        return different

    def vector(self, *, masked: bool) -> int:
        """Return the bytes that one load instruction of a work-item takes: aligned, consecutive, at most 16.

        Its elements are all within the mask, or all outside.
        """
        width = self.tile.type.bytes
        if not self.shape:
            return width
        offsets: list[_Array] = self.part(0, len(self.counts), masks=False)
        if not len(self.counts):
            return 16
        masks = self.part(0, len(self.counts), masks=True) if masked else []
        for size in (16, 8, 4, 2):
            if size > width and any(
                self.aligned(offsets, axis, size // width, size) and _constant(masks, 1 + axis, size // width)
                for axis in range(len(self.shape))
            ):
                return size
        return width

    def rows(self) -> tuple[int, int]:
        """Return along which axis elements follow one another, -1 where along none, and the bytes between rows."""
        if not len(self.counts):
            return -1, 0
        steps = []
        for axis, length in enumerate(self.shape):
            along = [one[0] for one in self.part(0, 1, masks=False) if one.shape[1 + axis] > 1]
            first = [np.moveaxis(one, axis, -1).reshape(-1, length)[0, :2] for one in along]
            steps.append(abs(int(sum(pair[1] - pair[0] for pair in first))) if first else 0)
        axis = next((axis for axis, step in enumerate(steps) if step == self.tile.type.bytes), -1)
        return axis, max((step for place, step in enumerate(steps) if place != axis), default=0)

    def aligned(self, offsets: list[_Array], axis: int, count: int, size: int) -> bool:
        """Return whether so many elements along an axis always follow one another, from a multiple of `size` bytes."""
        if self.shape[axis] % count:
            return False
        along = [pattern for pattern in offsets if pattern.shape[1 + axis] > 1]
        starts = [self.ids[-1], *(pattern for pattern in offsets if pattern.shape[1 + axis] == 1)]
        moving = np.moveaxis(sum(along[1:], along[0]) if along else np.zeros(2, np.int64), 1 + axis if along else 0, -1)
        if moving.shape[-1] % count:
            return False
        groups = moving.reshape(*moving.shape[:-1], -1, count)
        follow = (np.diff(groups, axis=-1) == self.tile.type.bytes).all()
        return bool(follow) and all((start % size == 0).all() for start in (*starts, groups[..., 0]))

    def tiles(self, tile: Tile) -> _Array:
        """Return a number for each execution, equal for equal tiles: programs by executions of each."""
        # Patterns and masks are told apart by their contents: the numbers of cases differ from one run to the next.
        key = np.zeros((1,) * tile.active.ndim, np.uint64)
        marks = [np.array([hash(row.tobytes()) for row in one], np.int64).view(np.uint64) for one in self.patterns]
        for ids, mark in zip(self.all_ids, marks, strict=False):
            key = key * np.uint64(1000003) + mark[ids]
        whole = key * np.uint64(0x9E3779B97F4A7C15) + self.starts.astype(np.uint64)
        return np.broadcast_to(whole, tile.active.shape).reshape(tile.active.shape[0], -1)


def _constant(masks: list[_Array], axis: int, count: int) -> bool:
    """Return whether masks hold for all of so many elements along an axis, or for none."""
    for mask in masks:
        if mask.shape[axis] > 1:
            groups = np.moveaxis(mask, axis, -1).reshape(-1, count)
            if (groups != groups[:, :1]).any():
                return False
    return True


def _unique_rows(rows: _Array) -> tuple[_Array, _Array]:
    """Return the different rows, and for each row which of them it is."""
    if len(rows) == 1:
        return rows, np.zeros(1, np.int64)
    if (rows[1:] == rows[:1]).all():
        return rows[:1], np.zeros(len(rows), np.int64)
    rows = np.ascontiguousarray(rows)
    whole = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
    _, first, inverse = np.unique(whole, return_index=True, return_inverse=True)
    return rows[first], inverse.ravel()


def _distinct(tiles: _Array, active: _Array) -> int:
    """Return how many different tiles each program touches, summed over the programs."""
    numbers = tiles.copy()
    held = active.reshape(numbers.shape)
    numbers.sort(axis=1)
    if held.all():
        return int((numbers[:, 1:] != numbers[:, :-1]).sum()) + len(numbers)
    return sum(len(np.unique(row[mask])) for row, mask in zip(tiles, held, strict=True))


def _common(here: tuple[_Array, _Array], earlier: list[tuple[_Array, _Array]]) -> int:
    """Return how many different tiles programs touch that they touched earlier, summed over the programs."""
    if not earlier:
        return 0
    rows = [[numbers[held] for numbers, held in zip(*touched, strict=True)] for touched in (here, *earlier)]
    return sum(len(np.intersect1d(now, np.concatenate(before))) for now, *before in zip(*rows, strict=True))
