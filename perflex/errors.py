"""Every error perflex raises on purpose: ``except PerflexError`` catches all of them.

Each message states the cause and the fix in one line; what it is about (kernel, access, feature, device) is also
available as an attribute.
"""

from __future__ import annotations

import inspect
import warnings
from pathlib import PurePath
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from typing import Self

__all__ = [
    "BlockError",
    "CalibrationError",
    "DeviceError",
    "DoubtfulPredictionWarning",
    "EnvironmentSetupError",
    "ExecutorError",
    "FeatureError",
    "FileFormatError",
    "InexactCountError",
    "MachineError",
    "MeasurementError",
    "MissingExtraError",
    "MissingSizeError",
    "ModelSyntaxError",
    "NoMatchError",
    "PerflexError",
    "PerflexWarning",
    "SpaceError",
    "StoreError",
    "TagError",
    "UnknownFeatureError",
    "UnsupportedKernelError",
    "WorkGroupTooLargeError",
]


_Error = TypeVar("_Error", bound="PerflexError")


class PerflexError(Exception):
    """Base of all errors raised by perflex and uipick.

    Parameters
    ----------
    message
        Cause and fix, in one line.
    context
        What the error is about: ``kernel``, ``access``, ``feature``, ``device``, ``path`` ...; kept as the
        attribute of the same name.
    """

    def __init__(self, message: str, **context: object) -> None:
        super().__init__(message)
        self.message = message
        self.context = context

    def __getattr__(self, name: str) -> object:
        # Not `self.context`: while an error is unpickled there is none yet, and asking for it would come here again.
        context = self.__dict__.get("context", {})
        if name in context:
            return context[name]
        msg = f"{type(self).__name__} has no attribute {name!r}"
        raise AttributeError(msg)

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions with keyword arguments do not cross process borders by themselves, and not every object does.
        return (_rebuild, (type(self), self.message, self._plain_context()))

    def alone(self) -> Self:
        """Return the same error without what it was raised from, as plain data for another process or machine."""
        return _rebuild(type(self), self.message, self._plain_context())

    def _plain_context(self) -> dict[str, object]:
        return {name: value if _is_plain(value) else str(value) for name, value in self.context.items()}


def _is_plain(value: object) -> bool:
    if isinstance(value, (tuple, list)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (str, int, float, PurePath))


def _rebuild(cls: type[_Error], message: str, context: dict[str, object]) -> _Error:
    return cls(message, **context)


class UnsupportedKernelError(PerflexError):
    """A kernel has something that cannot be described exactly; names the access, loop or instruction."""


class InexactCountError(PerflexError):
    """Only an upper bound of a count is known where an exact one is required."""


class MissingSizeError(PerflexError):
    """A size parameter of a kernel has no value, or one that the kernel cannot have."""


class FeatureError(PerflexError):
    """Something is wrong with a feature; base of the two below."""


class UnknownFeatureError(FeatureError):
    """A feature identifier names no feature class; suggests the nearest one."""


class NoMatchError(FeatureError):
    """A feature matches nothing in any kernel; lists what the kernels do contain."""


class ModelSyntaxError(PerflexError):
    """A model string cannot be read; shows the string and the offending position."""


class TagError(PerflexError):
    """A filter tag is unknown, or its value is not allowed; says which are."""


class DeviceError(PerflexError):
    """No device, or more than one, fits the request; lists the devices there are."""


class MachineError(PerflexError):
    """No machine is chosen, a hardware fact of it is not known, or a kernel exceeds one; names machine and fact."""


class WorkGroupTooLargeError(MachineError, UnsupportedKernelError):
    """A work-group, or a program of tiles, exceeds a limit of the machine; names machine and fact."""


class BlockError(PerflexError):
    """Block sizes cannot be chosen as asked."""


class MeasurementError(PerflexError):
    """A kernel could not be built, run or timed; carries the compiler's or driver's message."""


class CalibrationError(PerflexError):
    """The measurements do not determine the parameters; names the parameters concerned."""


class FileFormatError(PerflexError):
    """A file is truncated, foreign or of another version; names the line or field."""


class SpaceError(PerflexError):
    """A space of variants is badly written, its constraints contradict, or no variant in it is valid; says which."""


class StoreError(PerflexError):
    """Measurements cannot be kept in the store, or read from it; names the file, and what was kept before stays."""


class ExecutorError(PerflexError):
    """An executor broke, takes no work, or its workers cannot be sent it; says what to give instead."""


class EnvironmentSetupError(PerflexError):
    """The installation lacks something essential; gives the command that mends it."""


class MissingExtraError(PerflexError):
    """An optional dependency is not installed; names the extra that brings it."""


class PerflexWarning(UserWarning):
    """Something the user should know before trusting a result; silence it by this class."""


class DoubtfulPredictionWarning(PerflexWarning):
    """Predictions are not to be relied on; results say why in ``doubts``."""


def warn(text: str, kind: type[PerflexWarning] = PerflexWarning) -> None:
    """Warn with a `PerflexWarning` that points at the line of the user's that called perflex."""
    level, frame = 1, inspect.currentframe()
    # Python's own modules stand between where perflex has context managers and computed properties.
    inside = {"perflex", "uipick", "contextlib", "functools"}
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in inside:
        level, frame = level + 1, frame.f_back
    warnings.warn(text, kind, stacklevel=level)
