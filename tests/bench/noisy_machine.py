"""Predictions and times on a machine that does something else as well: ``python tests/bench/noisy_machine.py``.

Runs the demo and `evaluate matmul` on each device: alone, beside a process of its own that burns one processor half of
the time, and alone again. For each run it prints what was disturbed, the errors of the predictions beside those of
trivial baselines with the same knowledge, the order of the variants, and how much each kernel's reported time differs
from that of the first run. Nothing else should run meanwhile: the burner is started and ended here.

``--device PARTS`` (may be repeated), ``--only demo|evaluate``, ``--period SECONDS`` of the burner, ``--rounds N`` of
alone and beside the burner, ``--json FILE``.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from perflex import find_device, list_devices, using_store
from perflex.fit.result import geometric_mean_error
from perflex.store.overview import all_rows
from perflex.store.samples import MeasurementStore
from perflex.studies.demo import run_demo
from perflex.studies.evaluation.run import evaluate_device
from perflex.studies.evaluation.studies import STUDIES
from perflex.text_table import table_lines
from tests.bench.burner import burning

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex import Device
    from perflex.calibration.calibration import Calibration
    from perflex.studies.evaluation.result import DeviceEvaluation, StudyResult

_MADD = "f_op_float32_madd"


@dataclass(frozen=True)
class Errors:
    """Relative errors of predictions, fractions: geometric mean, median, maximum, root mean square of logarithms; and
    by how much the variant predicted to be best is slower than the best, the worst size."""

    geomean: float
    median: float
    maximum: float
    rms: float
    loss_of_best: float

    def texts(self) -> list[str]:
        """Return them in percent."""
        return [f"{100 * value:.1f}" for value in asdict(self).values()]


@dataclass(frozen=True)
class Run:
    """What one run of the demo or of a study gave."""

    device: str
    what: str
    condition: str
    model: str
    model_errors: Errors
    baselines: Mapping[str, Errors]
    ranked_right: str
    noise_floor: float
    disturbed: float
    kernels_disturbed: int
    seconds: float
    times: Mapping[str, float]


def errors_of(predicted: Mapping[tuple[str, int], float], measured: Mapping[tuple[str, int], float]) -> Errors:
    """Return errors of predicted times by variant and size."""
    relative = [predicted[key] / measured[key] - 1 for key in measured]
    losses = []
    for size in dict.fromkeys(size for _, size in measured):
        own = [key for key in measured if key[1] == size]
        best = min(own, key=lambda key: predicted[key])
        losses.append(measured[best] / min(measured[key] for key in own) - 1)
    sizes = [abs(error) for error in relative]
    logarithms = [math.log(predicted[key] / measured[key]) for key in measured]
    rms = float(np.sqrt(np.mean(np.square(logarithms))))
    return Errors(geometric_mean_error(relative), median(sizes), max(sizes), rms, max(losses))


def flop_baseline(result: StudyResult, calibration: Calibration) -> dict[tuple[str, int], float]:
    """Return times by one cost for each multiply-add: the median over the measurement kernels that have some."""
    table = calibration.table
    assert table is not None
    madds, seconds = table.column(_MADD), table.column(table.output or "")
    rate = float(np.median(seconds[madds > 0] / madds[madds > 0]))
    return {(p.variant, p.size): rate * p.size**3 / calibration.sub_group_size for p in result.points}


def scaling_baseline(result: StudyResult, kept: Mapping[str, float]) -> dict[tuple[str, int], float] | None:
    """Return times by the cube of the size from the larger trial size, which the choice of the model has seen."""
    study = result.study
    if not study.trial_sizes:
        return None
    scaled = {}
    for variant in study.variants:
        trial = {
            size: kept.get(study.kernel(variant, size).name)
            for size in range(32, min(p.size for p in result.points), 32)
        }
        seen = [(size, seconds) for size, seconds in trial.items() if seconds is not None]
        if not seen:
            return None
        size, seconds = seen[-1]
        scaled |= {(p.variant, p.size): seconds * (p.size / size) ** 3 for p in result.points if p.variant == variant}
    return scaled


def one_run(device: Device, what: str, condition: str) -> Run:
    """Run the demo or the study once, with a store of its own."""
    with tempfile.TemporaryDirectory() as folder, using_store(Path(folder) / "store.sqlite"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        evaluation: DeviceEvaluation = (
            run_demo(device) if what == "demo" else evaluate_device(device, [STUDIES["matmul"]])
        )
        seconds: dict[str, list[float]] = defaultdict(list)
        for row in all_rows(MeasurementStore()):
            if row["record"] == "sample" and not row.get("disturbed"):
                seconds[row["label"]].append(row["seconds"])
        kept = {label: median(values) for label, values in seconds.items()}
    (result,) = evaluation.studies
    calibration = result.calibrations[result.model]
    measured = {(p.variant, p.size): p.measured_s for p in result.points}
    predicted = {(p.variant, p.size): p.predicted_s[result.model] for p in result.points}
    linear = next((c for c in result.calibrations.values() if c.table is not None and _MADD in c.table.features), None)
    baselines = {}
    if linear is not None:
        baselines["one cost per multiply-add"] = errors_of(flop_baseline(result, linear), measured)
    if what != "demo" and (scaled := scaling_baseline(result, kept)) is not None:
        baselines["trial size scaled by n^3"] = errors_of(scaled, measured)
    times: dict[str, float] = {}
    for fitted in result.calibrations.values():
        if fitted.table is not None:
            seconds_column = fitted.table.column(fitted.table.output or "").tolist()
            times |= dict(zip(fitted.table.kernels, seconds_column, strict=True))
    times |= {f"{p.variant} n={p.size}": p.measured_s for p in result.points}
    order = result.accuracy(result.model)
    right = f"{order.pairs_right * order.pairs:g} of {order.pairs}" if order.pairs else "0 of 0"
    timing = calibration.timing
    assert timing is not None
    return Run(
        str(device), what, condition, result.model, errors_of(predicted, measured), baselines, right,
        calibration.noise_floor or math.nan, timing.disturbed_samples / max(timing.samples, 1),
        timing.kernels_disturbed, evaluation.seconds, times,
    )  # fmt: skip


def report(runs: Sequence[Run]) -> str:
    """Return the tables of all runs."""
    rows: list[tuple[str, ...]] = [
        ("device", "what", "condition", "predicted by", "error %", "median", "max", "rms", "loss of best", "right",
         "floor %", "disturbed samples %", "kernels", "s")
    ]  # fmt: skip
    for run in runs:
        rows.append(
            (run.device[:28], run.what, run.condition, f"model {run.model}", *run.model_errors.texts(),
             run.ranked_right, f"{100 * run.noise_floor:.1f}", f"{100 * run.disturbed:.0f}",
             str(run.kernels_disturbed), f"{run.seconds:.0f}")
        )  # fmt: skip
        rows += [("", "", "", name, *errors.texts(), "", "", "", "", "") for name, errors in run.baselines.items()]
    lines = [
        (
            "Errors of predictions made before the predicted kernels ran at these sizes (the demo has seen none of "
            "them; evaluate has timed each variant at two smaller sizes)."
        ),
        *table_lines(rows, left={0, 1, 2, 3}),
        "",
        "Reported times of one run over those of the first run of the same kernels, |log ratio| in percent:",
    ]
    ratios: list[tuple[str, ...]] = [("device", "what", "condition", "kernels", "median", "p90", "max")]
    first: dict[tuple[str, str], Run] = {}
    for run in runs:
        base = first.setdefault((run.device, run.what), run)
        shared = [name for name in run.times if name in base.times]
        if run is not base and shared:
            off = 100 * np.abs(np.log([run.times[name] / base.times[name] for name in shared]))
            figures = (f"{value:.1f}" for value in np.quantile(off, (0.5, 0.9, 1.0)))
            ratios.append((run.device[:28], run.what, run.condition, str(len(shared)), *figures))
    lines += table_lines(ratios, left={0, 1, 2})
    lines += ["", "Median over the runs of one condition, and of those beside the burner over those alone:"]
    summary: list[tuple[str, ...]] = [("device", "what", "alone %", "burner %", "ratio", "rms alone", "rms burner")]
    for device, what in first:
        own = [run for run in runs if (run.device, run.what) == (device, what)]
        alone, beside = (
            [run.model_errors for run in own if (run.condition == "alone") is quiet] for quiet in (True, False)
        )
        quiet_error, burner_error = (median(errors.geomean for errors in part) for part in (alone, beside))
        quiet_rms, burner_rms = (median(errors.rms for errors in part) for part in (alone, beside))
        figures = (f"{100 * quiet_error:.1f}", f"{100 * burner_error:.1f}", f"{burner_error / quiet_error:.2f}")
        summary.append((device[:28], what, *figures, f"{100 * quiet_rms:.1f}", f"{100 * burner_rms:.1f}"))
    lines += table_lines(summary, left={0, 1})
    return "\n".join(lines)


def main() -> None:
    """Run all conditions and print the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", action="append", default=[])
    parser.add_argument("--only", choices=("demo", "evaluate"))
    parser.add_argument("--period", type=float, default=0.1, help="of the burner, in seconds: half on, half off")
    parser.add_argument("--rounds", type=int, default=1, help="how often alone and beside the burner")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    devices = [find_device(name) for name in options.device] or [
        info.device for info in list_devices() if info.usable and not info.device.is_simulator
    ]
    half = options.period / 2
    conditions = (("alone", None), (f"burner {1e3 * half:.0f}/{1e3 * half:.0f} ms", half)) * options.rounds
    conditions = (*conditions, ("alone", None))
    runs: list[Run] = []
    print(f"{os.cpu_count()} processors, {time.strftime('%Y-%m-%d %H:%M')}", flush=True)
    for device in devices:
        for what in (options.only,) if options.only else ("demo", "evaluate"):
            for condition, burns in conditions:
                with burning(burns, burns) if burns else nullcontext():
                    runs.append(one_run(device, what, condition))
                print(f"done: {device}, {what}, {condition}, {runs[-1].seconds:.0f} s", file=sys.stderr, flush=True)
    print(report(runs))
    if options.json:
        options.json.write_text(json.dumps([asdict(run) for run in runs], indent=1))


if __name__ == "__main__":
    main()
