"""Pruning and tuning on measured GPU spaces: the calibration, its learned correction, the tuner, and baselines.

    python tests/bench/gpu_spaces.py --data DIR --samples 50,100,200 --seeds 20 --out results.jsonl

Every ``<kernel>/<gpu>.csv.gz`` (also .csv, .json, .json.gz) under DIR whose kernel's source is known (``--sources``).
``general_gpu`` says what to expect: of a large space 300 variants are counted, the others interpolated, as the strategy
for Kernel Tuner does. N random configurations are measured; then, of the rest:

* log_error: exp(mean |log predicted / measured|) - 1, which weighs too fast and too slow alike; ``source`` is what is
  expected times one factor, ``corrected`` what measured variants make of it, the trees know settings alone;
* spearman: rank correlation of predicted and measured;
* share_to_keep: rank, in the method's order, of the first configuration of the rest within 5 % of the best of the
  rest, as a share of the rest; the order is that of the predicted times, of ``corrected`` that of both predictions;
* best_after_n_plus_10: best time after 10 further measurements that the method chooses (with a fit after every fourth
  at the latest), relative to the best of the whole space. Kernel Tuner's strategies, random search and the tuner choose
  all N + 10 themselves.

A run that is started again goes on where the file ends.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import pickle
import random
import sys
import tempfile
import warnings
from collections import Counter, defaultdict
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from itertools import product
from pathlib import Path

import numpy as np
from judging import record, recorded, table

from perflex import PerflexWarning, SearchOptions, Tuner, load_machine, load_space
from perflex.search.acquisition import changes, most_promising
from perflex.search.kernel_tuner_strategy import expected_times
from perflex.search.measured_times import read_times
from perflex.search.settings_table import codes_of, corrected
from perflex.search.variants import EnumeratedSpace, settings_text

KEY = ("kernel", "gpu", "method", "samples", "seed")
PREDICTED, BEST = ("log_error", "spearman", "share_to_keep"), "best_after_n_plus_10"
PREDICTORS = ["source", "corrected", "extra trees", "gradient boosting"]
STRATEGIES = {
    "kernel_tuner genetic": "genetic_algorithm",
    "kernel_tuner annealing": "simulated_annealing",
    "kernel_tuner bayesian": "bayes_opt",
}
TUNER = "perflex tuner"
METHODS = [*PREDICTORS, TUNER, "random search", *STRATEGIES]
# What a space's source is called in benchmark_hub (AutoTuningAssociation), and the sizes that it does not state.
SOURCES = {
    "convolution_milo": ("kernels/convolution_milo.json", {}),
    "gemm": ("currently_unused/kernels/gemm.py any", {}),
    "pnpoly": ("currently_unused/kernels/pnpoly.json", {"n": 20_000_000}),
    "convolution": ("currently_unused/kernels/convolution.json", {}),
}
MACHINES = {
    "A100": "A100-40GB",
    "A4000": "RTX-A4000",
    "RTX_2080_Ti": "RTX-2080-Ti",
    "RTX_3060_laptop": "RTX-3060-Laptop",
    "W6600": "W6600",
    "W7800": "W7800",
}
# As many as the strategy for Kernel Tuner counts at most.
COUNTED = 300
NEAR = 1.05
MORE = 10


def spaces(folder):
    """Return the files ``<kernel>/<gpu>.csv``, ``.json``, or ``.gz`` of them, of kernels with a source."""
    files = (path for kernel in SOURCES for path in sorted(folder.glob(f"{kernel}/*")))
    found = [str(path) for path in files if path.name.removesuffix(".gz").endswith((".csv", ".json"))]
    return found or sys.exit(f"there is no measured space of {', '.join(SOURCES)} in {folder}; give --data")


def kernel_and_gpu(path):
    return Path(path).parent.name, Path(path).name.split(".")[0]


@lru_cache(maxsize=2)
def space_of(path, sources):
    """Return a kernel's space, the settings that were measured, and their times, shape ``(n,)``."""
    space = load_space(f"{sources}/{SOURCES[kernel_and_gpu(path)[0]][0]}")
    times = {}
    for stated, seconds in read_times(Path(path))[0]:
        if isinstance(seconds, float):
            # What a file does not state has one value only.
            row = tuple(int(float(stated.get(name, values[0]))) for name, values in space.values.items())
            times.setdefault(row, []).append(seconds)
    settings = [dict(zip(space.values, row, strict=True)) for row in times]
    return space, settings, np.array([np.median(each) for each in times.values()])


