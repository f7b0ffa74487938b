"""Static transactions and instructions against the hardware counters of a convolution on an RTX 2080 Ti.

Run: python tests/bench/roofline_counters.py [--data DIR] [--rows N]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from pathlib import Path

import numpy as np

TOP = Path(__file__).resolve().parents[2]
# The tests have a folder called uipick, too: the package must come first.
sys.path[:0] = [str(TOP)]
sys.path.append(str(TOP / "tests"))

from support.roofline_counter_rows import COUNTERS, classes_of, counter_rows, estimates  # noqa: E402


def summary(title: str, errors: dict[str, list[float]]) -> None:
    print(f"\n{title}\n{'':<34}{'rows':>6}{'median':>9}{'p90':>9}{'worst':>9}{'within 1 %':>12}{'within 10 %':>13}")
    for name, found in errors.items():
        size = np.abs(found)
        shares = [100 * np.mean(size <= limit) for limit in (0.01, 0.10)]
        print(
            f"{name:<34}{len(size):>6}{100 * np.median(size):>8.2f}%{100 * np.quantile(size, 0.9):>8.2f}%"
            f"{100 * size.max():>8.1f}%{shares[0]:>11.0f}%{shares[1]:>12.0f}%"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=TOP.parent / "shared" / "data")
    parser.add_argument("--rows", type=int, default=0, help="look at so many rows, evenly spaced; 0 for all")
    given = parser.parse_args()
    rows = counter_rows(given.data / "gpu_counters" / "convolution_RTX_2080_Ti.csv.gz")
    if given.rows:
        rows = rows[:: max(1, len(rows) // given.rows)]
    single: dict[str, list[float]] = defaultdict(list)
    every: dict[str, list[float]] = defaultdict(list)
    mix: dict[str, list[float]] = defaultdict(list)
    begun = time.perf_counter()
    for row in rows:
        found = estimates(row)
        for name, columns in COUNTERS.items():
            measured = sum(float(row[column]) for column in columns)
            error = found[name] / measured - 1
            every[name].append(error)
            if row["TILE_SIZE_X"] == row["TILE_SIZE_Y"] == "1":
                single[name].append(error)
        for name, (predicted, measured) in classes_of(row, found).items():
            mix[name].append(predicted / measured if measured else float("nan"))
    seconds = time.perf_counter() - begun
    print(f"{len(rows)} configurations, {1e3 * seconds / len(rows):.1f} ms each")
    summary("One output per work-item (TILE 1x1)", single)
    summary("All configurations", every)
    print("\nestimated / counted, thread-level instructions (median, 10 % and 90 % quantiles)")
    for name, found in mix.items():
        low, middle, high = np.nanquantile(found, (0.1, 0.5, 0.9))
        print(f"{name:<34}{middle:>8.3f}  {low:.3f} .. {high:.3f}")


if __name__ == "__main__":
    main()
