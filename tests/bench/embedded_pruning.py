"""A space measured exhaustively and searched with pruning, side by side, on an OpenCL device.

    python tests/bench/embedded_pruning.py measure --limit 150     # again and again until all are measured
    python tests/bench/embedded_pruning.py search
    python tests/bench/embedded_pruning.py replay --seeds 40
    python tests/bench/embedded_pruning.py cover --seeds 200

The first part times every variant of examples/matmul_space.py once, in portions of so many seconds, and keeps times and
what building and timing cost in a CSV file. The second searches the space anew from nothing: variants are described, a
first batch is measured, and then 5 % of the space, each few chosen by what was learned from those before; everything is
timed on the same clock. ``replay`` does that search from many seeds on the times of the first part: it says what is
found and what measuring would have cost, but not what describing costs. ``cover`` draws first batches by chance from
the measured times, and says how often pruning to 5 % and to a promise keeps what it should.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
SIZES = {"n": 512}
CHUNK = 16
FIRST = 10


def timing() -> object:
    from perflex._timing import TimingOptions

    return TimingOptions(trials=7, min_trials=3, budget_s=0.1)


def load_space() -> object:
    sys.path.insert(0, str(TOP / "examples"))
    from matmul_space import space

    return space


def read_rows(path: Path) -> dict[str, dict[str, float]]:
    if not path.is_file():
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        return {
            row["variant"]: {"s": float(row["seconds"]), "cost_s": float(row["cost_s"])} for row in csv.DictReader(file)
        }


def measure_some(path: Path, device: str, limit_s: float) -> None:
    """Time variants that are not in the file yet, until the limit; a failed one has the time nan."""
    from collections import Counter

    from perflex._devices import find_device
    from perflex._prune.space import settings_text
    from perflex._store import using_store
    from perflex._timing import measure

    space, done, begun = load_space(), read_rows(path), time.perf_counter()
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
            jobs = [(space.kernel(everything[name]), SIZES, name) for name in portion]
            outcomes = measure(jobs, chosen, timing())
            cost = (time.perf_counter() - start) / len(portion)
            for outcome in outcomes:
                writer.writerow((outcome.label, getattr(outcome, "seconds", float("nan")), cost))
            file.flush()
    print(f"{len(everything) - len(left)} of {len(everything)} variants measured")


def search(path: Path, device: str, seeds: int, workers: int) -> None:
    """Search the space anew, and compare what that found and cost with the exhaustive measurement."""
    from concurrent.futures import ProcessPoolExecutor

    from perflex import tune

    space, rows = load_space(), read_rows(path)
    times = {name: row["s"] for name, row in rows.items() if math.isfinite(row["s"])}
    whole, best = sum(row["cost_s"] for row in rows.values()), min(times.values())
    print(
        f"exhaustive: {len(rows)} variants ({len(rows) - len(times)} failed) in {whole:.0f} s, best {1e3 * best:.4g} ms"
    )
    kept = math.ceil(0.05 * len(rows))
    for seed in range(seeds):
        start = time.perf_counter()
        with ProcessPoolExecutor(workers) as executor:
            found = tune(
                space,
                SIZES,
                device=device,
                executor=executor,
                store="off",
                timing=timing(),
                budget=FIRST + kept,
                first=FIRST,
                seed=seed,
            )
        cost = time.perf_counter() - start
        loss = times[found.best.name] / best - 1
        print(
            f"seed {seed}: {len(found.history)} of {len(rows)} measured, best {found.best.name}: exhaustive time "
            f"{100 * loss:.1f} % above the best; {cost:.1f} s in all ({100 * cost / whole:.1f} %), "
            f"{found.extract_s:.1f} s of them describing"
        )


def replay(path: Path, seeds: int) -> None:
    """Search from many seeds on the times that were measured before."""
    import numpy as np

    from perflex import Tuner
    from perflex._prune.tuning import PLAIN_FEATURES

    rows = read_rows(path)
    extracted = load_space().extract(PLAIN_FEATURES, SIZES, sub_group_size=16)
    best, whole = min(row["s"] for row in rows.values()), sum(row["cost_s"] for row in rows.values())
    kept = math.ceil(0.05 * len(rows))
    losses, costs = [], []
    for seed in range(seeds):
        tuner = Tuner(extracted, budget=FIRST + kept, first=FIRST, seed=seed)
        while asked := tuner.ask(2):
            for each in asked:
                tuner.tell(each, rows[each.name]["s"], rows[each.name]["cost_s"])
        losses.append(tuner.best.predicted / best - 1)
        costs.append(sum(rows[step.name]["cost_s"] for step in tuner.history))
    near = 100 * np.mean(np.array(losses) <= 0.03)
    print(
        f"{FIRST} + {kept} of {len(rows)} measured, {seeds} seeds: median {100 * np.median(losses):.1f} %, worst "
        f"{100 * max(losses):.1f} % above the best, within 3 % in {near:.0f} %; building and timing them "
        f"{np.median(costs):.1f} s, {100 * np.median(costs) / whole:.1f} % of {whole:.0f} s"
    )


def cover(path: Path, seeds: int) -> None:
    """Draw first batches by chance and prune to 5 % and to a promise, on the measured times."""
    import numpy as np

    from perflex import Promise
    from perflex._prune.predictors import GaussianPredictor
    from perflex._prune.promise import keep_by_promise
    from perflex._prune.tuner import features_of
    from perflex._prune.tuning import PLAIN_FEATURES

    rows = read_rows(path)
    extracted = load_space().extract(PLAIN_FEATURES, SIZES, sub_group_size=16)
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("measure", "search", "replay", "cover"))
    parser.add_argument("--device", default="intel")
    parser.add_argument("--limit", type=float, default=150.0)
    parser.add_argument("--csv", type=Path, default=Path("embedded_pruning.csv"))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--workers", type=int, default=4)
    arguments = parser.parse_args()
    if arguments.what == "measure":
        measure_some(arguments.csv, arguments.device, arguments.limit)
    elif arguments.what == "search":
        search(arguments.csv, arguments.device, arguments.seeds, arguments.workers)
    elif arguments.what == "replay":
        replay(arguments.csv, arguments.seeds)
    else:
        cover(arguments.csv, arguments.seeds)


if __name__ == "__main__":
    main()
