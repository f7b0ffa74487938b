"""Everything a kernel contains, as features: identifier, symbolic count, value, exact, bound or as stated.

And what a model has no feature for: a cost that a prediction would silently miss.
"""

from __future__ import annotations

import math
import re
import warnings
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from perflex.errors import FeatureError, PerflexWarning
from perflex.features.counting.scop_counts import counts_of
from perflex.features.counting.touched import Certainty, certainty_of_statement
from perflex.features.families.code import CodeFeature, examples_for
from perflex.features.families.launches import LaunchFeature
from perflex.features.families.machine import RESIDENCY_FEATURES
from perflex.features.families.memory import FootprintFeature, MemoryAccessFeature, describe_access
from perflex.features.families.operations import ChainFeature, InstructionFeature, OperationFeature
from perflex.features.families.registry import parse_feature
from perflex.features.from_loopy.extract import extract_scop
from perflex.features.instructions.instruction_counts import instruction_class
from perflex.features.target import DEFAULT_SUB_GROUP_SIZE, resolve_target
from perflex.html import shown_by

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from perflex.features.counting.scop_counts import AccessCounts, Footprint
    from perflex.features.families.feature import Feature
    from perflex.features.families.memory import AccessPattern
    from perflex.features.scop.scop import Scop
    from perflex.features.target import Target


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


class CountedFeatures(list[CountedFeature]):
    """Counted features: a list that notebooks show as a table."""

    _repr_html_ = shown_by("counted.html")


# A stride that can stand in an identifier.
_PRODUCT = re.compile(r"-?[A-Za-z0-9_]+(\*[A-Za-z0-9_]+)*")
# Accesses of a remark, and costs that a model misses, that are shown.
_LISTED, _MISSED = 4, 12
_RELATIONS = {"=": "", "<=": "at most ", ">=": "at least ", "~": "about "}


