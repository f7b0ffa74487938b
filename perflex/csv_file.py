"""Tables in CSV files: rows by column name, each with its line."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from perflex.errors import FileFormatError

if TYPE_CHECKING:
    from pathlib import Path


def csv_rows(text: str, path: Path) -> list[tuple[int, dict[str, str]]]:
    """Return the rows below the heading of a table, each as the number of its last line and its texts by column.

    Columns without a name are left out: programs write the numbers of rows into such.

    Parameters
    ----------
    text
        The table: columns separated by commas, names in the first line.
    path
        Its file, for messages.

    Raises
    ------
    FileFormatError
        It is no CSV, has no rows or two columns of one name, or a row has more or fewer fields than the heading; names
        the line.
    """
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    rows = []
    try:
        names = [name for name in reader.fieldnames or () if name]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            msg = f"{path} has two columns {twice!r}; rename one of them"
            raise FileFormatError(msg, path=path, field=twice)
        for row in reader:
            # DictReader keeps surplus fields under the key None, and gives missing ones the value None.
            if None in row or None in row.values():
                msg = f"{path}, line {reader.line_num}: it has another number of fields than the heading"
                raise FileFormatError(msg, path=path, line=reader.line_num)
            rows.append((reader.line_num, {name: row[name] for name in names}))
    except csv.Error as error:
        msg = f"{path}, line {reader.line_num}: it is no row of a CSV file: {error}"
        raise FileFormatError(msg, path=path, line=reader.line_num) from error
    if not rows:
        msg = f"{path} has no rows below a heading"
        raise FileFormatError(msg, path=path)
    return rows
