"""The demo: the study of matrix multiplication with one shipped model and sizes of its own, in a minute."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from perflex.calibration.acceptance import save_if_acceptable
from perflex.calibration.account import noise_floor_lines
from perflex.errors import FileFormatError, MeasurementError, warn
from perflex.search.accuracy import DIFFERENT
from perflex.studies.evaluation.baselines import copy_kernel
from perflex.studies.evaluation.files import draw_study
from perflex.studies.evaluation.run import evaluate_device
from perflex.studies.evaluation.studies import STUDIES
from perflex.tables import Table, fixed, percent, seconds, text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from perflex.devices.device import Device
    from perflex.progress import Progress
    from perflex.studies.evaluation.result import DeviceEvaluation, StudyResult
    from perflex.studies.evaluation.studies import Study
    from perflex.timing.options import TimingOptions

MODEL = "matmul_sq"
# Odd multiples of 32: at multiples of large powers of two a CPU's caches hold few rows of a matrix.
SIZES = (288, 416, 544, 672, 800, 928)
VARIANTS = tuple(STUDIES["matmul"].variants)


@dataclass(frozen=True)
class DemoRow:
    """One variant at one size."""

    size: int
    variant: str
    predicted_s: float
    measured_s: float
    # predicted/measured - 1
    relative_error: float
    # Among the variants of this size, 1 for the fastest.
    predicted_rank: int
    measured_rank: int


def demo_study(sizes: Sequence[int] = ()) -> Study:
    """Return the study; sizes that are given are not made to suit the device."""
    matmul = STUDIES["matmul"]
    return replace(
        matmul,
        name="demo",
        # One model needs no kernels to choose it by, which keeps the demo short.
        models={MODEL: MODEL},
        trial_sizes=(),
        sizes=tuple(sizes) or SIZES,
        rule=None if sizes else matmul.rule,
        # Both variants are timed there as well, after all predictions; work-groups are of 16x16.
        half_step=16,
    )


def run_demo(
    device: Device,
    *,
    sizes: Sequence[int] | None = None,
    timing: TimingOptions | None = None,
    progress: Progress | None = None,
) -> DeviceEvaluation:
    """Calibrate on measurement kernels, predict both variants, and only then measure them.

    Sizes are multiples of 16; by default six that suit the device's speed. A variant that
    cannot be timed at a size is left out there, with a `PerflexWarning`.
    """
    study = demo_study(sizes or ())
    evaluation = evaluate_device(device, [study], timing=timing, progress=progress)
    points = evaluation.studies[0].points
    missing = len(study.sizes) * len(study.variants) - len(points)
    # Kernels that could not be timed come last among what was skipped; reasons mostly begin with their labels.
    failed = [(label, reason.removeprefix(f"{label}: ")) for label, reason in evaluation.skipped[-missing:]]
    if not points:
        label, reason = failed[0]
        msg = f"{label}: {reason}"
        raise MeasurementError(msg, kernel=label)
    if missing:
        for label, reason in failed:
            warn(f"{label} is left out: {reason}")
    return evaluation


def demo_rows(result: StudyResult) -> tuple[DemoRow, ...]:
    """Return predictions, measurements and ranks of each variant at each size."""
    rows = []
    for point in result.points:
        same_size = [other for other in result.points if other.size == point.size]
        predicted = point.predicted_s[result.model]
        rows.append(
            DemoRow(
                size=point.size,
                variant=point.variant,
                predicted_s=predicted,
                measured_s=point.measured_s,
                relative_error=point.error(result.model),
                predicted_rank=1 + sum(other.predicted_s[result.model] < predicted for other in same_size),
                measured_rank=1 + sum(other.measured_s < point.measured_s for other in same_size),
            )
        )
    return tuple(rows)


def demo_table(result: StudyResult) -> Table:
    """Return the rows as a table."""
    columns = [
        fixed("size"), text("variant"), seconds("predicted_s"), seconds("measured_s"),
        percent("relative_error", "error", sign=True), fixed("predicted_rank"), fixed("measured_rank"),
    ]  # fmt: skip
    return Table.of("Predicted before the variants were timed", columns, demo_rows(result))


def demo_summary(evaluation: DeviceEvaluation) -> dict[str, Any]:
    """Return the content of ``summary.json``: errors and drift as fractions, times in seconds."""
    (result,) = evaluation.studies
    calibration = result.calibrations[result.model]
    model = result.accuracy(result.model)
    return {
        "device": evaluation.device,
        "geomean_error": {
            variant: result.accuracy(result.model, variant).geometric_mean
            for variant in VARIANTS
            if any(point.variant == variant for point in result.points)
        },
        "pairs": model.pairs,
        "pairs_ranked_right": model.pairs_right * model.pairs if model.pairs else 0,
        "accuracy": {name: _plain(asdict(result.accuracy(name))) for name in result.methods},
        "knowledge": {name: result.knowledge[name] for name in result.methods if name in result.knowledge},
        "best_baseline": result.best_baseline(result.chosen_with),
        "beats_baselines": result.beats_baselines(result.model, result.chosen_with),
        "seconds": round(evaluation.seconds, 3),
        "drift": evaluation.drift,
        "noise_floor": calibration.noise_floor,
        "sizes": sorted({point.size for point in result.points}),
        "sub_group_size": calibration.sub_group_size,
        "measurement_kernels": len(calibration.fit.kernels),
    }


def demo_lines(evaluation: DeviceEvaluation, *, sizes_given: bool = False) -> tuple[list[str], list[str]]:
    """Return what is said above and below the table of models and baselines."""
    (result,) = evaluation.studies
    found = demo_summary(evaluation)
    errors = ", ".join(f"{variant} {100 * error:.1f} %" for variant, error in found["geomean_error"].items())
    ranked = f"ranked correctly: {found['pairs_ranked_right']:g} of {found['pairs']} sizes"
    above = [
        f"geometric mean of relative error: {errors}",
        f"{ranked} at which the variants differ by over {100 * DIFFERENT:.0f} %",
        "compared with trivial baselines, over both variants:",
    ]
    # The last are kernels to predict, of which warnings tell; what is left out of these before is what baselines need.
    beside, targets = ("matmul_sq(", copy_kernel().name), len(result.study.sizes) * len(result.study.variants)
    skipped = evaluation.skipped[: len(evaluation.skipped) - (targets - len(result.points))]
    below = [
        f"no baseline from {label}: {why.removeprefix(f'{label}: ')}"
        for label, why in skipped
        if label.startswith(beside)
    ]
    below += [result.judgement] if result.judgement else []
    below += noise_floor_lines(result.calibrations[result.model])
    if evaluation.drift is not None:
        below.append(
            f"drift {100 * evaluation.drift:+.1f} %: change of measurement kernels' times from the calibration to the "
            "check (it is part of every error, and near 0 on a machine that does nothing else)"
        )
    # Whoever names sizes is spared the reason for ours.
    if not sizes_given:
        below.append(
            "sizes are odd multiples of 32: at multiples of large powers of two a CPU's caches hold few rows of a "
            "matrix, which a constant cost per access cannot describe (try --sizes 512,1024)"
        )
    below.append(
        f"{found['measurement_kernels']} measurement kernels: microbenchmarks, and parts of the variants, timed (the "
        f"memory accesses of the variants without their arithmetic); {evaluation.seconds:.0f} s in all"
    )
    return above, below


def _plain(measures: dict[str, float]) -> dict[str, float | None]:
    """Return measures as JSON has them: None for what there is not."""
    return {name: None if math.isnan(value) else value for name, value in measures.items()}


def write_demo(evaluation: DeviceEvaluation, folder: Path, *, accept_noise: bool = False) -> list[Path]:
    """Write ``table.csv``, ``matmul.png``, ``calibration.yaml`` and ``summary.json`` into a folder; return their paths.

    A calibration with bad times (`perflex.calibration.acceptance`) is not written unless `accept_noise` says so; a
    `PerflexWarning` tells.
    """
    (result,) = evaluation.studies
    table, picture, calibration, summary = paths = [
        folder / name for name in ("table.csv", "matmul.png", "calibration.yaml", "summary.json")
    ]
    try:
        demo_table(result).to_csv(table)
        draw_study(evaluation.device, result, picture)
        summary.write_text(json.dumps(demo_summary(evaluation), indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        msg = f"cannot write the demo's results to {folder}: {error.strerror or error}"
        raise FileFormatError(msg, path=folder) from error
    if not save_if_acceptable(result.calibrations[result.model], calibration, accept_noise=accept_noise):
        paths.remove(calibration)
    return paths
