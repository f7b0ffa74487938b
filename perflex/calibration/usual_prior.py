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
_SPREAD = 0.35
_NOISE = 0.15


def fit_about_usual(description: ModelDescription, table: FeatureTable) -> FitResult:
    """Fit a ready model's parameters, with its usual values as a prior.

    Of the rows of one generator, such as the configurations of one problem, the fast ones count more: a row that takes
    twice as long as the fastest weighs half.
    """
    model = description.model(table.output)
    prior = Prior({name: ParameterPrior(log(value), _SPREAD) for name, value in description.usual.items()}, _NOISE)
    seconds = table.column(model.output_feature)
    groups = np.array(table.groups or table.kernels)
    best = {group: seconds[groups == group].min() for group in dict.fromkeys(groups.tolist())}
    slower = seconds / np.array([best[group] for group in groups.tolist()])
    return fit_with_prior(model, table, prior, deviations=_NOISE * np.sqrt(slower))
