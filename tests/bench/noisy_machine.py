"""Predictions and times on a machine that does something else as well: ``python tests/bench/noisy_machine.py``.

Runs the demo and `evaluate matmul` on each device: alone, beside a process of its own that burns one processor half of
the time, and alone again. For each run it prints how good the predictions are beside those of trivial baselines with
the same knowledge, what was disturbed, and how much each kernel's reported time differs from that of the first run.
Predictions are made before the predicted kernels ran at these sizes: the demo has seen none of them, `evaluate` has
timed each variant at two smaller sizes. Nothing else should run meanwhile: the burner is started and ended here.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
from burner import burning
from judging import HEADINGS, Method, accuracy_of, percent, row_of, table

from perflex import find_device, list_devices, using_store
from perflex.store.contents import all_rows
from perflex.store.store import current_store
from perflex.studies.demo import run_demo
from perflex.studies.evaluation.run import evaluate_device
from perflex.studies.evaluation.studies import STUDIES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex import Device
    from perflex.calibration.calibration import Calibration
    from perflex.studies.evaluation.result import DeviceEvaluation, StudyResult

    # A variant and its size.
    Point = tuple[str, int]

_MADD = "f_op_float32_madd"


@dataclass(frozen=True)
class Run:
    """What one run of the demo or of a study gave: predictions, measured times by case, and all reported times."""

    device: str
    what: str
    condition: str
    methods: Sequence[Method]
    measured: Mapping[Point, float]
    remarks: Sequence[str]
    times: Mapping[str, float]

    def title(self) -> list[str]:
        return [self.device[:28], self.what, self.condition]


def flop_baseline(result: StudyResult, calibration: Calibration) -> dict[Point, float]:
    """Return times by one cost for each multiply-add: the median over the measurement kernels that have some."""
    table = calibration.table
    madds, seconds = table.column(_MADD), table.column(table.output or "")
    rate = float(np.median(seconds[madds > 0] / madds[madds > 0]))
    return {(p.variant, p.size): rate * p.size**3 / calibration.sub_group_size for p in result.points}


def scaling_baseline(result: StudyResult, kept: Mapping[str, float]) -> dict[Point, float]:
    """Return times by the cube of the size from the larger trial size, which the choice of the model has seen."""
    scaled: dict[Point, float] = {}
    for variant in result.study.variants if result.study.trial_sizes else ():
        sizes = range(32, min(p.size for p in result.points), 32)
        trial = {size: kept.get(result.study.kernel(variant, size).name) for size in sizes}
        seen = [(size, seconds) for size, seconds in trial.items() if seconds is not None]
        if seen:
            size, seconds = seen[-1]
            own = (p for p in result.points if p.variant == variant)
            scaled |= {(p.variant, p.size): seconds * (p.size / size) ** 3 for p in own}
    return scaled


def one_run(device: Device, what: str, condition: str) -> Run:
    """Run the demo or the study once, with a store of its own."""
    with tempfile.TemporaryDirectory() as folder, using_store(Path(folder) / "store.sqlite"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        evaluation: DeviceEvaluation = (
            run_demo(device) if what == "demo" else evaluate_device(device, [STUDIES["matmul"]])
        )
        samples: dict[str, list[float]] = defaultdict(list)
        store = current_store()
        for row in all_rows(store) if store is not None else ():
            if row["record"] == "sample" and not row.get("disturbed"):
                samples[row["label"]].append(row["seconds"])
        kept = {label: median(values) for label, values in samples.items()}
    (result,) = evaluation.studies
    calibration = result.calibrations[result.model]
    knows = "nothing" if what == "demo" else "timing"
    predicted = {(p.variant, p.size): p.predicted_s[result.model] for p in result.points}
    methods = [Method(f"model {result.model}", knows, predicted)]
    linear = next((c for c in result.calibrations.values() if _MADD in c.table.features), None)
    if linear is not None:
        methods.append(Method("one cost per multiply-add", knows, flop_baseline(result, linear)))
    if what != "demo" and (scaled := scaling_baseline(result, kept)):
        methods.append(Method("trial size scaled by n^3", knows, scaled))
    times = {f"{p.variant} n={p.size}": p.measured_s for p in result.points}
    for fitted in result.calibrations.values():
        times |= dict(zip(fitted.table.kernels, fitted.table.column(fitted.table.output or "").tolist(), strict=True))
    timing = calibration.timing
    disturbed = [percent(timing.disturbed_samples / max(timing.samples, 1)), str(timing.kernels_disturbed)]
    remarks = [percent(calibration.noise_floor or math.nan), *disturbed, f"{evaluation.seconds:.0f} s"]
    measured = {(p.variant, p.size): p.measured_s for p in result.points}
    return Run(str(device), what, condition, methods, measured, remarks, times)


def _size(point: Point) -> int:
    return point[1]


def report(runs: Sequence[Run]) -> str:
    """Return the tables of all runs."""
    found = [[*run.title(), *row_of(method, run.measured, _size)] for run in runs for method in run.methods]
    text = table(["device", "what", "condition", *HEADINGS], found) + "\n"
    rows, first = [], {}
    for run in runs:
        base = first.setdefault((run.device, run.what), run)
        shared = [name for name in run.times if name in base.times]
        off = np.abs(np.log([run.times[name] / base.times[name] for name in shared]))
        spread = ", ".join(percent(float(value)) for value in np.quantile(off, (0.5, 0.9, 1.0)))
        rows.append([*run.title(), *run.remarks, "-" if run is base else spread])
    headings = ["device", "what", "condition", "noise floor", "disturbed samples", "kernels", "duration"]
    text += table([*headings, "times over those of the first run, |log ratio|: median, p90, max"], rows) + "\n"
    rows = []
    for device, what in first:
        factors: list[list[float]] = [[], []]
        for run in (run for run in runs if (run.device, run.what) == (device, what)):
            accuracy = accuracy_of(run.methods[0], run.measured, _size)
            factors[run.condition == "alone"].append(math.nan if accuracy is None else accuracy.factor)
        beside, alone = map(median, factors)
        rows.append([device[:28], what, f"{alone:.3f}", f"{beside:.3f}", f"{beside / alone:.3f}"])
    return text + table(["device", "what", "median factor alone", "beside the burner", "ratio"], rows)


def main() -> None:
    """Run all conditions and print the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", action="append", default=[], help="parts of a name; may be repeated")
    parser.add_argument("--only", choices=("demo", "evaluate"))
    parser.add_argument("--rounds", type=int, default=1, help="how often alone and beside the burner")
    options = parser.parse_args()
    devices = [find_device(name) for name in options.device] or [
        info.device for info in list_devices() if info.usable and not info.device.is_simulator
    ]
    conditions = (("alone", None), ("burner 50/50 ms", 0.05)) * options.rounds
    runs: list[Run] = []
    print(f"{os.cpu_count()} processors, {time.strftime('%Y-%m-%d %H:%M')}", flush=True)
    for device in devices:
        for what in (options.only,) if options.only else ("demo", "evaluate"):
            for condition, burns in (*conditions, ("alone", None)):
                with burning(burns, burns) if burns else nullcontext():
                    runs.append(one_run(device, what, condition))
                print(f"done: {device}, {what}, {condition}", file=sys.stderr, flush=True)
    print(report(runs))


if __name__ == "__main__":
    main()
