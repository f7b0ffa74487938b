"""Sources as transfer sees them: parameters and residuals under one prior, times by label, distances.

And what sources and samples together say of each kernel on the target.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from perflex.calibration.times.named_kernels import label_key
from perflex.calibration.transfer.priors import prior_of_fits
from perflex.calibration.transfer.residuals import Residuals, carry_over
from perflex.calibration.transfer_prior import TransferPrior, TransferTerm
from perflex.fit.posterior import fit_with_prior

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from numpy.typing import NDArray

    from perflex.calibration.transfer.priors import SourceFit
    from perflex.calibration.transfer.residuals import Components
    from perflex.expression.model import HasParams, Model
    from perflex.fit.options import Prior
    from perflex.fit.result import FitResult
    from perflex.fit.table import FeatureTable
    from perflex.machines.machine import Machine

    Array = NDArray[np.float64]

FEWEST_TO_SPARE_ONE = 3
"""Samples from which on the farthest does not count in the question whether a device is unlike the sources."""


def counted_samples(count: int) -> int:
    """Return how many of so many samples count in that question, at least one."""
    return max(count - 1 if count >= FEWEST_TO_SPARE_ONE else count, 1)


def log_times(model: Model, table: FeatureTable) -> dict[str, float]:
    """Return the logarithm of each row's output, by label."""
    return dict(zip(table.kernels, np.log(table.column(model.output_feature)).tolist(), strict=True))


def labelled_alike(tables: Sequence[FeatureTable]) -> tuple[FeatureTable, ...]:
    """Return tables in which each kernel has the label of the first, in whichever order its sizes are stated."""
    first: dict[Hashable, str] = {}
    return tuple(
        replace(table, kernels=tuple(first.setdefault(label_key(label), label) for label in table.kernels))
        for table in tables
    )


@dataclass(frozen=True, eq=False)
class Sources:
    """Devices that something is known of."""

    model: Model
    # Each source under the prior of all, and its rows.
    fits: tuple[SourceFit, ...]
    tables: tuple[FeatureTable, ...]
    # Of all devices, the target last, shape ``(d + 1, d + 1)``.
    distance: NDArray[np.float64]
    components: Components
    # The prior's deviation of rows.
    noise: float

    def prior(self, chosen: Sequence[int]) -> Prior:
        """Return the prior of some sources."""
        return prior_of_fits(self.model, [self.fits[i] for i in chosen], self.noise)

    def residuals(self, chosen: Sequence[int]) -> Residuals:
        """Return the residuals of some sources."""
        return residuals_of(self.fits, self.tables, chosen)

    def times(self, chosen: Sequence[int]) -> list[dict[str, float]]:
        """Return the logarithms of some sources' times by label."""
        return [log_times(self.model, self.tables[i]) for i in chosen]


def residuals_of(fits: Sequence[SourceFit], tables: Sequence[FeatureTable], chosen: Sequence[int]) -> Residuals:
    """Return the residuals of some sources, numbered as in the list."""
    found = Residuals(np.empty(0, dtype=np.intp), (), (), np.empty(0))
    for i in chosen:
        table = tables[i]
        if len(fits[i].residuals) == len(table):
            device = np.full(len(table), i, dtype=np.intp)
            found = found.and_also(Residuals(device, table.generators, table.kernels, fits[i].residuals))
    return found


@dataclass(frozen=True, eq=False)
class TargetFit:
    """The target's parameters, and how far its samples lie from what was expected of them."""

    fit: FitResult
    # Of the sources and of the samples.
    residuals: Residuals
    # Squared distance of the samples from what the prior predicts, in its standard deviations, over all directions.
    surprise: float


