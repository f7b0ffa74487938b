"""Counting a Scop: executed instances, sub-groups, accesses and footprints, symbolic in the sizes.

Granularities are the paper's (Section 5). Instances per sub-group are counted exactly: a sub-group
counts once for every sequential iteration in which at least one of its work-items is active, so that
idle sub-groups of a partly used work-group do not count.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial, reduce, wraps
from operator import or_
from typing import Any, TypeVar, cast

from perflex.features.count_store import keep_counts, kept_counts
from perflex.features.counting.touched import (
    Certainty,
    certainty_of_access,
    certainty_of_statement,
    distinct_elements,
    elements_certainty,
    strides_along,
)
from perflex.features.polynomials.quasipolynomial import QuasiPolynomial, polynomial_from_record, polynomial_record
from perflex.features.scop.scop import Access, Array, Launch, Scop, Statement, require_scop
from perflex.isl import ISL_LOCK, computed_once, isl
from perflex.store.store import current_store

_Value = TypeVar("_Value")
_Method = TypeVar("_Method", bound="Callable[..., Any]")
_Strides = tuple[QuasiPolynomial | None, ...]


def _kept(kind: str) -> Callable[[_Method], _Method]:
    """Return a decorator: a method of `ScopCounts` computes once for each arguments, unless the store has the value."""

    def decorate(compute: _Method) -> _Method:
        @wraps(compute)
        def method(self: ScopCounts, *args: Any, **named: Any) -> Any:
            return self.cached(kind, (*args, *named.items()), partial(compute, self, *args, **named))

        return cast("_Method", method)

    return decorate


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
        """Return the access-to-footprint ratio at given sizes; nan where nothing is touched, or it is not known."""
        elements = self.elements.evaluate(sizes) if set(self.elements.parameters) <= sizes.keys() else 0
        return float(self.accesses.evaluate(sizes) / elements) if elements else math.nan

    @property
    def certainty(self) -> Certainty:
        """What the numbers rest on together."""
        return self.accesses_certainty | self.elements_certainty

    @property
    def exact(self) -> bool:
        """Whether both numbers are exact, and so the ratio."""
        return self.certainty.exact

    @property
    def afr_relation(self) -> str:
        """How the true ratio relates to `afr`: ``"="``, ``"<="``, ``">="``, or ``"~"`` where neither is certain."""
        bounds = self.accesses_certainty.bound, self.elements_certainty.bound
        return "~" if self.certainty.stated or all(bounds) else "<=" if bounds[0] else ">=" if bounds[1] else "="


@dataclass(frozen=True)
class AccessCounts:
    """Everything counted about one access.

    Attributes
    ----------
    owner
        The counts of the whole kernel.
    statement, access, array
        What was counted.
    local_strides, group_strides
        Stride along each axis of the work-item and work-group index, in elements; None where the
        address is not affine in that index.
    number
        Position among the Scop's accesses.
    """

    owner: ScopCounts
    statement: Statement
    access: Access
    array: Array
    local_strides: _Strides
    group_strides: _Strides
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
        return self.array.memory != "global" or self.is_uniform

    def count(self, sub_group_size: int) -> QuasiPolynomial:
        """Return the number of accesses at the paper's granularity."""
        return self.owner.instances(self.statement, sub_group_size) if self.per_sub_group else self.work_item_count

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
        return certainty_of_access(self.owner.scop, self.statement, self.access)

    @property
    def exact(self) -> bool:
        """Whether the count is exact, rather than an upper bound or what the user stated."""
        return self.certainty.exact


