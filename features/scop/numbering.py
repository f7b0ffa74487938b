"""Loops counted by the number of the iteration: in lock step, each work-item of a sub-group is in its own n-th one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

from msgspec.structs import replace

from perflex.errors import UnsupportedKernelError
from perflex.features.polynomials.cardinality import TooManyOperationsError, limited
from perflex.isl import align_parameters, isl

_IN, _SET, _PARAM = isl.dim_type.in_, isl.dim_type.set, isl.dim_type.param
_MOST_OPERATIONS = 1_000_000


# Scops are made with it, so that it knows their fields, but not their classes.
def by_number(
    scop: Any, entered: Mapping[tuple[int, int], Any] | None = None
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return a Scop's statements and barriers with loops that begin at 0 for all work-items, however they were written.

    A loop begins at the first iteration that a statement or barrier in it has, or that `entered` has: sets of all
    iterations by launch and loop, for those loops that do not begin at 0.
    """
    shifts = [_shifts(scop, launch, entered) for launch in range(len(scop.launches))]
    found = []
    for one in (*scop.statements, *scop.barriers):
        around = [shifts[one.launch][loop] for loop in one.loops]
        numbers = numbers_of(around, scop.launches[one.launch].axes, one.domain.dim(_SET), scop.parameters)
        found.append(moved(one, numbers))
    return tuple(found[: len(scop.statements)]), tuple(found[len(scop.statements) :])


def moved(one: Any, numbers: Any) -> Any:
    """Return a statement or barrier whose instances a map gives other places; None for the same."""
    if numbers is None:
        return one
    changed = {"domain": _like(one.domain, one.domain.apply(numbers), _SET).coalesce()}
    if hasattr(one, "accesses"):
        relations = (_like(each.relation, each.relation.apply_domain(numbers), _IN) for each in one.accesses)
        pairs = zip(one.accesses, relations, strict=True)
        changed["accesses"] = tuple(replace(each, relation=relation) for each, relation in pairs)
    return replace(one, **changed)


def _like(before: Any, after: Any, kind: Any) -> Any:
    """Return a set or map with the parameters and the names of dimensions that another one has."""
    after = align_parameters(after, before.get_var_names(_PARAM))
    for position, name in enumerate(before.get_var_names(kind)):
        after = after.set_dim_name(kind, position, name) if name else after
    return after


def _shifts(scop: Any, launch: int, entered: Mapping[tuple[int, int], Any] | None) -> list[Any]:
    """Return what the values of a launch's loops exceed their numbers by; None for nothing."""
    inside = [one for one in (*scop.statements, *scop.barriers) if one.launch == launch]
    found: list[list[Any]] = []  # Of each loop, behind those of the loops around it
    for number, loop in enumerate(scop.launches[launch].loops):
        around = [] if loop.parent is None else found[loop.parent]
        domains = [one.domain for one in inside if number in one.loops]
        if entered is not None:
            domains = [entered[launch, number]] if (launch, number) in entered else []
        found.append([*around, _shift(scop, launch, loop, around, domains)])
    return [each[-1] for each in found]


def numbers_of(shifts: Sequence[Any], axes: int, dims: int, parameters: Sequence[str]) -> Any:
    """Return the map from instances, of so many dimensions, in shifted loops to those by number; None for the same."""
    if all(shift is None for shift in shifts):
        return None
    space = align_parameters(isl.Set(f"{{ [{_dims(dims)}] }}"), parameters).get_space()
    local = isl.LocalSpace.from_space(space)
    numbers = isl.Map.from_domain(isl.Set.universe(space))
    for position in range(dims):
        number = isl.PwAff.var_on_domain(local, _SET, position)
        shift = shifts[position - axes] if axes <= position < axes + len(shifts) else None
        if shift is not None:
            # What is around a loop comes before it.
            number = number.sub(shift.add_dims(_IN, dims - position))
        numbers = numbers.flat_range_product(isl.Map.from_pw_aff(number))
    return numbers


