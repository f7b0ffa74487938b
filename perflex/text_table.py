"""Columns of text, aligned: the tables of the command line and of printed results."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Sequence


def table_lines(rows: Sequence[Sequence[str]], *, left: Container[int] = (0,), indent: str = "") -> list[str]:
    """Return the lines of a table, columns two blanks apart.

    Parameters
    ----------
    rows
        Cells of each line, all of the same number; headings are a line like the others.
    left
        Numbers of the columns that begin at their left edge, as words do; the others end at their right edge, as
        numbers do.
    indent
        Blanks before each line.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        pairs = zip(row, widths, strict=True)
        cells = [cell.ljust(width) if i in left else cell.rjust(width) for i, (cell, width) in enumerate(pairs)]
        lines.append((indent + "  ".join(cells)).rstrip())
    return lines
