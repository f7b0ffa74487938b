"""The line of a calibration's noise floor."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perflex.calibration.calibration import Calibration


def noise_floor_lines(calibration: Calibration) -> list[str]:
    """Return the line that tells the noise floor and what it is; none where it is not known."""
    from perflex.calibration.acceptance import median_repeatability

    if calibration.noise_floor is None:
        return []
    meaning = "by how much a kernel's time differs between measurements"
    if calibration.table is None or median_repeatability(calibration.table) is None:
        meaning = "median spread of single timings; there are too few to know the repeatability"
    return [f"noise floor: {100 * calibration.noise_floor:.1f} % ({meaning})"]
