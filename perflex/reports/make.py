"""From files to the page: what each file is, and what the report says of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perflex.errors import FileFormatError, PerflexError
from perflex.file_io import saving
from perflex.html import render
from perflex.pictures import svg_text
from perflex.reports import json_files
from perflex.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.progress import Progress
    from perflex.reports.part import Part, Picture

_KNOWN = (
    "a calibration (YAML, or a name of one of perflex), a folder of perflex evaluate, or output of perflex predict "
    "--json, perflex prune --json or perflex roofline --json"
)


def report(paths: Sequence[Path | str], *, progress: Progress | None = None) -> str:
    """Return one HTML page of some files; it needs nothing beside it.

    Parameters
    ----------
    paths
        Calibrations (YAML, or names of those that come with perflex), folders that ``perflex evaluate`` wrote, what
        ``perflex predict --json``, ``perflex prune --json`` and ``perflex roofline --json`` printed.
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
    numbers = count(1)

    def picture(figure: Any, meaning: str) -> str:
        # Identifiers of its own for each picture.
        return svg_text(figure, f"picture-{next(numbers)}-", meaning)

    parts = [_part(Path(path), picture, progress) for path in paths]
    parts = [replace(one, provenance={k: v for _, pairs in one.provenance for k, v in pairs.items()}) for one in parts]
    made = datetime.now(UTC).isoformat(timespec="seconds")
    return render("page.html", parts=parts, version=__version__, made=made)


def write_report(paths: Sequence[Path | str], out: Path, *, progress: Progress | None = None) -> None:
    """Write the page of some files; arguments and errors as `report`.

    Raises
    ------
    FileFormatError
        Besides: the page cannot be written.
    """
    text = report(paths, progress=progress)
    with saving(out) as stream:
        stream.write(text)


def _part(path: Path, picture: Picture, progress: Progress | None) -> Part:
    from perflex.calibration.calibration import calibration_names

    if path.suffix in {".yaml", ".yml"} or (str(path) in calibration_names() and not path.exists()):
        from perflex.reports.calibration_part import calibration_part

        return calibration_part(path, picture, progress)
    if path.is_dir() or (path.is_file() and path.suffix == ".csv"):
        from perflex.reports.evaluation_part import evaluation_part
        from perflex.studies.evaluation.files import FILES

        # A table alone says too little: errors belong beside baselines, which stand in others.
        if path.is_dir() or path.name in FILES:
            return evaluation_part(path if path.is_dir() else path.parent, picture)
    if path.suffix == ".json":
        content = json_files.read_json(path)
        kind = json_files.kind_of(content)
        if kind == json_files.PREDICTION.partition("/")[0]:
            from perflex.reports.prediction_part import prediction_part

            return prediction_part(json_files.predictions_from(content, path), path)
        if kind == json_files.PRUNING.partition("/")[0]:
            from perflex.reports.pruning_part import pruning_part

            return pruning_part(json_files.pruning_from(content, path), path, picture)
        if kind == json_files.ROOFLINE.partition("/")[0]:
            from perflex.reports.roofline_part import roofline_part

            return roofline_part(json_files.roofline_from(content, path), path, picture)
    there = f"{path} is no file that a report can show" if path.exists() else f"there is no file {path}"
    msg = f"{there}; name {_KNOWN}"
    raise FileFormatError(msg, path=path)
