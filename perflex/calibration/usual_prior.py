"""Fits of ready models whose parameters have usual values: what is measured corrects these."""

from __future__ import annotations

from functools import lru_cache
from math import log
from typing import TYPE_CHECKING

import numpy as np

from perflex.calibration.calibration import Calibration
from perflex.calibration.gathering import info_of
from perflex.calibration.transfer_prior import NORMAL, USUAL, TransferPrior
from perflex.fit.options import ParameterPrior, Prior
from perflex.fit.posterior import fit_with_prior
from perflex.fit.table import FeatureTable
from perflex.models import load_model, model_names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.expression.model import Model
    from perflex.fit.result import FitResult
    from perflex.models import ModelDescription

SPREAD = 0.2
"""Standard deviation of a parameter's logarithm, over devices, about its usual value."""
NOISE = 0.15
"""Standard deviation of a row's residual, in the logarithm."""
# So many rows of one generator say something new: a model is off by much the same in all of them.
_INDEPENDENT = 4


def fit_about_usual(description: ModelDescription, table: FeatureTable) -> FitResult:
    """Fit a ready model's parameters, with its usual values as a prior.

    Of the rows of one generator, such as the configurations of one problem, the fast ones count more: a row that takes
    twice as long as the fastest weighs half. All together count as a few.
    """
    model = description.model(table.output)
    prior = _about(description.usual)
    seconds = table.column(model.output_feature)
    groups = np.array(table.groups or table.kernels)
    _, place, count = np.unique(groups, return_inverse=True, return_counts=True)
    best = np.full(len(count), np.inf)
    np.minimum.at(best, place, seconds)
    weight = best[place] / seconds * np.minimum(1.0, _INDEPENDENT / count[place])
    return fit_with_prior(model, table, prior, deviations=NOISE / np.sqrt(weight))


def _about(usual: Mapping[str, float]) -> Prior:
    return Prior({name: ParameterPrior(log(value), SPREAD) for name, value in usual.items()}, NOISE, (USUAL,))


@lru_cache
def usual_values(model: Model) -> Mapping[str, float]:
    """Return the usual values of a model's parameters; empty unless it is a ready model that has them."""
    ready = (load_model(name) for name in model_names())
    return next((one.usual for one in ready if one.usual and one.expression == model.expression), {})


def usual_calibration(description: ModelDescription, machine: str) -> Calibration:
    """Return what a ready model's usual values say of a machine, given by its name or file, without any time of it.

    Intervals are as wide as the parameters' spread over devices and a row's residual are.
    """
    model = description.model()
    names = tuple(model.all_features())
    info = info_of(model.input_features())
    table = FeatureTable(model.output_feature, names, (), np.empty((0, len(names))), info=info, machine=machine)
    return Calibration(
        model=model,
        fit=fit_with_prior(model, table, _about(description.usual)),
        table=table,
        device={"name": machine},
        machine=machine,
        transferred=TransferPrior((USUAL,), 0, unknown=NOISE, limits=NORMAL),
    )
