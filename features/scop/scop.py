"""The Scop: the one description of a kernel that every feature reads.

loopy is one producer of it (`extract_scop`); a kernel that loopy never saw can be described by hand
with isl strings (`scop_from_yaml`).

Every statement's domain is an isl set over ``[gid0, .., lid0, .., loops]``: all group axes of its launch, then all its
local axes, then the loops around it, outermost first; last the element, of statements that work on vectors. Access
relations go from these instances to array elements.

All of it is data that msgspec writes and reads; isl's objects are kept as texts, and parsed when they are first read.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Mapping
from contextvars import ContextVar
from fractions import Fraction
from math import prod
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypeVar

from msgspec import Meta, Struct
from msgspec.structs import force_setattr

from perflex.errors import MissingSizeError, UnsupportedKernelError
from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
from perflex.features.scop.checks import check, require_addressable, require_whole
from perflex.features.scop.numbering import by_number
from perflex.features.scop.words import numpy_name
from perflex.html import shown_by
from perflex.isl import IslText, MapText, SetText, computed_once, isl

_Value = TypeVar("_Value")


# What files must have there, where Python takes more: what is the same to its type checkers as what files have.
if TYPE_CHECKING:
    _Set: TypeAlias = Any
    _Relation: TypeAlias = Any
    _Direction: TypeAlias = str
    _BarrierKind: TypeAlias = str
    _LoopKind: TypeAlias = str
else:
    _Set, _Relation = SetText, MapText
    _Direction, _BarrierKind = Literal["load", "store"], Literal["local", "global", "sub_group"]
    _LoopKind = Literal["loop", "unrolled", "interleaved", "host"]
# Of work-items and bytes: what devices can have.
_Extent = Annotated[int, Meta(ge=1, le=2**31 - 1)]
_Count = Annotated[int, Meta(ge=0, le=2**53)]
_Index = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_Name = Annotated[str, Meta(pattern=r"^[A-Za-z_]\w*$")]


class _Part(Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """A part of a description."""


class _OfIsl(_Part, frozen=True):
    """A part with a field that is kept as isl's text and read as isl's object; what makes it may give either."""

    def __post_init__(self) -> None:
        name, slot, kind = _TEXTS[type(self)]
        given = slot.__get__(self)
        if not isinstance(given, IslText):
            slot.__set__(self, kind(given))
            if not isinstance(given, str):
                self.__dict__[name] = given

    @property
    def isl_text(self) -> str:
        """The field as isl prints it."""
        return str(_TEXTS[type(self)][1].__get__(self))


class Array(_Part, frozen=True):
    """An array the kernel reads or writes.

    Attributes
    ----------
    name, dtype
        Its name in the kernel, and the numpy name of the element type.
    space
        ``"global"``, ``"local"``, ``"private"``, ``"constant"``, or ``"texture"``: global memory that is read through
        the texture cache.
    shape, strides
        Extent of each axis, and distance between neighbours along it, in elements.
    alignment
        Alignment of the first element, in bytes.
    restrict
        Whether compilers know that no other array overlaps it, as C's keyword says of a pointer.
    """

    name: str
    space: str
    dtype: str
    shape: tuple[QuasiPolynomial, ...]
    strides: tuple[QuasiPolynomial, ...]
    alignment: _Extent = 128
    restrict: bool = True

    @computed_once
    def itemsize(self) -> int:
        """Size of one element, in bytes."""
        import numpy as np

        return int(np.dtype(numpy_name(self.dtype)).itemsize)

    @property
    def memory(self) -> str:
        """The memory it lies in: its space, but for textures ``"global"``."""
        return "global" if self.space == "texture" else self.space


class Access(_OfIsl, frozen=True):
    """One access of a statement: which element each instance touches.

    Attributes
    ----------
    array, direction
        Name of the array, and ``"load"`` or ``"store"``.
    relation
        isl map from the statement's instances to the array's index tuple. An instance with several images
        touches one of them, which one is not known: it has no strides, and footprints are upper bounds.
    tag, text
        The user's memory access tag, or None; the access as written, for messages, by default the array's name.
    strides
        Distance between neighbours along each axis of the relation's range, in elements, where that is not
        the array's own index tuple (a flattened subscript such as ``n*i + j`` has the axes ``i`` and ``j``).
    injective
        Whether different images of the relation are certainly different elements.
    assumed
        What the user stated about it that the kernel cannot tell, for messages.
    atomic
        Whether it is part of an atomic update: a load and a store, or a store that loads as well.
    line
        Its line in the source, ``12`` or ``header.h:12``; empty for its statement's.
    hidden
        Whether its subscript hides from compilers that neighbours touch neighbours, if they do.
    """

    array: str
    direction: _Direction
    relation: _Relation
    tag: str | None = None
    text: str = ""
    strides: tuple[QuasiPolynomial, ...] | None = None
    injective: bool = True
    assumed: str = ""
    atomic: bool = False
    line: str = ""
    hidden: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.text:
            force_setattr(self, "text", self.array)


class Operation(Struct, frozen=True, forbid_unknown_fields=True):
    """An arithmetic operation that each instance of a statement executes `count` times."""

    kind: str
    dtype: str
    count: _Count = 1


class Recurrence(Struct, frozen=True, forbid_unknown_fields=True):
    """A private variable, or an element of an array, that each instance of a statement updates from its old value.

    Attributes
    ----------
    variable, operations
        The variable or element (``c[i]``), e.g. the accumulator of a reduction, and the operations on the way from its
        old value to the new one: they cannot start before the previous instance has ended, whatever else can.
    """

    variable: str
    operations: tuple[Operation, ...] = ()


class Statement(_OfIsl, frozen=True):
    """A statement with its domain, accesses and operations.

    Attributes
    ----------
    name, domain, accesses, operations
        Its name, the isl set of its instances, and what each of them does.
    launch, loops
        The launch that executes it, and the loops around it by place in that launch's list, outermost first.
    order
        Its place among what stands beside it in the launch, and that of what it is in within each of the loops around
        it: a number more than loops; none where the order is not known.
    guarded
        Whether a data-dependent condition may skip instances, which makes counts upper bounds.
    recurrence, resets
        The private variable it updates from its own old value, and the one it sets afresh, where a recurrence begins
        again, if any.
    assumed
        What the user stated or the count assumes about it because the kernel cannot tell, for messages.
    lanes
        Elements of the vectors that it works on: with more than one, the domain's last dimension is the element.
    line
        Its line in the source, ``12`` or ``header.h:12``.
    """

    name: str
    domain: _Set
    accesses: tuple[Access, ...] = ()
    operations: tuple[Operation, ...] = ()
    launch: _Index = 0
    loops: tuple[_Index, ...] = ()
    order: tuple[_Index, ...] = ()
    guarded: bool = False
    recurrence: Recurrence | None = None
    resets: str = ""
    assumed: str = ""
    lanes: _Extent = 1
    line: str = ""


class Barrier(_OfIsl, frozen=True):
    """A barrier: ``kind`` is ``"local"``, ``"global"`` or ``"sub_group"``; the rest is as a statement's."""

    kind: _BarrierKind
    domain: _Set
    launch: _Index = 0
    loops: tuple[_Index, ...] = ()
    order: tuple[_Index, ...] = ()
    guarded: bool = False


