"""Calibrations that come with perflex."""

from __future__ import annotations

from importlib.resources import as_file, files
from pathlib import Path

from perflex.calibration.calibration import Calibration
from perflex.errors import FileFormatError

_HOME = "perflex.calib_data"
_SUFFIX = ".yaml"


def calibration_names() -> list[str]:
    """Return the names of the calibrations that come with perflex, sorted."""
    folder = files(_HOME) / "calibrations"
    return sorted(Path(entry.name).stem for entry in folder.iterdir() if entry.name.endswith(_SUFFIX))


def load_calibration(name: str) -> Calibration:
    """Return a calibration that comes with perflex.

    Raises
    ------
    FileFormatError
        There is none of that name; the message lists those there are.
    """
    if name not in calibration_names():
        msg = f"no calibration is called {name!r}; there are {', '.join(calibration_names())}"
        raise FileFormatError(msg, path=name)
    # The package may lie in a zip archive, from which as_file unpacks the file for as long as it is read.
    with as_file(files(_HOME) / "calibrations" / f"{name}{_SUFFIX}") as path:
        return Calibration.load(path)
