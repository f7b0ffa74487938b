"""The demo: two variants of matrix multiplication, predicted from kernels that do not multiply matrices."""

from __future__ import annotations

import csv
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.calibration.calibrating import calibrate
from perflex.devices.wall_time import wall_time_identifier
from perflex.errors import CalibrationError, FileFormatError
from perflex.features.sized_kernel import SizedKernel
from perflex.fit.result import geometric_mean_error
from perflex.models.kernel_sets import measurement_kernels
from perflex.models.sizes import REFERENCE_RATE, matrix_sizes, multiply_add_rate
from perflex.studies.recheck import drift, reference_times
from perflex.timing.measuring import MeasurementFailure, TimingOptions, measure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from perflex.calibration.calibration import Calibration
    from perflex.devices.device import Device

__all__ = ["DemoResult", "DemoRow", "run_demo", "write_demo"]

SIZES = (288, 416, 544, 672, 800, 928)
VARIANTS = {"prefetch": "True", "no_prefetch": "False"}
# Two times count as different when they are further apart than this fraction of the smaller one.
_DIFFERENT = 0.10
_REFERENCES = 6


@dataclass(frozen=True)
class DemoRow:
    """One variant at one size.

    Attributes
    ----------
    size
        Rows and columns of the matrices.
    variant
        ``"prefetch"`` or ``"no_prefetch"``.
    predicted_s, measured_s
        Times in seconds.
    relative_error
        predicted/measured - 1.
    predicted_rank, measured_rank
        Among the variants of this size, 1 for the fastest.
    """

    size: int
    variant: str
    predicted_s: float
    measured_s: float
    relative_error: float
    predicted_rank: int
    measured_rank: int


@dataclass(frozen=True)
class DemoResult:
    """What the demo found.

    Attributes
    ----------
    device
        Name of the device.
    calibration
        The model with its parameters there.
    rows
        One per variant and size.
    geomean_error
        Geometric mean of the relative error by variant, fractions.
    pairs, pairs_ranked_right
        Sizes at which the variants' measured times differ by more than 10 %, and those of them at which the
        predicted order is the measured one.
    drift
        By which fraction some measurement kernels took longer beside the matrix multiplications than for the
        calibration; None if not known. It is part of every error.
    seconds
        Wall time of the whole demo.
    """

    device: str
    calibration: Calibration
    rows: tuple[DemoRow, ...]
    geomean_error: dict[str, float]
    pairs: int
    pairs_ranked_right: int
    drift: float | None
    seconds: float

    def summary(self) -> dict[str, Any]:
        """Return the content of ``summary.json``."""
        return {
            "device": self.device,
            "geomean_error": self.geomean_error,
            "pairs": self.pairs,
            "pairs_ranked_right": self.pairs_ranked_right,
            "seconds": round(self.seconds, 3),
            "drift": self.drift,
            "noise_floor": self.calibration.noise_floor,
            "sizes": sorted({row.size for row in self.rows}),
            "sub_group_size": self.calibration.sub_group_size,
            "measurement_kernels": len(self.calibration.fit.kernels),
        }


