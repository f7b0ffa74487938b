"""Counting variants: kernels, the settings of a space, or the configurations of a launch become `Variants`.

They are built and counted here or in an executor's workers. Kernels of a space stay where they are built: only settings
go out, and only numbers and digests come back.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.calibration.built_target import built_targets, needing_code
from perflex.errors import (
    CalibrationError,
    FeatureError,
    PerflexError,
    SpaceError,
    UnsupportedKernelError,
    WorkGroupTooLargeError,
    warn,
)
from perflex.features.sized_kernel import kernel_of
from perflex.features.values import in_workers
from perflex.progress import RunOptions, progress_shown
from perflex.search.variants import Missing, NotBuiltError, Space, Variants, built, cause_of, settings_text
from perflex.store.store import using_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from perflex.calibration.calibration import Calibration
    from perflex.compiled.program import CompiledProgram
    from perflex.features.from_triton.launches import LaunchedKernel, TritonLaunch
    from perflex.features.target import Target
    from perflex.machines.machine import Machine
    from perflex.search.variants import EnumeratedSpace

    Array = NDArray[np.float64]

_LISTED = 12
# Programs of a Triton kernel that stand for all of a grid where configurations are only ordered.
_SAMPLED = 16
# Variants that are built at once: enough to keep several processes busy, few enough to hold.
_BUILT_TOGETHER = 32
# Objects made between two looks for reference cycles; Python's own threshold is 700.
_OBJECTS_BETWEEN = 200_000


def extract_space(
    space: EnumeratedSpace, work: Work, sizes: Mapping[str, Any] | None, run: RunOptions | None = None
) -> Variants:
    """Do what `VariantSpace.extract` says, for work that knows its target."""
    names, given, settings = work.features, {**space.sizes, **(sizes or {})}, space.settings
    for name, value in given.items():
        if not isinstance(value, Real):
            msg = (
                f"space {space.name}: the size {name} must be one number, e.g. 1024, not {value!r}; "
                "extract once per size"
            )
            raise SpaceError(msg, space=space.name, size=name)
        if getattr(space.build, "fixed_sizes", False) and space.sizes.get(name, value) != value:
            msg = (
                f"space {space.name}: its file states the grid in numbers, which are those of {name}="
                f"{space.sizes[name]}; change the file, not the size"
            )
            raise SpaceError(msg, space=space.name, size=name)
    with _rare_collections():
        items = [(each, given) for each in settings]
        rows = counted_rows(work, items, run, f"{space.name}:", ["describing variants"] * len(items))
    excluded = space.excluded.copy()
    kept, same = _distinct(rows, excluded)
    if not kept:
        causes = "; ".join(f"{cause} ({count})" for cause, count in excluded.most_common(_LISTED))
        msg = f"space {space.name} holds no valid variant of {space.combinations} combinations: {causes}"
        raise SpaceError(msg, space=space.name)
    if missed := Counter(text for number in kept for text in rows[number].missed):
        from perflex.features.report import missed_text

        shown = missed_text([f"{text} ({count} variants)" for text, count in missed.most_common()])
        msg = f"{space.name}: the model has no feature for {shown}; predictions leave it out"
        warn(msg)
    own = tuple(settings[number] for number in kept)
    return Variants(
        tuple(map(settings_text, own)),
        (given,) * len(kept),
        names,
        table_of(rows, kept, names),
        dict(excluded.most_common()),
        build=space.build,
        settings=own,
        same={place: tuple(settings[number] for number in others) for place, others in same.items()},
        target=work.target,
        missing=_missing(rows, [*map(settings_text, settings)]),
    )


def _distinct(rows: Sequence[Row], excluded: Counter[str]) -> tuple[list[int], dict[int, list[int]]]:
    """Return which rows are kept, and by place among these what has the same kernel; count what is left out."""
    first: dict[str, int] = {}
    same: dict[int, list[int]] = {}
    kept: list[int] = []
    for number, row in enumerate(rows):
        if row.cause:
            excluded[row.cause] += 1
        # A kernel without a key cannot be compared with others: it counts as one of its own.
        elif row.key is not None and (place := first.setdefault(row.key, len(kept))) < len(kept):
            same.setdefault(place, []).append(number)
            excluded["same kernel as another setting"] += 1
        else:
            kept.append(number)
    return kept, same


def _missing(rows: Sequence[Row], names: Sequence[str], kernels: Sequence[Any] = ()) -> tuple[Missing, ...]:
    """Return what was to be counted, and is no variant or cannot be described."""
    found = []
    for number, row in enumerate(rows):
        if row.cause:
            reason, possible = row.cause, not isinstance(row.refusal, WorkGroupTooLargeError)
            reason = reason if row.refusal is None else row.refusal.message
            found.append(Missing(names[number], reason, row.cause, possible, kernels[number] if kernels else None))
    return tuple(found)


@dataclass(frozen=True)
class Row:
    """What was counted of a variant and what the model leaves out of it; or why it is none, or cannot be described."""

    values: tuple[float, ...] = ()
    missed: tuple[str, ...] = ()
    key: str | None = None
    cause: str = ""
    refusal: UnsupportedKernelError | FeatureError | None = None


# Settings or a kernel, its sizes, and its code where that is known.
Item = tuple[Any, "Mapping[str, Any]"] | tuple[Any, "Mapping[str, Any]", "tuple[CompiledProgram, ...]"]


@dataclass(frozen=True)
class Work:
    """The counting of variants: the same here and in an executor's workers, whose warnings would be lost."""

    build: Callable[..., Any] | None
    features: tuple[str, ...]
    target: Target
    # Output and facts of the device of a calibration, for which kernels are built where a feature is of their code.
    output: str = ""
    device: Mapping[str, Any] = field(default_factory=dict)

    def rows(self, items: Sequence[Item]) -> Iterator[Row]:
        """Yield what was counted of each variant, once of the same kernel; several are built at once for their code."""
        seen: dict[str, tuple[Mapping[str, Any], Row]] = {}
        together = 1 if needing_code(self.features) is None else _BUILT_TOGETHER
        for first in range(0, len(items), together):
            part = items[first : first + together]
            made = [self._made(*item[:2]) for item in part]
            kernels = [each for each in made if not isinstance(each, Row)]
            targets = iter(built_targets(self.features, kernels, self.target, self.output, self.device))
            for each, (_, _, *code) in zip(made, part, strict=True):
                if isinstance(each, Row):
                    yield each
                else:
                    target = next(targets)
                    key = None if self.build is None else _key(each[0])
                    if key is not None and key in seen and seen[key][0] == each[1]:
                        yield seen[key][1]
                        continue
                    row = self._counted(*each, replace(self.target, code=code[0]) if code else target)
                    row = row if row.cause else replace(row, key=key)
                    if key is not None:
                        seen[key] = each[1], row
                    yield row

    def _made(self, given: Any, sizes: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]] | Row:
        try:
            return given if self.build is None else built(self.build, given), sizes
        except NotBuiltError as error:
            return Row(cause=str(error.cause))

    def _counted(self, kernel: Any, sizes: Mapping[str, Any], target: Target | FeatureError) -> Row:
        from perflex.features.report import uncounted
        from perflex.features.values import feature_values

        if isinstance(target, FeatureError):
            reason = cause_of(str(target.context.get("reason", target.message)))
            return Row(cause=f"cannot be built: {reason}", refusal=target)
        try:
            values = feature_values(self.features, kernel, sizes, target)
            missed = tuple(uncounted(self.features, kernel, sizes))
        # Returned, not raised: one such kernel must not end a worker's whole portion.
        except UnsupportedKernelError as error:
            return Row(cause=f"cannot be described: {cause_of(error.message)}", refusal=error)
        return Row(tuple([float(values[name]) for name in self.features]), missed)

    def portion(self, items: Sequence[Item], store: str) -> list[Row]:
        """Work in a worker, where the caller's store is not set."""
        with using_store(store), _rare_collections():
            return list(self.rows(items))


