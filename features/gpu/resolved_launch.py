"""A launch at given sizes: instance boxes, constraints and address maps as numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from msgspec import structs

from perflex.errors import UnsupportedKernelError
from perflex.features.counting.scop_counts import counts_of
from perflex.features.polynomials.affine import Affine, Column
from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
from perflex.features.scop.address_maps import AccessMap, Conjunction, host_loops, vector_elements
from perflex.features.scop.register_reuse import Remaining, remaining_loads
from perflex.features.scop.scop import Scop
from perflex.features.scop.written_out import copied_maps
from perflex.isl import ISL_LOCK, computed_once, isl

Ranges = tuple[tuple[int, int], ...]
# Limit of loops before constraints narrow them: far beyond any size.
_FAR = 1 << 40
# Coupled constraints may narrow a range by ever less; whatever they still exclude is left out point by point.
_MOST_ROUNDS = 4


@dataclass(frozen=True)
class ResolvedAccess:
    """An access: ``axes`` are its indices, ``strides`` their distances in elements."""

    array: str
    direction: str
    text: str
    axes: tuple[Affine, ...]
    strides: tuple[int, ...]
    itemsize: int

    @property
    def key(self) -> tuple[str, tuple[int, ...]]:
        """Array and strides: accesses with the same key see the same axes of the same array."""
        return self.array, self.strides

    @computed_once
    def address(self) -> Affine:
        """Byte address relative to the array's first element."""
        return self.linear(range(len(self.axes)), self.itemsize)

    @computed_once
    def innermost(self) -> int:
        """The axis along which neighbours are closest."""
        # Of equal strides the last axis counts; a stride of 0 moves no address.
        there = [(abs(stride), -axis) for axis, stride in enumerate(self.strides) if stride]
        return -min(there)[1] if there else len(self.strides) - 1

    @computed_once
    def pitch(self) -> int:
        """Bytes between neighbours along the axis after the innermost one; 0 if there is none."""
        others = [abs(stride) for axis, stride in enumerate(self.strides) if stride and axis != self.innermost]
        return min(others, default=0) * self.itemsize

    @computed_once
    def marks(self) -> tuple[tuple[object, ...], ...]:
        """What tells each axis's granules from those of the launch's other accesses: equal forms are one object."""
        return tuple(
            (id(form), stride, self.array) if axis == self.innermost else (id(form),)
            for axis, (form, stride) in enumerate(zip(self.axes, self.strides, strict=True))
        )

    def linear(self, axes: Iterable[int], scale: int = 1) -> Affine:
        """Return the sum of index times stride over some axes, in elements, times a scale."""
        columns: dict[Column, int] = {}
        for axis in axes:
            form, factor = self.axes[axis], self.strides[axis] * scale
            # A quotient stays as it is: its single coefficients over the denominator are no integers.
            for column, coefficient in (form.columns if form.denominator == 1 else {form: 1}).items():
                columns[column] = columns.get(column, 0) + factor * coefficient
        return Affine.of(columns)


