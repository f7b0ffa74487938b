"""A space measured exhaustively and searched with pruning, side by side, on an OpenCL device.

    python tests/bench/embedded_pruning.py search --seeds 3        # again and again, until all seeds are done
    python tests/bench/embedded_pruning.py measure --limit 150     # again and again, until all variants are measured
    python tests/bench/embedded_pruning.py again                   # the fastest, and what was found, side by side
    python tests/bench/embedded_pruning.py report
    python tests/bench/embedded_pruning.py replay --seeds 40
    python tests/bench/embedded_pruning.py cover --seeds 200

``measure`` times every variant of a space of examples/ once, in portions of so many seconds, and keeps times and what
building and timing cost in a CSV file. ``search`` searches the space from nothing: variants are described, a first
batch is measured, then 5 % of the space, each few chosen by what was learned from those before; everything is timed on
the same clock. Both begin with empty caches of loopy and pyopencl. One timing of a variant is off by
several per cent, and the fastest of hundreds is the luckiest: ``again`` times the fastest and all that searches found
in the same rounds, and losses are told from those times. ``replay`` searches from many seeds on the times that
``measure`` kept; ``cover`` draws first batches by chance, and says how often pruning to 5 % and to a promise keeps what
it should.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import sys
import tempfile
import time
from pathlib import Path

from perflex.features import SizedKernel

TOP = Path(__file__).resolve().parents[2]
SIZES = {"matmul": {"n": 512}, "stencil": {"nx": 256, "ny": 256, "nz": 64}}
CHUNK = 48
FIRST = 10
FASTEST = 60
FOUND = ("seed", "measured", "cost_s", "extract_s", "variant")


def timing() -> object:
    from perflex import TimingOptions

    return TimingOptions(trials=7, min_trials=3, budget_s=0.1)


def load_space(which: str) -> object:
    from importlib import import_module

    sys.path.insert(0, str(TOP / "examples"))
    return import_module(f"{which}_space").space


def read_rows(path: Path) -> dict[str, dict[str, float]]:
    if not path.is_file():
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        return {
            row["variant"]: {"s": float(row["seconds"]), "cost_s": float(row["cost_s"])} for row in csv.DictReader(file)
        }


def read_found(path: Path) -> list[dict[str, str]]:
    beside = path.with_suffix(".found.csv")
    if not beside.is_file():
        return []
    with beside.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def read_true(path: Path) -> dict[str, float]:
    """Return what is known best of each variant's time: where it was timed again, that."""
    again = read_rows(path.with_suffix(".again.csv"))
    return {name: row["s"] for name, row in {**read_rows(path), **again}.items() if math.isfinite(row["s"])}


def measure_some(path: Path, which: str, device: str, limit_s: float) -> None:
    """Time variants that are not in the file yet, until the limit; a failed one has the time nan."""
    from collections import Counter

    from perflex import find_device, using_store
    from perflex.search.spaces.building import settings_text
    from perflex.timing.measuring import measure

    space, done, begun = load_space(which), read_rows(path), time.perf_counter()
    everything = {settings_text(settings): settings for settings in space.valid_settings(Counter())}
    left = [name for name in everything if name not in done]
    chosen = find_device(device)
    with path.open("a", newline="", encoding="utf-8") as file, using_store("off"):
        writer = csv.writer(file)
        if not done:
            writer.writerow(("variant", "seconds", "cost_s"))
        while left and time.perf_counter() - begun < limit_s:
            portion, left = left[:CHUNK], left[CHUNK:]
            start = time.perf_counter()
            jobs = [SizedKernel(space.kernel(everything[name]), SIZES[which], name) for name in portion]
            outcomes = measure(jobs, chosen, timing())
            cost = (time.perf_counter() - start) / len(portion)
            for outcome in outcomes:
                writer.writerow((outcome.label, getattr(outcome, "seconds", float("nan")), cost))
            file.flush()
    print(f"{len(everything) - len(left)} of {len(everything)} variants measured")


