"""How well calibrations transfer between simulated devices, and how often their intervals hold.

Run ``python tests/bench/transfer_devices.py [--worlds 12] [--sources 6]`` (a minute or two). Each world has sources
with all kernels timed and one target, whose rows are predicted from N of its samples; rows are the same for all N.
Devices' parameters are drawn from a log-normal; errors of the model are partly common to all devices. Beside each
number stand those of the model fitted to the samples alone, and of the nearest source's times with one factor.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from perflex import FeatureTable, PerflexError, PerflexWarning, fit_model, scale_features_by_output, transfer
from tests.support.simulated_devices import INPUTS, MODEL, OUTPUT, simulated_devices

COUNTS = (0, 5, 10, 20)


def no_prior(samples: FeatureTable, rest: FeatureTable) -> np.ndarray | None:
    """Return the errors of the model fitted to the samples alone; None where they do not determine it."""
    try:
        fit = fit_model(MODEL, scale_features_by_output(samples), nonnegative=True, loss="soft_l1")
    except PerflexError:
        return None
    values = {name: rest.column(name) for name in INPUTS}
    return np.abs(np.asarray(MODEL.evaluate(fit, values)) / rest.column(OUTPUT) - 1)


def one_factor(sources: list[FeatureTable], samples: FeatureTable, rest: FeatureTable) -> np.ndarray:
    """Return the errors of the times of the source that follows the samples best, times their mean ratio."""
    found = []
    for source in sources:
        times = dict(zip(source.kernels, np.log(source.column(OUTPUT)), strict=True))
        ratios = np.log(samples.column(OUTPUT)) - [times[label] for label in samples.kernels]
        predicted = np.exp([times[label] + np.mean(ratios) for label in rest.kernels])
        found.append((float(np.std(ratios)), np.abs(predicted / rest.column(OUTPUT) - 1)))
    return min(found, key=lambda entry: entry[0])[1]


def summary(errors: list[np.ndarray]) -> str:
    """Return median, 90th percentile and maximum of all errors together, in per cent."""
    if not errors:
        return "-"
    sizes = 100 * np.concatenate(errors)
    return f"{np.median(sizes):.1f} / {np.quantile(sizes, 0.9):.0f} / {sizes.max():.0f} %"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, default=12)
    parser.add_argument("--sources", type=int, default=6)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore", PerflexWarning)
    ours: dict[int, list[np.ndarray]] = {count: [] for count in COUNTS}
    alone: dict[int, list[np.ndarray]] = {count: [] for count in COUNTS}
    factor: dict[int, list[np.ndarray]] = {count: [] for count in COUNTS}
    held: dict[int, list[float]] = {count: [] for count in COUNTS}
    for seed in range(chosen.worlds):
        devices = simulated_devices(seed, chosen.sources + 1)
        table = devices.tables[-1]
        order = np.random.default_rng(1000 + seed).permutation(len(table))
        rest = table.take(order[max(COUNTS) :])
        measured = rest.column(OUTPUT)
        sources = devices.calibrations(chosen.sources)
        for count in COUNTS:
            samples = table.take(order[:count])
            found = transfer(sources, samples if count else None).predict_rows(rest)
            ours[count].append(np.abs(found.predicted / measured - 1))
            held[count].append(float(np.mean((found.low <= measured) & (measured <= found.high))))
            if count:
                factor[count].append(one_factor(list(devices.tables[:-1]), samples, rest))
                own = no_prior(samples, rest)
                alone[count] += [] if own is None else [own]
    print("errors: median / 90th percentile / maximum\n")
    print("| samples | transfer | 95 % intervals hold | no prior | one factor |\n| --- | --- | --- | --- | --- |")
    for count in COUNTS:
        share = f"{100 * np.mean(held[count]):.1f} % ({100 * min(held[count]):.0f} to {100 * max(held[count]):.0f})"
        print(f"| {count} | {summary(ours[count])} | {share} | {summary(alone[count])} | {summary(factor[count])} |")


if __name__ == "__main__":
    main()
