"""What is known of a loopy kernel beside its text: types, strides, and stated trip counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING, Any

from perflex.errors import UnsupportedKernelError
from perflex.features.from_loopy.terms import affine_in_parameters, all_numbers_are_integers
from perflex.features.scop.words import DTYPES, loop_name
from perflex.isl import isl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from perflex.features.annotation import CountingOptions

_KINDS = isl.dim_type


class TripCounts:
    """Replaces data-dependent loop bounds by stated trip counts.

    `data` are values computed in the kernel that bound loops; `displaced` loops whose first iteration depends on data,
    which are described as starting at 0, and loops inside that start with them.
    """

    def __init__(self, kernel: Any, parameters: Sequence[str], options: CountingOptions) -> None:
        self._kernel = kernel
        self._parameters = tuple(parameters)
        self._stated = dict(options.trip_counts)
        self.data = _data_parameters(kernel)
        self.displaced: frozenset[str] = frozenset()
        dependent: set[str] = set()
        for domain in kernel.domains:
            dependent |= self._check(domain)
        # Outer domains come before those that they are parameters of.
        for domain in kernel.domains:
            self._check_inside(domain)
        for loop in self._stated:
            if loop not in dependent:
                others = f"those that do are {', '.join(sorted(dependent))}" if dependent else "none of its loops do"
                msg = f"has no loop {loop!r} whose bounds depend on data; {others}"
                raise self._refuse(msg, loop)
        # Whoever states nonsense shall learn it now, not at the first loop that needs it.
        for count in self._stated.values():
            if isinstance(count, str):
                affine_in_parameters(_parsed(count), self._parameters)

    def _refuse(self, what: str, loop: str) -> UnsupportedKernelError:
        return UnsupportedKernelError(f"kernel {self._kernel.name!r} {what}", kernel=self._kernel.name, loop=loop)

    def _check(self, domain: Any) -> set[str]:
        """Return the loops of a domain that depend on data; all that need it have stated trip counts."""
        names = set(domain.get_var_names(_KINDS.param)) & self.data
        if not names:
            return set()
        involved = {
            domain.get_dim_name(_KINDS.set, position)
            for name in names
            for constraint in domain.get_constraints()
            if constraint.involves_dims(_KINDS.param, domain.find_dim_by_name(_KINDS.param, name), 1)
            for position in range(domain.dim(_KINDS.set))
            if constraint.involves_dims(_KINDS.set, position, 1)
        }
        # Loops that have no end without the data-dependent constraints are those that need a stated count.
        free = isl.Set.from_basic_set(self._without_data(domain))
        positions = {name: free.find_dim_by_name(_KINDS.set, name) for name in involved}
        above = {name for name, at in positions.items() if not free.dim_has_upper_bound(_KINDS.set, at)}
        below = {name for name, at in positions.items() if not free.dim_has_lower_bound(_KINDS.set, at)}
        # A loop inside of a data-dependent one loses its bound together with it: nothing could be stated for it alone.
        for position in range(free.dim(_KINDS.set)):
            loop = free.get_dim_name(_KINDS.set, position)
            if loop not in involved and not free.dim_has_upper_bound(_KINDS.set, position):
                what = (
                    f"bounds loop {loop!r} by {', '.join(sorted(involved))}, whose trip count depends on the data; "
                    f"give {loop!r} a domain of its own"
                )
                raise self._refuse(what, loop)
        # If sizes bound all loops as well, one stated count among those involved is enough.
        needed = sorted(above | below) or sorted(involved - set(self._stated))[: not involved & set(self._stated)]
        for loop in needed:
            if loop not in self._stated:
                self._require_declared(names, loop)
                what = (
                    f"has a loop {loop!r} whose trip count depends on the data ({', '.join(sorted(names))} is computed "
                    f"in the kernel); state its average, e.g. annotate(kernel, trip_counts={{{loop!r}: 8}})"
                )
                raise self._refuse(what, loop)
            # A parallel loop's extent is the launch's, fixed before the kernel computes anything.
            if self._is_parallel(loop):
                msg = f"has a parallel loop {loop!r} whose extent depends on the data"
                raise self._refuse(msg, loop)
        self.displaced |= below
        return {name for name in involved if name is not None}

    def _check_inside(self, domain: Any) -> None:
        """Find loops of a domain that begin with a displaced one; refuse those whose trip count depends on it."""
        params = domain.get_var_names(_KINDS.param)
        free = isl.Set.from_basic_set(self._without_data(domain))
        for outer in sorted(self.displaced & set(params)):
            for loop in domain.get_var_names(_KINDS.set):
                at, place = free.find_dim_by_name(_KINDS.set, loop), free.find_dim_by_name(_KINDS.param, outer)
                if not (free.dim_has_lower_bound(_KINDS.set, at) and free.dim_has_upper_bound(_KINDS.set, at)):
                    continue
                first, last = free.dim_min(at), free.dim_max(at)
                trips = last.sub(first)
                if trips.gist(trips.domain()).coalesce().involves_dims(_KINDS.param, place, 1):
                    what = (
                        f"has a loop {loop!r} whose trip count depends on the value of loop {outer!r}, which begins "
                        f"where the data say; bound {loop!r} by a value that the kernel computes "
                        f"(<int32> limit = {outer}), and state its trip count"
                    )
                    raise self._refuse(what, loop)
                if first.gist(first.domain()).involves_dims(_KINDS.param, place, 1):
                    self.displaced |= {loop}

    def _require_declared(self, names: set[str], loop: str) -> None:
        """Refuse a bound that is neither an argument nor computed: a list of arguments without ``...``."""
        known = {*self._kernel.temporary_variables, *self._kernel.arg_dict}
        for name in sorted(names - known):
            what = (
                f"bounds loop {loop!r} by {name}, which is none of its arguments; put ... at the end of the list of "
                f"arguments of lp.make_kernel, or lp.ValueArg({name!r}, np.int32) into it"
            )
            raise self._refuse(what, loop)

    def _is_parallel(self, loop: str) -> bool:
        from loopy.kernel.data import HardwareConcurrentTag

        return any(isinstance(tag, HardwareConcurrentTag) for tag in self._kernel.inames[loop].tags)

    def _without_data(self, domain: Any) -> Any:
        for name in self.data & set(domain.get_var_names(_KINDS.param)):
            position = domain.find_dim_by_name(_KINDS.param, name)
            # Projecting it out alone would leave what isl concludes from the constraints: a range for the loop.
            domain = domain.drop_constraints_involving_dims(_KINDS.param, position, 1)
            domain = domain.project_out(_KINDS.param, position, 1)
        return domain

    def bounded(self, domain: Any) -> Any:
        """Return a set of iterations with stated trip counts instead of data-dependent bounds."""
        if not self.data:
            return domain
        domain = self._without_data(domain)
        for loop, count in self._stated.items():
            if loop in domain.get_var_names(_KINDS.set):
                domain = self._with_trips(domain, loop, count)
        return domain

    def _with_trips(self, domain: Any, loop: str, count: Fraction | str) -> Any:
        """Restrict a loop to ``first <= loop < first + ceil(count)``."""
        expr = _parsed(count) if isinstance(count, str) else ceil(count)
        trips = affine_in_parameters(expr, self._parameters)
        names = domain.get_var_names(_KINDS.set)
        # The first iteration depends on the loops around it, not on those inside.
        outer = ", ".join(name for name in names if name != loop and not self._is_inside(name, loop))
        to_map = isl.Map(f"{{ [{', '.join(names)}] -> [[{outer}] -> [{loop}]] }}")
        iterations = domain.apply(to_map).unwrap()
        if loop in self.displaced:
            first = isl.Map(f"{{ [{outer}] -> [0] }}").intersect_domain(iterations.domain())
        else:
            first = iterations.lexmin()
        return domain.intersect(first.apply_range(_following(trips)).wrap().apply(to_map.reverse()))

    def _is_inside(self, name: str, loop: str) -> bool:
        """Whether a loop's bounds refer to another one: it is nested in that."""
        return any(
            loop in domain.get_var_names(_KINDS.param) and name in domain.get_var_names(_KINDS.set)
            for domain in self._kernel.domains
        )

    def averages(self, loops: Iterable[str]) -> tuple[tuple[str, Fraction], ...]:
        """Return how many executions an iteration stands for, for loops where that is not one."""
        # An average of 2.5 has three iterations in the domain, each of which stands for 2.5/3 executions.
        counts = {loop: count for loop in loops if isinstance(count := self._stated.get(loop), Fraction)}
        return tuple((loop_name(loop), count / ceil(count)) for loop, count in counts.items() if count.denominator > 1)

    def stated(self, loops: Iterable[str]) -> str:
        """Return what was stated about any of some loops, for messages."""
        return ", ".join(f"{loop}: {self._stated[loop]} trips" for loop in loops if loop in self._stated)