def _shift(scop: Any, launch: int, loop: Any, around: Sequence[Any], domains: Sequence[Any]) -> Any:
    """Return that of a loop, from those of the loops around it and the domains of what is in it."""
    groups, axes = len(scop.launches[launch].groups), scop.launches[launch].axes
    position = axes + len(around)
    pieces = (piece for domain in domains for piece in domain.get_basic_sets())
    if loop.kind == "host" or all(begins_alike(piece, position, scop.parameters) for piece in pieces):
        return None
    try:
        with limited(_MOST_OPERATIONS):
            outer = [each.project_out(_SET, position + 1, each.dim(_SET) - position - 1) for each in domains]
            entered = reduce(lambda one, other: one.union(other), outer).intersect_params(scop.assumptions)
            # Counting refuses what is not bounded.
            if not entered.dim_has_lower_bound(_SET, position):
                return None
            order = isl.Map(f"{{ [{_dims(position + 1)}] -> [[{_dims(position)}] -> [d{position}]] }}")
            numbers = numbers_of(around, axes, position, scop.parameters)
            shift = _shift_of(entered.apply(order).unwrap(), range(groups, axes), numbers)
            return None if shift is None else align_parameters(shift, scop.parameters)
    except (isl.Error, TooManyOperationsError):
        msg = f"where loop {loop.name!r} of kernel {scop.name!r} begins takes isl too long; let it begin at 0"
        raise UnsupportedKernelError(msg, kernel=scop.name, loop=loop.name) from None


def _dims(count: int) -> str:
    return ", ".join(f"d{place}" for place in range(count))


def begins_alike(conjunction: Any, position: int, sizes: Sequence[str]) -> bool:
    """Whether no lower bound of a dimension of a basic set has other dimensions in it: quickly found, mostly true."""
    return not any(
        _involves_more(constraint, position, sizes)
        for constraint in conjunction.get_constraints()
        if constraint.is_equality() or constraint.get_coefficient_val(_SET, position).is_pos()
    )


def _involves_more(constraint: Any, position: int, sizes: Sequence[str]) -> bool:
    if not constraint.involves_dims(_SET, position, 1):
        return False
    return bool(
        constraint.involves_dims(_SET, 0, position)
        or constraint.involves_dims(_SET, position + 1, constraint.dim(_SET) - position - 1)
        or constraint.involves_dims(isl.dim_type.div, 0, constraint.dim(isl.dim_type.div))
        or any(
            constraint.get_dim_name(_PARAM, place) not in sizes
            for place in range(constraint.dim(_PARAM))
            if constraint.involves_dims(_PARAM, place, 1)
        )
    )


def _shift_of(iterations: Any, items: Sequence[int], numbers: Any = None) -> Any:
    """Return what to subtract from a loop's values for numbers that work-items have in common; None for nothing.

    It is the first iteration, or an affine function that differs from it by the same small number for all work-items of
    a group, so that subscripts stay affine: 32*k for ``max(1, 32*k)``.

    Parameters
    ----------
    iterations
        isl map from what is around the loop, work-groups and work-items included, to the loop's values.
    items
        Positions of the work-items' indices among its inputs.
    numbers
        isl map from these inputs to those with outer loops by number; None where they are the same.
    """
    first = iterations.lexmin().as_pw_multi_aff().get_pw_aff(0)
    first = first.gist(first.domain()).coalesce()
    if not _varies(first):
        return None
    best, least = first, None
    for candidate in _pieces(first):
        more = first.sub(candidate)
        low, high = more.min_val(), more.max_val()
        if low.is_neg() or not high.is_int() or (least is not None and high.ge(least)):
            continue
        if high.is_zero() or _is_common(more, items, numbers):
            best, least = candidate, high
    return best if _varies(best) else None


def _varies(value: Any) -> bool:
    return bool(value.involves_dims(_IN, 0, value.dim(_IN)))


def _pieces(value: Any) -> Iterator[Any]:
    """Yield the cases of a function, each for all inputs; those that are the same for all inputs first."""
    cases = {str(case): isl.PwAff.from_aff(case) for _, case in value.get_pieces()}
    yield from sorted(cases.values(), key=_varies)


def _is_common(value: Any, items: Iterable[int], numbers: Any) -> bool:
    """Return whether a function is the same for all work-items of a group in the same iterations of outer loops."""
    known = isl.Map.from_pw_aff(value)
    if numbers is not None:
        known = known.apply_domain(numbers)
    for position in sorted(items, reverse=True):
        known = known.project_out(_IN, position, 1)
    return bool(known.is_single_valued())