@dataclass(frozen=True, eq=False)
class Issued:
    """Memory instructions of an access."""

    access: ResolvedAccess  # what is accessed
    address: Affine  # byte address relative to the array's first element, without the loops below
    offsets: np.ndarray  # bytes to add to it, one for each instruction
    itemsize: int  # bytes that a work-item moves with one of them
    loops: int = 0  # number of innermost loops for whose iterations it is executed but once
    # which iteration of each of those each instruction is for first, counted from 0, shape (instructions, loops)
    iterations: np.ndarray = field(default_factory=lambda: np.zeros((1, 0), dtype=np.int64))
    source: tuple[int, int] = (-1, -1)  # places of statement and access in the Scop, which several pieces may share

    def in_vectors(self, elements: int, lanes: tuple[int, int], dim: int) -> Issued:
        """Return the instructions that move so many neighbours each, along a last dimension with these values."""
        width = elements * self.access.itemsize
        address, offsets, iterations = self.address, self.offsets, self.iterations
        if not self.loops:
            address = structs.replace(address, terms=tuple(term for term in address.terms if term[0] != dim))
            moved = self.access.itemsize * np.arange(lanes[0], lanes[1] + 1, dtype=np.int64)
            offsets = (offsets[:, None] + moved).ravel()
            iterations = np.zeros((len(offsets), 1), dtype=np.int64)
        blocks, first = np.unique((address.constant + offsets) // width, return_index=True)
        starts = blocks * width - address.constant
        return Issued(self.access, address, starts, width, max(1, self.loops), iterations[first], self.source)


@dataclass(frozen=True)
class ResolvedPiece:
    """Instances within a box that fulfil constraints, and what they access."""

    statement: str  # the statement's name
    ranges: Ranges  # first and last value of each dimension
    constraints: tuple[Affine, ...]  # forms that are not negative on instances; those that the box implies are left out
    accesses: tuple[ResolvedAccess, ...]  # the accesses
    issued: tuple[Issued, ...] = ()  # the memory instructions that they are
    order: tuple[int, ...] = ()  # as of the statement
    times: float = 1.0  # executions that an instance stands for, on average over launches and as stated

    def within(self, box: Sequence[tuple[int, int]]) -> ResolvedPiece | None:
        """Return the part with other ranges of the first dimensions, or None if it is certainly empty."""
        given = tuple(
            (max(low, start), min(high, end)) for (low, high), (start, end) in zip(box, self.ranges, strict=False)
        )
        ranges = narrowed(given + self.ranges[len(given) :], self.constraints)
        if ranges is None:
            return None
        left = tuple(form for form in self.constraints if form.bounds(ranges)[0] < 0)
        return replace(self, ranges=ranges, constraints=left)


@dataclass(frozen=True)
class ResolvedLaunch:
    """A launch: extents of its grid and work-groups, and its pieces."""

    kernel: str
    groups: tuple[int, ...]
    items: tuple[int, ...]
    repeats: int
    pieces: tuple[ResolvedPiece, ...]
    spaces: Mapping[str, str]  # address space of each array

    def within(self, box: Sequence[tuple[int, int]]) -> list[ResolvedPiece]:
        """Return the parts of the pieces in a box of work-groups, without those that are certainly empty."""
        parts = (piece.within(box) for piece in self.pieces)
        return [part for part in parts if part is not None]


def resolve(scop: Scop, sizes: Mapping[str, int], *, register_reuse: bool = True) -> list[ResolvedLaunch]:
    """Return the launches of a Scop at given sizes.

    Without register reuse, each access of the source is an instruction. A launch without work-items or work-groups, and
    a loop without end, are an `UnsupportedKernelError`.
    """
    maps = [piece for _, piece in copied_maps(scop)]
    remaining = remaining_loads(scop) if register_reuse else {}
    sizes = {name: int(sizes[name]) for name in scop.parameters}
    launches = []
    for number, launch in enumerate(scop.launches):
        if not launch.groups or not launch.items:
            msg = (
                f"kernel {scop.name!r} has no grid of work-groups and work-items, as GPUs run; tag its loops, e.g. "
                'loopy.split_iname(kernel, "i", 64, outer_tag="g.0", inner_tag="l.0")'
            )
            raise UnsupportedKernelError(msg, kernel=scop.name)
        groups = tuple(int(extent.evaluate(sizes)) for extent in launch.groups)
        if min(groups, default=1) < 1:
            msg = f"kernel {scop.name!r} has the grid {groups} at these sizes, so nothing runs; give larger sizes"
            raise UnsupportedKernelError(msg, kernel=scop.name, groups=groups)
        box = [(0, extent - 1) for extent in (*groups, *launch.items)]
        mine = [(place, piece) for place, piece in enumerate(maps) if piece.launch == number]
        repeats = int(launch.repeats.evaluate(sizes))
        chosen = _chosen(scop, [piece for _, piece in mine], box, sizes, repeats)
        resolved = [
            _resolved(
                scop,
                piece,
                [*box, *chosen[piece.number].host],
                sizes,
                {at: one for (of, at), one in remaining.items() if of == place},
            )
            for place, piece in mine
        ]
        pieces = tuple(
            replace(piece, times=chosen[of.number].times)
            for piece, (_, of) in zip(resolved, mine, strict=True)
            if piece is not None
        )
        spaces = {array.name: array.memory for array in scop.arrays}
        launches.append(ResolvedLaunch(scop.name, groups, launch.items, repeats, pieces, spaces))
    return launches


def accessing_launches(scop: Scop, sizes: Mapping[str, int]) -> list[tuple[int, ResolvedLaunch]]:
    """Return number and launch of those that access global or local memory; errors as `resolve`."""
    numbered = enumerate(resolve(scop, sizes))
    return [(number, launch) for number, launch in numbered if any(piece.accesses for piece in launch.pieces)]


# Iterations of the host's loops, together, that are looked at.
_MOST_ITERATIONS = 4096


@dataclass(frozen=True)
class _Chosen:
    """The launch that stands for all of a host's loops, of a statement: its iterations, and its executions in each."""

    host: Ranges
    times: float


def _chosen(
    scop: Scop, pieces: Sequence[Conjunction], box: list[tuple[int, int]], sizes: Mapping[str, int], repeats: int
) -> dict[int, _Chosen]:
    """Return by statement the launch that stands for all: of those that execute it, the one next to the middle."""
    spans: dict[int, list[Ranges]] = {}
    for piece in pieces:
        around = host_loops(scop, scop.statements[piece.number])
        ranges = (
            narrowed((*box, *[(-_FAR, _FAR)] * (piece.dims - len(box))), _constraints(piece, sizes)) if around else ()
        )
        spans.setdefault(piece.number, []).extend([] if ranges is None else [ranges[len(box) : len(box) + around]])
    found = {}
    for number, each in spans.items():
        statement = scop.statements[number]
        times = float(scop.weight(statement))
        host: Ranges = ()
        if each and each[0] and repeats:
            most = int(_MOST_ITERATIONS ** (1 / len(each[0])))
            limits = [(min(a for a, _ in of), max(b for _, b in of)) for of in zip(*each, strict=True)]
            columns = [np.arange(low, high + 1, -(-(high - low + 1) // most)) for low, high in limits]
            grid = [axis.ravel() for axis in np.meshgrid(*columns, indexing="ij")]
            instances = _instances_of_launches(scop, number, sizes, grid)
            if not (instances > 0).any():
                msg = (
                    f"too few of the launches of kernel {scop.name!r} execute statement {statement.name!r} to find one "
                    "that stands for all; give smaller sizes"
                )
                raise UnsupportedKernelError(msg, kernel=scop.name, statement=statement.name)
            middle = [(int(axis.min()) + int(axis.max())) / 2 for axis in grid]
            apart = sum((abs(axis - at) for axis, at in zip(grid, middle, strict=True)), start=np.zeros(len(instances)))
            place = int(np.argmin(np.where(instances > 0, apart, np.inf)))
            host = tuple((int(axis[place]), int(axis[place])) for axis in grid)
            times = float(counts_of(scop).instances(statement).evaluate(sizes)) / (repeats * float(instances[place]))
        found[number] = _Chosen(host, times)
    return found


def _instances_of_launches(
    scop: Scop, number: int, sizes: Mapping[str, int], iterations: Sequence[np.ndarray]
) -> np.ndarray:
    """Return how many instances of a statement a launch has, at iterations of the loops around it."""
    statement, names = scop.statements[number], [f"perflex_host_{place}" for place in range(len(iterations))]

    def compute() -> QuasiPolynomial:
        with ISL_LOCK:
            domain, first = statement.domain, scop.launches[statement.launch].axes
            for name in names:
                last = domain.dim(isl.dim_type.param)
                domain = domain.move_dims(isl.dim_type.param, last, isl.dim_type.set, first, 1)
                domain = domain.set_dim_name(isl.dim_type.param, last, name)
            return QuasiPolynomial.points(domain, scop.assumptions)

    shape = iterations[0].shape
    given = {name: np.full(shape, value, dtype=np.int64) for name, value in sizes.items()}
    counted = scop.derived("instances of launches", number, compute).evaluate(
        given | dict(zip(names, iterations, strict=True))
    )
    return np.broadcast_to(np.asarray(counted, dtype=float), shape)


def _constraints(piece: Conjunction, sizes: Mapping[str, int]) -> list[Affine]:
    found: list[Affine] = []
    for row, equality in piece.constraints:
        found.append(form := row.at(sizes))
        # An equality is two opposite inequalities, so that narrowing and point tests know one kind of constraint.
        if equality:
            found.append(Affine.of({column: -factor for column, factor in form.columns.items()}))
    return found


def _resolved(
    scop: Scop,
    piece: Conjunction,
    box: list[tuple[int, int]],
    sizes: Mapping[str, int],
    remaining: Mapping[int, Remaining],
) -> ResolvedPiece | None:
    constraints = _constraints(piece, sizes)
    # Equal forms become one object, on whose identity `ResolvedAccess.marks` relies.
    known: dict[Affine, Affine] = {}
    accesses = tuple(_access(scop, access, sizes, known) for access in piece.accesses)
    unbounded = [(-_FAR, _FAR)] * (piece.dims - len(box))
    ranges = narrowed((*box, *unbounded), constraints)
    if ranges is None:
        return None
    for low, high in ranges:
        if low <= -_FAR or high >= _FAR:
            msg = f"a loop around statement {piece.statement!r} of kernel {scop.name!r} has no end; give it bounds"
            raise UnsupportedKernelError(msg, kernel=scop.name, statement=piece.statement)
    statement = scop.statements[piece.number]
    left = tuple(form for form in constraints if form.bounds(ranges)[0] < 0)
    issued = [
        replace(
            _issued(access, found, remaining[at], piece.dims)
            if at in remaining
            else Issued(access, access.address, np.zeros(1, dtype=np.int64), access.itemsize),
            source=(piece.number, found.number),
        )
        for at, (access, found) in enumerate(zip(accesses, piece.accesses, strict=True))
    ]
    vectors = vector_elements(scop)
    for at, access in enumerate(piece.accesses):
        elements = vectors.get((piece.number, access.number), 1)
        if elements > 1:
            issued[at] = issued[at].in_vectors(elements, ranges[-1], piece.dims - 1)
    return ResolvedPiece(piece.statement, ranges, left, accesses, tuple(issued), statement.order)


def _issued(access: ResolvedAccess, found: AccessMap, remaining: Remaining, dims: int) -> Issued:
    """Return the instructions of a load whose values are kept."""
    full = access.address
    terms = tuple((dim, factor) for dim, factor in full.dim_terms if dim < dims - remaining.loops)
    # The address has the access's own constants; elements have the constants of each instruction.
    own = np.array([axis.constant if axis.denominator == 1 else 0 for axis in found.axes], dtype=np.int64)
    scale = np.array(access.strides, dtype=np.int64) * access.itemsize
    address = Affine(full.constant, terms, full.floors, full.denominator)
    offsets = (remaining.elements - own) @ scale
    return Issued(access, address, offsets, access.itemsize, remaining.loops, remaining.iterations)


def _access(scop: Scop, access: AccessMap, sizes: Mapping[str, int], known: dict[Affine, Affine]) -> ResolvedAccess:
    made = (axis.at(sizes) for axis in access.axes)
    axes = tuple(known.setdefault(form, form) for form in made)
    strides = tuple(int(stride.evaluate(sizes)) for stride in access.strides)
    return ResolvedAccess(access.array, access.direction, access.text, axes, strides, scop.array(access.array).itemsize)


def narrowed(ranges: Ranges, constraints: Sequence[Affine]) -> Ranges | None:
    """Return ranges cut to what constraints leave of them, or None if that is nothing."""
    current = list(ranges)
    changed = True
    rounds = 0
    while changed and rounds < _MOST_ROUNDS:
        changed = False
        rounds += 1
        for form in constraints:
            low, high = form.bounds(current)
            if low >= 0:
                continue
            if high < 0:
                return None
            for dim, coefficient in form.dim_terms:
                start, end = current[dim]
                # What the other terms can add at most bounds this one.
                rest = high - coefficient * (end if coefficient > 0 else start)
                if coefficient > 0:
                    # Rounded inwards: x >= -rest/coefficient, of which the ceiling is -(rest // coefficient).
                    new = (max(start, -(rest // coefficient)), end)
                else:
                    new = (start, min(end, rest // -coefficient))
                if new[0] > new[1]:
                    return None
                if new != (start, end):
                    current[dim] = new
                    changed = True
                    low, high = form.bounds(current)
    if any(low > high for low, high in current):
        return None
    return tuple(current)
