"""What a prediction counts for where the model has features of built kernels: the kernel, built for the device."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from perflex.errors import CalibrationError, FeatureError, MissingSizeError, PerflexError
from perflex.features.sized_kernel import sized_kernels
from perflex.features.values import with_own_sizes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.compiled.in_core.source import CycleSource
    from perflex.features.target import Target


Knowledge: TypeAlias = Literal["nothing", "code", "short launch", "timing", "timing on other devices"]


def model_knowledge(features: Sequence[str]) -> Knowledge:
    """Return what predictions by these features know of a kernel: its compiled code, or nothing but its counts."""
    from perflex.features import parse_feature
    from perflex.features.families.code import needs_code

    return "code" if any(needs_code(parse_feature(name)) for name in features) else "nothing"


def require_cycles(source: CycleSource | None, features: Sequence[str]) -> None:
    """Make sure that a tool is asked for cycles only where a feature has them.

    Raises
    ------
    CalibrationError
        No feature has cycles.
    """
    from perflex.features import parse_feature
    from perflex.features.families.code import needs_cycles

    if source is not None and not any(needs_cycles(parse_feature(name)) for name in features):
        msg = (
            f"cycles are to come from {source.name}, and the model has neither f_code_cycles nor f_code_chain_cycles; "
            "use a model that does, such as general_cpu_code"
        )
        raise CalibrationError(msg)


def with_cycles(target: Target, features: Sequence[str], options: Mapping[str, Any]) -> Target:
    """Return the target with the source of cycles that a calibration's options name, where a feature has cycles.

    Raises
    ------
    MissingExtraError
        The source is a tool that is not here, or here in another version or for another core.
    """
    from perflex.compiled.in_core.source import source_of_options
    from perflex.features import parse_feature
    from perflex.features.families.code import needs_cycles

    if "cycles" not in options or not any(needs_cycles(parse_feature(name)) for name in features):
        return target
    return replace(target, cycles=source_of_options(options))


def built_target(
    features: Sequence[str],
    kernel: Any,
    sizes: Mapping[str, Any],
    target: Target,
    output: str,
    facts: Mapping[str, Any] | None = None,
) -> Target:
    """Return the target with the kernel's machine code where a feature needs it, else as it is.

    Parameters
    ----------
    features
        The model's input features.
    kernel
        A loopy translation unit, or a measurement kernel.
    sizes
        Value of each size parameter.
    target
        What features are counted for.
    output, facts
        The wall-time feature of the calibration, and what it holds of its device.

    Raises
    ------
    FeatureError
        The kernel cannot be built, the calibration's device is not here, or sizes are arrays.
    MissingSizeError
        A size parameter has no value.
    """
    from perflex.features import parse_feature
    from perflex.features.families.code import needs_code

    needing = next((name for name in features if needs_code(parse_feature(name))), None)
    if needing is None or target.code is not None:
        return target
    from perflex.calibration.its_device import device_of_calibration
    from perflex.timing.compiled_code import compiled_code
    from perflex.timing.results import MeasurementFailure

    unit, given = with_own_sizes(kernel, sizes)
    if any(np.ndim(value) for value in given.values()):
        msg = f"feature {needing} is of the code for one value of each size, not an array; predict one after another"
        raise FeatureError(msg, feature=needing)
    (job,) = sized_kernels([(unit, given)])
    try:
        (found,) = compiled_code([job], device_of_calibration(output, facts or {}))
    except PerflexError as error:
        raise _not_built(needing, job.group, error.message) from error
    if isinstance(found, MeasurementFailure):
        if isinstance(found.error, MissingSizeError):
            raise found.error
        raise _not_built(needing, job.group, found.reason)
    return replace(target, code=found)


def _not_built(feature: str, kernel: str, reason: str) -> FeatureError:
    msg = (
        f"feature {feature} needs kernel {kernel!r} built for the calibration's device, which failed: {reason}; "
        "predict where the device is, or with a model without f_code features"
    )
    return FeatureError(msg, feature=feature, kernel=kernel)
