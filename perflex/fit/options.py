"""How a model is fitted: what `fit_model`, `calibrate` and model files share; and priors of parameters.

A prior is what calibrations of other devices say of a device before it is measured. That of a parameter is log-normal:
its logarithm has a mean and a spread over devices. Parameters of a model are costs, rates and the like, which are
positive, and differ between devices by factors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from perflex.errors import CalibrationError
from perflex.yaml_file import Fields

Residual: TypeAlias = Literal["relative", "logarithmic", "absolute"]
OnUndetermined: TypeAlias = Literal["error", "warn"]


class ParameterPrior(Fields, frozen=True):
    """What is known of a parameter beforehand."""

    # Of the natural logarithm of the parameter in its unit; ``-inf`` for a parameter that is held at zero.
    mean: float
    # Standard deviation of that logarithm over devices, above zero; 0 for a parameter that is held at zero.
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
    """Priors of a model's parameters: a mapping from name to `ParameterPrior`."""

    parameters: Mapping[str, ParameterPrior] = field(default_factory=dict)
    # Standard deviation of a row's residual about the model, as a fraction: what a row weighs beside the priors.
    noise: float = 0.1
    # Names of the devices that it comes from.
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


@dataclass(frozen=True)
class FitOptions:
    """How a model is fitted.

    Attributes
    ----------
    nonnegative
        Keep all costs and rates at or above zero. The result is the constrained optimum.
    on_undetermined
        What to do when the kernels do not determine a parameter: ``"error"`` refuses; ``"warn"`` gives the smallest
        values that fit as well, without standard errors, and warns. An edge or hidden fraction on which no output
        depends never refuses, since predictions like the measurement kernels do not depend on it either.
    residual
        What is squared and added up: errors relative to the output (paper Section 7.2), ``"absolute"`` ones, or
        ``"logarithmic"``, logarithms of model over output. Relative errors favour predictions that are too short,
        which are off by 100 % at most. Logarithms weigh half and double alike.

    Raises
    ------
    ValueError
        There is no such residual, and nothing else to do.
    """

    nonnegative: bool = True
    on_undetermined: OnUndetermined = "error"
    residual: Residual = "relative"

    def __post_init__(self) -> None:
        """Check the words."""
        for name, words in (("residual", get_args(Residual)), ("on_undetermined", get_args(OnUndetermined))):
            if getattr(self, name) not in words:
                msg = f"{name} must be one of {', '.join(words)}, not {getattr(self, name)!r}"
                raise ValueError(msg)
