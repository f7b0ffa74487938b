"""From a calibration to its diagnosis, and what that finds wrong, in words, the gravest first."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from perflex.calibration.cross_validation import Fold, cross_validation, root_mean_square
from perflex.calibration.diagnosis.linear import LinearFit
from perflex.calibration.diagnosis.result import (
    CorrelatedPair,
    Diagnosis,
    Finding,
    GeneratorDiagnosis,
    Informant,
    KernelDiagnosis,
    ParameterDiagnosis,
)
from perflex.calibration.prediction_variance import student_quantile, without_bound
from perflex.errors import CalibrationError
from perflex.fit.identify import STRONG_DEPENDENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from perflex.calibration.record import CalibrationRecord
    from perflex.fit.result import FitResult
    from perflex.fit.table import FeatureTable

    Array = NDArray[np.float64]

STRONG_CORRELATION = 0.95
_CONFIDENCE = 0.95
_ALL_FIXED = "all parameters are fixed, so that leverage and residuals are not defined"
_NOT_ALONE = (
    "the parameters rest on other devices, too, so that the rows alone are not judged: no leverage, no error without a "
    "kernel or its generator; diagnose the sources for these"
)


def diagnose(calibration: CalibrationRecord, *, progress: Callable[[int, int, str], None] | None = None) -> Diagnosis:
    """Judge a calibration: what its parameters rest on, and what its predictions are worth.

    Of one that rests on other devices, too (`transfer`), leverage and predictions by the others are not judged.

    Parameters
    ----------
    calibration
        A calibration, e.g. ``Calibration.load(path)``.
    progress
        Called with (done, total, generator) in cross-validation, which refits the model for each generator.

    Returns
    -------
    Diagnosis
        Findings in words, and everything they rest on as data.

    Raises
    ------
    CalibrationError
        The model has no finite derivatives at its parameters.
    """
    fit, table = calibration.fit, calibration.table
    owners = table.generators
    if fit.prior is None:
        linear, missing = _linear(fit), "" if fit.free else _ALL_FIXED
        folds = {fold.generator: fold for fold in cross_validation(fit, owners, progress)}
    else:
        # Leverage and cross-validation are of rows that alone determine the parameters.
        linear, missing = None, _NOT_ALONE
        folds = {name: Fold(name, np.array(owners) == name, reason="other devices are in the fit") for name in owners}
    kernels = _kernels(fit, table, linear, owners, folds)
    facts = Diagnosis(
        findings=(),
        parameters=_parameters(fit, linear, owners),
        kernels=kernels,
        generators=_generators(fit, owners, folds),
        correlation=fit.correlation,
        correlated=_correlated(fit),
        condition_number=fit.condition_number,
        degrees_of_freedom=fit.degrees_of_freedom,
        error=root_mean_square(fit.relative_errors),
        geometric_mean_error=fit.geometric_mean_error,
        leave_one_out_error=root_mean_square(kernel.leave_one_out_error for kernel in kernels),
        cross_validation_error=root_mean_square(error for fold in folds.values() for error in fold.errors),
        noise_floor=math.nan if calibration.noise_floor is None else calibration.noise_floor,
        missing=missing,
        title=" ".join(str(part) for part in (calibration.device.get("name", ""), calibration.date) if part),
    )
    return replace(facts, findings=findings_of(fit, facts))


def _linear(fit: FitResult) -> LinearFit | None:
    """Return the linearised fit over the free parameters; None if there are none."""
    jacobian = fit.problem.jacobian(fit.vector)
    if not np.isfinite(jacobian).all():
        model = fit.problem.model
        msg = f"the model {model.expression!r} has no finite derivatives at its parameters; fit it again"
        raise CalibrationError(msg, model=model)
    return LinearFit(jacobian[:, fit.free], fit.problem.residual(fit.vector)) if fit.free else None


def _kernels(
    fit: FitResult, table: FeatureTable, linear: LinearFit | None, owners: Sequence[str], folds: Mapping[str, Fold]
) -> tuple[KernelDiagnosis, ...]:
    errors, measured = np.array(fit.relative_errors), fit.problem.output
    nothing = np.full(len(errors), np.nan)
    without = leverage = studentised = cooks = nothing
    if linear is not None:
        leverage, studentised, cooks = linear.leverage, linear.studentised, linear.cooks_distance
        # Residuals of a relative fit are relative errors, or logarithms; others are divided by the output.
        without = linear.leave_one_out if fit.problem.relative else linear.leave_one_out / measured
        if fit.residual == "logarithmic":
            without = np.expm1(without)
    predicted_by_others = nothing.copy()
    for fold in folds.values():
        if fold.errors:
            predicted_by_others[fold.rows] = fold.errors
    spread = nothing if table.spread is None else table.spread
    columns = (
        errors, without, measured, measured * (1 + errors), spread, leverage, studentised, cooks, predicted_by_others,
    )  # fmt: skip
    return tuple(
        KernelDiagnosis(name, owner, *map(float, row))
        for name, owner, row in zip(fit.kernels, owners, np.column_stack(columns), strict=True)
    )


def _parameters(fit: FitResult, linear: LinearFit | None, owners: Sequence[str]) -> tuple[ParameterDiagnosis, ...]:
    free = fit.free
    kernels, generators = _informants(fit, linear, owners)
    half_width = student_quantile((1 + _CONFIDENCE) / 2, fit.degrees_of_freedom)
    found = []
    for index, p in enumerate(fit.parameters):
        freed = None
        if p.at_bound and p.determined and fit.prior is None and fit.degrees_of_freedom > 0:
            freed = without_bound(fit, index)
        low, high = fit.interval(p.name)
        if math.isnan(low):  # not determined
            low, high = p.value - half_width * p.standard_error, p.value + half_width * p.standard_error
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
    share, error_ratio = linear.information, linear.error_ratio
    names = list(dict.fromkeys(owners))
    masks = [np.array([owner == name for owner in owners]) for name in names]
    group_share = np.array([share[mask].sum(axis=0) for mask in masks])
    group_ratio = np.array([linear.error_ratio_without(mask) for mask in masks])
    columns = range(share.shape[1])
    return (
        [_ordered(fit.kernels, share[:, column], error_ratio[:, column]) for column in columns],
        [_ordered(names, group_share[:, column], group_ratio[:, column]) for column in columns],
    )


def _ordered(names: Sequence[str], share: Array, error_ratio: Array) -> tuple[Informant, ...]:
    order = np.argsort(-share, kind="stable")
    return tuple(Informant(names[i], float(share[i]), float(error_ratio[i])) for i in order)


def _generators(fit: FitResult, owners: Sequence[str], folds: Mapping[str, Fold]) -> tuple[GeneratorDiagnosis, ...]:
    found = []
    for name in dict.fromkeys(owners):
        errors = np.array([e for e, owner in zip(fit.relative_errors, owners, strict=True) if owner == name])
        fold = folds[name]
        outside = np.array(fold.errors)
        found.append(
            GeneratorDiagnosis(
                name,
                len(errors),
                root_mean_square(errors),
                float(np.mean(errors)),
                root_mean_square(outside),
                float(np.mean(outside)) if outside.size else math.nan,
                # What the whole fit leaves open as well is no merit of this generator.
                tuple(p for p in fold.undetermined if p not in fit.undetermined),
                fold.reason,
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


# Cook and Weisberg (1982), section 3.5: a row beyond this moves the fit to the edge of its confidence region.
_DECISIVE = 1.0
# Share of wrong alarms over all kernels together (Bonferroni).
_OUTLIER_RISK = 0.05
# Share of the information on a parameter above which one kernel decides it.
_NEARLY_ALONE = 0.9
# Error by cross-validation over the error in the fit.
_MUCH_WORSE = 2.0
_LISTED = 6


def findings_of(fit: FitResult, diagnosis: Diagnosis) -> tuple[Finding, ...]:
    """Return what a reader must know of a calibration."""
    found = [
        *_of_the_fit(fit, diagnosis),
        *_of_parameters(fit, diagnosis),
        *_of_kernels(diagnosis),
        *_of_errors(diagnosis),
    ]
    order = ("problem", "warning", "remark")
    return tuple(sorted(found, key=lambda finding: order.index(finding.severity)))


def _of_the_fit(fit: FitResult, diagnosis: Diagnosis) -> Iterator[Finding]:
    if not fit.status.valid:
        yield Finding("problem", f"the fit did not converge: {fit.status.reason}; do not use its values")
    if fit.degrees_of_freedom <= 0 and fit.prior is None:
        cause = f"{len(fit.kernels)} kernels leave no degrees of freedom for {len(fit)} parameters"
        yield Finding("problem", f"{cause}: the errors are those of fitting, not of predicting; measure more kernels")
    if fit.collinear:
        number = f"condition number {diagnosis.condition_number:.3g} without bounds"
        cause = f"the kernels hardly separate {', '.join(fit.collinear)} ({number}), and a bound hides that"
        yield Finding(
            "warning", f"{cause}; use their confidence intervals, or add kernels that vary them independently"
        )
    if fit.no_overlap:
        cause = f"no overlap was found: all costs are added ({', '.join(fit.no_overlap)} = 0)"
        yield Finding("remark", f"{cause}; a model that adds the costs needs fewer parameters")
    if diagnosis.missing:
        yield Finding("remark", diagnosis.missing)


def _of_parameters(fit: FitResult, diagnosis: Diagnosis) -> Iterator[Finding]:
    parameters = diagnosis.parameters
    if names := _named(p for p in parameters if not p.determined):
        yield Finding(
            "problem", f"the kernels do not determine {names}; predictions of kernels unlike them may be wrong"
        )
    if names := _named(p for p in parameters if p.negative):
        yield Finding("problem", f"negative costs: {names}; add kernels that isolate them, or keep costs at or above 0")
    if pairs := [f"{p.first} and {p.second} ({p.correlation:+.3f})" for p in diagnosis.correlated]:
        cause = f"strongly correlated estimates: {_listed(pairs)}"
        yield Finding(
            "warning", f"{cause}; only their combinations are well determined; add kernels that vary them independently"
        )
    # Correlated pairs say the same and name the parameters.
    if diagnosis.condition_number > STRONG_DEPENDENCE and not diagnosis.correlated and fit.prior is None:
        cause = f"the condition number after scaling is {diagnosis.condition_number:.3g}"
        yield Finding("warning", f"{cause} (above 30): features of the measurement kernels are nearly collinear")
    if names := _named(p for p in parameters if p.consistent_with_zero and p.determined and not p.at_bound):
        yield Finding("warning", f"consistent with zero within 95 %: {names}; the kernels may not need them")
    # No fit pulls at edges that nothing tells, nor at what a prior holds; that nothing is hidden is said already.
    held = [] if fit.prior is not None else [p for p in parameters if p.at_bound and p.determined]
    pulled = [p for p in held if p.name not in fit.no_overlap]
    if names := _named(p for p in pulled if p.kind == "cost" and p.value == 0):
        yield Finding("remark", f"held at zero by their bound: {names}; a fit without bounds would make them negative")
    if others := [f"{p.name} at {p.value:g}" for p in pulled if not (p.kind == "cost" and p.value == 0)]:
        yield Finding("remark", f"held by their bounds: {_listed(others)}; a fit without bounds would go beyond")
    alone = [
        f"{p.name} from {i.name}"
        for p in parameters
        for i in p.kernels
        if i.share > _NEARLY_ALONE or math.isinf(i.error_ratio)
    ]
    if alone:
        yield Finding(
            "warning", f"determined by one kernel alone: {_listed(alone)}; one wrong measurement changes them"
        )


def _of_kernels(diagnosis: Diagnosis) -> Iterator[Finding]:
    kernels = diagnosis.kernels
    if not kernels:
        return
    # What the largest of so many studentised residuals exceeds in one fit of twenty.
    # One degree of freedom less than the fit: each variance is estimated without the kernel's own row.
    limit = student_quantile(1 - _OUTLIER_RISK / (2 * len(kernels)), diagnosis.degrees_of_freedom - 1)
    outliers = [k for k in kernels if abs(k.studentised) > limit]
    if outliers:
        outliers.sort(key=lambda kernel: -abs(kernel.studentised))
        text = _listed([f"{k.name} ({100 * k.relative_error:+.0f} %)" for k in outliers])
        yield Finding(
            "warning", f"outliers among the residuals: {text}; the model lacks a term, or a measurement is wrong"
        )
    decisive = sorted((k for k in kernels if k.cooks_distance > _DECISIVE), key=lambda k: -k.cooks_distance)
    if decisive:
        text = _listed([f"{k.name} (Cook's distance {k.cooks_distance:.2g})" for k in decisive])
        yield Finding(
            "warning", f"a single kernel changes the fit considerably: {text}; measure more kernels like them"
        )


def _of_errors(diagnosis: Diagnosis) -> Iterator[Finding]:
    floor = diagnosis.noise_floor
    if not math.isnan(floor):
        text = f"noise floor {100 * floor:.2g} %: smaller errors are not significant"
        yield Finding("remark", f"{text}; {100 * diagnosis.below_noise:.0f} % of the measurement kernels' are")
    worse = [
        f"{g.name} ({100 * g.error:.1f} to {100 * g.cross_validation_error:.1f} %)"
        for g in diagnosis.generators
        # Errors below the noise floor are chance, and so is a ratio to them.
        if g.cross_validation_error > _MUCH_WORSE * max(g.error, 0.0 if math.isnan(floor) else floor)
    ]
    if worse:
        cause = (
            "the error of these generators is at least twice as large when they are left out of the fit: "
            f"{_listed(worse)}"
        )
        yield Finding("warning", f"{cause}; do not rely on predictions of kernels unlike the measured ones")
    alone = [f"{', '.join(g.undetermined)} by {g.name}" for g in diagnosis.generators if g.undetermined]
    if alone:
        yield Finding(
            "remark", f"determined by one generator only, which no other generator confirms: {_listed(alone)}"
        )


def _named(parameters: Iterable[ParameterDiagnosis]) -> str:
    return ", ".join(parameter.name for parameter in parameters)


def _listed(texts: list[str]) -> str:
    more = f" and {len(texts) - _LISTED} more" if len(texts) > _LISTED else ""
    return f"{', '.join(texts[:_LISTED])}{more}"
