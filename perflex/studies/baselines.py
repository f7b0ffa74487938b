"""Trivial predictions that every model is compared with: one timing scaled by counts, and a roofline.

Whoever has timed a variant once can scale that time, and whoever knows the machine's peaks has a roofline (Williams,
Waterman and Patterson, 2009). A model that is not better than those of its own knowledge is not worth its calibration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from perflex.errors import CalibrationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from perflex.features.counting.counts import ScopCounts
    from uipick import MeasurementKernel

Knowledge = Literal["nothing", "code", "short launch", "timing"]
"""What a method has seen of a variant before it predicts it: nothing (its counts alone); its compiled code; a launch of
code made from it, on little data or with part of its work; a timing of the variant itself."""
KNOWLEDGE: tuple[Knowledge, ...] = ("nothing", "code", "short launch", "timing")
"""All of them, the least first."""

# Its arrays are larger than the caches of most devices together, and fit into the memory of all.
_COPY = ("gmem_copy", "dtype:float32", "lsize_0:256", "width:1", "groups_fit:True", "nelements:16777216")


def knows_no_more(one: Knowledge, other: Knowledge) -> bool:
    """Return whether a method of knowledge `one` has seen no more of a variant than one of knowledge `other`."""
    return KNOWLEDGE.index(one) <= KNOWLEDGE.index(other)


@dataclass(frozen=True)
class Work:
    """What a launch does, counted without running it.

    Attributes
    ----------
    items
        Work-items.
    operations
        Arithmetic operations of all work-items, of any kind and type; a multiply-add is one.
    """

    items: float
    operations: float


def work_of(kernel: Any, sizes: Mapping[str, int]) -> Work:
    """Count a kernel's work.

    Parameters
    ----------
    kernel
        A loopy translation unit, a measurement kernel, or a Scop.
    sizes
        Value of each size parameter.

    Returns
    -------
    Work
        Its counts.

    Raises
    ------
    MissingSizeError
        A size parameter has no value, or the kernel is not valid for it.
    UnsupportedKernelError
        The kernel cannot be described exactly.
    """
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

    Parameters
    ----------
    kernel, sizes
        As for `work_of`.

    Raises
    ------
    MissingSizeError
        A size parameter has no value, or the kernel is not valid for it.
    UnsupportedKernelError
        The kernel cannot be described exactly, or the elements of an array cannot be counted.
    """
    counts, checked = _counts_at(kernel, sizes)
    arrays = {(item.array.name, item.access.direction) for item in counts.accesses if item.array.space == "global"}
    moved = 0.0
    for name, direction in sorted(arrays):
        chosen = tuple(c for c in counts.accesses if (c.array.name, c.access.direction) == (name, direction))
        moved += float(counts.footprint_among(chosen).elements.evaluate(checked)) * chosen[0].array.itemsize
    counts.keep()
    return moved


def _counts_at(kernel: Any, sizes: Mapping[str, int]) -> tuple[ScopCounts, Mapping[str, Any]]:
    """Return a kernel's counts, and its sizes after checks."""
    from perflex.features.counting.counts import counts_of
    from perflex.features.from_loopy.extract import extract_scop
    from perflex.features.values import kernel_of

    scop = extract_scop(kernel_of(kernel))
    return counts_of(scop), scop.checked(sizes)


def scaled(seconds: float, timed: Work, now: Work, by: Literal["items", "operations"]) -> float:
    """Return the time of one launch, scaled to another of the same variant.

    Parameters
    ----------
    seconds
        Measured time of the launch.
    timed, now
        Work of that launch, and of the one to predict.
    by
        What the time is taken to be in proportion to.

    Raises
    ------
    CalibrationError
        One of both launches has nothing of it, as a copy has no operations: it says nothing of times.
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
    """What a device does at most, measured with one kernel each.

    Attributes
    ----------
    operations_per_s
        Single-precision multiply-adds per second, all of them independent (`flops_madd_pattern` of the catalog).
    bytes_per_s
        Bytes loaded and stored per second by a copy of 64 MiB (`gmem_copy`).
    """

    operations_per_s: float
    bytes_per_s: float

    def roofline(self, work: Work, distinct_bytes: float) -> float:
        """Return the time in seconds at which the nearer of both peaks is reached.

        Raises
        ------
        CalibrationError
            The launch has neither operations nor bytes.
        """
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

    Parameters
    ----------
    kernels
        What the model was fitted to.
    variants
        What it predicts. Kernels made from them, on confined data or with part of their work, have the variants'
        generator in their own name (`uipick.confine_loads`, `uipick.remove_work`).
    """
    own = {variant.generator for variant in variants}
    parts = {f"{name}{ending}" for name in own for ending in ("_core", "_mem")}
    seen = {kernel.generator for kernel in kernels}
    if seen & own:
        return "timing"
    return "short launch" if seen & parts else "nothing"
