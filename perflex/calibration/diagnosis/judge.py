"""From a calibration to its diagnosis."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from perflex.calibration.diagnosis.compare import aicc
from perflex.calibration.diagnosis.findings import findings_of
from perflex.calibration.diagnosis.linear import LinearFit
from perflex.calibration.diagnosis.result import (
    CorrelatedPair,
    Diagnosis,
    GeneratorDiagnosis,
    Informant,
    KernelDiagnosis,
    ParameterDiagnosis,
)
from perflex.calibration.held_out import (
    HeldOut,
    generators_of,
    held_out_by_generator,
    relative_errors,
    root_mean_square,
)
from perflex.calibration.left_out import held_out_nearby
from perflex.calibration.uncertainty import (
    free_parameters,
    posed_as_fitted,
    student_quantile,
    vector,
    without_bound,
)
from perflex.errors import CalibrationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from perflex.calibration.record import CalibrationRecord
    from perflex.fit.problem import Problem
    from perflex.fit.result import FitResult
    from perflex.fit.table import FeatureTable

    Array = NDArray[np.float64]

STRONG_CORRELATION = 0.95
_CONFIDENCE = 0.95
# Full refits of models with more take minutes; cheap ones differ by less than 5 % for 99 % of their kernels.
_MANY_PARAMETERS = 24
# Errors in the file and errors computed from its values and parameters agree to rounding.
_SAME_ERROR = 1e-6


def diagnose(calibration: CalibrationRecord, *, progress: Callable[[int, int, str], None] | None = None) -> Diagnosis:
    """Judge a calibration: what its parameters rest on, and what its predictions are worth.

    Parameters
    ----------
    calibration
        A calibration, e.g. ``Calibration.load(path)``. Files of earlier versions keep no measured values; what
        needs them is then left out, and `Diagnosis.missing` says so.
    progress
        Called with (done, total, generator) while generators are held out, which refits the model for each; models of
        more than 24 free parameters by cheap refits (`perflex.fit.nearby`).

    Returns
    -------
    Diagnosis
        Findings in words, and everything they rest on as data.

    Raises
    ------
    CalibrationError
        The measured values and the parameters do not belong together, or the model is not finite there.
    """
    fit, table = calibration.fit, calibration.table
    problem = linear = None
    held_out: dict[str, HeldOut] = {}
    if table is not None:
        problem = posed_as_fitted(calibration.model, table, fit)
        linear = _linear(calibration, table, problem)
        held_out = {entry.generator: entry for entry in _held_out(calibration, table, progress)}
    owners = generators_of(fit.kernels, table)
    kernels = _with_held_out(_kernels(fit, table, problem, linear, owners), held_out)
    facts = Diagnosis(
        findings=(),
        parameters=_parameters(fit, problem, linear, owners),
        kernels=kernels,
        generators=_generators(fit, owners, held_out),
        correlation=fit.correlation,
        correlated=_correlated(fit),
        condition_number=fit.condition_number,
        degrees_of_freedom=fit.degrees_of_freedom,
        error=root_mean_square(fit.relative_errors),
        geometric_mean_error=fit.geometric_mean_error,
        left_out_error=root_mean_square(kernel.left_out_error for kernel in kernels),
        held_out_error=root_mean_square(error for entry in held_out.values() for error in entry.errors),
        aicc=aicc(fit),
        noise_floor=math.nan if calibration.noise_floor is None else calibration.noise_floor,
        missing=_missing(table, linear),
        title=" ".join(str(part) for part in (calibration.device.get("name", ""), calibration.date) if part),
    )
    return replace(facts, findings=findings_of(fit, facts))


def _held_out(
    calibration: CalibrationRecord, table: FeatureTable, progress: Callable[[int, int, str], None] | None
) -> tuple[HeldOut, ...]:
    """Hold out by generator, not by kernel: kernels of one are so alike that the others would give each away."""
    model, fit = calibration.model, calibration.fit
    if fit.scaled and len(free_parameters(fit)) > _MANY_PARAMETERS:
        return held_out_nearby(model, fit, table, progress)
    return held_out_by_generator(
        model,
        table,
        nonnegative=bool(fit.nonnegative),
        start=fit,
        progress=progress,
        loss=fit.loss,
        bounds=fit.bounds,
    )


def _missing(table: FeatureTable | None, linear: LinearFit | None) -> str:
    if table is None:
        cause = "the calibration does not keep its measured values (it was made by an earlier version)"
        return f"{cause}: calibrate again to see leverage, what informs each parameter, and cross-validation"
    return "" if linear is not None else "all parameters are fixed, so that leverage and residuals are not defined"


def _linear(calibration: CalibrationRecord, table: FeatureTable, problem: Problem) -> LinearFit | None:
    """Return the linearised fit over the free parameters; None if there are none."""
    fit = calibration.fit
    # A file that was edited by hand may hold parameters of one fit and kernels of another.
    expected = np.array(relative_errors(calibration.model, fit, table))
    kept = np.array(fit.relative_errors)
    if not np.allclose(expected, kept, rtol=_SAME_ERROR, atol=_SAME_ERROR, equal_nan=True):
        worst = fit.kernels[int(np.nanargmax(np.abs(expected - kept)))]
        cause = f"the parameters give {worst} another error from its measured values than the calibration states"
        msg = f"{cause}; the file is inconsistent; calibrate again"
        raise CalibrationError(msg, kernel=worst)
    free = free_parameters(fit)
    jacobian, pseudo = problem.regression(vector(fit), len(free))
    if not np.isfinite(jacobian).all():
        msg = f"the model {calibration.model.expression!r} has no finite derivatives at its parameters; fit it again"
        raise CalibrationError(msg, model=calibration.model)
    if not free:
        return None
    if problem.loss is None:
        return LinearFit(jacobian[:, free], pseudo)
    return LinearFit(jacobian[:, free], problem.plain_residual(vector(fit)), pseudo, fit.robust_deviation)


def _kernels(
    fit: FitResult,
    table: FeatureTable | None,
    problem: Problem | None,
    linear: LinearFit | None,
    owners: Sequence[str],
) -> tuple[KernelDiagnosis, ...]:
    errors = np.array(fit.relative_errors)
    nothing = np.full(len(errors), np.nan)
    left_out = leverage = studentised = cooks = measured = spread = nothing
    if table is not None:
        measured = table.values[:, 0]
        spread = nothing if table.spread is None else table.spread
    if linear is not None:
        leverage, studentised, cooks = linear.leverage, linear.studentised, linear.cooks_distance
        # Residuals of a relative fit are relative errors, or logarithms; others are divided by the output.
        left_out = linear.left_out if fit.scaled else linear.left_out / measured
        if problem is not None and problem.loss is not None and problem.logarithmic:
            left_out = np.expm1(left_out)
    columns = (errors, left_out, measured, measured * (1 + errors), spread, leverage, studentised, cooks)
    return tuple(
        KernelDiagnosis(name, owner, *map(float, row))
        for name, owner, row in zip(fit.kernels, owners, np.column_stack(columns), strict=True)
    )


def _with_held_out(kernels: Sequence[KernelDiagnosis], held_out: dict[str, HeldOut]) -> tuple[KernelDiagnosis, ...]:
    # A generator's errors stand in the order of its kernels; there are none where it could not be held out.
    left = {name: iter(entry.errors) for name, entry in held_out.items()}
    nothing: Iterator[float] = iter(())
    return tuple(
        replace(kernel, held_out_error=float(next(left.get(kernel.generator, nothing), math.nan))) for kernel in kernels
    )


def _parameters(
    fit: FitResult, problem: Problem | None, linear: LinearFit | None, owners: Sequence[str]
) -> tuple[ParameterDiagnosis, ...]:
    free = free_parameters(fit)
    kernels, generators = _informants(fit, linear, owners)
    reach = student_quantile((1 + _CONFIDENCE) / 2, fit.degrees_of_freedom)
    found = []
    for index, p in enumerate(fit.parameters):
        freed = None
        if problem is not None and p.at_bound and p.determined and fit.degrees_of_freedom > 0:
            freed = without_bound(problem, fit, free, index)
        low, high = fit.interval(p.name)
        if math.isnan(low):  # not determined, or from a file of an earlier version
            low, high = p.value - reach * p.standard_error, p.value + reach * p.standard_error
        found.append(
            ParameterDiagnosis(
                p.name,
                p.value,
                p.unit,
                p.kind,
                p.standard_error,
                low,
                high,
                # False where there is no standard error: nan compares false.
                low <= 0 <= high,
                p.negative,
                p.at_bound,
                p.determined,
                math.nan if freed is None else p.value + float(freed.direction[index]) * freed.value,
                math.nan if freed is None else freed.standard_error,
                _of(kernels, free, index),
                _of(generators, free, index),
            )
        )
    return tuple(found)


def _of(informants: list[tuple[Informant, ...]], free: list[int], index: int) -> tuple[Informant, ...]:
    return informants[free.index(index)] if informants and index in free else ()


def _informants(
    fit: FitResult, linear: LinearFit | None, owners: Sequence[str]
) -> tuple[list[tuple[Informant, ...]], list[tuple[Informant, ...]]]:
    """Return the kernels and the generators that inform each free parameter, the most informative first."""
    if linear is None:
        return [], []
    share, growth = linear.information, linear.growth
    names = list(dict.fromkeys(owners))
    masks = [np.array([owner == name for owner in owners]) for name in names]
    group_share = np.array([share[mask].sum(axis=0) for mask in masks])
    group_growth = np.array([linear.growth_without(mask) for mask in masks])
    columns = range(share.shape[1])
    return (
        [_ordered(fit.kernels, share[:, column], growth[:, column]) for column in columns],
        [_ordered(names, group_share[:, column], group_growth[:, column]) for column in columns],
    )


def _ordered(names: Sequence[str], share: Array, growth: Array) -> tuple[Informant, ...]:
    order = np.argsort(-share, kind="stable")
    return tuple(Informant(names[i], float(share[i]), float(growth[i])) for i in order)


def _generators(fit: FitResult, owners: Sequence[str], held_out: dict[str, HeldOut]) -> tuple[GeneratorDiagnosis, ...]:
    found = []
    for name in dict.fromkeys(owners):
        errors = np.array([e for e, owner in zip(fit.relative_errors, owners, strict=True) if owner == name])
        entry = held_out.get(name, HeldOut(name, ()))
        outside = np.array(entry.errors)
        found.append(
            GeneratorDiagnosis(
                name,
                len(errors),
                root_mean_square(errors),
                float(np.mean(errors)),
                root_mean_square(outside),
                float(np.mean(outside)) if outside.size else math.nan,
                # What the whole fit leaves open as well is no merit of this generator.
                tuple(p for p in entry.undetermined if p not in fit.undetermined),
                entry.reason,
            )
        )
    return tuple(found)


def _correlated(fit: FitResult) -> tuple[CorrelatedPair, ...]:
    correlation = fit.correlation
    names = list(fit)
    pairs = [
        CorrelatedPair(names[i], names[j], float(correlation[i, j]))
        for i in range(len(names))
        for j in range(i)
        if abs(correlation[i, j]) > STRONG_CORRELATION
    ]
    return tuple(sorted(pairs, key=lambda pair: -abs(pair.correlation)))
