"""Pruning and tuning on measured GPU spaces: the analytic model, its learned correction, the tuner, and baselines.

    python tests/bench/gpu_spaces.py --data DIR --samples 50,100,200 --seeds 20 --out results.csv

Every ``<kernel>/<gpu>.csv.gz`` (also .csv, .json, .json.gz) under DIR whose kernel has a description, whatever the GPU.
N random configurations (different kernels) are measured; then, of the rest:

* log_error: exp(mean |log predicted / measured|) - 1, which weighs too fast and too slow alike;
* spearman: rank correlation of predicted and measured;
* share_to_keep: rank, in the method's order, of the first configuration of the rest within 5 % of the best of the
  rest, as a share of the rest; the order is that of the predicted times, for the hybrid that of both its predictions;
* best_after_n_plus_10: best time after 10 further measurements that the method chooses (with a fit after every fourth
  at the latest), relative to the best of the whole space. Kernel Tuner's strategies, random search and the tuner
  choose all N + 10 themselves.

A run that is started again goes on where the file ends.
"""

from __future__ import annotations

import argparse
import os
from functools import lru_cache
from pathlib import Path

import numpy as np
from gpu_kernel_tuner import STRATEGIES, SimulatedSpace
from measured_spaces import KEY, kernel_and_gpu, known_keys, read_rows, run_all, space_of, spaces

from perflex import tune
from perflex.search.described.hybrid import HybridPredictor
from perflex.search.tuning.described_search import most_promising

FIELDS = [*KEY, "log_error", "spearman", "share_to_keep", "best_after_n_plus_10"]
PREDICTORS = ["analytic", "hybrid", "extra trees", "gradient boosting"]
METHODS = [*PREDICTORS, "perflex tuner", "random search", *list(STRATEGIES)[:3]]
NEAR = 1.05
MORE = 10


@lru_cache(maxsize=2)
def simulated(path: str):
    # All rows, not one per kernel: Kernel Tuner does not know which settings change nothing.
    space, times = space_of(path)
    return SimulatedSpace(space.description, space.settings, times)


def measures(times, predicted, order, taken):
    from scipy.stats import spearmanr

    rest = np.setdiff1d(np.arange(len(times)), taken)
    logs = np.log(predicted[rest]) - np.log(times[rest])
    order = order[~np.isin(order, taken)]
    rank = int(np.argmax(times[order] <= NEAR * times[rest].min())) + 1
    return [float(np.expm1(np.mean(np.abs(logs)))), float(spearmanr(predicted[rest], times[rest])[0]), rank / len(rest)]


def raw(space):
    return np.column_stack([np.asarray(space.settings[name]) for name in space.description.tunables])


def learner(method, seed):
    from sklearn.ensemble import ExtraTreesRegressor, GradientBoostingRegressor

    if method == "extra trees":
        return ExtraTreesRegressor(200, random_state=seed, n_jobs=1)
    return GradientBoostingRegressor(
        n_estimators=200, max_depth=4, learning_rate=0.05, subsample=0.7, random_state=seed
    )


def predictor(method, space, seed):
    """Return a function from (index, times) to predicted times of the space."""
    if method == "analytic":
        return lambda index, times: space.fit_analytic(index, times).predicted
    table = raw(space)
    return lambda index, times: np.exp(learner(method, seed).fit(table[index], np.log(times)).predict(table))


def further(times, taken, predicted, refit):
    """Return the best time after ten more measurements: predicted fastest first, fitted again after each four."""
    known = list(taken)
    for count in (4, 3, 3):
        fresh = [i for i in np.argsort(predicted, kind="stable") if i not in set(known)][:count]
        known += fresh
        predicted = refit(np.array(known), times[known])
    return times[known].min()


def run_predictor(method, space, times, samples, seed):
    taken = np.random.default_rng(seed).choice(len(times), samples, replace=False)
    if method == "hybrid":
        found = HybridPredictor(space, seed).predict(taken, times[taken])
        first, order = found.predicted, found.order
        known = list(taken)
        for count in (4, 3, 3):
            known += list(most_promising(space, found, np.array(known), count, seed))
            if len(known) < samples + MORE:
                found = HybridPredictor(space, seed).predict(np.array(known), times[known])
        best = times[known].min()
    else:
        fit = predictor(method, space, seed)
        first = fit(taken, times[taken])
        order = np.argsort(first, kind="stable")
        best = further(times, taken, first, fit)
    return [*measures(times, first, order, taken), float(best / times.min())]


