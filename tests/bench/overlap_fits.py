"""How often fits of overlapping costs are right: `python tests/bench/overlap_fits.py [--cases CASE ...] [--seeds 60]`.

Measurements are simulated, so that the truth is known: 50 kernels and 3 % of normal noise. Costs are drawn over three
decades each (``--data independent``), or are a size over three decades times an intensity over one and a half
(``--data sizes``), so that features grow together as those of kernels do. Cases of `smooth_max` are the truth (a hard
maximum, sharpness 4, either with a launch) and the form of the model (``p_cost * f``, or ``f / p_rate`` as for a
roofline); cases of `overlap` are the truth: costs that add up, a smooth step, and a hard maximum.

A fit is right if it raises nothing, converges, gives each cost within 5 % or three standard errors of the truth, or
marks one as undetermined or held by a bound, and predicts the kernels without their noise within 3 % rms.

Its sum of squares is compared with the best of many random starts, which know nothing of the fit's own and are
minimised by another method with derivatives by differences; a fit that gives the costs' sum is compared with the best
sum. The baseline beside the errors is the kernels' geometric mean.
"""

from __future__ import annotations

import argparse
import math
import warnings
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import least_squares

from perflex import FeatureTable, FitResult, Model, fit_model, scale_features_by_output
from perflex.errors import PerflexError, PerflexWarning

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Array = NDArray[np.float64]

OUTPUT = "f_cl_wall_time"
FEATURES = ("f_vol_dram_load", "f_vol_l2_l1_load", "f_op_float64_madd")
LAUNCH = "f_sync_kernel_launch"
# Seconds per byte, byte and sub-group operation.
COSTS = (1.2e-12, 4e-13, 5e-12)
LAUNCH_COST = 2e-5
KERNELS, NOISE = 50, 0.03
RANDOM_STARTS = 16
# Sum of squares above the best known one by less than this share count as the same minimum.
SAME = 1e-3


@dataclass(frozen=True)
class Case:
    """Measurements of one kind, and the model to fit to them.

    Attributes
    ----------
    name
        For ``--cases``.
    expression
        The model string.
    truth
        Seconds from costs, shape ``(kernels, costs)``, and the seed's launch cost.
    law
        Seconds from costs in seconds and the model's shape parameter.
    launch
        Whether the model has a launch term.
    shape
        Range of the shape parameter for random starts.
    data
        How costs are drawn.
    """

    name: str
    expression: str
    truth: Callable[[Array], Array]
    law: Callable[[Array, float], Array]
    launch: bool = False
    shape: tuple[float, float] = (0.05, 2000.0)
    data: str = "independent"


def norm_of(costs: Array, sharpness: float) -> Array:
    """Return the (1 + sharpness)-norm of each row."""
    largest = costs.max(axis=1)
    q = 1 + sharpness
    total: Array = largest * ((costs / largest[:, None]) ** q).sum(axis=1) ** (1 / q)
    return total


def step_of(costs: Array, edge: float) -> Array:
    """Return the paper's Eq. 5 with 6 of the first column and the sum of the others."""
    g, o = costs[:, 0], costs[:, 1:].sum(axis=1)
    step: Array = (g + o) / 2 + (g - o) / 2 * np.tanh(edge * (g - o))
    return step


def hard(costs: Array) -> Array:
    """Return the largest cost of each row."""
    return np.asarray(costs.max(axis=1))


def hard_step(costs: Array) -> Array:
    """Return the larger of the first cost and the sum of the others."""
    return np.maximum(costs[:, 0], costs[:, 1:].sum(axis=1))


def added(costs: Array) -> Array:
    """Return the sum of costs."""
    return np.asarray(costs.sum(axis=1))


