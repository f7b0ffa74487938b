"""Variants with their feature values, given as kernels or as a space: what ranking and tuning start from.

They are built and counted here or in an executor's workers. Kernels of a space stay where they are built: only settings
go out, and only numbers and digests come back.
"""

from __future__ import annotations

import gc
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from perflex.calibration.built_target import built_targets, needing_code
from perflex.calibration.interval import interval_at
from perflex.calibration.row_predictions import known_as
from perflex.errors import CalibrationError, FeatureError, PerflexError, SpaceError, UnsupportedKernelError, warn
from perflex.features.scop.checks import is_number
from perflex.features.sized_kernel import kernel_of
from perflex.features.values import in_workers
from perflex.progress import RunOptions, progress_shown
from perflex.search.measured_times import measured_times
from perflex.store.store import using_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from perflex.calibration.calibration import Calibration
    from perflex.features.target import Target
    from perflex.machines.machine import Machine

    Array = NDArray[np.float64]

Value = bool | int | float | str
Settings = Mapping[str, Value]
Measured: TypeAlias = "Mapping[str, float] | str | Path"
"""Seconds by name of variants, or a file of settings with times: of Kernel Tuner, KTT or CLBlast, T4, or a table."""

_NUMBERS = re.compile(r"\d+")
# Causes are keys of a count: what follows differs between variants that fail alike.
_CAUSE_LENGTH = 160


@dataclass(frozen=True)
class EnumeratedSpace:
    """What a space holds before its kernels are built: settings that fulfil the constraints, others by cause."""

    name: str
    build: Callable[..., Any]
    combinations: int
    settings: Sequence[Settings]
    excluded: Counter[str]
    sizes: Mapping[str, int] = field(default_factory=dict)


@runtime_checkable
class Space(Protocol):
    """What makes kernels of settings, such as a `VariantSpace`."""

    build: Callable[..., Any]

    def enumerated(self) -> EnumeratedSpace:
        """Return all settings that fulfil the constraints, and how many do not."""


class NotBuiltError(SpaceError):
    """Settings do not give a kernel; ``cause`` groups it with others of its kind."""


def settings_text(settings: Settings) -> str:
    """Return settings as a variant's name: ``rows=2, columns=4``."""
    return ", ".join(f"{name}={value}" for name, value in settings.items())


def built(build: Callable[..., Any], settings: Settings) -> Any:
    """Return the kernel that a function makes of settings; a NotBuiltError where it makes none, or raises."""
    try:
        kernel = build(**settings)
    except PerflexError as error:
        raise _not_built(settings, error.message) from error
    # The user's function may raise anything; it means that these settings give no kernel.
    except Exception as error:
        raise _not_built(settings, f"{type(error).__name__}: {error}") from error
    if kernel is None:
        msg = f"{settings_text(settings)}: build returned no kernel"
        raise NotBuiltError(msg, cause="build returned no kernel")
    # A measurement kernel holds loopy's kernel.
    return getattr(kernel, "kernel", kernel)


def _not_built(settings: Settings, reason: str) -> NotBuiltError:
    first = (reason.strip().splitlines() or ["no reason given"])[0]
    return NotBuiltError(f"{settings_text(settings)}: {first}", cause=f"build: {alike(first)[:_CAUSE_LENGTH]}")


def alike(message: str) -> str:
    """Return a message without its numbers, in which those of one kind differ."""
    return _NUMBERS.sub("#", message)


_LISTED = 12
# Variants that are built at once: enough to keep several processes busy, few enough to hold.
_BUILT_TOGETHER = 32
# Objects made between two looks for reference cycles; Python's own threshold is 700.
_OBJECTS_BETWEEN = 200_000


