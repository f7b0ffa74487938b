"""Footprints: the distinct elements that accesses touch, and how often each (paper Section 5, Algorithm 2)."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from perflex.features.polynomials.cardinality import SYMBOLIC_LIMIT, TooManyOperationsError, card, limited
from perflex.features.polynomials.late_values import computed_once
from perflex.features.polynomials.quasipolynomial import QuasiPolynomial

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from perflex.features.scop.scop import Access, Array, Scop, Statement


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
        if self.exact:
            return "exact"
        words = (("upper bound", self.bound), ("as stated", self.stated), ("estimated", self.estimated))
        return " ".join(word for word, holds in words if holds)


def certainty_of_statement(statement: Statement) -> Certainty:
    """Return what the number of a statement's instances rests on."""
    return Certainty(bound=statement.guarded, stated=bool(statement.stated))


_Value = TypeVar("_Value")


class CountsOfKernel(Protocol):
    """What accesses and footprints need of the counts of a kernel: `ScopCounts`, which stands above this module."""

    scop: Scop
    touched: dict[frozenset[tuple[int, int]], QuasiPolynomial]

    @property
    def accesses(self) -> tuple[AccessCounts, ...]:
        """Every access of every statement, in program order."""

    @property
    def names(self) -> dict[str, frozenset[str]]:
        """Names by the field of an identifier that takes them: ``"array"`` and ``"tag"``."""

    def instances(self, statement: Statement, sub_group_size: int | None = None) -> QuasiPolynomial:
        """Return how many work-item instances or, with a size, sub-group instances of a statement are executed."""

    def footprint_among(self, accesses: tuple[AccessCounts, ...]) -> Footprint:
        """Return what some of the kernel's accesses touch together, and how often."""

    def cached(self, kind: str, key: Sequence[object], compute: Callable[[], _Value]) -> _Value:
        """Return what `compute` returns, from memory or the store where it was computed before."""


@dataclass(frozen=True)
class AccessCounts:
    """Everything counted about one access.

    Attributes
    ----------
    statement, access, array
        What was counted.
    local_strides, group_strides
        Stride along each axis of the work-item and work-group index, in elements; None where the
        address is not affine in that index.
    number
        Position among the Scop's accesses.
    """

    owner: CountsOfKernel
    statement: Statement
    access: Access
    array: Array
    local_strides: tuple[QuasiPolynomial | None, ...]
    group_strides: tuple[QuasiPolynomial | None, ...]
    number: int

    @property
    def is_uniform(self) -> bool:
        """Whether all work-items of a sub-group's row touch one element: lid(0) stride 0 (Section 5)."""
        if not self.local_strides:
            return True
        first = self.local_strides[0]
        return first is not None and first.is_zero

    @property
    def per_sub_group(self) -> bool:
        """Whether the access is counted per sub-group: on-chip or uniform (Section 5)."""
        return self.array.space != "global" or self.is_uniform

    def count(self, sub_group_size: int) -> QuasiPolynomial:
        """Return the number of accesses at the paper's granularity."""
        if self.per_sub_group:
            return self.owner.instances(self.statement, sub_group_size)
        return self.work_item_count

    @property
    def work_item_count(self) -> QuasiPolynomial:
        """Number of element accesses, one per executing work-item."""
        return self.owner.instances(self.statement)

    @property
    def footprint(self) -> QuasiPolynomial:
        """Number of distinct elements touched over the whole launch."""
        return self.owner.footprint_among((self,)).elements

    @property
    def certainty(self) -> Certainty:
        """What the number of executions rests on."""
        return certainty_of_statement(self.statement) | Certainty(stated=bool(self.access.stated))

    @property
    def exact(self) -> bool:
        """Whether the count is exact, rather than an upper bound or what the user stated."""
        return self.certainty.exact

    @computed_once
    def axis_strides(self) -> tuple[QuasiPolynomial, ...]:
        """Distance between neighbours along each axis of the access relation's range, in elements."""
        return self.array.strides if self.access.strides is None else self.access.strides


@dataclass(frozen=True)
class Footprint:
    """What some accesses touch together, over all launches.

    Attributes
    ----------
    accesses
        Element accesses, one per executing work-item and instance.
    elements
        Distinct elements that they touch.
    bytes
        Size of these elements, in bytes.
    accesses_certainty, elements_certainty
        What the number of accesses, and those of elements and bytes, rest on.
    """

    accesses: QuasiPolynomial
    elements: QuasiPolynomial
    bytes: QuasiPolynomial
    accesses_certainty: Certainty
    elements_certainty: Certainty

    def afr(self, sizes: Mapping[str, Any]) -> float:
        """Return the access-to-footprint ratio at given sizes: accesses per element; nan where nothing is touched."""
        elements = self.elements.evaluate(sizes)
        return float(self.accesses.evaluate(sizes) / elements) if elements else math.nan

    @property
    def exact(self) -> bool:
        """Whether both numbers are exact, and so the ratio."""
        return self.certainty.exact

    @property
    def certainty(self) -> Certainty:
        """What the numbers rest on together."""
        return self.accesses_certainty | self.elements_certainty

    @property
    def afr_relation(self) -> str:
        """How the true ratio relates to `afr`: ``"="``, ``"<="``, ``">="``, or ``"~"`` where neither is certain."""
        if self.certainty.stated:
            return "~"
        return {(False, False): "=", (True, False): "<=", (False, True): ">=", (True, True): "~"}[
            self.accesses_certainty.bound, self.elements_certainty.bound
        ]


