"""Priors of parameters from calibrations of other devices.

The logarithm of a parameter is taken as normal over devices. Its mean and spread are those of the sources; the spread
is shrunk towards what is usual of the model's parameters, because two or five devices hardly tell a spread (moderated
variances: Smyth, Stat. Appl. Genet. Mol. Biol. 3, 3, 2004), and widened as Student's distribution is against the normal
one. The sources are fitted to their rows again with that prior, in turns (empirical Bayes by
expectation and maximisation: Dempster, Laird and Rubin, J. R. Stat. Soc. B 39, 1, 1977), so that parameters that a
source's rows do not tell apart take the values that suit the others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from perflex.calibration.prediction_variance import student_quantile
from perflex.calibration.usual_prior import usual_description
from perflex.errors import CalibrationError
from perflex.fit.options import ParameterPrior, Prior
from perflex.fit.posterior import fit_with_prior, posterior_of_logarithms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from perflex.calibration.record import CalibrationRecord
    from perflex.expression.model import Model
    from perflex.fit.table import FeatureTable

    Array = NDArray[np.float64]

# Spread where nothing tells one: parameters of different devices differ by a factor of two.
_USUAL_SPREAD = math.log(2.0)
# As how many devices the usual spread of the model's parameters counts.
_USUAL_DEVICES = 3.0
# A source that puts a cost at zero says that it is small: the share of the smallest positive value that it counts as.
_SMALL = 1.0 / 3.0
# Rows differ from the model by at least this share: sources that are fitted exactly leave no noise.
_LEAST_NOISE = 1e-3
_LEAST_SPREAD = 1e-2
_ROUNDS = 3
_PROBABILITY = 0.975


@dataclass(frozen=True, eq=False)
class SourceFit:
    """A source as its rows and the prior have it."""

    name: str
    # In the model's order, and the variances of their logarithms, shape ``(n,)``.
    parameters: NDArray[np.float64]
    variances: NDArray[np.float64]
    # ln(measured / predicted) of each row, shape ``(m,)``; empty where rows are not known.
    residuals: NDArray[np.float64]


def shared_prior(sources: Sequence[CalibrationRecord]) -> tuple[Prior, list[SourceFit]]:
    """Return the prior that calibrations of one model on other devices give, and the sources fitted with it.

    A cost that is zero in some sources counts there as a third of its smallest positive value; one that is zero in all
    of them is held at zero, as is an edge, a sharpness or a hidden fraction that is zero in half of them. What a
    source's rows do not determine is left out. Usual values of a ready model count as a further source; its sources
    were fitted about these and stay as they are.
    """
    model = require_one_model(sources)
    names = tuple(_name(source, place) for place, source in enumerate(sources))
    values, variances = _own(sources)
    prior = _prior(model, values, variances, _noise(sources), names)
    fits = [_kept(model, source, name) for source, name in zip(sources, names, strict=True)]
    for _ in range(0 if usual_description(model) else _ROUNDS):
        fits = [
            _refitted(model, source.table, prior, name) if len(source.table) else fit
            for source, name, fit in zip(sources, names, fits, strict=True)
        ]
        if not any(len(fit.residuals) for fit in fits):
            break
        prior = prior_of_fits(model, fits, prior.noise)
    return prior, fits


def prior_of_fits(model: Model, fits: Sequence[SourceFit], noise: float) -> Prior:
    """Return the prior of sources that were fitted; `noise` is the deviation of their rows' residuals."""
    values, variances = np.array([fit.parameters for fit in fits]), np.array([fit.variances for fit in fits])
    return _prior(model, values, variances, noise, tuple(fit.name for fit in fits))


def require_one_model(sources: Sequence[CalibrationRecord]) -> Model:
    """Return the sources' model."""
    if not sources:
        msg = "there are no sources; give calibrations of the model on other devices"
        raise CalibrationError(msg)
    if wrong := [each for each in sources if not hasattr(each, "model")]:
        msg = f"sources are calibrations, in a list, not {wrong[0]!r:.60}; Calibration.load reads a file"
        raise CalibrationError(msg)
    model = sources[0].model
    for source in sources[1:]:
        if source.model.output_feature != model.output_feature:
            outputs = f"{model.output_feature} and {source.model.output_feature}"
            msg = f"the sources have different outputs, {outputs}; give calibrations of one model with one output"
            raise CalibrationError(msg, model=source.model)
        if source.model.expression != model.expression:
            msg = (
                f"the sources have different models, {model.expression!r} and {source.model.expression!r}; give "
                "calibrations of one model"
            )
            raise CalibrationError(msg, model=source.model)
    return model


def _name(source: CalibrationRecord, place: int) -> str:
    return str(source.device.get("name") or source.machine or f"source {place + 1}")


