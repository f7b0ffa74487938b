"""Writing the times that a calibration rests on, for another machine or laboratory."""

from __future__ import annotations

import csv
import math
from typing import TYPE_CHECKING

from perflex.errors import CalibrationError, FileFormatError
from perflex.file_io import writing

if TYPE_CHECKING:
    from pathlib import Path

    from perflex.calibration.record import CalibrationRecord

_COLUMNS = ("kernel", "seconds", "spread", "repeatability", "device")
# Written where the model has a cost of host code: else the rows do not tell.
_BY_HOST = "f_host_launch"


def save_times(calibration: CalibrationRecord, path: Path | str) -> int:
    """Write the measured times of a calibration to a CSV file that `load_times` reads; return the number of rows.

    Parameters
    ----------
    calibration
        A calibration that keeps its rows, as all but those of early versions do. Kernels stand there by their labels:
        those of generators are known everywhere, of others the reader needs functions of these names.
    path
        The file, replaced in one step.

    Raises
    ------
    CalibrationError
        The calibration keeps no rows.
    FileFormatError
        The file cannot be written.
    """
    table = calibration.table
    if table is None or table.output is None:
        msg = "the calibration keeps no measured times, as those of early versions; calibrate again"
        raise CalibrationError(msg)
    nothing = [math.nan] * len(table)
    spread, repeated = (nothing if one is None else one.tolist() for one in (table.spread, table.repeatability))
    rows = zip(table.kernels, table.column(table.output).tolist(), spread, repeated, strict=True)
    hosted = (table.column(_BY_HOST) > 0).tolist() if _BY_HOST in table.features else []
    device = str(calibration.device.get("name", ""))
    try:
        with writing(path) as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow([*_COLUMNS, *(["host_code"] if hosted else [])])
            for place, (kernel, *numbers) in enumerate(rows):
                # repr, the shortest text of the same number, is what the csv module writes of one.
                cells = ["" if math.isnan(number) else number for number in numbers]
                writer.writerow([kernel, *cells, device, *hosted[place : place + 1]])
    except (OSError, ValueError) as error:
        msg = f"cannot write {path}: {getattr(error, 'strerror', None) or error}"
        raise FileFormatError(msg, path=path) from error
    return len(table)
