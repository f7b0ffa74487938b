"""How a calibration's file keeps what generators that were left out say."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated

import msgspec
from msgspec import Meta

from perflex.calibration.generator_term import GeneratorTerm
from perflex.calibration.left_out import LEVELS, LeftOutErrors
from perflex.yaml_file import Fields


class LeftOutEntry(Fields, frozen=True, kw_only=True):
    """The attributes of `LeftOutErrors`."""

    generators: Annotated[int, Meta(ge=2)]
    kernels: Annotated[int, Meta(ge=2)]
    excluded: Annotated[int, Meta(ge=0)]
    near: Annotated[float, Meta(gt=0)]
    growth: Annotated[float, Meta(ge=0)]
    farthest: Annotated[float, Meta(ge=0)]
    quantiles: Annotated[tuple[Annotated[float, Meta(ge=0)], ...], Meta(min_length=len(LEVELS), max_length=len(LEVELS))]
    trend: Annotated[float, Meta(ge=0)]

    @classmethod
    def of(cls, errors: LeftOutErrors) -> LeftOutEntry:
        """Return the entry of errors."""
        return cls(**asdict(errors))

    def errors(self) -> LeftOutErrors:
        """Return the errors of an entry."""
        return LeftOutErrors(**msgspec.structs.asdict(self))


class GeneratorTermEntry(Fields, frozen=True, kw_only=True):
    """The attributes of `GeneratorTerm`."""

    ratio: Annotated[float, Meta(ge=0, le=sys.float_info.max)]
    generators: Annotated[int, Meta(ge=0)]
    trend: Annotated[float, Meta(ge=0, le=sys.float_info.max)]
    trends: Annotated[int, Meta(ge=0)]

    @classmethod
    def of(cls, term: GeneratorTerm) -> GeneratorTermEntry:
        """Return the entry of a term."""
        return cls(**asdict(term))

    def term(self) -> GeneratorTerm:
        """Return the term of an entry."""
        return GeneratorTerm(**msgspec.structs.asdict(self))