def _data_parameters(kernel: Any) -> frozenset[str]:
    """Return what bounds loops and is neither a loop variable nor an argument."""
    from loopy.kernel.data import ValueArg

    names = {name for domain in kernel.domains for name in domain.get_var_names(_KINDS.param)}
    return frozenset(name for name in names - set(kernel.inames) if not isinstance(kernel.arg_dict.get(name), ValueArg))


def _following(trips: Any) -> Any:
    """Return the map from `first` to every ``first <= loop < first + trips``."""
    space = isl.Space.create_from_names(isl.DEFAULT_CONTEXT, set=["first", "loop"])
    space = space.align_params(trips.get_space())
    local = isl.LocalSpace.from_space(space)
    first, loop = (isl.PwAff.var_on_domain(local, _KINDS.set, position) for position in (0, 1))
    after = first.add(trips.add_dims(_KINDS.in_, 2))
    between = loop.ge_set(first).intersect(loop.lt_set(after))
    return between.apply(isl.Map("{ [first, loop] -> [[first] -> [loop]] }")).unwrap()


def _parsed(text: str) -> Any:
    from loopy.symbolic import parse

    return parse(text)


@dataclass(frozen=True)
class RawAccess:
    """An array access as loopy has it: name, subscript expressions, tag; why it cannot be described, if so."""

    array: str
    indices: tuple[Any, ...]
    tag: str | None
    text: str
    indirect: str = ""


