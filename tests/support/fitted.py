"""Calibrations of given tables, without a device."""

from perflex import FitOptions, fit_model
from perflex.calibration.calibrating import calibration_from_table


def fitted(model, table, **options):
    """Return the calibration of a model fitted to a table; options as of `FitOptions`."""
    return calibration_from_table(model, table, fit_model(model, table, FitOptions(**options)))
