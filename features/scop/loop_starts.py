"""Loops counted by the number of the iteration: in lock step, each work-item of a sub-group is in its own n-th one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perflex.isl import isl

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_IN = isl.dim_type.in_
_SET = isl.dim_type.set
_PARAM = isl.dim_type.param


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
