"""What kinds of input have in common: their form, and what is asked of outcomes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

# Content, form (see `mutations.mutated`), and what else its reader needs.
Input = tuple[bytes, str, Any]


class NotFiniteError(Exception):
    """A prediction, an interval or a count that is no finite number was handed out."""


class Kind(NamedTuple):
    """One kind of input and who reads it; `share` of the cases are of this kind."""

    name: str
    share: int
    valid: Callable[[], list[Input]]
    use: Callable[[bytes, Any], None]


def finite(*values: Any) -> None:
    for value in values:
        if not math.isfinite(value):
            msg = f"{value} was handed out"
            raise NotFiniteError(msg)


def written(content: bytes, name: str) -> Path:
    path = Path(name)
    path.write_bytes(content)
    return path


def text_of(content: bytes) -> str:
    return content.decode("utf-8", "replace")
