"""Variants with their feature values, whether given as kernels or as a space: what ranking and pruning start from."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.errors import CalibrationError, PerflexWarning, UnsupportedKernelError
from perflex.features.many import in_workers
from perflex.features.values import kernel_of
from perflex.progress import progress_shown
from perflex.search.spaces.extraction import ExtractedSpace, count_kernel, extract_space
from perflex.search.spaces.space import VariantSpace
from perflex.store.store import using_store

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from pathlib import Path

    from numpy.typing import NDArray

    from perflex.calibration.calibration import Calibration
    from perflex.features.target import Target
    from perflex.machines.machine import Machine
    from perflex.progress import Progress
    from perflex.store.store import StorePlace

_LISTED = 12


@dataclass(frozen=True)
class KernelVariants:
    """Variants that were given as kernels, with their feature values; what an `ExtractedSpace` is for a space.

    Attributes
    ----------
    names
        Of the variants, unique.
    kernels
        Of each variant.
    sizes
        What the features were counted for, of each variant.
    features
        Identifiers of the features.
    values
        Shape ``(len(names), len(features))``.
    excluded
        How many variants were left out, by cause.
    """

    names: tuple[str, ...]
    kernels: tuple[Any, ...] = field(repr=False)
    sizes: tuple[Mapping[str, Any], ...] = field(repr=False)
    features: tuple[str, ...]
    values: NDArray[np.float64] = field(repr=False)
    excluded: Mapping[str, int]

    def __len__(self) -> int:
        """Return the number of variants."""
        return len(self.names)

    def kernel(self, number: int) -> Any:
        """Return the kernel of one variant."""
        return self.kernels[number]


Candidates = ExtractedSpace | KernelVariants


def columns_of(candidates: Candidates, features: Sequence[str]) -> dict[str, NDArray[np.float64]]:
    """Return the values of some features, shape ``(len(candidates),)`` each.

    Raises
    ------
    CalibrationError
        The variants were counted without one of them.
    """
    place = {name: column for column, name in enumerate(candidates.features)}
    missing = [name for name in features if name not in place]
    if missing:
        msg = f"the space was extracted without {', '.join(missing)}; extract it with model.input_features()"
        raise CalibrationError(msg, feature=missing[0])
    return {name: candidates.values[:, place[name]] for name in features}


def sizes_of(candidates: Candidates, number: int) -> Mapping[str, Any]:
    """Return the sizes that the features of one variant were counted for."""
    return candidates.sizes if isinstance(candidates, ExtractedSpace) else candidates.sizes[number]


def candidates_of(
    variants: Mapping[str, Any] | Sequence[Any] | VariantSpace | Candidates,
    calibration: Calibration,
    sizes: Mapping[str, Any] | None,
    *,
    machine: str | Path | Machine | None = None,
    executor: Executor | None = None,
    store: StorePlace | None = None,
    progress: bool | Progress | None = None,
    refuse: bool = False,
) -> Candidates:
    """Return variants with the values of a calibration's features.

    Parameters
    ----------
    variants
        Kernels by name or in a sequence, or a space.
    calibration
        Whose features are counted.
    sizes
        Value of each size parameter; measurement kernels bring their own if none are given.
    machine, executor, store, progress
        As for `prune`.
    refuse
        Raise for kernels that cannot be described, instead of leaving them out with a warning.

    Raises
    ------
    CalibrationError
        There are no variants, or sizes are needed and missing, or an extracted space lacks a feature.
    SpaceError
        A space has no valid variant.
    UnsupportedKernelError
        A kernel cannot be described, with `refuse`, or none can.
    """
    if isinstance(variants, (ExtractedSpace, KernelVariants)):
        return variants
    features, target = tuple(calibration.model.input_features()), calibration.target(machine)
    if isinstance(variants, VariantSpace):
        enumerated = variants.enumerated()
        return extract_space(enumerated, features, sizes, target, executor=executor, store=store, progress=progress)
    named = list(variants.items()) if isinstance(variants, Mapping) else named_variants(variants)
    if not named:
        msg = "there are no variants to rank"
        raise CalibrationError(msg)
    rows = [(name, kernel_of(variant), _sizes_of(name, variant, sizes)) for name, variant in named]
    counting = _Counting(features, target)
    counted: list[_Counted] = []
    with using_store(store), progress_shown(progress, "count:") as report:
        for outcome in _counted(counting, rows, executor, report):
            if refuse and outcome.refusal is not None:
                raise outcome.refusal
            counted.append(outcome)
    return _of_kernels(features, named, [own for _, _, own in rows], counted)


def named_variants(variants: Sequence[Any]) -> list[tuple[str, Any]]:
    """Return variants with their names, made unique."""
    named: list[tuple[str, Any]] = []
    taken: set[str] = set()
    for variant in variants:
        base = name = str(getattr(variant, "name", "") or ",".join(sorted(kernel_of(variant).entrypoints)))
        number = 1
        while name in taken:
            number += 1
            name = f"{base} #{number}"
        taken.add(name)
        named.append((name, variant))
    return named


def _sizes_of(name: str, variant: Any, sizes: Mapping[str, Any] | None) -> Mapping[str, Any]:
    chosen: Mapping[str, Any] | None = sizes if sizes is not None else getattr(variant, "sizes", None)
    if chosen is None:
        msg = f"variant {name!r} needs sizes; pass e.g. {{'n': 1024}} after the calibration"
        raise CalibrationError(msg, variant=name)
    wrong = [f"{size}={value!r}" for size, value in chosen.items() if not isinstance(value, Real)]
    if wrong:
        msg = f"variant {name!r}: sizes must be one number each, e.g. 1024, not {wrong[0]}; call once per size"
        raise CalibrationError(msg, variant=name)
    return chosen


_Row = tuple[str, Any, Mapping[str, Any]]


@dataclass(frozen=True)
class _Counted:
    """What was counted of one kernel, or why it cannot be; and what it does that the model has no feature for."""

    values: tuple[float, ...] = ()
    uncounted: tuple[str, ...] = ()
    refusal: UnsupportedKernelError | None = None


@dataclass(frozen=True)
class _Counting:
    """The counting of one kernel: the same here and in an executor's workers, warnings included."""

    features: tuple[str, ...]
    target: Target

    def count(self, kernel: Any, sizes: Mapping[str, Any]) -> _Counted:
        try:
            return _Counted(*count_kernel(self.features, kernel, sizes, self.target))
        # Returned, not raised: one such kernel must not end a worker's whole portion.
        except UnsupportedKernelError as error:
            return _Counted(refusal=error)

    def count_portion(self, portion: Sequence[_Row], store: str) -> list[_Counted]:
        """Count in a worker, where the caller's store is not set."""
        with using_store(store):
            return [self.count(kernel, sizes) for _, kernel, sizes in portion]


