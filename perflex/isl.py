"""The one place that imports islpy: checks that it can count, and mends what loopy misses in newer versions."""

from __future__ import annotations

from threading import RLock
from typing import Any

import islpy as isl

from perflex.errors import EnvironmentSetupError

__all__ = ["ISL_LOCK", "isl"]

# All threads share one isl context, which has one count of operations and one limit to them; loopy's preprocessing is
# not made for threads either.
ISL_LOCK = RLock()


def _check() -> None:
    if not hasattr(isl.Set, "card"):
        msg = (
            "the installed islpy cannot count (plain islpy shadows islpy-barvinok); mend it with: "
            "uv pip uninstall islpy islpy-barvinok && uv pip install --no-deps islpy-barvinok"
        )
        raise EnvironmentSetupError(msg)


def _find_dim_by_name(basic_set: Any, kind: Any, name: str) -> int:
    return int(isl.Set.from_basic_set(basic_set).find_dim_by_name(kind, name))


def _dim_min(basic_set: Any, position: int) -> Any:
    return isl.Set.from_basic_set(basic_set).dim_min(position)


def _dim_max(basic_set: Any, position: int) -> Any:
    return isl.Set.from_basic_set(basic_set).dim_max(position)


def _subtract(basic_set: Any, other: Any) -> Any:
    return isl.Set.from_basic_set(basic_set).subtract(other)


def _mend() -> None:
    # loopy 2025.2 calls these; islpy 2026 has them no longer, and clipped loops, scans and slabs fail.
    if not hasattr(isl.Aff, "is_equal"):
        isl.Aff.is_equal = isl.Aff.plain_is_equal
    if not hasattr(isl.BasicSet, "find_dim_by_name"):
        isl.BasicSet.find_dim_by_name = _find_dim_by_name
    for name, function in {"dim_min": _dim_min, "dim_max": _dim_max, "subtract": _subtract}.items():
        if not hasattr(isl.BasicSet, name):
            setattr(isl.BasicSet, name, function)


_check()
_mend()