def cases() -> list[Case]:
    """Return all cases."""
    found = []
    rates = ", ".join(f"{f} / p_{i}" for i, f in enumerate(FEATURES))
    costs = ", ".join(f"p_{i} * {f}" for i, f in enumerate(FEATURES))
    soft = partial(norm_of, sharpness=4.0)
    for form, terms in (("rates", rates), ("costs", costs)):
        text = f"smooth_max({terms}, p_sharp)"
        found.append(Case(f"hard-{form}", text, hard, norm_of))
        found.append(Case(f"sharp4-{form}", text, soft, norm_of))
        found.append(Case(f"launch-{form}", f"p_launch * {LAUNCH} + {text}", soft, norm_of, launch=True))
        found.append(Case(f"hard-launch-{form}", f"p_launch * {LAUNCH} + {text}", hard, norm_of, launch=True))
    text = f"overlap(p_0 * {FEATURES[0]}, p_1 * {FEATURES[1]} + p_2 * {FEATURES[2]}, p_edge)"
    step = partial(step_of, edge=3e3)
    for name, truth in (("added", added), ("step", step), ("hard-step", hard_step)):
        found.append(Case(f"overlap-{name}", text, truth, step_of, shape=(1e-1, 1e7)))
        with_launch = f"p_launch * {LAUNCH} + {text}"
        found.append(Case(f"overlap-{name}-launch", with_launch, truth, step_of, launch=True, shape=(1e-1, 1e7)))
    return found


def columns_of(case: Case, seed: int) -> Array:
    """Return the costs of a seed's kernels without a launch, in seconds."""
    random = np.random.default_rng([seed, len(case.name)])
    # Launch terms are only seen beside kernels that are not much longer.
    low, high = (-5.5, -2.5) if case.launch else (-5.0, -2.0)
    if case.data == "independent":
        columns: Array = 10 ** random.uniform(low, high, (KERNELS, len(COSTS)))
        return columns
    exponents = random.uniform(low, high, (KERNELS, 1)) + random.uniform(-0.75, 0.75, (KERNELS, len(COSTS)))
    return np.power(10.0, exponents)


def table_of(case: Case, seed: int) -> tuple[Model, FeatureTable, Array]:
    """Return the model, the measurements, and the times without noise."""
    costs = columns_of(case, seed)
    exact = case.truth(costs) + LAUNCH_COST * case.launch
    noise = np.random.default_rng([seed, 2, len(case.name)]).normal(size=KERNELS)
    model = Model(OUTPUT, case.expression)
    values = dict(zip(FEATURES, (costs / COSTS).T, strict=True)) | {LAUNCH: np.ones(KERNELS)}
    inputs = model.input_features()
    rows = np.column_stack([exact * (1 + NOISE * noise), *(values[name] for name in inputs)])
    labels = tuple(f"kernel {i}" for i in range(KERNELS))
    return model, scale_features_by_output(FeatureTable(OUTPUT, (OUTPUT, *inputs), labels, rows)), exact


def best_known(case: Case, seed: int, measured: Array, *, summed: bool = False) -> float:
    """Return the least residual norm that random starts find, over costs at or above zero."""
    # Columns in units of their true costs: the minimum lies near one, random starts within a factor of 100 of it.
    costs = columns_of(case, seed)
    random = np.random.default_rng([seed, 7, 77])
    low, high = np.log(case.shape)

    def residual(x: Array) -> Array:
        scaled = costs * np.exp(x[: len(COSTS)])
        seconds = added(scaled) if summed else case.law(scaled, float(np.exp(x[len(COSTS)])))
        if case.launch:
            seconds = seconds + LAUNCH_COST * np.exp(x[-1])
        return np.nan_to_num(seconds / measured - 1, nan=1e6, posinf=1e6)

    best = math.inf
    count = len(COSTS) + (not summed) + case.launch
    for start in range(RANDOM_STARTS):
        x = random.normal(0, 0.2 if start % 2 else 1.5, count)
        lower, upper = np.full(count, -14.0), np.full(count, 14.0)
        if not summed:
            x[len(COSTS)] = random.uniform(low, high)
            lower[len(COSTS)], upper[len(COSTS)] = low - 1e-9, high + 1e-9
        x = np.clip(x, lower + 1e-6, upper - 1e-6)
        try:
            end = least_squares(residual, x, bounds=(lower, upper), max_nfev=300)
        except ValueError:
            continue
        best = min(best, float(np.linalg.norm(end.fun)))
    return best


@dataclass(frozen=True)
class Outcome:
    """What became of one fit."""

    seed: int
    raised: str = ""
    converged: bool = False
    costs: bool = False
    marked: bool = False
    predicted: float = math.nan
    above_best: float = math.nan
    fit: FitResult | None = None

    @property
    def right(self) -> bool:
        """Whether all is right."""
        return not self.raised and self.converged and (self.costs or self.marked) and self.predicted <= NOISE


