"""Fitting a model's parameters to a feature table (paper Section 7.2)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from perflex.errors import CalibrationError, warn
from perflex.expression.tree import Call, Number, evaluate, walk
from perflex.fit.coordinates import coordinates_of, cost_columns
from perflex.fit.identify import Identification, ambiguous, condition_without_bounds, covariance, identify, undecided
from perflex.fit.options import FitOptions
from perflex.fit.problem import pose
from perflex.fit.result import FitResult, FitStatus, parameter_estimate, parameter_units
from perflex.fit.solving import all_starts, as_good, refined, solve, without_needless_overlaps

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from perflex.expression.model import Model
    from perflex.fit.coordinates import Coordinates
    from perflex.fit.minimise import Solution
    from perflex.fit.problem import Problem
    from perflex.fit.table import FeatureTable

# Kernels whose predictions differ by less than this share are predicted alike.
_ALIKE = 1e-6


def fit_model(
    model: Model,
    table: FeatureTable,
    options: FitOptions | None = None,
    *,
    starts: Sequence[Mapping[str, float]] = (),
    max_starts: int = 8,
) -> FitResult:
    """Fit a model's parameters to measured and counted features.

    Minimises the Euclidean norm of the residual, (model - output) / output of each row, by Levenberg-Marquardt with the
    symbolic Jacobian (paper Section 7.2), from several deterministic starts if the model is not linear in its
    parameters; the lowest residual wins.

    A parameter keeps to what its place in the model can mean: a hidden fraction to 0 to 1, an edge to positive values
    that decide at least some kernels, a sharpness to 0 to 1000, costs and rates in `smooth_max` to zero and above. What
    a bound holds is named in the result. Where the kernels show no overlap, the result has the costs of their sum and
    says so in `FitResult.no_overlap`.

    Parameters
    ----------
    model
        The model.
    table
        A row per measurement kernel, with a column for each of ``model.all_features()``.
    options
        How: signs of costs, undetermined parameters, which errors.
    starts
        Further starts; parameters that one leaves out take the value of the best automatic start.
    max_starts
        At most this many automatic starts.

    Returns
    -------
    FitResult
        Parameter values by name, with units, standard errors and all that is needed to judge them.

    Raises
    ------
    CalibrationError
        A column is missing, a value is not finite, an output is not positive, a parameter is not determined (it is
        named), or the model is not finite at any start.

    Warns
    -----
    PerflexWarning
        A cost is negative, a parameter is not determined, no overlap was found, a bound hides that some parameters are
        hardly told apart, or no minimum was reached.
    """
    options = options or FitOptions()
    result = _fitted(model, table, options, starts, max_starts)
    _warn(result)
    return result


def _fitted(
    model: Model, table: FeatureTable, options: FitOptions, starts: Sequence[Mapping[str, float]], max_starts: int
) -> FitResult:
    problem = pose(model, table, options.residual)
    coordinates = coordinates_of(problem, nonnegative=options.nonnegative)
    points = all_starts(problem, starts, max_starts)
    solutions = solve(problem, coordinates, points)
    best = refined(problem, coordinates, solutions)
    _require_deciding_edges(problem, best.x)
    best, held, unidentified = without_needless_overlaps(problem, coordinates, points, best)
    found = _identify(problem, held, best, solutions)
    found = replace(found, without_effect=tuple(sorted({*found.without_effect, *unidentified})))
    best, found = _judge(problem, best, found, strict=options.on_undetermined == "error")
    return _result(problem, held, table, solutions, best, found, nonnegative=options.nonnegative)


def _require_deciding_edges(problem: Problem, x: NDArray[np.float64]) -> None:
    """Refuse numbers for edges that are too small for all rows: of these, half of the costs' sum would count."""
    values = {**problem.inputs, **dict(zip(problem.parameters, x.tolist(), strict=True))}
    for node in walk(problem.model.tree):
        if isinstance(node, Call) and node.function == "overlap" and isinstance(node.arguments[-1], Number):
            first, second, edge = (evaluate(argument, values) for argument in node.arguments)
            apart = float(np.max(np.abs(first - second)))
            if edge != 0 and np.abs(edge) * apart < 1:
                msg = (
                    f"the edge {edge:g} of overlap decides no kernel: it is in 1/s, and the costs are {apart:.2g} s "
                    "apart at most; write a parameter such as p_edge, or a larger number"
                )
                raise CalibrationError(msg, model=problem.model)


def _identify(problem: Problem, coordinates: Coordinates, best: Solution, solutions: list[Solution]) -> Identification:
    """Look for undetermined parameters among those that no bound clearly decides."""
    # A column is short or long only in comparison: that of a cost with its column in the additive model, where nothing
    # hides it; that of another parameter with a change of the whole output.
    roles = problem.roles
    length = np.linalg.norm(best.jacobian, axis=0)
    reference = np.zeros(len(length))
    fixed = {name: float(v) for name, v in zip(problem.parameters, best.x, strict=True) if name not in roles.costs}
    costs = np.linalg.norm(cost_columns(problem, fixed)[0], axis=0)
    for index, name in enumerate(problem.parameters):
        if name in roles.costs:
            # The column of a rate is that of its cost, times the derivative of a reciprocal.
            change = best.x[index] ** -2.0 if roles.of[name].kind == "rate" else 1.0
            reference[index] = costs[roles.costs.index(name)] * change
        elif best.x[index] != 0:
            reference[index] = problem.size / abs(best.x[index])
    considered = undecided(best, coordinates)
    found = identify(best.jacobian, reference, considered)
    free = [i for i in considered if i not in found.undetermined and not best.at_bound[i]]
    allowed = as_good(problem, best)
    flat = ambiguous(
        best.x,
        [solution.x for solution in solutions if solution.norm <= allowed],
        np.sqrt(np.diag(covariance(best.jacobian, best.residual, free))),
        lambda x: float(np.linalg.norm(problem.residual(x))),
        allowed,
    )
    # Parameters at a bound and collinear groups are accounted for already.
    flat = tuple(i for i in flat if i in free)
    return replace(found, without_effect=tuple(sorted({*found.without_effect, *flat})))


