"""Sets of iterations: of one loop, of those behind others, the last one, how many there are; what each adds."""

from __future__ import annotations

from typing import Any

from perflex.features.from_source.integers import Integer, NotAffineError, constant, names_in, tidy, variable
from perflex.features.from_source.values import Pointer, Value, counted_by
from perflex.isl import isl

NOWHERE, EVERYWHERE = isl.Set("{ [] : 1 = 0 }"), isl.Set("{ [] }")


def overlap(one: Any, two: Any) -> Any:
    """Return where two sets overlap; None is everywhere."""
    return two if one is None else one if two is None else one.intersect(two)


def along(domain: Any, counter: str) -> Any:
    """Return a set with one of its loops as its only dimension."""
    place = domain.find_dim_by_name(isl.dim_type.param, counter)
    return domain.move_dims(isl.dim_type.set, 0, isl.dim_type.param, place, 1)


def later(leaving: Any, counter: str) -> Any:
    """Return the iterations behind one in which a loop is left: those of which an earlier one is in a set."""
    earlier = isl.Set(f"[{counter}] -> {{ [e] : 0 <= e < {counter} }}")
    moved = along(leaving, counter).set_dim_name(isl.dim_type.set, 0, "e")
    return moved.intersect(earlier).project_out(isl.dim_type.set, 0, 1)


def any_iteration(domain: Any, counter: str) -> Any:
    """Return a set without one of its loops."""
    return along(domain, counter).project_out(isl.dim_type.set, 0, 1)


def has_end(iterations: Any, counter: str) -> bool:
    """Return whether iterations have an end."""
    counted = along(iterations, counter)
    return bool(counted.is_empty() or counted.dim_has_upper_bound(isl.dim_type.set, 0))


def last_iteration(iterations: Any, counter: str) -> Any:
    """Return the last of iterations that have an end."""
    place = iterations.find_dim_by_name(isl.dim_type.param, counter)
    found = along(iterations, counter).lexmax().move_dims(isl.dim_type.param, place, isl.dim_type.set, 0, 1)
    return found.set_dim_name(isl.dim_type.param, place, counter)


def without(term: Any, last: Any, counter: str) -> Any:
    """Return an expression as a function of what is outside the loop."""
    values = isl.Map.from_pw_aff(term.intersect_domain(last))
    place = values.find_dim_by_name(isl.dim_type.param, counter)
    values = values if place < 0 else values.project_out(isl.dim_type.param, place, 1)
    return tidy(values.as_pw_multi_aff().get_pw_aff(0))


def trip_count(iterations: Any, counter: str, around: Any) -> Integer | None:
    """Return the number of iterations as a function of what is outside the loop."""
    if not has_end(iterations, counter):
        return None
    counted = along(iterations, counter)
    try:
        last = isl.Map.from_domain_and_range(isl.Set("{ [] }"), counted).lexmax()
        none = constant(0).intersect_domain(around.subtract(any_iteration(iterations, counter)))
        found = last.as_pw_multi_aff().get_pw_aff(0).add(constant(1))
        return Integer.of(tidy(found.union_add(none).coalesce()))
    except (NotAffineError, isl.Error):
        return None


def step_of(before: Value, after: Value | None, name: str, unknowns: set[str], final: Any) -> Integer | None:
    """Return what an iteration adds to a variable; None if that is not the same each time."""
    if isinstance(before, Pointer) and (not isinstance(after, Pointer) or after.array != before.array):
        return None
    offset, old = None if after is None else counted_by(after), counted_by(before)
    if offset is None:
        return None
    if old is not None and unknowns.isdisjoint(offset.names) and offset.equals(old):
        return Integer.of(0, offset.dtype)
    difference = offset.plus(Integer.of(variable(name)), -1)
    terms = {}
    for product, term in difference.terms.items():
        simple = term.gist(final).coalesce() if term.n_piece() > 1 or names_in(term) & unknowns else term
        if names_in(simple) & unknowns:
            return None
        terms[product] = simple
    return Integer(terms, offset.dtype)
