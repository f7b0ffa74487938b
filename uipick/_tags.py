"""Filter tags: generator tags (``matmul_sq``) and variant tags (``n:512,640``) (paper Section 7.1)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from perflex.errors import TagError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
_VALUE = re.compile(r"[A-Za-z_0-9.+-]+")


class FilterTags(NamedTuple):
    """Filter tags, taken apart.

    Attributes
    ----------
    generator
        The generator tags.
    variant
        The texts of the values of each argument named by a variant tag, in the order given.
    """

    generator: frozenset[str]
    variant: Mapping[str, tuple[str, ...]]


def parse_tags(tags: Iterable[object]) -> FilterTags:
    """Take filter tags apart.

    Parameters
    ----------
    tags
        Generator tags (one word) and variant tags (``argument:value[,value...]``), in any order.

    Raises
    ------
    TagError
        A tag is malformed or given twice.
    """
    if isinstance(tags, str):  # a sequence of strings too, but never what is meant
        msg = f"filter tags are a list of strings, not one string; write [{tags!r}]"
        raise TagError(msg, tag=tags)
    generator: set[str] = set()
    variant: dict[str, tuple[str, ...]] = {}
    for tag in tags:
        if not isinstance(tag, str):
            msg = f"filter tag {tag!r} is not a string; write 'word' or 'argument:value[,value...]'"
            raise TagError(msg, tag=tag)
        name, colon, rest = (part.strip() for part in tag.partition(":"))
        if not _NAME.fullmatch(name):
            msg = f"malformed filter tag {tag!r}: {name!r} is not a name; write 'word' or 'argument:value[,value...]'"
            raise TagError(msg, tag=tag)
        if name in (variant if colon else generator):
            msg = f"generator tag {name!r} is given twice; leave one out"
            if colon:
                msg = f"argument {name!r} is given twice; join the values in one tag: '{name}:{rest},...'"
            raise TagError(msg, tag=tag)
        if colon:
            variant[name] = _values(tag, rest)
        else:
            generator.add(name)
    return FilterTags(frozenset(generator), variant)


def _values(tag: str, text: str) -> tuple[str, ...]:
    values = tuple(value.strip() for value in text.split(","))
    for position, value in enumerate(values):
        if not _VALUE.fullmatch(value):
            msg = f"malformed filter tag {tag!r}: {value!r} is not a value; write 'argument:value[,value...]'"
            raise TagError(msg, tag=tag)
        if value in values[:position]:
            msg = f"filter tag {tag!r} has the value {value!r} twice; leave one out"
            raise TagError(msg, tag=tag)
    return values
