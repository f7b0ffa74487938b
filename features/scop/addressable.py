"""Sizes that a kernel can be counted at: such that no address and no number of work-items has more than 62 bits."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.errors import MissingSizeError

if TYPE_CHECKING:
    from collections.abc import Mapping

# Doubles hold every whole number up to here.
_MOST = 2**53
_BITS_62 = 2**62
# Below it, arrays of four axes and grids stay far below 62 bits: nothing has to be computed.
_HARMLESS = 2**14


def require_addressable(scop: Any, sizes: Mapping[str, Any], *, addresses: bool = True) -> None:
    """Stop where sizes, or the arrays or grids that they make, are too large for 64-bit addresses.

    Parameters
    ----------
    scop
        The `Scop`.
    sizes
        A value or array for each of its parameters, whole numbers all.
    addresses
        Whether elements are addressed; else only distances along each axis have to be small enough.

    Raises
    ------
    MissingSizeError
        They are; the size, array or grid is named.
    """
    largest = 0
    for name, value in sizes.items():
        # Of Python's numbers: the least of numpy's has no absolute value.
        size = max(map(abs, map(int, np.ravel(value).tolist())), default=0)
        if size > _MOST:
            msg = f"size {name} of kernel {scop.name!r} exceeds {_MOST}; give a smaller one"
            raise MissingSizeError(msg, kernel=scop.name, parameters=(name,))
        largest = max(largest, size)
    if largest < _HARMLESS:
        return
    for array in scop.arrays:
        extents = [_most(extent, sizes) for extent in array.shape]
        # Whatever the order of the axes, no stride is larger than all extents but the least.
        steps = prod(extents) // (1 if addresses else min(extents, default=1))
        if steps * array.itemsize >= _BITS_62:
            msg = f"array {array.name!r} of kernel {scop.name!r} would have more than 2**62 bytes; give smaller sizes"
            raise MissingSizeError(msg, kernel=scop.name, parameters=scop.parameters)
    for launch in scop.launches:
        if prod(_most(extent, sizes) for extent in (*launch.groups, launch.repeats)) * launch.group_size >= _BITS_62:
            msg = f"kernel {scop.name!r} would have more than 2**62 work-items; give smaller sizes"
            raise MissingSizeError(msg, kernel=scop.name, parameters=scop.parameters)


def _most(extent: Any, sizes: Mapping[str, Any]) -> int:
    value = extent.evaluate(sizes)
    return max(1, int(np.max(value)) if isinstance(value, np.ndarray) else int(value))
