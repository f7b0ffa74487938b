"""Counting a Scop: executed instances, sub-groups, footprints and strides, symbolic in the sizes.

Granularities are the paper's (Section 5). Instances per sub-group are counted exactly: a sub-group
counts once for every sequential iteration in which at least one of its work-items is active, so that
idle sub-groups of a partly used work-group do not count.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from perflex._islpy import isl
from perflex.features._footprints import (
    Footprint,
    footprint_certainty,
    footprint_of,
    select_accesses,
    touched_elements,
)
from perflex.features._quasipolynomial import QuasiPolynomial

if TYPE_CHECKING:
    from perflex.features._scop import Access, Array, Barrier, Launch, Scop, Statement

__all__ = ["AccessCounts", "ScopCounts", "counts_of"]


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
    """

    owner: ScopCounts
    statement: Statement
    access: Access
    array: Array
    local_strides: tuple[QuasiPolynomial | None, ...]
    group_strides: tuple[QuasiPolynomial | None, ...]

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
            return self.owner.sub_group_instances(self.statement, sub_group_size)
        return self.work_item_count

    @property
    def work_item_count(self) -> QuasiPolynomial:
        """Number of element accesses, one per executing work-item."""
        return self.owner.instances(self.statement)

    @cached_property
    def footprint(self) -> QuasiPolynomial:
        """Number of distinct elements touched over the whole launch."""
        return self.owner.footprint((self,))

    @property
    def exact(self) -> bool:
        """Whether the count is exact, rather than an upper bound or what the user stated."""
        return self.statement.exact and not self.access.stated

    @cached_property
    def footprint_exact(self) -> bool:
        """Whether the footprint is exact, rather than an upper bound or what the user stated."""
        return self.owner.footprint_exact((self,))

    @cached_property
    def axis_strides(self) -> tuple[QuasiPolynomial, ...]:
        """Distance between neighbours along each axis of the access relation's range, in elements."""
        return self.array.strides if self.access.strides is None else self.access.strides


