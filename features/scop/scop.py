"""The Scop: the one description of a kernel that every feature reads.

loopy is one producer of it (`extract_scop`); a kernel that loopy never saw can be described by hand
with isl strings (`Scop.from_yaml`).

Every statement's domain is an isl set over ``[gid0, .., lid0, .., sequential names]``: all group axes
of its launch, then all its local axes, then the sequential loops around it, outermost first; a last ``lane`` that
is no loop stands for the elements of vectors. Access relations go from these instances to array elements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import prod
from typing import TYPE_CHECKING, Any, TypeVar

from perflex.errors import MissingSizeError, UnsupportedKernelError
from perflex.features.polynomials.late_values import ParsedWhenRead, computed_once
from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
from perflex.features.scop.checks import check_order
from perflex.features.scop.numbering import by_number
from perflex.features.scop.whole_sizes import require_addressable, require_whole
from perflex.features.scop.words import SPACES
from perflex.html import shown_by
from perflex.isl import isl

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Array:
    """An array the kernel reads or writes.

    Attributes
    ----------
    name
        Its name in the kernel.
    space
        ``"global"``, ``"local"``, ``"private"`` or ``"constant"``.
    dtype
        numpy name of the element type.
    shape
        Extent of each axis, in elements.
    strides
        Distance between neighbours along each axis, in elements.
    alignment
        Alignment of the first element, in bytes.
    """

    name: str
    space: str
    dtype: str
    shape: tuple[QuasiPolynomial, ...]
    strides: tuple[QuasiPolynomial, ...]
    alignment: int = 128

    @computed_once
    def itemsize(self) -> int:
        """Size of one element, in bytes."""
        import numpy as np

        return int(np.dtype(self.dtype).itemsize)


@dataclass(frozen=True)
class Access(ParsedWhenRead):
    """One access of a statement: which element each instance touches.

    Attributes
    ----------
    array
        Name of the array.
    direction
        ``"load"`` or ``"store"``.
    relation
        isl map from the statement's instances to the array's index tuple. An instance with several images
        touches one of them, which one is not known: it has no strides, and footprints are upper bounds.
    tag
        The user's memory access tag, or None.
    text
        The access as written, for messages.
    strides
        Distance between neighbours along each axis of the relation's range, in elements, where that is not
        the array's own index tuple (a flattened subscript such as ``n*i + j`` has the axes ``i`` and ``j``).
    distinct
        Whether different images of the relation are certainly different elements.
    stated
        What the user stated about it that the kernel cannot tell, for messages.
    """

    array: str
    direction: str
    relation: Any
    tag: str | None = None
    text: str = ""
    strides: tuple[QuasiPolynomial, ...] | None = None
    distinct: bool = True
    stated: str = ""


@dataclass(frozen=True)
class Operation:
    """An arithmetic operation that each instance of a statement executes `count` times."""

    kind: str
    dtype: str
    count: int = 1


@dataclass(frozen=True)
class Recurrence:
    """A private variable that each instance of a statement updates from its own old value.

    Attributes
    ----------
    variable
        The variable, e.g. the accumulator of a reduction.
    operations
        The operations on the way from the old value to the new one: they cannot start before the
        previous instance has ended, whatever else can.
    """

    variable: str
    operations: tuple[Operation, ...]


class _Scheduled(ParsedWhenRead):
    """What stands in a launch's schedule."""

    schedule: tuple[int | str, ...]
    averages: tuple[tuple[str, Fraction], ...]

    @property
    def loops(self) -> tuple[str, ...]:
        """Sequential loops around it, outermost first."""
        return tuple(step for step in self.schedule if isinstance(step, str))

    @property
    def places(self) -> tuple[tuple[int | str, ...], ...]:
        """What tells these loops from the launch's others, which may have the same names: the schedule up to each."""
        return tuple(self.schedule[: place + 1] for place, step in enumerate(self.schedule) if isinstance(step, str))

    def weight(self, outer_loops: int | None = None) -> Fraction:
        """Return executions per instance of the domain, over all loops or so many outermost ones."""
        counted = [
            average for loop, average in self.averages if outer_loops is None or loop in self.loops[:outer_loops]
        ]
        return prod(counted, start=Fraction(1))


@dataclass(frozen=True)
class Statement(_Scheduled):
    """A statement with its domain, accesses and operations.

    Attributes
    ----------
    name
        The statement's identifier.
    domain
        isl set of its instances.
    accesses, operations
        What one instance does.
    launch
        Index of the launch that executes it.
    schedule
        Position in the launch: statement numbers and loop names alternate, outermost first.
    guarded
        Whether a data-dependent condition may skip instances, which makes counts upper bounds.
    recurrence
        The private variable it updates from its own old value, if any.
    assigns
        The private variable it sets afresh, if any: there a recurrence begins again.
    averages
        Loops whose trip count depends on data, with how many executions one iteration of the domain stands
        for on average: a loop of 2.5 trips has the iterations 0, 1, 2 in the domain and the average 5/6.
    stated
        What the user stated or the count assumes about it because the kernel cannot tell, for messages.
    """

    name: str
    domain: Any
    accesses: tuple[Access, ...] = ()
    operations: tuple[Operation, ...] = ()
    launch: int = 0
    schedule: tuple[int | str, ...] = ()
    guarded: bool = False
    recurrence: Recurrence | None = None
    assigns: str = ""
    averages: tuple[tuple[str, Fraction], ...] = ()
    stated: str = ""

    @property
    def exact(self) -> bool:
        """Whether its counts are exact, rather than upper bounds or what the user stated."""
        return not self.guarded and not self.stated


