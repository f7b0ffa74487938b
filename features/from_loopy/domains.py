"""Iteration domains: loopy's loops as work-groups, work-items and sequential dimensions, and stated trip counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import Any, TypeVar

from loopy.codegen.bounds import get_usable_inames_for_conditional
from loopy.codegen.tools import CodegenOperationCacheManager
from loopy.kernel.data import GroupInameTag, HardwareConcurrentTag, LocalInameTag, UnrollTag, ValueArg
from loopy.kernel.tools import get_hw_axis_base_for_codegen
from loopy.symbolic import parse
from pytools.lex import ParseError

from perflex.errors import UnsupportedKernelError
from perflex.features.from_loopy.terms import affine_in_parameters, below
from perflex.features.lowering.subscripts import in_lanes
from perflex.features.scop.numbering import begins_alike, moved, numbers_of
from perflex.features.scop.scop import Barrier, Loop, Statement
from perflex.isl import align_parameters, isl

_One = TypeVar("_One", Statement, Barrier)
_PARAM, _SET = isl.dim_type.param, isl.dim_type.set


class TripCounts:
    """Replaces data-dependent loop bounds by stated trip counts."""

    def __init__(self, kernel: Any, parameters: Sequence[str], stated: Iterable[tuple[str, Fraction | str]]) -> None:
        self._kernel, self._parameters, self._stated = kernel, tuple(parameters), dict(stated)
        names = {name for domain in kernel.domains for name in domain.get_var_names(_PARAM)} - set(kernel.inames)
        # Values computed in the kernel that bound loops.
        self._data = frozenset(name for name in names if not isinstance(kernel.arg_dict.get(name), ValueArg))
        # Loops that begin where data say, which are described as starting at 0, and loops inside that start with them.
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
            try:
                affine_in_parameters(_whole(count), self._parameters)
            except (ParseError, UnsupportedKernelError):
                sizes = ", ".join(self._parameters) or "there are none"
                what = f"cannot have {count!r} for the trips of loop {loop!r}; state a number, or an expression"
                raise self._refuse(loop, f"{what} that is quasi-affine in the sizes ({sizes}), such as n//2") from None

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
            f"in the kernel); state its average, e.g. annotate(kernel, trip_counts={{{loop!r}: 8}}) or --state {loop}=8"
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
        trips = isl.Map.from_domain_and_range(around, later)
        # isl's sum, unlike most of its functions, needs equal parameters.
        reached = first.align_params(trips.get_space()).sum(trips)
        return domain.intersect(reached.wrap().apply(to_map.reverse()))

    def loop(self, name: str, parent: int | None, kind: str = "") -> Loop:
        """Return a loop with what was stated about it."""
        count = self._stated.get(name)
        written_out = self._kernel.inames[name].tags_of_type(UnrollTag)
        # An average of 2.5 has three iterations in the domain, each of which stands for 2.5/3 executions.
        average = count / ceil(count) if isinstance(count, Fraction) else Fraction(1)
        assumed = "" if count is None else f"{name}: {count} trips"
        return Loop(name, parent, kind or ("unrolled" if written_out else "loop"), average, assumed)


@dataclass(frozen=True)
class Instances:
    """The instances of a statement."""

    values: Any  # isl set of them, by the values of loopy's names
    axes: Mapping[str, str]  # Hardware axis (``lid0``, ``gid1``) -> name of its dimension
    names: tuple[str, ...]  # What dimensions, but for that of lanes, are called in the Scop
    # Loops that the linearization lacks, whose copies of the statement stand side by side; their dimensions come last.
    copied: tuple[str, ...]

    @property
    def space(self) -> Any:
        """The space of values."""
        return self.values.get_space()

    @property
    def domain(self) -> Any:
        """The instances with the Scop's names."""
        domain = self.values
        for position, name in enumerate(self.names):
            domain = domain.set_dim_name(_SET, position, name)
        return domain

    def restricted(self, conditions: Iterable[Any], parameters: Sequence[str]) -> Instances:
        """Return the instances for which conditions, sets in loopy's names, hold."""
        values = self.values
        for condition in conditions:
            values = values.intersect(align_parameters(condition, parameters))
        return replace(self, values=values.coalesce())

    def in_lanes(self, lanes: int) -> Instances:
        """Return these instances for each of a vector's elements."""
        return replace(self, values=in_lanes(self.values, lanes))


