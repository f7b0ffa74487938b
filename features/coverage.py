"""What a kernel does that a model has no feature for: a cost that a prediction would silently miss."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from perflex.errors import PerflexWarning
from perflex.features.counting.counts import counts_of
from perflex.features.families.footprints import FootprintFeature
from perflex.features.families.instructions import InstructionFeature
from perflex.features.families.memory import MemoryAccessFeature, describe_access
from perflex.features.families.operations import OperationFeature
from perflex.features.families.registry import parse_feature
from perflex.features.from_loopy.extract import extract_scop
from perflex.features.instructions.instructions import instruction_class
from perflex.features.values import kernel_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from perflex.features.scop.scop import Scop

_LISTED = 12


def uncounted(features: Iterable[str], kernel: Any, sizes: Mapping[str, Any]) -> list[str]:
    """Return accesses and operations of a kernel that a model of its kind should count, but does not.

    A model that has features for loads from global memory means to account for all of them; one that has none
    leaves them out on purpose. The same holds for each address space and direction, and for the operations of
    each element type. Instruction features (``f_inst_...``) count what is of their class.

    Parameters
    ----------
    features
        The model's input features.
    kernel
        A loopy translation unit or a Scop.
    sizes
        Value of each size parameter.
    """
    scop = extract_scop(kernel)
    parsed = [parse_feature(name) for name in features]
    memory = [feature for feature in parsed if isinstance(feature, (MemoryAccessFeature, FootprintFeature))]
    operations = [feature for feature in parsed if isinstance(feature, OperationFeature)]
    instructions = [feature for feature in parsed if isinstance(feature, InstructionFeature)]
    return _accesses(scop, memory, instructions, sizes) + _operations(scop, operations, instructions)


def warn_uncounted(features: Iterable[str], kernel: Any, sizes: Mapping[str, Any]) -> None:
    """Warn of what `uncounted` finds; arguments as there, the kernel may also be a measurement kernel.

    Warns
    -----
    PerflexWarning
        Names the accesses and operations.
    """
    kernel = kernel_of(kernel)
    missed = uncounted(features, kernel, sizes)
    if missed:
        shown = "; ".join(missed[:_LISTED])
        name = extract_scop(kernel).name
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