@dataclass(frozen=True)
class Variants:
    """Variants with their feature values."""

    # Of the variants, unique.
    names: tuple[str, ...]
    # What the features of each were counted for.
    sizes: tuple[Mapping[str, Any], ...] = field(repr=False)
    # Identifiers of the features, and their values, shape ``(len(names), len(features))``.
    features: tuple[str, ...]
    values: Array = field(repr=False)
    # How many variants were left out, by cause.
    excluded: Mapping[str, int]
    # Of each variant; empty where they are built from settings.
    kernels: tuple[Any, ...] = field(default=(), repr=False)
    # Makes a kernel of settings; of each variant. None and empty for variants that were given as kernels.
    build: Callable[..., Any] | None = field(default=None, repr=False)
    settings: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    # Settings that give the same kernel as a variant, by the variant's number.
    same: Mapping[int, tuple[Mapping[str, Any], ...]] = field(default_factory=dict, repr=False)
    # What the features were counted for, beside the sizes; None where that is not known.
    target: Target | None = field(default=None, repr=False)

    def __len__(self) -> int:
        """Return the number of variants."""
        return len(self.names)

    def kernel(self, number: int) -> Any:
        """Return the kernel of one variant; one of a space is built anew."""
        return self.kernels[number] if self.build is None else built(self.build, self.settings[number])

    def columns(self, features: Sequence[str]) -> dict[str, Array]:
        """Return the values of some features, shape ``(len(self),)`` each; one that was not counted is an error."""
        place = {name: column for column, name in enumerate(self.features)}
        missing = [name for name in features if name not in place]
        if missing:
            msg = f"the space was extracted without {', '.join(missing)}; extract it with model.input_features()"
            raise CalibrationError(msg, feature=missing[0])
        return {name: self.values[:, place[name]] for name in features}

    def measured_rows(self, measured: Measured) -> tuple[NDArray[np.intp], Array]:
        """Return numbers and seconds of variants whose times are given by name or in a file, shape ``(m,)`` each.

        Settings that give the same kernel are measured under any of their names; the median of their times counts.
        """
        if isinstance(measured, (str, Path)):
            every = [*self.settings, *(one for others in self.same.values() for one in others)]
            names = [*self.names, *map(settings_text, every[len(self) :])]
            measured = measured_times(measured, names, every)
        number = {name: place for place, name in enumerate(self.names)}
        for place, others in self.same.items():
            number.update(dict.fromkeys(map(settings_text, others), place))
        times: dict[int, list[float]] = {}
        given: object = measured
        if not isinstance(given, Mapping):
            msg = f"measured times are given by name, e.g. {{{self.names[0]!r}: 0.001}}, not as {type(given).__name__}"
            raise CalibrationError(msg)
        for name, seconds in measured.items():
            if name not in number:
                msg = f"a time is given for {name!r}, which is none of the {len(self)} variants; names must be theirs"
                raise CalibrationError(msg, variant=name)
            if not (is_number(seconds) and 0 < seconds < math.inf):
                msg = f"the time of {name!r} is {seconds!r}; it must be positive, and failed variants be left out"
                raise CalibrationError(msg, variant=name)
            times.setdefault(number[name], []).append(float(seconds))
        return np.array(list(times), dtype=np.intp), np.array([float(np.median(each)) for each in times.values()])

    def require_sizes(self, sizes: Mapping[str, Any] | None) -> None:
        """Stop where other sizes are asked for than the features were counted at."""
        for name, value in (sizes or {}).items():
            if other := next((own for own in self.sizes if own.get(name) != value), None):
                shown = ", ".join(f"{size}={given}" for size, given in other.items())
                msg = f"the variants were counted at {shown}, not at {name}={value}; extract again, or give the space"
                raise CalibrationError(msg, size=name)

    def require_target(self, target: Target) -> None:
        """Stop where predictions are of another target than the features were counted for."""
        from perflex.features import parse_feature

        if self.target is None:
            return
        compared = {"sub_group_size": "sub-groups of {} work-items"}
        if any(parse_feature(name).family.needs == "machine" for name in self.features):
            compared |= {"machine": "machine {0.name}", "registers": "{} registers", "lock_step": "lock step: {}"}
        for name, words in compared.items():
            own, wanted = getattr(self.target, name), getattr(target, name)
            if own != wanted:
                shown = [str(value) if value is None else words.format(value) for value in (own, wanted)]
                msg = f"the variants were counted for {shown[0]}, predictions are for {shown[1]}; give the space itself"
                raise CalibrationError(msg)

    def known_as(self, calibration: Calibration) -> list[tuple[str, str]]:
        """Return label and program by which other devices know each variant; none but for a transferred calibration.

        Variants of a space are known by no label: tables of times name functions, not settings.
        """
        known = calibration.transferred
        if known is None:
            return []
        if self.build is not None:
            return [("", "")] * len(self)
        rows = zip(self.names, self.kernels, self.sizes, strict=True)
        return [known_as(known, kernel, sizes, name.rpartition(":")[2])[0] for name, kernel, sizes in rows]

    def predicted(self, calibration: Calibration) -> Array:
        """Return the predicted times in s, shape ``(len(self),)``, as `Calibration.predict` has them."""
        columns = self.columns(calibration.model.input_features())
        if calibration.transferred is None:
            return np.broadcast_to(calibration.evaluate(columns), (len(self),))
        predicted = interval_at(calibration, columns, kernels=self.known_as(calibration)).predicted
        return np.broadcast_to(np.asarray(predicted), (len(self),))


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


@dataclass(frozen=True)
class Row:
    """What was counted of a variant and what the model leaves out of it; or why it is none, or cannot be described."""

    values: tuple[float, ...] = ()
    missed: tuple[str, ...] = ()
    key: str | None = None
    cause: str = ""
    refusal: UnsupportedKernelError | FeatureError | None = None


