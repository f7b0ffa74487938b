"""Sizes must be whole numbers: what is no whole number would be cut off on its way to isl or to a device."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from math import prod
from numbers import Rational
from typing import Any

import numpy as np

from perflex.errors import MissingSizeError

# No index of generated code is longer than 64 bits; doubles hold every whole number up to 2**53.
_MOST = 2**63
_MOST_EXACT = 2**53
_BITS_62 = 2**62


def require_whole(sizes: Mapping[str, Any], names: Iterable[str], kernel: str) -> None:
    """Stop unless sizes are whole numbers, or arrays of them, of any numeric type: 16, ``np.int32(16)``, 16.0."""
    for name in names:
        value = sizes[name]
        if not is_whole(value):
            # Python writes no integer of thousands of digits.
            long = isinstance(value, int) and abs(value) >= _MOST
            shown = f"one of {value.bit_length()} bits" if long else f"{value!r:.60}"
            msg = f"kernel {kernel!r}: size {name} must be a whole number below 2**63, such as 1024, not {shown}"
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


def require_addressable(scop: Any, sizes: Mapping[str, Any], *, addresses: bool = True) -> None:
    """Stop where sizes, or the arrays or grids that they make, are too large for 64-bit addresses."""

    def refused(cause: str, *names: str) -> MissingSizeError:
        return MissingSizeError(cause, kernel=scop.name, parameters=names or scop.parameters)

    for name, value in sizes.items():
        # Of Python's numbers: the least of numpy's has no absolute value.
        if max(map(abs, map(int, np.ravel(value).tolist())), default=0) > _MOST_EXACT:
            msg = f"size {name} of kernel {scop.name!r} exceeds {_MOST_EXACT}; give a smaller one"
            raise refused(msg, name)
    for array in scop.arrays:
        extents = [_most(extent, sizes) for extent in array.shape]
        # Whatever the order of the axes, no stride is larger than all extents but the least.
        steps = prod(extents) // (1 if addresses else min(extents, default=1))
        longest = max((_most(stride, sizes) for stride in array.strides), default=1)
        if max(steps, longest) * array.itemsize >= _BITS_62:
            fix = "give smaller sizes" if longest <= steps else "give smaller sizes or strides"
            msg = f"array {array.name!r} of kernel {scop.name!r} would have more than 2**62 bytes; {fix}"
            raise refused(msg)
    for launch in scop.launches:
        if prod(_most(extent, sizes) for extent in (*launch.groups, launch.repeats)) * launch.group_size >= _BITS_62:
            msg = f"kernel {scop.name!r} would have more than 2**62 work-items; give smaller sizes"
            raise refused(msg)


def _most(extent: Any, sizes: Mapping[str, Any]) -> int:
    """Return the largest distance from zero, 1 at least."""
    try:
        return max(1, *map(abs, map(int, np.ravel(extent.evaluate(sizes)))))
    except OverflowError:  # in an array's arithmetic
        return _BITS_62


# Long enough for any double; 1e999999999 would be computed digit by digit.
_NUMBER = re.compile(r"[+-]?((\d{1,400}(\.\d{0,400})?|\.\d{1,400})([eE][+-]?\d{1,3})?|\d{1,400}/\d{1,400})")
# Beyond any trip count; their products still fit in doubles.
_MOST_TRIPS = 10**15


def read_fraction(text: str) -> Fraction | None:
    """Return the positive number that a text such as ``7.5`` or ``5/6`` stands for, exactly; None if it is none.

    Numbers above 10**15, and their reciprocals, count as none.
    """
    if not _NUMBER.fullmatch(text.strip()):
        return None
    try:
        # By way of the text: 0.1 is a tenth, not the binary number next to it.
        number = Fraction(text)
    except ZeroDivisionError:
        return None
    return number if Fraction(1, _MOST_TRIPS) <= number <= _MOST_TRIPS else None
