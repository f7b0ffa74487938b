"""Does learning what a calibration's model leaves out help? Errors of left-out generators with and without.

    python tests/bench/learned_residuals.py CALIBRATION.yaml...      # about half a minute each

Per calibration: what the rule says, and how kernels of left-out generators are predicted by the model alone, with what
is learned (learner and factor chosen within the other generators, for each that is left out anew), and as the trivial
correction by the geometric mean of the others' measured / predicted. ``--each`` adds a line per learner and factor, the
same for all generators: which of them is best is known only afterwards, so that none of these figures may be quoted
as what learning reaches. Nothing is measured; the figures are the same each time.
"""

from __future__ import annotations

import argparse

import numpy as np

from perflex import Calibration
from perflex.calibration.learned import SHRINKAGES, LeftOutAccuracy, corrected_errors, learn_residuals
from perflex.calibration.left_out import left_out_rows


def main() -> None:
    """Print a table for each calibration."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("calibrations", nargs="+", metavar="CALIBRATION")
    parser.add_argument("--each", action="store_true", help="also each learner and factor")
    arguments = parser.parse_args()
    for path in arguments.calibrations:
        show(path, each=arguments.each)


def show(path: str, *, each: bool) -> None:
    """Print the figures of one calibration."""
    calibration = Calibration.load(path)
    model, fit, table = calibration.model, calibration.fit, calibration.table
    learned, rows = learn_residuals(model, fit, table), left_out_rows(model, fit, table)
    print(f"{path}: {calibration.device.get('platform', '')}, {calibration.device.get('name', '')}")
    if learned is None or rows is None:
        print("  generators cannot be left out")
        return
    print(f"  {len(set(rows.owners[rows.known]))} generators, {rows.known.sum()} kernels; used: {learned.helps}")
    print(f"  gain in mean |ln(measured / predicted)|: {learned.gain:.4f} +- {learned.gain_error:.4f}")
    line("the model alone", learned.without)
    line("with what is learned", learned.learned)
    used, owners = rows.known, rows.owners[rows.known]
    line("times the others' mean ratio", LeftOutAccuracy.of(mean_ratio(rows.errors[used], owners), owners))
    if each:
        for learner in ("gaussian_process", "boosted_trees"):
            for shrinkage in SHRINKAGES:
                errors = corrected_errors(rows, learner, shrinkage)[used]
                line(f"{learner} times {shrinkage:g}", LeftOutAccuracy.of(errors, owners))


def mean_ratio(errors: np.ndarray, owners: np.ndarray) -> np.ndarray:
    """Return the errors after a correction by the mean error of the other generators, each counting alike."""
    means = {name: errors[owners == name].mean() for name in dict.fromkeys(owners.tolist())}
    total = sum(means.values())
    return errors - np.array([(total - means[name]) / (len(means) - 1) for name in owners.tolist()])


def line(name: str, found: LeftOutAccuracy) -> None:
    """Print a line of the table."""
    rest = ", ".join(f"{100 * value:.1f}" for value in (found.median, found.rms, found.maximum))
    print(f"  {name:30s} factor {found.factor:.3f}; median, rms, maximum {rest} %")


if __name__ == "__main__":
    main()
