"""Iteration domains: loopy's loop variables as work-group, work-item and sequential dimensions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from loopy.kernel.data import GroupInameTag, LocalInameTag
from loopy.kernel.tools import get_hw_axis_base_for_codegen

from perflex.errors import UnsupportedKernelError
from perflex.features.from_loopy.loop_shifts import LoopShifts, composed
from perflex.features.from_loopy.terms import below, only
from perflex.features.lowering.vectors import in_lanes
from perflex.features.polynomials.late_values import align_parameters
from perflex.features.scop.words import LANE, is_axis, loop_name
from perflex.isl import isl

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from perflex.features.from_loopy.facts import KernelFacts
    from perflex.features.from_loopy.loop_shifts import Shift

_SET = isl.dim_type.set


@dataclass(frozen=True)
class Instances:
    """The instances of a statement."""

    domain: Any  # isl set of them, as the Scop has it
    space: Any  # Its space with loopy's names, and one more dimension where there are lanes
    # isl map from the domain to what loopy's names stand for; None where that is the same. A parallel loop that
    # starts at 2 runs on the work-items from 0 on, and one that starts at the work-item counts its iterations.
    places: Any = None

    @property
    def axes(self) -> dict[str, str]:
        """Hardware axis (``lid0``, ``gid1``) -> name of its dimension in `space`."""
        names = zip(self.domain.get_var_names(_SET), self.space.get_var_names(_SET), strict=True)
        return {axis: name for axis, name in names if is_axis(axis)}

    @property
    def values(self) -> Any:
        """The instances as loopy has them."""
        return self.domain if self.places is None else self.domain.apply(self.places)

    def restricted(self, conditions: Iterable[Any], parameters: Sequence[str]) -> Instances:
        """Return the instances for which conditions, sets in loopy's names, hold."""
        domain = self.domain
        for condition in conditions:
            # A condition is on loop variables, the domain on work-items and iterations counted from 0 on.
            held = condition if self.places is None else self.places.intersect_range(condition).domain()
            for position, name in enumerate(self.domain.get_var_names(_SET)):
                held = held.set_dim_name(_SET, position, name)
            domain = domain.intersect(align_parameters(held, parameters))
        return replace(self, domain=domain.coalesce())

    def in_lanes(self, lanes: int) -> Instances:
        """Return these instances for each of a vector's elements."""
        # Loops have their own names here, of which one may be this.
        space = self.space.add_dims(_SET, 1).set_dim_name(_SET, self.space.dim(_SET), f"_{LANE}_")
        places = None if self.places is None else self.places.flat_product(isl.Map("{ [lane] -> [lane] }"))
        return Instances(in_lanes(self.domain, lanes), space, places)


