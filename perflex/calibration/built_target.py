"""What a prediction counts for where the model has features of built kernels: the kernel, built for the device."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from perflex.errors import FeatureError, MissingSizeError, PerflexError
from perflex.features.sized_kernel import sized_kernels, with_own_sizes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.features.target import Target


Knowledge: TypeAlias = Literal["nothing", "code", "timing", "timing on other devices", "timing of other variants"]


def needing_code(features: Sequence[str]) -> str | None:
    """Return the first feature that has no value without a kernel's machine code; None where there is none."""
    from perflex.features import parse_feature

    return next((name for name in features if parse_feature(name).family.needs == "code"), None)


def model_knowledge(features: Sequence[str]) -> Knowledge:
    """Return what predictions by these features know of a kernel: its compiled code, or nothing but its counts."""
    return "nothing" if needing_code(features) is None else "code"


def built_target(
    features: Sequence[str],
    kernel: Any,
    sizes: Mapping[str, Any],
    target: Target,
    output: str,
    facts: Mapping[str, Any] | None = None,
) -> Target:
    """Return the target with the kernel's machine code where a feature needs it, else as it is."""
    needing = needing_code(features)
    if needing is None or target.code is not None:
        return target
    unit, given = with_own_sizes(kernel, sizes)
    if any(np.ndim(value) for value in given.values()):
        msg = f"feature {needing} is of the code for one value of each size, not an array; predict one after another"
        raise FeatureError(msg, feature=needing)
    (found,) = built_targets(features, [(unit, given)], target, output, facts or {})
    if isinstance(found, FeatureError):
        raise found
    return found


def built_targets(
    features: Sequence[str],
    kernels: Sequence[tuple[Any, Mapping[str, Any]]],
    target: Target,
    output: str,
    facts: Mapping[str, Any],
) -> list[Target | FeatureError]:
    """Return of each kernel at its sizes the target as `built_target`, or why it cannot be built, all built at once."""
    needing = needing_code(features)
    if needing is None or not kernels:
        return [target] * len(kernels)
    from perflex.calibration.device_match import device_of_calibration
    from perflex.timing.compiled_code import compiled_code
    from perflex.timing.results import MeasurementFailure

    jobs = sized_kernels(kernels)
    found: list[Target | FeatureError] = []
    try:
        outcomes = compiled_code(jobs, device_of_calibration(output, facts))
    except PerflexError as error:
        raise _not_built(needing, jobs[0].group, error.message) from error
    for job, outcome in zip(jobs, outcomes, strict=True):
        if not isinstance(outcome, MeasurementFailure):
            found.append(replace(target, code=outcome))
        elif isinstance(outcome.error, MissingSizeError):
            raise outcome.error
        else:
            found.append(_not_built(needing, job.group, outcome.reason.removeprefix(f"{job.label}: ")))
    return found


def _not_built(feature: str, kernel: str, reason: str) -> FeatureError:
    msg = (
        f"feature {feature} needs kernel {kernel!r} built for the calibration's device, which failed: {reason}; "
        "predict where the device is, or with a model without f_code features"
    )
    return FeatureError(msg, feature=feature, kernel=kernel, reason=reason)