@dataclass(frozen=True)
class Barrier(_Scheduled):
    """A barrier: ``kind`` is ``"local"`` or ``"global"``; the rest is as a statement's."""

    kind: str
    domain: Any
    launch: int = 0
    schedule: tuple[int | str, ...] = ()
    averages: tuple[tuple[str, Fraction], ...] = ()
    stated: str = ""


@dataclass(frozen=True)
class Launch:
    """One launch of a device program.

    Attributes
    ----------
    groups
        Number of work-groups along each axis.
    items
        Work-items per work-group along each axis.
    repeats
        How often it is launched (host-side loops).
    host_loops, unrolled
        Names of the loops around the launch, over which domains range, too, and of those that its source writes out.
    """

    groups: tuple[QuasiPolynomial, ...]
    items: tuple[int, ...]
    repeats: QuasiPolynomial = field(default_factory=lambda: QuasiPolynomial.constant(1))
    host_loops: tuple[str, ...] = ()
    unrolled: tuple[str, ...] = ()

    @property
    def group_size(self) -> int:
        """Work-items per work-group."""
        return prod(self.items)

    @property
    def group_count(self) -> QuasiPolynomial:
        """Work-groups over all repeats."""
        return prod(self.groups, start=self.repeats)


@dataclass(frozen=True)
class Scop(ParsedWhenRead):
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
    assumptions: Any
    launches: tuple[Launch, ...]
    arrays: tuple[Array, ...]
    statements: tuple[Statement, ...]
    barriers: tuple[Barrier, ...] = ()
    numbered: bool = False

    def __post_init__(self) -> None:
        # Scops read from the store come without this: they were checked when they were made.
        self._check()
        if not self.numbered:
            statements, barriers = by_number(self)
            for name, value in {"statements": statements, "barriers": barriers, "numbered": True}.items():
                object.__setattr__(self, name, value)

    def _check(self) -> None:
        known = {array.name: array for array in self.arrays}
        for array in self.arrays:
            if array.space not in SPACES:
                msg = f"array {array.name!r} has address space {array.space!r}; use one of {', '.join(SPACES)}"
                raise UnsupportedKernelError(msg, kernel=self.name, array=array.name)
        for statement in self.statements:
            self._check_domain(statement, f"statement {statement.name!r}")
            for access in statement.accesses:
                if access.array not in known:
                    msg = f"statement {statement.name!r} accesses {access.array!r}, which is not declared"
                    raise UnsupportedKernelError(msg, kernel=self.name, access=access.text or access.array)
                self._check_relation(statement, access, known[access.array])
        for number, barrier in enumerate(self.barriers):
            self._check_domain(barrier, f"barrier {number}")
        check_order(self)

    def _check_relation(self, statement: Statement, access: Access, array: Array) -> None:
        axes = len(array.shape if access.strides is None else access.strides)
        for what, found, there in (
            ("variables", access.relation.dim(isl.dim_type.in_), statement.domain.dim(isl.dim_type.set)),
            ("subscripts", access.relation.dim(isl.dim_type.out), axes),
        ):
            if found != there:
                msg = f"the access to {access.array!r} in {statement.name!r} has {found} {what}, not {there}"
                raise UnsupportedKernelError(msg, kernel=self.name, access=access.text or access.array)

    def _check_domain(self, scheduled: Statement | Barrier, what: str) -> None:
        if not 0 <= scheduled.launch < len(self.launches):
            msg = f"{what} belongs to launch {scheduled.launch}, but there are {len(self.launches)}"
            raise UnsupportedKernelError(msg, kernel=self.name)
        launch = self.launches[scheduled.launch]
        axes, loops = len(launch.groups) + len(launch.items), len(scheduled.loops)
        if scheduled.domain.dim(isl.dim_type.set) < axes + loops:
            msg = f"the domain of {what} needs a dimension for each of the {axes} axes and {loops} loops"
            raise UnsupportedKernelError(msg, kernel=self.name)

    @computed_once
    def _arrays_by_name(self) -> dict[str, Array]:
        return {array.name: array for array in self.arrays}

    def array(self, name: str) -> Array:
        """Return the array of that name."""
        return self._arrays_by_name[name]

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
        """Return the sizes in a form that `check_sizes` need not look at again.

        Raises
        ------
        MissingSizeError
            As `check_sizes`.
        """
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
        there: object = sizes
        # None stands for no sizes.
        missing = [name for name in self.parameters if not isinstance(there, Mapping) or name not in sizes]
        if missing:
            remedy = f"pass {dict.fromkeys(missing, 1024)}, or on the command line {missing[0]}=1024"
            msg = f"kernel {self.name!r} needs a value for size {', '.join(missing)}; {remedy}"
            raise MissingSizeError(msg, kernel=self.name, parameters=tuple(missing))
        require_whole(sizes, self.parameters, self.name)
        import numpy as np

        given = {name: sizes[name] for name in self.parameters}
        # As a polynomial, the assumptions are tested for arrays of sizes at once, and without isl.
        holds = self.validity.evaluate(given)
        if not np.all(np.asarray(holds, dtype=float) == 1.0):
            shown = ", ".join(f"{name}={size}" for name, size in given.items())
            condition = str(self.assumptions).partition(":")[2].rstrip(" }").strip()
            msg = f"kernel {self.name!r} is not valid for {shown}: it assumes {condition}"
            raise MissingSizeError(msg, kernel=self.name, parameters=self.parameters)
        require_addressable(self, given, addresses=addresses)

    @computed_once
    def validity(self) -> QuasiPolynomial:
        """1 for sizes that fulfil the assumptions, else 0."""
        one = isl.PwQPolynomial("{ 1 }")
        return QuasiPolynomial(one.intersect_params(self.assumptions.params()))

    _repr_html_ = shown_by("scop.html")


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
