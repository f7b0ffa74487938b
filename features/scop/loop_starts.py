"""Loops counted by the number of the iteration: in lock step, each work-item of a sub-group is in its own n-th one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perflex.isl import isl

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_IN = isl.dim_type.in_


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
