"""A space of described configurations on one device, with the columns that predictions are made from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from perflex.errors import CalibrationError
from perflex.search.described.analytic import AnalyticFit, fit_analytic
from perflex.search.described.platform import platform_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from perflex.machines.machine import Machine
    from perflex.search.described.description import Description

__all__ = ["DescribedSpace", "ReadingFit"]


@dataclass(frozen=True)
class ReadingFit:
    """The analytic model under the reading of the description that the measurements favour.

    Attributes
    ----------
    fit
        The fitted model.
    reading
        0 for the description as it stands, else the alternative, counted from 1.
    predicted
        Time of every configuration of the space, in the unit of the measured times.
    """

    fit: AnalyticFit
    reading: int
    predicted: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class DescribedSpace:
    """Configurations of a described kernel for one device.

    Attributes
    ----------
    description
        The family of kernels.
    settings
        Columns of the tunables (and of constants that the space states), shape ``(n,)`` each.
    device
        Name of the device; one that no machine file knows is taken for a usual GPU of its maker.
    machine
        Facts of the device, if it is to be another machine than the name finds.
    """

    description: Description
    settings: Mapping[str, NDArray[np.float64]]
    device: str = ""
    machine: Machine | None = None

    def __len__(self) -> int:
        """Return the number of configurations."""
        return len(next(iter(self.settings.values())))

    @cached_property
    def platform(self) -> dict[str, float]:
        """Facts of the device that formulas use."""
        return platform_of(self.device, self.machine)

    @cached_property
    def readings(self) -> tuple[dict[str, NDArray[np.float64]], ...]:
        """Features of every configuration, under the description as it stands and under each alternative."""
        whole = range(len(self.description.alternatives))
        return tuple(
            self.description.compute(self.settings, self.platform, alternative) for alternative in (None, *whole)
        )

    def inputs(self, reading: int) -> NDArray[np.float64]:
        """Return features and tunables as a learned correction sees them, shape ``(n, columns)``; scales are even."""
        features = list(self.readings[reading].values())
        tunables = [np.asarray(self.settings[name], dtype=np.float64) for name in self.description.tunables]
        columns = [_even(column) for column in (*features, *tunables)]
        return np.column_stack([column for column in columns if np.ptp(column) > 0])

    def expected(self) -> NDArray[np.float64]:
        """Return the time of every configuration by the analytic model before any measurement, shape ``(n,)``."""
        priors = {name: parameter.prior for name, parameter in self.description.parameters.items()}
        return AnalyticFit(self.description, priors, np.nan, np.nan).predict(self.readings[0])

    def fit_analytic(self, index: NDArray[np.intp], times: NDArray[np.float64]) -> ReadingFit:
        """Fit the analytic model to measured configurations, under whichever reading makes them most probable.

        Parameters
        ----------
        index
            Which configurations were measured, shape ``(m,)``.
        times
            Their times, shape ``(m,)``, any unit.

        Raises
        ------
        CalibrationError
            As `fit_analytic`, or the fitted model gives a time that is not positive for some configuration.
        """
        fits = [
            fit_analytic(self.description, {name: column[index] for name, column in features.items()}, times)
            for features in self.readings
        ]
        reading = min(range(len(fits)), key=lambda number: fits[number].cost)
        predicted = fits[reading].predict(self.readings[reading])
        wrong = np.flatnonzero(~(np.isfinite(predicted) & (predicted > 0)))
        if wrong.size:
            where = ", ".join(f"{name}={self.settings[name][wrong[0]]:g}" for name in self.description.tunables)
            msg = (
                f"the model of description {self.description.name!r} gives the time {predicted[wrong[0]]:g} for "
                f"{where}; mend it so that every time is positive"
            )
            raise CalibrationError(msg, description=self.description.name)
        return ReadingFit(fits[reading], reading, predicted)


def _even(column: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a column on an even scale: its logarithm where positive, else nearly so above its usual size."""
    if (column > 0).all():
        return np.log(column)
    sizes = np.abs(column[column != 0])
    return np.arcsinh(column / np.median(sizes)) if sizes.size else column
