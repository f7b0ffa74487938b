"""What a transferred calibration holds of other devices, and what that predicts."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from msgspec import Meta, field

from perflex.calibration.prediction_variance import gradient_at, student_quantile
from perflex.fit.posterior import posterior_of_logarithms
from perflex.html import shown_by
from perflex.yaml_file import Fields, Finite, Positive

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from perflex.fit.result import FitResult

LEVELS = (0.0, 0.25, 0.5, 0.6827, 0.8, 0.9, 0.95)
"""Shares of rows for which limits are kept."""
NORMAL = tuple(NormalDist().inv_cdf((1 + level) / 2) for level in LEVELS)
"""Their limits of a normal distribution."""
USUAL = "usual values"
"""In place of a device, the parameters' usual values that a ready model states."""
CONFLICT = 0.01
"""Probability of the samples below which they are in conflict with the prior."""

_Share = Annotated[float, Meta(ge=0, le=1)]
_Deviation = Annotated[float, Meta(ge=0)]


class TransferTerm(Fields, frozen=True, omit_defaults=True):
    """What other devices say of the residual of a kernel, or of kernels of a program.

    Attributes
    ----------
    correction
        Mean of ln(measured / predicted by the model).
    deviation
        Its standard deviation, noise included.
    program
        Of the kernel; empty for a program.
    log_time
        Logarithm of the time in s that other devices' times of the kernel give, times one factor of each device from
        the samples; None where no source has timed it, or there are no samples.
    """

    correction: Finite
    deviation: _Deviation
    program: str = ""
    log_time: Finite | None = None


class LaunchCosts(Fields, frozen=True):
    """Seconds that a launch costs by what a time is of.

    Attributes
    ----------
    gpu
        The GPU's own duration, as profilers show it; predictions are of this where nothing else is said.
    queued
        Launches back to back.
    host
        Launches that the host waits for.
    """

    gpu: Positive
    queued: Positive
    host: Positive


class TransferPrior(Fields, frozen=True, omit_defaults=True):
    """What a transferred calibration holds of other devices.

    Attributes
    ----------
    sources
        Names of the devices.
    samples
        Rows of the device itself.
    kernels, programs
        Terms by label and by program.
    unknown
        Standard deviation of the residual of a kernel of another program, noise included.
    weight
        Of the model, between 0 and 1, in the logarithm; the rest is of other devices' times with one factor. It is what
        predicted sources best that were left out.
    limits
        Deviations within which left-out sources' rows lay, in standard deviations as predicted, for `LEVELS`.
    launches
        What a launch costs by what a time is of; None where that is not known.
    conflict
        Probability of samples that lie so far from what the prior predicts, if the device were like the sources; None
        without samples.
    """

    sources: tuple[str, ...]
    samples: Annotated[int, Meta(ge=0)]
    kernels: dict[str, TransferTerm] = field(default_factory=dict)
    programs: dict[str, TransferTerm] = field(default_factory=dict)
    unknown: _Deviation = 0.0
    weight: _Share = 1.0
    limits: tuple[_Deviation, ...] = ()
    launches: LaunchCosts | None = None
    conflict: _Share | None = None

    @property
    def remarks(self) -> tuple[str, ...]:
        """What to know of every prediction: that there is no sample of the device, or that it is unlike the sources."""
        found = []
        if not self.samples:
            what = "the model's usual values" if self.sources == (USUAL,) else "other devices"
            found.append(f"no sample of this device: predicted from its machine's facts and {what} alone")
        if self.conflict is not None and self.conflict < CONFLICT:
            found.append(
                f"the samples contradict the sources (probability {self.conflict:.2g}); take more "
                "samples, or sources more like this device"
            )
        return tuple(found)

    _repr_html_ = shown_by("transferred.html")

    def half_width(self, confidence: float) -> float:
        """Return the half-width of an interval in standard deviations."""
        # One device of several lies beyond the others: Student's distribution, and never below the normal one's share.
        if not self.limits or confidence > LEVELS[-1]:
            freedom = float(max(len(self.sources) - 1, 1))
            beyond = student_quantile((1 + confidence) / 2, freedom)
            at = student_quantile((1 + LEVELS[-1]) / 2, freedom)
            return beyond if not self.limits else self.limits[-1] * beyond / at
        return float(np.interp(confidence, LEVELS, self.limits))


@dataclass(frozen=True, eq=False)
class LogPredictions:
    """Logarithms of predictions, their standard deviations, and the parameters' part of these, shape ``(m,)`` each."""

    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]
    of_parameters: NDArray[np.float64]


def transferred_predictions(
    fit: FitResult, known: TransferPrior, values: Mapping[str, Any], kernels: Sequence[tuple[str, str]]
) -> LogPredictions:
    """Return what model and other devices together predict."""
    model = fit.problem.model
    with np.errstate(all="ignore"):
        predicted = np.broadcast_to(np.asarray(model.evaluate(fit, values), dtype=np.float64), (len(kernels),))
        gradient = gradient_at(model, fit, values) * fit.vector / predicted[:, None]
        logs = np.log(predicted)
    parameters = np.einsum("ri,ij,rj->r", gradient, posterior_of_logarithms(fit), gradient)
    terms = [known.kernels.get(label) for label, _ in kernels]
    unknown = TransferTerm(0.0, known.unknown)
    used = [term or known.programs.get(program, unknown) for term, (_, program) in zip(terms, kernels, strict=True)]
    mean = logs + np.array([term.correction for term in used])
    other = np.array([np.nan if term.log_time is None else term.log_time for term in used])
    weight = np.where(np.isfinite(other), known.weight, 1.0)
    mean = weight * mean + (1.0 - weight) * np.where(np.isfinite(other), other, 0.0)
    own = np.sqrt(np.maximum(parameters, 0.0))
    return LogPredictions(mean, np.hypot(own, np.array([term.deviation for term in used])), own)
