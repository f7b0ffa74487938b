"""A space of described configurations on one device, with the columns that predictions are made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.errors import CalibrationError
from perflex.search.described.analytic import AnalyticFit, fit_analytic
from perflex.search.described.platform import platform_of
from perflex.search.spaces.building import settings_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from perflex.machines.machine import Machine
    from perflex.search.described.description import Description


class _OnDemand(Sequence[Any]):
    """What a function gives for each number: spaces have 100,000 configurations, of which few are looked at."""

    def __init__(self, item: Callable[[int], Any], length: int) -> None:
        self._item = item
        self._numbers = range(length)

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, place: Any) -> Any:
        return self._item(self._numbers[place])


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
    """Configurations of a described kernel for one device, with the times that are known of them.

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
    times
        Measured times in milliseconds, shape ``(n,)``; nan where a configuration was not measured or failed. None
        where nothing was measured.
    excluded
        How many rows of a file were left out or joined with others, by cause.
    """

    description: Description
    settings: Mapping[str, NDArray[np.float64]]
    device: str = ""
    machine: Machine | None = None
    times: NDArray[np.float64] | None = None
    excluded: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return the number of configurations."""
        return len(next(iter(self.settings.values())))

    @property
    def names(self) -> Sequence[str]:
        """The configurations' names, such as ``block_size_x=32, tile_size_x=2``."""
        return _OnDemand(lambda number: settings_text(self.configuration(number)), len(self))

    def configuration(self, number: int) -> dict[str, float]:
        """Return the settings of one configuration; whole numbers as such."""
        values = {name: float(column[number]) for name, column in self.settings.items()}
        return {name: int(value) if value.is_integer() else value for name, value in values.items()}

    @property
    def configurations(self) -> Sequence[dict[str, float]]:
        """Settings of each configuration."""
        return _OnDemand(self.configuration, len(self))

    @cached_property
    def known(self) -> NDArray[np.float64]:
        """Times in milliseconds, shape ``(n,)``; nan where none is known."""
        return np.full(len(self), np.nan) if self.times is None else np.asarray(self.times, dtype=np.float64)

    def kernel(self, number: int) -> Any:
        """Refuse to build a kernel, as other spaces do.

        Raises
        ------
        CalibrationError
            Always: the kernel is described by formulas, and was never perflex's to build.
        """
        msg = f"{self.description.name} is described by formulas; build it yourself from the settings"
        raise CalibrationError(msg, variant=self.names[number])

    def sample(self, count: int, seed: int = 0) -> NDArray[np.intp]:
        """Return so many of the measured configurations, drawn by chance, in their order: a batch to predict from.

        Raises
        ------
        CalibrationError
            The number is no whole one, or so many were not measured.
        """
        there = np.flatnonzero(np.isfinite(self.known))
        given: object = count
        whole = isinstance(given, (int, np.integer)) and not isinstance(given, bool)
        if not whole or not 1 <= count <= len(there):
            msg = (
                f"{count!r} samples cannot be drawn from {len(there)} measured configurations; "
                f"ask for 1 to {len(there)}"
            )
            raise CalibrationError(msg, samples=count)
        return np.sort(np.random.default_rng(seed).choice(there, count, replace=False))

    def complete(self) -> DescribedSpace:
        """Return all configurations that the description allows, one per kernel, with the times that are known here.

        Where this space has values that the description does not list, or several problem sizes, it is returned as it
        is: its own configurations are all that is known of it.

        Raises
        ------
        FileFormatError
            As `Description.space`.
        """
        family, every = self.description, self.description.space()
        stated = {name: column for name, column in self.settings.items() if name in family.constants}
        if any(np.ptp(column) > 0 for column in stated.values()):
            return self
        every |= {name: np.full(len(next(iter(every.values()))), column[0]) for name, column in stated.items()}
        seen = np.column_stack(list(family.kernels(self.settings).values()))
        rows, first = np.unique(np.column_stack(list(family.kernels(every).values())), axis=0, return_index=True)
        times = dict(zip(map(tuple, seen.tolist()), self.known.tolist(), strict=True))
        # Taken out as they are found: what is left was measured, but the description does not allow it.
        known = np.array([times.pop(tuple(row), np.nan) for row in rows.tolist()])
        if times:
            return self
        return replace(self, settings={name: column[first] for name, column in every.items()}, times=known)

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
        # All readings have the same parameters and priors, so their costs compare as log posteriors do.
        reading = min(range(len(fits)), key=lambda number: fits[number].cost)
        predicted = fits[reading].predict(self.readings[reading])
        wrong = np.flatnonzero(~(np.isfinite(predicted) & (predicted > 0)))
        if wrong.size:
            where = ", ".join(f"{name}={self.settings[name][wrong[0]]:g}" for name in self.description.tunables)
            msg = (
                f"the model of description {self.description.name!r} gives the time {predicted[wrong[0]]:g} for "
                f"{where}; correct it so that every time is positive"
            )
            raise CalibrationError(msg, description=self.description.name)
        return ReadingFit(fits[reading], reading, predicted)


def _even(column: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a column on an even scale: its logarithm where positive, else nearly so above its usual size."""
    if (column > 0).all():
        return np.log(column)
    sizes = np.abs(column[column != 0])
    # Linear near 0, logarithmic far from it, for either sign.
    return np.arcsinh(column / np.median(sizes)) if sizes.size else column
