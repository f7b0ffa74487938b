"""Prediction errors of the demo on every device, several times over: ``python tests/bench/demo_accuracy.py [RUNS]``.

Prints a line per device and run, and the medians. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import statistics
import sys

from perflex import list_devices
from perflex.studies.demo import VARIANTS, demo_summary, run_demo


def main(runs: int) -> None:
    """Run the demo and print what came out."""
    devices = [info.device for info in list_devices() if info.usable and not info.device.is_simulator]
    for device in devices:
        results = []
        for run in range(1, runs + 1):
            result = demo_summary(run_demo(device))
            results.append(result)
            errors = ", ".join(f"{name} {100 * error:.1f} %" for name, error in result["geomean_error"].items())
            right = f"{result['pairs_ranked_right']} of {result['pairs']} pairs ranked right"
            floor = f"noise floor {100 * (result['noise_floor'] or 0):.1f} %"
            print(f"{device}, run {run}: {errors}; {right}; {floor}; {result['seconds']:.0f} s", flush=True)
        for name in VARIANTS:
            median = statistics.median(result["geomean_error"][name] for result in results)
            print(f"{device}: {name} median of {runs} runs {100 * median:.1f} %", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
