"""Attributes that are computed when first read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Callable

_Value = TypeVar("_Value")


class computed_once(Generic[_Value]):  # noqa: N801 - used as a decorator
    """A ``functools.cached_property`` without a lock, as that of Python 3.12.

    The older one holds a lock for each class while it computes. Where computing waits for the lock on isl, and another
    thread that has this lock reads the same attribute, both wait for ever.
    """

    def __init__(self, compute: Callable[[Any], _Value]) -> None:
        self._compute = compute
        self._name = ""
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, owner: None, kind: type) -> Self: ...

    @overload
    def __get__(self, owner: object, kind: type | None = None) -> _Value: ...

    def __get__(self, owner: object | None, kind: type | None = None) -> Self | _Value:
        if owner is None:
            return self
        # Two threads may both compute: the values are equal. Later reads find __dict__ first: there is no __set__.
        value = self._compute(owner)
        owner.__dict__[self._name] = value
        return value