@dataclass(frozen=True)
class Where:
    """Which instances of an instruction do something."""

    conditions: tuple[Any, ...] = ()  # isl sets that all hold there
    guarded: bool = False  # Whether a condition that is not among them may skip it
    lanes: int = 1  # Elements of the vectors it works on; 1 for scalars


@dataclass
class Work:
    """Operations by (kind, dtype), and array accesses."""

    operations: Counter[tuple[str, str]] = field(default_factory=Counter)
    loads: list[RawAccess] = field(default_factory=list)
    stores: list[RawAccess] = field(default_factory=list)


@dataclass(frozen=True)
class ElementType:
    """Type of an array's elements, or of an expression's value."""

    name: str  # numpy name of a scalar, or of each component of a vector
    lanes: int = 1  # Components that are computed: 1 for scalars, 3 for a vector of three
    width: int = 1  # Components that are stored: 1 for scalars, 4 for a vector of three

    @classmethod
    def of(cls, dtype: Any, what: str) -> ElementType:
        """Return the type of a numpy dtype; vectors have equal, unpadded fields ``s0, s1, ...``."""
        if dtype.fields is None:
            return cls(str(dtype))
        # loopy's vectors are structures whose fields have one type; some are padded to four components.
        kinds = {field[0] for field in dtype.fields.values()}
        names = [name for name in dtype.names if not name.startswith("padding")]
        if len(kinds) != 1 or next(iter(kinds)).fields is not None or not {"s0", names[0]} <= set(dtype.fields):
            msg = f"{what} is a structure ({dtype}); give each of its fields an array of its own"
            raise UnsupportedKernelError(msg)
        (kind,) = kinds
        return cls(str(kind), len(names), int(dtype.itemsize // kind.itemsize))


class KernelTypes:
    """Types of a preprocessed kernel's expressions and kinds of its names; the same for all its instructions."""

    def __init__(self, kernel: Any, callables: Any) -> None:
        from perflex.features.from_loopy.generated import AsGenerated, CTypes

        self._kernel = kernel
        self._callables = callables
        self._generated = AsGenerated(kernel, callables)
        self._reader = CTypes(kernel, callables)
        self._of_dtype: dict[Any, ElementType] = {}
        self._arrays: dict[str, bool] = {}

    def assigned(self, insn: Any) -> Any:
        """Return what an instruction assigns as the generated code has it: numbers with types, and all casts."""
        return self._as_generated(insn.expression, lambda: self._generated.assigned(insn))

    def condition(self, expr: Any) -> Any:
        """Return a condition of an instruction as the generated code has it; raises as `assigned`."""
        return self._as_generated(expr, lambda: self._generated.rec(expr, None))

    def index(self, expr: Any) -> Any:
        """Return arithmetic of subscripts as the generated code has it; raises as `assigned`."""
        return self._as_generated(expr, lambda: self._generated.rec(expr, "i"))

    def _as_generated(self, expr: Any, generate: Callable[[], Any]) -> Any:
        from loopy.diagnostic import LoopyError

        try:
            return generate()
        except (LoopyError, RuntimeError, AttributeError) as error:
            reason = str(error).strip().splitlines()[:1] or [type(error).__name__]
            msg = (
                f"loopy cannot generate code for {expr} in kernel {self._kernel.name!r} ({reason[0]}); declare its "
                "names as arguments, give arrays element types (lp.add_dtypes(kernel, {'x': np.float32})), register "
                "its functions with lp.register_callable, and give its numbers a type, e.g. np.float32(0.5)"
            )
            raise UnsupportedKernelError(msg, kernel=self._kernel.name) from error

    def common_dtype(self, *operands: Any) -> str:
        """Return the name of the element type that C converts operands to before it computes with them."""
        from pymbolic.primitives import Sum

        return self.dtype_of(Sum(operands))[0]

    def dtype_of(self, expr: Any) -> tuple[str, int]:
        """Return the name of the element type that C computes an expression in, and the elements of its vectors."""
        from loopy.diagnostic import LoopyError

        try:
            dtype = self._reader(expr).numpy_dtype
        except (LoopyError, AttributeError) as error:  # the latter for unknown functions and the like
            msg = (
                f"the type of {expr} in kernel {self._kernel.name!r} is not known; declare its names as arguments, and "
                "register its functions with lp.register_callable"
            )
            raise UnsupportedKernelError(msg, kernel=self._kernel.name) from error
        found = self.element(dtype, f"{expr} in kernel {self._kernel.name!r}")
        return found.name, found.lanes

    def element(self, dtype: Any, what: str) -> ElementType:
        """Return the element type of a numpy dtype."""
        if dtype not in self._of_dtype:
            found = ElementType.of(dtype, what)
            if found.name not in DTYPES:
                msg = f"{what} has the element type {found.name}, which has no features; use one of {', '.join(DTYPES)}"
                raise UnsupportedKernelError(msg, kernel=self._kernel.name)
            self._of_dtype[dtype] = found
        return self._of_dtype[dtype]

    def is_array(self, name: str) -> bool:
        """Whether a name is an array, as opposed to a scalar, loop variable or size."""
        if name not in self._arrays:
            self._arrays[name] = self._is_array(name)
        return self._arrays[name]

    def _is_array(self, name: str) -> bool:
        from loopy.kernel.array import ArrayBase
        from loopy.kernel.data import AddressSpace

        # A private array without axes is a register; a global or local one is memory that is accessed.
        variable = self._kernel.arg_dict.get(name) or self._kernel.temporary_variables.get(name)
        if not isinstance(variable, ArrayBase):
            return False
        return bool(variable.shape) or variable.address_space != AddressSpace.PRIVATE

    def function_name(self, name: str) -> str:
        """Return a function's own name: loopy numbers a function's versions for different types."""
        return str(getattr(self._callables.get(name), "name", name))


def strides_of(variable: Any, kernel_name: str) -> tuple[Any, ...]:
    """Return the stride of each axis of an array, loopy expressions in elements (components of vectors)."""
    from loopy.kernel.array import SeparateArrayArrayDimTag, get_strides

    if not variable.shape:
        return ()
    if any(isinstance(tag, SeparateArrayArrayDimTag) for tag in variable.dim_tags or ()):
        msg = (
            f"kernel {kernel_name!r}: array {variable.name!r} has an axis that is spread over several arguments "
            "(sep), which has no stride; make it an axis in memory, or several arrays"
        )
        raise UnsupportedKernelError(msg, kernel=kernel_name, array=variable.name)
    strides: tuple[Any, ...] = get_strides(variable)
    return strides


@dataclass(frozen=True)
class Branch:
    """Instances that take a branch."""

    conditions: tuple[Any, ...] = ()  # isl sets that all hold there, in loopy's names
    guarded: bool = False  # Whether something else, which is not known, decides as well


@dataclass(frozen=True)
class KernelFacts:
    """What making a kernel's statements needs to know of it."""

    kernel: Any  # A preprocessed loopy kernel
    types: KernelTypes  # Types of its expressions and kinds of its names
    parameters: tuple[str, ...]  # Size parameters, in the order of the Scop
    options: CountingOptions  # How it is counted, and what the user stated about it
    trips: TripCounts  # Stated trip counts of loops whose bounds depend on data

    def branches(self, condition: Any, space: Any) -> tuple[Branch, Branch]:
        """Return where a condition holds, and where it does not."""
        method = getattr(condition, "mapper_method", None)
        if method == "map_logical_not":
            holds, fails = self.branches(condition.child, space)
            return fails, holds
        known = self._where_it_holds(condition, space)
        if known is not None:
            return Branch((known,)), Branch((isl.Set.universe(space).subtract(known),))
        # Of what is joined with what depends on data, the rest still says where it is certainly decided.
        if method in {"map_logical_and", "map_logical_or"}:
            parts = [self.branches(child, space) for child in condition.children]
            decided = int(method == "map_logical_or")
            joined = Branch(
                tuple(one for part in parts for one in part[decided].conditions),
                any(part[decided].guarded for part in parts),
            )
            return (Branch(guarded=True), joined) if decided else (joined, Branch(guarded=True))
        return Branch(guarded=True), Branch(guarded=True)

    def _where_it_holds(self, condition: Any, space: Any) -> Any:
        """Return the set where an affine condition holds; None if it is not affine."""
        from loopy.symbolic import condition_to_set, get_dependencies

        # A loop that starts anywhere is described as starting at 0, where the condition may hold or not.
        if get_dependencies(condition) & self.trips.displaced or not all_numbers_are_integers(condition):
            return None
        return condition_to_set(space, condition)