def footprint_of(accesses: Sequence[AccessCounts], counts: CountsOfKernel) -> Footprint:
    """Return the footprint of some accesses of one Scop."""
    numbers = tuple(item.number for item in accesses)
    total, elements, size, *doubts = counts.cached("touched", numbers, lambda: _touched(accesses, counts))
    certainty = Certainty()
    for item in accesses:
        certainty = certainty | item.certainty
    return Footprint(total, elements, size, certainty, Certainty(*doubts))


def _touched(
    accesses: Sequence[AccessCounts], counts: CountsOfKernel
) -> tuple[QuasiPolynomial, QuasiPolynomial, QuasiPolynomial, bool, bool]:
    """Return accesses, elements, bytes, and whether the latter are a bound or rest on what was stated."""
    # Accesses of one statement are equally many.
    times = Counter(id(item.statement) for item in accesses)
    first = {id(item.statement): item for item in reversed(accesses)}
    total = QuasiPolynomial.total(first[statement].work_item_count * count for statement, count in times.items())
    elements = size = QuasiPolynomial.constant(0)
    parts = _by_array(accesses, counts)
    for itemsize in dict.fromkeys(itemsize for itemsize, _ in parts):
        touched = QuasiPolynomial.total(part for other, part in parts if other == itemsize)
        elements = elements + touched
        size = size + touched * itemsize
    certainty = footprint_certainty(accesses)
    return total, elements, size, certainty.bound, certainty.stated


def _by_array(accesses: Iterable[AccessCounts], counts: CountsOfKernel) -> list[tuple[int, QuasiPolynomial]]:
    """Return (bytes per element, distinct elements) for each array and way of subscripting it (Algorithm 2).

    Elements of an array that is subscripted in different ways (an index tuple here, a flattened one there)
    are counted once for each way.
    """
    ways: dict[Any, list[AccessCounts]] = {}
    for item in accesses:
        ways.setdefault(_way(item), []).append(item)
    parts = []
    for members in ways.values():
        # Ids do for keys: statements and accesses live as long as the Scop that keeps these counts.
        key = frozenset((id(item.statement), id(item.access)) for item in members)
        if key not in counts.touched:
            counts.touched[key] = _points([_elements(item) for item in members], counts.scop.assumptions)
        parts.append((members[0].array.itemsize, counts.touched[key]))
    return parts


def _points(sets: Sequence[Any], assumptions: Any) -> QuasiPolynomial:
    union = _union(sets)
    try:
        return QuasiPolynomial(card(_coalesced(union), assumptions))
    except TooManyOperationsError:
        # Simplified for all sizes, the set may be harder to count than the plain union at given ones.
        return QuasiPolynomial.points_at_sizes(union, assumptions)


def footprint_certainty(accesses: Sequence[AccessCounts]) -> Certainty:
    """Return what the number of distinct elements rests on.

    An access of which it is not certain what it touches does no harm where certain ones touch all of that.
    """
    certain: dict[Any, list[Any]] = {}
    doubtful: list[tuple[AccessCounts, Certainty]] = []
    for item in accesses:
        certainty = item.certainty
        if not item.access.distinct or not item.access.relation.is_single_valued():
            certainty = certainty | Certainty(bound=True)
        if certainty.exact:
            certain.setdefault(_way(item), []).append(_elements(item))
        else:
            doubtful.append((item, certainty))
    ways = {_way(item) for item in accesses}
    # Subscripted in two ways, one element may be counted twice.
    total = Certainty(bound=len(ways) > len({array for array, _ in ways}))
    # The union is only needed where there is a doubt.
    unions = {way: _union(sets) for way, sets in certain.items()} if doubtful else {}
    for item, certainty in doubtful:
        if not (_way(item) in unions and _is_within(_elements(item), unions[_way(item)])):
            total = total | certainty
    return total


def _way(item: AccessCounts) -> tuple[str, tuple[QuasiPolynomial, ...]]:
    # Equal strides make equal axes: only then do two relations number the same elements alike.
    return item.array.name, item.axis_strides


def _elements(item: AccessCounts) -> Any:
    return item.access.relation.intersect_domain(item.statement.domain).range()


def _union(sets: Sequence[Any]) -> Any:
    total = sets[0]
    # A load and a store of one element make equal sets: found by hash, they spare isl a union.
    for elements in list(dict.fromkeys(sets))[1:]:
        total = total.union(elements)
    return total


def _coalesced(union: Any) -> Any:
    with limited(SYMBOLIC_LIMIT):
        return union.coalesce()


def _is_within(part: Any, whole: Any) -> bool:
    try:
        with limited(SYMBOLIC_LIMIT):
            return bool(part.is_subset(whole))
    except TooManyOperationsError:
        # Undecided counts as not covered, which errs towards "upper bound".
        return False
