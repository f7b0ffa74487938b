"""Everything a kernel contains, as features: identifier, symbolic count, value, exact, bound or as stated.

And what a model has no feature for: a cost that a prediction would silently miss.
"""

from __future__ import annotations

import math
import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perflex.errors import FeatureError, PerflexWarning
from perflex.features.counting.scop_counts import ScopCounts, counts_of
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
    from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
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
_LISTED = 4
_MISSED = 12
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
    identifiers = list(identifiers)
    chosen = list(identifiers) or _contained(scop)
    if not identifiers and checked is not None:
        on_gpu = target.machine is not None and target.machine.kind == "gpu"
        chosen += [*(RESIDENCY_FEATURES if on_gpu else ()), *_of_code(scop, checked, target)]
    counter = _Counter(scop, checked, target)
    counted = CountedFeatures(counter.count(parse_feature(identifier)) for identifier in chosen)
    counts_of(scop).keep()
    return counted


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
        warnings.warn(refused, PerflexWarning, stacklevel=3)
    return found


def _contained(scop: Scop) -> list[str]:
    # An inventory is that of the family: any identifier of it will do to ask.
    found = parse_feature("f_op_float32_add").inventory(scop)
    found += parse_feature("f_chain_float32_add").inventory(scop)
    found += [access_identifier(item) for item in counts_of(scop).accesses if item.array.space != "private"]
    found += parse_feature("f_thread_groups").inventory(scop)
    found += parse_feature("f_mem_footprint").inventory(scop)
    return list(dict.fromkeys(found))


def access_identifier(item: AccessCounts) -> str:
    """Return the identifier that fits an access and those with its tag, type and strides."""
    # Where a stride is missing, the identifier would fit any access of the type.
    parts = [f"array:{item.array.name}"] if None in (*item.local_strides, *item.group_strides) else []
    parts += [f"tag:{item.access.tag}"] if item.access.tag else []
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
    target: Target

    @property
    def counts(self) -> ScopCounts:
        return counts_of(self.scop)

    def count(self, feature: Feature) -> CountedFeature:
        if isinstance(feature, OperationFeature):
            return self._operation(feature)
        if isinstance(feature, MemoryAccessFeature):
            return self._accesses(feature)
        if isinstance(feature, FootprintFeature):
            return self._footprint(feature)
        if isinstance(feature, LaunchFeature):
            return self._launch(feature)
        value = None if self.sizes is None else float(feature.value(self.scop, self.sizes, self.target))
        what, certainty = "computed at given sizes", Certainty()
        if isinstance(feature, ChainFeature):
            what = "longest chain, at the given sizes"
            for statement in feature.statements(self.scop):
                certainty = certainty | certainty_of_statement(statement)
        if isinstance(feature, CodeFeature):
            what, certainty = "read from the machine code, at the given sizes", Certainty(estimated=True)
        return CountedFeature(feature.identifier, value, what, feature.unit, certainty)

    def _value(self, symbolic: QuasiPolynomial) -> float | None:
        return None if self.sizes is None else float(symbolic.evaluate(self.sizes))

    def _footprint(self, feature: FootprintFeature) -> CountedFeature:
        touched = feature.footprint(self.scop, {} if self.sizes is None else self.sizes)
        elements, certain = touched.elements, touched.elements_certainty
        note = _reuse(touched, self.sizes)
        if self.sizes is not None and note:
            note += f", {_RELATIONS[certain.relation]}{_bytes_text(float(touched.bytes.evaluate(self.sizes)))}"
        return CountedFeature(feature.identifier, self._value(elements), str(elements), feature.unit, certain, note)

    def _operation(self, feature: OperationFeature) -> CountedFeature:
        total = self.counts.operation_total(feature.kind, feature.dtype, self.target.sub_group_size)
        certainty = self.counts.operation_certainty.get((feature.kind, feature.dtype), Certainty())
        return CountedFeature(feature.identifier, self._value(total), str(total), feature.unit, certainty)

    def _accesses(self, feature: MemoryAccessFeature) -> CountedFeature:
        selected = feature.selected(self.scop, {} if self.sizes is None else self.sizes)
        total = self.counts.access_total(selected, self.target.sub_group_size)
        certainty = Certainty()
        for item in selected:
            certainty = certainty | item.certainty
        granularities = {"sub-group" if item.per_sub_group else "work-item" for item in selected}
        unit = f"access per {granularities.pop()}" if len(granularities) == 1 else "access"
        return CountedFeature(
            feature.identifier,
            self._value(total),
            str(total),
            unit,
            certainty,
            access_notes(self.counts, selected, self.sizes),
        )

    def _launch(self, feature: LaunchFeature) -> CountedFeature:
        value = None if self.sizes is None else float(feature.value(self.scop, self.sizes, self.target))
        count = feature.count(self.scop, self.target.sub_group_size)
        symbolic = "mean over the work-groups" if count is None else str(count)
        certainty = Certainty(stated=any(one.stated for one in self.scop.barriers if one.kind == feature.barrier))
        return CountedFeature(feature.identifier, value, symbolic, feature.unit, certainty)


