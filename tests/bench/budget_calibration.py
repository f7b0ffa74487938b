"""Prediction error against device time spent on calibration: ``python tests/bench/budget_calibration.py --out DIR``.

The model of matrix multiplication is calibrated with ever larger budgets: shares of what the full set of measurement
kernels takes with all its trials. For each budget the kernels are chosen by `calibrate(budget_s=...)`, and beside it by
chance, several times, at the same device time: with as few trials each, and more where all kernels are affordable. The
error is that of the demo's targets: both variants, at all its sizes; a choice that does not determine the parameters
counts as failed.

To be fair and cheap, the pool and the targets are timed once, with all trials; choices are then made on a device that
plays these timings back, warm-ups and first launches included. Its time is what a choice costs. Each time they come in
another random order, so that a drift of the machine while they were taken, which the targets' times have as well, does
not pass for an error of those that take only the first. At the end there is one real run with a budget; it and the full
set are checked against targets timed right after it.

Run it on a machine that does nothing else. Writes budget_calibration.csv and budget_calibration.png into DIR.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex import Calibration, TimingOptions, calibrate, find_device, gather_feature_values
from perflex.calibration.device_speed import REFERENCE_RATE, multiply_add_rate
from perflex.devices.wall_time import wall_time_identifier
from perflex.errors import CalibrationError, NoMatchError, PerflexWarning
from perflex.features import SizedKernel
from perflex.fit.result import geometric_mean_error
from perflex.models import load_model
from perflex.models.kernel_sets import measurement_kernels
from perflex.studies.demo import demo_study
from perflex.timing.measuring import measure
from perflex.timing.results import MeasurementFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from perflex import Device, FeatureTable, Model
    from uipick import MeasurementKernel

SHARES = (0.05, 0.1, 0.2, 0.33, 0.5, 1.0)
TRIALS = 15
# What the demo and `perflex calibrate` use for the full set, and what the latter uses with a budget.
ALL_TRIALS = TimingOptions(trials=TRIALS, min_trials=5, budget_s=0.3)
FEW_TRIALS = TimingOptions(trials=TRIALS, min_trials=3, budget_s=0.3)
ALLOWED = 1.2


class PlayedBack:
    """A device that gives recorded times, each kernel's in random order, and adds up what they come to."""

    timer_resolution_s = 1e-9

    def __init__(self, samples: Mapping[str, Sequence[float]], device: Device, seed: int) -> None:
        order = np.random.default_rng(seed)
        self._streams = {label: itertools.cycle(order.permutation(times)) for label, times in samples.items()}
        self.sub_group_size = device.sub_group_size
        self.seconds = 0.0

    def backend(self) -> PlayedBack:
        return self

    @property
    def device(self) -> PlayedBack:
        return self

    def build(self, request: SizedKernel) -> PlayedBackKernel:
        return PlayedBackKernel(self, request.label)

    def next(self, label: str) -> float:
        time = float(next(self._streams[label]))
        self.seconds += time
        return time

    def close(self) -> None:
        """Do nothing: there is no memory to give back."""


@dataclass(frozen=True)
class PlayedBackKernel:
    device: PlayedBack
    label: str

    def run(self, launches: int) -> tuple[float, ...]:
        return tuple(self.device.next(self.label) for _ in range(launches))


@dataclass(frozen=True)
class Row:
    """One calibration: how its kernels were chosen, what it took, and how wrong its predictions are (fractions)."""

    method: str
    share: float
    seed: int
    device_time_s: float
    kernels: int
    geomean_error: float
    mean_error: float
    rms_error: float
    max_error: float
    failed: bool


@dataclass(frozen=True)
class Check:
    """The targets' features and measured times."""

    table: FeatureTable
    measured: np.ndarray

    def row(self, method: str, share: float, seed: int, seconds: float, made: Callable[[], Calibration]) -> Row:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PerflexWarning)
                calibration = made()
        except (CalibrationError, NoMatchError):
            return Row(method, share, seed, seconds, 0, *[math.nan] * 4, failed=True)
        values = {name: self.table.column(name) for name in calibration.model.input_features()}
        errors = calibration.model.evaluate(calibration.params, values) / self.measured - 1
        return Row(
            method,
            share,
            seed,
            seconds,
            len(calibration.fit.kernels),
            geometric_mean_error(errors),
            float(np.mean(np.abs(errors))),
            float(np.sqrt(np.mean(errors**2))),
            float(np.abs(errors).max()),
            failed=False,
        )


def targets(scale: float) -> list[MeasurementKernel]:
    """Return the demo's targets: both variants at all sizes."""
    study = demo_study()
    return [study.kernel(variant, size) for size in study.sizes_for(scale) for variant in study.variants]


