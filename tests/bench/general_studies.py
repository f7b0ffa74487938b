"""The paper's three studies predicted by a general calibration, which has seen none of their kernels.

Calibrate, then run this on the same device while the machine does nothing else:

    perflex calibrate general -o general.yaml
    python tests/bench/general_studies.py general.yaml --device intel_xeon

Each variant of matrix multiplication, DG differentiation and finite differences (paper Sections 8.3 to 8.5) is timed at
the study's two trial sizes and at the six sizes to predict. Beside the calibration's predictions stand one timing of
each variant at the larger trial size, scaled by the product of the sizes' powers (n^3, elements, n^2), and one time
for all variants of a size: their geometric mean, which no method without measurements knows. The paper has 4.3, 7.5 and
6.7 %.
"""

from __future__ import annotations

import argparse
import math
import warnings

from perflex import Accuracy, Calibration, PerflexWarning, TimingOptions, find_device
from perflex.features.sized_kernel import SizedKernel
from perflex.studies.evaluation.studies import STUDIES
from perflex.timing.measuring import measure
from perflex.timing.results import Timing

POWERS = {"matmul": 3, "dg": 1, "fdiff": 2}


def times_of(name: str, device: object) -> dict[tuple[str, int], tuple[object, float]]:
    """Return the kernel and the measured seconds by variant and size."""
    study = STUDIES[name]
    keys = [(variant, size) for variant in study.variants for size in (*study.trial_sizes, *study.sizes)]
    found = [study.kernel(variant, size) for variant, size in keys]
    jobs = [SizedKernel(one.kernel, one.sizes, str(one), name) for one in found]
    timings = measure(jobs, device, TimingOptions(trials=41, min_trials=8, precision=0.015, budget_s=0.4, limit_s=10))
    return {
        key: (one, timing.seconds)
        for key, one, timing in zip(keys, found, timings, strict=True)
        if isinstance(timing, Timing)
    }


def show(name: str, method: str, predicted: dict[tuple[str, int], float], times: dict[tuple[str, int], float]) -> None:
    """Print a row of measures."""
    a = Accuracy.of(
        [predicted[key] for key in predicted],
        [times[key] for key in predicted],
        [(name, size) for _, size in predicted],
    )
    errors = " / ".join(f"{100 * value:.1f}" for value in (a.geometric_mean, a.median, a.rms, a.maximum))
    print(
        f"| {name} | {method} | {errors} % | {a.factor:.2f} | {a.pairs_right:.2f} of {a.pairs} | "
        f"{100 * a.loss_median:.1f}, {100 * a.loss_worst:.1f} % |",
        flush=True,
    )


def main() -> None:
    """Time the studies, predict them, and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("calibration")
    parser.add_argument("--device", required=True)
    arguments = parser.parse_args()
    calibration, device = Calibration.load(arguments.calibration), find_device(arguments.device)
    print(
        "| study | method | error: geometric mean / median / rms / maximum | factor | pairs right "
        "| loss: median, worst |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    for name, study in STUDIES.items():
        found = times_of(name, device)
        times = {key: seconds for key, (_, seconds) in found.items()}
        judged = [key for key in times if key[1] in study.sizes]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PerflexWarning)
            predicted = {key: float(calibration.predict(found[key][0].kernel, found[key][0].sizes)) for key in judged}
        show(name, "calibration", predicted, times)
        last = study.trial_sizes[-1]
        scaled = {(v, n): times[v, last] * (n / last) ** POWERS[name] for v, n in judged if (v, last) in times}
        show(name, f"timing at {last}, scaled", scaled, times)
        same = {size: [seconds for (_, n), seconds in times.items() if n == size] for size in study.sizes}
        mean = {(v, n): math.exp(sum(map(math.log, same[n])) / len(same[n])) for v, n in judged}
        show(name, "mean of all variants", mean, times)


if __name__ == "__main__":
    main()
