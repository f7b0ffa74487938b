"""Loops counted by the number of the iteration: in lock step, each work-item of a sub-group is in its own n-th one."""

from __future__ import annotations

from collections import defaultdict
from functools import reduce
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from perflex.errors import UnsupportedKernelError
from perflex.features.polynomials.cardinality import TooManyOperationsError, limited
from perflex.isl import align_parameters, isl

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_IN, _SET, _PARAM = isl.dim_type.in_, isl.dim_type.set, isl.dim_type.param
_MOST_OPERATIONS = 1_000_000


# Scops are made with it, so that it knows their fields, but not their classes.
def by_number(scop: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return a Scop's statements and barriers with loops that begin at 0 for all work-items, however they were written.

    A loop begins at the first iteration that a statement or barrier in it has.
    """
    loops = _Loops(scop)
    moved = []
    for one in (*scop.statements, *scop.barriers):
        numbers = loops.numbers(one.launch, one.loops, one.domain.dim(_SET))
        moved.append(one if numbers is None else _moved(one, numbers))
    return tuple(moved[: len(scop.statements)]), tuple(moved[len(scop.statements) :])


def _moved(scheduled: Any, numbers: Any) -> Any:
    domain = _like(scheduled.domain, scheduled.domain.apply(numbers), _SET).coalesce()
    if not hasattr(scheduled, "accesses"):
        return replace(scheduled, domain=domain)
    relations = ((one, _like(one.relation, one.relation.apply_domain(numbers), _IN)) for one in scheduled.accesses)
    return replace(
        scheduled, domain=domain, accesses=tuple(replace(one, relation=relation) for one, relation in relations)
    )


def _like(before: Any, after: Any, kind: Any) -> Any:
    """Return a set or map with the parameters and the names of dimensions that another one has."""
    after = align_parameters(after, before.get_var_names(_PARAM))
    for position, name in enumerate(before.get_var_names(kind)):
        after = after.set_dim_name(kind, position, name) if name else after
    return after


class _Loops:
    """The loops of a Scop, by launch and place in its list, and what their values exceed their numbers by."""

    def __init__(self, scop: Any) -> None:
        self._scop = scop
        self._domains: dict[tuple[int, int], list[Any]] = defaultdict(list)
        self._shifts: dict[tuple[int, int], Any] = {}
        for one in (*scop.statements, *scop.barriers):
            for loop in one.loops:
                self._domains[one.launch, loop].append(one.domain)

    def numbers(self, launch: int, loops: Sequence[int], dims: int) -> Any:
        """Return the map from so many dimensions of instances in some loops to those by number; None for the same."""
        shifts = [self._shift(launch, loops[: depth + 1]) for depth in range(len(loops))]
        if all(shift is None for shift in shifts):
            return None
        axes = self._scop.launches[launch].axes
        space = align_parameters(isl.Set(f"{{ [{_dims(dims)}] }}"), self._scop.parameters).get_space()
        local = isl.LocalSpace.from_space(space)
        numbers = isl.Map.from_domain(isl.Set.universe(space))
        for position in range(dims):
            number = isl.PwAff.var_on_domain(local, _SET, position)
            shift = shifts[position - axes] if axes <= position < axes + len(loops) else None
            if shift is not None:
                # What is around a loop comes before it.
                number = number.sub(shift.add_dims(_IN, dims - position))
            numbers = numbers.flat_range_product(isl.Map.from_pw_aff(number))
        return numbers

    def _shift(self, launch: int, loops: Sequence[int]) -> Any:
        """Return that of the innermost of some loops around one another; None for nothing."""
        key = launch, loops[-1]
        if key not in self._shifts:
            self._shifts[key] = self._found(launch, loops)
        return self._shifts[key]

    def _found(self, launch: int, loops: Sequence[int]) -> Any:
        domains, position = self._domains[launch, loops[-1]], self._scop.launches[launch].axes + len(loops) - 1
        loop = self._scop.launches[launch].loops[loops[-1]]
        if loop.kind == "host":
            return None
        pieces = [piece for domain in domains for piece in domain.get_basic_sets()]
        if all(begins_alike(piece, position, self._scop.parameters) for piece in pieces):
            return None
        try:
            with limited(_MOST_OPERATIONS):
                return self._first(launch, loops, domains)
        except (isl.Error, TooManyOperationsError):
            msg = f"where loop {loop.name!r} of kernel {self._scop.name!r} begins takes isl too long; let it begin at 0"
            raise UnsupportedKernelError(msg, kernel=self._scop.name, loop=loop.name) from None

    def _first(self, launch: int, loops: Sequence[int], domains: Sequence[Any]) -> Any:
        groups, axes = len(self._scop.launches[launch].groups), self._scop.launches[launch].axes
        position = axes + len(loops) - 1
        outer = [each.project_out(_SET, position + 1, each.dim(_SET) - position - 1) for each in domains]
        entered = reduce(lambda one, other: one.union(other), outer).intersect_params(self._scop.assumptions)
        # Counting refuses what is not bounded.
        if not entered.dim_has_lower_bound(_SET, position):
            return None
        order = isl.Map(f"{{ [{_dims(position + 1)}] -> [[{_dims(position)}] -> [d{position}]] }}")
        items = range(groups, axes)
        shift = shift_of(entered.apply(order).unwrap(), items, self.numbers(launch, loops[:-1], position))
        return None if shift is None else align_parameters(shift, self._scop.parameters)


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


def shift_of(iterations: Any, items: Sequence[int], numbers: Any = None) -> Any:
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
