"""Kernels from settings, and why some give none."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perflex.errors import PerflexError, SpaceError

if TYPE_CHECKING:
    from collections import Counter

Value = bool | int | float | str
Settings = Mapping[str, Value]

_NUMBERS = re.compile(r"\d+")
# Causes are keys of a count: what follows differs between variants that fail alike.
_CAUSE_LENGTH = 160


@dataclass(frozen=True)
class EnumeratedSpace:
    """What a space holds before its kernels are built.

    Attributes
    ----------
    name
        Of the space.
    build
        Makes a kernel of settings.
    combinations
        How many combinations of values there are, before constraints.
    settings
        Those that fulfil the constraints.
    excluded
        How many combinations were left out, by cause.
    """

    name: str
    build: Callable[..., Any]
    combinations: int
    settings: Sequence[Settings]
    excluded: Counter[str]


class NotBuiltError(SpaceError):
    """Settings do not give a kernel; ``cause`` groups it with others of its kind."""


def settings_text(settings: Settings) -> str:
    """Return settings as a variant's name: ``rows=2, columns=4``."""
    return ", ".join(f"{name}={value}" for name, value in settings.items())


def built(build: Callable[..., Any], settings: Settings) -> Any:
    """Return the kernel that a function makes of settings.

    Raises
    ------
    NotBuiltError
        It makes none, or raises.
    """
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
    lines = reason.strip().splitlines()
    first = lines[0] if lines else "no reason given"
    # Messages of one kind differ in their numbers.
    cause = _NUMBERS.sub("#", first)[:_CAUSE_LENGTH]
    return NotBuiltError(f"{settings_text(settings)}: {first}", cause=f"build: {cause}")
