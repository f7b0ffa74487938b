"""What a tuner takes from its user, checked: budgets, a prior, which variant is meant, and its time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.errors import CalibrationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    Array = NDArray[np.float64]


def check_names(count: int, names: Sequence[str]) -> None:
    """Stop unless there are variants, with a name for each.

    Raises
    ------
    CalibrationError
        There are none, or another number of names.
    """
    if not count or len(names) != count:
        msg = f"there are {count} variants and {len(names)} names; give at least one variant, and a name for each"
        raise CalibrationError(msg)


def check_budgets(budget: int | None, budget_s: float | None, first: int | None) -> None:
    """Stop unless what is given of these is positive, and numbers of variants are whole.

    Raises
    ------
    CalibrationError
        One is not.
    """
    for what, given in (("a budget", budget), ("the first batch", first)):
        whole = isinstance(given, (int, np.integer)) and not isinstance(given, bool)
        if given is not None and not (whole and given >= 1):
            msg = f"{what} must be positive, a whole number of variants, not {given!r}"
            raise CalibrationError(msg)
    if budget_s is not None and not _as_float(budget_s) > 0:
        msg = f"a budget must be positive, a number of seconds, not {budget_s!r}"
        raise CalibrationError(msg)


def prior_of(prior: ArrayLike | None, count: int) -> Array | None:
    """Return expected times, shape ``(count,)``, or None where none are given.

    Raises
    ------
    CalibrationError
        There is another number of them, or one is not positive and finite.
    """
    if prior is None:
        return None
    msg = f"the prior must be a positive time for each of the {count} variants"
    try:
        expected = np.asarray(prior, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise CalibrationError(msg) from error
    if expected.shape != (count,) or not ((expected > 0) & np.isfinite(expected)).all():
        raise CalibrationError(msg)
    return expected


def number_of(which: object, names: Sequence[str], settings: Sequence[Mapping[str, Any]]) -> int:
    """Return the number of the variant that is meant: by its number, its name, or its settings.

    Raises
    ------
    CalibrationError
        There is no such variant, a name is that of several, or it is none of the three.
    """
    found: list[int] = []
    if isinstance(which, (int, np.integer)) and not isinstance(which, bool):
        found = [int(which)] if 0 <= which < len(names) else []
    elif isinstance(which, str):
        found = [number for number, name in enumerate(names) if name == which]
    elif isinstance(which, Mapping):
        found = [number for number, each in enumerate(settings) if dict(each) == dict(which)][:1]
    else:
        msg = f"a variant is identified by what ask() returned, its number, its name or its settings, not by {which!r}"
        raise CalibrationError(msg)
    if len(found) == 1:
        return found[0]
    if found:
        msg = f"{len(found)} variants are named {which!r}; tell the number"
    else:
        msg = f"there is no variant {which!r} among the {len(names)}; use what ask() returned"
    raise CalibrationError(msg)


def seconds_of(seconds: float | None, cost_s: float | None, name: str) -> tuple[float, float]:
    """Return the time of a variant, nan if it failed, and what the measurement cost.

    Raises
    ------
    CalibrationError
        The time is neither positive nor None nor nan, or the cost is negative or no number.
    """
    # A text becomes -1, which is refused below; as nan it would pass for a failed variant.
    time = math.nan if seconds is None else _as_float(seconds, otherwise=-1.0)
    if not (math.isnan(time) or 0 < time < math.inf):
        msg = f"the time of {name!r} is {seconds!r}; it must be positive, or None if it failed"
        raise CalibrationError(msg, variant=name)
    if cost_s is None:
        return time, 0.0 if math.isnan(time) else time
    cost = _as_float(cost_s)
    if not cost >= 0:
        msg = f"the cost of measuring {name!r} is {cost_s!r}; it must be a number of seconds, or None"
        raise CalibrationError(msg, variant=name)
    return time, cost


def _as_float(value: object, otherwise: float = math.nan) -> float:
    """Return a number as a float; texts are none, also where they read like one."""
    try:
        return otherwise if isinstance(value, (str, bytes)) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return otherwise
