"""Iteration domains: loopy's loop variables as work-group, work-item and sequential dimensions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from loopy.codegen.bounds import get_usable_inames_for_conditional
from loopy.codegen.tools import CodegenOperationCacheManager
from loopy.kernel.data import GroupInameTag, IlpBaseTag, LocalInameTag, UnrollTag, VectorizeTag
from loopy.kernel.tools import get_hw_axis_base_for_codegen

from perflex.errors import UnsupportedKernelError
from perflex.features.from_loopy.terms import below
from perflex.features.lowering.vectors import in_lanes
from perflex.features.scop.numbering import begins_alike, shift_of
from perflex.isl import align_parameters, isl

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from perflex.features.from_loopy.facts import KernelFacts

_SET = isl.dim_type.set


@dataclass(frozen=True)
class Instances:
    """The instances of a statement."""

    domain: Any  # isl set of them, as the Scop has it
    space: Any  # Its space with loopy's names, and one more dimension where there are lanes
    # isl map from the domain to what loopy's names stand for; None where that is the same. A parallel loop that
    # starts at 2 runs on the work-items from 0 on, and one that starts at the work-item counts its iterations.
    places: Any
    axes: Mapping[str, str]  # Hardware axis (``lid0``, ``gid1``) -> name of its dimension in `space`
    # Loops that the linearization lacks, whose copies of the statement stand side by side; their dimensions come last.
    copied: tuple[str, ...]

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
        space = self.space.add_dims(_SET, 1).set_dim_name(_SET, self.space.dim(_SET), "_lane_")
        places = None if self.places is None else self.places.flat_product(isl.Map("{ [lane] -> [lane] }"))
        return replace(self, domain=in_lanes(self.domain, lanes), space=space, places=places)


@dataclass(frozen=True)
class Shift:
    """What a sequential loop's values exceed the numbers of its iterations by."""

    around: tuple[str, ...]  # loopy's names of work-groups, work-items and loops around it
    value: Any  # isl function of their values

    def of(self, values: Mapping[str, Any]) -> Any:
        """Return it as a function of what the values around the loop, by name, are functions of."""
        first, *more = (isl.PwMultiAff.from_pw_aff(values[name]) for name in self.around)
        for value in more:
            first = first.flat_range_product(value)
        return self.value.pullback_pw_multi_aff(first)


