"""Variants with their feature values, whether given as kernels or as a space: what ranking and pruning start from."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.errors import CalibrationError, PerflexWarning, UnsupportedKernelError
from perflex.features.coverage import warn_uncounted
from perflex.features.many import count_rows
from perflex.features.values import kernel_feature_values, kernel_of
from perflex.machines.choice import else_machine, using_machine
from perflex.progress import progress_shown
from perflex.search.spaces.extraction import ExtractedSpace
from perflex.search.spaces.space import VariantSpace
from perflex.store.store import using_store

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from pathlib import Path

    from numpy.typing import NDArray

    from perflex.calibration.calibration import Calibration
    from perflex.machines import Machine
    from perflex.progress import Progress
    from perflex.store.store import StorePlace

__all__ = ["Candidates", "candidates_of", "named_variants"]


@dataclass(frozen=True)
class Candidates:
    """Variants that can be predicted.

    Attributes
    ----------
    names
        Of the variants, unique.
    columns
        Values of each feature, shape ``(len(names),)``.
    kernel
        Returns the kernel of a variant, by number.
    settings
        Of each variant of a space; empty for variants given as kernels.
    sizes
        What the features were counted for, of each variant.
    excluded
        How many variants were left out, by cause.
    same
        Names of what gives the same kernel as a variant, by number.
    """

    names: tuple[str, ...]
    columns: Mapping[str, NDArray[np.float64]] = field(repr=False)
    kernel: Callable[[int], Any] = field(repr=False)
    sizes: Callable[[int], Mapping[str, Any]] = field(repr=False)
    settings: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    excluded: Mapping[str, int] = field(default_factory=dict)
    same: Mapping[int, tuple[str, ...]] = field(default_factory=dict, repr=False)


def candidates_of(
    variants: Mapping[str, Any] | Sequence[Any] | VariantSpace | ExtractedSpace,
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
    features = calibration.model.input_features()
    if isinstance(variants, VariantSpace):
        with else_machine(calibration.machine):
            variants = variants.extract(
                features,
                sizes,
                sub_group_size=calibration.sub_group_size,
                executor=executor,
                store=store,
                machine=machine,
                progress=progress,
            )
    if isinstance(variants, ExtractedSpace):
        return _of_space(variants, features)
    named = list(variants.items()) if isinstance(variants, Mapping) else named_variants(variants)
    if not named:
        msg = "there are no variants to rank"
        raise CalibrationError(msg)
    chosen = [_sizes_of(name, variant, sizes) for name, variant in named]
    with using_store(store), using_machine(machine), else_machine(calibration.machine):
        if refuse or executor is None:
            counted = _one_by_one(features, named, chosen, calibration.sub_group_size, progress, refuse=refuse)
        else:
            counted = _counted(features, named, chosen, calibration.sub_group_size, executor, progress)
    return _of_kernels(features, named, chosen, counted)


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


def _one_by_one(
    features: Sequence[str],
    named: Sequence[tuple[str, Any]],
    sizes: Sequence[Mapping[str, Any]],
    sub_group_size: int,
    progress: bool | Progress | None,
    *,
    refuse: bool,
) -> list[tuple[tuple[float, ...], str]]:
    counted: list[tuple[tuple[float, ...], str]] = []
    with progress_shown(progress, "count:") as report:
        for number, ((name, variant), own) in enumerate(zip(named, sizes, strict=True)):
            if report is not None:
                report(number, len(named), name)
            try:
                values = kernel_feature_values(features, variant, own, sub_group_size)
            except UnsupportedKernelError as error:
                if refuse:
                    raise
                counted.append(((), error.message))
                continue
            warn_uncounted(features, variant, own)
            counted.append((tuple(float(values[feature]) for feature in features), ""))
    return counted


def _counted(
    features: Sequence[str],
    named: Sequence[tuple[str, Any]],
    sizes: Sequence[Mapping[str, Any]],
    sub_group_size: int,
    executor: Executor,
    progress: bool | Progress | None,
) -> list[tuple[tuple[float, ...], str]]:
    from perflex.features import parse_feature

    parsed = [parse_feature(feature) for feature in features]
    rows = [(kernel_of(variant), own, name) for (name, variant), own in zip(named, sizes, strict=True)]
    with progress_shown(progress, "count:") as report:
        return [(row.values, row.refusal or "") for row in count_rows(parsed, rows, sub_group_size, executor, report)]


def _of_kernels(
    features: Sequence[str],
    named: Sequence[tuple[str, Any]],
    sizes: Sequence[Mapping[str, Any]],
    counted: Sequence[tuple[tuple[float, ...], str]],
) -> Candidates:
    kept = [number for number, (_, refusal) in enumerate(counted) if not refusal]
    for number, (_, refusal) in enumerate(counted):
        if refusal:
            warnings.warn(f"{named[number][0]} is left out: {refusal}", PerflexWarning, stacklevel=4)
    if not kept:
        msg = f"none of the {len(named)} variants can be described; the first: {counted[0][1]}"
        raise UnsupportedKernelError(msg, kernel=named[0][0])
    table = np.array([counted[number][0] for number in kept], dtype=np.float64).reshape(len(kept), len(features))
    return Candidates(
        tuple(named[number][0] for number in kept),
        {name: table[:, column] for column, name in enumerate(features)},
        lambda place: named[kept[place]][1],
        lambda place: sizes[kept[place]],
        excluded=dict(Counter(f"cannot be described: {refusal}" for _, refusal in counted if refusal)),
    )


def _of_space(extracted: ExtractedSpace, features: Sequence[str]) -> Candidates:
    from perflex.search.spaces.building import settings_text

    missing = [name for name in features if name not in extracted.features]
    if missing:
        msg = f"the space was extracted without {', '.join(missing)}; extract it with model.input_features()"
        raise CalibrationError(msg, feature=missing[0])
    columns = extracted.columns
    return Candidates(
        extracted.names,
        {name: columns[name] for name in features},
        extracted.kernel,
        lambda _: extracted.sizes,
        settings=extracted.settings,
        excluded=extracted.excluded,
        same={place: tuple(map(settings_text, others)) for place, others in extracted.same.items()},
    )