class DomainMaker:
    """Makes the domains of a loopy kernel's statements; equal requests are answered from memory."""

    def __init__(self, kernel: Any, parameters: Sequence[str], assumptions: Any, trips: TripCounts) -> None:
        self._kernel, self._parameters, self._assumptions, self._trips = kernel, tuple(parameters), assumptions, trips
        self._code = CodegenOperationCacheManager.from_kernel(kernel)
        self._made: dict[object, Instances] = {}
        # Parallel loop -> its axis, such as ``gid0``.
        self._axis = {
            name: f"{'gid' if isinstance(tag, GroupInameTag) else 'lid'}{tag.axis}"
            for name, iname in kernel.inames.items()
            for tag in iname.tags_of_type((GroupInameTag, LocalInameTag))
        }
        # Parallel loop -> its iteration on work-item 0, a function of sizes, unless that is 0.
        self._starts = {name: start for name in self._axis if (start := self._first(name)) is not None}

    def axes(self, inames: Iterable[str]) -> dict[str, str]:
        """Return the loops that run on axes, by axis."""
        on_axis: dict[str, str] = {}
        for iname in sorted(self._axis.keys() & inames):
            # One work-item cannot be in two iterations of one axis.
            if on_axis.setdefault(axis := self._axis[iname], iname) != iname:
                msg = (
                    f"loops {on_axis[axis]!r} and {iname!r} of kernel {self._kernel.name!r} are both tagged "
                    f"{axis[0]}.{axis[3:]}, and surround one instruction; give each an axis of its own"
                )
                raise UnsupportedKernelError(msg, kernel=self._kernel.name, loop=iname)
        return on_axis

    def loopys(self, inames: Iterable[str]) -> Any:
        """Return iterations of some loops as loopy has them, with dimensions for others that they depend on."""
        return self._trips.bounded(isl.Set.from_basic_set(self._kernel.get_inames_domain(frozenset(inames))))

    def instances(self, inames: Iterable[str], loops: tuple[str, ...], extents: Mapping[str, Any]) -> Instances:
        """Return the instances of a statement in some loops, outermost first, and on all axes that have extents."""
        key = frozenset(inames), loops, tuple(extents.items())
        if key not in self._made:
            self._made[key] = self._make(key[0], loops, extents)
        return self._made[key]

    def _make(self, inames: frozenset[str], loops: tuple[str, ...], extents: Mapping[str, Any]) -> Instances:
        on_axis, sequential = self.axes(inames), inames - self._axis.keys()
        copied = tuple(sorted(sequential.difference(loops)))
        inner = [*(loop for loop in loops if loop in sequential), *copied]
        axes = {axis: on_axis.get(axis, f"_{axis}") for axis in extents}
        raw = self.loopys(inames)
        # Names without a loop (_gid0, _lid0) are new in the map's range and so unbounded; their extents bound them.
        names = [*axes.values(), *inner]
        values = raw.apply(isl.Map(f"{{ [{', '.join(raw.get_var_names(_SET))}] -> [{', '.join(names)}] }}"))
        values = values.coalesce().align_params(self._assumptions.get_space())
        for position, (axis, extent) in enumerate(extents.items()):
            if axis not in on_axis:
                values = below(values, position, extent, self._parameters)
        # isl's simplification makes equal domains of different instructions equal texts, which are counted once.
        values = values.intersect_params(self._assumptions).remove_redundancies().coalesce()
        values = align_parameters(values, self._parameters)
        for position, name in enumerate(names):
            values = values.set_dim_name(_SET, position, name)
        # A loop may be called like an axis.
        shown = *extents, *(f"{loop}_" * (loop in extents) or loop for loop in inner)
        return Instances(values, axes, shown, copied)

    def placed(self, one: _One, instances: Instances) -> _One:
        """Return a statement or barrier with work-items in place of the values of the loops that run on them."""
        found: _One = moved(one, self._numbers(instances.values))
        return found

    def _numbers(self, values: Any) -> Any:
        """Return the map from values to work-items, which count from 0; None where that is the same."""
        starts = [self._starts.get(name) for name in values.get_var_names(_SET)]
        shifts = [one if one is None else one.add_dims(isl.dim_type.in_, at) for at, one in enumerate(starts)]
        return numbers_of(shifts, 0, values.dim(_SET), self._parameters)

    def entered(self, entry: int, loops: Sequence[str], axes: Iterable[str]) -> Any:
        """Return the iterations of the innermost of some loops, on work-items from 0 on; None if all begin alike."""
        loop = loops[-1]
        home = self._kernel.domains[self._kernel.get_home_domain_index(loop)]
        if begins_alike(home, home.find_dim_by_name(_SET, loop), self._parameters):
            return None
        # What the generated code knows there: within a loop with barriers, all work-items begin alike.
        usable = {loop, *get_usable_inames_for_conditional(self._kernel, entry, self._code)}
        found = self.loopys([loop])
        names, numbers = found.get_var_names(_SET), self._numbers(found)
        found = found if numbers is None else found.apply(numbers)
        places = {
            name: f"_{axis}" if (axis := self._axis.get(name)) else f"{name}_" for name in names if name in usable
        }
        held = " and ".join(f"{place} = {name}" for name, place in places.items())
        there = ", ".join([*(f"_{axis}" for axis in axes), *(f"{name}_" for name in loops)])
        return found.apply(isl.Map(f"{{ [{', '.join(names)}] -> [{there}] : {held} }}"))

    def _first(self, iname: str) -> Any:
        home = self._kernel.domains[self._kernel.get_home_domain_index(iname)]
        # Most domains say just that: isl's general answer takes much longer to find.
        for constraint in home.get_constraints():
            if not constraint.is_equality() and constraint.get_coefficients_by_name() == {iname: 1}:
                return None
        # The same function that loopy generates code with, so that both agree on which of several bounds it is.
        first = isl.PwAff.from_aff(get_hw_axis_base_for_codegen(self._kernel, iname)).project_domain_on_params()
        zero = first.eq_set(isl.PwAff("{ [0] }").project_domain_on_params())
        # The bound need only be 0 for the sizes that the kernel is valid for.
        return None if self._assumptions.params().is_subset(zero.params()) else first


def _whole(count: Fraction | str) -> Any:
    """Return the iterations of a loop in its domain, a number or a loopy expression."""
    return parse(count) if isinstance(count, str) else ceil(count)
