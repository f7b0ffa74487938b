"""What a calibration predicts for variants: what ranking, pruning and tuning order them by."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perflex.calibration.interval import interval_at
from perflex.calibration.row_predictions import known_as
from perflex.search.spaces.extraction import ExtractedSpace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from perflex.calibration.calibration import Calibration
    from perflex.search.spaces.candidates import Candidates


def known_variants(calibration: Calibration, found: Candidates) -> list[tuple[str, str]]:
    """Return label and program by which other devices know each variant; none but for a transferred calibration.

    Variants of a space are known by no label: tables of times name functions, not settings.
    """
    if calibration.transferred is None:
        return []
    if isinstance(found, ExtractedSpace):
        return [("", "")] * len(found)
    return [
        known_as(calibration, kernel, sizes, name.rpartition(":")[2])[0]
        for name, kernel, sizes in zip(found.names, found.kernels, found.sizes, strict=True)
    ]


def predicted_variants(
    calibration: Calibration, found: Candidates, columns: Mapping[str, NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Return the predicted times in s, shape ``(len(found),)``, as `Calibration.predict` has them.

    Parameters
    ----------
    calibration
        The calibration.
    found, columns
        The variants, and a column per input feature.

    Raises
    ------
    MissingExtraError
        What was learned of residuals is used, and scikit-learn is not installed.
    """
    if calibration.transferred is None:
        return np.broadcast_to(calibration.evaluate(columns), (len(found),))
    predicted = interval_at(calibration, columns, kernels=known_variants(calibration, found)).predicted
    return np.broadcast_to(np.asarray(predicted), (len(found),))
