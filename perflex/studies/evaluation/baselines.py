"""Trivial predictions that every model is compared with: one timing scaled by counts, and a roofline.

Whoever has timed a variant once can scale that time, and whoever knows the machine's peaks has a roofline (Williams,
Waterman and Patterson, 2009). A model that is not better than those of its own knowledge is not worth its calibration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from perflex.errors import CalibrationError, UnsupportedKernelError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from perflex.features.counting.scop_counts import ScopCounts
    from perflex.studies.evaluation.studies import Plan
    from uipick import MeasurementKernel

Knowledge = Literal["nothing", "code", "reduced kernels", "timing"]
"""What a method has seen of a variant before it predicts it: nothing (its counts alone); its compiled code; timings of
kernels made from it, on little data or with part of its work; a timing of the variant itself."""
KNOWLEDGE: tuple[Knowledge, ...] = ("nothing", "code", "reduced kernels", "timing")
"""All of them, the least first."""
IN_WORDS: Mapping[str, str] = {
    "nothing": "its counts",
    "code": "its compiled code",
    "reduced kernels": "parts of it, timed",
    "timing": "a timing of it",
}
"""What is known of a variant, as users read it."""

# Its arrays are larger than the caches of most devices together, and fit into the memory of all.
_COPY = ("gmem_copy", "dtype:float32", "lsize_0:256", "width:1", "groups_fit:True", "nelements:16777216")


def knows_no_more(one: Knowledge, other: Knowledge) -> bool:
    """Return whether a method of knowledge `one` has seen no more of a variant than one of knowledge `other`."""
    return KNOWLEDGE.index(one) <= KNOWLEDGE.index(other)


@dataclass(frozen=True)
class Work:
    """What a launch does, counted without running it."""

    # Work-items.
    items: float
    # Arithmetic operations of all work-items, of any kind and type; a multiply-add is one.
    operations: float


def work_of(kernel: Any, sizes: Mapping[str, int]) -> Work:
    """Count the work of a loopy translation unit, a measurement kernel, or a Scop."""
    counts, checked = _counts_at(kernel, sizes)
    kinds = {(operation.kind, operation.dtype) for one in counts.scop.statements for operation in one.operations}
    found = Work(
        items=float(counts.work_items.evaluate(checked)),
        operations=sum(float(counts.operation_total(*kind, None).evaluate(checked)) for kind in sorted(kinds)),
    )
    counts.keep()
    return found


def distinct_bytes_of(kernel: Any, sizes: Mapping[str, int]) -> float:
    """Count the distinct bytes of global memory that a kernel loads, and those that it stores, in all.

    For scattered subscripts this takes long, and kernels are refused that have all other counts.
    """
    counts, checked = _counts_at(kernel, sizes)
    arrays = {(item.array.name, item.access.direction) for item in counts.accesses if item.array.memory == "global"}
    moved = 0.0
    for name, direction in sorted(arrays):
        chosen = tuple(c for c in counts.accesses if (c.array.name, c.access.direction) == (name, direction))
        moved += float(counts.footprint_among(chosen).elements.evaluate(checked)) * chosen[0].array.itemsize
    counts.keep()
    return moved


def _counts_at(kernel: Any, sizes: Mapping[str, int]) -> tuple[ScopCounts, Mapping[str, Any]]:
    """Return a kernel's counts, and its sizes after checks."""
    from perflex.features.counting.scop_counts import counts_of
    from perflex.features.from_loopy.extract import extract_scop

    scop = extract_scop(kernel, sizes)
    return counts_of(scop), scop.checked(sizes)


def scaled(seconds: float, timed: Work, now: Work, by: Literal["items", "operations"]) -> float:
    """Return the time of one launch, scaled from its work to that of another of the same variant.

    Where one of both has nothing to scale by, as a copy has no operations, that is a CalibrationError.
    """
    before: float = getattr(timed, by)
    after: float = getattr(now, by)
    for which, count in (("that was timed", before), ("to predict", after)):
        if not count > 0:
            msg = f"the launch {which} has no {by}, so its time cannot be scaled by them; scale it by something else"
            raise CalibrationError(msg)
    return seconds * after / before


@dataclass(frozen=True)
class Peaks:
    """What a device does at most, measured with one kernel each."""

    # Single-precision multiply-adds, all of them independent (`flops_madd_pattern` of the catalog).
    operations_per_s: float
    # Loaded and stored by a copy of 64 MiB (`gmem_copy`).
    bytes_per_s: float

    def roofline(self, work: Work, distinct_bytes: float) -> float:
        """Return the time in seconds at which the nearer of both peaks is reached."""
        if not (work.operations > 0 or distinct_bytes > 0):
            msg = "the launch has neither operations nor bytes, so it has no roofline; predict it by its work-items"
            raise CalibrationError(msg)
        return max(work.operations / self.operations_per_s, distinct_bytes / self.bytes_per_s)


def copy_kernel() -> MeasurementKernel:
    """Return the kernel that measures the bandwidth."""
    from uipick import ALL_GENERATORS, KernelCollection

    (kernel,) = KernelCollection(ALL_GENERATORS).generate_kernels(_COPY)
    return kernel


def copy_bandwidth(seconds: float) -> float:
    """Return bytes per second of `copy_kernel`, loads and stores, from its time in seconds."""
    kernel = copy_kernel()
    return distinct_bytes_of(kernel, kernel.sizes) / seconds


def knowledge_of(kernels: Iterable[MeasurementKernel], variants: Iterable[MeasurementKernel]) -> Knowledge:
    """Return what a model has seen of some variants that was fitted to these measurement kernels.

    Kernels made from the variants, on confined data or with part of their work, have the variants' generator in their
    own name (`uipick.confine_loads`, `uipick.remove_work`).
    """
    own = {variant.generator for variant in variants}
    parts = {f"{name}{ending}" for name in own for ending in ("_core", "_mem")}
    seen = {kernel.generator for kernel in kernels}
    if seen & own:
        return "timing"
    return "reduced kernels" if seen & parts else "nothing"


BASELINES: Mapping[str, Knowledge] = {
    "roofline": "nothing",
    "confined launch by operations": "reduced kernels",
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
    """What baselines predict for a study, by variant and size, and by the baseline's name."""

    seconds: Mapping[tuple[str, int], Mapping[str, float]]
    # Why a baseline says nothing of one of the kernels: what it goes by is zero there, or cannot be counted.
    left_out: Mapping[str, str]


def baseline_times(plan: Plan, seconds: Mapping[str, float], peaks: Peaks | None) -> BaselineTimes:
    """Return the times in seconds that baselines predict.

    Of the measured times, by a kernel's name, none of a target is used. A baseline that has no time to scale, or no
    peaks, is left out.
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
