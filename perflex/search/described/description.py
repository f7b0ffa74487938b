"""Descriptions: a family of kernels that loopy never saw, as tunables, constraints and formulas of its features."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.errors import FileFormatError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from perflex.search.formula import Formula

# Columns of this length fill a few gigabytes.
_MOST_COMBINATIONS = 20_000_000


@dataclass(frozen=True)
class Tunable:
    """A tunable: its meaning, the values it may have, and what makes it meaningless.

    Attributes
    ----------
    meaning
        What it is.
    values
        Allowed values, ascending.
    dead
        Condition under which it changes nothing: settings that differ only in it are one kernel.
    """

    meaning: str
    values: tuple[float, ...]
    dead: Formula | None = None


@dataclass(frozen=True)
class Parameter:
    """A parameter of the analytic model, positive, with what is known before any measurement.

    Attributes
    ----------
    meaning
        What it is.
    unit
        Its unit.
    prior
        Its value before any measurement.
    spread
        How far it may be from it: standard deviation of its natural logarithm.
    """

    meaning: str
    unit: str
    prior: float
    spread: float


@dataclass(frozen=True)
class Description:
    """A family of kernels as formulas over its tunables.

    Attributes
    ----------
    name, text
        The family's name and what it computes.
    aliases
        Other names of the family, e.g. in collections of measurements.
    tunables, constants
        What is chosen; and numbers of the problem, which a space may state otherwise.
    constraints
        Conditions that every configuration fulfils.
    features
        Formulas by name, in order: each may use tunables, constants, facts of the device (``m_...``) and
        features before it. Those whose name begins with ``f_`` are features; others are parts of them.
    model
        The analytic model's expression for the time, in the unit of the parameter of time.
    parameters
        The model's parameters.
    alternatives
        Settings that some builds of the kernel ignore: each is a reading of the description in which they have the
        given values whatever is chosen. Measurements decide.
    switches
        Tunables and features that make different code of the kernel: a compiler may do better or worse than the model
        expects on all configurations that have them in common.
    """

    name: str
    text: str
    aliases: tuple[str, ...]
    tunables: Mapping[str, Tunable]
    constants: Mapping[str, float]
    constraints: tuple[Formula, ...]
    features: Mapping[str, Formula]
    model: str
    parameters: Mapping[str, Parameter]
    alternatives: tuple[Mapping[str, float], ...] = ()
    switches: tuple[str, ...] = ()
    path: Path | None = field(default=None, compare=False)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features, in the order of the description."""
        return tuple(name for name in self.features if name.startswith("f_"))

    def columns(self, settings: Mapping[str, Any]) -> dict[str, NDArray[np.float64]]:
        """Return tunables and constants as columns of one length, from columns or single numbers.

        Raises
        ------
        FileFormatError
            A tunable has no value, or one that is no number.
        """
        missing = [name for name in self.tunables if name not in settings]
        if missing:
            msg = f"the settings lack {', '.join(missing)}, which description {self.name!r} needs; add the column"
            raise FileFormatError(msg, description=self.name, field=missing[0])
        found = {
            **self.constants,
            **{name: settings[name] for name in (*self.tunables, *self.constants) if name in settings},
        }
        try:
            arrays = {name: np.atleast_1d(np.asarray(value, dtype=np.float64)) for name, value in found.items()}
            broadcast = np.broadcast_arrays(*arrays.values())
        except (TypeError, ValueError) as error:
            msg = f"the settings of description {self.name!r} are no columns of numbers of one length: {error}"
            raise FileFormatError(msg, description=self.name) from error
        # Broadcast numbers are views with stride 0, whose rows share one element: a copy gives each row its own.
        return dict(zip(arrays, (np.ascontiguousarray(column) for column in broadcast), strict=True))

    def kernels(self, settings: Mapping[str, Any]) -> dict[str, NDArray[np.float64]]:
        """Return the tunables with every meaningless one at its smallest value: equal rows are one kernel."""
        columns = self.columns(settings)
        made = {name: columns[name] for name in self.tunables}
        for name, tunable in self.tunables.items():
            if tunable.dead is not None:
                made[name] = np.where(tunable.dead(columns) != 0, min(tunable.values), columns[name])
        return made

    def valid(self, settings: Mapping[str, Any]) -> NDArray[np.bool_]:
        """Return which configurations fulfil all constraints."""
        columns = self.columns(settings)
        rows = len(next(iter(columns.values())))
        holds = np.ones(rows, dtype=np.bool_)
        for constraint in self.constraints:
            value = np.broadcast_to(constraint(columns), rows)
            # nan (of 0 / 0, for instance) differs from 0, and would pass for fulfilled.
            holds &= (value != 0) & ~np.isnan(value)
        return holds

    def space(self) -> dict[str, NDArray[np.float64]]:
        """Return all configurations: every allowed combination of values that fulfils the constraints.

        Raises
        ------
        FileFormatError
            The constraints leave none, or there are too many combinations to go through.
        """
        combinations = math.prod(len(tunable.values) for tunable in self.tunables.values())
        if combinations > _MOST_COMBINATIONS:
            msg = (
                f"the tunables of description {self.name!r} have {combinations} combinations, more than "
                f"{_MOST_COMBINATIONS}; list fewer values, or draw samples from the space's own configurations"
            )
            raise FileFormatError(msg, description=self.name)
        axes = np.meshgrid(*(np.array(tunable.values) for tunable in self.tunables.values()), indexing="ij")
        every = dict(zip(self.tunables, (axis.ravel() for axis in axes), strict=True))
        holds = self.valid(every)
        if not holds.any():
            msg = f"the constraints of description {self.name!r} contradict each other: no configuration is left"
            raise FileFormatError(msg, description=self.name)
        return {name: column[holds] for name, column in every.items()}

    def compute(
        self, settings: Mapping[str, Any], platform: Mapping[str, float], alternative: int | None = None
    ) -> dict[str, NDArray[np.float64]]:
        """Return every feature of every configuration.

        Parameters
        ----------
        settings
            Columns of the tunables, shape ``(n,)`` each.
        platform
            Facts of the device, see `perflex.search.described.platform`.
        alternative
            Index of the alternative reading to use; None for the description as it stands.

        Raises
        ------
        FileFormatError
            A feature is not finite for some configuration.
        """
        ignored = self.alternatives[alternative] if alternative is not None else {}
        known: dict[str, Any] = {**platform, **self.columns({**settings, **ignored})}
        rows = len(known[next(iter(self.tunables))])
        for name, formula in self.features.items():
            known[name] = np.broadcast_to(formula(known), rows)
        found = {name: np.array(known[name]) for name in self.feature_names}
        for name, column in found.items():
            bad = ~np.isfinite(column)
            if bad.any():
                first = int(np.argmax(bad))
                where = ", ".join(f"{key}={known[key][first]:g}" for key in self.tunables)
                msg = (
                    f"feature {name} of description {self.name!r} is no finite number for {where}; correct its formula"
                )
                raise FileFormatError(msg, description=self.name, field=name)
        return found