def timed(kernels: Sequence[MeasurementKernel], device: Device) -> dict[str, tuple[float, ...]]:
    """Return all timings of each kernel in seconds."""
    outcomes = measure(
        [SizedKernel(kernel.kernel, kernel.sizes, kernel.name) for kernel in kernels], device, ALL_TRIALS
    )
    for outcome in outcomes:
        if isinstance(outcome, MeasurementFailure):
            raise outcome.error
    return {outcome.label: outcome.samples for outcome in outcomes if not isinstance(outcome, MeasurementFailure)}


def medians(samples: Mapping[str, Sequence[float]], kernels: Sequence[MeasurementKernel]) -> np.ndarray:
    return np.array([float(np.median(samples[kernel.name])) for kernel in kernels])


def few_trials(seconds: np.ndarray, budget: float) -> TimingOptions:
    """Return the fewest trials, or as many as all kernels can have within a budget."""
    affordable = int((budget / float(seconds.sum()) - 2) / (1 + FEW_TRIALS.warmups))
    trials = min(TRIALS, max(FEW_TRIALS.min_trials, affordable))
    return replace(FEW_TRIALS, trials=trials, min_trials=FEW_TRIALS.min_trials)


def by_chance(pool: Sequence[MeasurementKernel], cost: np.ndarray, budget: float, seed: int) -> list[MeasurementKernel]:
    """Return kernels in random order, as many as the budget allows; too expensive ones are passed over."""
    chosen: list[MeasurementKernel] = []
    spent = 0.0
    for index in np.random.default_rng(seed).permutation(len(pool)):
        if spent + cost[index] <= budget:
            spent += float(cost[index])
            chosen.append(pool[int(index)])
    return chosen


def compare(
    model: Model,
    pool: Sequence[MeasurementKernel],
    samples: Mapping[str, Sequence[float]],
    check: Check,
    device: Device,
    seeds: int,
) -> list[Row]:
    """Calibrate on recorded times: with all kernels, and for each budget by design and by chance."""

    def played(kernels: Sequence[MeasurementKernel], method: str, share: float, seed: int, **options: Any) -> Row:
        recorded = PlayedBack(samples, device, seed)
        row = check.row(method, share, seed, 0.0, lambda: calibrate(model, kernels, device=recorded, **options))
        return Row(**{**vars(row), "device_time_s": recorded.seconds})

    full = played(pool, "full set", 1.0, 0, timing=ALL_TRIALS)
    rows = [full]
    seconds = medians(samples, pool)
    for share, seed in itertools.product(SHARES, range(seeds)):
        budget = share * full.device_time_s
        rows.append(played(pool, "D-optimal", share, seed, timing=FEW_TRIALS, budget_s=budget))
        few = few_trials(seconds, budget)
        # Chance is told what kernels really cost, warm-ups and first launches included.
        cost = seconds * (2 + few.trials * (1 + few.warmups))
        rows.append(played(by_chance(pool, cost, budget, seed), "random", share, seed, timing=few))
        if seed == seeds - 1:
            show(rows, share, full)
    return rows


def show(rows: Sequence[Row], share: float, full: Row) -> None:
    """Print medians over the seeds."""
    parts = []
    for method in ("D-optimal", "random"):
        own = [row for row in rows if row.share == share and row.method == method]
        error, mean = middle(own, "geomean_error"), middle(own, "mean_error")
        parts.append(
            f"{method}: {middle(own, 'kernels'):.0f} kernels, {middle(own, 'device_time_s'):.2f} s, error "
            f"{100 * error:.2f} % ({error / full.geomean_error:.2f} of the full set's), mean {100 * mean:.2f} % "
            f"({mean / full.mean_error:.2f}), rms {100 * middle(own, 'rms_error'):.2f} %, maximum "
            f"{100 * middle(own, 'max_error'):.2f} %, {sum(row.failed for row in own)} of {len(own)} failed"
        )
    print(f"{100 * share:3.0f} %: {'; '.join(parts)}", flush=True)


def middle(rows: Sequence[Row], field: str) -> float:
    """Return a median over seeds; a failed choice is worse than any other."""
    found = [math.inf if row.failed else getattr(row, field) for row in rows]
    return float(np.quantile(found, 0.5, method="nearest"))


def real_run(
    calibrated: Callable[[], Calibration],
    full: Callable[[], Calibration],
    goals: Sequence[MeasurementKernel],
    check: Check,
    device: Device,
) -> tuple[Row, Row]:
    """Calibrate with a budget on the device itself, then time the targets; check the full set against them, too."""
    calibration = calibrated()
    now = Check(check.table, medians(timed(goals, device), goals))
    spent = float(calibration.options["device_time_spent_s"])
    mine = now.row("D-optimal, real run", 1 / 3, 0, spent, lambda: calibration)
    return mine, now.row("full set, same targets", 1.0, 0, math.nan, full)


