"""Text that fits the terminal: lines wrapped at blanks, and tables whose columns wrap or are left out.

A width of None stands for a pipe or a file without a width: there each line and each row stays one line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_GAP = 2
# A column of long texts is at least so wide before other columns are left out.
_LEAST_WRAPPED = 24
# Units stay on the line of their number, and a sign on that of what it belongs to.
_UNIT = r"(?:%|B|[KMGT]i?B|[kMG]?Hz|s|ms|us|ns|min|h|x|[KMGT]i?B/s|B/cycle|GIPS)(?![\w/])"
_TOGETHER = re.compile(rf"(?<=[\d.]) (?={_UNIT})|(?<=[<>=~]) (?=[\d-])|(?<=\d) (?=of \d)|(?<=\d of) (?=\d)")
_KEPT = "\N{NO-BREAK SPACE}"
# What a word that is too long is divided behind: never inside a number.
_PIECES = re.compile(r"[^,/_:;()*=]*[,/_:;()*=]+|[^,/_:;()*=]+")


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes
    ----------
    heading
        Its heading.
    left
        Whether cells begin at the left edge, as words do; numbers end at the right edge.
    wraps
        Whether cells may take several lines: long texts.
    spare
        0 for a column that is always shown; of the others, the one with the lowest number is left out first where
        the terminal is too narrow.
    """

    heading: str
    left: bool = False
    wraps: bool = False
    spare: int = 0


def wrapped(line: str, width: int | None, hang: int = 4) -> list[str]:
    """Return a line as lines of at most `width` characters; those after the first are indented by `hang` more.

    Numbers are never divided; one that is longer than the width stays longer.
    """
    if width is None or len(line) <= width:
        return [line]
    body = line.lstrip(" ")
    start = " " * (len(line) - len(body))
    indent = start + " " * hang
    if len(indent) > width // 2:
        start = indent = ""
    lines, current, fresh = [], start, True
    for word in _TOGETHER.sub(_KEPT, body).split(" "):
        joint = "" if fresh else " "
        pieces = [word]
        if len(indent) + len(word) > width:
            pieces = _PIECES.findall(word) or [word]
        for piece in pieces:
            if fresh or len(current) + len(joint) + len(piece) <= width:
                current += joint + piece
            else:
                lines.append(current)
                current = indent + piece
            joint, fresh = "", False
    return [one.rstrip().replace(_KEPT, " ") for one in [*lines, current]]


def shortened(text: str, width: int | None) -> str:
    """Return a text of at most `width` characters: what is too much is left out of its middle."""
    if width is None or len(text) <= width:
        return text
    front = (width - 3 + 1) // 2
    return f"{text[:front]}...{text[len(text) - (width - 3 - front) :]}"


def fitted_table(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    width: int | None,
    *,
    indent: str = "",
    more: str = "a wider terminal or --json shows them",
) -> list[str]:
    """Return a table as lines of at most `width` characters, and a line that names the columns left out.

    Parameters
    ----------
    columns, rows
        Columns, and the cells of each row.
    more
        What shows the columns that were left out.
    """
    blocks, dropped = table_blocks(columns, rows, width, indent=indent)
    lines = [line for block in blocks for line in block]
    if dropped:
        lines += wrapped(f"{indent}not shown: {', '.join(dropped)} ({more})", width)
    return lines


def table_blocks(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None, *, indent: str = ""
) -> tuple[list[list[str]], list[str]]:
    """Return the lines of the heading and of each row, and the headings of the columns that were left out."""
    room = None if width is None else width - len(indent)
    chosen = _chosen(columns, rows, room)
    shown = [columns[number] for number in chosen]
    cells = [[row[number] for number in chosen] for row in rows]
    widths = _widths(shown, cells, room)
    blocks = [_block([column.heading for column in shown], shown, widths, indent, headings=True)]
    if not any(column.heading for column in shown):
        blocks = [[]]
    blocks += [_block(row, shown, widths, indent) for row in cells]
    return blocks, [column.heading for number, column in enumerate(columns) if number not in chosen and column.heading]


