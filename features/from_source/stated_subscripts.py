"""Subscripts that users state by the text of an access, and which of them a walk met."""

from __future__ import annotations

import re
from collections.abc import Mapping


class StandIns(dict[str, str]):
    """Stated subscripts by the text of the access, and which of them were met."""

    def __init__(self, stated: Mapping[str, str]) -> None:
        super().__init__({plain(key): value for key, value in stated.items()})
        self.met: set[str] = set()

    @property
    def unmet(self) -> str:
        """What fits no access, in words; empty if all do."""
        text = next((key for key in self if key not in self.met), None)
        words = "fits no access; write the access as the source does"
        return "" if text is None else f"what is stated for {text!r} {words}"


def is_access(key: str) -> bool:
    """Return whether something is stated for an access, rather than a line or an array."""
    return "[" in key or key.lstrip().startswith("*")


def plain(text: str) -> str:
    """Return a text without blanks, but between words."""
    return re.sub(r"(?<!\w)\s+|\s+(?!\w)", "", text.strip())