def draw(rows: Sequence[Row], title: str, path: Path) -> None:
    """Draw all calibrations, and a line through the medians of each method."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.5), layout="constrained")
    full = rows[0]
    measures = (("geomean_error", "geometric mean of |error|"), ("mean_error", "mean of |error|"))
    for place, (field, name) in enumerate(measures, start=1):
        axes = figure.add_subplot(1, 2, place)
        for method, color in (("D-optimal", "tab:blue"), ("random", "tab:orange")):
            groups = [[row for row in rows if row.method == method and row.share == share] for share in SHARES]
            good = [row for group in groups for row in group if not row.failed]
            points = [(row.device_time_s, 100 * getattr(row, field)) for row in good]
            axes.scatter(*zip(*points, strict=True), s=9, color=color, alpha=0.5)
            line = [(middle(group, "device_time_s"), 100 * middle(group, field)) for group in groups]
            axes.plot(*zip(*line, strict=True), color=color, label=f"{method} (line: median)")
        for share in SHARES:
            chance = [row for row in rows if row.method == "random" and row.share == share]
            failed = sum(row.failed for row in chance)
            if failed:
                text = f"{failed} of {len(chance)}\nrandom failed"
                where = (share * full.device_time_s, 0.98)
                style = {"fontsize": 7, "color": "tab:orange", "ha": "center", "va": "top"}
                axes.annotate(text, where, xycoords=("data", "axes fraction"), **style)
        level = 100 * getattr(full, field)
        axes.axhline(level, color="gray", label="full set, all trials")
        axes.axhline(ALLOWED * level, color="gray", linestyle=":", label=f"{ALLOWED} times that")
        axes.axvline(full.device_time_s / 3, color="gray", linestyle="--", linewidth=0.8, label="a third of its time")
        axes.set(xscale="log", yscale="log", xlabel="device time in s", ylabel=f"{name} in %")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter("{x:g}")
            axis.set_minor_formatter("{x:g}")
        axes.tick_params(labelsize=7, which="both")
        axes.legend(fontsize=7)
    figure.suptitle(title)
    figure.savefig(path, dpi=120)


def main() -> None:
    """Measure, compare, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="", help="parts of a device's name")
    parser.add_argument("--out", type=Path, default=Path(), help="folder for the CSV file and the picture")
    parser.add_argument("--seeds", type=int, default=10, help="calibrations by either method for each budget")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    device = find_device(options.device or None)
    scale = multiply_add_rate(device) / REFERENCE_RATE
    description = load_model("matmul_sq")
    pool, goals = measurement_kernels(description, scale), targets(scale)
    model = description.model(wall_time_identifier(device))
    counted = gather_feature_values(model.input_features(), [*pool, *goals], sub_group_size=device.sub_group_size)
    samples = timed([*pool, *goals], device)
    spread = np.median([np.subtract(*np.quantile(s, (0.75, 0.25))) / np.median(s) for s in samples.values()])
    print(f"{device}: {len(pool)} kernels, noise floor {100 * spread:.1f} %", flush=True)
    check = Check(counted.take(range(len(pool), len(counted))), medians(samples, goals))
    rows = compare(model, pool, samples, check, device, options.seeds)
    full = rows[0]
    print(
        f"full set: {full.kernels} kernels, {full.device_time_s:.2f} s, error {100 * full.geomean_error:.2f} %, "
        f"mean {100 * full.mean_error:.2f} %, rms {100 * full.rms_error:.2f} %, maximum {100 * full.max_error:.2f} %"
    )
    third = full.device_time_s / 3
    real, beside = real_run(
        lambda: calibrate(model, pool, device=device, timing=FEW_TRIALS, budget_s=third),
        lambda: calibrate(model, pool, device=PlayedBack(samples, device, 0), timing=ALL_TRIALS),
        goals,
        check,
        device,
    )
    print(
        f"real run with a third of that: {real.kernels} kernels, {real.device_time_s:.2f} s, error "
        f"{100 * real.geomean_error:.2f} % ({real.geomean_error / beside.geomean_error:.2f} of the full set's on the "
        f"same targets), mean {100 * real.mean_error:.2f} % ({real.mean_error / beside.mean_error:.2f}), rms "
        f"{100 * real.rms_error:.2f} %, maximum {100 * real.max_error:.2f} %"
    )
    with (options.out / "budget_calibration.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(Row.__dataclass_fields__), lineterminator="\n")
        writer.writeheader()
        writer.writerows(vars(row) for row in [*rows, real, beside])
    title = f"Matrix multiplication: prediction error against device time of the calibration\n{device}"
    draw(rows, title, options.out / "budget_calibration.png")
    print(options.out / "budget_calibration.png")


if __name__ == "__main__":
    main()
