"""Fitting a model's parameters to a feature table (paper Section 7.2)."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from perflex.errors import CalibrationError, PerflexWarning
from perflex.expression.roles import Roles, find_roles, roles_with_costs_for_rates
from perflex.fit.confidence import LinearisedFit
from perflex.fit.coordinates import Coordinates, coordinates_of
from perflex.fit.identify import Identification, ambiguous, condition_without_bounds, covariance, identify
from perflex.fit.loss import Loss, robust_loss
from perflex.fit.nested import without_needless_overlaps
from perflex.fit.noise import measured_noise
from perflex.fit.posterior import fit_with_prior
from perflex.fit.problem import Problem, pose
from perflex.fit.result import FitResult, FitStatus, ParameterEstimate
from perflex.fit.scaled import Solution
from perflex.fit.solving import all_starts, as_good, refined, solve, solve_under_loss
from perflex.fit.starts import cost_columns
from perflex.fit.units import parameter_units

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from perflex.expression.model import Model
    from perflex.fit.prior import Prior
    from perflex.fit.table import FeatureTable

# Kernels whose predictions differ by less than this share are predicted alike.
_ALIKE = 1e-6


def fit_model(  # noqa: PLR0913 - one parameter per choice
    model: Model,
    table: FeatureTable,
    *,
    nonnegative: bool = False,
    starts: Sequence[Mapping[str, float]] = (),
    on_undetermined: Literal["error", "warn"] = "error",
    max_starts: int = 8,
    loss: Loss = "squared",
    bounds: Mapping[str, tuple[float, float]] | None = None,
    prior: Prior | None = None,
) -> FitResult:
    """Fit a model's parameters to measured and counted features.

    Minimises the Euclidean norm of the residual (model minus output, each row times ``table.scale`` if that
    is set) by Levenberg-Marquardt with the symbolic Jacobian (paper Section 7.2), from several deterministic
    starts if the model is not linear in its parameters; the lowest residual wins. With ``loss="soft_l1"`` a few
    wrong measurements do not move the result: large residuals count in proportion to their size, not its square.

    A parameter keeps to what its place in the model can mean: a hidden fraction to 0 to 1, an edge to positive values
    that decide at least some kernels, a sharpness to 0 to 1000, costs and rates in `smooth_max` to zero and above. What
    a bound holds is named in the result. Where the kernels show no overlap, the result has the costs of their sum and
    says so in `FitResult.no_overlap`.

    Parameters
    ----------
    model
        The model.
    table
        A row per measurement kernel, with a column for each of ``model.all_features()``; call
        `scale_features_by_output` on it first to minimise relative errors.
    nonnegative
        Keep all costs and rates at or above zero. The result is the constrained optimum.
    starts
        Further starts; parameters that one leaves out take the value of the best automatic start.
    on_undetermined
        What to do when the kernels do not determine a parameter: ``"error"`` refuses; ``"warn"`` gives the
        smallest values that fit as well, without standard errors, and warns. An edge or hidden fraction on
        which no output depends never refuses, since predictions like the measurement kernels do not depend
        on it either: it is listed in ``undetermined`` with a warning.
    max_starts
        At most this many automatic starts.
    loss
        ``"squared"``, the paper's sum of squares; or ``"soft_l1"``, which a few wrong measurements do not move.
        Where rows are scaled by their output, that is taken of logarithms of model over output, so that
        noise does not pull predictions down. Its scale comes from the residuals (`perflex.fit.loss`).
    bounds
        Smallest and largest value by parameter, in its unit, instead of those of its role; ``(-inf, inf)`` for none.
    prior
        What other devices say of each parameter (`prior_of`). The fit is then the mode of the posterior
        (`perflex.fit.posterior`), of any number of rows, which are scaled by their output; parameters are positive,
        and `nonnegative`, `on_undetermined` and `max_starts` say nothing.

    Returns
    -------
    FitResult
        Parameter values by name, with units, standard errors and all that is needed to judge them.

    Raises
    ------
    CalibrationError
        A column is missing, a value is not finite, a parameter is not determined (it is named), the model is not
        finite at any start, or bounds make no sense. With a prior: it lacks a parameter, the rows are not scaled by
        their output, or there are bounds.

    Warns
    -----
    PerflexWarning
        A cost is negative, a parameter is not determined, no overlap was found, a bound hides that some parameters are
        hardly told apart, or no minimum was reached.
    """
    if on_undetermined not in {"error", "warn"}:
        msg = f'on_undetermined must be "error" or "warn", not {on_undetermined!r}'
        raise ValueError(msg)
    if loss not in get_args(Loss):
        msg = f"loss must be one of {', '.join(get_args(Loss))}, not {loss!r}"
        raise ValueError(msg)
    if prior is not None:
        return _fitted_with_prior(model, table, prior, starts, loss, bounds)
    problem = pose(model, table)
    roles = roles_with_costs_for_rates(model.tree)
    coordinates = coordinates_of(problem, roles, nonnegative=nonnegative, given=bounds or {})
    points = all_starts(problem, roles, starts, max_starts)
    solutions = solve(problem, coordinates, points)
    if loss != "squared":
        problem, solutions = solve_under_loss(problem, coordinates, solutions, points)
    best = refined(problem, coordinates, min(solutions, key=lambda solution: solution.norm))
    best, held, untold = without_needless_overlaps(problem, roles, coordinates, points, best)
    if loss != "squared" and held is not coordinates:
        # The scale of the loss is that of the model's own residuals.
        problem, ends = solve_under_loss(problem, held, [best], [])
        best = refined(problem, held, min(ends, key=lambda solution: solution.norm))
    coordinates = held
    found = _identify(problem, roles, coordinates, best, solutions)
    found = replace(found, without_effect=tuple(sorted({*found.without_effect, *untold})))
    best, identification = _judge(problem, roles, best, found, strict=on_undetermined == "error")
    result = _result(problem, roles, table, solutions, best, identification)
    result = replace(result, nonnegative=nonnegative, bounds=dict(bounds or {}))
    result = _without_bounds(result, problem, best, coordinates, measured_noise(table))
    _warn(result)
    return result


def _fitted_with_prior(
    model: Model,
    table: FeatureTable,
    prior: Prior,
    starts: Sequence[Mapping[str, float]],
    loss: Loss,
    bounds: Mapping[str, tuple[float, float]] | None,
) -> FitResult:
    if bounds:
        msg = "a prior and bounds exclude each other; leave one out"
        raise CalibrationError(msg, model=model)
    result = fit_with_prior(model, table, prior, starts=starts, loss=loss)
    _warn(result)
    return result


def require_informed(model: Model, columns: Mapping[str, NDArray[np.float64]]) -> None:
    """Make sure that counted features leave no cost out, whatever the measurements will say.

    Parameters
    ----------
    model
        The model.
    columns
        Values of each input feature, shape ``(m,)`` each.

    Raises
    ------
    CalibrationError
        All that some costs multiply is zero in every kernel; they are named.
    """
    roles = find_roles(model.tree)
    missing = {}
    for name in roles.costs:
        # A product is zero where one of its factors is; a cost counts where one of its products does.
        terms = [list(monomial.powers) for monomial in roles.monomials.get(name) or ()]
        absent = [[f for f in features if f in columns and not columns[f].any()] for features in terms]
        if absent and all(absent):
            missing[name] = ", ".join(dict.fromkeys(f for features in absent for f in features))
    if missing:
        reasons = "; ".join(
            f"{name} is determined by no kernel ({zero} is zero in all of them)" for name, zero in missing.items()
        )
        msg = f"{reasons}; add kernels that contain it, or drop parameters from the model"
        raise CalibrationError(msg, parameters=tuple(missing), model=model)


def _identify(
    problem: Problem, roles: Roles, coordinates: Coordinates, best: Solution, solutions: list[Solution]
) -> Identification:
    """Look for undetermined parameters among those that no bound clearly decides."""
    # A column is short or long only in comparison: that of a cost with its column in the relaxed model, where nothing
    # hides it; that of another parameter with a change of the whole output.
    length = np.linalg.norm(best.jacobian, axis=0)
    reference = np.zeros(len(length))
    fixed = {name: float(v) for name, v in zip(problem.parameters, best.x, strict=True) if name not in roles.costs}
    costs = np.linalg.norm(cost_columns(problem, roles, fixed)[0], axis=0)
    for index, name in enumerate(problem.parameters):
        if name in roles.costs:
            # The column of a rate is that of its cost, times the derivative of a reciprocal.
            change = best.x[index] ** -2.0 if name in roles.rates else 1.0
            reference[index] = costs[roles.costs.index(name)] * change
        elif best.x[index] != 0:
            reference[index] = problem.size / abs(best.x[index])
    # Where the residual presses a parameter against its bound, its value is known, whatever its column looks like.
    pull = best.jacobian.T @ best.residual * coordinates.sides(best.x)
    # The pull is the gradient of |r|**2 / 2: above zero where the fit would rather have a value beyond the bound.
    decided = best.at_bound & (pull > 1e-9 * length * np.linalg.norm(best.residual)) | ~coordinates.moving
    considered = [i for i in range(len(length)) if not decided[i]]
    found = identify(best.jacobian, reference, considered)
    free = [i for i in considered if i not in found.undetermined and not best.at_bound[i]]
    jacobian, residual = problem.regression(best.x, len(free))
    allowed = as_good(problem, best)
    flat = ambiguous(
        best.x,
        [solution.x for solution in solutions if solution.norm <= allowed],
        np.sqrt(np.diag(covariance(jacobian, residual, free))),
        lambda x: float(np.linalg.norm(problem.residual(x))),
        allowed,
    )
    # Parameters at a bound and collinear groups are accounted for already.
    flat = tuple(i for i in flat if i in free)
    return replace(found, without_effect=tuple(sorted({*found.without_effect, *flat})))


def _judge(
    problem: Problem, roles: Roles, best: Solution, found: Identification, *, strict: bool
) -> tuple[Solution, Identification]:
    """Refuse undetermined parameters, or take the smallest values that fit as well."""
    names = problem.parameters
    shapes = {*roles.edges, *roles.shapes}
    without_effect = [i for i in found.without_effect if names[i] not in shapes]
    if strict and (without_effect or found.groups):
        raise _refusal(
            problem, roles, [names[i] for i in without_effect], [[names[i] for i in g] for g in found.groups]
        )
    if not without_effect and not found.groups:
        return best, found
    length = np.linalg.norm(best.jacobian, axis=0)
    # The part of the parameters that lies in the null space changes no output: without it they are smallest.
    z = best.x * np.where(length > 0, length, 1.0)
    z = z - found.null_space @ (found.null_space.T @ z)
    x = z / np.where(length > 0, length, 1.0)
    x[without_effect] = 0.0
    # A null direction may contain a parameter that its bound holds; of a rate no value is small.
    kept = best.at_bound | np.array([name in roles.rates for name in names])
    x = np.where(kept, best.x, x)
    residual, jacobian = problem.residual(x), problem.jacobian(x)
    allowed = as_good(problem, best)
    # The null space is that of the linearised model; farther away another value may fit worse.
    if not (np.isfinite(jacobian).all() and float(np.linalg.norm(residual)) <= allowed):
        return best, found
    smallest = Solution(x, residual, jacobian, best.at_bound, best.converged, best.reason, best.evaluations)
    return smallest, found


def _refusal(problem: Problem, roles: Roles, without_effect: list[str], groups: list[list[str]]) -> CalibrationError:
    reasons = []
    for name in without_effect:
        monomials = roles.monomials.get(name) or ()
        features = list(dict.fromkeys(f for monomial in monomials for f in monomial.powers))
        absent = [f for f in features if not problem.inputs[f].any()]
        if absent:
            reasons.append(f"{name} is determined by no kernel ({', '.join(absent)} is zero in all of them)")
        else:
            reasons.append(f"{name} has no effect on any kernel (its cost is hidden behind others, or cancels)")
    reasons += [f"only a combination of {', '.join(group)} is determined (collinear)" for group in groups]
    concerned = tuple(dict.fromkeys([*without_effect, *(name for group in groups for name in group)]))
    msg = (
        f"the measurement kernels do not determine every parameter: {'; '.join(reasons)}; "
        "add kernels that vary them independently, or drop parameters from the model"
    )
    return CalibrationError(msg, parameters=concerned, model=problem.model)


def _result(
    problem: Problem,
    roles: Roles,
    table: FeatureTable,
    solutions: list[Solution],
    best: Solution,
    found: Identification,
) -> FitResult:
    names = problem.parameters
    undetermined = found.undetermined
    determined = [i for i in range(len(names)) if i not in undetermined and not best.at_bound[i]]
    # Parameters that nothing determines, or that a bound holds, use up no degrees of freedom and have no covariance.
    matrix = covariance(*problem.regression(best.x, len(determined)), determined)
    units = parameter_units(names, roles, problem.model.output_feature, table.info)
    estimates = []
    for index, name in enumerate(names):
        value = float(best.x[index])
        unit = units[name]
        cost = value if name not in roles.rates else 1.0 / value
        # A rate is an amount over a cost (paper Table 3); over a cost at or below zero it means nothing.
        rate = unit.amount / cost if unit.amount is not None and cost > 0 else None
        estimates.append(
            ParameterEstimate(
                name,
                value,
                unit.unit,
                float(np.sqrt(matrix[index, index])),
                rate,
                unit.rate_unit if rate is not None else "",
                "rate" if name in roles.rates else "cost" if name in roles.costs else "shape",
                negative=name in roles.costs and value < 0 and index not in undetermined,
                at_bound=bool(best.at_bound[index]),
                determined=index not in undetermined,
            )
        )
    predicted = problem.predict(best.x)
    with np.errstate(all="ignore"):
        errors = np.where(problem.output != 0, predicted / problem.output - 1, np.nan)
    flat = _predicts_nothing(problem, predicted)
    status = FitStatus(
        best.converged and not flat,
        "the model predicts the same time for all kernels, although their times differ" if flat else best.reason,
        sum(solution.evaluations for solution in solutions),
        len(solutions),
        # Ends of rough runs beside the refined one: `_SAME_OPTIMUM` is far above the rough tolerance.
        sum(solution.norm <= as_good(problem, best) for solution in solutions),
    )
    plain = problem.plain_residual(best.x)
    freedom = len(plain) - len(determined)
    return FitResult(
        tuple(estimates),
        float(np.linalg.norm(plain)),
        table.scale is not None,
        problem.kernels,
        tuple(map(float, errors)),
        status,
        matrix,
        found.condition_number,
        freedom,
        tuple(names[i] for i in undetermined),
        table.sub_group_size,
        loss="squared" if problem.loss is None else "soft_l1",
        loss_scale=None if problem.loss is None else problem.loss.scale,
        robust_deviation=None if problem.loss is None else robust_loss(plain, freedom, 0.0)[1],
        no_overlap=tuple(n for n, v in zip(names, best.x, strict=True) if roles.added.get(n) == v),
    )


def _without_bounds(
    result: FitResult,
    problem: Problem,
    best: Solution,
    coordinates: Coordinates,
    noise: NDArray[np.float64] | None,
) -> FitResult:
    """Return the result with what bounds hide: how well the rows tell parameters apart, and their intervals."""
    # The edge of a sum of costs was chosen, not fitted: no row says anything of it.
    determined = tuple(i for i, name in enumerate(result) if coordinates.moving[i] and name not in result.undetermined)
    number, columns = condition_without_bounds(best.jacobian, determined)
    hidden = any(best.at_bound[i] for i in columns)
    return replace(
        result,
        condition_number=number,
        collinear=tuple(problem.parameters[i] for i in columns) if hidden else (),
        linearised=LinearisedFit(problem, best.x, determined, coordinates, noise),
    )


def _predicts_nothing(problem: Problem, predicted: NDArray[np.float64]) -> bool:
    """Return whether kernels that differ in features and times are all predicted the same, as by a launch alone."""
    differ = any(np.ptp(column) > 0 for column in problem.inputs.values())
    # Noise alone makes times differ by less than their mean.
    times = float(np.ptp(problem.output)) > float(np.abs(problem.output).mean())
    return differ and times and bool(np.ptp(predicted) <= _ALIKE * np.abs(predicted).max())


def _warn(result: FitResult) -> None:
    if not result.status.valid:
        _say(f"the fit did not converge: {result.status.reason}; do not use its values")
    if result.no_overlap:
        _say(f"no overlap was found: all costs are added, {', '.join(result.no_overlap)} = 0 says so")
    if result.negative_costs:
        cause = f"negative costs were fitted: {', '.join(result.negative_costs)}"
        _say(f"{cause}; add kernels that isolate them, or fit with nonnegative=True")
    if result.collinear:
        number = f"condition number {result.condition_number:.3g} without bounds"
        cause = f"the measurement kernels hardly separate {', '.join(result.collinear)} ({number})"
        _say(
            f"{cause}, and a bound hides that; use their confidence intervals, "
            "or add kernels that vary them independently"
        )
    if result.undetermined:
        cause = f"the measurement kernels do not determine {', '.join(result.undetermined)}"
        _say(f"{cause}; do not use the values for kernels unlike those measured")


def _say(message: str) -> None:
    # The line that called `fit_model`.
    warnings.warn(message, PerflexWarning, stacklevel=4)
