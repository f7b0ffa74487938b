"""Iteration domains: loopy's loop variables as work-group, work-item and sequential dimensions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from perflex.errors import UnsupportedKernelError
from perflex.features.from_loopy.loop_shifts import LoopShifts, composed
from perflex.features.from_loopy.terms import affine_in_parameters
from perflex.features.polynomials.late_values import align_parameters
from perflex.features.scop.words import LANE, is_axis, loop_name
from perflex.isl import isl

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from perflex.features.from_loopy.facts import KernelFacts
    from perflex.features.from_loopy.loop_shifts import Shift


def assumptions_on(kernel: Any, parameters: Sequence[str]) -> Any:
    """Return what a kernel assumes of its size parameters; of values it computes itself nothing is kept."""
    kinds = isl.dim_type
    assumed = isl.Set.from_basic_set(kernel.assumptions)
    # From the last one on: removing a parameter moves those behind it.
    for position in range(assumed.dim(kinds.param) - 1, -1, -1):
        if assumed.get_dim_name(kinds.param, position) not in parameters:
            assumed = assumed.project_out(kinds.param, position, 1)
    return align_parameters(assumed, parameters)


@dataclass(frozen=True)
class Instances:
    """The instances of a statement."""

    domain: Any  # isl set of them, as the Scop has it
    space: Any  # Its space with loopy's names, and one more dimension where there are lanes
    # isl map from the domain to what loopy's names stand for; None where that is the same. A parallel loop that
    # starts at 2 runs on the work-items from 0 on, and one that starts at the work-item counts its iterations.
    places: Any = None
    lanes: int = 1  # Elements of the vectors that are worked on; 1 for scalars

    @property
    def axes(self) -> dict[str, str]:
        """Hardware axis (``lid0``, ``gid1``) -> name of its dimension in `space`."""
        names = self.space.get_var_names(isl.dim_type.set)
        hardware = (self.domain.get_dim_name(isl.dim_type.set, i) for i in range(len(names)))
        return {axis: name for axis, name in zip(hardware, names, strict=True) if is_axis(axis)}

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
            for position, name in enumerate(self.domain.get_var_names(isl.dim_type.set)):
                held = held.set_dim_name(isl.dim_type.set, position, name)
            domain = domain.intersect(align_parameters(held, parameters))
        return replace(self, domain=domain.coalesce())

    def in_lanes(self, lanes: int) -> Instances:
        """Return these instances for each of a vector's elements, enumerated by a last dimension ``lane``."""
        kinds = isl.dim_type
        last = self.domain.dim(kinds.set)
        domain = self.domain.add_dims(kinds.set, 1).set_dim_name(kinds.set, last, LANE)
        domain = domain.lower_bound_val(kinds.set, last, isl.Val(0)).upper_bound_val(
            kinds.set, last, isl.Val(lanes - 1)
        )
        # Loops have their own names here, of which one may be this.
        space = self.space.add_dims(kinds.set, 1).set_dim_name(kinds.set, last, f"_{LANE}_")
        places = None if self.places is None else self.places.flat_product(isl.Map("{ [lane] -> [lane] }"))
        return Instances(domain, space, places, lanes)


