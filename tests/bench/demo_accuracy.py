"""Prediction errors of the demo on every device, several times over: ``python tests/bench/demo_accuracy.py [RUNS]``.

Prints a line per device and run, all measures of the model and of the trivial baselines beside it
(docs/explanation/judging.md), and the medians. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import statistics
import sys

from perflex import list_devices
from perflex.studies.demo import VARIANTS, demo_summary, run_demo
from perflex.studies.evaluation.measures import METHOD_HEADINGS, judgement, method_rows
from perflex.text_table import table_lines


def main(runs: int) -> None:
    """Run the demo and print what came out."""
    devices = [info.device for info in list_devices() if info.usable and not info.device.is_simulator]
    for device in devices:
        results = []
        for run in range(1, runs + 1):
            evaluation = run_demo(device)
            result = demo_summary(evaluation)
            results.append(result)
            errors = ", ".join(f"{name} {100 * error:.1f} %" for name, error in result["geomean_error"].items())
            right = f"{result['pairs_ranked_right']:g} of {result['pairs']} pairs ranked right"
            floor = f"noise floor {100 * (result['noise_floor'] or 0):.1f} %"
            print(f"{device}, run {run}: {errors}; {right}; {floor}; {result['seconds']:.0f} s", flush=True)
            (study,) = evaluation.studies
            lines = table_lines([METHOD_HEADINGS, *method_rows(study)], left={0, 1}, indent="  ")
            print("\n".join([*lines, f"  {judgement(study)}"]), flush=True)
        for name in VARIANTS:
            median = statistics.median(result["geomean_error"][name] for result in results)
            print(f"{device}: {name} median of {runs} runs {100 * median:.1f} %", flush=True)
        for method in results[0]["accuracy"]:
            rms, loss = (
                statistics.median(result["accuracy"][method][what] for result in results)
                for what in ("rms", "loss_mean")
            )
            print(f"{device}: {method} median rms {100 * rms:.1f} %, mean loss {100 * loss:.1f} %", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