class Loop(_Part, frozen=True):
    """A loop around statements and barriers of a launch.

    Attributes
    ----------
    name, parent
        Its name, for messages and tables, and the loop around it by place in the launch's list, if any.
    kind
        ``"loop"``; ``"unrolled"``: the source writes it out; ``"interleaved"``: it writes copies of a statement side by
        side; ``"host"``: the host executes it, and launches in each iteration.
    average, assumed
        Executions that one iteration of the domains stands for on average, where data decide (2.5 trips are the
        iterations 0, 1, 2 and the average 5/6), and what the user stated about that, for messages.
    unroll
        How many iterations the source asks compilers to write side by side (``#pragma unroll 4``): 1 is none, 0 all of
        them; None where it says nothing.
    trips
        Trip count of each run of it that compilers know, whatever guards leave of the domains; None where that is to be
        told from these.
    """

    name: _Name
    parent: _Index | None = None
    kind: _LoopKind = "loop"
    average: Fraction = Fraction(1)
    assumed: str = ""
    unroll: _Index | None = None
    trips: _Index | None = None


class Launch(_Part, frozen=True):
    """One launch of a device program.

    Attributes
    ----------
    groups, items
        Work-groups along each axis, and work-items per work-group.
    repeats
        How often it is launched (host-side loops).
    loops
        Its loops, each behind the one around it. Those that the host executes are around all others; domains range over
        them, too.
    """

    groups: tuple[QuasiPolynomial, ...]
    items: tuple[_Extent, ...]
    repeats: QuasiPolynomial = QuasiPolynomial.constant(1)
    loops: tuple[Loop, ...] = ()

    @property
    def axes(self) -> int:
        """Dimensions of its work-groups and work-items."""
        return len(self.groups) + len(self.items)

    @property
    def group_size(self) -> int:
        """Work-items per work-group."""
        return prod(self.items)

    @property
    def group_count(self) -> QuasiPolynomial:
        """Work-groups over all repeats."""
        return prod(self.groups, start=self.repeats)


