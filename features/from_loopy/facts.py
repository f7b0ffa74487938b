"""What is known of a loopy kernel beside its text: strides, where conditions hold, and stated trip counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import Any

from loopy.kernel.array import SeparateArrayArrayDimTag, get_strides
from loopy.kernel.data import HardwareConcurrentTag, ValueArg
from loopy.symbolic import condition_to_set, get_dependencies, parse

from perflex.errors import UnsupportedKernelError
from perflex.features.annotation import CountingOptions
from perflex.features.from_loopy.generated import KernelTypes
from perflex.features.from_loopy.terms import affine_in_parameters, all_numbers_are_integers, below, method_of
from perflex.isl import isl

_PARAM, _SET = isl.dim_type.param, isl.dim_type.set


@dataclass(frozen=True)
class Mask:
    """Which instances of an instruction do something, or take a branch."""

    conditions: tuple[Any, ...] = ()  # isl sets that all hold there, in loopy's names
    guarded: bool = False  # Whether a condition that is not among them may skip it
    lanes: int = 1  # Elements of the vectors it works on; 1 for scalars

    def within(self, other: Mask) -> Mask:
        """Return the instances that are in both."""
        return replace(self, conditions=self.conditions + other.conditions, guarded=self.guarded or other.guarded)


def strides_of(variable: Any, kernel_name: str) -> tuple[Any, ...]:
    """Return the stride of each axis of an array, loopy expressions in elements (components of vectors)."""
    if any(isinstance(tag, SeparateArrayArrayDimTag) for tag in variable.dim_tags or ()):
        msg = (
            f"kernel {kernel_name!r}: array {variable.name!r} has an axis that is spread over several arguments "
            "(sep), which has no stride; make it an axis in memory, or several arrays"
        )
        raise UnsupportedKernelError(msg, kernel=kernel_name, array=variable.name)
    return tuple(get_strides(variable)) if variable.shape else ()


@dataclass(frozen=True)
class KernelFacts:
    """What making a kernel's statements needs to know of it."""

    kernel: Any  # A preprocessed loopy kernel
    types: KernelTypes  # Types of its expressions and kinds of its names
    parameters: tuple[str, ...]  # Size parameters, in the order of the Scop
    options: CountingOptions  # What the user stated about it
    trips: TripCounts  # Stated trip counts of loops whose bounds depend on data

    def refuse(self, message: str, **context: object) -> UnsupportedKernelError:
        """Return the error of something that cannot be described."""
        return UnsupportedKernelError(f"kernel {self.kernel.name!r}: {message}", kernel=self.kernel.name, **context)

    def branches(self, condition: Any, space: Any) -> tuple[Mask, Mask]:
        """Return where a condition holds, and where it does not."""
        method = method_of(condition)
        if method == "map_logical_not":
            holds, fails = self.branches(condition.child, space)
            return fails, holds
        # A loop that starts anywhere is described as starting at 0, where the condition may hold or not.
        decided = not get_dependencies(condition) & self.trips.displaced and all_numbers_are_integers(condition)
        known = condition_to_set(space, condition) if decided else None
        if known is not None:
            return Mask((known,)), Mask((isl.Set.universe(space).subtract(known),))
        unknown = Mask(guarded=True)
        if method not in {"map_logical_and", "map_logical_or"}:
            return unknown, unknown
        # Of what is joined with what depends on data, the rest still says where it is certainly decided.
        side = int(method == "map_logical_or")
        parts = [self.branches(child, space)[side] for child in condition.children]
        joined = Mask(tuple(one for part in parts for one in part.conditions), any(part.guarded for part in parts))
        return (unknown, joined) if side else (joined, unknown)


