"""isl objects that stay text until something works with them: of what the store has, little is needed."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self

from perflex.isl import ISL_LOCK, isl

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class ParsedWhenRead:
    """A frozen dataclass, some of whose fields may be given as isl's text and are parsed when first read."""

    @classmethod
    def with_texts(
        cls, values: dict[str, Any], texts: Mapping[str, tuple[Any, str]], order: tuple[str, ...] = ()
    ) -> Self:
        """Make an object without calling its constructor.

        Parameters
        ----------
        values
            The other fields, and cached attributes that need not be computed again; the object keeps this very dict.
        texts
            isl class and text of each field that is parsed later.
        order
            Names of the parameters such fields get, in this order; isl's own order if there are none.
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