def time_again(path: Path, which: str, device: str) -> None:
    """Time the fastest of the first table, and all that searches found, in the same rounds."""
    from collections import Counter

    from perflex import TimingOptions, find_device, using_store
    from perflex.search.spaces.building import settings_text
    from perflex.timing.measuring import measure

    rows, space = read_rows(path), load_space(which)
    fastest = sorted((name for name in rows if math.isfinite(rows[name]["s"])), key=lambda name: rows[name]["s"])
    chosen = list(dict.fromkeys([*fastest[:FASTEST], *(each["variant"] for each in read_found(path))]))
    settings = {settings_text(each): each for each in space.valid_settings(Counter())}
    options = TimingOptions(trials=60, min_trials=25, budget_s=0.5, precision=0.005)
    with using_store("off"):
        jobs = [SizedKernel(space.kernel(settings[name]), SIZES[which], name) for name in chosen]
        outcomes = measure(jobs, find_device(device), options)
    with path.with_suffix(".again.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("variant", "seconds", "cost_s"))
        writer.writerows((outcome.label, getattr(outcome, "seconds", float("nan")), 0.0) for outcome in outcomes)
    print(f"{len(chosen)} variants timed again")


def search(path: Path, which: str, device: str, seeds: int, workers: int) -> None:
    """Search the space anew from each seed that was not searched from yet."""
    from concurrent.futures import ProcessPoolExecutor

    from perflex import tune

    space = load_space(which)
    count = sum(1 for _ in space)
    known = {int(each["seed"]) for each in read_found(path)}
    seed = next(number for number in range(seeds + 1) if number not in known)
    if seed == seeds:
        print(f"all {seeds} seeds were searched from")
        return
    start = time.perf_counter()
    with ProcessPoolExecutor(workers) as executor:
        found = tune(
            space,
            SIZES[which],
            device=device,
            executor=executor,
            store="off",
            timing=timing(),
            budget=FIRST + math.ceil(0.05 * count),
            first=FIRST,
            seed=seed,
        )
    cost = time.perf_counter() - start
    beside = path.with_suffix(".found.csv")
    fresh = not beside.is_file()
    with beside.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        if fresh:
            writer.writerow(FOUND)
        writer.writerow((seed, len(found.history), cost, found.extract_s, found.best.name))
    print(f"seed {seed}: {found.best.name}, {cost:.1f} s, {found.extract_s:.1f} s of them describing")


def report(path: Path) -> None:
    """Compare searches with the exhaustive measurement."""
    rows, true = read_rows(path), read_true(path)
    whole, best = sum(row["cost_s"] for row in rows.values()), min(true.values())
    failed = sum(not math.isfinite(row["s"]) for row in rows.values())
    print(f"exhaustive: {len(rows)} variants ({failed} failed) in {whole:.0f} s, best {1e3 * best:.4g} ms")
    for each in read_found(path):
        cost, loss = float(each["cost_s"]), true[each["variant"]] / best - 1
        print(
            f"seed {each['seed']}: {each['measured']} measured, {100 * loss:.1f} % above the best; {cost:.1f} s in all "
            f"({100 * cost / whole:.1f} %), {float(each['extract_s']):.1f} s of them describing: {each['variant']}"
        )


def replay(path: Path, which: str, seeds: int) -> None:
    """Search from many seeds on the times that were measured before."""
    import numpy as np

    from perflex import Tuner
    from perflex.search.tuning.tuning import PLAIN_FEATURES

    rows = read_rows(path)
    extracted = load_space(which).extract(PLAIN_FEATURES, SIZES[which], sub_group_size=16)
    true, whole = read_true(path), sum(row["cost_s"] for row in rows.values())
    best = min(true.values())
    kept = math.ceil(0.05 * len(rows))
    losses, costs = [], []
    for seed in range(seeds):
        tuner = Tuner(extracted, budget=FIRST + kept, first=FIRST, seed=seed)
        while asked := tuner.ask(4):
            for each in asked:
                tuner.tell(each, rows[each.name]["s"], rows[each.name]["cost_s"])
        # A search times the fastest few again at its end.
        steps = sorted((step for step in tuner.history if math.isfinite(step.seconds)), key=lambda step: step.seconds)
        losses.append(min(true[step.name] for step in steps[:8]) / best - 1)
        costs.append(sum(rows[step.name]["cost_s"] for step in tuner.history))
    near = 100 * np.mean(np.array(losses) <= 0.03)
    print(
        f"{FIRST} + {kept} of {len(rows)} measured, {seeds} seeds: median {100 * np.median(losses):.1f} %, worst "
        f"{100 * max(losses):.1f} % above the best, within 3 % in {near:.0f} %; building and timing them "
        f"{np.median(costs):.1f} s, {100 * np.median(costs) / whole:.1f} % of {whole:.0f} s"
    )


def cover(path: Path, which: str, seeds: int) -> None:
    """Draw first batches by chance and prune to 5 % and to a promise, on the measured times."""
    import numpy as np

    from perflex import Promise
    from perflex.search.pruning.promise import keep_by_promise
    from perflex.search.tuning.feature_search import features_of
    from perflex.search.tuning.predictors import GaussianPredictor
    from perflex.search.tuning.tuning import PLAIN_FEATURES

    rows = read_rows(path)
    extracted = load_space(which).extract(PLAIN_FEATURES, SIZES[which], sub_group_size=16)
    seconds = np.array([rows[name]["s"] for name in extracted.names])
    valid = np.isfinite(seconds)
    seconds, features = seconds[valid], features_of(extracted)[valid]
    count, best, promise = len(seconds), seconds.min(), Promise()
    for size in (24, 32, 48, 96):
        near, covered, share = [], [], []
        for seed in range(seeds):
            batch = np.random.default_rng(seed).choice(count, size, replace=False)
            forecast = GaussianPredictor(features).forecast(batch, seconds[batch])
            first = np.argsort(forecast.logs)[: math.ceil(0.05 * count)]
            near.append(min(seconds[first].min(), seconds[batch].min()) <= 1.03 * best)
            decision = keep_by_promise(
                np.exp(forecast.logs),
                measured_index=batch,
                measured=seconds[batch],
                predicted_of_measured=np.exp(forecast.unseen),
                promise=promise,
            )
            covered.append(seconds[decision.kept].min() <= (1 + promise.loss) * best)
            share.append(len(decision.kept) / count)
        print(
            f"batch {size}: 5 % hold a variant within 3 % in {100 * np.mean(near):.1f} % of {seeds} draws; the promise "
            f"({promise}) holds in {100 * np.mean(covered):.1f} %, keeping {100 * np.median(share):.0f} % in the median"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("measure", "again", "search", "report", "replay", "cover"))
    parser.add_argument("--space", choices=tuple(SIZES), default="matmul")
    parser.add_argument("--device", default="intel")
    parser.add_argument("--limit", type=float, default=150.0)
    parser.add_argument("--csv", type=Path, default=Path("embedded_pruning.csv"))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--workers", type=int, default=4)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as empty:
        if given.what in {"measure", "search"}:
            os.environ["XDG_CACHE_HOME"] = empty  # read when loopy and pyopencl are imported
        if given.what == "measure":
            measure_some(given.csv, given.space, given.device, given.limit)
        elif given.what == "again":
            time_again(given.csv, given.space, given.device)
        elif given.what == "search":
            search(given.csv, given.space, given.device, given.seeds, given.workers)
        elif given.what == "report":
            report(given.csv)
        elif given.what == "replay":
            replay(given.csv, given.space, given.seeds)
        else:
            cover(given.csv, given.space, given.seeds)


if __name__ == "__main__":
    main()