def count_features(
    kernel: Any,
    sizes: Mapping[str, int] | None = None,
    *,
    identifiers: Iterable[str] = (),
    sub_group_size: int = DEFAULT_SUB_GROUP_SIZE,
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
        Work-items per sub-group.

    Raises
    ------
    UnknownFeatureError
        An identifier names no feature.
    MissingSizeError
        A constraint of an identifier can only be decided with sizes, or the kernel is not valid for them.
    """
    scop, target = extract_scop(kernel, sizes), resolve_target(sub_group_size)
    checked = None if sizes is None else scop.checked(sizes)
    chosen = list(identifiers) or _contained(scop, checked, target)
    counted = CountedFeatures(_counted(parse_feature(identifier), scop, checked, target) for identifier in chosen)
    counts_of(scop).keep()
    return counted


def _contained(scop: Scop, sizes: Mapping[str, Any] | None, target: Target) -> list[str]:
    """Return all features that a kernel has, and at given sizes those of the machine and of the code that is known."""
    accesses = [access_identifier(item) for item in counts_of(scop).accesses if item.array.space != "private"]
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
    found, refused = [], ""
    for identifier in () if target.code is None else examples_for(target.code):
        try:
            parse_feature(identifier).value(scop, sizes, target)
        except FeatureError as error:
            refused = refused or error.message
        else:
            found.append(identifier)
    if refused:
        warnings.warn(refused, PerflexWarning, stacklevel=4)
    return found


def access_identifier(item: AccessCounts) -> str:
    """Return the identifier that fits an access and those with its tag, type and strides."""
    # Where a stride is missing, the identifier would fit any access of the type.
    parts = [f"array:{item.array.name}"] if None in (*item.local_strides, *item.group_strides) else []
    parts += [f"tag:{item.access.tag}"] if item.access.tag else []
    parts += [item.array.space, item.array.dtype, item.access.direction]
    # On chip, where a work-group stands does not matter.
    for name in ("local", "group") if item.array.space == "global" else ("local",):
        texts = [str(stride).replace(" ", "") for stride in getattr(item, f"{name}_strides")]
        entries = [f"{axis}:{text}" for axis, text in enumerate(texts) if text != "None" and _PRODUCT.fullmatch(text)]
        if entries:
            parts.append(f"{name[0]}strides:{{{';'.join(entries)}}}")
    return "_".join(["f_mem_access", *parts])


def _counted(feature: Feature, scop: Scop, sizes: Mapping[str, Any] | None, target: Target) -> CountedFeature:
    counts, at = counts_of(scop), {} if sizes is None else sizes
    count, expression, unit, certainty, note = None, "computed at given sizes", feature.unit, Certainty(), ""
    if isinstance(feature, OperationFeature):
        count = feature.count(scop, target.sub_group_size)
        certainty = counts.operation_certainty.get((feature.kind, feature.dtype), certainty)
    elif isinstance(feature, MemoryAccessFeature):
        selected = feature.selected(scop, at)
        count = counts.access_total(selected, target.sub_group_size)
        certainty = reduce(or_, (item.certainty for item in selected), certainty)
        granularities = {"sub-group" if item.per_sub_group else "work-item" for item in selected}
        unit += f" per {granularities.pop()}" if len(granularities) == 1 else ""
        note = _access_notes(selected, sizes)
    elif isinstance(feature, FootprintFeature):
        touched = feature.footprint(scop, at)
        count, certainty, note = touched.elements, touched.elements_certainty, _reuse(touched, sizes)
        if sizes is not None and note:
            note += f", {_RELATIONS[certainty.relation]}{_bytes_text(float(touched.bytes.evaluate(sizes)))}"
    elif isinstance(feature, LaunchFeature):
        count, expression = feature.count(scop, target.sub_group_size), "mean over the work-groups"
        certainty = Certainty(stated=any(one.stated for one in scop.barriers if one.kind == feature.barrier))
    elif isinstance(feature, ChainFeature):
        expression = "longest chain, at the given sizes"
        certainty = reduce(or_, map(certainty_of_statement, feature.statements(scop)), certainty)
    elif isinstance(feature, CodeFeature):
        expression, certainty = "read from the machine code, at the given sizes", Certainty(estimated=True)
    value = None if sizes is None else float(feature.value(scop, sizes, target))
    return CountedFeature(feature.identifier, value, expression if count is None else str(count), unit, certainty, note)


def _access_notes(selected: Sequence[AccessCounts], sizes: Mapping[str, Any] | None) -> str:
    """Return the accesses as written, those with the same remark together."""
    texts: dict[tuple[str, str], dict[str, None]] = {}
    for item in selected:
        reuse = _reuse(item.owner.footprint_among((item,)), sizes) if item.array.space == "global" else ""
        axes = [f"lid({axis})" for axis, stride in enumerate(item.local_strides) if stride is None]
        axes += [f"gid({axis})" for axis, stride in enumerate(item.group_strides) if stride is None]
        missing = f", not affine in {', '.join(axes)}" if axes else ""
        texts.setdefault((reuse, missing), {})[item.access.text] = None
    notes = []
    for (reuse, missing), distinct in texts.items():
        shown = list(distinct)[:_LISTED]
        if len(distinct) > _LISTED:
            shown.append(f"and {len(distinct) - _LISTED} more")
        each = " each" if len(distinct) > 1 else ""
        notes.append("; ".join(shown) + (f", {reuse}{each}" if reuse else "") + missing)
    return "; ".join(notes)


def _reuse(touched: Footprint, sizes: Mapping[str, Any] | None) -> str:
    """Return the access-to-footprint ratio at given sizes; empty without sizes, or where nothing is touched."""
    afr = math.nan if sizes is None else touched.afr(sizes)
    return "" if math.isnan(afr) else f"AFR {_RELATIONS[touched.afr_relation]}{afr:.6g}"


def _bytes_text(number: float) -> str:
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if number >= 1024**power:
            return f"{number / 1024**power:.4g} {unit}"
    return f"{number:g} B"


def uncounted(features: Iterable[str], kernel: Any, sizes: Mapping[str, Any]) -> list[str]:
    """Return accesses and operations of a kernel that a model of its kind should count, but does not.

    A model that has features for loads from global memory means to account for all of them, one that has none leaves
    them out on purpose; likewise for each address space and direction, and each element type's operations.
    """
    scop, parsed = extract_scop(kernel, sizes), [parse_feature(name) for name in features]
    patterns = [one.pattern for one in parsed if isinstance(one, MemoryAccessFeature | FootprintFeature)]
    counted = {(one.dtype, one.kind) for one in parsed if isinstance(one, OperationFeature)}
    instructions = [one for one in parsed if isinstance(one, InstructionFeature)]

    def executed(kind: str) -> bool:
        return any(one.counts_class(kind) for one in instructions)

    missed = [
        describe_access(item)
        for item in counts_of(scop).accesses
        if not executed(f"ldst_{item.array.space}") and _is_missed(item, patterns, sizes)
    ]
    found = {(operation.dtype, operation.kind) for statement in scop.statements for operation in statement.operations}
    dtypes = {dtype for dtype, _ in counted}
    missed += [
        f"f_op_{dtype}_{kind}"
        for dtype, kind in sorted(found - counted)
        if dtype in dtypes and not executed(instruction_class(dtype))
    ]
    return list(dict.fromkeys(missed))


def _is_missed(item: AccessCounts, patterns: Sequence[AccessPattern], sizes: Mapping[str, Any]) -> bool:
    """Return whether patterns are meant for accesses such as this one, but none fits it."""
    space, direction = item.array.space, item.access.direction
    # A tag may stand for any space, so that it alone does not tell what the model means to cover on chip.
    spaces = {space, None} if space == "global" else {space}
    meant = any(pattern.space in spaces and pattern.direction in {None, direction} for pattern in patterns)
    return meant and not any(pattern.fits(item, sizes) for pattern in patterns)


def warn_uncounted(features: Iterable[str], kernel: Any, sizes: Mapping[str, Any]) -> None:
    """Warn of what `uncounted` finds; arguments as there, the kernel may also be a measurement kernel."""
    missed = uncounted(features, kernel, sizes)
    if missed:
        name = extract_scop(kernel, sizes).name
        msg = f"{name}: the model has no feature for {'; '.join(missed[:_MISSED])}; the prediction leaves it out"
        warnings.warn(msg, PerflexWarning, stacklevel=4)
