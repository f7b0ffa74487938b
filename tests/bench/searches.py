"""Searches of measured GPU spaces: the tuner with and without predictions, trees, random and Kernel Tuner's strategies.

    python tests/bench/searches.py --data DIR --seeds 20 --out searches.jsonl

Whole spaces of `choices_parts`; of gemm, whose MDIMA and NDIMB mean nothing where SA and SB are 0, one setting for each
kernel. Predictions are those of ``general_gpu`` of so many configurations (``--counted``), the others interpolated, as
the strategy for Kernel Tuner does; the same configurations for all seeds. The tables say the best time found after 25,
60 and 210 measurements over the best of the space; median and worst of the seeds. A run goes on where the file ends.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import pickle
import random
import sys
import tempfile
import warnings
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
from choices import SHARED, machine_for
from choices_parts.spaces import measured_spaces
from judging import record, recorded, table

from perflex import PerflexWarning, SearchOptions, Tuner
from perflex.search.kernel_tuner_strategy import expected_times
from perflex.search.settings_table import features_of
from perflex.search.variants import EnumeratedSpace, Variants, settings_text

KEY, AFTER = ("space", "method", "seed"), (25, 60, 210)
STRATEGIES = {"KT genetic": "genetic_algorithm", "KT annealing": "simulated_annealing", "KT bayesian": "bayes_opt"}
METHODS = ["tuner, predictions", "tuner", "trees", "random", *STRATEGIES]
DEAD = {"MDIMA": "SA", "NDIMB": "SB"}


def variants_of(space):
    """Return a space's variants, one for each kernel, and their times, shape ``(n,)``."""
    one = {}
    for key in sorted(space.seconds):
        settings = space.settings(key)
        told = tuple(value for name, value in settings.items() if settings.get(DEAD.get(name), 1))
        one.setdefault(told, key)
    settings = tuple(map(space.settings, one.values()))
    names, nothing = tuple(map(settings_text, settings)), np.empty((len(settings), 0))
    found = Variants(names, (space.sizes,) * len(names), (), nothing, {}, settings=settings)
    return found, np.array([space.seconds[key] for key in one.values()])


def predictions(space, variants, counted, out):
    """Return what the source says of all variants, shape ``(n,)``; of some interpolated; kept in a file."""
    cache = out.with_suffix(f".{space.name.replace(' ', '-')}.pickle")
    if not cache.exists():
        chance = np.random.default_rng(0)
        drawn = sorted(chance.permutation(len(variants))[:counted].tolist())
        every = EnumeratedSpace(
            space.program, space.build, len(variants), variants.settings, Counter(), dict(space.sizes)
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PerflexWarning)
            found = expected_times(every, drawn, machine_for(space.gpu, None))
        # What turns out to be the same kernel as another is expected to take as long as the mean.
        seconds = np.full(len(variants), np.exp(np.log(found.seconds).mean()))
        seconds[found.numbers] = found.seconds
        cache.write_bytes(pickle.dumps(seconds))
    return pickle.loads(cache.read_bytes())


def tuned(variants, times, seed, prior=None):
    tuner = Tuner(variants, prior=prior, options=SearchOptions(max(AFTER), promise=False, seed=seed))
    while proposals := tuner.ask():
        for each in proposals:
            tuner.tell(each, float(times[each.number]))
    return [step.seconds for step in tuner.history]


