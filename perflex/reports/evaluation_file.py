"""The files of an evaluation: the tables that ``perflex evaluate`` writes into a folder."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perflex.csv_file import csv_rows
from perflex.errors import FileFormatError
from perflex.file_io import read_text
from perflex.studies.evaluation.files import CHOICES, DEVICES, PARAMETERS, POINTS, SKIPPED, SUMMARY

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

TABLES = {
    "summary.csv": SUMMARY,
    "points.csv": POINTS,
    "choices.csv": CHOICES,
    "parameters.csv": PARAMETERS,
    "skipped.csv": SKIPPED,
    "devices.csv": DEVICES,
}
# Columns whose cells must be positive finite numbers.
_NEEDED = {"size", "predicted_s", "measured_s"}
# Columns whose cells are numbers, or empty.
_NUMBERS = {
    *SUMMARY[7:], *CHOICES[4:10], *CHOICES[13:17], *POINTS[7:12], *PARAMETERS[7:9], "size", "value", "drift", "seconds",
} - {"unit"}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """A row of a table: its texts by column."""

    path: Path
    line: int
    cells: dict[str, str]

    def text(self, column: str) -> str:
        """Return what stands in a column."""
        return self.cells[column]

    def number(self, column: str) -> float:
        """Return the number in a column; nan where it is empty."""
        return float(self.cells[column]) if self.cells[column] else math.nan

    def holds(self, column: str) -> bool | None:
        """Return what a column of True and False says; None where it is empty."""
        return {"True": True, "False": False}.get(self.cells[column])


@dataclass(frozen=True)
class EvaluationFile:
    """An evaluation; a tuple of rows for each of `TABLES`."""

    folder: Path
    summary: tuple[Row, ...]
    points: tuple[Row, ...]
    choices: tuple[Row, ...]
    parameters: tuple[Row, ...]
    skipped: tuple[Row, ...]
    devices: tuple[Row, ...]


def is_evaluation_table(path: Path) -> bool:
    """Return whether a file is called like one of an evaluation's tables."""
    return path.name in TABLES


def read_evaluation(folder: Path) -> EvaluationFile:
    """Return the evaluation in a folder.

    Raises
    ------
    FileFormatError
        A table is missing, damaged or of another version.
    """
    missing = [name for name in TABLES if not (folder / name).is_file()]
    if missing:
        known = "it is no folder of perflex evaluate" if len(missing) == len(TABLES) else "make it again"
        msg = f"{folder} has no {missing[0]}, which perflex evaluate writes; {known}"
        raise FileFormatError(msg, path=folder)
    file = EvaluationFile(folder, *(_read(folder / name, columns) for name, columns in TABLES.items()))
    _require_whole(file)
    return file


def _require_whole(file: EvaluationFile) -> None:
    """Make sure that each study has one choice, and that choice, summary and points are of the same models."""
    seen = set()
    summary = {tuple(map(row.text, ("device", "study", "variant", "model"))) for row in file.summary}
    points = {tuple(map(row.text, ("device", "study", "variant", "model"))) for row in file.points}
    for row in file.choices:
        study = row.text("device"), row.text("study")
        used = {key for key in points if key[:2] == study and key[3] == row.text("used")}
        if study in seen or not used or not used <= summary:
            msg = f"{row.path}, line {row.line}: {study[1]} does not fit the other tables; the folder is damaged"
            raise FileFormatError(msg, path=row.path, line=row.line, field="study")
        seen.add(study)


def _read(path: Path, columns: Sequence[str]) -> tuple[Row, ...]:
    text = read_text(path)
    heading = next(csv.reader(io.StringIO(text)), [])
    missing = [name for name in columns if name not in heading]
    if missing:
        msg = f"{path} has no column {missing[0]!r}; it is damaged or of an earlier version, evaluate again"
        raise FileFormatError(msg, path=path, field=missing[0])
    unknown = [name for name in heading if name not in columns]
    if unknown:
        msg = f"{path} has an unknown column {unknown[0]!r}; it is of a newer version, update perflex to read it"
        raise FileFormatError(msg, path=path, field=unknown[0])
    # A heading alone: nothing was skipped, say.
    if not text.partition("\n")[2].strip():
        return ()
    rows = tuple(Row(path, line, cells) for line, cells in csv_rows(text, path))
    for row in rows:
        for name in row.cells:
            if name in _NUMBERS:
                _require_number(row, name)
    return rows


def _require_number(row: Row, column: str) -> None:
    try:
        number = row.number(column)
        wrong = column in _NEEDED and not 0 < number < math.inf
    except ValueError:
        wrong = True
    if wrong:
        msg = f"{row.path}, line {row.line}: {row.text(column)!r} is no number for {column}; the file is damaged"
        raise FileFormatError(msg, path=row.path, line=row.line, field=column)
