"""What accesses touch: strides and distinct elements (paper Section 5, Algorithm 2), and what counts rest on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from perflex.features.polynomials.affine import without_cases
from perflex.features.polynomials.cardinality import SYMBOLIC_LIMIT, TooManyOperationsError, limited
from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
from perflex.isl import isl

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from perflex.features.scop.scop import Access, Barrier, Scop, Statement

    _Made = tuple[Statement, Access]
    # Array and distances between neighbours along the axes of its subscripts.
    _Way = tuple[str, tuple[QuasiPolynomial, ...]]


@dataclass(frozen=True)
class Certainty:
    """What a count rests on; certainties of the parts of a sum are joined with ``|``.

    Attributes
    ----------
    bound
        Whether it is an upper bound, because a data-dependent condition may skip instances or because it is
        not known which elements are touched.
    stated
        Whether it rests on what the user stated, e.g. an average trip count or the place of an indirect access.
    estimated
        Whether it is an estimate, such as cycles of machine code.
    """

    bound: bool = False
    stated: bool = False
    estimated: bool = False

    @property
    def exact(self) -> bool:
        """Whether the count is exact."""
        return not self.bound and not self.stated and not self.estimated

    @property
    def relation(self) -> str:
        """How the true number relates to the count: ``"="``, ``"<="``, or ``"~"`` where neither is certain."""
        # What was stated may be too low: with it, not even an upper bound is one.
        return "~" if self.stated or self.estimated else "<=" if self.bound else "="

    def __or__(self, other: Certainty) -> Certainty:
        return Certainty(self.bound or other.bound, self.stated or other.stated, self.estimated or other.estimated)

    def __str__(self) -> str:
        words = (("upper bound", self.bound), ("as stated", self.stated), ("estimated", self.estimated))
        return " ".join(word for word, holds in words if holds) or "exact"


def certainty_of_statement(scop: Scop, statement: Statement | Barrier) -> Certainty:
    """Return what the number of instances of a statement or barrier rests on."""
    return Certainty(bound=statement.guarded, stated=bool(scop.assumed(statement)))


def certainty_of_access(scop: Scop, statement: Statement, access: Access) -> Certainty:
    """Return what the number of an access's executions rests on."""
    return certainty_of_statement(scop, statement) | Certainty(stated=bool(access.assumed))


def certainty_of_all(scop: Scop) -> Certainty:
    """Return what a number rests on that all statements, accesses and barriers of a kernel decide."""
    executed = [certainty_of_statement(scop, one) for one in scop.statements]
    executed += [certainty_of_statement(scop, one) for one in scop.barriers]
    stated = any(access.assumed for one in scop.statements for access in one.accesses)
    return reduce(or_, executed, Certainty(stated=stated))


def distinct_elements(
    accesses: Iterable[_Made], scop: Scop, known: dict[frozenset[tuple[int, int]], QuasiPolynomial]
) -> list[tuple[str, QuasiPolynomial]]:
    """Return the distinct elements that accesses touch, for each array and way of subscripting it.

    Elements of an array that is subscripted in different ways (an index tuple here, a flattened one there)
    are counted once for each way. `known` keeps what was counted: accesses of different selections are often the same.
    """
    ways: dict[_Way, list[_Made]] = {}
    for statement, access in accesses:
        ways.setdefault(_way(scop, access), []).append((statement, access))
    found = []
    for (array, _), members in ways.items():
        # Ids do for keys: statements and accesses live as long as the Scop.
        key = frozenset((id(statement), id(access)) for statement, access in members)
        if key not in known:
            known[key] = _points(_union([_elements(*one) for one in members]), scop.assumptions)
        found.append((array, known[key]))
    return found


def elements_certainty(accesses: Sequence[_Made], scop: Scop) -> Certainty:
    """Return what the number of distinct elements rests on.

    An access of which it is not certain what it touches does no harm where certain ones touch all of that.
    """
    certain: dict[_Way, list[Any]] = {}
    doubtful: list[tuple[_Way, Any, Certainty]] = []
    ways = set()
    for statement, access in accesses:
        way = _way(scop, access)
        ways.add(way)
        certainty = certainty_of_access(scop, statement, access)
        if not access.injective or not access.relation.is_single_valued():
            certainty = certainty | Certainty(bound=True)
        if certainty.exact:
            certain.setdefault(way, []).append((statement, access))
        else:
            doubtful.append((way, _elements(statement, access), certainty))
    # Subscripted in two ways, one element may be counted twice.
    total = Certainty(bound=len(ways) > len({array for array, _ in ways}))
    # The union is only needed where there is a doubt.
    unions = {way: _union([_elements(*one) for one in certain[way]]) for way, _, _ in doubtful if way in certain}
    for way, elements, certainty in doubtful:
        if not (way in unions and _is_within(elements, unions[way])):
            total = total | certainty
    return total


