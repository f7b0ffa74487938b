"""What an evaluation leaves behind: tables, the paper's figures, calibrations."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.calibration.acceptance import save_if_acceptable
from perflex.errors import FileFormatError
from perflex.pictures import COLOURS, new_figure, save_figure
from perflex.studies.evaluation.tables import evaluation_tables

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from perflex.studies.evaluation.result import DeviceEvaluation, StudyResult

_MARKERS = ("o", "s", "^", "D")
# With more variants than this the legend stands beside the picture.
_FEW = 2


def draw_study(device: str, result: StudyResult, path: Path) -> Path:
    """Draw modeled and measured time over size for each variant (paper Figures 7 to 9)."""
    save_figure(study_figure(device, result), path)
    return path


def study_figure(device: str, result: StudyResult) -> Any:
    """Return the picture of modeled and measured times over size."""
    from matplotlib.ticker import NullFormatter, ScalarFormatter

    points = [(point.variant, point.size, point.predicted_s[result.model], point.measured_s) for point in result.points]
    variants = dict.fromkeys(variant for variant, *_ in points)
    many = len(variants) > _FEW
    figure = new_figure(10.5 if many else 7.5, 4.6)
    axes = figure.add_subplot()
    for variant, colour, marker in zip(variants, COLOURS, _MARKERS, strict=False):
        sizes, modeled, measured = np.array(sorted(numbers for name, *numbers in points if name == variant)).T
        errors = np.abs(modeled / measured - 1)
        error = f"rms {100 * np.sqrt(np.mean(errors**2)):.1f} %, at most {100 * errors.max():.1f} %"
        label = variant.replace("_", " ")
        axes.plot(sizes, 1e3 * modeled, color=colour, label=f"{label}, modeled ({error})")
        axes.plot(
            sizes, 1e3 * measured, linestyle="none", marker=marker, markersize=7, markerfacecolor="none",
            markeredgewidth=1.6, color=colour, label=f"{label}, measured",
        )  # fmt: skip
    # A power law is a straight line, and a constant relative error a constant distance.
    axes.set_xscale("log")
    axes.set_yscale("log")
    ticks = sorted({size for _, size, *_ in points})
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.set_xlabel(result.study.axis)
    axes.set_ylabel("time (ms)")
    axes.set_title(f"{result.study.title}, model {result.model}\n{device}", fontsize=11)
    axes.grid(visible=True, which="both", linewidth=0.4, alpha=0.6)
    axes.legend(frameon=False, **({"loc": "upper left", "bbox_to_anchor": (1.01, 1.0)} if many else {}))
    return figure


def draw_overlap(evaluations: Sequence[DeviceEvaluation], path: Path) -> Path:
    """Draw time over the ratio m of local to global accesses, modeled and measured (paper Figure 5)."""
    shown = [evaluation for evaluation in evaluations if evaluation.overlap]
    figure = new_figure(4.6 * len(shown) + 0.6, 4.2)
    panels = figure.subplots(1, len(shown), squeeze=False)[0]
    for axes, evaluation in zip(panels, shown, strict=True):
        ratios = [entry.ratio for entry in evaluation.overlap]
        axes.plot(
            ratios, [1e3 * entry.measured_s for entry in evaluation.overlap], linestyle="none", marker="o",
            markerfacecolor="none", markeredgewidth=1.6, color=COLOURS[0], label="measured",
        )  # fmt: skip
        for (name, colour), style in zip(
            zip(evaluation.overlap[0].predicted_s, COLOURS[1:], strict=False), ("-", "--", ":"), strict=False
        ):
            modeled = [1e3 * entry.predicted_s[name] for entry in evaluation.overlap]
            axes.plot(ratios, modeled, style, color=colour, label=f"{name}, modeled")
        axes.set_xlabel("m, local load-store sequences per global access")
        axes.set_ylabel("time (ms)")
        axes.set_title(evaluation.device, fontsize=9)
        axes.grid(visible=True, linewidth=0.4, alpha=0.6)
        axes.legend(frameon=False, fontsize=8)
    save_figure(figure, path)
    return path


def write_evaluation(
    evaluations: Sequence[DeviceEvaluation], folder: Path, *, accept_noise: bool = False
) -> list[Path]:
    """Write the tables, pictures and calibrations of evaluations, one per device, into a folder; return their paths.

    A calibration with bad times (`perflex.calibration.acceptance`) is not written unless `accept_noise` says so; a
    `PerflexWarning` tells.
    """
    try:
        written = []
        for name, table in evaluation_tables(evaluations).items():
            written.append(folder / f"{name}.csv")
            table.to_csv(written[-1])
        for evaluation in evaluations:
            device = re.sub(r"[^a-z0-9]+", "_", evaluation.device.lower()).strip("_")
            for result in evaluation.studies:
                name = result.study.name
                if result.points:
                    written.append(draw_study(evaluation.device, result, folder / f"{name}_{device}.png"))
                for model, calibration in result.calibrations.items():
                    path = folder / f"calibration_{name}_{model}_{device}.yaml"
                    if save_if_acceptable(calibration, path, accept_noise=accept_noise):
                        written.append(path)
        if any(evaluation.overlap for evaluation in evaluations):
            written.append(draw_overlap(evaluations, folder / "overlap.png"))
    except OSError as error:
        msg = f"cannot write the results to {folder}: {error.strerror or error}"
        raise FileFormatError(msg, path=folder) from error
    return written
