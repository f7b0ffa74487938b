"""Intervals of fits about usual values: ``python tests/bench/usual_intervals.py [--draws 200]``.

Devices are drawn as `general_tile` says that devices differ, with the residuals that it is taken to leave. Each is
calibrated from n configurations of one matrix product, and other products are predicted with 95 % intervals. For each n
the share of rows inside; the median factor of the limits; and the half-width in the logarithm over that without rows,
its median and maximum.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

TOP = Path(__file__).resolve().parents[2]
# The tests have a folder called uipick, too: the package must come first.
sys.path[:0] = [str(TOP)]
sys.path.append(str(TOP / "tests"))

from judging import table  # noqa: E402

from perflex.calibration.calibrating import calibration_from_table  # noqa: E402
from perflex.calibration.interval import interval_at  # noqa: E402
from perflex.calibration.usual_prior import NOISE, fit_about_usual  # noqa: E402
from support.usual_devices import GENERAL, MODEL, counted, in_interval, timed, usual  # noqa: E402

if TYPE_CHECKING:
    from perflex import Calibration, FeatureTable

MACHINE = "H100-SXM"
# The spread that the model states of its parameters.
SPREAD = 0.2
ROWS = (0, 1, 2, 4, 6, 10, 20)


def calibrated(table: FeatureTable) -> Calibration:
    return calibration_from_table(MODEL, table, fit_about_usual(GENERAL, table))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=200)
    draws = parser.parse_args().draws
    rows = counted(MACHINE, tiles=10)
    products, alone = np.array(rows.generators), usual(MACHINE)
    names = np.unique(products)
    lines = []
    for count in ROWS:
        inside, widths, ratios = [], [], []
        for seed in range(draws):
            random = np.random.default_rng(seed)
            device, mine = timed(rows, random, SPREAD, NOISE), products == names[seed % len(names)]
            chosen = random.permutation(np.flatnonzero(mine))[:count].tolist()
            others = device.take(np.flatnonzero(~mine).tolist())
            values = others.columns(MODEL.input_features())
            found, without = (
                interval_at(one, values) for one in (calibrated(device.take(chosen)) if count else alone, alone)
            )
            inside.append(in_interval(found, others))
            widths.append(np.log(found.high / found.low) / 2)
            ratios.append(widths[-1] / (np.log(without.high / without.low) / 2))
        shown = 100 * np.mean(inside), np.exp(np.median(widths)), np.median(ratios), np.max(ratios)
        lines.append((str(count), *(f"{value:.4g}" for value in shown)))
    print(table(("rows", "inside, %", "limits, x", "width over that without rows", "largest"), lines))


if __name__ == "__main__":
    main()
