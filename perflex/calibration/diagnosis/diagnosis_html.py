"""A diagnosis in HTML, for notebooks and reports."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from perflex.fit.fit_html import error_table
from perflex.html import (
    Column,
    Html,
    element,
    fixed,
    joined,
    notebook,
    notice,
    percent,
    significant,
    table,
    times,
    whole,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perflex.calibration.diagnosis.result import Diagnosis

# Share of the information on a parameter below which a generator is not named.
_WORTH_NAMING = 0.05
_STRONGEST = 20


def finding_notices(diagnosis: Diagnosis, *severities: str) -> Iterator[Html]:
    """Yield the findings of some severities, the gravest first."""
    for finding in diagnosis.findings:
        if finding.severity in severities:
            yield notice(finding.severity, finding.text)


def accuracy_table(diagnosis: Diagnosis) -> Html:
    """Return errors in the fit and of what was left out of it, beside one time for all that saw the same kernels.

    The baseline is the geometric mean of the measured times: of all kernels, of all
    others, or of other generators' kernels.
    """
    kernels = diagnosis.kernels
    logs = np.log([k.measured if k.measured > 0 else np.nan for k in kernels])
    owners = np.array([k.generator for k in kernels])
    everyone = np.full(len(logs), logs.mean())
    others = (logs.sum() - logs) / (len(logs) - 1) if len(logs) > 1 else np.full(1, np.nan)
    elsewhere = np.array([logs[owners != owner].mean() if (owners != owner).any() else np.nan for owner in owners])
    cases = {
        "fitted": ("relative_error", everyone),
        "without the kernel itself": ("left_out_error", others),
        "without its generator": ("held_out_error", elsewhere),
    }
    rows: dict[str, object] = {}
    for how, (name, baseline) in cases.items():
        errors = np.array([getattr(k, name) for k in kernels])
        if np.isnan(errors).all():
            continue
        rows[f"the model, {how}"] = errors
        # Judged by the same kernels as the model.
        trivial = np.where(np.isnan(errors), np.nan, np.expm1(baseline - logs))
        # Files of earlier versions do not keep measured times.
        if not np.isnan(trivial).all():
            rows[f"one time for all, {how}"] = trivial
    return error_table(rows, "Relative errors of the measurement kernels")


def informants_table(diagnosis: Diagnosis) -> Html:
    """Return what informs each parameter, and where it would be without its bound."""
    columns = [
        Column("parameter"),
        Column("value", significant),
        Column("without its bound", significant),
        Column("unit"),
        Column("known most from"),
        Column("remarks"),
    ]
    rows = []
    for p in diagnosis.parameters:
        known = [f"{g.name} {100 * g.share:.0f}\N{NO-BREAK SPACE}%" for g in p.generators if g.share >= _WORTH_NAMING]
        rows.append((p.name, p.value, p.released_value, p.unit, ", ".join(known), p.flags))
    return table(columns, rows, caption="What the parameters rest on")


def generators_table(diagnosis: Diagnosis) -> Html:
    """Return errors by generator, in the fit and predicted without its kernels."""
    columns = [
        Column("generator"),
        Column("kernels", whole),
        percent("rms in the fit"),
        percent("rms held out", meaning="predicted by a fit without this generator's kernels"),
        percent("bias held out", sign=True, meaning="mean error, with its sign"),
        Column("remarks"),
    ]
    rows = []
    for g in diagnosis.generators:
        remark = f"only it determines {', '.join(g.undetermined)}" if g.undetermined else g.reason
        rows.append((g.name, g.kernels, g.error, g.held_out_error, g.held_out_bias, remark))
    return table(columns, rows, caption="Errors by generator")


def kernels_table(diagnosis: Diagnosis) -> Html:
    """Return every measurement kernel, the worst predicted without itself first."""

    def badness(number: int) -> float:
        kernel = diagnosis.kernels[number]
        sizes = [abs(e) for e in (kernel.left_out_error, kernel.relative_error) if not math.isnan(e)]
        return -sizes[0] if sizes else 0.0

    order = sorted(range(len(diagnosis.kernels)), key=badness)
    columns = [
        Column("kernel"),
        times("measured", [k.measured for k in diagnosis.kernels]),
        percent("error fitted", sign=True),
        percent("without itself", sign=True, meaning="error where the kernel is left out of the fit"),
        percent("without its generator", sign=True),
        percent("spread", meaning="relative spread of repeated timings"),
        Column("leverage", fixed(2), meaning="how far the fit follows the kernel: 0 not at all, 1 wholly"),
        Column("Student's t", fixed(1, sign=True), meaning="residual over its standard deviation, without the kernel"),
        Column("Cook's distance", lambda value: significant(value, 2), meaning="how far the fit moves without it"),
    ]
    rows = [
        (
            k.name, k.measured, k.relative_error, k.left_out_error, k.held_out_error, k.spread, k.leverage,
            k.studentised, k.cooks_distance,
        )
        for k in (diagnosis.kernels[number] for number in order)
    ]  # fmt: skip
    return table(columns, rows, caption="Measurement kernels, the worst predicted first")


def correlations_table(diagnosis: Diagnosis) -> Html | None:
    """Return the pairs of parameters whose estimates move together; None where there are none."""
    if not diagnosis.correlated:
        return None
    rows = [(pair.first, pair.second, pair.correlation) for pair in diagnosis.correlated[:_STRONGEST]]
    columns = [Column("parameter"), Column("and"), Column("correlation", fixed(3, sign=True))]
    return table(columns, rows, caption="Estimates that move together")


def diagnosis_html(diagnosis: Diagnosis) -> str:
    """Return a diagnosis for a notebook: findings, errors, parameters, generators."""
    return notebook(
        element("p", element("strong", "Diagnosis"), f" of {diagnosis.title or 'a calibration'}"),
        joined(finding_notices(diagnosis, "problem", "warning", "remark")),
        accuracy_table(diagnosis),
        informants_table(diagnosis),
        generators_table(diagnosis),
        correlations_table(diagnosis),
    )
