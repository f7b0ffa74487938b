"""Loops whose bounds depend on data: the trip counts that the user states take their place."""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING, Any

from perflex.errors import UnsupportedKernelError
from perflex.features.from_loopy.polynomial import affine_in_parameters
from perflex.isl import isl

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from perflex.features.annotation import CountingOptions

_KINDS = isl.dim_type


class TripCounts:
    """Replaces data-dependent loop bounds by stated trip counts.

    Parameters
    ----------
    kernel
        A preprocessed loopy kernel.
    parameters
        Size parameters.
    options
        What the user stated.

    Attributes
    ----------
    data
        Values computed in the kernel that bound loops.
    displaced
        Loops whose first iteration depends on data; they are described as starting at 0.

    Raises
    ------
    UnsupportedKernelError
        A loop's bounds depend on data and no trip count is stated, or one is stated for another loop.
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
        return tuple((loop, count / ceil(count)) for loop, count in counts.items() if count.denominator > 1)

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
