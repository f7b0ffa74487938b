"""The baselines of a study: what anybody predicts who has a timing, a confined launch, or the machine's peaks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from perflex.errors import CalibrationError, UnsupportedKernelError
from perflex.studies.baselines import Work, distinct_bytes_of, scaled, work_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.studies.baselines import Knowledge, Peaks
    from perflex.studies.evaluation.plan import Plan
    from uipick import MeasurementKernel

BASELINES: Mapping[str, Knowledge] = {
    "roofline": "nothing",
    "confined launch by operations": "short launch",
    "scaled by work-items": "timing",
    "scaled by operations": "timing",
}
"""Names, and what each has seen of a variant."""
MEANINGS: Mapping[str, str] = {
    "roofline": "counted operations or distinct bytes at the machine's measured peaks, whichever takes longer",
    "confined launch by operations": (
        "one launch of the variant on confined data, at the smallest size that a model is calibrated with, times the "
        "ratio of counted operations"
    ),
    "scaled by work-items": "one timing of the variant at a smaller size, times the ratio of work-items",
    "scaled by operations": "the same timing, times the ratio of counted operations",
}
"""What each is."""


@dataclass(frozen=True)
class BaselineTimes:
    """What baselines predict for a study.

    Attributes
    ----------
    seconds
        Predicted times by variant and size, and by the baseline's name.
    left_out
        Why a baseline says nothing of one of the kernels: what it goes by is zero there, or cannot be counted.
    """

    seconds: Mapping[tuple[str, int], Mapping[str, float]]
    left_out: Mapping[str, str]


def baseline_times(plan: Plan, seconds: Mapping[str, float], peaks: Peaks | None) -> BaselineTimes:
    """Return the times in seconds that baselines predict.

    Parameters
    ----------
    plan
        The study's kernels.
    seconds
        Measured times by a kernel's name; none of a target is used. A baseline that has no time to scale is left out.
    peaks
        Of the roofline; None for none.
    """
    known: dict[str, Work] = {}

    def work(kernel: MeasurementKernel) -> Work:
        if kernel.name not in known:
            known[kernel.name] = work_of(kernel, kernel.sizes)
        return known[kernel.name]

    def predict(name: str, target: MeasurementKernel, timed: MeasurementKernel) -> float:
        by: Literal["items", "operations"] = "items" if name == "scaled by work-items" else "operations"
        return scaled(seconds[timed.name], work(timed), work(target), by)

    found: dict[tuple[str, int], dict[str, float]] = {}
    left_out: dict[str, str] = {}
    for key, target in plan.targets.items():
        found[key] = {}
        timed = {"confined launch by operations": plan.confined(target)}
        timed |= dict.fromkeys(("scaled by work-items", "scaled by operations"), plan.small.get(key[0]))
        for name in BASELINES:
            kernel = timed.get(name)
            try:
                if name == "roofline" and peaks is not None:
                    found[key][name] = peaks.roofline(work(target), distinct_bytes_of(target, target.sizes))
                elif kernel is not None and kernel.name in seconds:
                    found[key][name] = predict(name, target, kernel)
            except (CalibrationError, UnsupportedKernelError) as error:
                left_out.setdefault(name, f"{target.name}: {error.message}")
    return BaselineTimes(found, left_out)
