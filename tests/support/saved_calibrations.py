"""Shipped calibrations as this version writes them, for tests that read a file of their own."""

import tempfile
from functools import cache
from pathlib import Path

from perflex import Calibration


@cache
def saved_text(name):
    """Return the file of a shipped calibration; reading and writing it takes as long as some commands do."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "calibration.yaml")
        Calibration.load(name).save(path)
        return path.read_text(encoding="utf-8")