def by_trees(variants, times, seed):
    """Measure twelve at random, then what trees of the settings predict to be the fastest, in batches of an eighth."""
    from sklearn.ensemble import ExtraTreesRegressor

    columns = features_of(variants)
    known = np.random.default_rng(seed).permutation(len(times))[:12].tolist()
    while len(known) < min(max(AFTER), len(times)):
        trees = ExtraTreesRegressor(100, random_state=seed, n_jobs=1).fit(columns[known], np.log(times[known]))
        order, taken = np.argsort(trees.predict(columns), kind="stable").tolist(), set(known)
        known += [number for number in order if number not in taken][: max(2, len(known) // 8)]
    return times[known].tolist()


def by_kernel_tuner(variants, times, seed, strategy):
    """Run one of Kernel Tuner's strategies in its simulation mode; its invalid choices cost nothing."""
    from kernel_tuner import tune_kernel

    values = {name: sorted({each[name] for each in variants.settings}) for name in variants.settings[0]}
    there = {tuple(each.values()): 1e3 * time for each, time in zip(variants.settings, times.tolist(), strict=True)}

    def measured(each):
        return tuple(each[name] for name in values) in there

    document = {
        "schema_version": "1.0.0", "device_name": "simulated", "kernel_name": "kernel", "problem_size": [1],
        "tune_params_keys": list(values), "tune_params": values, "objective": "time",
        "cache": {",".join(map(str, row)): {**dict(zip(values, row, strict=True)), "time": time}
                  for row, time in there.items()},
    }  # fmt: skip
    np.random.seed(seed)  # noqa: NPY002  # Kernel Tuner draws from the global generators
    random.seed(seed)
    nowhere = io.StringIO()
    with (
        tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(),
        contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere),
    ):  # fmt: skip
        warnings.simplefilter("ignore")
        cache = Path(folder) / "cache.json"
        cache.write_text(json.dumps(document))
        found, _ = tune_kernel(
            "kernel", "__global__ void kernel(){}", (1,), [], values, simulation_mode=True, cache=str(cache),
            restrictions=measured, strategy=strategy,
            strategy_options={"max_fevals": max(AFTER)}, quiet=True, lang="CUDA",
        )  # fmt: skip
    seen = {}
    for result in found:
        if isinstance(result["time"], int | float):
            seen.setdefault(tuple(result[name] for name in values), 1e-3 * result["time"])
    return list(seen.values())


def searched(method, variants, times, seed, prior):
    if method in STRATEGIES:
        measured = by_kernel_tuner(variants, times, seed, STRATEGIES[method])
    elif method == "trees":
        measured = by_trees(variants, times, seed)
    elif method == "random":
        measured = times[np.random.default_rng(seed).permutation(len(times))].tolist()
    else:
        measured = tuned(variants, times, seed, prior if "predictions" in method else None)
    return [float(min(measured[:count]) / times.min()) for count in AFTER]


def summary(out):
    found = defaultdict(lambda: defaultdict(list))
    for row in recorded(out):
        found[row["space"]][row["method"]].append(row["best"])
    methods = list(dict.fromkeys(row["method"] for row in recorded(out)))
    for place, count in enumerate(AFTER):
        rows = []
        for space, own in sorted(found.items()):
            bests = [[best[place] for best in own[method]] for method in methods]
            rows.append([space, *(f"{np.median(each):.2f} ({max(each):.2f})" if each else "-" for each in bests)])
        print(table([f"after {count}", *methods], rows))
    print({space: {method: len(each) for method, each in own.items()} for space, own in found.items()})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=SHARED)
    parser.add_argument("--only", default="", help="Only spaces whose names contain this.")
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    parser.add_argument("--counted", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("searches.jsonl"))
    arguments = parser.parse_args()
    known = {tuple(row[name] for name in KEY) for row in recorded(arguments.out)}
    spaces = [each for each in measured_spaces(arguments.data) if arguments.only in each.name]
    told = {each.name: variants_of(each) for each in spaces}
    # Seed by seed, so that a run that is cut short leaves a balanced table.
    for seed in range(arguments.seeds):
        for space in spaces:
            variants, times = told[space.name]
            for method in arguments.methods:
                if (space.name, method, seed) in known:
                    continue
                prior = None
                if "predictions" in method:
                    prior = predictions(space, variants, arguments.counted, arguments.out)
                best = searched(method, variants, times, seed, prior)
                record(arguments.out, [dict(zip(KEY, (space.name, method, seed), strict=True)) | {"best": best}])
    summary(arguments.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
