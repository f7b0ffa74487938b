"""Tables: a result says its columns once; terminals, pages, Markdown, CSV and JSON are drawn from that."""

from __future__ import annotations

import csv
import math
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from perflex.file_io import saving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

Place = Literal["everywhere", "pages", "files"]
"""Where a column is: "pages" are HTML, Markdown and files, "files" CSV and JSON alone."""


# A column of texts with fewer letters in a line is no longer read.
_NARROWEST = 10


@dataclass(frozen=True)
class Column:
    """A column: of texts, unless it says how numbers are written; None and nan are empty cells."""

    # Its key in CSV and JSON, such as ``predicted_s``.
    name: str
    # By default the name with blanks.
    heading: str = ""
    # In a few words, for who asks what the heading means.
    meaning: str = ""
    write: Callable[[float], str] | None = None
    # Of what is shown, in the heading; "time": the unit that suits the first column of times.
    unit: str = ""
    # Times the cell's number is what is shown: 100 for fractions in percent.
    factor: float = 1.0
    place: Place = "everywhere"
    # Whether HTML shows its texts as code.
    code: bool = False
    # What is shown of some values, such as those of a Literal.
    words: Mapping[Any, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The heading without its unit."""
        return self.heading or self.name.replace("_", " ")

    @property
    def titled(self) -> str:
        """The heading with its unit."""
        return f"{self.title} ({self.unit})" if self.unit else self.title

    def shown(self, value: Any) -> str:
        """Return a cell's text; of an array, its range; of a list, its entries."""
        if value is None or isinstance(value, str):
            return "" if value is None else self.words.get(value, value)
        if self.write is None:
            return self._text(value)
        if getattr(value, "size", 1) > 1:
            return f"{self.shown(value.min())} to {self.shown(value.max())}"
        number = float(value)
        return "" if math.isnan(number) else f"{number:g}" if math.isinf(number) else self.write(self.factor * number)

    def _text(self, value: Any) -> str:
        if isinstance(value, bool):
            return self.words.get(value, "yes" if value else "")
        return "; ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)

    def exact(self, value: Any) -> str | None:
        """Return the number that a table is sorted by, as a script reads it; None for texts."""
        if self.write is None or value is None or isinstance(value, str) or getattr(value, "size", 1) > 1:
            return None
        return None if math.isnan(float(value)) else repr(float(value)).replace("inf", "Infinity")


def text(
    name: str, heading: str = "", *, meaning: str = "", place: Place = "everywhere", code: bool = False,
    words: Mapping[Any, str] | None = None,
) -> Column:  # fmt: skip
    """Return a column of texts, truth values (``yes`` and nothing, if there are no other words) or lists of these."""
    return Column(name, heading, meaning, place=place, code=code, words=words or {})


def number(
    name: str, heading: str = "", digits: int = 4, *, unit: str = "", factor: float = 1.0, meaning: str = "",
    place: Place = "everywhere",
) -> Column:  # fmt: skip
    """Return a column of numbers with so many significant digits."""
    return Column(name, heading, meaning, lambda value: significant(value, digits), unit, factor, place)


def fixed(
    name: str, heading: str = "", digits: int = 0, *, sign: bool = False, unit: str = "", factor: float = 1.0,
    meaning: str = "", place: Place = "everywhere",
) -> Column:  # fmt: skip
    """Return a column of numbers with so many digits behind the point."""
    return Column(name, heading, meaning, lambda value: f"{value:{'+' if sign else ''}.{digits}f}", unit, factor, place)


def percent(
    name: str, heading: str = "", digits: int = 1, *, sign: bool = False, meaning: str = "", place: Place = "everywhere"
) -> Column:
    """Return a column of fractions, shown in percent."""
    return fixed(name, heading, digits, sign=sign, unit="%", factor=100.0, meaning=meaning, place=place)


def seconds(name: str, heading: str = "", *, meaning: str = "", place: Place = "everywhere") -> Column:
    """Return a column of times in s; all of a table are shown in one unit."""
    return Column(name, heading or name.removesuffix("_s").replace("_", " "), meaning, significant, "time", place=place)


def significant(value: float, digits: int = 4) -> str:
    """Return a number with so many significant digits; with an exponent where it is very small or large."""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    exponent = math.floor(math.log10(abs(float(f"{value:.{digits - 1}e}"))))
    return f"{value:.{max(digits - 1 - exponent, 0)}f}" if -4 <= exponent < 7 else f"{value:.{digits - 1}e}"


def time_text(seconds: float, digits: int = 4) -> str:
    """Return a time in the unit that suits it, with so many significant digits."""
    unit, factor = next(((unit, factor) for unit, factor in _TIMES if abs(seconds) * factor >= 1), _TIMES[-1])
    return f"{seconds * factor:.{digits}g} {unit}"


@dataclass(frozen=True)
class Table:
    """Rows of a result, a cell for each column; the first column names the rows."""

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]

    def __post_init__(self) -> None:
        wrong = next((row for row in self.rows if len(row) != len(self.columns)), None)
        if wrong is not None:
            msg = f"each row must have {len(self.columns)} cells, one for each column, not {len(wrong)}"
            raise ValueError(msg)

    @classmethod
    def of(cls, caption: str, columns: Sequence[Column], items: Iterable[Any]) -> Table:
        """Return a table with a row for each object: its attributes or, of a mapping, entries by the columns' names."""
        names = [one.name for one in columns]
        return cls(
            caption,
            columns,
            [[item[name] if isinstance(item, Mapping) else getattr(item, name) for name in names] for item in items],
        )

    def first(self, count: int) -> Table:
        """Return the table with its first rows, as the caption says where there are more."""
        if len(self.rows) <= count:
            return self
        return replace(self, caption=f"{self.caption}, the first {count} of {len(self.rows)}", rows=self.rows[:count])

    def seen(self, *places: Place) -> Table:
        """Return the columns of some places in which something stands, with times in one unit."""
        described = _in_one_unit(list(self.columns), self.rows)
        kept = [
            i
            for i, one in enumerate(described)
            if one.place in places and (i == 0 or not self.rows or any(one.shown(cells[i]) for cells in self.rows))
        ]
        return Table(self.caption, [described[i] for i in kept], [[cells[i] for i in kept] for cells in self.rows])

    def on_page(self) -> Table:
        """Return what HTML and Markdown show."""
        return self.seen("everywhere", "pages")

    def headings(self) -> list[str]:
        """Return the columns' headings with their units."""
        return [one.titled for one in self.columns]

    def texts(self) -> list[list[str]]:
        """Return the cells as they are shown."""
        return [[column.shown(value) for column, value in zip(self.columns, row, strict=True)] for row in self.rows]

    def turned(self) -> Table:
        """Return what a terminal shows with a row for each column, and a column for each row: for few long rows."""
        shown = self.seen("everywhere")
        heads, *rows = zip(shown.headings(), *shown.texts(), strict=True)
        columns = [text(heads[0]), *(Column(name, name, write=str) for name in heads[1:])]
        return Table(self.caption, columns, rows)

    def least_width(self) -> int:
        """Return the letters in a line of which a table has need, with words of headings below each other."""
        widths = []
        for column, *cells in zip(self.columns, *self.texts(), strict=True):
            heading = max(map(len, column.titled.split()), default=0)
            longest = max(map(len, cells), default=0)
            widths.append(max(heading, longest if column.write else min(longest, _NARROWEST)) + 2)
        return sum(widths) - 2

    def listed(self, width: int) -> str:
        """Return what stands in the rows one below the other, for places that are too narrow for columns."""
        blocks = []
        for name, *cells in self.texts():
            known = "; ".join(f"{head} {cell}" for head, cell in zip(self.headings()[1:], cells, strict=True) if cell)
            filled = textwrap.fill(known, width - 4, break_on_hyphens=False)
            blocks += [*textwrap.wrap(name, width), textwrap.indent(filled, "    ")]
        return "\n".join(blocks)

    def __str__(self) -> str:
        """Return all that a terminal shows: a line for each row, numbers at the right edge of their columns."""
        shown = self.seen("everywhere")
        lines = [shown.headings(), *shown.texts()]
        widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
        forms = [f"{'>' if one.write else '<'}{width}" for one, width in zip(shown.columns, widths, strict=True)]
        return "\n".join("  ".join(map(format, line, forms)).rstrip() for line in lines)

    def markdown(self) -> str:
        """Return the table in Markdown; numbers are aligned right."""
        shown = self.on_page()
        columns = shown.columns
        rows = [
            [f"`{cell}`" if one.code and cell else cell for one, cell in zip(columns, line, strict=True)]
            for line in shown.texts()
        ]
        lines = [shown.headings(), ["---:" if one.write else "---" for one in columns], *rows]
        return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)

    def records(self) -> list[dict[str, Any]]:
        """Return a mapping for each row, by the columns' names: what JSON has."""
        names = [one.name for one in self.columns]
        return [dict(zip(names, row, strict=True)) for row in self.rows]

    def to_csv(self, path: Path | str) -> None:
        """Write all columns to a file, numbers as they are; a `FileFormatError` where that cannot be written."""
        with saving(path) as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow([one.name for one in self.columns])
            writer.writerows([_cell(value) for value in row] for row in self.rows)


def _cell(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return "; ".join(map(str, value))
    return "" if isinstance(value, float) and math.isnan(value) else value


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