def _key(kernel: Any) -> str | None:
    """Return a digest that the same kernels have; None where that is not known."""
    from perflex.features.count_store import kernel_key
    from perflex.features.from_source.source import SourceKernel

    if isinstance(kernel, SourceKernel):
        from perflex.features.from_source.live_macros import source_key

        try:
            return source_key(kernel)
        except PerflexError:  # which counting tells
            return None
    try:
        return kernel_key(kernel)
    except (TypeError, AttributeError, KeyError):  # a Scop, or something in the kernel that has no persistent hash
        return None


def counted_rows(
    work: Work, items: Sequence[Item], run: RunOptions | None, title: str, labels: Sequence[str]
) -> list[Row]:
    """Return what was counted of variants, in their order; labels are what progress says of each."""
    options = run or RunOptions()
    with progress_shown(options.progress, title) as report:

        def tell(done: int) -> None:
            if report is not None:
                report(done, len(items), labels[min(done, len(labels) - 1)])

        if options.executor is not None:
            rows = in_workers(options.executor, work.portion, items, tell)
        else:
            rows, counted = [], work.rows(items)
            for number in range(len(items)):
                tell(number)
                rows.append(next(counted))
        tell(len(items))
    return rows


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Let Python look for reference cycles rarely: kernels make few, and looking takes a seventh of the time."""
    before = gc.get_threshold()
    gc.set_threshold(_OBJECTS_BETWEEN, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def table_of(rows: Sequence[Row], kept: Sequence[int], features: tuple[str, ...]) -> Array:
    """Return the values of some rows, shape ``(len(kept), len(features))``."""
    return np.array([rows[number].values for number in kept], dtype=np.float64).reshape(len(kept), len(features))


def variants_of(
    variants: Mapping[str, Any] | Sequence[Any] | Space | TritonLaunch | LaunchedKernel | Variants,
    calibration: Calibration,
    sizes: Mapping[str, Any] | None,
    *,
    machine: str | Path | Machine | None = None,
    run: RunOptions | None = None,
) -> Variants:
    """Return variants with the values of a calibration's features; those that have none are `Variants.missing`.

    Sizes may be None for measurement kernels, which bring their own. What was counted before must be counted for the
    same. Of a Triton launch variants are its configurations, of which some programs are interpreted.
    """
    target = calibration.target(machine)
    if isinstance(variants, Variants):
        variants.require_sizes(sizes)
        variants.require_target(target)
        return variants
    model, build = calibration.model, variants.build if isinstance(variants, Space) else None
    features = tuple(model.input_features())
    work = Work(build, features, target, model.output_feature, calibration.device)
    if isinstance(variants, Space):
        return extract_space(variants.enumerated(), work, sizes, run)
    if not isinstance(variants, (Mapping, list, tuple)):
        # Which takes long to import.
        from perflex.features.from_triton.launches import LaunchedKernel, TritonLaunch

        if isinstance(variants, LaunchedKernel):
            variants = variants.launch(sizes or {})
        if isinstance(variants, TritonLaunch):
            variants, sizes = variants.kernels(_SAMPLED), {}
    named = list(variants.items()) if isinstance(variants, Mapping) else _named(variants)
    if not named:
        msg = "there are no variants to rank"
        raise CalibrationError(msg)
    names, kernels = [name for name, _ in named], [calibration.compiled_for(target, variant) for _, variant in named]
    items = [(kernel_of(one), _sizes_of(name, one, sizes)) for name, one in zip(names, kernels, strict=True)]
    rows = counted_rows(work, items, run, "count:", names)
    for name, row in zip(names, rows, strict=True):
        if row.missed:
            from perflex.features.report import missed_text

            msg = f"{name}: the model has no feature for {missed_text(row.missed)}; the prediction leaves it out"
            warn(msg)
    excluded: Counter[str] = Counter()
    kept, _ = _distinct(rows, excluded)
    chosen = [kernels[number] for number in kept]
    found = Variants(
        tuple(names[number] for number in kept),
        tuple(items[number][1] for number in kept),
        features,
        table_of(rows, kept, features),
        dict(excluded),
        kernels=tuple(chosen),
        settings=_alike_settings(chosen),
        target=target,
        missing=_missing(rows, names, kernels),
    )
    if not kept:
        msg = f"none of the {len(named)} variants can be described; {'; '.join(found.left_out[:_LISTED])}"
        raise UnsupportedKernelError(msg, kernel=names[0])
    return found


def _alike_settings(kernels: Sequence[Any]) -> tuple[Mapping[str, Any], ...]:
    """Return the settings of kernels that have some, of all the same; no value is None."""
    own = [getattr(kernel, "settings", {}) for kernel in kernels]
    names = dict.fromkeys(name for each in own for name in each)
    return tuple({name: each.get(name) for name in names} for each in own) if names else ()


def _named(variants: Sequence[Any]) -> list[tuple[str, Any]]:
    """Return variants with their names, made unique."""
    given: object = variants
    if not isinstance(given, Iterable) or isinstance(given, str) or hasattr(given, "entrypoints"):
        msg = f"variants are kernels in a list or by name, or a VariantSpace, not a {type(given).__name__}"
        raise CalibrationError(msg)
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