@lru_cache(maxsize=2)
def simulated(path, sources):
    """Return a space as a cache file that Kernel Tuner reads instead of running kernels, and its tunables' values."""
    space, settings, times = space_of(path, sources)
    values = {name: sorted({each[name] for each in settings}) for name in space.values}
    entries = {tuple(each.values()): 1e3 * time for each, time in zip(settings, times.tolist(), strict=True)}
    document = {
        "schema_version": "1.0.0", "device_name": "simulated", "kernel_name": "kernel", "problem_size": [1],
        "tune_params_keys": list(values), "tune_params": values, "objective": "time",
        "cache": {
            ",".join(map(str, row)): {**dict(zip(values, row, strict=True)), "time": entry}
            for row, entry in entries.items()
        },
    }  # fmt: skip
    folder = tempfile.TemporaryDirectory()
    (Path(folder.name) / "cache.json").write_text(json.dumps(document))
    return folder, values, lambda each: tuple(each[name] for name in values) in entries


def kernel_tuner(path, sources, method, evaluations, seed):
    from kernel_tuner import tune_kernel

    folder, values, measured = simulated(path, sources)
    np.random.seed(seed)  # noqa: NPY002  # Kernel Tuner draws from the global generators
    random.seed(seed)
    nowhere = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        warnings.simplefilter("ignore")
        found, _ = tune_kernel(
            "kernel",
            "__global__ void kernel(){}",
            (1,),
            [],
            values,
            restrictions=measured,
            simulation_mode=True,
            cache=f"{folder.name}/cache.json",
            strategy=STRATEGIES[method],
            strategy_options={"max_fevals": evaluations},
            quiet=True,
            lang="CUDA",
        )
    times = {}
    for result in found:
        times.setdefault(tuple(result[name] for name in values), result["time"])
    return min(each for each in list(times.values())[:evaluations] if isinstance(each, int | float))


def measures(times, predicted, order, taken):
    from scipy.stats import spearmanr

    rest = np.setdiff1d(np.arange(len(times)), taken)
    logs = np.log(predicted[rest]) - np.log(times[rest])
    order = order[~np.isin(order, taken)]
    rank = int(np.argmax(times[order] <= NEAR * times[rest].min())) + 1
    found = np.expm1(np.mean(np.abs(logs))), spearmanr(predicted[rest], times[rest])[0], rank / len(rest)
    return dict(zip(PREDICTED, map(float, found), strict=True))


def learner(method, seed):
    from sklearn.ensemble import ExtraTreesRegressor, GradientBoostingRegressor

    if method == "extra trees":
        return ExtraTreesRegressor(200, random_state=seed, n_jobs=1)
    return GradientBoostingRegressor(
        n_estimators=200, max_depth=4, learning_rate=0.05, subsample=0.7, random_state=seed
    )


def run_predictor(method, found, times, samples, seed):
    """Return how a method predicts from samples, and the best time after ten more measurements that it chooses.

    It is fitted again after each four. What is corrected chooses as the tuner does, others take the predicted fastest.
    """
    known = np.random.default_rng(seed).choice(len(times), samples, replace=False).tolist()

    def fitted(known):
        if method == "corrected":
            forecast = corrected(found.table, found.seconds, np.array(known), times[known])
            return np.exp(forecast.logs), forecast.order, forecast
        if method == "source":
            predicted = found.seconds * np.median(times[known] / found.seconds[known])
        else:
            predicted = np.exp(learner(method, seed).fit(found.table[known], np.log(times[known])).predict(found.table))
        return predicted, np.argsort(predicted, kind="stable"), None

    predicted, order, forecast = fitted(known)
    row = measures(times, predicted, order, known)
    for count in (4, 3, 3):
        if forecast is None:
            known += [i for i in order.tolist() if i not in set(known)][:count]
        else:
            changed = changes(codes_of(found.variants.settings), sorted(known, key=times.__getitem__)[:5])
            known += most_promising(forecast, np.log(times[known].min()), set(known), len(known), count, changed)
        if len(known) < samples + MORE:
            _, order, forecast = fitted(known)
    return row | {BEST: float(times[known].min() / times.min())}


def best_after(measured, samples, best):
    """Return the best of the first measurements over the best there is, at every number of samples."""
    return {count: {BEST: float(np.nanmin(measured[: count + MORE]) / best)} for count in samples}


def expected_of_source(path, sources, cache):
    """Return what the source says of a space's configurations; the same settings are counted for every GPU."""
    if not cache.exists():
        kernel, gpu = kernel_and_gpu(path)
        space, settings, _ = space_of(path, sources)
        draws = [random.Random(settings_text(each)).random() for each in settings]  # noqa: S311
        drawn = sorted(np.argsort(draws)[:COUNTED].tolist())
        sizes = {**space.sizes, **SOURCES[kernel][1]}
        every = EnumeratedSpace(kernel, space.build, len(settings), settings, Counter(), sizes)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PerflexWarning)
            cache.write_bytes(pickle.dumps(expected_times(every, drawn, load_machine(MACHINES[gpu]))))
    return pickle.loads(cache.read_bytes())


