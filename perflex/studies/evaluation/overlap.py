"""Which composition of costs a kernel family needs on a device, decided from calibration data alone.

The paper's Section 8.1 decides by hand between adding memory and on-chip costs and overlapping them, and leaves a
criterion to future work. Here each model is fitted to its measurement kernels, and judged by kernels that it was not
fitted to, since residuals favour models with more parameters: by trial kernels, the computations themselves at small
sizes, where there are any; else by measurement kernels held out of the fit (cross-validation).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from perflex.calibration.held_out import relative_errors
from perflex.fit.fitting import fit_model
from perflex.fit.table import scale_features_by_output
from perflex.errors import CalibrationError, PerflexWarning

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from perflex.fit.result import FitResult
    from perflex.expression.model import Model
    from perflex.fit.table import FeatureTable

# Parts into which the kernels of each generator are dealt; each part is predicted by a fit to the others.
_FOLDS = 5
# A simpler model is kept unless a later one predicts better by more than this share.
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
    trial_error
        Root mean square of the relative errors of the trial kernels, a fraction; nan without a fit or without any.
    reason
        Why there is no fit, or empty.
    """

    name: str
    model: Model
    fit: FitResult | None
    validated_error: float = math.nan
    trial_error: float = math.nan
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

    Returns
    -------
    OverlapChoice
        The model with the lowest trial error (else validated error), unless a simpler one comes within 5 % of that.

    Raises
    ------
    CalibrationError
        The kernels determine none of the models.
    """
    candidates = tuple(
        _candidate(name, model, tables[name] if isinstance(tables, Mapping) else tables, trial)
        for name, model in models.items()
    )
    fitted = [candidate for candidate in candidates if candidate.fit is not None]
    if not fitted:
        reasons = "; ".join(f"{candidate.name}: {candidate.reason}" for candidate in candidates)
        msg = f"the measurement kernels determine none of the models ({reasons})"
        raise CalibrationError(msg)
    errors = {c.name: c.validated_error if trial is None else c.trial_error for c in fitted}
    best = min(errors, key=errors.__getitem__)
    chosen = next(name for name, error in errors.items() if error <= (1 + _WORTH_IT) * errors[best])
    judges = "measurement kernels held out of the fit" if trial is None else "the variants at small sizes"
    return OverlapChoice(chosen, _reason(chosen, best, errors, judges), candidates)


def _fold_of_each(table: FeatureTable) -> NDArray[np.intp]:
    """Deal the kernels of each generator to the folds in turn, so that every fold has some of each."""
    seen: dict[str, int] = {}
    dealt = []
    for group in table.groups or ("",) * len(table):
        seen[group] = seen.get(group, -1) + 1
        dealt.append(seen[group] % _FOLDS)
    return np.array(dealt, dtype=np.intp)


def _candidate(name: str, model: Model, measured: FeatureTable, trial: FeatureTable | None) -> Candidate:
    # Residuals become relative: in seconds the longest kernels would decide the fit.
    table = scale_features_by_output(measured)
    held_out = _fold_of_each(table)
    errors: list[float] = []
    try:
        fit = _fitted(model, table)
        for fold in np.unique(held_out):
            others = _fitted(model, table.take(np.flatnonzero(held_out != fold).tolist()))
            errors += relative_errors(model, others, table.take(np.flatnonzero(held_out == fold).tolist()))
    except CalibrationError as error:
        return Candidate(name, model, None, reason=error.message)
    tried = math.nan if trial is None else _root_mean_square(relative_errors(model, fit, trial))
    return Candidate(name, model, fit, _root_mean_square(errors), tried)


def _root_mean_square(values: Sequence[float]) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def _fitted(model: Model, table: FeatureTable) -> FitResult:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PerflexWarning)  # of a fit to a part of the kernels nobody needs to know
        # Where a variant cannot run on a device, nothing tells its costs, and nothing needs them.
        return fit_model(model, table, nonnegative=True, on_undetermined="warn")


def _reason(chosen: str, best: str, errors: Mapping[str, float], judges: str) -> str:
    listed = ", ".join(f"{name} {100 * error:.1f} %" for name, error in errors.items())
    text = f"errors of {judges}: {listed}"
    if chosen == best:
        return f"{text}; {chosen} is lowest"
    return f"{text}; {best} is not better than {chosen} by more than {100 * _WORTH_IT:.0f} %"
