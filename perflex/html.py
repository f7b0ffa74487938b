"""HTML: what notebooks and report pages are made of; text is escaped unless it is marked as HTML."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeAlias

Number = Callable[[float], str]
"""How a column or a fact writes its numbers."""


@dataclass(frozen=True)
class Html:
    """Text that is HTML already."""

    text: str

    def __str__(self) -> str:
        return self.text


# What stands in an element: text is escaped, None is nothing.
Content: TypeAlias = "Html | str | int | float | Iterable[Content] | None"
Cell: TypeAlias = "Html | str | int | float | None"

# Letters, digits and hyphens: names of elements and attributes are the program's own, never data.
_VOID = {"meta", "br"}


def joined(*content: Content) -> Html:
    """Return pieces one after the other; text and numbers are escaped."""
    return Html("".join(map(_text, content)))


def element(tag: str, /, *content: Content, **attributes: str | float | bool | None) -> Html:
    """Return an element.

    Parameters
    ----------
    tag
        Its name, such as ``"p"``.
    content
        What stands in it.
    attributes
        By name, with ``_`` for ``-`` and at its end for Python's own words (``class_``). Values are escaped; True is an
        attribute without a value, False and None are left out.
    """
    written = "".join(
        f" {key.strip('_').replace('_', '-')}" + ("" if value is True else f'="{html.escape(str(value))}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    inside = "" if tag in _VOID else f"{joined(*content)}</{tag}>"
    return Html(f"<{tag}{written}>{inside}")


def _text(content: Content) -> str:
    if content is None:
        return ""
    if isinstance(content, Html):
        return content.text
    if isinstance(content, str | int | float):
        return html.escape(str(content))
    return "".join(map(_text, content))


def significant(value: float, digits: int = 4) -> str:
    """Return a number with so many significant digits; with an exponent where it is very small or large."""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    exponent = math.floor(math.log10(abs(float(f"{value:.{digits - 1}e}"))))
    return f"{value:.{max(digits - 1 - exponent, 0)}f}" if -4 <= exponent < 7 else f"{value:.{digits - 1}e}"


def fixed(digits: int, *, sign: bool = False) -> Number:
    """Return how to write numbers with so many digits behind the point."""
    return lambda value: f"{value:{'+' if sign else ''}.{digits}f}"


def whole(value: float) -> str:
    """Return a number without a fraction."""
    return f"{value:.0f}"


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes
    ----------
    heading
        Its name.
    number
        How its numbers are written; None for a column of texts. Not a number is an empty cell.
    unit
        Of what is shown, in the heading.
    factor
        Times the cell's number is what is shown: 100 for fractions in percent.
    meaning
        What it is, in a few words, shown where the pointer rests; or empty.
    """

    heading: str
    number: Number | None = None
    unit: str = ""
    factor: float = 1.0
    meaning: str = ""

    def head(self) -> Html:
        """Return the heading's cell."""
        unit = element("span", f" ({self.unit})", class_="unit") if self.unit else None
        kind = "number" if self.number else None
        return element("th", self.heading, unit, scope="col", class_=kind, title=self.meaning or None)

    def cell(self, value: Cell, *, name: bool = False) -> Html:
        """Return a cell; one with the row's name is a heading, too."""
        tag, scope = ("th", "row") if name else ("td", None)
        if self.number is None or isinstance(value, str | Html) or value is None:
            return element(tag, value, scope=scope, class_="number" if self.number else None)
        if math.isnan(value):
            return element(tag, scope=scope, class_="number")
        # Sorting goes by the number, not by its rounded text; scripts know infinity by another name than Python.
        exact = repr(float(value)).replace("inf", "Infinity")
        return element(tag, self._shown(value), scope=scope, class_="number", data_value=exact)

    def _shown(self, value: float) -> str:
        if self.number is None or math.isinf(value):
            return f"{value:g}"
        return self.number(self.factor * value)


def percent(heading: str, *, sign: bool = False, digits: int = 1, meaning: str = "") -> Column:
    """Return a column of fractions, shown in percent."""
    return Column(heading, fixed(digits, sign=sign), "%", 100.0, meaning)


_TIMES = (("s", 1.0), ("ms", 1e3), ("µs", 1e6), ("ns", 1e9), ("ps", 1e12))


