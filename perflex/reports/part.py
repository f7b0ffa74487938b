"""A part of a report: what it says of one file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Picture: TypeAlias = Callable[[Any, str], str]
"""Returns a figure as HTML; the text is what it shows, for those who cannot see it."""


@dataclass(frozen=True)
class Part:
    """What a report says of one file.

    Attributes
    ----------
    title
        What the file is, and of what.
    notices
        Severity and text of what to know before the numbers are used, the gravest first.
    body
        HTML: summary, tables and pictures.
    provenance
        Names and values: where the numbers come from. Those with a title are shown after a click on it.
    """

    title: str
    notices: Sequence[tuple[str, str]]
    body: str
    provenance: Sequence[tuple[str, Mapping[str, object]]]
