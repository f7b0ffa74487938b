"""Building and counting the variants of a space, here or in an executor's workers.

Kernels stay where they are built: only settings go out, and only numbers and digests come back.
"""

from __future__ import annotations

import gc
import re
import warnings
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.errors import PerflexWarning, SpaceError, UnsupportedKernelError
from perflex.features.many import in_workers
from perflex.progress import progress_shown
from perflex.search.spaces.building import NotBuiltError, built, settings_text
from perflex.store.store import using_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from concurrent.futures import Executor

    from numpy.typing import NDArray

    from perflex.features.target import Target
    from perflex.progress import Progress
    from perflex.search.spaces.building import EnumeratedSpace, Settings
    from perflex.store.store import StorePlace

_LISTED = 8
# Objects made between two looks for reference cycles; Python's own threshold is 700.
_OBJECTS_BETWEEN = 200_000
_NUMBERS = re.compile(r"\d+")


@dataclass(frozen=True)
class ExtractedSpace:
    """The valid variants of a space with their feature values.

    Attributes
    ----------
    name
        Of the space.
    build
        Makes a kernel of settings.
    settings
        Of each variant.
    sizes
        What features were counted for.
    features
        Their identifiers.
    values
        Shape ``(len(settings), len(features))``.
    excluded
        How many settings were left out, by cause.
    same
        Settings that give the same kernel as a variant, by the variant's number.
    """

    name: str
    build: Callable[..., Any] = field(repr=False)
    settings: tuple[Mapping[str, Any], ...] = field(repr=False)
    sizes: Mapping[str, Any]
    features: tuple[str, ...]
    values: NDArray[np.float64] = field(repr=False)
    excluded: Mapping[str, int]
    same: Mapping[int, tuple[Mapping[str, Any], ...]] = field(repr=False)

    def __len__(self) -> int:
        """Return the number of variants."""
        return len(self.settings)

    @property
    def names(self) -> tuple[str, ...]:
        """The variants' names."""
        return tuple(settings_text(settings) for settings in self.settings)

    def kernel(self, number: int) -> Any:
        """Return the kernel of one variant, built anew."""
        return built(self.build, self.settings[number])


@dataclass(frozen=True)
class _Row:
    """What comes back of one variant; a cause instead of all else where it is invalid."""

    key: str | None = None
    values: tuple[float, ...] = ()
    missed: tuple[str, ...] = ()
    cause: str = ""


def extract_space(
    space: EnumeratedSpace,
    features: Sequence[str],
    sizes: Mapping[str, Any] | None,
    target: Target,
    *,
    executor: Executor | None = None,
    store: StorePlace | None = None,
    progress: bool | Progress | None = None,
) -> ExtractedSpace:
    """Do what `VariantSpace.extract` says, for a target that is resolved already."""
    names, given, settings = tuple(features), dict(sizes or {}), space.settings
    _require_numbers(given, space.name)
    with (
        using_store(store),
        _rare_collections(),
        progress_shown(progress, f"{space.name}:") as report,
    ):
        work = _Work(space.build, names, given, target)
        if executor is None:
            rows = []
            for number, each in enumerate(settings):
                _tell(report, number, len(settings))
                rows.append(work.row(each))
        else:
            rows = in_workers(executor, work.portion, settings, lambda done: _tell(report, done, len(settings)))
        _tell(report, len(settings), len(settings))
    return _collected(space, names, given, rows)


def count_kernel(
    features: tuple[str, ...], kernel: Any, sizes: Mapping[str, Any], target: Target
) -> tuple[tuple[float, ...], tuple[str, ...]]:
    """Return the features' values, and what the kernel does that they leave out.

    The latter as text, where `Model.feature_values` warns: warnings of other processes are lost.
    """
    from perflex.features.coverage import uncounted
    from perflex.features.values import feature_values

    values = feature_values(features, kernel, sizes, target)
    return tuple([float(values[name]) for name in features]), tuple(uncounted(features, kernel, sizes))


def _require_numbers(sizes: Mapping[str, Any], space: str) -> None:
    for name, value in sizes.items():
        if not isinstance(value, Real):
            msg = f"space {space}: the size {name} must be one number, e.g. 1024, not {value!r}; extract once per size"
            raise SpaceError(msg, space=space, size=name)


@dataclass(frozen=True)
class _Work:
    build: Callable[..., Any]
    features: tuple[str, ...]
    sizes: Mapping[str, Any]
    target: Target

    def row(self, settings: Settings) -> _Row:
        from perflex.features.kept.kernel_key import kernel_key

        try:
            kernel = built(self.build, settings)
            values, missed = count_kernel(self.features, kernel, self.sizes, self.target)
        except NotBuiltError as error:
            return _Row(cause=str(error.cause))
        except UnsupportedKernelError as error:
            return _Row(cause=f"cannot be described: {_NUMBERS.sub('#', error.message)}")
        try:
            key = kernel_key(kernel)
        except (TypeError, AttributeError, KeyError):  # a Scop, or something in the kernel that has no persistent hash
            key = None
        return _Row(key, values, missed)

    def portion(self, portion: Sequence[Settings], store: str) -> list[_Row]:
        """Work in a worker, where the caller's store is not set."""
        with using_store(store), _rare_collections():
            return [self.row(settings) for settings in portion]


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Let Python look for reference cycles rarely: kernels make few, and looking takes a seventh of the time."""
    before = gc.get_threshold()
    gc.set_threshold(_OBJECTS_BETWEEN, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _collected(
    space: EnumeratedSpace,
    features: tuple[str, ...],
    sizes: Mapping[str, Any],
    rows: Sequence[_Row],
) -> ExtractedSpace:
    settings, excluded = space.settings, space.excluded.copy()
    first: dict[str, int] = {}
    same: dict[int, tuple[Settings, ...]] = {}
    kept: list[int] = []
    for number, row in enumerate(rows):
        if row.cause:
            excluded[row.cause] += 1
        elif row.key is not None and row.key in first:
            place = first[row.key]
            same[place] = (*same.get(place, ()), settings[number])
            excluded["same kernel as another setting"] += 1
        else:
            # A kernel without a key cannot be compared with others: it counts as one of its own.
            if row.key is not None:
                first[row.key] = len(kept)
            kept.append(number)
    if not kept:
        causes = "; ".join(f"{cause} ({count})" for cause, count in excluded.most_common(_LISTED))
        msg = f"space {space.name} holds no valid variant of {space.combinations} combinations: {causes}"
        raise SpaceError(msg, space=space.name)
    missed = Counter(text for number in kept for text in rows[number].missed)
    if missed:
        shown = "; ".join(f"{text} ({count} variants)" for text, count in missed.most_common(_LISTED))
        msg = f"{space.name}: the model has no feature for {shown}; predictions leave it out"
        # stacklevel 4: the line that called `VariantSpace.extract`.
        warnings.warn(msg, PerflexWarning, stacklevel=4)
    return ExtractedSpace(
        space.name,
        space.build,
        tuple(settings[number] for number in kept),
        sizes,
        features,
        np.array([rows[number].values for number in kept], dtype=np.float64).reshape(len(kept), len(features)),
        dict(excluded.most_common()),
        same,
    )


def _tell(report: Progress | None, done: int, total: int) -> None:
    if report is not None:
        report(done, total, "describing variants")