# Whether Scops are read that were checked when they were made.
READING: ContextVar[bool] = ContextVar("reading", default=False)


class Scop(_OfIsl, frozen=True):
    """A kernel as polyhedral objects; immutable, hashable, picklable, round-trips through YAML.

    Attributes
    ----------
    name
        The kernel's name.
    parameters
        Names of the size parameters.
    assumptions
        isl parameter set of the sizes the description is valid for.
    launches, arrays, statements, barriers
        What is launched, touched and executed.
    numbered
        Whether domains have the numbers of iterations, which a sub-group counts in lock step. By default, each loop's
        first iteration is the first that a statement or barrier in it has, and domains and relations are moved so that
        it has the number 0.
    """

    name: str
    parameters: tuple[str, ...]
    assumptions: _Set
    launches: tuple[Launch, ...]
    arrays: tuple[Array, ...]
    statements: tuple[Statement, ...]
    barriers: tuple[Barrier, ...] = ()
    numbered: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if READING.get():
            return
        check(self)
        if not self.numbered:
            for name, value in zip(("statements", "barriers"), by_number(self), strict=True):
                force_setattr(self, name, value)
            force_setattr(self, "numbered", True)

    @computed_once
    def _arrays_by_name(self) -> dict[str, Array]:
        return {array.name: array for array in self.arrays}

    def array(self, name: str) -> Array:
        """Return the array of that name."""
        return self._arrays_by_name[name]

    @computed_once
    def unknown_extents(self) -> dict[str, str]:
        """Arrays whose number of elements is not known, by the size that stands for it and is no parameter."""
        extents = ((array.name, extent) for array in self.arrays for extent in array.shape)
        return {size: name for name, extent in extents for size in extent.parameters if size not in self.parameters}

    def require_extents(self, sizes: Container[str], what: str) -> None:
        """Stop where it is not known how many elements the arrays have, on which something depends.

        Raises
        ------
        UnsupportedKernelError
            The number of elements of an array is neither known nor given.
        """
        array = next((name for size, name in self.unknown_extents.items() if size not in sizes), None)
        if array is not None:
            msg = (
                f"{what} depends on how many elements array {array!r} of kernel {self.name!r} has, and data decide "
                f'which it accesses; state their number with --state {array}=N (stated={{"{array}": "N"}})'
            )
            raise UnsupportedKernelError(msg, kernel=self.name, extent=array)

    def loops_of(self, one: Statement | Barrier) -> tuple[Loop, ...]:
        """Return the loops around a statement or barrier, outermost first."""
        loops = self.launches[one.launch].loops
        return tuple(loops[number] for number in one.loops)

    def weight(self, one: Statement | Barrier, outer_loops: int | None = None) -> Fraction:
        """Return executions per instance of the domain, over all loops or so many outermost ones."""
        return prod((loop.average for loop in self.loops_of(one)[:outer_loops]), start=Fraction(1))

    def assumed(self, one: Statement | Barrier) -> str:
        """Return what the number of executions rests on beyond the code, for messages; empty for nothing."""
        own = one.assumed if isinstance(one, Statement) else ""
        return ", ".join(filter(None, (*(loop.assumed for loop in self.loops_of(one)), own)))

    def derived(self, what: str, key: Hashable, compute: Callable[[], _Value], *, most: int | None = None) -> _Value:
        """Return what `compute` returned when it was first asked for; it stays with this Scop in this process.

        Parameters
        ----------
        what
            What is computed, in words that no other caller uses.
        key
            What the value depends on besides the Scop.
        compute
            Returns the value.
        most
            How many values of this kind may stay, for keys of which there may be many, such as sizes.
        """
        values: dict[Hashable, _Value] = self.__dict__.setdefault("_derived", {}).setdefault(what, {})
        try:
            return values[key]
        except KeyError:
            value = compute()
        if most is not None and len(values) >= most:
            values.clear()
        # Another thread may have been faster: all go on with the same object.
        return values.setdefault(key, value)

    def checked(self, sizes: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the sizes in a form that `check_sizes` need not look at again; raises what that raises."""
        self.check_sizes(sizes)
        return _CheckedSizes(sizes, self)

    def check_sizes(self, sizes: Mapping[str, Any], *, addresses: bool = True) -> None:
        """Stop unless every size parameter has a value the kernel is valid for.

        Parameters
        ----------
        sizes
            A value or array for each parameter.
        addresses
            Whether arrays must have 64-bit addresses, not only distances within them.

        Raises
        ------
        MissingSizeError
            A parameter has no value or one that is no whole number, an array would be too large, or the values
            contradict the kernel's assumptions.
        """
        # Hundreds of features are evaluated at the same sizes.
        if isinstance(sizes, _CheckedSizes) and sizes.scop is self:
            return
        there: object = sizes  # None stands for no sizes
        missing = [name for name in self.parameters if not isinstance(there, Mapping) or name not in there]
        if missing:
            words = " ".join(f"{name}=1024" for name in missing)
            remedy = f"pass {dict.fromkeys(missing, 1024)}, or on the command line {words}"
            msg = f"kernel {self.name!r} needs a value for size {', '.join(missing)}; {remedy}"
            raise MissingSizeError(msg, kernel=self.name, parameters=tuple(missing))
        require_whole(sizes, self.parameters, self.name)
        import numpy as np

        given = {name: sizes[name] for name in self.parameters}
        # As a polynomial, the assumptions are tested for arrays of sizes at once, and without isl.
        if not np.all(np.asarray(self.validity.evaluate(given), dtype=float) == 1.0):
            shown = ", ".join(f"{name}={size}" for name, size in given.items())
            condition = self.isl_text.partition(":")[2].rstrip(" }").strip()
            msg = f"kernel {self.name!r} is not valid for {shown}: it assumes {condition}"
            raise MissingSizeError(msg, kernel=self.name, parameters=self.parameters)
        require_addressable(self, given, addresses=addresses)

    @computed_once
    def validity(self) -> QuasiPolynomial:
        """1 for sizes that fulfil the assumptions, else 0."""
        one = isl.PwQPolynomial("{ 1 }")
        return QuasiPolynomial(one.intersect_params(self.assumptions.params()))

    @property
    def heading(self) -> str:
        """Its name, and its sizes."""
        return f"{self.name}, sizes {', '.join(self.parameters) or 'none'}"

    _repr_html_ = shown_by("result.html", tables_of="perflex.features.scop.scop_tables:scop_tables")


# Of each part, the field, its slot, which msgspec itself reads and compares, and what texts it has.
_TEXTS: dict[type, tuple[str, Any, type[IslText]]] = {}


def _keep_as_text(part: type, name: str, kind: type[IslText]) -> None:
    slot = part.__dict__[name]
    _TEXTS[part] = name, slot, kind

    def parsed(owner: Any) -> Any:
        return slot.__get__(owner).parsed

    read = computed_once(parsed)
    read.__set_name__(part, name)
    setattr(part, name, read)


_keep_as_text(Access, "relation", MapText)
_keep_as_text(Statement, "domain", SetText)
_keep_as_text(Barrier, "domain", SetText)
_keep_as_text(Scop, "assumptions", SetText)


class _CheckedSizes(dict[str, Any]):
    """Sizes that a Scop has checked."""

    def __init__(self, sizes: Mapping[str, Any], scop: Scop) -> None:
        super().__init__(sizes)
        self.scop = scop


def require_scop(scop: Scop) -> None:
    """Stop where a kernel stands for its description."""
    given: object = scop
    if not isinstance(given, Scop):
        msg = f"a Scop is needed here, not a {type(scop).__name__}; give extract_scop(kernel)"
        raise UnsupportedKernelError(msg)
