"""Counting a Scop: executed instances, sub-groups, footprints and strides, symbolic in the sizes.

Granularities are the paper's (Section 5). Instances per sub-group are counted exactly: a sub-group
counts once for every sequential iteration in which at least one of its work-items is active, so that
idle sub-groups of a partly used work-group do not count.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from perflex.features.counting.footprints import (
    AccessCounts,
    Certainty,
    Footprint,
    certainty_of_statement,
    footprint_of,
)
from perflex.features.kept import CountMemory, keep_counts, kept_counts
from perflex.features.polynomials.late_values import computed_once
from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
from perflex.features.scop.scop import require_scop
from perflex.isl import isl

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from perflex.features.scop.scop import Access, Barrier, Launch, Scop, Statement

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
    require_scop(scop)
    return scop.derived("counts", (), lambda: ScopCounts(scop))


def reached_by_groups(scop: Scop, barrier: Barrier) -> QuasiPolynomial:
    """Return how many times work-groups reach a barrier, over the launch."""
    launch = scop.launches[barrier.launch]
    # All work-items of a group reach it together: once for each group, not for each item.
    per_group = barrier.domain.project_out(isl.dim_type.set, len(launch.groups), len(launch.items))
    return QuasiPolynomial.points(per_group, scop.assumptions) * barrier.weight()


def reached_by_each(scop: Scop, barrier: Barrier, by_groups: QuasiPolynomial) -> QuasiPolynomial | None:
    """Return how many times each work-item reaches a barrier; None where work-groups differ in that."""
    launch = scop.launches[barrier.launch]
    # The loops' iterations over all groups together: these are each group's own only if the totals agree.
    sequential = barrier.domain.project_out(isl.dim_type.set, 0, len(launch.groups) + len(launch.items))
    alike = QuasiPolynomial.points(sequential, scop.assumptions) * barrier.weight()
    difference = alike * launch.group_count + by_groups * -1
    # isl subtracts exactly, but only where both are known to hold: on the sizes the kernel is valid for.
    symbolic = difference.isl_object.gist_params(scop.assumptions)
    return alike if QuasiPolynomial(symbolic, difference.deferred).is_zero else None


def sub_groups_of(domain: Any, launch: Launch, sub_group_size: int) -> Any:
    """Return the sub-groups that execute a set of work-item instances, each once per iteration of the loops.

    An isl set over work-groups, work-items and loops becomes one over work-groups, their sub-groups, and loops.
    """
    sequential = domain.dim(isl.dim_type.set) - len(launch.groups) - len(launch.items)
    return domain.apply(_sub_group_map(len(launch.groups), launch.items, sequential, sub_group_size))


@lru_cache(maxsize=1024)
def _sub_group_map(groups: int, items: tuple[int, ...], sequential: int, sub_group_size: int) -> Any:
    outer = [f"g{i}" for i in range(groups)]
    local = [f"l{i}" for i in range(len(items))]
    loops = [f"s{i}" for i in range(sequential)]
    # Work-items are packed into sub-groups along the lowest axis first (Section 1.2).
    terms, stride = [], 1
    for name, extent in zip(local, items, strict=True):
        terms.append(f"{stride}*{name}")
        stride *= extent
    flat = " + ".join(terms) or "0"
    source = ", ".join(outer + local + loops)
    target = ", ".join([*outer, f"floor(({flat})/{sub_group_size})", *loops])
    return isl.Map(f"{{ [{source}] -> [{target}] }}")


_Strides = tuple[QuasiPolynomial | None, ...]


def index_strides(scop: Scop, statement: Statement, access: Access) -> tuple[_Strides, _Strides]:
    """Return the strides along the axes of the work-item and of the work-group index, in elements.

    A stride is None where the address is not affine in that index.
    """
    launch = scop.launches[statement.launch]
    groups = len(launch.groups)
    along = scop.array(access.array).strides if access.strides is None else access.strides
    # Instances begin with the axes of the work-group, then come those of the work-item.
    strides = [_stride(statement, access, along, axis) for axis in range(groups + len(launch.items))]
    return tuple(strides[groups:]), tuple(strides[:groups])


def stride_along(scop: Scop, statement: Statement, access: Access, axis: int) -> QuasiPolynomial | None:
    """Return the stride along any axis of a statement's instances, also a loop's, in elements; None if it varies."""
    along = scop.array(access.array).strides if access.strides is None else access.strides
    return _stride(statement, access, along, axis)


def _stride(
    statement: Statement, access: Access, strides: tuple[QuasiPolynomial, ...], axis: int
) -> QuasiPolynomial | None:
    """Return the address distance of neighbours along an instance axis, or None if it varies."""
    steps = _steps(statement, access, axis)
    if None in steps:
        return None
    return QuasiPolynomial.total(stride * step for step, stride in zip(steps, strides, strict=True) if step)


def _steps(statement: Statement, access: Access, axis: int) -> list[int | None]:
    """Return by how much each array index grows per step along an instance axis; None if that varies."""
    kinds = isl.dim_type
    axes = access.relation.dim(kinds.out)
    if not access.relation.is_single_valued():
        return [None] * axes
    function = access.relation.as_pw_multi_aff()
    steps: list[int | None] = []
    for position in range(axes):
        # One piece without floors is the usual case, where the coefficient is the stride; differences take isl longer.
        pieces = function.get_at(position).get_pieces()
        plain = len(pieces) == 1 and _coefficient(pieces[0][1], axis)
        # With several pieces `plain` is False, which is an int in Python.
        if isinstance(plain, int) and not isinstance(plain, bool):
            steps.append(plain)
        else:
            steps.append(_constant_step(statement, access, axis, position))
    return steps


def _coefficient(affine: Any, axis: int) -> int | None:
    """Return the coefficient of an instance axis in a quasi-affine index without floors over that axis."""
    kinds = isl.dim_type
    for i in range(affine.dim(kinds.div)):
        if affine.get_coefficient_val(kinds.div, i).is_zero():
            continue
        if affine.get_div(i).involves_dims(kinds.in_, axis, 1):
            return None
    value = affine.get_coefficient_val(kinds.in_, axis)
    return int(value.to_python()) if value.is_int() else None


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
    pairs = _later_along(domain, axis)
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


def _later_along(domain: Any, axis: int) -> Any:
    """Return the map from instances to those further along an axis that differ in nothing else."""
    kinds = isl.dim_type
    identity = isl.Map.identity(domain.get_space().map_from_set())
    # The coordinate along the axis is free again, and then bounded from below.
    others = identity.drop_constraints_involving_dims(kinds.out, axis, 1)
    later = others.order_lt(kinds.in_, axis, kinds.out, axis)
    return later.intersect_domain(domain).intersect_range(domain)
