"""From files to the page: what each file is, and what the report says of it."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from perflex.errors import FileFormatError, PerflexError
from perflex.file_io import writing
from perflex.reports import pruning_file, roofline_file
from perflex.reports.json_file import read_json, schema_of
from perflex.reports.page import Part, page
from perflex.reports.pictures import Pictures

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.progress import Progress

_KNOWN = (
    "a calibration (YAML), a folder of perflex evaluate, or output of perflex prune --json or perflex roofline --json"
)


def report(paths: Sequence[Path | str], *, progress: Progress | None = None) -> str:
    """Return one HTML page of some files; it needs nothing beside it.

    Parameters
    ----------
    paths
        Calibrations (YAML), folders that ``perflex evaluate`` wrote, what ``perflex prune --json`` and ``perflex
        roofline --json`` printed.
    progress
        Called with (done, total, what) while a calibration is diagnosed.

    Raises
    ------
    FileFormatError
        A file is none of these, damaged, or of another version.
    CalibrationError
        The parts of a calibration do not belong together.
    PerflexError
        There is no file.
    """
    if not paths:
        msg = f"there is nothing to report; name {_KNOWN}"
        raise PerflexError(msg)
    pictures = Pictures(count(1))
    return page([_part(Path(path), pictures, progress) for path in paths])


def write_report(paths: Sequence[Path | str], out: Path, *, progress: Progress | None = None) -> None:
    """Write the page of some files; arguments and errors as `report`.

    Raises
    ------
    FileFormatError
        Besides: the page cannot be written.
    """
    text = report(paths, progress=progress)
    try:
        with writing(out) as stream:
            stream.write(text)
    except OSError as error:
        msg = f"cannot write {out}: {error.strerror or error}; name another file"
        raise FileFormatError(msg, path=out) from error


def _part(path: Path, pictures: Pictures, progress: Progress | None) -> Part:
    if path.is_dir() or path.suffix == ".csv":
        return _evaluation(path, pictures)
    if path.suffix == ".json":
        return _from_json(path, pictures)
    if path.suffix in {".yaml", ".yml"}:
        from perflex.calibration.calibration import Calibration
        from perflex.reports.calibration_part import calibration_part

        return calibration_part(Calibration.load(path), path, pictures, progress)
    raise _unknown(path)


def _unknown(path: Path) -> FileFormatError:
    there = f"{path} is no file that a report can show" if path.exists() else f"there is no file {path}"
    msg = f"{there}; name {_KNOWN}"
    return FileFormatError(msg, path=path)


def _evaluation(path: Path, pictures: Pictures) -> Part:
    from perflex.reports.evaluation_file import is_evaluation_table, read_evaluation
    from perflex.reports.evaluation_part import evaluation_part

    if path.is_dir():
        return evaluation_part(read_evaluation(path), pictures)
    # A table alone says too little: errors belong beside baselines, which stand in others.
    if path.is_file() and is_evaluation_table(path):
        return evaluation_part(read_evaluation(path.parent), pictures)
    raise _unknown(path)


def _from_json(path: Path, pictures: Pictures) -> Part:
    content = read_json(path)
    name = schema_of(content).partition("/")[0]
    if name == pruning_file.FORMAT.partition("/")[0]:
        from perflex.reports.pruning_part import pruning_part

        return pruning_part(pruning_file.pruning_from(content, path), path, pictures)
    if name == roofline_file.FORMAT.partition("/")[0]:
        from perflex.reports.roofline_part import roofline_part

        return roofline_part(roofline_file.roofline_from(content, path), path, pictures)
    raise _unknown(path)
