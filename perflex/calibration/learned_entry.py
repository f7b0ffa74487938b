"""How a calibration's file keeps what was learned: by what it is learned anew from the measurement kernels."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import msgspec
from msgspec import Meta

from perflex.calibration.learned import LearnedResiduals, LearnerName, LeftOutAccuracy
from perflex.calibration.left_out_entry import LeftOutEntry
from perflex.yaml_file import Fields, Finite


class _Accuracy(Fields, frozen=True, kw_only=True):
    factor: Annotated[float, Meta(ge=1)]
    median: Annotated[float, Meta(ge=0)]
    rms: Annotated[float, Meta(ge=0)]
    maximum: Annotated[float, Meta(ge=0)]

    def accuracy(self) -> LeftOutAccuracy:
        return LeftOutAccuracy(**msgspec.structs.asdict(self))


class LearnedEntry(Fields, frozen=True, kw_only=True):
    """The attributes of `LearnedResiduals`."""

    learner: LearnerName
    shrinkage: Annotated[float, Meta(ge=0, le=1)]
    helps: bool
    gain: Finite
    gain_error: Annotated[float, Meta(ge=0)]
    without: _Accuracy
    learned: _Accuracy
    left_out: LeftOutEntry

    @classmethod
    def of(cls, found: LearnedResiduals) -> LearnedEntry:
        """Return the entry of what was learned."""
        return cls(
            learner=found.learner,
            shrinkage=found.shrinkage,
            helps=found.helps,
            gain=found.gain,
            gain_error=found.gain_error,
            without=_Accuracy(**asdict(found.without)),
            learned=_Accuracy(**asdict(found.learned)),
            left_out=LeftOutEntry.of(found.left_out),
        )

    def residuals(self) -> LearnedResiduals:
        """Return what was learned, of an entry."""
        return LearnedResiduals(
            learner=self.learner,
            shrinkage=self.shrinkage,
            helps=self.helps,
            gain=self.gain,
            gain_error=self.gain_error,
            without=self.without.accuracy(),
            learned=self.learned.accuracy(),
            left_out=self.left_out.errors(),
        )
