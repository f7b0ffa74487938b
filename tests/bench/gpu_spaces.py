"""Predictions of measured GPU spaces, corrected by a few of their times, beside trees that see the settings alone.

    python tests/bench/gpu_spaces.py --data DIR --samples 50 100 --seeds 3 --out results.jsonl

Spaces and predictions (``source``) are those of ``searches.py``. N random configurations are measured; then, of the
rest:

* log_error: exp(mean |log predicted / measured|) - 1, which weighs too fast and too slow alike; ``source`` is what is
  expected times one factor, ``corrected`` what measured variants make of it;
* spearman: rank correlation of predicted and measured;
* share_to_keep: rank, in the method's order, of the first configuration of the rest within 5 % of the best of the
  rest, as a share of the rest; the order is that of the predicted times, of ``corrected`` that of both predictions;
* best: best time after 10 further measurements that the method chooses (with a fit after every fourth at the latest),
  relative to the best of the whole space.

A run that is started again goes on where the file ends.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from itertools import product
from pathlib import Path

import numpy as np
from choices import SHARED, machine_for
from choices_parts.spaces import measured_spaces
from judging import record, recorded, table
from searches import predictions, variants_of

from perflex.search.acquisition import changes, most_promising
from perflex.search.settings_table import codes_of, corrected, features_of

KEY = ("space", "method", "samples", "seed")
FIELDS = ("log_error", "spearman", "share_to_keep", "best")
METHODS = ["source", "corrected", "extra trees", "gradient boosting"]
NEAR = 1.05


def measures(times, predicted, order, taken):
    from scipy.stats import spearmanr

    rest = np.setdiff1d(np.arange(len(times)), taken)
    logs = np.log(predicted[rest]) - np.log(times[rest])
    order = order[~np.isin(order, taken)]
    rank = int(np.argmax(times[order] <= NEAR * times[rest].min())) + 1
    return np.expm1(np.mean(np.abs(logs))), spearmanr(predicted[rest], times[rest])[0], rank / len(rest)


def learner(method, seed):
    from sklearn.ensemble import ExtraTreesRegressor, GradientBoostingRegressor

    if method == "extra trees":
        return ExtraTreesRegressor(200, random_state=seed, n_jobs=1)
    return GradientBoostingRegressor(
        n_estimators=200, max_depth=4, learning_rate=0.05, subsample=0.7, random_state=seed
    )


def run(method, variants, prior, times, samples, seed):
    """Return how a method predicts from samples, and the best time after ten more measurements that it chooses.

    It is fitted again after each four. What is corrected chooses as the tuner does, others take the predicted fastest.
    """
    known = np.random.default_rng(seed).choice(len(times), samples, replace=False).tolist()
    columns = features_of(variants)

    def fitted(known):
        if method == "corrected":
            forecast = corrected(variants, prior, np.array(known), times[known])
            return np.exp(forecast.logs), forecast.order, forecast
        if method == "source":
            predicted = prior * np.median(times[known] / prior[known])
        else:
            predicted = np.exp(learner(method, seed).fit(columns[known], np.log(times[known])).predict(columns))
        return predicted, np.argsort(predicted, kind="stable"), None

    predicted, order, forecast = fitted(known)
    found = measures(times, predicted, order, known)
    for count in (4, 3, 3):
        if forecast is None:
            known += [i for i in order.tolist() if i not in set(known)][:count]
        else:
            changed = changes(codes_of(variants.settings), sorted(known, key=times.__getitem__)[:5])
            known += most_promising(forecast, np.log(times[known].min()), set(known), len(known), count, changed)
        if len(known) < samples + 10:
            _, order, forecast = fitted(known)
    return dict(zip(FIELDS, map(float, (*found, times[known].min() / times.min())), strict=True))


def summary(out):
    """Print a table of each measure: median (worst) of the seeds."""
    found = defaultdict(lambda: defaultdict(list))
    for row in recorded(out):
        found[row["space"], row["samples"]][row["method"]].append(row)
    forms = (100, "{:.1f}"), (1, "{:.2f}"), (100, "{:.2g}"), (1, "{:.2f}")
    for field, (scale, form) in zip(FIELDS, forms, strict=True):
        worst = min if field == "spearman" else max
        rows = []
        for (space, samples), own in sorted(found.items()):
            values = [[scale * row[field] for row in own[method]] for method in METHODS]
            cells = (f"{form.format(np.median(each))} ({form.format(worst(each))})" if each else "-" for each in values)
            rows.append([space, str(samples), *cells])
        print(table([field, "N", *METHODS], rows))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=SHARED)
    parser.add_argument("--only", default="", help="Only spaces whose names contain this.")
    parser.add_argument("--samples", type=int, nargs="+", default=[50, 100])
    parser.add_argument("--counted", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("results.jsonl"))
    arguments = parser.parse_args()
    known = {tuple(row[name] for name in KEY) for row in recorded(arguments.out)}
    named = (each for each in measured_spaces(arguments.data) if arguments.only in each.name)
    spaces = [each for each in named if machine_for(each.gpu, None) is not None]
    told = {each.name: variants_of(each) for each in spaces}
    # Seed by seed, so that a run that is cut short leaves a balanced table.
    for seed, space, method, samples in product(range(arguments.seeds), spaces, METHODS, arguments.samples):
        key = (space.name, method, samples, seed)
        if key not in known:
            variants, times = told[space.name]
            prior = predictions(space, variants, arguments.counted, arguments.out)
            row = run(method, variants, prior, times, samples, seed)
            record(arguments.out, [dict(zip(KEY, key, strict=True)) | row])
    summary(arguments.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
