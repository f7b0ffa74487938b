"""Counting a Scop: executed instances, sub-groups, footprints and strides, symbolic in the sizes.

Granularities are the paper's (Section 5). Instances per sub-group are counted exactly: a sub-group
counts once for every sequential iteration in which at least one of its work-items is active, so that
idle sub-groups of a partly used work-group do not count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from perflex.features.counting.barriers import reached_by_each, reached_by_groups
from perflex.features.counting.certainty import Certainty, certainty_of_statement
from perflex.features.counting.footprints import AccessCounts, Footprint, footprint_of, select_accesses
from perflex.features.counting.strides import index_strides
from perflex.features.counting.sub_groups import diverged_sub_groups, sub_groups_of
from perflex.features.kept.count_memory import CountMemory
from perflex.features.kept.scops_and_counts import keep_counts, kept_counts
from perflex.features.polynomials.computed_once import computed_once
from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
from perflex.isl import isl

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from perflex.features.scop.scop import Barrier, Scop, Statement

_Value = TypeVar("_Value")


class ScopCounts:
    """The counts of one Scop; each is computed when first asked for, unless the store has it, and kept."""

    def __init__(self, scop: Scop) -> None:
        self.scop = scop
        self._memory = CountMemory(lambda: kept_counts(scop))
        self._footprints: dict[tuple[int, ...], Footprint] = {}
        # Distinct elements by the accesses that touch them, as (statement, access): accesses of different selections
        # to one array are often the same.
        self.touched: dict[frozenset[tuple[int, int]], QuasiPolynomial] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        # What is kept by the identity of objects means nothing in another process.
        return counts_of, (self.scop,)

    def cached(self, kind: str, key: Sequence[object], compute: Callable[[], _Value]) -> _Value:
        """Return what `compute` returns, from memory or the store where it was computed before.

        Parameters
        ----------
        kind
            What is counted.
        key
            Of which part of the Scop, and with which options: numbers and texts that are the same for equal Scops.
        compute
            Returns a quasi-polynomial, text, number, truth value, None, or tuples of those.
        """
        return self._memory.get(" ".join([kind, *map(str, key)]), compute)

    def keep(self) -> None:
        """Write what was counted since the last call to the store."""
        if self._memory.has_fresh:
            keep_counts(self.scop, self._memory.take_fresh())

    def _place(self, statement: Statement) -> int | str:
        """Return the position of the first statement of the same launch that has the same domain."""
        place = self._places.get(id(statement))
        return f"{statement.launch} {statement.domain}" if place is None else place

    @computed_once
    def _places(self) -> dict[int, int]:
        first: dict[tuple[int, str], int] = {}
        return {
            id(statement): first.setdefault((statement.launch, statement.text_of("domain")), position)
            for position, statement in enumerate(self.scop.statements)
        }

    def _barrier_place(self, barrier: Barrier) -> int | str:
        same = (position for position, other in enumerate(self.scop.barriers) if other is barrier)
        place = next(same, None)
        return f"{barrier.launch} {barrier.averages} {barrier.domain}" if place is None else place

    def instances(self, statement: Statement, sub_group_size: int | None = None) -> QuasiPolynomial:
        """Return how many work-item instances or, with a size, sub-group instances of a statement are executed."""
        # The weight is part of the key: it is not part of the domain, which other statements may share.
        weight = statement.weight()

        def compute() -> QuasiPolynomial:
            return self._points(statement.domain, statement.launch, sub_group_size) * weight

        return self.cached("instances", (self._place(statement), weight, sub_group_size), compute)

    def executions(self, domain: Any, launch: int, sub_group_size: int | None) -> QuasiPolynomial:
        """Return how many sub-group instances, or work-item instances without a size, a set of instances has.

        Parameters
        ----------
        domain
            isl set over a launch's work-groups, work-items and values of any number of loops.
        launch
            The launch.
        sub_group_size
            Work-items per sub-group.
        """
        key = (launch, sub_group_size, domain)
        return self.cached("executions", key, lambda: self._points(domain, launch, sub_group_size))

    def _points(self, domain: Any, launch: int, sub_group_size: int | None) -> QuasiPolynomial:
        if sub_group_size is not None:
            domain = sub_groups_of(domain, self.scop.launches[launch], sub_group_size)
        return QuasiPolynomial.points(domain, self.scop.assumptions)

    def diverged_instances(self, statement: Statement, sub_group_size: int) -> QuasiPolynomial:
        """Return how many sub-group instances of a statement some work-items of the sub-group execute, but not all."""
        weight = statement.weight()

        def compute() -> QuasiPolynomial:
            launch = self.scop.launches[statement.launch]
            diverged = diverged_sub_groups(statement.domain, launch, sub_group_size)
            return QuasiPolynomial.points(diverged, self.scop.assumptions) * weight

        return self.cached("diverged", (self._place(statement), weight, sub_group_size), compute)

    def sub_group_runs(self, statement: Statement, outer_loops: int, sub_group_size: int) -> QuasiPolynomial:
        """Return how often sub-groups enter the loops of a statement below its `outer_loops` outermost ones."""
        weight = statement.weight(outer_loops)

        def compute() -> QuasiPolynomial:
            launch = self.scop.launches[statement.launch]
            entered = sub_groups_of(statement.domain, launch, sub_group_size)
            # What is left of the dimensions says which sub-group enters, and in which iteration of the outer loops.
            first = len(launch.groups) + 1 + outer_loops
            entered = entered.project_out(isl.dim_type.set, first, entered.dim(isl.dim_type.set) - first)
            return QuasiPolynomial.points(entered, self.scop.assumptions) * weight

        return self.cached("runs", (self._place(statement), weight, sub_group_size, outer_loops), compute)

    def barrier_instances(self, barrier: Barrier) -> QuasiPolynomial:
        """Return how many times work-groups reach a barrier, over the launch."""
        return self.cached("barrier", (self._barrier_place(barrier),), lambda: reached_by_groups(self.scop, barrier))

    def barriers_per_work_item(self, barrier: Barrier) -> QuasiPolynomial | None:
        """Return how many times each work-item reaches a barrier; None where work-groups differ in that."""

        def compute() -> QuasiPolynomial | None:
            return reached_by_each(self.scop, barrier, self.barrier_instances(barrier))

        return self.cached("barrier per work-item", (self._barrier_place(barrier),), compute)

    def barriers(self, kind: str, launch: int) -> QuasiPolynomial:
        """Return how many times work-groups reach the barriers of a kind, over the launch."""
        counted = [barrier for barrier in self.scop.barriers if (barrier.kind, barrier.launch) == (kind, launch)]
        return self.cached(
            "barriers", (kind, launch), lambda: QuasiPolynomial.total(map(self.barrier_instances, counted))
        )

    def barriers_met(self, kind: str) -> QuasiPolynomial | None:
        """Return how many barriers of a kind each work-item meets; None where work-groups differ in that."""

        def compute() -> QuasiPolynomial | None:
            each = [self.barriers_per_work_item(barrier) for barrier in self.scop.barriers if barrier.kind == kind]
            known = [one for one in each if one is not None]
            return QuasiPolynomial.total(known) if len(known) == len(each) else None

        return self.cached("barriers met", (kind,), compute)

    def barriers_executed(self, kind: str) -> QuasiPolynomial:
        """Return how many barriers of a kind are executed, each work-item's counted."""

        def compute() -> QuasiPolynomial:
            counted = [barrier for barrier in self.scop.barriers if barrier.kind == kind]
            return QuasiPolynomial.total(
                self.barrier_instances(barrier) * self.scop.launches[barrier.launch].group_size for barrier in counted
            )

        return self.cached("barriers executed", (kind,), compute)

    def group_count(self, launch: int) -> QuasiPolynomial:
        """Return how many work-groups a launch has, over all its repeats."""
        return self.cached("groups", (launch,), lambda: self.scop.launches[launch].group_count)

    def access_total(self, accesses: Sequence[AccessCounts], sub_group_size: int | None) -> QuasiPolynomial:
        """Return the number of accesses together: at the paper's granularity, or, without a size, per work-item."""

        def compute() -> QuasiPolynomial:
            if sub_group_size is None:
                return QuasiPolynomial.total(item.work_item_count for item in accesses)
            return QuasiPolynomial.total(item.count(sub_group_size) for item in accesses)

        return self.cached("accesses", (sub_group_size, *(item.number for item in accesses)), compute)

    def operation_total(self, kind: str, dtype: str, sub_group_size: int | None) -> QuasiPolynomial:
        """Return the number of operations of a kind and type: per sub-group or, without a size, per work-item."""

        def compute() -> QuasiPolynomial:
            return self._operations(kind, dtype, lambda statement: self.instances(statement, sub_group_size))

        return self.cached("operations", (kind, dtype, sub_group_size), compute)

    def diverged_total(self, kind: str, dtype: str, sub_group_size: int) -> QuasiPolynomial:
        """Return how many operations of a kind and type sub-groups execute with some of their work-items only."""

        def compute() -> QuasiPolynomial:
            return self._operations(kind, dtype, lambda statement: self.diverged_instances(statement, sub_group_size))

        return self.cached("diverged operations", (kind, dtype, sub_group_size), compute)

    def _operations(self, kind: str, dtype: str, instances: Callable[[Statement], QuasiPolynomial]) -> QuasiPolynomial:
        parts = []
        for statement in self.scop.statements:
            times = sum(op.count for op in statement.operations if (op.kind, op.dtype) == (kind, dtype))
            if times:
                parts.append(instances(statement) * times)
        return QuasiPolynomial.total(parts)

    @computed_once
    def operation_certainty(self) -> dict[tuple[str, str], Certainty]:
        """What the count of each kind and type of operation there is rests on."""
        found: dict[tuple[str, str], Certainty] = {}
        for statement in self.scop.statements:
            certainty = certainty_of_statement(statement)
            for operation in statement.operations:
                kind = operation.kind, operation.dtype
                found[kind] = found.get(kind, Certainty()) | certainty
        return found

    def footprint_of(
        self, *, array: str | None = None, tag: str | None = None, direction: str | None = None
    ) -> Footprint:
        """Return what accesses of global arrays touch together, and how often (Section 6.1.1).

        Local and private arrays exist once per work-group and work-item; they have no footprint here.

        Parameters
        ----------
        array
            Accesses of this array only.
        tag
            Accesses with this access tag only.
        direction
            ``"load"`` or ``"store"`` only.

        Raises
        ------
        NoMatchError
            There is no such access; the message lists what there is.
        """
        return self.footprint_among(select_accesses(self, array, tag, direction))

    def footprint_among(self, accesses: tuple[AccessCounts, ...]) -> Footprint:
        """Return what some of this kernel's `accesses` touch together, and how often."""
        key = tuple(item.number for item in accesses)
        if key not in self._footprints:
            self._footprints[key] = footprint_of(accesses, self)
        return self._footprints[key]

    @computed_once
    def names(self) -> dict[str, frozenset[str]]:
        """Names by the field of an identifier that takes them: ``"array"`` and ``"tag"``."""
        tags = {item.access.tag for item in self.accesses if item.access.tag}
        return {"array": frozenset(array.name for array in self.scop.arrays), "tag": frozenset(tags)}

    @computed_once
    def accesses(self) -> tuple[AccessCounts, ...]:
        """Every access of every statement, in program order."""
        both = [(statement, access) for statement in self.scop.statements for access in statement.accesses]
        strides = self.cached("strides", (), lambda: tuple(index_strides(self.scop, *pair) for pair in both))
        return tuple(
            AccessCounts(self, statement, access, self.scop.array(access.array), *along, number)
            for number, ((statement, access), along) in enumerate(zip(both, strides, strict=True))
        )

    @property
    def work_groups(self) -> QuasiPolynomial:
        """Work-groups launched, over all launches."""
        return self.cached(
            "work-groups", (), lambda: QuasiPolynomial.total(launch.group_count for launch in self.scop.launches)
        )

    @property
    def work_items(self) -> QuasiPolynomial:
        """Work-items launched, over all launches."""
        launches = self.scop.launches
        return self.cached(
            "items", (), lambda: QuasiPolynomial.total(one.group_count * one.group_size for one in launches)
        )

    def sub_groups(self, sub_group_size: int) -> QuasiPolynomial:
        """Sub-groups launched, over all launches."""
        return self.cached(
            "launched sub-groups",
            (sub_group_size,),
            # Rounded up: a last, partly filled sub-group takes a whole one.
            lambda: QuasiPolynomial.total(
                one.group_count * -(-one.group_size // sub_group_size) for one in self.scop.launches
            ),
        )

    @property
    def launches(self) -> QuasiPolynomial:
        """Number of device programs launched."""
        return self.cached(
            "launches", (), lambda: QuasiPolynomial.total(launch.repeats for launch in self.scop.launches)
        )


def counts_of(scop: Scop) -> ScopCounts:
    """Return the counts of a Scop, shared between all features that read it and kept on the Scop itself."""
    return scop.derived("counts", (), lambda: ScopCounts(scop))
