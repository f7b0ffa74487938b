"""The baselines of a study: what anybody predicts who has a timing, a confined launch, or the machine's peaks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perflex.studies.baselines import Work, scaled, work_of

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


def baseline_times(
    plan: Plan, seconds: Mapping[str, float], peaks: Peaks | None
) -> dict[tuple[str, int], dict[str, float]]:
    """Return the times in seconds that baselines predict, by variant and size.

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
            known[kernel.name] = work_of(kernel.kernel, kernel.sizes)
        return known[kernel.name]

    found = {}
    for key, target in plan.targets.items():
        now, made = work(target), {}
        if peaks is not None:
            made["roofline"] = peaks.roofline(now)
        core, small = plan.confined(target), plan.small.get(key[0])
        if core is not None and core.name in seconds:
            made["confined launch by operations"] = scaled(seconds[core.name], work(core), now, "operations")
        if small is not None and small.name in seconds:
            made["scaled by work-items"] = scaled(seconds[small.name], work(small), now, "items")
            made["scaled by operations"] = scaled(seconds[small.name], work(small), now, "operations")
        found[key] = made
    return found