def times(heading: str, seconds: Iterable[float | None], *, meaning: str = "") -> Column:
    """Return a column of times, in the unit in which the median one has one to three digits before the point.

    Parameters
    ----------
    heading
        Its name.
    seconds
        Its times.
    meaning
        As of `Column`.
    """
    known = sorted(abs(s) for s in seconds if s is not None and math.isfinite(s) and s != 0)
    middle = known[len(known) // 2] if known else 1.0
    unit, factor = next(((unit, f) for unit, f in _TIMES if middle * f >= 1), _TIMES[-1])
    # The same number of digits behind the point, so that points stand below each other.
    if known and known[-1] < 1e3 * known[0]:
        return Column(heading, fixed(max(2 - math.floor(math.log10(known[0] * factor)), 0)), unit, factor, meaning)
    return Column(heading, significant, unit, factor, meaning)


def table(columns: Sequence[Column], rows: Iterable[Sequence[Cell]], *, caption: str = "") -> Html:
    """Return a table; the first column names the rows, and columns in which nothing stands are left out.

    Parameters
    ----------
    columns
        Its columns.
    rows
        Cells of each row, as many as columns.
    caption
        Above it.

    Raises
    ------
    ValueError
        A row has more or fewer cells.
    """
    given = [list(row) for row in rows]
    if any(len(row) != len(columns) for row in given):
        msg = f"each row must have {len(columns)} cells, one for each column"
        raise ValueError(msg)
    shown = [i for i in range(len(columns)) if i == 0 or not given or any(not _is_empty(row[i]) for row in given)]
    body = [element("tr", (columns[i].cell(row[i], name=i == 0) for i in shown)) for row in given]
    whole_table = element(
        "table",
        element("caption", caption) if caption else None,
        element("thead", element("tr", (columns[i].head() for i in shown))),
        element("tbody", body),
        class_="sortable" if len(body) > 1 else None,
    )
    # Wide tables scroll by themselves, with the keyboard, too; the page does not.
    return element("div", whole_table, class_="scroll", tabindex="0", role="region", aria_label=caption or "table")


def _is_empty(value: Cell) -> bool:
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))


def facts(pairs: Mapping[str, Content] | Iterable[tuple[str, Content]]) -> Html:
    """Return names and values in two columns; those without a value are left out."""
    given = pairs.items() if isinstance(pairs, Mapping) else pairs
    rows = [
        element("tr", element("th", name, scope="row"), element("td", value))
        for name, value in given
        if value is not None and value != ""
    ]
    return element("table", element("tbody", rows), class_="facts")


def notice(severity: str, text: Content) -> Html:
    """Return something to know; the severity is ``"problem"``, ``"warning"`` or ``"remark"``."""
    return element("p", element("strong", f"{severity.capitalize()}: "), text, class_=f"notice {severity}")


def bullets(texts: Iterable[Content]) -> Html:
    """Return a list of texts; nothing where there are none."""
    items = [element("li", text) for text in texts]
    return element("ul", items) if items else Html("")


def folded(summary: str, *content: Content) -> Html:
    """Return what is shown after a click on its summary."""
    return element("details", element("summary", summary), *content)


def notebook(*content: Content) -> str:
    """Return HTML for a notebook's output; colours are the notebook's own."""
    return element("div", element("style", Html(STYLE)), *content, class_="perflex").text


def shown_by(function: str) -> Callable[[Any], str]:
    """Return a method ``_repr_html_`` (or ``_repr_latex_``) of a class: notebooks call it to show an object.

    Parameters
    ----------
    function
        ``module:name`` of a function from the object to a text. It is imported when it is first called: it knows the
        class, which must not know it.
    """
    module, _, name = function.partition(":")

    def show(self: Any) -> str:
        shown: str = getattr(import_module(module), name)(self)
        return shown

    show.__doc__ = "Return the object for a notebook."
    return show


# Below the class, so that a notebook's other outputs stay as they are.
STYLE = """
.perflex { line-height: 1.45; }
.perflex .scroll { overflow-x: auto; max-width: 100%; }
.perflex table { border-collapse: collapse; margin: 0.5em 0 1em; font-size: 0.92em; }
.perflex caption { text-align: left; font-weight: 600; padding: 0.3em 0; }
.perflex th, .perflex td {
  text-align: left; vertical-align: baseline; padding: 0.25em 0.55em; border: 0;
  border-bottom: 1px solid rgba(128, 128, 128, 0.3); white-space: normal;
}
.perflex thead th { border-bottom: 2px solid rgba(128, 128, 128, 0.6); vertical-align: bottom; }
.perflex tbody th { font-weight: 400; overflow-wrap: break-word; min-width: 10em; }
.perflex .facts th { min-width: 0; }
.perflex .unit { font-weight: 400; opacity: 0.8; }
.perflex th.number, .perflex td.number { text-align: right; font-variant-numeric: tabular-nums; }
.perflex td.number, .perflex .together { white-space: nowrap; }
.perflex .facts th { font-weight: 600; padding-left: 0; white-space: nowrap; }
.perflex .facts td { overflow-wrap: anywhere; }
.perflex .notice { margin: 0.4em 0; padding: 0.35em 0.8em; border-left: 4px solid #888; }
.perflex .notice.problem { border-left-color: #d55e00; }
.perflex .notice.warning { border-left-color: #e69f00; }
.perflex code { overflow-wrap: anywhere; }
"""
