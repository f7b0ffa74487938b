"""Pictures in a page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perflex.html import Html, element
from perflex.pictures import svg_text

if TYPE_CHECKING:
    from collections.abc import Iterator


class Pictures:
    """Makes figures of a page, each with identifiers of its own."""

    def __init__(self, names: Iterator[int]) -> None:
        self._names = names

    def show(self, figure: Any, meaning: str) -> Html:
        """Return a picture; `meaning` is what it shows, for those who cannot see it."""
        svg = svg_text(figure, f"picture-{next(self._names)}-")
        # What reads the page aloud reads the meaning instead of every number on an axis.
        label = element("svg", role="img", aria_label=meaning).text.removesuffix("></svg>").removeprefix("<svg")
        return element("figure", Html(svg.replace("<svg", f"<svg{label}", 1)))
