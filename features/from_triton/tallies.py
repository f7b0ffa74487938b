"""What programs access and compute, summed up by operation of the kernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import reduce
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from perflex.features.from_triton.ttir import Operation, Type
from perflex.features.from_triton.values import TooLargeError

_Array = np.ndarray[Any, Any]
_SECTOR = 32
# Bytes of the widest load instruction of a work-item.
_WIDEST = 16
# Elements whose addresses are computed at once.
_AT_ONCE = 1 << 21
_LARGEST_KEY = 1 << 62
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


# Lines of the loops around an operation.
_Loops = tuple[int, ...]


class Access(NamedTuple):
    """Where an access stands and what it leads to: a pointer may lead to one array or another."""

    line: int
    loops: _Loops
    array: str
    direction: str
    itemsize: int
    shape: tuple[int, ...]


@dataclass
class Tally:
    """All that was interpreted of a kernel; what its fields hold is replaced, never changed."""

    sharing: bool = False  # Tiles that programs share are told apart, and nothing else.
    vectors: bool = False  # What the compiler knows of accesses is all that is asked.
    # By line and loops around: entries, iterations, and iterations in flight where the kernel's code says so.
    loops: dict[tuple[int, _Loops], tuple[int, int, int | None]] = field(default_factory=dict)
    # Executions by line, loops around, shape m, n, k, and types of the operands and of the sum.
    dots: Counter[tuple[int, _Loops, tuple[int, int, int], tuple[str, str, str]]] = field(default_factory=Counter)
    # Elements by loops around, kind and type.
    operations: Counter[tuple[_Loops, str, str]] = field(default_factory=Counter)
    # Executions, elements, sectors; how often an execution touches a tile that none of its program's before did; of
    # these tiles, those that other loads of the same program touched before; programs that were asked.
    accesses: dict[Access, _Array] = field(default_factory=dict)
    # Bytes of aligned consecutive elements that one load instruction can take.
    widths: dict[Access, int] = field(default_factory=dict)
    # Along which axis of the tile elements follow one another, if along any, and the bytes between rows.
    rows: dict[Access, tuple[int, int]] = field(default_factory=dict)
    # For each program what tile it touches first, as a number; an array of each run.
    first: dict[Access, tuple[_Array, ...]] = field(default_factory=dict)
    # Of this run: tiles that accesses touched first, and which of them are active; what earlier runs say of rows.
    seen: dict[Access, tuple[_Array, _Array]] = field(default_factory=dict)
    known: dict[Access, tuple[int, int]] = field(default_factory=dict)

    def begun(self) -> Tally:
        """Return what a run goes on with; if it fails, this is as it was."""
        return Tally(**{name: copy(held) for name, held in vars(self).items()} | {"seen": {}, "known": self.rows})

    def enter(self, one: Operation, loops: _Loops, counts: tuple[int, int]) -> None:
        """Note how often a loop was entered, and its iterations."""
        entries, iterations, _ = self.loops.get((one.line, loops), (0, 0, None))
        stages = one.attributes.get("tt.num_stages", "").split(" ")[0]
        self.loops[one.line, loops] = entries + counts[0], iterations + counts[1], int(stages) if stages else None

    def dot(self, one: Operation, loops: _Loops, executions: int) -> None:
        """Note a product of tiles."""
        first, second, total = *one.given[:2], one.types[0]
        *batch, rows, columns = total.shape
        precise = one.text.partition("inputPrecision = ")[2].split(" ")[0]
        kind = first.element if first.element != "f32" else precise if precise in {"tf32", "tf32x3"} else "f32"
        key = one.line, loops, (rows, columns, first.shape[-1]), (kind, second.element, total.element)
        self.dots[key] += executions * prod(batch)

    def compute(self, one: Operation, loops: _Loops, executions: int) -> None:
        """Note an operation on the elements of a tile; scalar ones do not count."""
        group, _, name = one.name.rpartition(".")
        kinds = one.given if name in _MOVED else one.types
        if name in _NO_WORK or not kinds or not kinds[0].shape or group in {"scf", "cf"}:
            return
        special = group == "math" and name not in {"absf", "fma", "ceil", "floor"}
        kind = "reduction" if name in _MOVED else "special" if special or name in _SPECIAL else "elementwise"
        element = one.given[0].element if name in {"cmpf", "cmpi"} else kinds[0].element
        self.operations[loops, kind, element] += executions * prod(kinds[0].shape)

    def access(self, one: Operation, loops: _Loops, what: tuple[str, str], tile: Tile) -> None:
        """Note a load, a store or an atomic update of memory."""
        key, cases = Access(one.line, loops, *what, tile.type.bytes, tile.type.shape), _Cases(tile)
        if not self.sharing:
            # What lies outside of a tensor, a descriptor does not load element by element.
            width = cases.width(masked="descriptor" not in one.name)
            self.widths[key] = min(width, self.widths.get(key, _WIDEST))
        if not self.sharing and self.known.get(key, (-1, 0))[0] < 0:
            self.rows[key] = cases.rows()
        if self.vectors:
            return
        numbers = cases.tiles()
        here = numbers, tile.active.reshape(numbers.shape)
        if self.sharing:
            if key not in self.seen:
                self.first[key] = (*self.first.get(key, ()), numbers[:, 0])
            self.seen[key] = here
            return
        touched, again = _different(here).sum(), 0
        if key.direction == "load":
            others = [tiles for other, tiles in self.seen.items() if other.array == key.array and other != key]
            again = (_different(*others) - _different(here, *others)).sum() + touched if others else 0
            self.seen.setdefault(key, here)
        counts = cases.counts.sum(), *cases.counted() @ cases.counts, touched, again, len(tile.active)
        self.accesses[key] = self.accesses.get(key, 0) + np.array(counts)


class _Cases:
    """The different forms that an access takes: patterns along the tile, masks, and places within a sector."""

    def __init__(self, tile: Tile) -> None:
        self.type, self.batch = tile.type, tile.active.shape
        batch, depth, self.found = self.batch, len(self.batch), list[tuple[_Array, _Array]]()
        self.starts = np.zeros((1,) * depth, np.int64)
        for place, term in enumerate((*tile.offsets, *tile.masks)):
            rows = term.reshape(-1, prod(term.shape[depth:]))
            if place < len(tile.offsets):
                self.starts = self.starts + rows[:, 0].reshape(term.shape[:depth])
                rows = rows - rows[:, :1]
            unique, inverse = _unique_rows(rows)
            self.found.append((unique.reshape(-1, *term.shape[depth:]), inverse.reshape(term.shape[:depth])))
        # The place within a sector is one more offset.
        self.found.append((np.arange(_SECTOR).reshape(-1, *(1,) * len(self.type.shape)), self.starts % _SECTOR))
        keys, largest = np.zeros(batch, np.int64), 1
        for patterns, ids in self.found:
            if largest * len(patterns) > _LARGEST_KEY:
                unique, inverse = np.unique(keys, return_inverse=True)
                keys, largest = inverse.reshape(batch), len(unique)
            keys, largest = keys * len(patterns) + ids, largest * len(patterns)
        _, firsts, self.counts = np.unique(keys[tile.active], return_index=True, return_counts=True)
        *terms, places = (patterns[np.broadcast_to(ids, batch)[tile.active][firsts]] for patterns, ids in self.found)
        self.offsets, self.masks = [places, *terms[: len(tile.offsets)]], terms[len(tile.offsets) :]

    def tiles(self) -> _Array:
        """Return a number for each program and execution, equal for equal tiles."""
        # Patterns are told apart by their contents: how many there are differs from one run to the next.
        key = np.zeros((1,) * len(self.batch), np.uint64)
        for patterns, ids in self.found[:-1]:
            marks = np.array([hash(row.tobytes()) for row in patterns], np.int64).view(np.uint64)
            key = key * np.uint64(1000003) + marks[ids]
        key = key * np.uint64(0x9E3779B97F4A7C15) + self.starts.astype(np.uint64)
        return np.broadcast_to(key, self.batch).reshape(self.batch[0], -1)

    def counted(self) -> _Array:
        """Return how many elements each case accesses, and of how many sectors."""
        size, width, cases = prod(self.type.shape), self.type.bytes, len(self.counts)
        if size > _AT_ONCE * 16:
            raise TooLargeError
        found = np.zeros((2, cases), np.int64)
        for part in np.array_split(np.arange(cases), cases * size // _AT_ONCE + 1):
            shape = (len(part), *self.type.shape)
            offsets = np.broadcast_to(reduce(np.add, [one[part] for one in self.offsets]), shape).reshape(-1, size)
            masks: Any = reduce(np.logical_and, [one[part] for one in self.masks], True)
            held = np.broadcast_to(masks, shape).reshape(-1, size)
            ends = [offsets // _SECTOR]
            # An element that is not aligned lies in two sectors.
            if width > 1 and (offsets % width != 0).any():
                ends.append((offsets + width - 1) // _SECTOR)
            found[:, part] = held.sum(1), _different(*((end, held) for end in ends))
        return found

    def width(self, *, masked: bool) -> int:
        """Return the bytes that one load instruction of a work-item takes: aligned, consecutive, at most 16.

        Its elements are all within the mask, or all outside.
        """
        shape, width = self.type.shape, self.type.bytes
        if shape and not len(self.counts):
            return _WIDEST
        for size, axis in product((_WIDEST, 8, 4, 2), range(len(shape))):
            count, moving = size // width, _along(axis, self.offsets)
            if count < 2 or shape[axis] % count or not moving:
                continue
            terms = [reduce(np.add, moving), *(_along(axis, self.masks) if masked else ())]
            offsets, *masks = (np.moveaxis(one, 1 + axis, -1).reshape(-1, count) for one in terms)
            starts = [offsets[:, 0], *(one for one in self.offsets if one.shape[1 + axis] == 1)]
            whole = all((mask == mask[:, :1]).all() for mask in masks)
            if whole and (np.diff(offsets) == width).all() and all((start % size == 0).all() for start in starts):
                return size
        return width

    def rows(self) -> tuple[int, int]:
        """Return along which axis elements follow one another, -1 where along none, and the bytes between rows."""
        if not len(self.counts):
            return -1, 0
        axes, width = range(len(self.type.shape)), self.type.bytes
        steps = [abs(sum(int(np.take(one[0], 1, axis).flat[0]) for one in _along(axis, self.offsets))) for axis in axes]
        axis = steps.index(width) if width in steps else -1
        return axis, max((step for place, step in enumerate(steps) if place != axis), default=0)


def _along(axis: int, terms: Sequence[_Array]) -> list[_Array]:
    """Return the terms that differ along an axis of the tile."""
    return [one for one in terms if one.shape[1 + axis] > 1]


def _unique_rows(rows: _Array) -> tuple[_Array, _Array]:
    """Return the different rows, and for each row which of them it is."""
    if (rows[1:] == rows[:1]).all():
        return rows[:1], np.zeros(len(rows), np.int64)
    rows = np.ascontiguousarray(rows)
    whole = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
    _, first, inverse = np.unique(whole, return_index=True, return_inverse=True)
    return rows[first], inverse.ravel()


def _different(*some: tuple[_Array, _Array]) -> _Array:
    """Return how many different numbers rows of some arrays have together, of those that masks hold."""
    numbers, held = (np.hstack(one) for one in zip(*some, strict=True))
    none = np.iinfo(numbers.dtype).min
    numbers = np.sort(np.where(held, numbers, none), axis=1)
    different: _Array = (numbers[:, 1:] != numbers[:, :-1]).sum(1) + (numbers[:, 0] != none)
    return different