class DomainMaker:
    """Makes the domains of a loopy kernel's statements; equal requests are answered from memory."""

    def __init__(self, facts: KernelFacts, assumptions: Any) -> None:
        self._facts = facts
        self._kernel = facts.kernel
        self._parameters = facts.parameters
        self._assumptions = assumptions
        self._code = CodegenOperationCacheManager.from_kernel(facts.kernel)
        self._shifts: dict[int, Shift | None] = {}  # By where the linearization enters the loop
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

    def loopys(self, inames: Iterable[str]) -> Any:
        """Return iterations of some loops as loopy has them, with dimensions for others that they depend on."""
        return self._facts.trips.bounded(isl.Set.from_basic_set(self._kernel.get_inames_domain(frozenset(inames))))

    def domain(self, inames: Iterable[str], loops: Mapping[str, int], extents: Mapping[str, Any]) -> Instances:
        """Return a statement's instances; along axes of the launch that no iname is tagged with, all execute it.

        Loops are as in `Place`; extents are those of the launch by axis, such as ``gid0``.
        """
        key = frozenset(inames), tuple(loops.items()), tuple(extents.items())
        if key not in self._made:
            self._made[key] = self._make(key[0], loops, extents)
        return self._made[key]

    def _make(self, inames: frozenset[str], loops: Mapping[str, int], extents: Mapping[str, Any]) -> Instances:
        on_axis, sequential = self.axes(inames)
        inner, copied = [loop for loop in loops if loop in sequential], tuple(sorted(sequential - loops.keys()))
        axes = {axis: on_axis.get(axis, f"_{axis}") for axis in extents}
        source = [*axes.values(), *inner, *copied]
        # A loop may be called like an axis.
        target = [*extents, *(f"{loop}_" * (loop in extents) or loop for loop in (*inner, *copied))]
        raw = self.loopys(inames)
        # Names without a loop (_gid0, _lid0) are new in the map's range and so unbounded; their extents bound them.
        order = isl.Map(f"{{ [{', '.join(raw.get_var_names(_SET))}] -> [{', '.join(source)}] }}")
        named = raw.apply(order).coalesce().align_params(self._assumptions.get_space())
        for position, (axis, extent) in enumerate(extents.items()):
            if axis not in on_axis:
                named = below(named, position, extent, self._parameters)
        # isl's simplification makes equal domains of different instructions equal texts, which are counted once.
        named = named.intersect_params(self._assumptions).remove_redundancies().coalesce()
        named = align_parameters(named, self._parameters)
        entries = list(loops.values())
        shifts = {loop: self._shift(entry, entries[:depth]) for depth, (loop, entry) in enumerate(loops.items())}
        places = self._places(named.get_space(), source, list(extents), set(on_axis.values()), shifts)
        domain = named if places is None else align_parameters(named.apply(places.reverse()), self._parameters)
        for position, (name, iname) in enumerate(zip(target, source, strict=True)):
            domain = domain.set_dim_name(_SET, position, name)
            named = named.set_dim_name(_SET, position, iname)
        return Instances(domain, named.get_space(), places, axes, copied)

    def _places(
        self, space: Any, source: Sequence[str], axes: list[str], parallel: set[str], shifts: Mapping[str, Shift | None]
    ) -> Any:
        """Return the map from what is counted from 0, work-items and iterations, to loops' values; None for the same.

        `axes` are the names of the first dimensions.
        """
        moved = {loop: shift for loop, shift in shifts.items() if shift is not None}
        if not moved and all(self._start(name) is None for name in parallel):
            return None
        local = isl.LocalSpace.from_space(space)
        numbers = [isl.PwAff.var_on_domain(local, _SET, position) for position in range(space.dim(_SET))]

        def on_axis(iname: str, number: Any) -> Any:
            # The work-item counts from 0; the loop that runs on it has the value work-item + start.
            start = self._start(iname)
            return number if start is None else number.add(start.add_dims(isl.dim_type.in_, len(numbers)))

        values: dict[str, Any] = {}
        # A loop's start may depend on work-items that the instruction has no name for.
        for name in {name for shift in moved.values() for name in shift.around} - set(source):
            (axis,) = self.axes([name])[0]
            values[name] = on_axis(name, numbers[axes.index(axis)])
        places = isl.Map.from_domain(isl.Set.universe(space))
        for name, number in zip(source, numbers, strict=True):
            values[name] = on_axis(name, number) if name in parallel else number
            if name in moved:
                values[name] = number.add(moved[name].of(values))
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

    # Where sequential loops begin, as the generated code has it

    def _shift(self, entry: int, outer: Sequence[int]) -> Shift | None:
        """Return that of the loop entered at a place of the linearization; None where all begin at the same value.

        Loops `outer` are around it, outermost first. A loop of the kernel may be entered at several places.
        """
        if entry not in self._shifts:
            self._shifts[entry] = self._new_shift(entry, outer)
        return self._shifts[entry]

    def _name(self, entry: int) -> str:
        return str(self._kernel.linearization[entry].iname)

    def _new_shift(self, entry: int, outer: Sequence[int]) -> Shift | None:
        loop = self._name(entry)
        written_out = self._kernel.inames[loop].tags_of_type((UnrollTag, IlpBaseTag, VectorizeTag))
        home = self._kernel.domains[self._kernel.get_home_domain_index(loop)]
        # The host's loops are the same for all work-items, and copies of a loop's body begin at one value.
        on_host = self._code.callkernel_index[entry] is None
        if written_out or on_host or begins_alike(home, home.find_dim_by_name(_SET, loop), self._parameters):
            return None
        usable = get_usable_inames_for_conditional(self._kernel, entry, self._code)
        domain = align_parameters(self.loopys([loop]), self._parameters).intersect_params(self._assumptions)
        names = domain.get_var_names(_SET)
        around = tuple(name for name in names if name in usable)
        order = isl.Map(f"{{ [{', '.join(names)}] -> [[{', '.join(around)}] -> [{loop}]] }}")
        items = [place for place, name in enumerate(around) if self._kernel.inames[name].tags_of_type(LocalInameTag)]
        value = shift_of(domain.apply(order).unwrap(), items, self._numbers(around, outer))
        return None if value is None else Shift(around, align_parameters(value, self._parameters))

    def _numbers(self, around: tuple[str, ...], outer: Sequence[int]) -> Any:
        """Return the map from values around a loop to those where loops around it are numbered; None for the same."""
        shifts = {self._name(entry): self._shift(entry, outer[:place]) for place, entry in enumerate(outer)}
        if not any(shifts.get(name) for name in around):
            return None
        space = align_parameters(isl.Set(f"{{ [{', '.join(around)}] }}"), self._parameters).get_space()
        local = isl.LocalSpace.from_space(space)
        values = {name: isl.PwAff.var_on_domain(local, _SET, place) for place, name in enumerate(around)}
        numbers = isl.Map.from_domain(isl.Set.universe(space))
        for name, value in values.items():
            shift = shifts.get(name)
            number = value if shift is None else value.sub(shift.of(values))
            numbers = numbers.flat_range_product(isl.Map.from_pw_aff(number))
        return numbers