def access_notes(counts: ScopCounts, selected: Sequence[AccessCounts], sizes: Mapping[str, Any] | None) -> str:
    """Return the accesses as written, those with the same remark together."""
    texts: dict[tuple[str, str], dict[str, None]] = {}
    for item in selected:
        reuse = _reuse(counts.footprint_among((item,)), sizes) if item.array.space == "global" else ""
        texts.setdefault((reuse, _missing(item)), {})[item.access.text] = None
    notes = []
    for (reuse, missing), distinct in texts.items():
        shown = list(distinct)[:_LISTED]
        if len(distinct) > _LISTED:
            shown.append(f"and {len(distinct) - _LISTED} more")
        each = " each" if len(distinct) > 1 else ""
        notes.append("; ".join(shown) + (f", {reuse}{each}" if reuse else "") + missing)
    return "; ".join(notes)


def _missing(item: AccessCounts) -> str:
    axes = [f"lid({axis})" for axis, stride in enumerate(item.local_strides) if stride is None]
    axes += [f"gid({axis})" for axis, stride in enumerate(item.group_strides) if stride is None]
    return f", not affine in {', '.join(axes)}" if axes else ""


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
    scop = extract_scop(kernel, sizes)
    parsed = [parse_feature(name) for name in features]
    memory = [feature for feature in parsed if isinstance(feature, (MemoryAccessFeature, FootprintFeature))]
    operations = [feature for feature in parsed if isinstance(feature, OperationFeature)]
    instructions = [feature for feature in parsed if isinstance(feature, InstructionFeature)]
    return _accesses(scop, memory, instructions, sizes) + _operations(scop, operations, instructions)


def warn_uncounted(features: Iterable[str], kernel: Any, sizes: Mapping[str, Any]) -> None:
    """Warn of what `uncounted` finds; arguments as there, the kernel may also be a measurement kernel."""
    missed = uncounted(features, kernel, sizes)
    if missed:
        shown = "; ".join(missed[:_MISSED])
        name = extract_scop(kernel, sizes).name
        msg = f"{name}: the model has no feature for {shown}; the prediction leaves it out"
        warnings.warn(msg, PerflexWarning, stacklevel=4)


def _accesses(
    scop: Scop,
    features: Sequence[MemoryAccessFeature | FootprintFeature],
    instructions: Sequence[InstructionFeature],
    sizes: Mapping[str, Any],
) -> list[str]:
    patterns = [feature.pattern for feature in features]
    missed = []
    for item in counts_of(scop).accesses:
        if any(feature.counts_class(f"ldst_{item.array.space}") for feature in instructions):
            continue
        related = [
            pattern
            for pattern in patterns
            if pattern.space in {None, item.array.space} and pattern.direction in {None, item.access.direction}
        ]
        # A tag may stand for any space, so that it alone does not tell what the model means to cover on chip.
        on_chip = item.array.space != "global"
        if on_chip and not any(pattern.space == item.array.space for pattern in related):
            continue
        if related and not any(pattern.fits(item, sizes) for pattern in patterns):
            missed.append(describe_access(item))
    return list(dict.fromkeys(missed))


def _operations(
    scop: Scop, features: Sequence[OperationFeature], instructions: Sequence[InstructionFeature]
) -> list[str]:
    dtypes = {feature.dtype for feature in features}
    counted = {(feature.dtype, feature.kind) for feature in features}
    found = {(operation.dtype, operation.kind) for statement in scop.statements for operation in statement.operations}
    return [
        f"f_op_{dtype}_{kind}"
        for dtype, kind in sorted(found - counted)
        if dtype in dtypes and not any(feature.counts_class(instruction_class(dtype)) for feature in instructions)
    ]
