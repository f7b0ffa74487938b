"""Files of results: each row is on disk as soon as it is known."""

from __future__ import annotations

import csv
import math
import os
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

__all__ = ["rows_kept", "set_earlier_aside", "write_text", "write_yaml_file"]


@contextmanager
def rows_kept(path: Path, columns: Sequence[str]) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Write a CSV file row by row.

    Yields
    ------
    Callable
        To be called with a mapping from columns to values; what is missing, None or not a number stays empty.
    """
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")

        def write(row: Sequence[Any]) -> None:
            writer.writerow(row)
            stream.flush()

        write(columns)

        def keep(values: Mapping[str, Any]) -> None:
            unknown = sorted(values.keys() - set(columns))
            if unknown:
                msg = f"{path.name} has no column {', '.join(unknown)}"
                raise ValueError(msg)
            write([_cell(values.get(column)) for column in columns])

        yield keep


def _cell(value: Any) -> Any:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return f"{value:.6g}" if isinstance(value, float) else value


def set_earlier_aside(path: Path) -> None:
    """Rename a file of an earlier run, ``report.md`` to ``report-1.md``, or the next number that is free."""
    if not path.exists():
        return
    taken = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in count(1))
    path.rename(next(name for name in taken if not name.exists()))


def write_text(path: Path, text: str) -> Path:
    """Write a file that others see whole or not at all."""
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(text, encoding="utf-8")
    os.replace(beside, path)  # noqa: PTH105 - the same, and it says what it does
    return path


def write_yaml_file(path: Path, content: Mapping[str, Any]) -> Path:
    """Write a mapping of plain values as YAML."""
    return write_text(path, yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True))
