"""Where the sequential loops of a scheduled loopy kernel begin, as the generated code has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from loopy.codegen.bounds import get_usable_inames_for_conditional
from loopy.codegen.tools import CodegenOperationCacheManager
from loopy.kernel.data import IlpBaseTag, LocalInameTag, UnrollTag, VectorizeTag

from perflex.features.polynomials.late_values import align_parameters
from perflex.features.scop.loop_starts import begins_alike, shift_of
from perflex.isl import isl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.features.from_loopy.facts import KernelFacts

_SET = isl.dim_type.set


@dataclass(frozen=True)
class Shift:
    """What a loop's values exceed its numbers by."""

    around: tuple[str, ...]  # loopy's names of work-groups, work-items and loops around it
    value: Any  # isl function of their values


class LoopShifts:
    """Finds them; one loop of the kernel may be entered at several places of its linearization."""

    def __init__(self, facts: KernelFacts, assumptions: Any) -> None:
        self._kernel = facts.kernel
        self._trips = facts.trips
        self._parameters = facts.parameters
        self._assumptions = assumptions
        self._code = CodegenOperationCacheManager.from_kernel(facts.kernel)
        self._found: dict[int, Shift | None] = {}

    def of(self, entry: int, outer: Sequence[int]) -> Shift | None:
        """Return that of the loop entered at a place of the linearization; None where all begin at the same value.

        Loops `outer` are around it, outermost first.
        """
        if entry not in self._found:
            self._found[entry] = self._shift(entry, outer)
        return self._found[entry]

    def _name(self, entry: int) -> str:
        return str(self._kernel.linearization[entry].iname)

    def _shift(self, entry: int, outer: Sequence[int]) -> Shift | None:
        loop = self._name(entry)
        written_out = self._kernel.inames[loop].tags_of_type((UnrollTag, IlpBaseTag, VectorizeTag))
        home = self._kernel.domains[self._kernel.get_home_domain_index(loop)]
        # The host's loops are the same for all work-items, and copies of a loop's body begin at one value.
        on_host = self._code.callkernel_index[entry] is None
        if written_out or on_host or begins_alike(home, home.find_dim_by_name(_SET, loop), self._parameters):
            return None
        usable = get_usable_inames_for_conditional(self._kernel, entry, self._code)
        domain = self._trips.bounded(isl.Set.from_basic_set(self._kernel.get_inames_domain(loop)))
        domain = align_parameters(domain, self._parameters).intersect_params(self._assumptions)
        names = domain.get_var_names(_SET)
        around = tuple(name for name in names if name in usable)
        order = isl.Map(f"{{ [{', '.join(names)}] -> [[{', '.join(around)}] -> [{loop}]] }}")
        items = [place for place, name in enumerate(around) if self._kernel.inames[name].tags_of_type(LocalInameTag)]
        value = shift_of(domain.apply(order).unwrap(), items, self._numbers(around, outer))
        return None if value is None else Shift(around, align_parameters(value, self._parameters))

    def _numbers(self, around: tuple[str, ...], outer: Sequence[int]) -> Any:
        """Return the map from values around a loop to those where loops around it are numbered; None for the same."""
        shifts = {self._name(entry): self.of(entry, outer[:place]) for place, entry in enumerate(outer)}
        if not any(shifts.get(name) for name in around):
            return None
        space = align_parameters(isl.Set(f"{{ [{', '.join(around)}] }}"), self._parameters).get_space()
        local = isl.LocalSpace.from_space(space)
        values = {name: isl.PwAff.var_on_domain(local, _SET, place) for place, name in enumerate(around)}
        numbers = isl.Map.from_domain(isl.Set.universe(space))
        for name, value in values.items():
            shift = shifts.get(name)
            number = value if shift is None else value.sub(composed(shift, values))
            numbers = numbers.flat_range_product(isl.Map.from_pw_aff(number))
        return numbers


def composed(shift: Shift, values: dict[str, Any]) -> Any:
    """Return a shift as a function of what the values around the loop, by name, are functions of."""
    first, *more = (isl.PwMultiAff.from_pw_aff(values[name]) for name in shift.around)
    for value in more:
        first = first.flat_range_product(value)
    return shift.value.pullback_pw_multi_aff(first)
