"""Which composition of costs a kernel family needs on a device, decided from calibration data alone.

The paper's Section 8.1 decides by hand between adding memory and on-chip costs and overlapping them, and leaves a
criterion to future work. Here each model is fitted to its measurement kernels, and judged by kernels that it was not
fitted to, since residuals favour models with more parameters: by trial kernels, the computations themselves at small
sizes, where there are any: by the loss of the variant that a model takes for the best one, then by the root mean square
of relative errors. Else by measurement kernels held out of the fit (cross-validation).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from perflex.calibration.acceptance import median_repeatability
from perflex.calibration.held_out import relative_errors
from perflex.errors import CalibrationError, PerflexWarning
from perflex.fit.fitting import fit_model
from perflex.fit.table import scale_features_by_output
from perflex.studies.accuracy import Accuracy

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from numpy.typing import NDArray

    from perflex.expression.model import Model
    from perflex.fit.result import FitResult
    from perflex.fit.table import FeatureTable

# Parts into which the kernels of each generator are dealt; each part is predicted by a fit to the others.
_FOLDS = 5
# Of models with the same loss, a simpler one is kept unless a later one predicts better by more than this share.
_WORTH_IT = 0.05


@dataclass(frozen=True)
class Candidate:
    """A model fitted to the measurement kernels.

    Attributes
    ----------
    name
        E.g. ``"partial"``.
    model
        The model.
    fit
        Its fit to all measurement kernels; None where they do not determine it.
    validated_error
        Root mean square of the relative errors of kernels held out of the fit, a fraction; nan without a fit.
    trial
        How accurate it is for the trial kernels; None without a fit or without any.
    reason
        Why there is no fit, or empty.
    """

    name: str
    model: Model
    fit: FitResult | None
    validated_error: float = math.nan
    trial: Accuracy | None = None
    reason: str = ""


@dataclass(frozen=True)
class OverlapChoice:
    """What was chosen and why.

    Attributes
    ----------
    name
        The chosen candidate's name.
    reason
        In a sentence.
    candidates
        All of them, in the order given.
    """

    name: str
    reason: str
    candidates: tuple[Candidate, ...]

    def candidate(self, name: str) -> Candidate:
        """Return the candidate of a name."""
        return next(candidate for candidate in self.candidates if candidate.name == name)


def choose_overlap(
    models: Mapping[str, Model],
    tables: FeatureTable | Mapping[str, FeatureTable],
    trial: FeatureTable | None = None,
    groups: Sequence[Hashable] = (),
) -> OverlapChoice:
    """Choose a model by kernels that it was not fitted to.

    Parameters
    ----------
    models
        Candidates by name, the simplest first.
    tables
        Measured times and features of the measurement kernels: one table, or one for each model.
    trial
        The same of trial kernels, which no model is fitted to. Without them cross-validation decides.
    groups
        The group of each trial kernel, such as its size: what the variants are chosen among. None for one of each.

    Returns
    -------
    OverlapChoice
        The model with the lowest mean loss for the trial kernels, beyond what their times vary, and of those the one
        with the lowest root mean square of errors (of the validated ones without trial kernels), unless a simpler one
        of the same loss comes within 5 % of that.

    Raises
    ------
    CalibrationError
        The kernels determine none of the models.
    """
    judged = None if trial is None else (trial, tuple(groups) or tuple(range(len(trial))))
    candidates = tuple(
        _candidate(name, model, tables[name] if isinstance(tables, Mapping) else tables, judged)
        for name, model in models.items()
    )
    fitted = [candidate for candidate in candidates if candidate.fit is not None]
    if not fitted:
        reasons = "; ".join(f"{candidate.name}: {candidate.reason}" for candidate in candidates)
        msg = f"the measurement kernels determine none of the models ({reasons})"
        raise CalibrationError(msg)
    noise = 0.0 if trial is None else median_repeatability(trial) or 0.0
    keys = {c.name: (0.0, c.validated_error) if c.trial is None else c.trial.key(noise) for c in fitted}
    best = min(keys, key=keys.__getitem__)
    loss, error = keys[best]
    chosen = next(name for name, key in keys.items() if key[0] == loss and key[1] <= (1 + _WORTH_IT) * error)
    return OverlapChoice(chosen, _reason(chosen, best, fitted), candidates)


def _fold_of_each(table: FeatureTable) -> NDArray[np.intp]:
    """Deal the kernels of each generator to the folds in turn, so that every fold has some of each."""
    seen: dict[str, int] = {}
    dealt = []
    for group in table.groups or ("",) * len(table):
        seen[group] = seen.get(group, -1) + 1
        dealt.append(seen[group] % _FOLDS)
    return np.array(dealt, dtype=np.intp)


def _candidate(
    name: str, model: Model, measured: FeatureTable, judged: tuple[FeatureTable, tuple[Hashable, ...]] | None
) -> Candidate:
    # Residuals become relative: in seconds the longest kernels would decide the fit.
    table = scale_features_by_output(measured)
    held_out = _fold_of_each(table)
    errors: list[float] = []
    try:
        fit = _fitted(model, table)
        for fold in np.unique(held_out):
            others = _fitted(model, table.take(np.flatnonzero(held_out != fold).tolist()))
            errors += relative_errors(model, others, table.take(np.flatnonzero(held_out == fold).tolist()))
        trial = None if judged is None else _accuracy(model, fit, *judged)
    except CalibrationError as error:
        return Candidate(name, model, None, reason=error.message)
    return Candidate(name, model, fit, _root_mean_square(errors), trial)


def _accuracy(model: Model, fit: FitResult, trial: FeatureTable, groups: Sequence[Hashable]) -> Accuracy:
    measured = trial.column(model.output_feature)
    predicted = (1 + np.array(relative_errors(model, fit, trial))) * measured
    return Accuracy.of(predicted, measured, groups)


def _root_mean_square(values: Sequence[float]) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def _fitted(model: Model, table: FeatureTable) -> FitResult:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PerflexWarning)  # of a fit to a part of the kernels nobody needs to know
        # Where a variant cannot run on a device, nothing tells its costs, and nothing needs them.
        return fit_model(model, table, nonnegative=True, on_undetermined="warn")


def _reason(chosen: str, best: str, fitted: Sequence[Candidate]) -> str:
    if any(candidate.trial is None for candidate in fitted):
        judges, listed = "measurement kernels held out of the fit", [_percent(c.validated_error) for c in fitted]
    else:
        judges = "the variants at small sizes (loss of the predicted best is the mean)"
        listed = [
            _percent(c.trial.rms)
            + ("" if math.isnan(c.trial.loss_mean) else f" and loss {_percent(c.trial.loss_mean)}")
            for c in fitted
            if c.trial is not None
        ]
    errors = ", ".join(f"{c.name} {text}" for c, text in zip(fitted, listed, strict=True))
    text = f"errors (root mean square) of {judges}: {errors}"
    if chosen == best:
        return f"{text}; {chosen} is lowest"
    return f"{text}; {best} is not better than {chosen} by more than {100 * _WORTH_IT:.0f} %"


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.1f} %"