# Settings or a kernel, and its sizes.
Item = tuple[Any, "Mapping[str, Any]"]


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
        """Yield what was counted of each variant; several are built at once where their code is read."""
        together = 1 if needing_code(self.features) is None else _BUILT_TOGETHER
        for first in range(0, len(items), together):
            made = [self._made(*item) for item in items[first : first + together]]
            kernels = [each for each in made if not isinstance(each, Row)]
            targets = iter(built_targets(self.features, kernels, self.target, self.output, self.device))
            yield from (each if isinstance(each, Row) else self._counted(*each, next(targets)) for each in made)

    def _made(self, given: Any, sizes: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]] | Row:
        try:
            return given if self.build is None else built(self.build, given), sizes
        except NotBuiltError as error:
            return Row(cause=str(error.cause))

    def _counted(self, kernel: Any, sizes: Mapping[str, Any], target: Target | FeatureError) -> Row:
        from perflex.features.count_store import kernel_key
        from perflex.features.report import uncounted
        from perflex.features.values import feature_values

        if isinstance(target, FeatureError):
            reason = alike(str(target.context.get("reason", target.message)))
            return Row(cause=f"cannot be built: {reason[:_CAUSE_LENGTH]}", refusal=target)
        try:
            values = feature_values(self.features, kernel, sizes, target)
            missed = tuple(uncounted(self.features, kernel, sizes))
        # Returned, not raised: one such kernel must not end a worker's whole portion.
        except UnsupportedKernelError as error:
            return Row(cause=f"cannot be described: {alike(error.message)[:_CAUSE_LENGTH]}", refusal=error)
        try:
            key = None if self.build is None else kernel_key(kernel)
        except (TypeError, AttributeError, KeyError):  # a Scop, or something in the kernel that has no persistent hash
            key = None
        return Row(tuple([float(values[name]) for name in self.features]), missed, key)

    def portion(self, items: Sequence[Item], store: str) -> list[Row]:
        """Work in a worker, where the caller's store is not set."""
        with using_store(store), _rare_collections():
            return list(self.rows(items))


def counted_rows(
    work: Work, items: Sequence[Item], run: RunOptions | None, title: str, labels: Sequence[str]
) -> list[Row]:
    """Return what was counted of variants, in their order; labels are what progress says of each."""
    options = run or RunOptions()
    options.refuse_measuring("variants are counted, not timed")
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
    variants: Mapping[str, Any] | Sequence[Any] | Space | Variants,
    calibration: Calibration,
    sizes: Mapping[str, Any] | None,
    *,
    machine: str | Path | Machine | None = None,
    run: RunOptions | None = None,
) -> Variants:
    """Return variants with the values of a calibration's features; kernels that have none are left out, with a warning.

    Sizes may be None for measurement kernels, which bring their own. What was counted before must be counted for the
    same.
    """
    if isinstance(variants, Variants):
        variants.require_sizes(sizes)
        variants.require_target(calibration.target(machine))
        return variants
    model, build = calibration.model, variants.build if isinstance(variants, Space) else None
    features, target = tuple(model.input_features()), calibration.target(machine)
    work = Work(build, features, target, model.output_feature, calibration.device)
    if isinstance(variants, Space):
        return extract_space(variants.enumerated(), work, sizes, run)
    named = list(variants.items()) if isinstance(variants, Mapping) else _named(variants)
    if not named:
        msg = "there are no variants to rank"
        raise CalibrationError(msg)
    items = [(kernel_of(variant), _sizes_of(name, variant, sizes)) for name, variant in named]
    rows = counted_rows(work, items, run, "count:", [name for name, _ in named])
    for (name, _), row in zip(named, rows, strict=True):
        if row.refusal is not None:
            msg = f"{name} is left out: {row.refusal.message}"
            warn(msg)
        elif row.missed:
            from perflex.features.report import missed_text

            msg = f"{name}: the model has no feature for {missed_text(row.missed)}; the prediction leaves it out"
            warn(msg)
    excluded: Counter[str] = Counter()
    kept, _ = _distinct(rows, excluded)
    if not kept:
        first = next(row.refusal.message for row in rows if row.refusal is not None)
        msg = f"none of the {len(named)} variants can be described; the first: {first}"
        raise UnsupportedKernelError(msg, kernel=named[0][0])
    return Variants(
        tuple(named[number][0] for number in kept),
        tuple(items[number][1] for number in kept),
        features,
        table_of(rows, kept, features),
        dict(excluded),
        kernels=tuple(named[number][1] for number in kept),
        target=target,
    )


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
