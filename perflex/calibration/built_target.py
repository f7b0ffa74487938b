"""What a prediction counts for where the model has features of built kernels: the kernel, built for the device."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from perflex.errors import FeatureError, MissingSizeError, PerflexError
from perflex.features.sized_kernel import sized_kernels
from perflex.features.values import with_own_sizes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.features.target import Target


Knowledge: TypeAlias = Literal["nothing", "code", "timing", "timing on other devices"]


def model_knowledge(features: Sequence[str]) -> Knowledge:
    """Return what predictions by these features know of a kernel: its compiled code, or nothing but its counts."""
    from perflex.features import parse_feature
    from perflex.features.families.code import needs_code

    return "code" if any(needs_code(parse_feature(name)) for name in features) else "nothing"


def built_target(
    features: Sequence[str],
    kernel: Any,
    sizes: Mapping[str, Any],
    target: Target,
    output: str,
    facts: Mapping[str, Any] | None = None,
) -> Target:
    """Return the target with the kernel's machine code where a feature needs it, else as it is."""
    from perflex.features import parse_feature
    from perflex.features.families.code import needs_code

    needing = next((name for name in features if needs_code(parse_feature(name))), None)
    if needing is None or target.code is not None:
        return target
    from perflex.calibration.device_match import device_of_calibration
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