def run_tuner(space, times, samples, seed):
    """Rows of one run of the tuner, read off at every number of samples."""
    budget = max(samples) + MORE
    found = tune(space, measure=lambda variant: float(times[variant.number]), budget=budget, seed=seed)
    measured = np.array([step.seconds for step in found.history])
    return {count: float(np.nanmin(measured[: count + MORE]) / times.min()) for count in samples}


def task(job):
    path, method, samples, seed = job
    space, times = space_of(path)
    kernel, gpu = kernel_and_gpu(path)
    nothing = ["", "", ""]
    rows = []
    if method == "perflex tuner":
        for count, best in run_tuner(space, times, samples, seed).items():
            rows.append([kernel, gpu, method, count, seed, *nothing, best])
        return rows
    for count in samples:
        if method == "random search":
            drawn = np.random.default_rng(seed).permutation(len(times))[: count + MORE]
            values = [*nothing, float(times[drawn].min() / times.min())]
        elif method in STRATEGIES:
            values = [*nothing, simulated(path).run(method, count + MORE, seed)]
        else:
            values = run_predictor(method, space, times, count, seed)
        rows.append([kernel, gpu, method, count, seed, *values])
    return rows


def jobs_left(arguments, samples):
    known = known_keys(arguments.out)
    paths = spaces(arguments.data)
    # Seed by seed, so that a run that is cut short leaves a balanced table.
    for seed in range(arguments.seeds):
        for method in arguments.methods.split(","):
            for path in paths:
                row = (*kernel_and_gpu(path), method)
                left = [n for n in samples if (*row, str(n), str(seed)) not in known]
                if left:
                    yield path, method, samples if method == "perflex tuner" else left, seed


def summary(out):
    """Print two tables: how well methods predict, and what they find; median (worst) of the seeds."""
    groups = {}
    for row in read_rows(out):
        groups.setdefault((row["kernel"], row["gpu"], int(row["samples"])), {}).setdefault(row["method"], []).append(
            row
        )
    methods = [name for name in [*PREDICTORS, *METHODS, *STRATEGIES] if any(name in found for found in groups.values())]
    methods = list(dict.fromkeys(methods))
    predictors = [name for name in methods if name in PREDICTORS]
    _print_table(
        groups,
        {f"error, %: {' / '.join(predictors)}": lambda found: _medians(found, predictors, "log_error", 100, "{:.1f}")}
        | {"Spearman": lambda found: _medians(found, predictors, "spearman", 1, "{:.2f}")}
        | {f"keep, %: {name}": _column(name, "share_to_keep", 100, "{:.2g}") for name in predictors},
    )
    print()
    _print_table(groups, {name: _column(name, "best_after_n_plus_10", 1, "{:.2f}") for name in methods}, more=MORE)
    print()
    for name in methods:
        counts = {len(found[name]) for found in groups.values() if name in found}
        print(f"{name}: {min(counts)} to {max(counts)} seeds")


def _print_table(groups, columns, more=0):
    head = ["space", "measured" if more else "N", *columns]
    print(f"| {' | '.join(head)} |\n|{' --- |' * len(head)}")
    for (kernel, gpu, samples), found in sorted(groups.items()):
        cells = [f"{kernel} {gpu.replace('_', ' ')}", str(samples + more), *(make(found) for make in columns.values())]
        print(f"| {' | '.join(cells)} |")


def _medians(found, methods, field, scale, form):
    values = [[scale * float(row[field]) for row in found.get(name, []) if row[field]] for name in methods]
    return " / ".join(form.format(np.median(each)) if each else "-" for each in values)


def _column(method, field, scale, form):
    def cell(found):
        values = [scale * float(row[field]) for row in found.get(method, []) if row[field]]
        return f"{form.format(np.median(values))} ({form.format(max(values))})" if values else "-"

    return cell


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data/gpu_tuning"))
    parser.add_argument("--samples", default="50,100,200")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("results.csv"))
    parser.add_argument(
        "--methods",
        default=",".join(METHODS),
        help=f"of {', '.join([*PREDICTORS, 'perflex tuner', 'random search', *STRATEGIES])}",
    )
    parser.add_argument("--jobs", type=int, default=min(4, os.cpu_count() or 1))
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds after which no further run begins")
    arguments = parser.parse_args()
    samples = [int(part) for part in arguments.samples.split(",")]
    jobs = jobs_left(arguments, samples)
    run_all(task, jobs, arguments.out, FIELDS, arguments.jobs, arguments.limit)
    summary(arguments.out)


if __name__ == "__main__":
    main()