def _way(scop: Scop, access: Access) -> _Way:
    # Equal strides make equal axes: only then do two relations number the same elements alike.
    return access.array, _axis_strides(scop, access)


def _axis_strides(scop: Scop, access: Access) -> tuple[QuasiPolynomial, ...]:
    return scop.array(access.array).strides if access.strides is None else access.strides


def _elements(statement: Statement, access: Access) -> Any:
    return access.relation.intersect_domain(statement.domain).range()


def _union(sets: Sequence[Any]) -> Any:
    total = sets[0]
    # A load and a store of one element make equal sets: found by hash, they spare isl a union.
    for elements in list(dict.fromkeys(sets))[1:]:
        total = total.union(elements)
    return total


def _points(union: Any, assumptions: Any) -> QuasiPolynomial:
    try:
        with limited(SYMBOLIC_LIMIT):
            coalesced = union.coalesce()
        return QuasiPolynomial.points(union, assumptions, coalesced)
    except (TooManyOperationsError, isl.Error):
        # Simplified for all sizes, the set may be harder to count than the plain union at given ones. And some sets isl
        # fails to simplify, for an error of its own.
        return QuasiPolynomial.points_at_sizes(union, assumptions)


def _is_within(part: Any, whole: Any) -> bool:
    try:
        with limited(SYMBOLIC_LIMIT):
            return bool(part.is_subset(whole))
    except TooManyOperationsError:
        # Undecided counts as not covered, which errs towards "upper bound".
        return False


def strides_along(
    scop: Scop, statement: Statement, access: Access, axes: Iterable[int]
) -> tuple[QuasiPolynomial | None, ...]:
    """Return the strides along axes of a statement's instances, also loops', in elements; None where one varies."""
    if not access.relation.is_single_valued():
        return tuple(None for _ in axes)
    along = _axis_strides(scop, access)
    # Without cases and floors, as usual, the coefficient is the stride; differences take isl longer.
    indices = without_cases(access.relation)
    found: list[QuasiPolynomial | None] = []
    for axis in axes:
        steps = [
            index.coefficient(axis)
            if index is not None and axis not in index.floor_dims
            else _constant_step(statement, access, axis, position)
            for position, index in enumerate(indices)
        ]
        moved = [stride * step for step, stride in zip(steps, along, strict=True) if step]
        found.append(None if None in steps else QuasiPolynomial.total(moved))
    return tuple(found)


def stride_along(scop: Scop, statement: Statement, access: Access, axis: int) -> QuasiPolynomial | None:
    """Return the stride along one axis of a statement's instances, as `strides_along`."""
    return strides_along(scop, statement, access, (axis,))[0]


def _constant_step(statement: Statement, access: Access, axis: int, position: int) -> int | None:
    """Return the step from the differences between instances along the axis, if it is one number.

    This settles subscripts with floors: (16*gid + lid) // 16 does not depend on lid when lid < 16, and
    lid % 4 or lid // 2 have no single stride. Where a condition leaves out neighbours, those that are left count.
    """
    kinds = isl.dim_type
    domain = statement.domain
    index = access.relation.project_out(kinds.out, position + 1, access.relation.dim(kinds.out) - position - 1)
    index = index.project_out(kinds.out, 0, position)
    place = isl.MultiAff.identity(domain.get_space().map_from_set()).get_at(axis)
    # From instances to those further along the axis that differ in nothing else.
    others = isl.Map.identity(domain.get_space().map_from_set()).drop_constraints_involving_dims(kinds.out, axis, 1)
    pairs = others.order_lt(kinds.in_, axis, kinds.out, axis).intersect_domain(domain).intersect_range(domain)
    if pairs.is_empty():
        return 0  # nothing moves
    placed = isl.Map.from_aff(place).flat_range_product(index)
    differences = pairs.apply_domain(placed).apply_range(placed).deltas()
    sample = differences.sample_point()
    distance, change = (sample.get_coordinate_val(kinds.set, dim).to_python() for dim in (0, 1))
    if change % distance:
        return None
    step = int(change // distance)
    return step if differences.is_subset(isl.Set(f"{{ [distance, {step} * distance] }}")) else None
