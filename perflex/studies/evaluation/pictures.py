"""The paper's figures: modeled and measured times, overlap over m, the step function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.pictures import COLOURS, new_figure, save_figure

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from perflex.studies.evaluation.result import DeviceEvaluation, StudyResult

_MARKERS = ("o", "s", "^", "D")
# With more variants than this the legend stands beside the picture.
_FEW = 2


@dataclass(frozen=True)
class Series:
    """A variant in a study's picture: sizes, times in seconds at each, and the modeled times' errors (fractions)."""

    variant: str
    sizes: Sequence[int]
    modeled_s: Sequence[float]
    measured_s: Sequence[float]
    rms: float
    maximum: float


def draw_study(device: str, result: StudyResult, path: Path) -> Path:
    """Draw modeled and measured time over size for each variant (paper Figures 7 to 9)."""
    series = []
    for variant in dict.fromkeys(point.variant for point in result.points):
        own = [point for point in result.points if point.variant == variant]
        accuracy = result.accuracy(result.model, variant)
        modeled = [point.predicted_s[result.model] for point in own]
        sizes, measured = [point.size for point in own], [point.measured_s for point in own]
        series.append(Series(variant, sizes, modeled, measured, accuracy.rms, accuracy.maximum))
    title = f"{result.study.title}, model {result.model}\n{device}"
    save_figure(study_figure(series, title, result.study.axis), path)
    return path


def study_figure(series: Sequence[Series], title: str, axis: str) -> Any:
    """Return the picture of modeled and measured times over size; `axis` says what sizes are."""
    from matplotlib.ticker import NullFormatter, ScalarFormatter

    many = len(series) > _FEW
    figure = new_figure(10.5 if many else 7.5, 4.6)
    axes = figure.add_subplot()
    for own, colour, marker in zip(series, COLOURS, _MARKERS, strict=False):
        label = own.variant.replace("_", " ")
        error = f"rms {100 * own.rms:.1f} %, at most {100 * own.maximum:.1f} %"
        modeled = [1e3 * seconds for seconds in own.modeled_s]
        axes.plot(own.sizes, modeled, color=colour, label=f"{label}, modeled ({error})")
        axes.plot(
            own.sizes, [1e3 * seconds for seconds in own.measured_s], linestyle="none", marker=marker, markersize=7,
            markerfacecolor="none", markeredgewidth=1.6, color=colour, label=f"{label}, measured",
        )  # fmt: skip
    # A power law is a straight line, and a constant relative error a constant distance.
    axes.set_xscale("log")
    axes.set_yscale("log")
    ticks = sorted({size for own in series for size in own.sizes})
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.set_xlabel(axis)
    axes.set_ylabel("time (ms)")
    axes.set_title(title, fontsize=11)
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


def draw_steps(path: Path) -> Path:
    """Draw the step function and its differentiable approximation (paper Figure 4, Equation 6)."""
    figure = new_figure(5.6, 3.8)
    axes = figure.add_subplot()
    x = np.linspace(-2.0, 2.0, 401)
    axes.plot(x, (x >= 0).astype(float), color="black", label="step")
    for edge, colour in zip((1.0, 3.0, 10.0), COLOURS, strict=False):
        axes.plot(x, (np.tanh(edge * x) + 1) / 2, color=colour, label=f"(tanh({edge:g} x) + 1)/2")
    axes.set_xlabel("x")
    axes.set_title("Step function and its approximation", fontsize=11)
    axes.grid(visible=True, linewidth=0.4, alpha=0.6)
    axes.legend(frameon=False)
    save_figure(figure, path)
    return path
