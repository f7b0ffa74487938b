"""What a diagnosis finds wrong, in words, the gravest first."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from perflex.calibration.diagnosis.result import Diagnosis, Finding
from perflex.calibration.uncertainty import student_quantile
from perflex.fit.identify import STRONG_DEPENDENCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from perflex.calibration.diagnosis.result import ParameterDiagnosis
    from perflex.fit.result import FitResult

# Cook and Weisberg (1982), section 3.5: a row beyond this moves the fit to the edge of its confidence region.
_DECISIVE = 1.0
# Share of wrong alarms over all kernels together (Bonferroni).
_OUTLIER_RISK = 0.05
# Share of the information on a parameter above which one kernel decides it.
_NEARLY_ALONE = 0.9
# Held-out error over the error in the fit.
_MUCH_WORSE = 2.0
_LISTED = 6


def findings_of(fit: FitResult, diagnosis: Diagnosis) -> tuple[Finding, ...]:
    """Return what a reader must know of a calibration.

    Parameters
    ----------
    fit
        Its fit.
    diagnosis
        Its diagnosis, as yet without findings.
    """
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
    if fit.degrees_of_freedom <= 0:
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
    if diagnosis.condition_number > STRONG_DEPENDENCE and not diagnosis.correlated:
        cause = f"the condition number after scaling is {diagnosis.condition_number:.3g}"
        yield Finding("warning", f"{cause} (above 30): features of the measurement kernels are nearly collinear")
    if names := _named(p for p in parameters if p.consistent_with_zero and p.determined and not p.at_bound):
        yield Finding("warning", f"consistent with zero within 95 %: {names}; the kernels may not need them")
    # No fit pulls at edges that nothing tells; that nothing is hidden is said already.
    pulled = [p for p in parameters if p.at_bound and p.determined and p.name not in fit.no_overlap]
    if names := _named(p for p in pulled if p.kind == "cost" and p.value == 0):
        yield Finding("remark", f"held at zero by their bound: {names}; a fit without bounds would make them negative")
    if others := [f"{p.name} at {p.value:g}" for p in pulled if not (p.kind == "cost" and p.value == 0)]:
        yield Finding("remark", f"held by their bounds: {_listed(others)}; a fit without bounds would go beyond")
    alone = [
        f"{p.name} from {i.name}"
        for p in parameters
        for i in p.kernels
        if i.share > _NEARLY_ALONE or math.isinf(i.growth)
    ]
    if alone:
        yield Finding(
            "warning", f"determined by one kernel alone: {_listed(alone)}; one wrong measurement changes them"
        )


def _of_kernels(diagnosis: Diagnosis) -> Iterator[Finding]:
    kernels = diagnosis.kernels
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
        f"{g.name} ({100 * g.error:.1f} to {100 * g.held_out_error:.1f} %)"
        for g in diagnosis.generators
        # Errors below the noise floor are chance, and so is a ratio to them.
        if g.held_out_error > _MUCH_WORSE * max(g.error, 0.0 if math.isnan(floor) else floor)
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
