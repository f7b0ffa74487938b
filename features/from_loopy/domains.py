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
from perflex.features.scop.numbering import begins_alike, numbers_of
from perflex.isl import align_parameters, isl

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from perflex.features.from_loopy.facts import KernelFacts

_SET = isl.dim_type.set


@dataclass(frozen=True)
class Instances:
    """The instances of a statement, by the values that loopy's names have there."""

    domain: Any  # isl set of them
    space: Any  # Its space with loopy's names, and one more dimension where there are lanes
    axes: Mapping[str, str]  # Hardware axis (``lid0``, ``gid1``) -> name of its dimension in `space`
    # Loops that the linearization lacks, whose copies of the statement stand side by side; their dimensions come last.
    copied: tuple[str, ...]

    def restricted(self, conditions: Iterable[Any], parameters: Sequence[str]) -> Instances:
        """Return the instances for which conditions, sets in loopy's names, hold."""
        domain = self.domain
        for condition in conditions:
            held = condition
            for position, name in enumerate(self.domain.get_var_names(_SET)):
                held = held.set_dim_name(_SET, position, name)
            domain = domain.intersect(align_parameters(held, parameters))
        return replace(self, domain=domain.coalesce())

    def in_lanes(self, lanes: int) -> Instances:
        """Return these instances for each of a vector's elements."""
        # Loops have their own names here, of which one may be this.
        space = self.space.add_dims(_SET, 1).set_dim_name(_SET, self.space.dim(_SET), "_lane_")
        return replace(self, domain=in_lanes(self.domain, lanes), space=space)


class DomainMaker:
    """Makes the domains of a loopy kernel's statements; equal requests are answered from memory."""

    def __init__(self, facts: KernelFacts, assumptions: Any) -> None:
        self._facts = facts
        self._kernel = facts.kernel
        self._parameters = facts.parameters
        self._assumptions = assumptions
        self._code = CodegenOperationCacheManager.from_kernel(facts.kernel)
        self._made: dict[object, Instances] = {}
        self._starts: dict[str, Any] = {}

    def axes(self, inames: Iterable[str]) -> tuple[dict[str, str], set[str]]:
        """Return (axis such as ``gid0`` -> the loop variable on it, sequential loop variables)."""
        on_axis: dict[str, str] = {}
        sequential: set[str] = set()
        for iname in sorted(inames):
            axis = self._axis(iname)
            if not axis:
                sequential.add(iname)
            # One work-item cannot be in two iterations of one axis.
            elif on_axis.setdefault(axis, iname) != iname:
                msg = (
                    f"loops {on_axis[axis]!r} and {iname!r} of kernel {self._kernel.name!r} are both tagged "
                    f"{axis[0]}.{axis[3:]}, and surround one instruction; give each an axis of its own"
                )
                raise UnsupportedKernelError(msg, kernel=self._kernel.name, loop=iname)
        return on_axis, sequential

    def _axis(self, name: str) -> str:
        """Return the axis that a loop runs on, such as ``gid0``; empty for other loops and names."""
        tagged = self._kernel.inames.get(name)
        tags = tagged.tags_of_type((GroupInameTag, LocalInameTag)) if tagged else ()
        return next((f"{'gid' if isinstance(tag, GroupInameTag) else 'lid'}{tag.axis}" for tag in tags), "")

    def loopys(self, inames: Iterable[str]) -> Any:
        """Return iterations of some loops as loopy has them, with dimensions for others that they depend on."""
        return self._facts.trips.bounded(isl.Set.from_basic_set(self._kernel.get_inames_domain(frozenset(inames))))

    def domain(self, inames: Iterable[str], loops: tuple[str, ...], extents: Mapping[str, Any]) -> Instances:
        """Return a statement's instances; along axes of the launch that no iname is tagged with, all execute it.

        Loops are outermost first, extents those of the launch by axis, such as ``gid0``.
        """
        key = frozenset(inames), loops, tuple(extents.items())
        if key not in self._made:
            self._made[key] = self._make(key[0], loops, extents)
        return self._made[key]

    def _make(self, inames: frozenset[str], loops: tuple[str, ...], extents: Mapping[str, Any]) -> Instances:
        on_axis, sequential = self.axes(inames)
        inner, copied = [loop for loop in loops if loop in sequential], tuple(sorted(sequential - set(loops)))
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
        domain = named
        for position, (name, iname) in enumerate(zip(target, source, strict=True)):
            domain = domain.set_dim_name(_SET, position, name)
            named = named.set_dim_name(_SET, position, iname)
        return Instances(domain, named.get_space(), axes, copied)

    def numbers(self, names: Sequence[str], lanes: int = 1) -> Any:
        """Return the map from values of some dimensions to work-items counted from 0; None where that is the same.

        A parallel loop that starts at 2 runs on the work-items from 0 on.
        """
        starts = [self._start(name) for name in names]
        shifts = [one if one is None else one.add_dims(isl.dim_type.in_, at) for at, one in enumerate(starts)]
        return numbers_of(shifts, 0, len(names) + (lanes > 1), self._parameters)

    def entered(self, entry: int, loops: Sequence[str], axes: Iterable[str]) -> Any:
        """Return the iterations, on work-items from 0 on, of a loop that may begin anywhere; None for other loops.

        The loop is the last of `loops`, which are outermost first, and is entered at a place of the linearization.
        """
        loop = loops[-1]
        home = self._kernel.domains[self._kernel.get_home_domain_index(loop)]
        # Copies of a loop's body begin at one value.
        written_out = self._kernel.inames[loop].tags_of_type((UnrollTag, IlpBaseTag, VectorizeTag))
        if written_out or begins_alike(home, home.find_dim_by_name(_SET, loop), self._parameters):
            return None
        # What the generated code knows there: within a loop with barriers, all work-items begin alike.
        usable = get_usable_inames_for_conditional(self._kernel, entry, self._code)
        found = self.loopys([loop])
        names = found.get_var_names(_SET)
        numbers = self.numbers(names)
        found = found if numbers is None else found.apply(numbers)
        places = {name: f"_{self._axis(name)}".rstrip("_") or f"{name}_" for name in names if name in usable}
        places[loop] = f"{loop}_"
        held = " and ".join(f"{place} = {name}" for name, place in places.items())
        there = ", ".join([*(f"_{axis}" for axis in axes), *(f"{name}_" for name in loops)])
        return found.apply(isl.Map(f"{{ [{', '.join(names)}] -> [{there}] : {held} }}"))

    def _start(self, iname: str) -> Any:
        """Return the iteration of a parallel loop that runs on work-item 0, a function of sizes; None if it is 0."""
        if not self._axis(iname):
            return None
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
