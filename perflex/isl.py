"""The one place that imports islpy: checks that it can count, mends what loopy misses in newer versions, parses once.

All code that uses loopy imports this before.
"""

from __future__ import annotations

import shlex
import sys
from functools import lru_cache
from importlib.util import find_spec
from threading import RLock
from typing import TYPE_CHECKING, Any, ClassVar

import islpy as isl

from perflex.caches import repair_pytools_cache, warn_of_moved_caches
from perflex.errors import EnvironmentSetupError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["ISL_LOCK", "IslText", "MapText", "SetText", "align_parameters", "computed_once", "isl", "parsed"]

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
# What fills loopy's caches calls it, too; pytools takes long to import, and kernels of source code do without.
if "pytools" in sys.modules:
    repair_pytools_cache()
warn_of_moved_caches()


# Statements share domains, and accesses relations: equal texts become one isl object.
@lru_cache(maxsize=4096)
def parsed(kind: Any, text: str) -> Any:
    """Return the object of an isl class that isl prints as `text`."""
    with ISL_LOCK:
        return kind(text)


class IslText(str):
    """An isl object as isl prints it."""

    __slots__ = ()
    kind: ClassVar[Any]

    @property
    def parsed(self) -> Any:
        """The object."""
        return parsed(self.kind, str(self))


class SetText(IslText):
    """A set."""

    __slots__ = ()
    kind = isl.Set


class MapText(IslText):
    """A relation."""

    __slots__ = ()
    kind = isl.Map


@lru_cache(maxsize=256)
def parameter_space(names: tuple[str, ...]) -> Any:
    """Return the isl set space without dimensions and with the given parameters."""
    return isl.Space.create_from_names(isl.DEFAULT_CONTEXT, set=[], params=list(names))


def align_parameters(isl_object: Any, names: Iterable[str]) -> Any:
    """Give an isl object the parameters in the given order, so that equal things compare equal."""
    return isl_object.align_params(parameter_space(tuple(names)))


if TYPE_CHECKING:
    from functools import cached_property as computed_once
else:

    class computed_once:  # noqa: N801 - used as a decorator
        """A ``functools.cached_property`` without a lock, as that of Python 3.12.

        The older one holds a lock for each class while it computes. Where computing waits for the lock on isl, and
        another thread that has this lock reads the same attribute, both wait for ever.
        """

        def __init__(self, compute):
            self._compute = compute
            self.__doc__ = compute.__doc__

        def __set_name__(self, owner, name):
            self._name = name

        def __get__(self, owner, kind=None):
            if owner is None:
                return self
            # Two threads may both compute: the values are equal. Later reads find __dict__ first: there is no __set__.
            value = owner.__dict__[self._name] = self._compute(owner)
            return value
