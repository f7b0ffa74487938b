"""Sources as transfer sees them: parameters and residuals under one prior, times by label, distances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from perflex.calibration.transfer.priors import prior_of_fits
from perflex.calibration.transfer.residuals import Residuals, carry_over
from perflex.fit.posterior import fit_with_prior
from perflex.fit.table import FeatureTable, scale_features_by_output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from perflex.calibration.transfer.priors import SourceFit
    from perflex.calibration.transfer.residuals import Components
    from perflex.expression.model import Model
    from perflex.fit.loss import Loss
    from perflex.fit.prior import Prior
    from perflex.fit.result import FitResult

    Array = NDArray[np.float64]

FEWEST_TO_SPARE_ONE = 3
"""Samples from which on the farthest does not count in the question whether a device is unlike the sources."""


def counted_samples(count: int) -> int:
    """Return how many of so many samples count in that question, at least one."""
    return max(count - 1 if count >= FEWEST_TO_SPARE_ONE else count, 1)


def programs_of(table: FeatureTable) -> tuple[str, ...]:
    """Return the program of each row: its group, or what its label begins with."""
    return table.groups or tuple(label.partition("(")[0] for label in table.kernels)


def log_times(model: Model, table: FeatureTable) -> dict[str, float]:
    """Return the logarithm of each row's output, by label."""
    return dict(zip(table.kernels, np.log(table.column(model.output_feature)).tolist(), strict=True))


@dataclass(frozen=True, eq=False)
class Sources:
    """Devices that something is known of.

    Attributes
    ----------
    model
        The model.
    fits
        Each source under the prior of all.
    tables
        Its rows; None where they were not kept.
    distance
        Of all devices, the target last, shape ``(d + 1, d + 1)``.
    components
        The parts' deviations of residuals.
    noise
        The prior's deviation of rows.
    """

    model: Model
    fits: tuple[SourceFit, ...]
    tables: tuple[FeatureTable | None, ...]
    distance: NDArray[np.float64]
    components: Components
    noise: float

    def prior(self, chosen: Sequence[int]) -> Prior:
        """Return the prior of some sources."""
        return prior_of_fits(self.model, [self.fits[i] for i in chosen], self.noise)

    def residuals(self, chosen: Sequence[int]) -> Residuals:
        """Return the residuals of some sources."""
        return residuals_of(self.fits, self.tables, chosen)

    def times(self, chosen: Sequence[int]) -> list[dict[str, float]]:
        """Return the logarithms of some sources' times by label."""
        return [log_times(self.model, table) for i in chosen if (table := self.tables[i]) is not None]


def residuals_of(fits: Sequence[SourceFit], tables: Sequence[FeatureTable | None], chosen: Sequence[int]) -> Residuals:
    """Return the residuals of some sources, numbered as in the list."""
    found = Residuals(np.empty(0, dtype=np.intp), (), (), np.empty(0))
    for i in chosen:
        table = tables[i]
        if table is not None and len(fits[i].residuals) == len(table):
            device = np.full(len(table), i, dtype=np.intp)
            found = found.and_also(Residuals(device, programs_of(table), table.kernels, fits[i].residuals))
    return found


@dataclass(frozen=True, eq=False)
class TargetFit:
    """The target's parameters, and how far its samples lie from what was expected of them.

    Attributes
    ----------
    fit
        The posterior of the model's parameters.
    residuals
        Of the sources and of the samples.
    surprise
        Squared distance of the samples from what the prior predicts, in its standard deviations, over all directions.
    """

    fit: FitResult
    residuals: Residuals
    surprise: float


def fit_target(
    sources: Sources, chosen: Sequence[int], samples: FeatureTable, target: int, loss: Loss, *, precise: bool = True
) -> TargetFit:
    """Return the target's fit from some sources and its samples, of which there may be none."""
    model, components = sources.model, sources.components
    prior, residuals = sources.prior(chosen), sources.residuals(chosen)
    asked = list(zip(programs_of(samples), samples.kernels, strict=True))
    carried = carry_over(residuals, components, sources.distance, target, asked, whole=False)
    counts = np.array([sum(program == other for other, _ in asked) for program, _ in asked], dtype=np.float64)
    own = np.maximum(carried.deviation**2 - carried.shared**2, 0.0)
    # Rows of one program that err alike tell of the parameters together what one of them would.
    deviations = np.sqrt(own + counts * carried.shared**2)
    place = samples.features.index(model.output_feature)
    corrected = samples.values.copy()
    corrected[:, place] *= np.exp(-carried.correction)
    table = scale_features_by_output(
        FeatureTable(
            model.output_feature,
            samples.features,
            samples.kernels,
            corrected,
            groups=samples.groups,
            info=samples.info,
            sub_group_size=samples.sub_group_size,
        )
    )
    starts = [dict(zip(model.params(), sources.fits[i].parameters.tolist(), strict=True)) for i in chosen[:1]]
    fit = fit_with_prior(model, table, prior, deviations=deviations, starts=starts, loss=loss, precise=precise)
    measured = np.log(samples.values[:, place])
    predicted = _log_predictions(model, fit, samples)
    own_residuals = Residuals(
        np.full(len(samples), target, dtype=np.intp), programs_of(samples), samples.kernels, measured - predicted
    )
    surprise = _surprise(model, prior, samples, measured - carried.correction, own, carried.shared)
    return TargetFit(fit, residuals.and_also(own_residuals), surprise)


def log_gradient(model: Model, parameters: Array, table: FeatureTable) -> Array:
    """Return the derivatives of the logarithm of predictions by those of the parameters, shape ``(m, n)``."""
    names = model.params()
    values = {name: table.column(name) for name in model.input_features()}
    point = dict(zip(names, map(float, parameters), strict=True))
    derivatives = model.compiled.derivatives({**values, **point}, len(table))
    predicted = np.broadcast_to(np.asarray(model.evaluate(point, values), dtype=np.float64), (len(table),))
    gradient: Array = derivatives * parameters / predicted[:, None]
    return gradient


def _log_predictions(model: Model, fit: FitResult, table: FeatureTable) -> Array:
    values = {name: table.column(name) for name in model.input_features()}
    predicted: Array = np.log(np.broadcast_to(np.asarray(model.evaluate(fit, values), dtype=np.float64), (len(table),)))
    return predicted


def _surprise(model: Model, prior: Prior, samples: FeatureTable, observed: Array, own: Array, shared: Array) -> float:
    """Return the squared Mahalanobis distance of the samples from the prior's predictions, all but the farthest.

    One sample may be far off because its kernel is strange; of a device that is strange others are far off, too.
    """
    if not len(samples):
        return 0.0
    medians = np.array([prior[name].median for name in model.params()])
    gradient = log_gradient(model, medians, samples)
    spread = np.array([prior[name].spread for name in model.params()])
    programs = np.array(programs_of(samples))
    together = programs[:, None] == programs[None, :]
    covariance = (gradient * spread) @ (gradient * spread).T + together * np.outer(shared, shared) + np.diag(own)
    values = {name: samples.column(name) for name in model.input_features()}
    expected = np.log(np.asarray(model.evaluate(prior.medians(), values), dtype=np.float64))
    off = observed - expected
    inverse = np.linalg.inv(covariance + 1e-12 * np.eye(len(off)))
    weighed = inverse @ off
    whole = float(off @ weighed)
    if len(off) < FEWEST_TO_SPARE_ONE:
        return whole
    # Without row i it is whole - weighed[i]**2 / inverse[i, i]: the inverse of a matrix less one row and column.
    return whole - float(np.max(weighed**2 / np.diag(inverse)))