def fit_target(
    sources: Sources, chosen: Sequence[int], samples: FeatureTable, target: int, *, precise: bool = True
) -> TargetFit:
    """Return the target's fit from some sources and its samples, of which there may be none."""
    model, components = sources.model, sources.components
    prior, residuals = sources.prior(chosen), sources.residuals(chosen)
    asked = list(zip(samples.generators, samples.kernels, strict=True))
    carried = carry_over(residuals, components, sources.distance, target, asked, whole=False)
    counts = np.array([sum(program == other for other, _ in asked) for program, _ in asked], dtype=np.float64)
    own = np.maximum(carried.deviation**2 - carried.shared**2, 0.0)
    # Rows of one program that err alike tell of the parameters together what one of them would.
    deviations = np.sqrt(own + counts * carried.shared**2)
    place = samples.features.index(model.output_feature)
    corrected = samples.values.copy()
    corrected[:, place] *= np.exp(-carried.correction)
    table = replace(samples, values=corrected, spread=None, repeatability=None)
    starts = [dict(zip(model.params(), sources.fits[i].parameters.tolist(), strict=True)) for i in chosen[:1]]
    fit = fit_with_prior(model, table, prior, deviations=deviations, starts=starts, precise=precise)
    measured = np.log(samples.values[:, place])
    predicted = _log_predictions(model, fit, samples)
    own_residuals = Residuals(
        np.full(len(samples), target, dtype=np.intp), samples.generators, samples.kernels, measured - predicted
    )
    surprise = _surprise(model, prior, samples, measured - carried.correction, own, carried.shared)
    return TargetFit(fit, residuals.and_also(own_residuals), surprise)


def log_gradient(model: Model, parameters: Array, table: FeatureTable) -> Array:
    """Return the derivatives of the logarithm of predictions by those of the parameters, shape ``(m, n)``."""
    names = model.params()
    values = table.columns(model.input_features())
    point = dict(zip(names, map(float, parameters), strict=True))
    derivatives = model.derivatives({**values, **point}, len(table))
    predicted = np.broadcast_to(np.asarray(model.evaluate(point, values), dtype=np.float64), (len(table),))
    gradient: Array = derivatives * parameters / predicted[:, None]
    return gradient


def _log_predictions(model: Model, parameters: Mapping[str, float] | HasParams, table: FeatureTable) -> Array:
    values = table.columns(model.input_features())
    predicted = np.asarray(model.evaluate(parameters, values), dtype=np.float64)
    return np.log(np.broadcast_to(predicted, (len(table),)))


def _surprise(model: Model, prior: Prior, samples: FeatureTable, observed: Array, own: Array, shared: Array) -> float:
    """Return the squared Mahalanobis distance of the samples from the prior's predictions, all but the farthest.

    One sample may be far off because its kernel is strange; of a device that is strange others are far off, too.
    """
    if not len(samples):
        return 0.0
    medians = np.array([prior[name].median for name in model.params()])
    gradient = log_gradient(model, medians, samples)
    spread = np.array([prior[name].spread for name in model.params()])
    programs = np.array(samples.generators)
    together = programs[:, None] == programs[None, :]
    covariance = (gradient * spread) @ (gradient * spread).T + together * np.outer(shared, shared) + np.diag(own)
    off = observed - _log_predictions(model, prior.medians(), samples)
    inverse = np.linalg.inv(covariance + 1e-12 * np.eye(len(off)))
    weighed = inverse @ off
    whole = float(off @ weighed)
    if len(off) < FEWEST_TO_SPARE_ONE:
        return whole
    # Without row i it is whole - weighed[i]**2 / inverse[i, i]: the inverse of a matrix less one row and column.
    return whole - float(np.max(weighed**2 / np.diag(inverse)))


# What the time of a kernel follows beyond the peaks: how much is on the device, and what of it is shared.
_FACTS = (
    "compute_units",
    "clock_hz",
    "l1_bytes",
    "l2_bytes",
    "l2_bandwidth",
    "dram_bandwidth",
    "dram_latency",
    "local_bytes",
    "max_items_per_unit",
    "max_groups_per_unit",
    "compute_capability",
    "fp32_per_cycle",
    "fp64_per_cycle",
)


