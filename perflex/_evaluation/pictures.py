"""The paper's figures: modeled and measured times, overlap over m, the step function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from perflex._evaluation.run import DeviceEvaluation, StudyResult

__all__ = ["draw_overlap", "draw_steps", "draw_study"]

# Okabe and Ito's colours, which colour-blind readers can tell apart.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
_MARKERS = ("o", "s", "^", "D")


def _figure(width: float = 7.5, height: float = 4.6) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def draw_study(device: str, result: StudyResult, path: Path) -> Path:
    """Draw modeled and measured time over size for each variant (paper Figures 7 to 9)."""
    from matplotlib.ticker import NullFormatter, ScalarFormatter

    figure = _figure()
    axes = figure.add_subplot()
    variants = list(dict.fromkeys(point.variant for point in result.points))
    for variant, colour, marker in zip(variants, _COLOURS, _MARKERS, strict=False):
        own = [point for point in result.points if point.variant == variant]
        sizes = [point.size for point in own]
        error = 100 * result.geomean_error(result.model, variant)
        label = variant.replace("_", " ")
        modeled = [1e3 * point.predicted_s[result.model] for point in own]
        axes.plot(sizes, modeled, color=colour, label=f"{label}, modeled (error {error:.1f} %)")
        axes.plot(
            sizes, [1e3 * point.measured_s for point in own], linestyle="none", marker=marker, markersize=7,
            markerfacecolor="none", markeredgewidth=1.6, color=colour, label=f"{label}, measured",
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    ticks = sorted({point.size for point in result.points})
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.set_xlabel(result.study.axis)
    axes.set_ylabel("time (ms)")
    axes.set_title(f"{result.study.title}, model {result.model}\n{device}", fontsize=11)
    axes.grid(visible=True, which="both", linewidth=0.4, alpha=0.6)
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(path)
    return path


def draw_overlap(evaluations: Sequence[DeviceEvaluation], path: Path) -> Path:
    """Draw time over the ratio m of local to global accesses, modeled and measured (paper Figure 5)."""
    shown = [evaluation for evaluation in evaluations if evaluation.overlap]
    figure = _figure(4.6 * len(shown) + 0.6, 4.2)
    panels = figure.subplots(1, len(shown), squeeze=False)[0]
    for axes, evaluation in zip(panels, shown, strict=True):
        ratios = [entry.ratio for entry in evaluation.overlap]
        axes.plot(
            ratios, [1e3 * entry.measured_s for entry in evaluation.overlap], linestyle="none", marker="o",
            markerfacecolor="none", markeredgewidth=1.6, color=_COLOURS[0], label="measured",
        )  # fmt: skip
        for (name, colour), style in zip(
            zip(evaluation.overlap[0].predicted_s, _COLOURS[1:], strict=False), ("-", "--", ":"), strict=False
        ):
            modeled = [1e3 * entry.predicted_s[name] for entry in evaluation.overlap]
            axes.plot(ratios, modeled, style, color=colour, label=f"{name}, modeled")
        axes.set_xlabel("m, local load-store sequences per global access")
        axes.set_ylabel("time (ms)")
        axes.set_title(evaluation.device, fontsize=9)
        axes.grid(visible=True, linewidth=0.4, alpha=0.6)
        axes.legend(frameon=False, fontsize=8)
    figure.savefig(path)
    return path


def draw_steps(path: Path) -> Path:
    """Draw the step function and its differentiable approximation (paper Figure 4, Equation 6)."""
    figure = _figure(5.6, 3.8)
    axes = figure.add_subplot()
    x = np.linspace(-2.0, 2.0, 401)
    axes.plot(x, (x >= 0).astype(float), color="black", label="step")
    for edge, colour in zip((1.0, 3.0, 10.0), _COLOURS, strict=False):
        axes.plot(x, (np.tanh(edge * x) + 1) / 2, color=colour, label=f"(tanh({edge:g} x) + 1)/2")
    axes.set_xlabel("x")
    axes.set_title("Step function and its approximation", fontsize=11)
    axes.grid(visible=True, linewidth=0.4, alpha=0.6)
    axes.legend(frameon=False)
    figure.savefig(path)
    return path
