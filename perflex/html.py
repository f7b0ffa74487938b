"""HTML by templates: what notebooks and report pages show of objects; all text is escaped."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from jinja2 import Environment

    from perflex.tables import Table


def render(template: str, **values: object) -> str:
    """Return a template of ``perflex/templates``, filled in with values by name."""
    return _environment().get_template(template).render(values)


def shown_by(template: str, **functions: str) -> Callable[[Any], str]:
    """Return a method ``_repr_html_`` of a class: notebooks call it to show an object.

    Parameters
    ----------
    template
        A template, which knows the object as `it`.
    functions
        ``module:name`` of functions that the template calls, by their names there. They are imported when an object is
        shown: they know the class, which must not know them.
    """

    def show(self: Any) -> str:
        places = {name: function.partition(":") for name, function in functions.items()}
        found = {name: getattr(import_module(module), own) for name, (module, _, own) in places.items()}
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
    environment.globals |= {
        "shown": shown, "picture": picture, "table": table,
        "number": number, "fixed": fixed, "percent": percent, "seconds": seconds,
        "text": Column,
    }  # fmt: skip
    environment.filters["percent"] = lambda value, digits=1, sign="": f"{100 * value:{sign}.{digits}f} %"
    return environment


def significant(value: float, digits: int = 4) -> str:
    """Return a number with so many significant digits; with an exponent where it is very small or large."""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    exponent = math.floor(math.log10(abs(float(f"{value:.{digits - 1}e}"))))
    return f"{value:.{max(digits - 1 - exponent, 0)}f}" if -4 <= exponent < 7 else f"{value:.{digits - 1}e}"


@dataclass(frozen=True)
class Column:
    """A column of a table: of texts, unless it says how numbers are written. Cells that are nan are empty."""

    heading: str
    # In a few words, shown where the pointer rests.
    meaning: str = ""
    write: Callable[[float], str] | None = None
    # Of what is shown, in the heading; "time": the unit that suits the first column of times.
    unit: str = ""
    # Times the cell's number is what is shown: 100 for fractions in percent.
    factor: float = 1.0

    def shown(self, value: Any) -> str:
        """Return a cell's text; of an array, its range."""
        if value is None or isinstance(value, str) or self.write is None:
            return "" if value is None else value if hasattr(value, "__html__") else str(value)
        if getattr(value, "size", 1) > 1:
            return f"{self.shown(value.min())} to {self.shown(value.max())}"
        number = float(value)
        return "" if math.isnan(number) else f"{number:g}" if math.isinf(number) else self.write(self.factor * number)

    def exact(self, value: Any) -> str | None:
        """Return the number that a table is sorted by, as a script reads it; None for texts."""
        if self.write is None or value is None or isinstance(value, str) or getattr(value, "size", 1) > 1:
            return None
        return None if math.isnan(float(value)) else repr(float(value)).replace("inf", "Infinity")


def number(heading: str, digits: int = 4, *, unit: str = "", factor: float = 1.0, meaning: str = "") -> Column:
    """Return a column of numbers with so many significant digits."""
    return Column(heading, meaning, lambda value: significant(value, digits), unit, factor)


def fixed(
    heading: str, digits: int = 0, *, sign: bool = False, unit: str = "", factor: float = 1.0, meaning: str = ""
) -> Column:
    """Return a column of numbers with so many digits behind the point."""
    return Column(heading, meaning, lambda value: f"{value:{'+' if sign else ''}.{digits}f}", unit, factor)


def percent(heading: str, digits: int = 1, *, sign: bool = False, meaning: str = "") -> Column:
    """Return a column of fractions, shown in percent."""
    return fixed(heading, digits, sign=sign, unit="%", factor=100.0, meaning=meaning)


def seconds(heading: str, *, meaning: str = "") -> Column:
    """Return a column of times; all of a table have one unit."""
    return Column(heading, meaning, significant, "time")


def table(
    caption: str, items: Iterable[Any], columns: Sequence[Column | str], caller: Callable[..., Any] | None = None
) -> Any:
    """Return a table; the first column names the rows, and columns in which nothing stands are left out.

    There is an item for each row: its cells, or with a `caller` any object. That is the body of the template's
    ``{% call(item, row) table(...) %}``, which calls ``row`` with the cells of an item. A text as a column stands for a
    column of texts.
    """
    rows: list[tuple[Any, ...]] = []

    def row(*cells: Any) -> str:
        if len(cells) != len(columns):
            msg = f"each row must have {len(columns)} cells, one for each column"
            raise ValueError(msg)
        rows.append(cells)
        return ""

    for item in items:
        row(*item) if caller is None else caller(item, row)
    described = _in_one_unit([Column(one) if isinstance(one, str) else one for one in columns], rows)
    kept = [i for i, one in enumerate(described) if i == 0 or not rows or any(one.shown(cells[i]) for cells in rows)]
    made = _environment().get_template("table.html").module
    return made.table(  # type: ignore[attr-defined]  # a macro
        caption, [described[i] for i in kept], [[(described[i], cells[i]) for i in kept] for cells in rows]
    )


def shown(what: Table) -> Any:
    """Return a table of a result as HTML."""
    seen = what.on_page()
    columns = [replace(one, heading=one.title) for one in seen.columns]
    cells = [list(zip(columns, row, strict=True)) for row in seen.rows]
    return _environment().get_template("table.html").module.table(what.caption, columns, cells)  # type: ignore[attr-defined]


def picture(figure: Any, meaning: str) -> Any:
    """Return a matplotlib figure as HTML; the meaning is what it shows, for those who cannot see it."""
    import zlib

    from markupsafe import Markup

    from perflex.pictures import svg_text

    # Identifiers of its own for each picture of a page, the same in each run.
    svg = svg_text(figure, f"picture-{zlib.crc32(meaning.encode()):x}-", meaning)
    return Markup("<figure>{}</figure>").format(Markup(svg))  # noqa: S704 - made here, and escaped there


_TIMES = (("s", 1.0), ("ms", 1e3), ("µs", 1e6), ("ns", 1e9), ("ps", 1e12))


def _in_one_unit(columns: list[Column], rows: Sequence[Sequence[Any]]) -> list[Column]:
    """Give columns of times the unit in which the median of the first one has one to three digits before the point."""
    timed = [i for i, column in enumerate(columns) if column.unit == "time"]
    if not timed:
        return columns
    known = sorted(time for cells in rows if 0 < (time := abs(cells[timed[0]] or 0)) < math.inf)
    middle = known[len(known) // 2] if known else 1.0
    unit, factor = next(((unit, factor) for unit, factor in _TIMES if middle * factor >= 1), _TIMES[-1])
    write: Callable[[float], str] = significant
    if known and known[-1] < 1e3 * known[0]:
        # The same number of digits behind the point, so that points stand below each other.
        digits = max(2 - math.floor(math.log10(known[0] * factor)), 0)

        def write(value: float) -> str:
            return f"{value:.{digits}f}"

    return [replace(one, unit=unit, factor=factor, write=write) if i in timed else one for i, one in enumerate(columns)]