def _own(sources: Sequence[CalibrationRecord]) -> tuple[Array, Array]:
    """Return the sources' parameters and the variances of their logarithms; nan where a source determines none."""
    values = np.array([list(source.fit.values()) for source in sources], dtype=np.float64)
    errors = np.array([[p.standard_error for p in source.fit.parameters] for source in sources])
    known = np.array([[p.determined for p in source.fit.parameters] for source in sources])
    with np.errstate(all="ignore"):
        variances = np.nan_to_num((errors / values) ** 2, nan=0.0, posinf=0.0)
    # Far beyond the parameter itself, an error of first order says no more than that the value is not known.
    return np.where(known, values, np.nan), np.minimum(variances, 1.0)


def _noise(sources: Sequence[CalibrationRecord]) -> float:
    """Return the usual deviation of a row's residual."""
    found = []
    for source in sources:
        errors = np.asarray(source.fit.relative_errors, dtype=np.float64)
        errors = np.log1p(np.maximum(errors[np.isfinite(errors)], _LEAST_NOISE - 1.0))
        if len(errors):
            found.append(math.sqrt(float(errors @ errors) / max(source.fit.degrees_of_freedom, 1)))
    return max(float(np.median(found)) if found else 0.1, _LEAST_NOISE)


def _prior(model: Model, values: Array, variances: Array, noise: float, names: tuple[str, ...]) -> Prior:
    parameters, stated = model.params(), usual_description(model)
    if stated is not None:
        values = np.vstack([values, [stated.usual[name] for name in parameters]])
        variances = np.vstack([variances, np.zeros(len(parameters))])
    held = [_is_held(model, name, values[:, place]) for place, name in enumerate(parameters)]
    logs = np.full(values.shape, np.nan)
    for place in range(len(parameters)):
        column = values[:, place]
        positive = column[np.isfinite(column) & (column > 0)]
        if not held[place] and positive.size:
            small = _SMALL * float(positive.min())
            known = np.isfinite(column)
            logs[known, place] = np.log(np.where(column[known] > 0, column[known], small))
    present = np.isfinite(logs)
    count = present.sum(axis=0).astype(np.float64)
    total = np.maximum(count, 1.0)
    mean = np.nansum(np.where(present, logs, 0.0), axis=0) / total
    squares = np.nansum(np.where(present, (logs - mean) ** 2 + variances, 0.0), axis=0) / total
    freedom = np.maximum(count - 1.0, 0.0)
    own = np.where(freedom > 0, squares * count / np.maximum(freedom, 1e-9), 0.0)
    known = freedom > 0
    usual = np.full(len(parameters), float(np.median(own[known])) if known.any() else _USUAL_SPREAD**2)
    if stated is not None:
        usual = np.array([stated.parameters[name].spread ** 2 for name in parameters])
    spread = np.sqrt((_USUAL_DEVICES * usual + freedom * own) / (_USUAL_DEVICES + freedom))
    # The mean of few devices is itself not known, nor is their spread.
    widening = student_quantile(_PROBABILITY, _USUAL_DEVICES + freedom) / student_quantile(_PROBABILITY, 1e9)
    spread = np.maximum(spread * np.sqrt(1.0 + 1.0 / np.maximum(count, 1.0)) * widening, _LEAST_SPREAD)
    entries = {
        name: ParameterPrior(-math.inf, 0.0)
        if held[place] or not present[:, place].any()
        else ParameterPrior(float(mean[place]), float(spread[place]))
        for place, name in enumerate(parameters)
    }
    return Prior(entries, noise, names)


def _is_held(model: Model, name: str, column: Array) -> bool:
    """Return whether a parameter is held at zero: a cost that no source has, a shape that says that costs are added."""
    from perflex.expression.roles import find_roles

    known = column[np.isfinite(column)]
    zeros = int(np.sum(known <= 0))
    if name in find_roles(model.tree).costs:
        return zeros == len(known)
    return 2 * zeros >= max(len(known), 1)


def _kept(model: Model, source: CalibrationRecord, name: str) -> SourceFit:
    count, residuals = len(model.params()), np.empty(0)
    if usual_description(model) is not None:
        residuals = -np.log1p(np.maximum(np.asarray(source.fit.relative_errors), _LEAST_NOISE - 1.0))
    return SourceFit(name, source.fit.vector, np.zeros(count), residuals)


def _refitted(model: Model, table: FeatureTable, prior: Prior, name: str) -> SourceFit:
    """Return a source fitted to its rows with the prior, each row weighing as the source's own noise says."""
    fit = fit_with_prior(model, table, prior, precise=False)
    residuals = -np.log1p(np.maximum(np.asarray(fit.relative_errors), _LEAST_NOISE - 1.0))
    logs = posterior_of_logarithms(fit)
    return SourceFit(name, fit.vector, np.diag(logs), residuals)