class DomainMaker:
    """Makes the domains of a loopy kernel's statements; equal requests are answered from memory."""

    def __init__(self, facts: KernelFacts) -> None:
        self._kernel = facts.kernel
        self._trips = facts.trips
        self._parameters = facts.parameters
        self._assumptions = assumptions_on(facts.kernel, facts.parameters)
        self._shifts = LoopShifts(facts, self._assumptions)
        self._made: dict[object, Instances] = {}
        self._starts: dict[str, Any] = {}

    def axes(self, inames: Iterable[str]) -> tuple[dict[int, str], dict[int, str], set[str]]:
        """Return (group axis -> iname, local axis -> iname, sequential inames)."""
        from loopy.kernel.data import GroupInameTag, LocalInameTag

        groups: dict[int, str] = {}
        items: dict[int, str] = {}
        sequential: set[str] = set()
        for iname in sorted(inames):
            tags = self._kernel.inames[iname].tags
            group = next((tag for tag in tags if isinstance(tag, GroupInameTag)), None)
            item = next((tag for tag in tags if isinstance(tag, LocalInameTag)), None)
            # One work-item cannot be in two iterations of one axis.
            taken = groups.get(group.axis) if group is not None else items.get(item.axis) if item is not None else None
            if taken is not None:
                msg = (
                    f"loops {taken!r} and {iname!r} of kernel {self._kernel.name!r} are both tagged {group or item}, "
                    "and surround one instruction; give each an axis of its own"
                )
                raise UnsupportedKernelError(msg, kernel=self._kernel.name, loop=iname)
            if group is not None:
                groups[group.axis] = iname
            elif item is not None:
                items[item.axis] = iname
            else:
                sequential.add(iname)
        return groups, items, sequential

    def trips(self, inames: frozenset[str]) -> Any:
        """Return the set of iterations of some loops, other loops projected out."""
        domain = self._trips.bounded(isl.Set.from_basic_set(self._kernel.get_inames_domain(inames)))
        kinds = isl.dim_type
        for i in range(domain.dim(kinds.set) - 1, -1, -1):
            if domain.get_dim_name(kinds.set, i) not in inames:
                domain = domain.project_out(kinds.set, i, 1)
        return domain.intersect_params(self._assumptions.params())

    def domain(
        self,
        inames: frozenset[str],
        loops: Mapping[str, int],
        group_extents: Sequence[Any],
        item_extents: Sequence[int],
        *,
        all_items: bool = False,
    ) -> Instances:
        """Return a statement's instances; along axes of the launch that no iname is tagged with, all execute it.

        Loops are as in `Place`. With `all_items`, every work-item takes part whatever the inames say (barriers).
        """
        entries = list(loops.values())
        shifts = {
            loop: shift
            for depth, (loop, entry) in enumerate(loops.items())
            if (shift := self._shifts.of(entry, entries[:depth])) is not None
        }
        moved = tuple((loop, str(shift.value)) for loop, shift in shifts.items())
        key = (inames, tuple(loops), moved, tuple(group_extents), tuple(item_extents), all_items)
        if key not in self._made:
            extents = [*group_extents], [*item_extents]
            self._made[key] = self._make(inames, tuple(loops), shifts, extents, all_items)
        return self._made[key]

    def _make(
        self,
        inames: frozenset[str],
        loops: tuple[str, ...],
        shifts: Mapping[str, Shift],
        extents: tuple[Sequence[Any], Sequence[int]],
        all_items: bool,
    ) -> Instances:
        group_extents, item_extents = extents
        groups, items, sequential = self.axes(inames)
        if all_items:
            items = {}
        # Loops that the schedule does not have (unrolled ones) come last, by name.
        inner = [loop for loop in loops if loop in sequential]
        inner += sorted(sequential - set(inner))
        target = [f"gid{axis}" for axis in range(len(group_extents))]
        target += [f"lid{axis}" for axis in range(len(item_extents))]
        axes = dict(zip(target, range(len(target)), strict=True))
        source = [groups.get(axis, f"_gid{axis}") for axis in range(len(group_extents))]
        source += [items.get(axis, f"_lid{axis}") for axis in range(len(item_extents))]
        target += map(loop_name, inner)
        source += inner
        named = self._renamed(inames, source)
        for axis, extent in enumerate(group_extents):
            if axis not in groups:
                named = self._below(named, axis, extent)
        for axis, extent in enumerate(item_extents):
            if axis not in items:
                named = self._below(named, len(group_extents) + axis, extent)
        # isl's simplification makes equal domains of different instructions equal texts, which are counted once.
        named = named.intersect_params(self._assumptions).remove_redundancies().coalesce()
        named = align_parameters(named, self._parameters)
        on_axes = {*groups.values(), *items.values()}
        places = self._places(named.get_space(), source, axes, on_axes, shifts)
        domain = named if places is None else align_parameters(named.apply(places.reverse()), self._parameters)
        for position, (name, iname) in enumerate(zip(target, source, strict=True)):
            domain = domain.set_dim_name(isl.dim_type.set, position, name)
            named = named.set_dim_name(isl.dim_type.set, position, iname)
        return Instances(domain, named.get_space(), places)

    def _places(
        self,
        space: Any,
        source: Sequence[str],
        axes: Mapping[str, int],
        parallel: set[str],
        shifts: Mapping[str, Shift],
    ) -> Any:
        """Return the map from what is counted from 0, work-items and iterations, to loops' values; None for the same.

        `axes` has positions by the names of the hardware's axes.
        """
        if not shifts and all(self._start(name) is None for name in parallel):
            return None
        kinds = isl.dim_type
        local = isl.LocalSpace.from_space(space)
        numbers = [isl.PwAff.var_on_domain(local, kinds.set, position) for position in range(space.dim(kinds.set))]

        def on_axis(iname: str, number: Any) -> Any:
            # The work-item counts from 0; the loop that runs on it has the value work-item + start.
            start = self._start(iname)
            return number if start is None else number.add(start.add_dims(kinds.in_, len(numbers)))

        # A loop's start may depend on work-items that the instruction has no name for.
        around = {name for shift in shifts.values() for name in shift.around} - set(source)
        values = {name: on_axis(name, numbers[axes[self._axis_of(name)]]) for name in around}
        places = isl.Map.from_domain(isl.Set.universe(space))
        for name, number in zip(source, numbers, strict=True):
            value = on_axis(name, number) if name in parallel else number
            if name in shifts:
                value = number.add(composed(shifts[name], values))
            values[name] = value
            places = places.flat_range_product(isl.Map.from_pw_aff(value))
        return places

    def _axis_of(self, iname: str) -> str:
        """Return the name of the hardware's axis that a parallel loop runs on."""
        groups, items, _ = self.axes([iname])
        return f"gid{next(iter(groups))}" if groups else f"lid{next(iter(items))}"

    def _start(self, iname: str) -> Any:
        """Return the iteration of a parallel loop that runs on work-item 0; None if that is iteration 0."""
        if iname not in self._starts:
            self._starts[iname] = None if self._starts_at_zero(iname) else self._first(iname)
        return self._starts[iname]

    def _starts_at_zero(self, iname: str) -> bool:
        """Whether a loop's domain says just that it starts at 0: what most say, and quickly found."""
        kinds = isl.dim_type
        # isl's general answer, the lower bound as a function of the parameters, takes much longer to find.
        for domain in self._kernel.domains:
            position = domain.find_dim_by_name(kinds.set, iname)
            if position >= 0:
                # i >= 0 as isl stores it: constant 0, coefficient 1, no other dimension.
                return any(
                    constraint.get_constant_val() == 0
                    and constraint.get_coefficient_val(kinds.set, position) == 1
                    and not constraint.is_equality()
                    and len(constraint.get_coefficients_by_name()) == 1
                    for constraint in domain.get_constraints()
                )
        return False

    def _first(self, iname: str) -> Any:
        """Return a parallel loop's lower bound as loopy takes it, a function of the parameters; None for 0."""
        from loopy.kernel.tools import get_hw_axis_base_for_codegen

        # The same function that loopy generates code with, so that both agree on which of several bounds it is.
        first = isl.PwAff.from_aff(get_hw_axis_base_for_codegen(self._kernel, iname)).project_domain_on_params()
        zero = first.eq_set(isl.PwAff("{ [0] }").project_domain_on_params())
        # The bound need only be 0 for the sizes that the kernel is valid for.
        return None if self._assumptions.params().is_subset(zero.params()) else first

    def _renamed(self, inames: frozenset[str], source: Sequence[str]) -> Any:
        """Return loopy's domain with its dimensions in the given order, others projected out."""
        raw = self._trips.bounded(isl.Set.from_basic_set(self._kernel.get_inames_domain(inames)))
        names = [raw.get_dim_name(isl.dim_type.set, i) for i in range(raw.dim(isl.dim_type.set))]
        # Names without a loop (_gid0, _lid0) are new in the map's range and so unbounded; `_below` bounds them.
        order = isl.Map(f"{{ [{', '.join(names)}] -> [{', '.join(source)}] }}")
        return raw.apply(order).coalesce().align_params(self._assumptions.get_space())

    def _below(self, domain: Any, position: int, extent: Any) -> Any:
        """Restrict one dimension to 0 <= value < extent."""
        kinds = isl.dim_type
        space = domain.get_space()
        limit = affine_in_parameters(extent, self._parameters).add_dims(kinds.in_, space.dim(kinds.set))
        coordinate = isl.PwAff.var_on_domain(isl.LocalSpace.from_space(space), kinds.set, position)
        below = coordinate.align_params(limit.get_space()).lt_set(limit)
        return domain.lower_bound_val(kinds.set, position, isl.Val(0)).intersect(below)
