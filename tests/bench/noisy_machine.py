"""Predictions and times on a machine that does something else as well: ``python tests/bench/noisy_machine.py``.

Runs the demo and `evaluate matmul` on each device: alone, beside a process of its own that burns one processor half of
the time, and alone again. For each run it prints how good the predictions are beside those of trivial baselines, what
was disturbed, and how much each kernel's reported time differs from that of the first run. Predictions are made before
the predicted kernels ran at these sizes: the demo has seen none of them, `evaluate` has timed each variant at two
smaller sizes. Nothing else should run meanwhile: the burner is started and ended here.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
import time
import warnings
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from judging import HEADINGS, Method, percents, row_of, table

from perflex import find_device, list_devices, using_store
from perflex.studies.demo import run_demo
from perflex.studies.evaluation.run import evaluate_device
from perflex.studies.evaluation.studies import STUDIES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from perflex import Device

    # A variant and its size.
    Point = tuple[str, int]

BURNS_S = 0.05
# It ends by itself when the process that started it is gone.
BURNER = f"""
import os, time
parent = os.getppid()
while os.getppid() == parent:
    end = time.perf_counter() + {BURNS_S}
    while time.perf_counter() < end:
        pass
    time.sleep({BURNS_S})
"""


@contextmanager
def burning() -> Iterator[None]:
    """Keep one processor busy half of the time while the block runs."""
    burner = subprocess.Popen([sys.executable, "-I", "-S", "-c", BURNER], stdin=subprocess.DEVNULL)
    try:
        yield
    finally:
        burner.kill()
        burner.wait()


CONDITIONS = {"alone": nullcontext, "burner 50/50 ms": burning}


@dataclass(frozen=True)
class Run:
    """What one run of the demo or of a study gave: predictions, measured times by case, and all reported times."""

    title: tuple[str, str, str]
    methods: Sequence[Method]
    measured: Mapping[Point, float]
    remarks: Sequence[str]
    times: Mapping[str, float]


def one_run(device: Device, what: str, condition: str) -> Run:
    with tempfile.TemporaryDirectory() as folder, using_store(Path(folder) / "store.sqlite"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        evaluation = run_demo(device) if what == "demo" else evaluate_device(device, [STUDIES["matmul"]])
    (result,) = evaluation.studies
    measured = {(p.variant, p.size): p.measured_s for p in result.points}
    methods = [
        Method(name, result.knowledge[name], {(p.variant, p.size): p.predicted_s[name] for p in result.points})
        for name in (result.model, *result.baselines)
    ]
    times = {f"{variant} n={size}": seconds for (variant, size), seconds in measured.items()}
    for fitted in result.calibrations.values():
        times |= dict(zip(fitted.table.kernels, fitted.table.column(fitted.table.output or "").tolist(), strict=True))
    calibration = result.calibrations[result.model]
    timing = calibration.timing
    disturbed = timing.disturbed_samples / max(timing.samples, 1)
    remarks = [percents(calibration.noise_floor or math.nan, disturbed), f"{evaluation.seconds:.0f} s"]
    return Run((str(device)[:28], what, condition), methods, measured, remarks, times)


def _size(point: Point) -> int:
    return point[1]


def report(runs: Sequence[Run]) -> str:
    headings = ["device", "what", "condition"]
    rows = [[*run.title, *row_of(method, run.measured, _size)] for run in runs for method in run.methods]
    text = table([*headings, *HEADINGS], rows) + "\n"
    rows, first = [], {}
    for run in runs:
        base = first.setdefault(run.title[:2], run)
        shared = [name for name in run.times if name in base.times]
        off = np.abs(np.log([run.times[name] / base.times[name] for name in shared]))
        spread = percents(*map(float, np.quantile(off, (0.5, 0.9, 1.0))))
        rows.append([*run.title, *run.remarks, "-" if run is base else spread])
    off_by = "times over those of the first run, |log ratio|: median, p90, max"
    return text + table([*headings, "noise floor, disturbed samples", "duration", off_by], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", action="append", default=[], help="parts of a name; may be repeated")
    parser.add_argument("--only", choices=("demo", "evaluate"))
    parser.add_argument("--rounds", type=int, default=1, help="how often alone and beside the burner")
    options = parser.parse_args()
    devices = [find_device(name) for name in options.device] or [
        info.device for info in list_devices() if info.usable and not info.device.is_simulator
    ]
    runs: list[Run] = []
    print(f"{os.cpu_count()} processors, {time.strftime('%Y-%m-%d %H:%M')}", flush=True)
    for device in devices:
        for what in (options.only,) if options.only else ("demo", "evaluate"):
            for condition in (*CONDITIONS, *list(CONDITIONS) * (options.rounds - 1), "alone"):
                with CONDITIONS[condition]():
                    runs.append(one_run(device, what, condition))
                print(f"done: {device}, {what}, {condition}", file=sys.stderr, flush=True)
    print(report(runs))


if __name__ == "__main__":
    main()