def run_demo(
    device: Device,
    *,
    sizes: Sequence[int] | None = None,
    timing: TimingOptions | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> DemoResult:
    """Calibrate on measurement kernels, predict both variants, and only then measure them.

    Parameters
    ----------
    device
        Where to run.
    sizes
        Matrix sizes, multiples of 16; by default six that suit the device's speed.
    timing
        How kernels are timed.
    progress
        Called with (done, total, what) as work proceeds.

    Raises
    ------
    PerflexError
        The device does not run the kernels, or they do not determine the model.
    """
    from perflex.models import load_model
    from uipick import ALL_GENERATORS, KernelCollection

    start = time.perf_counter()
    options = timing or TimingOptions(trials=15, min_trials=5, budget_s=0.3)
    scale = multiply_add_rate(device) / REFERENCE_RATE
    chosen = tuple(sizes) if sizes else matrix_sizes(SIZES, scale)
    description = load_model("matmul_sq")
    kernels = measurement_kernels(description, scale)
    if any(kernel.generator == "matmul_sq" for kernel in kernels):
        msg = "the demo must not be calibrated with the matrix multiplications it predicts"
        raise CalibrationError(msg)
    model = description.model(wall_time_identifier(device))
    calibration = calibrate(model, kernels, device=device, timing=options, progress=progress)

    targets = {
        (size, variant): KernelCollection(ALL_GENERATORS).generate_kernels(
            [
                "matmul_sq",
                "dtype:float32",
                "lsize_0:16",
                "lsize_1:16",
                "groups_fit:True",
                f"prefetch:{flag}",
                f"n:{size}",
            ]
        )[0]
        for size in chosen
        for variant, flag in VARIANTS.items()
    }
    predicted = {key: float(calibration.predict(kernel.kernel, kernel.sizes)) for key, kernel in targets.items()}
    references = reference_times(calibration, kernels, _REFERENCES)
    jobs = [SizedKernel(kernel.kernel, kernel.sizes, kernel.name) for kernel in (*targets.values(), *references)]
    outcomes = measure(jobs, device, options, progress)
    measured = {}
    for key, outcome in zip(targets, outcomes, strict=False):
        if isinstance(outcome, MeasurementFailure):
            raise outcome.error
        measured[key] = outcome.seconds
    rows = _rows(predicted, measured)
    pairs, right = _pairs(rows)
    return DemoResult(
        device=str(device),
        calibration=calibration,
        rows=rows,
        geomean_error={
            variant: geometric_mean_error([row.relative_error for row in rows if row.variant == variant])
            for variant in VARIANTS
        },
        pairs=pairs,
        pairs_ranked_right=right,
        drift=drift(list(references.values()), outcomes[len(targets) :]),
        seconds=time.perf_counter() - start,
    )


def _rows(predicted: dict[tuple[int, str], float], measured: dict[tuple[int, str], float]) -> tuple[DemoRow, ...]:
    def place(times: dict[tuple[int, str], float], size: int, variant: str) -> int:
        own = times[size, variant]
        return 1 + sum(other < own for (n, _), other in times.items() if n == size)

    return tuple(
        DemoRow(
            size=size,
            variant=variant,
            predicted_s=predicted[size, variant],
            measured_s=measured[size, variant],
            relative_error=predicted[size, variant] / measured[size, variant] - 1,
            predicted_rank=place(predicted, size, variant),
            measured_rank=place(measured, size, variant),
        )
        for size, variant in predicted
    )


def _pairs(rows: Sequence[DemoRow]) -> tuple[int, int]:
    pairs = right = 0
    for size in dict.fromkeys(row.size for row in rows):
        own = [row for row in rows if row.size == size]
        times = np.array([row.measured_s for row in own])
        if times.max() > (1 + _DIFFERENT) * times.min():
            pairs += 1
            right += all(row.predicted_rank == row.measured_rank for row in own)
    return pairs, right


def write_demo(result: DemoResult, folder: Path) -> dict[str, Path]:
    """Write ``table.csv``, ``matmul.png``, ``calibration.yaml`` and ``summary.json`` into a folder.

    Raises
    ------
    FileFormatError
        The folder cannot be written.
    """
    from perflex.pictures import draw_modeled_and_measured

    paths = {name: folder / name for name in ("table.csv", "matmul.png", "calibration.yaml", "summary.json")}
    try:
        with paths["table.csv"].open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            columns = list(DemoRow.__dataclass_fields__)
            writer.writerow(columns)
            writer.writerows([getattr(row, column) for column in columns] for row in result.rows)
        title = f"Matrix multiplication, modeled and measured\n{result.device}"
        draw_modeled_and_measured(result.rows, title, paths["matmul.png"])
        paths["summary.json"].write_text(json.dumps(result.summary(), indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        msg = f"cannot write the demo's results to {folder}: {error.strerror or error}"
        raise FileFormatError(msg, path=folder) from error
    result.calibration.save(paths["calibration.yaml"])
    return paths