def paged_table(rows: Sequence[Sequence[str]], width: int | None, *, indent: str = "") -> list[str]:
    """Return a table whose first column names quantities; columns that do not fit follow in tables below.

    Parameters
    ----------
    rows
        Cells of each line, headings first.
    """
    if not rows:
        return []
    sizes = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines: list[str] = []
    first = 1
    while first < len(sizes) or not lines:
        last, total = first, len(indent) + sizes[0]
        while last < len(sizes) and (last == first or width is None or total + _GAP + sizes[last] <= width):
            total += _GAP + sizes[last]
            last += 1
        numbers = [0, *range(first, last)]
        columns = [Column(rows[0][number], left=number == 0, wraps=number == 0) for number in numbers]
        lines += [""] if lines else []
        lines += fitted_table(columns, [[row[number] for number in numbers] for row in rows[1:]], width, indent=indent)
        first = max(last, first + 1)
    return lines


def _narrowest(column: Column, cells: Sequence[str]) -> int:
    """Return the least width of a column: of its longest cell, or of a part of its heading; texts wrap."""
    heading = max(map(len, _parts(column.heading)), default=0)
    longest = max(map(len, cells), default=0)
    return max(heading, min(longest, _LEAST_WRAPPED) if column.wraps else longest)


def _parts(text: str) -> list[str]:
    return [piece for word in text.split(" ") for piece in re.findall(r"[^_]+_?|_", word)] or [""]


def _chosen(columns: Sequence[Column], rows: Sequence[Sequence[str]], room: int | None) -> list[int]:
    chosen = list(range(len(columns)))
    if room is None:
        return chosen
    least = [_narrowest(column, [row[number] for row in rows]) for number, column in enumerate(columns)]
    while sum(least[number] + _GAP for number in chosen) - _GAP > room:
        spare = [number for number in chosen if columns[number].spare]
        if not spare:
            break
        chosen.remove(min(spare, key=lambda number: columns[number].spare))
    return chosen


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[str]], room: int | None) -> list[int]:
    cells = [[row[number] for row in rows] for number in range(len(columns))]
    widths = [max(map(len, [column.heading, *own])) for column, own in zip(columns, cells, strict=True)]
    if room is None:
        return widths
    # Headings give way first, then the longest texts.
    least = [_narrowest(column, own) for column, own in zip(columns, cells, strict=True)]
    left = room - _GAP * (len(columns) - 1)
    for number in sorted(range(len(columns)), key=lambda number: widths[number] - least[number]):
        if sum(widths) <= left:
            break
        if not columns[number].wraps:
            widths[number] = max(least[number], widths[number] - (sum(widths) - left))
    for number in sorted(range(len(columns)), key=lambda number: -widths[number]):
        if columns[number].wraps and sum(widths) > left:
            widths[number] = max(least[number], widths[number] - (sum(widths) - left))
    # Nothing else is left to give: texts become as narrow as their place.
    for number in sorted(range(len(columns)), key=lambda number: -widths[number]):
        if columns[number].wraps and sum(widths) > left:
            widths[number] = max(_LEAST_WRAPPED // 2, widths[number] - (sum(widths) - left))
    return widths


def _block(
    cells: Sequence[str], columns: Sequence[Column], widths: Sequence[int], indent: str, *, headings: bool = False
) -> list[str]:
    parts = [
        _heading_lines(cell, size)
        if headings
        else wrapped(cell, size, hang=1 if column.left else 0)
        if column.wraps
        else [cell]
        for cell, column, size in zip(cells, columns, widths, strict=True)
    ]
    tall = max(map(len, parts))
    lines = []
    for number in range(tall):
        line = []
        for part, column, size in zip(parts, columns, widths, strict=True):
            # Headings stand on the line above the cells, cells on the first line of their row.
            at = number - (tall - len(part)) if headings else number
            text = part[at] if 0 <= at < len(part) else ""
            line.append(text.ljust(size) if column.left else text.rjust(size))
        lines.append((indent + (" " * _GAP).join(line)).rstrip())
    return lines


def _heading_lines(text: str, width: int) -> list[str]:
    lines = [""]
    for number, word in enumerate(text.split(" ")):
        for place, piece in enumerate(_parts(word)):
            joint = " " if number and not place else ""
            if lines[-1] and len(lines[-1]) + len(joint) + len(piece) > width:
                lines.append(piece)
            else:
                lines[-1] += joint + piece
    return lines
