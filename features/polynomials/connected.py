"""Sets that have to do with each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def connected(sets: Iterable[frozenset[int]]) -> list[frozenset[int]]:
    """Return the unions of sets that share members, directly or by way of others."""
    parts: list[frozenset[int]] = []
    for item in sets:
        met = [part for part in parts if part & item]
        parts = [part for part in parts if not part & item]
        parts.append(item.union(*met))
    return parts