def distances(machines: Sequence[Machine | None]) -> Array:
    """Return how far apart devices are: root mean square of the logarithms of ratios of their facts.

    Over the facts that all machines have, so that the distance is Euclidean; infinite to one that is not known.
    """
    found = np.where(np.eye(len(machines), dtype=bool), 0.0, np.inf)
    places = [place for place, machine in enumerate(machines) if machine is not None]
    facts = [machine.known() for machine in machines if machine is not None]
    shared = [name for name in _FACTS if facts and all(known.get(name, 0.0) > 0 for known in facts)]
    if not shared:
        return found
    points = np.log([[known[name] for name in shared] for known in facts])
    found[np.ix_(places, places)] = np.sqrt(np.mean((points[:, None] - points[None, :]) ** 2, axis=2))
    return found


def transfer_prior(
    sources: Sources,
    chosen: Sequence[int],
    target: TargetFit,
    samples: FeatureTable,
    number: int,
    asked: Sequence[tuple[str, str]],
) -> TransferPrior:
    """Return what is carried over to a target, of the model alone; its limits and conflict are not known yet."""
    components = sources.components
    carried = carry_over(target.residuals, components, sources.distance, number, asked)
    timed = set(target.residuals.kernels)
    times = one_factor_log_times(sources.times(chosen), log_times(sources.model, samples))
    kernels = {
        label: TransferTerm(float(mean), float(deviation), program, times.get(label))
        for (program, label), mean, deviation in zip(asked, carried.correction, carried.deviation, strict=True)
        if label in timed
    }
    programs = {program: TransferTerm(*pair) for program, pair in carried.programs.items()}
    unknown = float(np.hypot(components.unseen, components.noise))
    names = tuple(sources.fits[i].name for i in chosen)
    return TransferPrior(names, len(samples), kernels, programs, unknown)


# As how many samples the usual scatter between two sources counts.
_USUAL_SAMPLES = 3.0
_LEAST_SCATTER = 1e-3
# Labels that two sources need in common to tell how their ratio scatters.
_FEWEST_COMMON = 3
_USUAL_SCATTER = 0.3


def one_factor_log_times(sources: Sequence[Mapping[str, float]], samples: Mapping[str, float]) -> dict[str, float]:
    """Return the logarithm of the time of each label that sources have timed, by one factor of each source."""
    usual = _usual_scatter(sources)
    factors: list[tuple[Mapping[str, float], float, float]] = []
    for times in sources:
        ratios = np.array([value - times[label] for label, value in samples.items() if label in times])
        if len(ratios):
            factor = float(np.median(ratios))
            squares = float(np.sum((ratios - factor) ** 2)) + _USUAL_SAMPLES * usual**2
            factors.append((times, factor, squares / (len(ratios) + _USUAL_SAMPLES)))
    sums: dict[str, float] = {}
    weights: dict[str, float] = {}
    for times, factor, variance in factors:
        # Sources that follow twice as closely count sixteen times: the nearest decides, if one is clearly so.
        weight = variance**-2.0
        for label, value in times.items():
            sums[label] = sums.get(label, 0.0) + weight * (value + factor)
            weights[label] = weights.get(label, 0.0) + weight
    return {label: total / weights[label] for label, total in sums.items()}


def _usual_scatter(sources: Sequence[Mapping[str, float]]) -> float:
    """Return the usual standard deviation of the ratio of two sources' times, in the logarithm."""
    found = []
    for place, first in enumerate(sources):
        for second in sources[place + 1 :]:
            ratios = np.array([value - second[label] for label, value in first.items() if label in second])
            if len(ratios) >= _FEWEST_COMMON:
                found.append(float(np.std(ratios)))
    return max(float(np.median(found)), _LEAST_SCATTER) if found else _USUAL_SCATTER
