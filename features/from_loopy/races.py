"""Sparing loopy a check whose outcome is known.

While it schedules, loopy looks at all pairs of dependent instructions that touch one global array, whether work-items
meet in an element without a barrier between. That takes a millisecond per pair: half a minute for 200 instructions in a
row. Mostly every work-item keeps to elements of its own, which shows in the subscripts, without any pairs.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from perflex.features.from_loopy.terms import substituted
from perflex.isl import isl

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# With no more pairs of instructions, loopy's check takes less time than ours.
_FEW = 3


def spare_race_check(kernel: Any, callables: Any) -> Any:
    """Return a preprocessed kernel, without loopy's check for missing global barriers if that would find none."""
    written = kernel.global_var_names() & kernel.get_written_variables()
    # With insert_gbarriers loopy does not check but inserts: turned off, the kernel would lose barriers.
    if kernel.options.insert_gbarriers or _pairs(kernel, written) <= _FEW or not _all_apart(kernel, callables, written):
        return kernel
    return kernel.copy(options=kernel.options.copy(disable_global_barriers=True))


def _pairs(kernel: Any, written: frozenset[str]) -> int:
    """Return how many pairs of instructions touch one of the arrays."""
    touching = Counter(name for insn in kernel.instructions for name in _touched(insn, written))
    return sum(count * (count - 1) // 2 for count in touching.values())


def _touched(insn: Any, names: frozenset[str]) -> frozenset[str]:
    return frozenset(names & (insn.dependency_names() | insn.write_dependency_names()))


def _all_apart(kernel: Any, callables: Any, written: frozenset[str]) -> bool:
    """Return whether no two work-items touch the same element of a global array that is written."""
    # Arrays with a common base storage overlap, which subscripts do not show.
    bases = kernel.get_temporary_to_base_storage_map()
    if any(name in bases for name in written):
        return False
    groups, items = kernel.get_grid_size_upper_bounds_as_exprs(callables)
    if not all(isinstance(extent, int) for extent in items):
        return False
    # Groups may be symbolic and stay unbounded: what is injective over all groups is so over those launched.
    axes: dict[str, int | None] = {f"g{axis}": None for axis in range(len(groups))}
    axes |= {f"l{axis}": int(extent) for axis, extent in enumerate(items)}
    common: dict[str, list[Any]] = {}
    for name, subscript in _accesses(kernel, written, axes):
        if subscript is None:
            return False
        known = common.setdefault(name, list(subscript))
        # Only indices that all accesses share tell work-items apart: y[i, 0] and y[i, 1] both stay in row i.
        common[name] = [one if one == other else None for one, other in zip(known, subscript, strict=True)]
    return all(_is_injective(kernel, [one for one in found if one is not None], axes) for found in common.values())


def _accesses(
    kernel: Any, names: frozenset[str], axes: Mapping[str, int | None]
) -> Iterator[tuple[str, tuple[Any, ...] | None]]:
    """Yield each access to the arrays: its subscript over the axes, or None where it cannot be told."""
    from loopy.kernel.instruction import MultiAssignmentBase
    from loopy.symbolic import DependencyMapper
    from pymbolic.primitives import Variable

    # Subscripts are reported whole; an access inside of one is not, hence `unseen`.
    dependencies = DependencyMapper(include_subscripts=True)
    for insn in kernel.instructions:
        touched = _touched(insn, names)
        if not touched:
            continue
        places = _places(kernel, insn.within_inames)
        # All work-items along an axis that the instruction lacks execute it, on the same elements.
        if not isinstance(insn, MultiAssignmentBase) or places is None or set(places.values()) != set(axes):
            yield next(iter(touched)), None
            continue
        names_of = {iname: Variable(place) for iname, place in places.items()}
        unseen = set(touched)
        for expression in (*insn.assignees, insn.expression, *insn.predicates):
            for dependency in dependencies(expression):
                name = getattr(getattr(dependency, "aggregate", dependency), "name", None)
                if name is not None and name in touched:
                    unseen.discard(name)
                    indices = getattr(dependency, "index_tuple", None)
                    yield name, None if indices is None else tuple(substituted(index, names_of) for index in indices)
        for name in unseen:  # inside another subscript
            yield name, None


def _places(kernel: Any, inames: frozenset[str]) -> dict[str, str] | None:
    """Return the axis of each loop variable that is one, or None where a work-item's index is not the variable's."""
    from loopy.kernel.data import GroupInameTag, LocalInameTag
    from loopy.kernel.tools import get_hw_axis_base_for_codegen

    places = {}
    for iname in inames:
        for tag in kernel.inames[iname].tags:
            if isinstance(tag, (GroupInameTag, LocalInameTag)):
                if not get_hw_axis_base_for_codegen(kernel, iname).plain_is_zero():
                    return None
                places[iname] = f"{'g' if isinstance(tag, GroupInameTag) else 'l'}{tag.axis}"
    return places


def _is_injective(kernel: Any, expressions: list[Any], axes: Mapping[str, int | None]) -> bool:
    """Return whether different work-items get different values of the expressions."""
    from loopy.diagnostic import ExpressionToAffineConversionError
    from loopy.symbolic import get_dependencies, guarded_pwaff_from_expr

    sizes = sorted(kernel.all_params())
    # To drop an index can only make the map less injective: in doubt, loopy checks.
    usable = [one for one in expressions if get_dependencies(one) <= {*axes, *sizes}]
    space = isl.Space.create_from_names(isl.DEFAULT_CONTEXT, set=list(axes), params=sizes)
    within = isl.Set.universe(space)
    for position, extent in enumerate(axes.values()):
        if extent is not None:
            within = within.lower_bound_val(isl.dim_type.set, position, isl.Val(0))
            within = within.upper_bound_val(isl.dim_type.set, position, isl.Val(extent - 1))
    values = isl.Map.from_domain(within)
    try:
        for expression in usable:
            value = isl.Map.from_pw_aff(guarded_pwaff_from_expr(space, expression, frozenset()))
            values = values.flat_range_product(value)
    except ExpressionToAffineConversionError:
        return False
    return bool(values.is_injective())
