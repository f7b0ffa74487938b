"""Calibrations of given tables, without a device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perflex import FitOptions, fit_model
from perflex.calibration.calibrating import calibration_from_table

if TYPE_CHECKING:
    from perflex import Calibration, FeatureTable, Model


def fitted(model: Model, table: FeatureTable, **options: Any) -> Calibration:
    """Return the calibration of a model fitted to a table; options as of `FitOptions`."""
    return calibration_from_table(model, table, fit_model(model, table, FitOptions(**options)))