class ScopCounts:
    """The counts of one Scop; each is computed when first asked for, unless the store has it, and kept."""

    def __init__(self, scop: Scop) -> None:
        self.scop = scop
        self._values: dict[str, Any] = {}
        self._stored: dict[str, Any] | None = None
        self._fresh: list[str] = []
        self._distinct: dict[frozenset[tuple[int, int]], QuasiPolynomial] = {}

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
            Of which part of the Scop, and with which options: statements, accesses, and what has equal texts for equal
            Scops.
        compute
            Returns a quasi-polynomial, text, number, truth value, None, or tuples of those.
        """
        name = " ".join([kind, *map(self._word, key)])
        # Reading a dict is atomic in CPython: values that are there do not wait for isl.
        if name in self._values:
            return self._values[name]  # type: ignore[no-any-return]
        # isl counts operations and stops at a limit per process, not per thread.
        with ISL_LOCK:
            if self._stored is None:
                self._stored = kept_counts(self.scop)
            if name not in self._values and name in self._stored:
                self._values[name] = _from_record(self._stored[name])
            if name not in self._values:
                self._values[name] = compute()
                self._fresh.append(name)
            return self._values[name]  # type: ignore[no-any-return]

    def _word(self, part: object) -> str:
        if isinstance(part, Statement):
            return str(self._numbers[id(part)])
        if isinstance(part, AccessCounts):
            return str(part.number)
        return ",".join(map(self._word, part)) if isinstance(part, list | tuple) else str(part)

    @computed_once
    def _numbers(self) -> dict[int, int]:
        """Numbers of statements by identity: the same for those that are executed equally often."""
        first: dict[tuple[object, ...], int] = {}
        return {
            id(one): first.setdefault(
                (one.launch, one.isl_text, *(loop.average for loop in self.scop.loops_of(one))), number
            )
            for number, one in enumerate(self.scop.statements)
        }

    def keep(self) -> None:
        """Write what was counted since the last call to the store."""
        if self._fresh and current_store() is not None:
            with ISL_LOCK:
                names, self._fresh = self._fresh, []
                records = {name: _record(self._values[name]) for name in names}
            keep_counts(self.scop, records)

    @_kept("instances")
    def instances(self, statement: Statement, sub_group_size: int | None = None) -> QuasiPolynomial:
        """Return how many work-item instances or, with a size, sub-group instances of a statement are executed."""
        return self._points(statement.domain, statement.launch, sub_group_size) * self.scop.weight(statement)

    @_kept("executions")
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
        return self._points(domain, launch, sub_group_size)

    @_kept("executing")
    def executing(self, domain: Any, launch: int, sub_group_size: int) -> tuple[QuasiPolynomial, QuasiPolynomial]:
        """Return how many sub-groups, and how many work-groups, have any of a set of instances as for `executions`."""
        groups = len(self.scop.launches[launch].groups)
        instances = sub_groups_of(domain, self.scop.launches[launch], sub_group_size)
        beyond = instances.dim(isl.dim_type.set) - groups - 1
        having = instances.project_out(isl.dim_type.set, groups + 1, beyond)
        assumed = self.scop.assumptions
        whole = having.project_out(isl.dim_type.set, groups, 1)
        return QuasiPolynomial.points(having, assumed), QuasiPolynomial.points(whole, assumed)

    def _points(self, domain: Any, launch: int, sub_group_size: int | None) -> QuasiPolynomial:
        if sub_group_size is not None:
            domain = sub_groups_of(domain, self.scop.launches[launch], sub_group_size)
        return QuasiPolynomial.points(domain, self.scop.assumptions)

    @_kept("runs")
    def sub_group_runs(self, statement: Statement, outer_loops: int, sub_group_size: int) -> QuasiPolynomial:
        """Return how often sub-groups enter the loops of a statement below its `outer_loops` outermost ones."""
        launch = self.scop.launches[statement.launch]
        entered = sub_groups_of(statement.domain, launch, sub_group_size)
        # What is left of the dimensions says which sub-group enters, and in which iteration of the outer loops.
        first = len(launch.groups) + 1 + outer_loops
        entered = entered.project_out(isl.dim_type.set, first, entered.dim(isl.dim_type.set) - first)
        return QuasiPolynomial.points(entered, self.scop.assumptions) * self.scop.weight(statement, outer_loops)

    @_kept("barrier")
    def _reached(self, number: int) -> QuasiPolynomial:
        """Return how many times work-groups reach a barrier, over the launch."""
        barrier = self.scop.barriers[number]
        launch = self.scop.launches[barrier.launch]
        # All work-items of a group reach it together: once for each group, not for each item.
        per_group = barrier.domain.project_out(isl.dim_type.set, len(launch.groups), len(launch.items))
        return QuasiPolynomial.points(per_group, self.scop.assumptions) * self.scop.weight(barrier)

    def _met(self, number: int) -> QuasiPolynomial | None:
        """Return how many times each work-item reaches a barrier; None where work-groups differ in that."""
        barrier = self.scop.barriers[number]
        launch = self.scop.launches[barrier.launch]
        # The loops' iterations over all groups together: these are each group's own only if the totals agree.
        sequential = barrier.domain.project_out(isl.dim_type.set, 0, len(launch.groups) + len(launch.items))
        alike = QuasiPolynomial.points(sequential, self.scop.assumptions) * self.scop.weight(barrier)
        difference = alike * launch.group_count + self._reached(number) * -1
        # isl subtracts exactly, but only where both are known to hold: on the sizes the kernel is valid for.
        symbolic = difference.isl_object.gist_params(self.scop.assumptions)
        return alike if QuasiPolynomial(symbolic, difference.deferred).is_zero else None

    @_kept("barriers")
    def barriers(self, kind: str, launch: int) -> QuasiPolynomial:
        """Return how many times work-groups reach the barriers of a kind, over the launch."""
        there = enumerate(self.scop.barriers)
        return QuasiPolynomial.total(self._reached(n) for n, one in there if (one.kind, one.launch) == (kind, launch))

    @_kept("barriers met")
    def barriers_met(self, kind: str) -> QuasiPolynomial | None:
        """Return how many barriers of a kind each work-item meets; None where work-groups differ in that."""
        each = [self._met(number) for number, one in enumerate(self.scop.barriers) if one.kind == kind]
        known = [one for one in each if one is not None]
        return QuasiPolynomial.total(known) if len(known) == len(each) else None

    @_kept("accesses")
    def access_total(self, accesses: Sequence[AccessCounts], sub_group_size: int) -> QuasiPolynomial:
        """Return the number of accesses together, at the paper's granularity."""
        return QuasiPolynomial.total(item.count(sub_group_size) for item in accesses)

    @_kept("operations")
    def operation_total(self, kind: str, dtype: str, sub_group_size: int | None) -> QuasiPolynomial:
        """Return the number of operations of a kind and type: per sub-group or, without a size, per work-item."""
        parts = []
        for statement in self.scop.statements:
            times = sum(op.count for op in statement.operations if (op.kind, op.dtype) == (kind, dtype))
            if times:
                parts.append(self.instances(statement, sub_group_size) * times)
        return QuasiPolynomial.total(parts)

    @computed_once
    def operation_certainty(self) -> dict[tuple[str, str], Certainty]:
        """What the count of each kind and type of operation there is rests on."""
        found: dict[tuple[str, str], Certainty] = {}
        for statement in self.scop.statements:
            for operation in statement.operations:
                kind = operation.kind, operation.dtype
                found[kind] = found.get(kind, Certainty()) | certainty_of_statement(self.scop, statement)
        return found

    def footprint_among(self, accesses: Sequence[AccessCounts]) -> Footprint:
        """Return what some of this kernel's `accesses` touch together, and how often."""
        total, elements, size, bound, stated = self._touched(accesses)
        certainty = reduce(or_, (item.certainty for item in accesses), Certainty())
        return Footprint(total, elements, size, certainty, Certainty(bound, stated))

    @_kept("touched")
    def _touched(
        self, accesses: Sequence[AccessCounts]
    ) -> tuple[QuasiPolynomial, QuasiPolynomial, QuasiPolynomial, bool, bool]:
        """Return accesses, elements, bytes, and whether the latter are a bound or rest on what was stated."""
        made = [(item.statement, item.access) for item in accesses]
        # Accesses of one statement are equally many.
        statements = {id(statement): statement for statement, _ in made}
        times = Counter(id(statement) for statement, _ in made)
        total = QuasiPolynomial.total(self.instances(statements[one]) * count for one, count in times.items())
        parts = distinct_elements(made, self.scop, self._distinct)
        elements = QuasiPolynomial.total(part for _, part in parts)
        size = QuasiPolynomial.total(part * self.scop.array(array).itemsize for array, part in parts)
        certainty = elements_certainty(made, self.scop)
        return total, elements, size, certainty.bound, certainty.stated

    @computed_once
    def names(self) -> dict[str, frozenset[str]]:
        """Names by the field of an identifier that takes them: ``"array"`` and ``"tag"``."""
        tags = {item.access.tag for item in self.accesses if item.access.tag}
        return {"array": frozenset(array.name for array in self.scop.arrays), "tag": frozenset(tags)}

    @computed_once
    def accesses(self) -> tuple[AccessCounts, ...]:
        """Every access of every statement, in program order."""
        made = [(statement, access) for statement in self.scop.statements for access in statement.accesses]
        return tuple(
            AccessCounts(self, *one, self.scop.array(one[1].array), *strides, number)
            for number, (one, strides) in enumerate(zip(made, self._strides(), strict=True))
        )

    @_kept("strides")
    def _strides(self) -> tuple[tuple[_Strides, _Strides], ...]:
        """Return the strides of all accesses along the axes of the work-item and of the work-group index."""
        found = []
        for statement in self.scop.statements:
            launch = self.scop.launches[statement.launch]
            # Instances begin with the axes of the work-group, then come those of the work-item.
            groups = len(launch.groups)
            axes = range(groups + len(launch.items))
            for access in statement.accesses:
                strides = strides_along(self.scop, statement, access, axes)
                found.append((strides[groups:], strides[:groups]))
        return tuple(found)

    @_kept("groups")
    def group_count(self, launch: int) -> QuasiPolynomial:
        """Return how many work-groups a launch has, over all its repeats."""
        return self.scop.launches[launch].group_count

    @property
    @_kept("work-groups")
    def work_groups(self) -> QuasiPolynomial:
        """Work-groups launched, over all launches."""
        return QuasiPolynomial.total(launch.group_count for launch in self.scop.launches)

    @property
    @_kept("items")
    def work_items(self) -> QuasiPolynomial:
        """Work-items launched, over all launches."""
        return QuasiPolynomial.total(one.group_count * one.group_size for one in self.scop.launches)

    @_kept("launched sub-groups")
    def sub_groups(self, sub_group_size: int) -> QuasiPolynomial:
        """Sub-groups launched, over all launches."""
        # Rounded up: a last, partly filled sub-group takes a whole one.
        return QuasiPolynomial.total(
            one.group_count * -(-one.group_size // sub_group_size) for one in self.scop.launches
        )

    @property
    @_kept("launches")
    def launches(self) -> QuasiPolynomial:
        """Number of device programs launched."""
        return QuasiPolynomial.total(launch.repeats for launch in self.scop.launches)


def _record(value: Any) -> Any:
    if isinstance(value, QuasiPolynomial):
        return {"polynomial": polynomial_record(value)}
    return [_record(item) for item in value] if isinstance(value, tuple) else value


def _from_record(record: Any) -> Any:
    if isinstance(record, dict):
        return polynomial_from_record(record["polynomial"])
    return tuple([_from_record(item) for item in record]) if isinstance(record, list) else record


def counts_of(scop: Scop) -> ScopCounts:
    """Return the counts of a Scop, shared between all features that read it and kept on the Scop itself."""
    require_scop(scop)
    return scop.derived("counts", (), lambda: ScopCounts(scop))


def keep_counts_of(described: Any) -> None:
    """Write what was counted of a Scop to the store; tile programs have no such counts."""
    if isinstance(described, Scop):
        counts_of(described).keep()


def sub_groups_of(domain: Any, launch: Launch, sub_group_size: int) -> Any:
    """Return the sub-groups that execute a set of work-item instances, each once per iteration of the loops.

    An isl set over work-groups, work-items and loops becomes one over work-groups, their sub-groups, and loops.
    """
    sequential = domain.dim(isl.dim_type.set) - len(launch.groups) - len(launch.items)
    return domain.apply(_sub_group_map(len(launch.groups), launch.items, sequential, sub_group_size))


@lru_cache(maxsize=1024)
def _sub_group_map(groups: int, items: tuple[int, ...], sequential: int, sub_group_size: int) -> Any:
    outer, local, loops = (
        [f"{letter}{i}" for i in range(count)]
        for letter, count in (("g", groups), ("l", len(items)), ("s", sequential))
    )
    # Work-items are packed into sub-groups along the lowest axis first (Section 1.2).
    terms, stride = [], 1
    for name, extent in zip(local, items, strict=True):
        terms.append(f"{stride}*{name}")
        stride *= extent
    source, flat = ", ".join(outer + local + loops), " + ".join(terms) or "0"
    target = ", ".join([*outer, f"floor(({flat})/{sub_group_size})", *loops])
    return isl.Map(f"{{ [{source}] -> [{target}] }}")
