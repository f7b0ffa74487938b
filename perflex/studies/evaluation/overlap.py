"""Which composition of costs a kernel family needs on a device, decided from calibration data alone.

The paper's Section 8.1 decides by hand between adding memory and on-chip costs and overlapping them, and leaves a
criterion to future work. Here each model is fitted to its measurement kernels, and judged by kernels that it was not
fitted to, since residuals favour models with more parameters: by trial kernels, the computations themselves at small
sizes. What counts is the loss of the variant that a model takes for the best one, then the root mean square of relative
errors.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from perflex.calibration.acceptance import median_repeatability
from perflex.calibration.cross_validation import relative_errors
from perflex.errors import CalibrationError, PerflexWarning
from perflex.fit.fitting import fit_model
from perflex.fit.options import FitOptions
from perflex.search.accuracy import Accuracy

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from perflex.expression.model import Model
    from perflex.fit.result import FitResult
    from perflex.fit.table import FeatureTable

# Of models with the same loss, a simpler one is kept unless a later one predicts better by more than this share.
_WORTH_IT = 0.05


@dataclass(frozen=True)
class Candidate:
    """A model fitted to all measurement kernels, or the reason why they do not determine it."""

    name: str
    model: Model
    fit: FitResult | None
    # For the trial kernels; None where it was not fitted, or is the only one.
    trial: Accuracy | None = None
    reason: str = ""


@dataclass(frozen=True)
class OverlapChoice:
    """The chosen candidate's name, why in a sentence, and all candidates in the order given."""

    name: str
    reason: str
    candidates: tuple[Candidate, ...]

    def candidate(self, name: str) -> Candidate:
        """Return the candidate of a name."""
        return next(candidate for candidate in self.candidates if candidate.name == name)


def choose_overlap(
    models: Mapping[str, Model], tables: Mapping[str, FeatureTable], trial: FeatureTable, groups: Sequence[Hashable]
) -> OverlapChoice:
    """Choose one of some models, the simplest first, by trial kernels that it was not fitted to.

    It is the model with the lowest mean loss for them, beyond what their times vary, and of those the one with the
    lowest root mean square of errors, unless a simpler one of the same loss comes within 5 % of that. `groups` has the
    group of each trial kernel, such as its size: what the variants are chosen among.
    """
    candidates = tuple(_candidate(name, model, tables[name], trial, groups) for name, model in models.items())
    accuracies = {candidate.name: candidate.trial for candidate in candidates if candidate.trial is not None}
    if not accuracies:
        reasons = "; ".join(f"{candidate.name}: {candidate.reason}" for candidate in candidates)
        msg = f"the measurement kernels determine none of the models ({reasons})"
        raise CalibrationError(msg)
    noise = median_repeatability(trial) or 0.0
    keys = {name: accuracy.key(noise) for name, accuracy in accuracies.items()}
    best = min(keys, key=keys.__getitem__)
    loss, error = keys[best]
    chosen = next(name for name, key in keys.items() if key[0] == loss and key[1] <= (1 + _WORTH_IT) * error)
    return OverlapChoice(chosen, _reason(chosen, best, accuracies), candidates)


def _candidate(
    name: str, model: Model, table: FeatureTable, trial: FeatureTable, groups: Sequence[Hashable]
) -> Candidate:
    try:
        fit = _fitted(model, table)
        measured = trial.column(model.output_feature)
        predicted = (1 + np.array(relative_errors(model, fit, trial))) * measured
    except CalibrationError as error:
        return Candidate(name, model, None, reason=error.message)
    return Candidate(name, model, fit, Accuracy.of(predicted, measured, groups))


def _fitted(model: Model, table: FeatureTable) -> FitResult:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PerflexWarning)  # of a fit to a part of the kernels nobody needs to know
        # Where a variant cannot run on a device, nothing tells its costs, and nothing needs them.
        return fit_model(model, table, FitOptions(on_undetermined="warn"))


def _reason(chosen: str, best: str, accuracies: Mapping[str, Accuracy]) -> str:
    errors = ", ".join(
        f"{name} {_percent(accuracy.rms)}"
        + ("" if math.isnan(accuracy.loss_mean) else f" and loss {_percent(accuracy.loss_mean)}")
        for name, accuracy in accuracies.items()
    )
    judges = "the variants at small sizes (loss of the predicted best is the mean)"
    text = f"errors (root mean square) of {judges}: {errors}"
    if chosen == best:
        return f"{text}; {chosen} is lowest"
    return f"{text}; {best} is not better than {chosen} by more than {100 * _WORTH_IT:.0f} %"


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.1f} %"
