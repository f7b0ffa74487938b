"""Loop nests of a kernel on a CPU, with the streams of accesses in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perflex.features.polynomials.quasipolynomial import QuasiPolynomial

# Of the names that iterations of drivers have in polynomials.
DRIVER_PREFIX = "at_"


@dataclass(frozen=True)
class Loop:
    """A loop as the CPU runs it.

    Attributes
    ----------
    name
        Its name; ``gid0`` and ``lid0`` are the work-groups and work-items along axis 0.
    node
        What identifies it among all loops: two nests with the same node run inside the same loop.
    extent
        Iterations before any blocking; of a loop over blocks, those of the blocked loop.
    part
        ``"whole"``; or of a loop that is blocked, ``"outer"`` (over blocks) or ``"inner"`` (in one).
    base
        Name of the loop that is blocked, else its own name; the key of a block size.
    block
        Block size where none is given: the work-group's, or lanes; None for the loop's whole extent.
    fold
        Iterations that the data layout folds into one.
    first
        What it begins with; None where that depends on sizes or other loops.
    varying
        Iterations in the sizes and iterations of outer loops (`Driver.parameter`), where they depend on those; `extent`
        then is their largest number.
    stride
        By how much its variable grows per iteration.
    """

    name: str
    node: tuple[object, ...]
    extent: QuasiPolynomial
    part: str = "whole"
    base: str = ""
    block: int | None = None
    fold: int = 1
    first: int | None = 0
    varying: QuasiPolynomial | None = None
    stride: int = 1


@dataclass(frozen=True)
class Step:
    """How an index moves with a loop: by `factor`, times the block size of `scale` if that is given.

    A fraction stands for an index that moves in some iterations only, as of ``i // 3``.
    """

    loop: int
    factor: float
    scale: str | None = None


@dataclass(frozen=True)
class Axis:
    """An axis of an array, as the accesses of a group use it.

    Attributes
    ----------
    stride
        Distance between neighbours, in elements.
    steps
        Movement with each loop, the smallest first.
    fold
        What the stride is divided by: elements of axes with smaller strides that are folded.
    """

    stride: QuasiPolynomial
    steps: tuple[Step, ...]
    fold: int = 1


@dataclass(frozen=True)
class Stream:
    """One access, with all that touch the same element in the same iteration.

    Attributes
    ----------
    offset
        Constant part of the index along each axis.
    loads, stores
        How many accesses of either direction.
    """

    offset: tuple[int, ...]
    loads: int
    stores: int


@dataclass(frozen=True)
class StreamGroup:
    """Accesses of one array that move alike and differ by constants.

    Attributes
    ----------
    array
        The array.
    space
        Its address space.
    itemsize
        Size of an element, in bytes; of all elements that are folded into one.
    fold
        Elements that are folded into one.
    axes
        The array's axes, the one with the smallest stride first.
    streams
        The accesses, the one that comes to an element first before the others.
    gaps
        Distance of each stream from the next one, in iterations of each loop of the nest; one shorter than streams.
    halo
        Largest difference of offsets, along each axis.
    touched_before
        Index of the loop in whose iteration an earlier nest has touched the same, if one has.
    text
        An access as written, for messages.
    near
        Bytes from one iteration to the next of the loop along rows, where that is the same for all sizes.
    scattered
        Whether each access is to any element of the array, as data decide: such a group has no axes.
    note
        What of its accesses is not followed exactly; empty where all is.
    begins
        Index along the first axis that the first iterations of all loops have beside the offset; None where that does
        not say where in a cache line rows begin.
    """

    array: str
    space: str
    itemsize: int
    axes: tuple[Axis, ...]
    streams: tuple[Stream, ...]
    gaps: tuple[tuple[int, ...], ...]
    halo: tuple[int, ...]
    touched_before: int | None
    text: str
    fold: int = 1
    begins: int | None = None
    near: int | None = None
    scattered: bool = False
    note: str = ""


@dataclass(frozen=True)
class Driver:
    """A loop on which the range of others depends.

    Attributes
    ----------
    name
        The loop.
    first, extent
        Its first iteration and their number, in the sizes and `parameter` of the drivers before it.
    """

    name: str
    first: QuasiPolynomial
    extent: QuasiPolynomial

    @property
    def parameter(self) -> str:
        """Name of its iteration in polynomials."""
        return DRIVER_PREFIX + self.name


@dataclass(frozen=True)
class Nest:
    """Statements inside the same loops.

    Attributes
    ----------
    launch
        Index of the launch.
    loops
        The loops, outermost first.
    groups
        What they access.
    count
        Executions of the innermost body in one launch.
    halos
        Largest halo of any group along each loop, in iterations.
    drivers
        Loops on whose iteration the range of others depends.
    touching
        Executions that count for lines: with guards of ``%``, those that they leave out as well, in whose lines others
        fall.
    notes
        What of it is not followed exactly.
    """

    launch: int
    loops: tuple[Loop, ...]
    groups: tuple[StreamGroup, ...]
    count: QuasiPolynomial
    halos: tuple[int, ...]
    drivers: tuple[Driver, ...] = ()
    touching: QuasiPolynomial | None = None
    notes: tuple[str, ...] = ()

    @property
    def varying(self) -> tuple[str, ...]:
        """Names of the loops whose range depends on others."""
        return tuple(loop.name for loop in self.loops if loop.varying is not None)


@dataclass(frozen=True)
class Nests:
    """A kernel's nests.

    Attributes
    ----------
    name
        The kernel.
    nests
        In the order of execution.
    shapes
        Extent of each array, in elements.
    """

    name: str
    nests: tuple[Nest, ...]
    shapes: tuple[tuple[str, tuple[QuasiPolynomial, ...]], ...]