class TripCounts:
    """Replaces data-dependent loop bounds by stated trip counts.

    `displaced` are loops whose first iteration depends on data, which are described as starting at 0, and loops inside
    that start with them.
    """

    def __init__(self, kernel: Any, parameters: Sequence[str], options: CountingOptions) -> None:
        self._kernel, self._parameters, self._stated = kernel, tuple(parameters), dict(options.trip_counts)
        names = {name for domain in kernel.domains for name in domain.get_var_names(_PARAM)} - set(kernel.inames)
        # Values computed in the kernel that bound loops.
        self._data = frozenset(name for name in names if not isinstance(kernel.arg_dict.get(name), ValueArg))
        self.displaced: frozenset[str] = frozenset()
        dependent = {loop for domain in kernel.domains for loop in self._check(domain)}
        # Outer domains come before those that they are parameters of.
        for domain in kernel.domains:
            self._check_inside(domain)
        for loop, count in self._stated.items():
            if loop not in dependent:
                others = f"those that do are {', '.join(sorted(dependent))}" if dependent else "none of its loops do"
                raise self._refuse(loop, f"has no loop {loop!r} whose bounds depend on data; {others}")
            # Whoever states nonsense shall learn it now, not at the first loop that needs it.
            affine_in_parameters(_whole(count), self._parameters)

    def _refuse(self, loop: str, what: str) -> UnsupportedKernelError:
        return UnsupportedKernelError(f"kernel {self._kernel.name!r} {what}", kernel=self._kernel.name, loop=loop)

    def _check(self, domain: Any) -> set[str]:
        """Return the loops of a domain that depend on data; all that need it have stated trip counts."""
        names = sorted(set(domain.get_var_names(_PARAM)) & self._data)
        if not names:
            return set()
        loops = domain.get_var_names(_SET)
        involved = {
            loop
            for constraint in domain.get_constraints()
            if any(constraint.involves_dims(_PARAM, domain.find_dim_by_name(_PARAM, name), 1) for name in names)
            for position, loop in enumerate(loops)
            if constraint.involves_dims(_SET, position, 1)
        }
        # Loops that have no end without the data-dependent constraints are those that need a stated count.
        free = isl.Set.from_basic_set(self._without_data(domain))
        endless = {loop for position, loop in enumerate(loops) if not free.dim_has_upper_bound(_SET, position)}
        displaced = {loop for position, loop in enumerate(loops) if not free.dim_has_lower_bound(_SET, position)}
        # A loop inside of a data-dependent one loses its bound together with it: nothing could be stated for it alone.
        for loop in (loop for loop in loops if loop in endless - involved):
            other = f"{', '.join(sorted(involved))}, whose trip count depends on the data"
            raise self._refuse(loop, f"bounds loop {loop!r} by {other}; give {loop!r} a domain of its own")
        needed = sorted((endless | displaced) & involved)
        # If sizes bound all loops as well, one stated count among those involved is enough.
        for loop in needed or sorted(involved)[: not involved & set(self._stated)]:
            if loop not in self._stated:
                raise self._refuse(loop, self._remedy(loop, names))
            # A parallel loop's extent is the launch's, fixed before the kernel computes anything.
            if self._kernel.inames[loop].tags_of_type(HardwareConcurrentTag):
                raise self._refuse(loop, f"has a parallel loop {loop!r} whose extent depends on the data")
        self.displaced |= displaced & involved
        return involved

    def _remedy(self, loop: str, names: Sequence[str]) -> str:
        """Return what to do about a loop that is bounded by names that are no arguments."""
        for name in names:
            # A list of arguments without ``...``.
            if name not in {*self._kernel.temporary_variables, *self._kernel.arg_dict}:
                return (
                    f"bounds loop {loop!r} by {name}, which is none of its arguments; put ... at the end of the list "
                    f"of arguments of lp.make_kernel, or lp.ValueArg({name!r}, np.int32) into it"
                )
        return (
            f"has a loop {loop!r} whose trip count depends on the data ({', '.join(names)} is computed "
            f"in the kernel); state its average, e.g. annotate(kernel, trip_counts={{{loop!r}: 8}})"
        )

    def _check_inside(self, domain: Any) -> None:
        """Find loops of a domain that begin with a displaced one; refuse those whose trip count depends on it."""
        free = isl.Set.from_basic_set(self._without_data(domain))
        for outer in sorted(self.displaced & set(domain.get_var_names(_PARAM))):
            place = free.find_dim_by_name(_PARAM, outer)
            for at, loop in enumerate(free.get_var_names(_SET)):
                if not (free.dim_has_lower_bound(_SET, at) and free.dim_has_upper_bound(_SET, at)):
                    continue
                first = free.dim_min(at)
                trips = free.dim_max(at).sub(first)
                if trips.gist(trips.domain()).coalesce().involves_dims(_PARAM, place, 1):
                    what = (
                        f"has a loop {loop!r} whose trip count depends on the value of loop {outer!r}, which begins "
                        f"where the data say; bound {loop!r} by a value that the kernel computes "
                        f"(<int32> limit = {outer}), and state its trip count"
                    )
                    raise self._refuse(loop, what)
                if first.gist(first.domain()).involves_dims(_PARAM, place, 1):
                    self.displaced |= {loop}

    def _without_data(self, domain: Any) -> Any:
        for name in self._data & set(domain.get_var_names(_PARAM)):
            position = domain.find_dim_by_name(_PARAM, name)
            # Projecting it out alone would leave what isl concludes from the constraints: a range for the loop.
            domain = domain.drop_constraints_involving_dims(_PARAM, position, 1).project_out(_PARAM, position, 1)
        return domain

    def bounded(self, domain: Any) -> Any:
        """Return a set of iterations with stated trip counts instead of data-dependent bounds."""
        domain = self._without_data(domain)
        for loop in self._stated:
            if loop in domain.get_var_names(_SET):
                domain = self._with_trips(domain, loop)
        return domain

    def _with_trips(self, domain: Any, loop: str) -> Any:
        """Restrict a loop to ``first <= loop < first + ceil(count)``."""
        names = domain.get_var_names(_SET)
        # The first iteration depends on the loops around it, not on those inside, whose bounds refer to it.
        within = (each for each in self._kernel.domains if loop in each.get_var_names(_PARAM))
        inside = {loop}.union(*(each.get_var_names(_SET) for each in within))
        outer = ", ".join(name for name in names if name not in inside)
        to_map = isl.Map(f"{{ [{', '.join(names)}] -> [[{outer}] -> [{loop}]] }}")
        iterations = domain.apply(to_map).unwrap()
        around = iterations.domain()
        first = isl.Map(f"{{ [{outer}] -> [0] }}").intersect_domain(around)
        if loop not in self.displaced:
            first = iterations.lexmin()
        later = below(isl.Set("{ [later] }"), 0, _whole(self._stated[loop]), self._parameters)
        reached = first.flat_range_product(isl.Map.from_domain_and_range(around, later))
        reached = reached.apply_range(isl.Map("{ [first, later] -> [first + later] }"))
        return domain.intersect(reached.wrap().apply(to_map.reverse()))

    def average(self, loop: str) -> Fraction:
        """Return how many executions an iteration of a loop stands for."""
        count = self._stated.get(loop)
        # An average of 2.5 has three iterations in the domain, each of which stands for 2.5/3 executions.
        return count / ceil(count) if isinstance(count, Fraction) else Fraction(1)

    def assumed(self, loop: str) -> str:
        """Return what was stated about a loop, for messages."""
        return f"{loop}: {self._stated[loop]} trips" if loop in self._stated else ""


def _whole(count: Fraction | str) -> Any:
    """Return the iterations of a loop in its domain, a number or a loopy expression."""
    return parse(count) if isinstance(count, str) else ceil(count)