class ScopCounts:
    """The counts of one Scop; each is computed when first asked for and kept."""

    def __init__(self, scop: Scop) -> None:
        self.scop = scop
        self._instances: dict[Any, QuasiPolynomial] = {}
        self._sub_groups: dict[Any, QuasiPolynomial] = {}
        self._footprints: dict[tuple[int, ...], Footprint] = {}
        # Distinct elements by the accesses that touch them, as (statement, access).
        self.touched: dict[frozenset[tuple[int, int]], QuasiPolynomial] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        # What is remembered by identity means nothing in another process.
        return counts_of, (self.scop,)

    def instances(self, statement: Statement) -> QuasiPolynomial:
        """Return how many work-item instances of a statement are executed."""
        key = statement.domain
        if key not in self._instances:
            self._instances[key] = QuasiPolynomial.points(statement.domain, self.scop.assumptions)
        return self._instances[key] * statement.weight()

    def sub_group_instances(self, statement: Statement, sub_group_size: int) -> QuasiPolynomial:
        """Return how many sub-group instances of a statement are executed."""
        key = (statement.domain, statement.launch, sub_group_size)
        if key not in self._sub_groups:
            launch = self.scop.launches[statement.launch]
            active = statement.domain.apply(_to_sub_groups(launch, statement.domain, sub_group_size))
            self._sub_groups[key] = QuasiPolynomial.points(active, self.scop.assumptions)
        return self._sub_groups[key] * statement.weight()

    def sub_group_runs(self, statement: Statement, outer_loops: int, sub_group_size: int) -> QuasiPolynomial:
        """Return how often sub-groups enter the loops of a statement below its `outer_loops` outermost ones."""
        key = (statement.domain, statement.launch, sub_group_size, outer_loops)
        if key not in self._sub_groups:
            launch = self.scop.launches[statement.launch]
            entered = statement.domain.apply(_to_sub_groups(launch, statement.domain, sub_group_size))
            first = len(launch.groups) + 1 + outer_loops
            entered = entered.project_out(isl.dim_type.set, first, entered.dim(isl.dim_type.set) - first)
            self._sub_groups[key] = QuasiPolynomial.points(entered, self.scop.assumptions)
        return self._sub_groups[key] * statement.weight(outer_loops)

    def barrier_instances(self, barrier: Barrier) -> QuasiPolynomial:
        """Return how many times work-groups reach a barrier, over the launch."""
        launch = self.scop.launches[barrier.launch]
        first = len(launch.groups)
        per_group = barrier.domain.project_out(isl.dim_type.set, first, len(launch.items))
        return QuasiPolynomial.points(per_group, self.scop.assumptions) * barrier.weight()

    def barriers_per_work_item(self, barrier: Barrier) -> QuasiPolynomial | None:
        """Return how many times each work-item reaches a barrier; None where work-groups differ in that."""
        launch = self.scop.launches[barrier.launch]
        sequential = barrier.domain.project_out(isl.dim_type.set, 0, len(launch.groups) + len(launch.items))
        alike = QuasiPolynomial.points(sequential, self.scop.assumptions) * barrier.weight()
        difference = alike * launch.group_count + self.barrier_instances(barrier) * -1
        # isl subtracts exactly, but only where both are known to hold: on the sizes the kernel is valid for.
        symbolic = difference.isl_object.gist_params(self.scop.assumptions)
        return alike if QuasiPolynomial(symbolic, difference.deferred).is_zero else None

    def footprint(self, accesses: tuple[AccessCounts, ...]) -> QuasiPolynomial:
        """Return how many distinct elements the accesses touch together (Algorithm 2).

        Elements of an array that is subscripted in different ways (an index tuple here, a flattened one there)
        are counted once for each way.
        """
        return touched_elements(accesses, self)

    def footprint_exact(self, accesses: tuple[AccessCounts, ...]) -> bool:
        """Return whether `footprint` is exact, rather than an upper bound or what the user stated."""
        return footprint_certainty(accesses).exact

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
        key = tuple(sorted(self._positions[id(item)] for item in accesses))
        if key not in self._footprints:
            self._footprints[key] = footprint_of(accesses, self)
        return self._footprints[key]

    @cached_property
    def _positions(self) -> dict[int, int]:
        return {id(item): position for position, item in enumerate(self.accesses)}

    @cached_property
    def names(self) -> dict[str, frozenset[str]]:
        """Names by the field of an identifier that takes them: ``"array"`` and ``"tag"``."""
        tags = {item.access.tag for item in self.accesses if item.access.tag}
        return {"array": frozenset(array.name for array in self.scop.arrays), "tag": frozenset(tags)}

    @cached_property
    def accesses(self) -> tuple[AccessCounts, ...]:
        """Every access of every statement, in program order."""
        return tuple(
            self._access(statement, access) for statement in self.scop.statements for access in statement.accesses
        )

    def _access(self, statement: Statement, access: Access) -> AccessCounts:
        launch = self.scop.launches[statement.launch]
        array = self.scop.array(access.array)
        groups = len(launch.groups)
        strides = [_stride(statement, access, array, axis) for axis in range(groups + len(launch.items))]
        return AccessCounts(self, statement, access, array, tuple(strides[groups:]), tuple(strides[:groups]))

    @cached_property
    def work_groups(self) -> QuasiPolynomial:
        """Work-groups launched, over all launches."""
        return _total([launch.group_count for launch in self.scop.launches])

    @cached_property
    def work_items(self) -> QuasiPolynomial:
        """Work-items launched, over all launches."""
        return _total([launch.group_count * launch.group_size for launch in self.scop.launches])

    def sub_groups(self, sub_group_size: int) -> QuasiPolynomial:
        """Sub-groups launched, over all launches."""
        return _total([launch.group_count * -(-launch.group_size // sub_group_size) for launch in self.scop.launches])

    @cached_property
    def launches(self) -> QuasiPolynomial:
        """Number of device programs launched."""
        return _total([launch.repeats for launch in self.scop.launches])


def _total(parts: list[QuasiPolynomial]) -> QuasiPolynomial:
    total = QuasiPolynomial.constant(0)
    for part in parts:
        total = total + part
    return total


@lru_cache(maxsize=512)
def counts_of(scop: Scop) -> ScopCounts:
    """Return the counts of a Scop, shared between all features that read it."""
    return ScopCounts(scop)


@lru_cache(maxsize=1024)
def _sub_group_map(groups: int, items: tuple[int, ...], sequential: int, sub_group_size: int) -> Any:
    outer = [f"g{i}" for i in range(groups)]
    local = [f"l{i}" for i in range(len(items))]
    loops = [f"s{i}" for i in range(sequential)]
    terms, stride = [], 1
    for name, extent in zip(local, items, strict=True):
        terms.append(f"{stride}*{name}")
        stride *= extent
    flat = " + ".join(terms) or "0"
    source = ", ".join(outer + local + loops)
    target = ", ".join([*outer, f"floor(({flat})/{sub_group_size})", *loops])
    return isl.Map(f"{{ [{source}] -> [{target}] }}")


def _to_sub_groups(launch: Launch, domain: Any, sub_group_size: int) -> Any:
    """Map each instance to its sub-group: work-items are packed along the lowest axis first (Section 1.2)."""
    sequential = domain.dim(isl.dim_type.set) - len(launch.groups) - len(launch.items)
    return _sub_group_map(len(launch.groups), launch.items, sequential, sub_group_size)


def _stride(statement: Statement, access: Access, array: Array, axis: int) -> QuasiPolynomial | None:
    """Return the address distance of neighbours along an instance axis, or None if it varies."""
    total = QuasiPolynomial.constant(0)
    strides = array.strides if access.strides is None else access.strides
    for steps, stride in zip(_steps(statement, access, axis), strides, strict=True):
        if steps is None:
            return None
        if steps:
            total = total + stride * steps
    return total


def _steps(statement: Statement, access: Access, axis: int) -> list[int | None]:
    """Return by how much each array index grows per step along an instance axis; None if that varies."""
    kinds = isl.dim_type
    axes = access.relation.dim(kinds.out)
    if not access.relation.is_single_valued():
        return [None] * axes
    function = access.relation.as_pw_multi_aff()
    steps: list[int | None] = []
    for position in range(axes):
        pieces = function.get_at(position).get_pieces()
        plain = len(pieces) == 1 and _coefficient(pieces[0][1], axis)
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
    """Return the step from the set of differences between neighbours, if it is one number.

    This settles subscripts with floors: (16*gid + lid) // 16 does not depend on lid when lid < 16, and
    lid % 4 or lid // 2 have no single stride.
    """
    kinds = isl.dim_type
    domain = statement.domain
    identity = isl.Map.identity(domain.get_space().map_from_set())
    shift = isl.MultiAff.identity(identity.get_space())
    moved = shift.get_at(axis).add_constant_val(isl.Val(1))
    neighbour = isl.Map.from_multi_aff(shift.set_at(axis, moved)).intersect_domain(domain).intersect_range(domain)
    index = access.relation.project_out(kinds.out, position + 1, access.relation.dim(kinds.out) - position - 1)
    index = index.project_out(kinds.out, 0, position)
    pairs = neighbour.apply_domain(index).apply_range(index) if not neighbour.is_empty() else None
    if pairs is None:
        return 0
    differences = pairs.deltas()
    sample = differences.sample_point()
    value = sample.get_coordinate_val(kinds.set, 0)
    constant = isl.Set.universe(differences.get_space()).fix_val(kinds.set, 0, value)
    return int(value.to_python()) if differences.is_subset(constant) else None
