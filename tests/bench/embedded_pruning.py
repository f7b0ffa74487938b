"""A space measured exhaustively and searched with pruning, side by side, on an OpenCL device.

    python tests/bench/embedded_pruning.py measure --limit 150     # again and again until all are measured
    python tests/bench/embedded_pruning.py search

The first part times every variant of examples/matmul_space.py once, in portions of so many seconds, and keeps times and
what building and timing cost in a CSV file. The second searches the space anew from nothing: variants are described, a
first batch is measured, the rest is predicted, and the best 5 % are measured; everything is timed on the same clock.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
SIZES = {"n": 512}
CHUNK = 16


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("measure", "search"))
    parser.add_argument("--device", default="intel")
    parser.add_argument("--limit", type=float, default=150.0)
    parser.add_argument("--csv", type=Path, default=Path("embedded_pruning.csv"))
    arguments = parser.parse_args()
    if arguments.what == "measure":
        measure_some(arguments.csv, arguments.device, arguments.limit)


if __name__ == "__main__":
    main()
