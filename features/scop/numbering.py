"""Scops written by hand: their loops by the number of the iteration (`loop_starts`)."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from perflex.errors import UnsupportedKernelError
from perflex.features.polynomials.cardinality import TooManyOperationsError, limited
from perflex.features.polynomials.late_values import align_parameters
from perflex.features.scop.loop_starts import begins_alike, shift_of
from perflex.isl import isl

if TYPE_CHECKING:
    from collections.abc import Sequence

_SET = isl.dim_type.set
_MOST_OPERATIONS = 1_000_000


# What tells a loop from the launch's others: the schedule up to it.
_Path = tuple[object, ...]


# Scops are made with it, so that it knows their fields, but not their classes.
def by_number(scop: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return a Scop's statements and barriers with loops that begin at 0 for all work-items, however they were written.

    A loop begins at the first iteration that a statement or barrier in it has.
    """
    loops = _Loops(scop)
    statements = tuple(
        statement if (numbers := loops.numbers(place, statement)) is None else _moved(statement, numbers)
        for place, statement in enumerate(scop.statements)
    )
    barriers = tuple(
        barrier
        if (numbers := loops.numbers(len(scop.statements) + place, barrier)) is None
        else replace(barrier, domain=_applied(barrier.domain, numbers))
        for place, barrier in enumerate(scop.barriers)
    )
    return statements, barriers


def _moved(statement: Any, numbers: Any) -> Any:
    def access(one: Any) -> Any:
        names = one.relation.get_var_names(isl.dim_type.in_)
        relation = one.relation.apply_domain(numbers)
        for position, name in enumerate(names):
            relation = relation.set_dim_name(isl.dim_type.in_, position, name) if name else relation
        return replace(one, relation=align_parameters(relation, one.relation.get_var_names(isl.dim_type.param)))

    domain = _applied(statement.domain, numbers)
    return replace(statement, domain=domain, accesses=tuple(map(access, statement.accesses)))


def _applied(domain: Any, numbers: Any) -> Any:
    moved = align_parameters(domain.apply(numbers), domain.get_var_names(isl.dim_type.param)).coalesce()
    for position, name in enumerate(domain.get_var_names(_SET)):
        moved = moved.set_dim_name(_SET, position, name) if name else moved
    return moved


@dataclass
class _Loops:
    """The loops of a Scop, by launch and path, and what their values exceed their numbers by."""

    scop: Any
    domains: dict[tuple[int, _Path], list[Any]] = field(default_factory=lambda: defaultdict(list))
    shifts: dict[tuple[int, _Path], Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for number, scheduled in enumerate((*self.scop.statements, *self.scop.barriers)):
            for path in self._paths(number, scheduled):
                self.domains[scheduled.launch, path].append(scheduled.domain)

    def _axes(self, launch: int) -> int:
        return len(self.scop.launches[launch].groups) + len(self.scop.launches[launch].items)

    def _paths(self, number: int, scheduled: Any) -> list[_Path]:
        """Return the paths of the loops around a statement; those that its schedule does not name are its own."""
        schedule = scheduled.schedule
        paths = [schedule[: place + 1] for place, step in enumerate(schedule) if isinstance(step, str)]
        missing = scheduled.domain.dim(_SET) - self._axes(scheduled.launch) - len(paths)
        return [*paths, *(("own", number, place) for place in range(missing))]

    def numbers(self, number: int, scheduled: Any) -> Any:
        """Return the map from instances to those by number; None where they are the same."""
        return self._numbers(scheduled.launch, self._paths(number, scheduled))

    def _numbers(self, launch: int, paths: Sequence[_Path]) -> Any:
        shifts = [self._shift(launch, paths[: depth + 1]) for depth in range(len(paths))]
        if all(shift is None for shift in shifts):
            return None
        axes, rank = self._axes(launch), self._axes(launch) + len(paths)
        space = align_parameters(isl.Set(f"{{ [{_dims(rank)}] }}"), self.scop.parameters).get_space()
        local = isl.LocalSpace.from_space(space)
        numbers = isl.Map.from_domain(isl.Set.universe(space))
        for position in range(rank):
            number = isl.PwAff.var_on_domain(local, _SET, position)
            shift = shifts[position - axes] if position >= axes else None
            if shift is not None:
                # What is around a loop comes before it.
                number = number.sub(shift.add_dims(isl.dim_type.in_, rank - position))
            numbers = numbers.flat_range_product(isl.Map.from_pw_aff(number))
        return numbers

    def _shift(self, launch: int, paths: Sequence[_Path]) -> Any:
        """Return that of the innermost of some loops around one another; None for nothing."""
        key = launch, paths[-1]
        if key not in self.shifts:
            self.shifts[key] = self._found(launch, paths)
        return self.shifts[key]

    def _found(self, launch: int, paths: Sequence[_Path]) -> Any:
        domains, position = self.domains[launch, paths[-1]], self._axes(launch) + len(paths) - 1
        loop = paths[-1][-1]
        if loop in self.scop.launches[launch].host_loops:
            return None
        pieces = [piece for domain in domains for piece in domain.get_basic_sets()]
        if all(begins_alike(piece, position, self.scop.parameters) for piece in pieces):
            return None
        try:
            with limited(_MOST_OPERATIONS):
                return self._first(launch, paths, domains)
        except (isl.Error, TooManyOperationsError):
            msg = f"where loop {loop!r} of kernel {self.scop.name!r} begins takes isl too long; let it begin at 0"
            raise UnsupportedKernelError(msg, kernel=self.scop.name, loop=loop) from None

    def _first(self, launch: int, paths: Sequence[_Path], domains: Sequence[Any]) -> Any:
        groups, position = len(self.scop.launches[launch].groups), self._axes(launch) + len(paths) - 1
        outer = [each.project_out(_SET, position + 1, each.dim(_SET) - position - 1) for each in domains]
        entered = reduce(lambda one, other: one.union(other), outer).intersect_params(self.scop.assumptions)
        # Counting refuses what is not bounded.
        if not entered.dim_has_lower_bound(_SET, position):
            return None
        order = isl.Map(f"{{ [{_dims(position + 1)}] -> [[{_dims(position)}] -> [d{position}]] }}")
        items = range(groups, self._axes(launch))
        shift = shift_of(entered.apply(order).unwrap(), items, self._numbers(launch, paths[:-1]))
        return None if shift is None else align_parameters(shift, self.scop.parameters)


def _dims(count: int) -> str:
    return ", ".join(f"d{place}" for place in range(count))
