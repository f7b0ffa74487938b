"""Values that wait until something reads them: attributes, and isl objects that stay text."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

from perflex.isl import ISL_LOCK, isl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

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


class ParsedWhenRead:
    """A frozen dataclass, some of whose fields may be given as isl's text and are parsed when first read."""

    @classmethod
    def with_texts(
        cls, values: dict[str, Any], texts: Mapping[str, tuple[Any, str]], order: tuple[str, ...] = ()
    ) -> Self:
        """Make an object without calling its constructor; it keeps `values` itself, cached attributes included.

        `texts` has isl class and text of each field that is parsed later, `order` the parameters that these get.
        """
        values["_texts"] = texts
        values["_text_order"] = order
        made = cls.__new__(cls)
        # Frozen dataclasses refuse plain assignment.
        object.__setattr__(made, "__dict__", values)
        return made

    def text_of(self, field: str) -> str:
        """Return a field as isl prints it."""
        texts = self.__dict__.get("_texts", {})
        return texts[field][1] if field in texts else str(getattr(self, field))

    if not TYPE_CHECKING:  # a type checker would take every name for an attribute

        def __getattr__(self, name: str) -> Any:
            # copy and pickle ask for attributes while __dict__ is still empty.
            texts = self.__dict__.get("_texts", {})
            if name not in texts:
                msg = f"{type(self).__name__!r} object has no attribute {name!r}"
                raise AttributeError(msg)
            value = self.__dict__[name] = _parsed(*texts[name], self.__dict__["_text_order"])
            return value


# Statements share domains, and accesses relations: equal texts become one isl object.
@lru_cache(maxsize=4096)
def _parsed(kind: Any, text: str, order: tuple[str, ...]) -> Any:
    with ISL_LOCK:
        value = kind(text)
        if order:
            value = align_parameters(value, order)
        return value


@lru_cache(maxsize=256)
def parameter_space(names: tuple[str, ...]) -> Any:
    """Return the isl set space without dimensions and with the given parameters."""
    return isl.Space.create_from_names(isl.DEFAULT_CONTEXT, set=[], params=list(names))


def align_parameters(isl_object: Any, names: Iterable[str]) -> Any:
    """Give an isl object the parameters in the given order, so that equal things compare equal."""
    return isl_object.align_params(parameter_space(tuple(names)))
