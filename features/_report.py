"""Everything a kernel contains, as features: identifier, symbolic count, value, exact or bound."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perflex.features._chain_features import ChainFeature
from perflex.features._counts import AccessCounts, ScopCounts, counts_of
from perflex.features._feature import parse_feature
from perflex.features._launch_features import LaunchFeature
from perflex.features._memory_features import MemoryAccessFeature
from perflex.features._operation_features import OperationFeature

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from perflex.features._feature import Feature
    from perflex.features._quasipolynomial import QuasiPolynomial
    from perflex.features._scop import Scop

__all__ = ["CountedFeature", "count_features"]

_PRODUCT = re.compile(r"-?[A-Za-z0-9_]+(\*[A-Za-z0-9_]+)*")


@dataclass(frozen=True)
class CountedFeature:
    """A feature of one kernel.

    Attributes
    ----------
    identifier
        As in model strings.
    value
        At the given sizes; None where sizes are missing.
    expression
        The count as a function of the sizes, or what stands for it.
    unit
        What is counted.
    exact
        False where a data-dependent condition makes the count an upper bound.
    note
        For an access: what it is in the kernel, its access-to-footprint ratio, strides that do not exist.
    """

    identifier: str
    value: float | None
    expression: str
    unit: str
    exact: bool
    note: str = ""


def count_features(
    scop: Scop,
    sizes: Mapping[str, int] | None = None,
    *,
    identifiers: Iterable[str] = (),
    sub_group_size: int = 32,
    per_work_item: bool = False,
) -> list[CountedFeature]:
    """Count features of a kernel: the given ones, or all that it contains.

    Parameters
    ----------
    scop
        The kernel.
    sizes
        Value of each size parameter; without them only symbolic counts are given.
    identifiers
        Features to count; one that matches nothing has the value 0. By default everything there is.
    sub_group_size
        Work-items per sub-group.
    per_work_item
        Count executed instances of work-items, as a simulator does, instead of the paper's granularity
        (Section 5).

    Raises
    ------
    UnknownFeatureError
        An identifier names no feature.
    MissingSizeError
        A constraint of an identifier can only be decided with sizes, or the kernel is not valid for them.
    """
    checked = None if sizes is None else scop.checked(sizes)
    chosen = list(identifiers) or _contained(scop)
    counter = _Counter(scop, checked, sub_group_size, per_work_item)
    counted = [counter.count(parse_feature(identifier)) for identifier in chosen]
    counts_of(scop).keep()
    return counted


def _contained(scop: Scop) -> list[str]:
    found = parse_feature("f_op_float32_add").inventory(scop)
    found += parse_feature("f_chain_float32_add").inventory(scop)
    found += [access_identifier(item) for item in counts_of(scop).accesses if item.array.space != "private"]
    found += parse_feature("f_thread_groups").inventory(scop)
    return list(dict.fromkeys(found))


def access_identifier(item: AccessCounts) -> str:
    """Return the identifier that fits an access and those with its tag, type and strides."""
    parts = [f"tag:{item.access.tag}"] if item.access.tag else []
    parts += [item.array.space, item.array.dtype, item.access.direction]
    for name, strides in (("lstrides", item.local_strides), ("gstrides", item.group_strides)):
        # On chip, where a work-group stands does not matter.
        if name == "gstrides" and item.array.space != "global":
            continue
        entries = [
            f"{axis}:{text}"
            for axis, stride in enumerate(strides)
            if stride is not None and _PRODUCT.fullmatch(text := str(stride).replace(" ", ""))
        ]
        if entries:
            parts.append(f"{name}:{{{';'.join(entries)}}}")
    return "_".join(["f_mem_access", *parts])


@dataclass(frozen=True)
class _Counter:
    scop: Scop
    sizes: Mapping[str, Any] | None
    sub_group_size: int
    per_work_item: bool

    @property
    def counts(self) -> ScopCounts:
        return counts_of(self.scop)

    def count(self, feature: Feature) -> CountedFeature:
        if isinstance(feature, OperationFeature):
            return self._operation(feature)
        if isinstance(feature, MemoryAccessFeature):
            return self._accesses(feature)
        if isinstance(feature, LaunchFeature):
            return self._launch(feature)
        value = None if self.sizes is None else float(feature.value(self.scop, self.sizes, self.sub_group_size))
        what = "longest chain, at given sizes" if isinstance(feature, ChainFeature) else "computed at given sizes"
        return CountedFeature(feature.identifier, value, what, feature.unit, exact=True)

    def _value(self, symbolic: QuasiPolynomial) -> float | None:
        return None if self.sizes is None else float(symbolic.evaluate(self.sizes))

    def _operation(self, feature: OperationFeature) -> CountedFeature:
        total = self.counts.operation_total(feature.kind, feature.dtype, self._granularity)
        exact = self.counts.exact_operations.get((feature.kind, feature.dtype), True)
        unit = "operation" if self.per_work_item else feature.unit
        return CountedFeature(feature.identifier, self._value(total), str(total), unit, exact)

    @property
    def _granularity(self) -> int | None:
        return None if self.per_work_item else self.sub_group_size

    def _accesses(self, feature: MemoryAccessFeature) -> CountedFeature:
        selected = feature.selected(self.scop, {} if self.sizes is None else self.sizes)
        total = self.counts.access_total(selected, self._granularity)
        granularities = {
            "sub-group" if item.per_sub_group and not self.per_work_item else "work-item" for item in selected
        }
        unit = f"access per {granularities.pop()}" if len(granularities) == 1 else "access"
        return CountedFeature(
            feature.identifier,
            self._value(total),
            str(total),
            unit,
            all(item.exact for item in selected),
            "; ".join(dict.fromkeys(self._note(item) for item in selected)),
        )

    def _note(self, item: AccessCounts) -> str:
        missing = [f"lid({axis})" for axis, stride in enumerate(item.local_strides) if stride is None]
        missing += [f"gid({axis})" for axis, stride in enumerate(item.group_strides) if stride is None]
        note = item.access.text
        if self.sizes is not None and item.array.space == "global":
            footprint = item.footprint.evaluate(self.sizes)
            if footprint:
                note += f", AFR {float(item.work_item_count.evaluate(self.sizes) / footprint):.6g}"
        return note + (f", not affine in {', '.join(missing)}" if missing else "")

    def _launch(self, feature: LaunchFeature) -> CountedFeature:
        value = None
        if self.sizes is not None:
            value = float(feature.value(self.scop, self.sizes, self.sub_group_size))
        symbolic, unit = self._launch_expression(feature), feature.unit
        if feature.identifier.startswith("f_sync_barrier_") and self.per_work_item:
            kind = feature.identifier.removeprefix("f_sync_barrier_")
            executed = self.counts.barriers_executed(kind)
            value, symbolic, unit = self._value(executed), str(executed), "barrier, each work-item counted"
        return CountedFeature(feature.identifier, value, symbolic, unit, exact=True)

    def _launch_expression(self, feature: LaunchFeature) -> str:
        symbolic = {
            "f_sync_kernel_launch": lambda: self.counts.launches,
            "f_thread_groups": lambda: self.counts.work_groups,
            "f_thread_items": lambda: self.counts.work_items,
            "f_sub_groups": lambda: self.counts.sub_groups(self.sub_group_size),
        }
        if feature.identifier in symbolic:
            return str(symbolic[feature.identifier]())
        kind = feature.identifier.removeprefix("f_sync_barrier_")
        met = self.counts.barriers_met(kind)
        return "mean over the work-groups" if met is None else str(met)
