"""Priors of parameters: what calibrations of other devices say of a device before it is measured.

The prior of a parameter is log-normal: its logarithm has a mean and a spread over devices. Parameters of a model are
costs, rates and the like, which are positive, and differ between devices by factors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from perflex.errors import CalibrationError


@dataclass(frozen=True)
class ParameterPrior:
    """What is known of a parameter beforehand.

    Attributes
    ----------
    mean
        Of the natural logarithm of the parameter in its unit; ``-inf`` for a parameter that is held at zero.
    spread
        Standard deviation of that logarithm over devices, above zero; 0 for a parameter that is held at zero.
    """

    mean: float
    spread: float

    @property
    def median(self) -> float:
        """The parameter's median, in its unit."""
        return math.exp(self.mean)

    @property
    def held_at_zero(self) -> bool:
        """Whether the parameter is zero without doubt."""
        return self.mean == -math.inf


@dataclass(frozen=True)
class Prior(Mapping[str, ParameterPrior]):
    """Priors of a model's parameters: a mapping from name to `ParameterPrior`.

    Attributes
    ----------
    parameters
        The prior of each parameter.
    noise
        Standard deviation of a row's residual about the model, as a fraction of the output: what a row weighs beside
        the priors.
    sources
        Names of the devices that it comes from.

    Raises
    ------
    CalibrationError
        A mean is not a number, or a spread or the noise is not above zero.
    """

    parameters: Mapping[str, ParameterPrior] = field(default_factory=dict)
    noise: float = 0.1
    sources: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, entry in self.parameters.items():
            normal = math.isfinite(entry.mean) and 0 < entry.spread < math.inf
            if not (normal or (entry.held_at_zero and entry.spread == 0)):
                msg = (
                    f"the prior of {name} has mean {entry.mean} and spread {entry.spread}; give a finite mean of its "
                    "logarithm and a spread above zero"
                )
                raise CalibrationError(msg, parameter=name)
        if not 0 < self.noise < math.inf:
            msg = f"the noise of a prior is {self.noise}; give a fraction above zero, such as 0.1"
            raise CalibrationError(msg)

    def __getitem__(self, name: str) -> ParameterPrior:
        """Return the prior of a parameter."""
        return self.parameters[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the parameters' names."""
        return iter(self.parameters)

    def __len__(self) -> int:
        """Return the number of parameters."""
        return len(self.parameters)

    def medians(self) -> dict[str, float]:
        """Return the median of each parameter, in its unit."""
        return {name: entry.median for name, entry in self.parameters.items()}