def _judge(problem: Problem, best: Solution, found: Identification, *, strict: bool) -> tuple[Solution, Identification]:
    """Refuse undetermined parameters, or take the smallest values that fit as well."""
    names, roles = problem.parameters, problem.roles
    without_effect = [i for i in found.without_effect if names[i] in roles.kinds("cost", "rate", "other")]
    if strict and (without_effect or found.groups):
        raise _refusal(problem, [names[i] for i in without_effect], [[names[i] for i in g] for g in found.groups])
    if not without_effect and not found.groups:
        return best, found
    length = np.linalg.norm(best.jacobian, axis=0)
    # The part of the parameters that lies in the null space changes no output: without it they are smallest.
    z = best.x * np.where(length > 0, length, 1.0)
    z = z - found.null_space @ (found.null_space.T @ z)
    x = z / np.where(length > 0, length, 1.0)
    x[without_effect] = 0.0
    # A null direction may contain a parameter that its bound holds; of a rate no value is small.
    kept = best.at_bound | np.array([roles.of[name].kind == "rate" for name in names])
    x = np.where(kept, best.x, x)
    residual, jacobian = problem.residual(x), problem.jacobian(x)
    # The null space is that of the linearised model; farther away another value may fit worse.
    if not (np.isfinite(jacobian).all() and float(np.linalg.norm(residual)) <= as_good(problem, best)):
        return best, found
    return replace(best, x=x, residual=residual, jacobian=jacobian), found


def _refusal(problem: Problem, without_effect: list[str], groups: list[list[str]]) -> CalibrationError:
    reasons = []
    for name in without_effect:
        monomials = problem.roles.of[name].monomials or ()
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
    coordinates: Coordinates,
    table: FeatureTable,
    solutions: list[Solution],
    best: Solution,
    found: Identification,
    *,
    nonnegative: bool,
) -> FitResult:
    names, undetermined = problem.parameters, found.undetermined
    determined = [i for i in range(len(names)) if i not in undetermined and not best.at_bound[i]]
    # Parameters that nothing determines, or that a bound holds, use up no degrees of freedom and have no covariance.
    matrix = covariance(best.jacobian, best.residual, determined)
    units = parameter_units(problem.model, problem.roles, table.info)
    estimates = tuple(
        parameter_estimate(
            problem.roles.of[name],
            name,
            float(best.x[i]),
            units[name],
            float(np.sqrt(matrix[i, i])),
            at_bound=bool(best.at_bound[i]),
            determined=i not in undetermined,
        )
        for i, name in enumerate(names)
    )
    flat = _predicts_nothing(problem, problem.predict(best.x))
    status = FitStatus(
        best.converged and not flat,
        "the model predicts the same time for all kernels, although their times differ" if flat else best.reason,
        sum(solution.evaluations for solution in solutions),
        len(solutions),
        # Ends of rough runs beside the refined one: `_SAME_OPTIMUM` is far above the rough tolerance.
        sum(solution.norm <= as_good(problem, best) for solution in solutions),
    )
    # What bounds hide: how well the rows tell parameters apart.
    unbounded = tuple(i for i in range(len(names)) if coordinates.moving[i] and i not in undetermined)
    number, columns = condition_without_bounds(best.jacobian, unbounded)
    hidden = any(best.at_bound[i] for i in columns)
    return FitResult(
        estimates,
        problem,
        status,
        matrix,
        number,
        tuple(names[i] for i in columns) if hidden else (),
        nonnegative,
        table.sub_group_size,
    )


def _predicts_nothing(problem: Problem, predicted: NDArray[np.float64]) -> bool:
    """Return whether kernels that differ in features and times are all predicted the same, as by a launch alone."""
    differ = any(np.ptp(column) > 0 for column in problem.inputs.values())
    # Noise alone makes times differ by less than their mean.
    times = float(np.ptp(problem.output)) > float(np.abs(problem.output).mean())
    return differ and times and bool(np.ptp(predicted) <= _ALIKE * np.abs(predicted).max())


def _warn(result: FitResult) -> None:
    if not result.status.valid:
        warn(f"the fit did not converge: {result.status.reason}; do not use its values")
    if result.no_overlap:
        warn(f"no overlap was found: all costs are added, {', '.join(result.no_overlap)} = 0 says so")
    if result.negative_costs:
        cause = f"negative costs were fitted: {', '.join(result.negative_costs)}"
        warn(f"{cause}; add kernels that isolate them, or fit with nonnegative=True")
    if result.collinear:
        number = f"condition number {result.condition_number:.3g} without bounds"
        cause = f"the measurement kernels hardly separate {', '.join(result.collinear)} ({number})"
        warn(
            f"{cause}, and a bound hides that; use their confidence intervals, "
            "or add kernels that vary them independently"
        )
    if result.undetermined:
        cause = f"the measurement kernels do not determine {', '.join(result.undetermined)}"
        warn(f"{cause}; do not use the values for kernels unlike those measured")
