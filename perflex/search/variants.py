"""Variants with their feature values: what ranking and tuning start from."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from perflex.calibration.interval import interval_at
from perflex.calibration.row_predictions import known_as
from perflex.errors import CalibrationError, PerflexError, SpaceError
from perflex.features.scop.checks import is_number
from perflex.search.measured_times import measured_times

if TYPE_CHECKING:
    from collections import Counter

    from numpy.typing import NDArray

    from perflex.calibration.calibration import Calibration
    from perflex.features.target import Target
    from perflex.machines.residency import Resources

    Array = NDArray[np.float64]

Value = bool | int | float | str
Settings = Mapping[str, Value]
Measured: TypeAlias = "Mapping[str, float] | str | Path"
"""Seconds by name of variants, or a file of settings with times: of Kernel Tuner, KTT or CLBlast, T4, or a table."""

_NUMBERS = re.compile(r"\d+")
# What follows differs between variants that fail alike.
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
    return NotBuiltError(f"{settings_text(settings)}: {first}", cause=f"build: {cause_of(first)}")


def alike(message: str) -> str:
    """Return a message without its numbers, in which those of one kind differ."""
    return _NUMBERS.sub("#", message)


def cause_of(message: str) -> str:
    """Return as what variants that fail alike are counted."""
    return alike(message)[:_CAUSE_LENGTH]


@dataclass(frozen=True)
class Missing:
    """A variant that cannot be predicted."""

    name: str
    # Why not.
    reason: str
    # Which of `Variants.excluded` it is counted under.
    cause: str = field(repr=False)
    # Whether the machine can run it, as far as is known.
    possible: bool = True
    # What was given; None of a space.
    kernel: Any = field(default=None, repr=False)


@dataclass(frozen=True)
class VariantCode:
    """What a variant's compiled code takes, and what it is told from others by."""

    resources: Resources
    digest: str
    # Values of the features as its source alone has them, in the order of `Variants.features`.
    source: tuple[float, ...]


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
    # Makes a kernel of settings; None for variants that were given as kernels.
    build: Callable[..., Any] | None = field(default=None, repr=False)
    # Of each variant; empty for kernels that have none.
    settings: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    # Settings that give the same kernel as a variant, by the variant's number.
    same: Mapping[int, tuple[Mapping[str, Any], ...]] = field(default_factory=dict, repr=False)
    # What the features were counted for, beside the sizes; None where that is not known.
    target: Target | None = field(default=None, repr=False)
    # Those of the excluded ones that were to be counted.
    missing: tuple[Missing, ...] = field(default=(), repr=False)
    # Of those that were compiled, by number (`with_code`); features are of their code then.
    code: Mapping[int, VariantCode] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        """Return the number of variants."""
        return len(self.names)

    @property
    def left_out(self) -> list[str]:
        """What cannot be predicted and why, a line for those alike."""
        named: dict[str, list[Missing]] = {}
        for one in self.missing:
            named.setdefault(one.cause, []).append(one)
        lines = []
        for cause, count in self.excluded.items():
            if some := named.get(cause):
                more = f" and {len(some) - 1} more" if len(some) > 1 else ""
                lines.append(f"{some[0].name}{more}: {some[0].reason}")
            else:
                lines.append(f"{cause} ({count})")
        return lines

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
        """Return the predicted times in s, shape ``(len(self),)``: those of `Calibration.predict` times `scales`."""
        return self._unscaled(calibration) * self.scales(calibration)

    def scales(self, calibration: Calibration) -> Array:
        """Return by what predictions are multiplied so that those by source and code compare, shape ``(len(self),)``.

        Where code makes the median of those that are compiled faster, as much is expected of the others. Where it makes
        them slower, by spilt registers say, others may be spared. It is 1 for those that are compiled.
        """
        numbers, scales = sorted(self.code), np.ones(len(self))
        if 0 < len(numbers) < len(self):
            kernels = tuple(self.kernels[number] for number in numbers) if self.kernels else ()
            values = np.array([self.code[number].source for number in numbers])
            names, sizes = zip(*((self.names[number], self.sizes[number]) for number in numbers), strict=True)
            source = replace(self, names=names, sizes=sizes, values=values, kernels=kernels)
            changes = self._unscaled(calibration)[numbers] / source._unscaled(calibration)  # noqa: SLF001  # its own
            scales *= min(1.0, float(np.exp(np.median(np.log(changes)))))
            scales[numbers] = 1.0
        return scales

    def _unscaled(self, calibration: Calibration) -> Array:
        columns = self.columns(calibration.model.input_features())
        if calibration.transferred is None:
            return np.broadcast_to(calibration.evaluate(columns), (len(self),))
        predicted = interval_at(calibration, columns, kernels=self.known_as(calibration)).predicted
        return np.broadcast_to(np.asarray(predicted), (len(self),))
