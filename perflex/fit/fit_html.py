"""Fitted parameters and their errors in HTML, for notebooks and reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perflex.fit.result import geometric_mean_error
from perflex.html import Column, Html, element, joined, notebook, notice, percent, significant, table, whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from perflex.fit.result import FitResult
    from perflex.html import Cell


def parameter_table(fit: FitResult) -> Html:
    """Return the parameters with standard errors, 95 % confidence intervals, rates and remarks."""
    columns = [
        Column("parameter"),
        Column("value", significant),
        Column("standard error", lambda value: significant(value, 2)),
        Column("95 % from", significant, meaning="lower end of the 95 % confidence interval"),
        Column("to", significant, meaning="upper end of the 95 % confidence interval"),
        Column("unit"),
        Column("rate", lambda value: significant(value, 3), meaning="what the cost amounts to per second"),
        Column("rate's unit"),
        Column("remarks"),
    ]
    rows = [
        (p.name, p.value, p.standard_error, *fit.interval(p.name), p.unit or "?", p.rate, p.rate_unit, p.flags)
        for p in fit.parameters
    ]
    return table(columns, rows, caption="Parameters")


def error_table(errors: Mapping[str, object], caption: str) -> Html:
    """Return geometric mean, median, root mean square and maximum of the sizes of relative errors.

    Parameters
    ----------
    errors
        Relative errors by what predicted them, any shape; nan is left out.
    caption
        Above the table.
    """
    columns = [
        Column("predicted by"),
        Column("cases", whole),
        *(percent(name) for name in ("geometric mean", "median", "rms", "maximum")),
    ]
    return table(columns, [_error_row(name, found) for name, found in errors.items()], caption=caption)


def _error_row(name: str, errors: object) -> list[Cell]:
    sizes = np.abs(np.asarray(errors, dtype=np.float64)).ravel()
    sizes = sizes[~np.isnan(sizes)]
    if not sizes.size:
        return [name, 0.0, None, None, None, None]
    rms = float(np.sqrt(np.mean(sizes**2)))
    return [name, float(sizes.size), geometric_mean_error(sizes), float(np.median(sizes)), rms, float(sizes.max())]


def fit_notices(fit: FitResult) -> Iterator[Html]:
    """Yield what to know before the numbers are used."""
    if not fit.status.valid:
        yield notice("problem", f"the fit did not converge: {fit.status.reason}")
    if fit.undetermined:
        yield notice("problem", f"the kernels do not determine {', '.join(fit.undetermined)}")
    if fit.negative_costs:
        yield notice("problem", f"negative costs: {', '.join(fit.negative_costs)}")
    if fit.collinear:
        yield notice("warning", f"the kernels hardly tell {', '.join(fit.collinear)} apart")


def fit_body(fit: FitResult) -> Html:
    """Return notices, parameters and errors."""
    kind = "relative residual" if fit.scaled else "residual"
    line = (
        f"{kind} {fit.residual_norm:.4g} over {len(fit.kernels)} kernels, condition number {fit.condition_number:.3g}; "
        f"{fit.status.starts_at_optimum} of {fit.status.starts} starts reached the optimum"
    )
    return joined(
        fit_notices(fit),
        parameter_table(fit),
        error_table({"the fit": fit.relative_errors}, "Relative errors of the kernels that were fitted"),
        element("p", line),
    )


def fit_html(fit: FitResult) -> str:
    """Return a fit for a notebook."""
    return notebook(fit_body(fit))