def _counted(
    counting: _Counting, rows: Sequence[_Row], executor: Executor | None, report: Progress | None
) -> Iterator[_Counted]:
    def report_row(done: int) -> None:
        if report is not None:
            report(done, len(rows), rows[done][0])

    if executor is not None:
        yield from in_workers(executor, counting.count_portion, rows, report_row)
        return
    for number, (_, kernel, sizes) in enumerate(rows):
        report_row(number)
        yield counting.count(kernel, sizes)


def _of_kernels(
    features: tuple[str, ...],
    named: Sequence[tuple[str, Any]],
    sizes: Sequence[Mapping[str, Any]],
    counted: Sequence[_Counted],
) -> KernelVariants:
    # stacklevel 4: the line that called `prune` or `rank`.
    for (name, _), outcome in zip(named, counted, strict=True):
        if outcome.refusal is not None:
            warnings.warn(f"{name} is left out: {outcome.refusal.message}", PerflexWarning, stacklevel=4)
        elif outcome.uncounted:
            shown = "; ".join(outcome.uncounted[:_LISTED])
            msg = f"{name}: the model has no feature for {shown}; the prediction leaves it out"
            warnings.warn(msg, PerflexWarning, stacklevel=4)
    refusals = [outcome.refusal.message for outcome in counted if outcome.refusal is not None]
    kept = [number for number, outcome in enumerate(counted) if outcome.refusal is None]
    if not kept:
        msg = f"none of the {len(named)} variants can be described; the first: {refusals[0]}"
        raise UnsupportedKernelError(msg, kernel=named[0][0])
    return KernelVariants(
        tuple(named[number][0] for number in kept),
        tuple(named[number][1] for number in kept),
        tuple(sizes[number] for number in kept),
        features,
        np.array([counted[number].values for number in kept], dtype=np.float64).reshape(len(kept), len(features)),
        dict(Counter(f"cannot be described: {refusal}" for refusal in refusals)),
    )
