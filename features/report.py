"""Everything a kernel contains, as features; and what a model has no feature for, which a prediction would miss."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perflex.errors import FeatureError, UnsupportedKernelError, warn
from perflex.features.counting.scop_counts import AccessCounts, counts_of, keep_counts_of
from perflex.features.counting.touched import Certainty
from perflex.features.families.feature import Feature
from perflex.features.families.machine_code import examples_for
from perflex.features.families.memory_accesses import describe_access
from perflex.features.families.on_machine import RESIDENCY_FEATURES
from perflex.features.families.registry import parse_feature
from perflex.features.from_loopy.extract import extract_scop
from perflex.features.scop.scop import Operation, Scop
from perflex.features.target import Target, resolve_target
from perflex.features.tiles.tile_kernel import TileKernel
from perflex.html import shown_by
from perflex.tables import Column, Table, text


@dataclass(frozen=True)
class CountedFeature:
    """A feature of one kernel.

    Attributes
    ----------
    identifier
        As in model strings.
    value
        At the given sizes; None where sizes are missing, or the elements of an array: the note says so.
    expression
        The count as a function of the sizes, or what stands for it.
    unit
        What is counted.
    certainty
        Whether the count is exact, an upper bound (of what a data-dependent condition may skip, or of elements
        that are not known), or rests on what the user stated.
    note
        For accesses: what they are in the kernel, strides that do not exist and, at given sizes, access-to-footprint
        ratios (AFR); for footprints, the AFR and their size at given sizes.
    """

    identifier: str
    value: float | None
    expression: str
    unit: str
    certainty: Certainty
    note: str = ""

    def __str__(self) -> str:
        """Return one line: identifier, formula, and the value where there is one."""
        value = "" if self.value is None else f" = {self.value:g}"
        return f"{self.identifier}: {self.expression}{value}"

    @property
    def exact(self) -> bool:
        """Whether the count is exact."""
        return self.certainty.exact


def _told(value: float) -> str:
    # Counts are told whole.
    return f"{value:{'.17g' if value.is_integer() else '.6g'}}"


class CountedFeatures(list[CountedFeature]):
    """Counted features: a list that notebooks show as a table."""

    def table(self) -> Table:
        """Return a row for each feature."""
        columns = [
            text("identifier", "feature", code=True), Column("value", write=_told), text("expression", "count"),
            text("unit"), text("certainty"), text("note"),
        ]  # fmt: skip
        return Table("Features", columns, [
            (f.identifier, f.value, f.expression, f.unit, "" if f.exact else str(f.certainty), f.note) for f in self
        ])  # fmt: skip

    _repr_html_ = shown_by("result.html")


# A stride that can stand in an identifier.
_PRODUCT = re.compile(r"-?[A-Za-z0-9_]+(\*[A-Za-z0-9_]+)*")
# Costs that a model misses, that are shown: each is long.
_MISSED = 3


def count_features(
    kernel: Any,
    sizes: Mapping[str, int] | None = None,
    *,
    identifiers: Iterable[str] = (),
    sub_group_size: int | None = None,
) -> CountedFeatures:
    """Count features of a kernel: the given ones, or all that it contains.

    Parameters
    ----------
    kernel
        Loopy kernel, measurement kernel, or Scop.
    sizes
        Value of each size parameter; without them only symbolic counts are given.
    identifiers
        Features to count; one that matches nothing has the value 0. By default everything there is, and where sizes
        are given and a machine is chosen, what the kernel's residency on it gives.
    sub_group_size
        Work-items per sub-group; by default those of the machine of `using_machine`, else 32.

    Raises
    ------
    UnknownFeatureError
        An identifier names no feature.
    MissingSizeError
        A constraint of an identifier can only be decided with sizes, or the kernel is not valid for them.
    """
    scop, target = extract_scop(kernel, sizes), resolve_target(sub_group_size)
    checked = None if sizes is None else scop.checked(sizes)
    identifiers = list(identifiers)
    chosen = identifiers or _contained(scop, checked, target)
    features = [parse_feature(identifier) for identifier in chosen]
    counted = CountedFeatures(_counted(each, scop, checked, target, named=bool(identifiers)) for each in features)
    keep_counts_of(scop)
    return counted


def _contained(scop: Scop, sizes: Mapping[str, Any] | None, target: Target) -> list[str]:
    """Return all features that a kernel has, at given sizes with those of the machine and of the code that is known."""
    if isinstance(scop, TileKernel):
        shown = ("f_tile_programs", "f_tile_dram") if target.machine is not None else ("f_tile_programs",)
        return [name for one in shown for name in parse_feature(one).inventory(scop)]
    accesses = [_access_identifier(item) for item in counts_of(scop).accesses if item.array.space != "private"]
    # An inventory is that of the family: any identifier of it will do to ask.
    operations, chains, launches, footprints = (
        parse_feature(one).inventory(scop)
        for one in ("f_op_float32_add", "f_chain_float32_add", "f_thread_groups", "f_mem_footprint")
    )
    found = [*operations, *chains, *accesses, *launches, *footprints]
    if sizes is not None:
        found += RESIDENCY_FEATURES if target.machine is not None and target.machine.kind == "gpu" else ()
        found += _of_code(scop, sizes, target)
    return list(dict.fromkeys(found))


def _of_code(scop: Scop, sizes: Mapping[str, Any], target: Target) -> list[str]:
    """Return the features of the machine code that can be told, with a warning where some cannot."""
    found, refused = [], []
    for identifier in () if target.code is None else examples_for(target.code):
        try:
            parse_feature(identifier).value(scop, sizes, target)
            found.append(identifier)
        except FeatureError as error:
            refused.append(error.message)
    if refused:
        warn(refused[0])
    return found


def _access_identifier(item: AccessCounts) -> str:
    """Return the identifier that fits an access and those with its tag, type and strides."""
    # Where a stride is missing, the identifier would fit any access of the type.
    parts = [f"array:{item.array.name}"] if None in (*item.local_strides, *item.group_strides) else []
    parts += [f"tag:{item.access.tag}"] if item.access.tag else []
    parts += [item.array.space, item.array.dtype, item.access.direction]
    # On chip, where a work-group stands does not matter.
    for name in ("local", "group") if item.array.memory == "global" else ("local",):
        texts = [str(stride).replace(" ", "") for stride in getattr(item, f"{name}_strides")]
        entries = [f"{axis}:{text}" for axis, text in enumerate(texts) if text != "None" and _PRODUCT.fullmatch(text)]
        if entries:
            parts.append(f"{name[0]}strides:{{{';'.join(entries)}}}")
    return "_".join(["f_mem_access", *parts])


def _counted(
    feature: Feature, scop: Scop, sizes: Mapping[str, Any] | None, target: Target, *, named: bool
) -> CountedFeature:
    try:
        value = None if sizes is None else float(feature.value(scop, sizes, target))
    except UnsupportedKernelError as error:
        # Of all that a kernel contains, what is not known is told beside the rest.
        if named or "extent" not in error.context:
            raise
        said = feature.remarks(scop, None, target)
        return CountedFeature(feature.identifier, None, said.formula, feature.unit, said.certainty, error.message)
    said = feature.remarks(scop, sizes, target)
    return CountedFeature(feature.identifier, value, said.formula, said.unit or feature.unit, said.certainty, said.note)


def uncounted(features: Iterable[str], kernel: Any, sizes: Mapping[str, Any]) -> list[str]:
    """Return accesses and operations of a kernel that a model of its kind should count, but does not.

    A model that has features for loads from global memory means to account for all of them, one that has none leaves
    them out on purpose; likewise for each address space and direction, and each element type's operations.
    """
    scop = extract_scop(kernel, sizes)
    if isinstance(scop, TileKernel):
        return []
    parsed = [parse_feature(name) for name in features]

    def is_missed(part: AccessCounts | Operation) -> bool:
        told = [feature.covers(part, sizes) for feature in parsed]
        return False in told and True not in told

    found = {(operation.dtype, operation.kind) for one in scop.statements for operation in one.operations}
    missed = [describe_access(item) for item in counts_of(scop).accesses if is_missed(item)]
    missed += [f"f_op_{dtype}_{kind}" for dtype, kind in sorted(found) if is_missed(Operation(kind, dtype))]
    return list(dict.fromkeys(missed))


def missed_text(missed: Sequence[str]) -> str:
    """Return what `uncounted` found as a message tells it: the first few, and how many there are besides."""
    more = f"; and {len(missed) - _MISSED} more" if len(missed) > _MISSED else ""
    return "; ".join(missed[:_MISSED]) + more


def warn_uncounted(features: Iterable[str], kernel: Any, sizes: Mapping[str, Any]) -> None:
    """Warn of what `uncounted` finds; arguments as there, the kernel may also be a measurement kernel."""
    if missed := uncounted(features, kernel, sizes):
        name = extract_scop(kernel, sizes).name
        msg = f"{name}: the model has no feature for {missed_text(missed)}; the prediction leaves it out"
        warn(msg)