def run_tuner(found, times, samples, seed):
    options = SearchOptions(measurements=max(samples) + MORE, promise=False, seed=seed)
    tuner = Tuner(found.variants, prior=found.seconds, options=options)
    while proposals := tuner.ask():
        for each in proposals:
            tuner.tell(each, float(times[each.number]))
    return best_after(np.array([step.seconds for step in tuner.history]), samples, times.min())


def task(job):
    path, method, samples, seed, sources, out = job
    expected = expected_of_source(path, sources, out.with_suffix(f".{'.'.join(kernel_and_gpu(path))}.pickle"))
    times = space_of(path, sources)[2][expected.numbers]
    if method == TUNER:
        found = run_tuner(expected, times, samples, seed)
    elif method == "random search":
        found = best_after(times[np.random.default_rng(seed).permutation(len(times))], samples, times.min())
    elif method in STRATEGIES:
        best = {count: kernel_tuner(path, sources, method, count + MORE, seed) for count in samples}
        found = {count: {BEST: seconds / float(1e3 * times.min())} for count, seconds in best.items()}
    else:
        found = {count: run_predictor(method, expected, times, count, seed) for count in samples}
    keys = ((*kernel_and_gpu(path), method, count, seed) for count in found)
    return [dict(zip(KEY, key, strict=True)) | row for key, row in zip(keys, found.values(), strict=True)]


def jobs_left(arguments, samples, known):
    # Seed by seed, so that a run that is cut short leaves a balanced table.
    for seed, method, path in product(range(arguments.seeds), arguments.methods.split(","), spaces(arguments.data)):
        left = [n for n in samples if (*kernel_and_gpu(path), method, n, seed) not in known]
        if left:
            yield path, method, samples if method == TUNER else left, seed, arguments.sources, arguments.out


def one_core():
    import scipy.linalg  # noqa: F401  # brings its own library, which must be there to be limited
    import sklearn.ensemble  # noqa: F401
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)


def run_all(jobs, known, out, workers):
    """Run jobs in processes and append the rows that each returns, but for those that the file holds already."""
    with ProcessPoolExecutor(workers, initializer=one_core) as pool:
        for rows in pool.map(task, jobs):
            record(out, (row for row in rows if tuple(row[name] for name in KEY) not in known))


def summary(out):
    """Print two tables: how well methods predict, and what they find; median (worst) of the seeds."""
    found = defaultdict(lambda: defaultdict(list))
    for row in recorded(out):
        for name in {*PREDICTED, BEST} & {*row}:
            found[row["kernel"], row["gpu"], row["samples"]][row["method"], name].append(row[name])
    there = {method for every in found.values() for method, _ in every}
    predictors, methods = ([name for name in names if name in there] for names in (PREDICTORS, METHODS))
    rows, best = [], []
    for (kernel, gpu, samples), own in sorted(found.items()):

        def medians(field, scale, form, own=own):
            values = [own[name, field] for name in predictors]
            return " / ".join(form.format(scale * np.median(each)) if each else "-" for each in values)

        space = f"{kernel} {gpu.replace('_', ' ')}"
        cells = [_cell(own[name, "share_to_keep"], 100, "{:.2g}") for name in predictors]
        first = [medians("log_error", 100, "{:.1f}"), medians("spearman", 1, "{:.2f}")]
        rows.append([space, str(samples), *first, *cells])
        best.append([space, str(samples + MORE), *(_cell(own[name, BEST], 1, "{:.2f}") for name in methods)])
    keep = [f"keep, %: {name}" for name in predictors]
    print(table(["space", "N", f"error, %: {' / '.join(predictors)}", "Spearman", *keep], rows))
    print(table(["space", "measured", *methods], best))


def _cell(values, scale, form):
    return f"{form.format(scale * np.median(values))} ({form.format(scale * max(values))})" if values else "-"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/gpu_tuning"))
    parser.add_argument("--sources", type=Path, default=Path("../shared/data/kernel_sources/hub"))
    parser.add_argument("--samples", default="50,100,200")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("results.jsonl"))
    parser.add_argument("--methods", default=",".join(METHODS), help=f"of {', '.join(METHODS)}")
    parser.add_argument("--jobs", type=int, default=min(4, os.cpu_count() or 1))
    arguments = parser.parse_args()
    samples = [int(part) for part in arguments.samples.split(",")]
    known = {tuple(row[name] for name in KEY) for row in recorded(arguments.out)}
    run_all(jobs_left(arguments, samples, known), known, arguments.out, arguments.jobs)
    summary(arguments.out)


if __name__ == "__main__":
    main()
