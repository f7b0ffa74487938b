"""HTML by templates: what notebooks and report pages show of objects; all text is escaped."""

from __future__ import annotations

from functools import cache
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from jinja2 import Environment

    from perflex.tables import Table


def render(template: str, **values: object) -> str:
    """Return a template of ``perflex/templates``, filled in with values by name."""
    return _environment().get_template(template).render(values)


def shown_by(template: str, **functions: str) -> Callable[[Any], str]:
    """Return a method ``_repr_html_`` of a class, with a template that knows the object as `it`: notebooks call it.

    The template calls functions by these names, ``module:name``; they know the class, which must not import them.
    """

    def show(self: Any) -> str:
        found = {name: resolve_name(place) for name, place in functions.items()}
        return render("notebook.html", body=template, it=self, **found)

    show.__doc__ = "Return the object for a notebook."
    return show


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("perflex"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"shown": shown, "picture": picture}
    return environment


def shown(what: Table) -> Any:
    """Return a table of a result as HTML."""
    seen = what.on_page()
    cells = [list(zip(seen.columns, row, strict=True)) for row in seen.rows]
    return _environment().get_template("table.html").module.table(what.caption, seen.columns, cells)  # type: ignore[attr-defined]


def picture(figure: Any, meaning: str) -> Any:
    """Return a matplotlib figure as HTML; the meaning is what it shows, for those who cannot see it."""
    import zlib

    from markupsafe import Markup

    from perflex.pictures import svg_text

    # Identifiers of its own for each picture of a page, the same in each run.
    svg = svg_text(figure, f"picture-{zlib.crc32(meaning.encode()):x}-", meaning)
    return Markup("<figure>{}</figure>").format(Markup(svg))  # noqa: S704 - made here, and escaped there
