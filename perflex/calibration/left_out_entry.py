"""How a calibration's file keeps the errors of generators that were left out."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import msgspec
from msgspec import Meta

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
