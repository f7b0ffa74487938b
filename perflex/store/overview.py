"""Writing the measurement store out as CSV or JSON lines."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING, TextIO

from perflex.store.reading import COLUMNS, all_rows

if TYPE_CHECKING:
    from perflex.store.samples import MeasurementStore

__all__ = ["write_rows"]


def write_rows(store: MeasurementStore, stream: TextIO, *, as_json: bool) -> int:
    """Write every sample and failure, a line each, and return how many there are.

    CSV has the names of the columns in its first line, and sizes as JSON.

    Raises
    ------
    StoreError
        The file cannot be read.
    OSError
        The stream takes no more.
    """
    count = 0
    if as_json:
        for row in all_rows(store):
            stream.write(json.dumps({name: value for name, value in row.items() if value is not None}) + "\n")
            count += 1
        return count
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in all_rows(store):
        writer.writerow([json.dumps(value) if isinstance(value, dict) else value for value in row.values()])
        count += 1
    return count