class DomainMaker:
    """Makes the domains of a loopy kernel's statements; equal requests are answered from memory."""

    def __init__(self, facts: KernelFacts, assumptions: Any) -> None:
        self._facts = facts
        self._kernel = facts.kernel
        self._parameters = facts.parameters
        self._assumptions = assumptions
        self._shifts = LoopShifts(facts, assumptions)
        self._made: dict[object, Instances] = {}
        self._starts: dict[str, Any] = {}

    def axes(self, inames: Iterable[str]) -> tuple[dict[str, str], set[str]]:
        """Return (axis such as ``gid0`` -> the loop variable on it, sequential loop variables)."""
        on_axis: dict[str, str] = {}
        sequential: set[str] = set()
        for iname in sorted(inames):
            tags = self._kernel.inames[iname].tags_of_type((GroupInameTag, LocalInameTag))
            if not tags:
                sequential.add(iname)
                continue
            (tag,) = tags
            axis = f"{'gid' if isinstance(tag, GroupInameTag) else 'lid'}{tag.axis}"
            # One work-item cannot be in two iterations of one axis.
            if axis in on_axis:
                msg = (
                    f"loops {on_axis[axis]!r} and {iname!r} of kernel {self._kernel.name!r} are both tagged {tag}, "
                    "and surround one instruction; give each an axis of its own"
                )
                raise UnsupportedKernelError(msg, kernel=self._kernel.name, loop=iname)
            on_axis[axis] = iname
        return on_axis, sequential

    def trips(self, inames: Sequence[str]) -> Any:
        """Return the set of iterations of some loops, other loops projected out."""
        domain = self._facts.trips.bounded(isl.Set.from_basic_set(self._kernel.get_inames_domain(frozenset(inames))))
        return only(domain, _SET, inames).intersect_params(self._assumptions.params())

    def domain(self, inames: Iterable[str], loops: Mapping[str, int], extents: Mapping[str, Any]) -> Instances:
        """Return a statement's instances; along axes of the launch that no iname is tagged with, all execute it.

        Loops are as in `Place`; extents are those of the launch by axis, such as ``gid0``.
        """
        entries = list(loops.values())
        shifts = {
            loop: shift
            for depth, (loop, entry) in enumerate(loops.items())
            if (shift := self._shifts.of(entry, entries[:depth])) is not None
        }
        moved = tuple((loop, str(shift.value)) for loop, shift in shifts.items())
        key = (frozenset(inames), tuple(loops), moved, tuple(extents.items()))
        if key not in self._made:
            self._made[key] = self._make(frozenset(inames), loops, shifts, extents)
        return self._made[key]

    def _make(
        self, inames: frozenset[str], loops: Iterable[str], shifts: Mapping[str, Shift], extents: Mapping[str, Any]
    ) -> Instances:
        on_axis, sequential = self.axes(inames)
        # Loops that the schedule does not have (unrolled ones) come last, by name.
        inner = [loop for loop in loops if loop in sequential]
        inner += sorted(sequential - set(inner))
        target = [*extents, *map(loop_name, inner)]
        source = [*(on_axis.get(axis, f"_{axis}") for axis in extents), *inner]
        raw = self._facts.trips.bounded(isl.Set.from_basic_set(self._kernel.get_inames_domain(inames)))
        # Names without a loop (_gid0, _lid0) are new in the map's range and so unbounded; their extents bound them.
        order = isl.Map(f"{{ [{', '.join(raw.get_var_names(_SET))}] -> [{', '.join(source)}] }}")
        named = raw.apply(order).coalesce().align_params(self._assumptions.get_space())
        for position, (axis, extent) in enumerate(extents.items()):
            if axis not in on_axis:
                named = below(named, position, extent, self._parameters)
        # isl's simplification makes equal domains of different instructions equal texts, which are counted once.
        named = named.intersect_params(self._assumptions).remove_redundancies().coalesce()
        named = align_parameters(named, self._parameters)
        places = self._places(named.get_space(), source, list(extents), set(on_axis.values()), shifts)
        domain = named if places is None else align_parameters(named.apply(places.reverse()), self._parameters)
        for position, (name, iname) in enumerate(zip(target, source, strict=True)):
            domain = domain.set_dim_name(_SET, position, name)
            named = named.set_dim_name(_SET, position, iname)
        return Instances(domain, named.get_space(), places)

    def _places(
        self, space: Any, source: Sequence[str], axes: Sequence[str], parallel: set[str], shifts: Mapping[str, Shift]
    ) -> Any:
        """Return the map from what is counted from 0, work-items and iterations, to loops' values; None for the same.

        `axes` are the names of the first dimensions.
        """
        if not shifts and all(self._start(name) is None for name in parallel):
            return None
        local = isl.LocalSpace.from_space(space)
        numbers = [isl.PwAff.var_on_domain(local, _SET, position) for position in range(space.dim(_SET))]

        def on_axis(iname: str, number: Any) -> Any:
            # The work-item counts from 0; the loop that runs on it has the value work-item + start.
            start = self._start(iname)
            return number if start is None else number.add(start.add_dims(isl.dim_type.in_, len(numbers)))

        values: dict[str, Any] = {}
        # A loop's start may depend on work-items that the instruction has no name for.
        for name in {name for shift in shifts.values() for name in shift.around} - set(source):
            (axis,) = self.axes([name])[0]
            values[name] = on_axis(name, numbers[axes.index(axis)])
        places = isl.Map.from_domain(isl.Set.universe(space))
        for name, number in zip(source, numbers, strict=True):
            values[name] = on_axis(name, number) if name in parallel else number
            if name in shifts:
                values[name] = number.add(composed(shifts[name], values))
            places = places.flat_range_product(isl.Map.from_pw_aff(values[name]))
        return places

    def _start(self, iname: str) -> Any:
        """Return the iteration of a parallel loop that runs on work-item 0, a function of sizes; None if it is 0."""
        if iname not in self._starts:
            self._starts[iname] = self._first(iname)
        return self._starts[iname]

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
