"""How long lines stay in a cache that accesses of data-dependent elements share with streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

_HALVINGS = 60
_LONGEST = 1e15


def lifetime(capacity: float, streaming: Any, arrays: Sequence[tuple[float, Any]]) -> Any:
    """Return after how many executions of a loop's body a line leaves the cache that is not used again.

    Parameters
    ----------
    capacity
        Lines of the cache.
    streaming
        New lines that other accesses bring in per execution.
    arrays
        Of each array with accesses drawn at random: accesses per execution, and lines.

    Returns
    -------
    float or array
        The time in which as many different lines are touched as the cache has: those of streams, and of an array of L
        lines, L(1 - exp(-rT/L)) of rT draws. Very long where all fit.

    Notes
    -----
    The characteristic time of Che, Tung and Wang, Hierarchical Web caching systems (2002).
    """
    shape = np.broadcast_shapes(np.shape(streaming), *(np.shape(lines) for _, lines in arrays))
    low, high = np.zeros(shape), np.full(shape, np.log(_LONGEST))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        time = np.exp(middle)
        touched = streaming * time
        for rate, lines in arrays:
            touched = touched - lines * np.expm1(-rate * time / lines)
        fits = touched <= capacity
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    return np.exp(low)