def cost_is_right(fit: FitResult, name: str, truth: float) -> bool:
    """Return whether a cost, or a rate as a cost, is the true one within 5 % or three standard errors."""
    estimate = fit.parameter(name)
    error = 0.0 if math.isnan(estimate.standard_error) else estimate.standard_error
    return abs(estimate.value - truth) <= max(0.05 * abs(truth), 3 * error)


def outcome(case: Case, seed: int, *, nonnegative: bool) -> Outcome:
    """Fit one seed of a case."""
    model, table, exact = table_of(case, seed)
    measured = table.column(OUTPUT)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PerflexWarning)
            fit = fit_model(model, table, nonnegative=nonnegative)
    except PerflexError as error:
        return Outcome(seed, raised=str(error))
    rates = "/ p_0" in case.expression
    truths = {f"p_{i}": 1 / cost if rates else cost for i, cost in enumerate(COSTS)}
    if case.launch:
        truths["p_launch"] = LAUNCH_COST
    values = {name: table.column(name) for name in model.input_features()}
    predicted = model.evaluate(fit, values)
    summed = bool(getattr(fit, "no_overlap", ()))
    best = best_known(case, seed, measured, summed=summed)
    return Outcome(
        seed,
        converged=fit.status.valid,
        costs=all(cost_is_right(fit, name, truth) for name, truth in truths.items()),
        marked=any(name in fit.undetermined or fit.parameter(name).at_bound for name in truths),
        predicted=float(np.sqrt(np.mean((predicted / exact - 1) ** 2))),
        above_best=float(np.linalg.norm(np.asarray(predicted) / measured - 1)) ** 2 / best**2 - 1,
        fit=fit,
    )


def show(case: Case, outcomes: Sequence[Outcome]) -> None:
    """Print a line for a case, and one for each fit that is not right."""
    errors = np.array([o.predicted for o in outcomes if not o.raised])
    spread = []
    for o in outcomes:
        exact = table_of(case, o.seed)[2]
        spread.append(np.sqrt(np.mean((np.exp(np.log(exact).mean()) / exact - 1) ** 2)))
    above = np.array([o.above_best for o in outcomes if not o.raised])
    bound = sum(bool(o.fit and o.fit.at_bound) for o in outcomes)
    print(
        f"{case.name:17} right {sum(o.right for o in outcomes):3} of {len(outcomes)}: "
        f"raised {sum(bool(o.raised) for o in outcomes)}, not converged "
        f"{sum(not o.raised and not o.converged for o in outcomes)}, costs wrong "
        f"{sum(not o.raised and not o.costs for o in outcomes)} (unmarked "
        f"{sum(not o.raised and not o.costs and not o.marked for o in outcomes)}), at the best known minimum "
        f"{int((above <= SAME).sum())}, at a bound {bound}; no overlap said "
        f"{sum(bool(getattr(o.fit, 'no_overlap', ())) for o in outcomes)}; error without noise, rms: median "
        f"{100 * np.median(errors):.2f} %, worst {100 * errors.max():.2f} % (geometric mean as prediction: "
        f"{100 * np.median(spread):.0f} %)"
    )
    for o in outcomes:
        if not o.right or o.above_best > SAME:
            what = o.raised[:90] or (
                f"converged {o.converged}, costs {o.costs}, marked {o.marked}, error {100 * o.predicted:.2f} %, "
                f"above best {o.above_best:.2g}, { {k: float(f'{v:.4g}') for k, v in (o.fit or {}).items()} }"
            )
            print(f"    seed {o.seed}: {what}")


def main() -> None:
    """Print how many fits of each case are right."""
    parser = argparse.ArgumentParser(description="How often fits of overlapping costs are right.")
    parser.add_argument("--cases", nargs="*", choices=[case.name for case in cases()], help="all by default")
    parser.add_argument("--seeds", type=int, default=60, help="seeds of each case")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--data", choices=["independent", "sizes"], default="independent", help="how costs are drawn")
    parser.add_argument("--nonnegative", action="store_true", help="keep costs at or above zero, as calibrations do")
    options = parser.parse_args()
    for case in cases():
        if not options.cases or case.name in options.cases:
            seeds = range(options.first, options.first + options.seeds)
            drawn = replace(case, data=options.data)
            show(drawn, [outcome(drawn, seed, nonnegative=options.nonnegative) for seed in seeds])


if __name__ == "__main__":
    main()
