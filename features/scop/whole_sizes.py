"""Sizes must be whole numbers: what is no whole number would be cut off on its way to isl or to a device."""

from __future__ import annotations

from numbers import Rational
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.errors import MissingSizeError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# No index of generated code is longer than 64 bits.
_MOST = 2**63


def require_whole(sizes: Mapping[str, Any], names: Iterable[str], kernel: str) -> None:
    """Stop unless sizes are whole numbers, or arrays of them, of any numeric type: 16, ``np.int32(16)``, 16.0.

    Parameters
    ----------
    sizes
        Value of each size parameter; others are not looked at.
    names
        Which are size parameters.
    kernel
        For the message.

    Raises
    ------
    MissingSizeError
        A value has a fraction, is nan, infinite, no number, a truth value, or beyond 64 bits.
    """
    for name in names:
        value = sizes[name]
        if not is_whole(value):
            msg = f"kernel {kernel!r}: size {name} must be a whole number below 2**63, such as 1024, not {value!r:.60}"
            raise MissingSizeError(msg, kernel=kernel, parameters=(name,))


def is_whole(value: Any) -> bool:
    """Return whether a value is a whole number of at most 64 bits, or an array of such."""
    if isinstance(value, bool) or not isinstance(value, (Rational, float, np.generic, np.ndarray)):
        return False
    if isinstance(value, Rational):  # int, too
        return value.denominator == 1 and abs(int(value.numerator)) < _MOST
    array = np.asarray(value)
    if array.dtype.kind == "O":  # integers that no array of numbers holds, among others
        return all(map(is_whole, array.ravel().tolist()))
    return array.dtype.kind in "iuf" and bool(
        np.all(np.isfinite(array) & (array == np.floor(array)) & (np.abs(array.astype(float)) < _MOST))
    )
