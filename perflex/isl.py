"""The one place that imports islpy: checks that it can count, and mends what loopy misses in newer versions.

All code that uses loopy imports this before, so that loopy's caches are seen to here, too.
"""

from __future__ import annotations

import shlex
import sys
from importlib.util import find_spec
from threading import RLock
from typing import TYPE_CHECKING, Any

import islpy as isl

from perflex.caches import mend_entries, tell
from perflex.errors import EnvironmentSetupError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ISL_LOCK", "isl"]

# All threads share one isl context, which has one count of operations and one limit to them; loopy's preprocessing is
# not made for threads either.
ISL_LOCK = RLock()


def _mending_command() -> str:
    """Return what installs islpy-barvinok over islpy, with the installer that this Python has."""
    installer = [sys.executable, "-m", "pip", "install", "--force-reinstall"]
    if find_spec("pip") is None:
        installer = ["uv", "pip", "install", "--python", sys.executable, "--reinstall"]
    # Without dependencies: what loopy asks for stays listed as installed, so that no later installation brings it back.
    return shlex.join([*installer, "--no-deps", "islpy-barvinok"])


def _check() -> None:
    if not hasattr(isl.Set, "card"):
        msg = (
            "the installed islpy cannot count: plain islpy, which loopy asks for, was installed over islpy-barvinok; "
            f"repair it with: {_mending_command()}"
        )
        raise EnvironmentSetupError(msg)


def _of_set(name: str) -> Callable[..., Any]:
    """Return a method of sets as one of basic sets, which are sets of a single piece."""

    def method(basic_set: Any, *arguments: Any) -> Any:
        return getattr(isl.Set.from_basic_set(basic_set), name)(*arguments)

    return method


def _mend() -> None:
    # loopy 2025.2 calls these; islpy 2026 has them no longer, and clipped loops, scans and slabs fail.
    if not hasattr(isl.Aff, "is_equal"):
        # isl compares single affine expressions in this way only.
        isl.Aff.is_equal = isl.Aff.plain_is_equal
    for name in ("find_dim_by_name", "dim_min", "dim_max", "subtract"):
        if not hasattr(isl.BasicSet, name):
            setattr(isl.BasicSet, name, _of_set(name))


_check()
_mend()
mend_entries()
tell()
