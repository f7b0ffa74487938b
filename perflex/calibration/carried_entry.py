"""How a calibration's file keeps a prior, and what was carried over from other devices."""

from __future__ import annotations

import math
from typing import Annotated

import msgspec
from msgspec import Meta

from perflex.calibration.carried_over import LEVELS, CarriedOver, CarriedTerm
from perflex.fit.prior import ParameterPrior, Prior
from perflex.yaml_file import Fields, Finite, Positive

_Share = Annotated[float, Meta(ge=0, le=1)]
_Deviation = Annotated[float, Meta(ge=0)]


class _PriorParameter(Fields, frozen=True, omit_defaults=True):
    # Neither stands for a parameter that is held at zero.
    mean_of_logarithm: Finite | None = None
    spread_of_logarithm: Positive | None = None


class PriorEntry(Fields, frozen=True, kw_only=True):
    """The attributes of `Prior`; means are of the logarithm of a parameter in its unit."""

    sources: tuple[str, ...]
    noise: Positive
    parameters: dict[str, _PriorParameter]

    @classmethod
    def of(cls, prior: Prior) -> PriorEntry:
        """Return the entry of a prior."""
        entries = {
            name: _PriorParameter() if each.held_at_zero else _PriorParameter(each.mean, each.spread)
            for name, each in prior.items()
        }
        return cls(sources=prior.sources, noise=prior.noise, parameters=entries)

    def prior(self) -> Prior:
        """Return the prior of an entry."""
        parameters = {
            name: ParameterPrior(-math.inf, 0.0)
            if each.mean_of_logarithm is None or each.spread_of_logarithm is None
            else ParameterPrior(each.mean_of_logarithm, each.spread_of_logarithm)
            for name, each in self.parameters.items()
        }
        return Prior(parameters, self.noise, self.sources)


class _Term(Fields, frozen=True, omit_defaults=True):
    correction: Finite
    deviation: _Deviation
    program: str = ""
    log_time: Finite | None = None


class CarriedEntry(Fields, frozen=True, kw_only=True, omit_defaults=True):
    """The attributes of `CarriedOver`."""

    sources: tuple[str, ...]
    samples: Annotated[int, Meta(ge=0)]
    weight: _Share
    unknown: _Deviation
    limits: tuple[_Deviation, ...] = ()
    conflict: _Share | None = None
    programs: dict[str, _Term]
    kernels: dict[str, _Term]

    @classmethod
    def of(cls, carried: CarriedOver) -> CarriedEntry:
        """Return the entry of what was carried over."""
        return cls(
            sources=carried.sources,
            samples=carried.samples,
            weight=carried.weight,
            unknown=carried.unknown,
            limits=carried.limits,
            conflict=carried.conflict,
            programs={name: _term(term) for name, term in carried.programs.items()},
            kernels={name: _term(term) for name, term in carried.kernels.items()},
        )

    @property
    def limits_fit(self) -> bool:
        """Whether there is a limit for each level, or none."""
        return len(self.limits) in {0, len(LEVELS)}

    def carried(self) -> CarriedOver:
        """Return what an entry holds."""
        return CarriedOver(
            self.sources,
            self.samples,
            {name: CarriedTerm(*msgspec.structs.astuple(term)) for name, term in self.kernels.items()},
            {name: CarriedTerm(*msgspec.structs.astuple(term)) for name, term in self.programs.items()},
            self.unknown,
            self.weight,
            self.limits,
            self.conflict,
        )


def _term(term: CarriedTerm) -> _Term:
    return _Term(term.correction, term.deviation, term.program, term.log_time)
