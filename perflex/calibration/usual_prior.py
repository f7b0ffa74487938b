"""Fits of ready models whose parameters have usual values: what is measured corrects these."""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING

import numpy as np

from perflex.fit.options import ParameterPrior, Prior
from perflex.fit.posterior import fit_with_prior

if TYPE_CHECKING:
    from perflex.fit.result import FitResult
    from perflex.fit.table import FeatureTable
    from perflex.models import ModelDescription

# Standard deviation of a parameter's logarithm about its usual value, and of a row's residual.
_SPREAD = 0.2
_NOISE = 0.15
# So many rows of one generator say something new: a model is off by much the same in all of them.
_INDEPENDENT = 4


def fit_about_usual(description: ModelDescription, table: FeatureTable) -> FitResult:
    """Fit a ready model's parameters, with its usual values as a prior.

    Of the rows of one generator, such as the configurations of one problem, the fast ones count more: a row that takes
    twice as long as the fastest weighs half. All together count as a few.
    """
    model = description.model(table.output)
    prior = Prior({name: ParameterPrior(log(value), _SPREAD) for name, value in description.usual.items()}, _NOISE)
    seconds = table.column(model.output_feature)
    groups = np.array(table.groups or table.kernels)
    _, place, count = np.unique(groups, return_inverse=True, return_counts=True)
    best = np.full(len(count), np.inf)
    np.minimum.at(best, place, seconds)
    weight = best[place] / seconds * np.minimum(1.0, _INDEPENDENT / count[place])
    return fit_with_prior(model, table, prior, deviations=_NOISE / np.sqrt(weight))
