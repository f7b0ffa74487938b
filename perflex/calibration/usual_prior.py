"""Fits of ready models whose parameters have usual values: what is measured corrects these."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import log
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.calibration.gathering import info_of
from perflex.calibration.transfer_prior import NORMAL, USUAL, TransferPrior
from perflex.fit.options import ParameterPrior, Prior
from perflex.fit.posterior import fit_with_prior
from perflex.fit.table import FeatureTable
from perflex.models import load_model, model_names

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perflex.expression.model import Model
    from perflex.fit.result import FitResult
    from perflex.models import ModelDescription

    Array = NDArray[np.float64]

NOISE = 0.15
"""Standard deviation of a row's residual, in the logarithm."""
# So many rows of one generator say something new: a model is off by much the same in all of them.
_INDEPENDENT = 4
# Generators are left out in so many parts at most: each is a fit.
_MOST_FOLDS = 20


def fit_about_usual(description: ModelDescription, table: FeatureTable) -> FitResult:
    """Fit a ready model's parameters, with its usual values as a prior.

    All rows of one generator count together as a few. Of the configurations of one problem the fast ones count more: a
    row that takes twice as long as the fastest weighs half. The generators of a general model are no such problems. The
    deviation of its residuals is that of generators that are predicted by a fit to the others.
    """
    model = description.model(table.output)
    seconds = table.column(model.output_feature)
    groups = np.array(table.groups or table.kernels)
    _, place, count = np.unique(groups, return_inverse=True, return_counts=True)
    weight = np.minimum(1.0, _INDEPENDENT / count[place])
    if not description.general:
        best = np.full(len(count), np.inf)
        np.minimum.at(best, place, seconds)
        weight = best[place] / seconds * weight
    prior, roots = prior_about(description), np.sqrt(weight)
    if description.general and len(count) > 1:
        folds = place % _MOST_FOLDS
        errors = [_left_out(model, table, prior, roots, folds == number) for number in np.unique(folds)]
        prior = replace(prior, noise=max(NOISE, float(np.sqrt(np.mean(errors)))))
    return fit_with_prior(model, table, prior, deviations=prior.noise / roots)


def _left_out(model: Model, table: FeatureTable, prior: Prior, roots: Array, own: NDArray[np.bool_]) -> float:
    """Return the mean square of the logarithms of what a generator's rows are predicted wrong by from all others."""
    others, rows = table.take(np.flatnonzero(~own).tolist()), table.take(np.flatnonzero(own).tolist())
    fit = fit_with_prior(model, others, prior, deviations=prior.noise / roots[~own], precise=False)
    predicted = model.evaluate(fit, rows.columns(model.input_features()))
    return float(np.mean(np.log(predicted / rows.column(model.output_feature)) ** 2))


def prior_about(description: ModelDescription) -> Prior:
    """Return the prior that a ready model's usual values are."""
    entries = {
        name: ParameterPrior(log(one.usual), one.spread)
        for name, one in description.parameters.items()
        if one.usual is not None
    }
    return Prior(entries, NOISE, (USUAL,))


@lru_cache
def usual_description(model: Model) -> ModelDescription | None:
    """Return the ready model with usual values that a model is; None where there is none."""
    ready = (load_model(name) for name in model_names())
    return next((one for one in ready if one.usual and one.expression == model.expression), None)


def usual_parts(description: ModelDescription) -> dict[str, Any]:
    """Return the parts of a calibration that a ready model's usual values are, without any time.

    Intervals are as wide as the parameters' spread over devices and a row's residual are.
    """
    model = description.model()
    names = tuple(model.all_features())
    info = info_of(model.input_features())
    table = FeatureTable(model.output_feature, names, (), np.empty((0, len(names))), info=info)
    return {
        "model": model,
        "fit": fit_with_prior(model, table, prior_about(description)),
        "table": table,
        "transferred": TransferPrior((USUAL,), 0, unknown=NOISE, limits=NORMAL),
    }
