"""How often a kept set holds what was promised, on measured GPU spaces.

    python tests/bench/promise_coverage.py --data DIR --samples 100 --seeds 200 --out coverage.csv

For every space of gpu_spaces.py and every seed: N random configurations are measured, the rest is predicted, and the
set is kept that holds a configuration within 5 % of the best with 95 % confidence. Columns
``kernel,gpu,method,samples,seed,kept_share,covered,met``. A run that is started again goes on where the file ends.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from measured_spaces import KEY, kernel_and_gpu, known_keys, read_rows, run_all, space_of, spaces

from perflex import Promise
from perflex.search.described.hybrid import HybridPredictor
from perflex.search.pruning.promise import keep_by_promise

FIELDS = [*KEY, "kept_share", "covered", "met"]
FOLDS = 5


def predictions(method, space, index, measured, seed):
    """Return the predicted space, and predictions of the measured ones by models that did not see them."""
    if method == "hybrid":
        found = HybridPredictor(space, seed).predict(index, measured, unseen=True)
        return found.predicted, found.unseen
    unseen = np.empty(len(index))
    fold = np.random.default_rng(seed).permutation(len(index)) % FOLDS
    for number in range(FOLDS):
        seen = fold != number
        unseen[~seen] = space.fit_analytic(index[seen], measured[seen]).predicted[index[~seen]]
    return space.fit_analytic(index, measured).predicted, unseen


def task(job):
    path, method, samples, seed, promise = job
    space, times = space_of(path)
    index = np.random.default_rng(seed).choice(len(times), samples, replace=False)
    predicted, unseen = predictions(method, space, index, times[index], seed)
    decision = keep_by_promise(
        predicted, measured_index=index, measured=times[index], predicted_of_measured=unseen, promise=promise
    )
    covered = times[decision.kept].min() <= (1 + promise.loss) * times.min()
    share = len(decision.kept) / len(times)
    return [[*kernel_and_gpu(path), method, samples, seed, share, int(covered), int(decision.met)]]


def summary(out):
    groups = {}
    for row in read_rows(out):
        groups.setdefault((row["kernel"], row["gpu"], row["method"], row["samples"]), []).append(row)
    print("| space | method | N | seeds | coverage | kept, median | kept, worst |\n|" + " --- |" * 7)
    for (kernel, gpu, method, samples), rows in sorted(groups.items()):
        covered = np.mean([int(row["covered"]) for row in rows])
        kept = [float(row["kept_share"]) for row in rows]
        shares = f"{np.median(kept):.2%} | {max(kept):.2%}"
        print(f"| {kernel} {gpu} | {method} | {samples} | {len(rows)} | {covered:.1%} | {shares} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data/gpu_tuning"))
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--methods", default="analytic,hybrid")
    parser.add_argument("--out", type=Path, default=Path("coverage.csv"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds after which no further run begins")
    arguments = parser.parse_args()
    known = known_keys(arguments.out)
    jobs = [
        (path, method, arguments.samples, seed, Promise())
        for seed in range(arguments.seeds)
        for method in arguments.methods.split(",")
        for path in spaces(arguments.data)
        if (*kernel_and_gpu(path), method, str(arguments.samples), str(seed)) not in known
    ]
    run_all(task, jobs, arguments.out, FIELDS, arguments.jobs, arguments.limit)
    summary(arguments.out)


if __name__ == "__main__":
    main()
