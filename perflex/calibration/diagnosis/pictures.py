"""A diagnosis drawn: errors of the kernels, intervals of the parameters, their correlation."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.pictures import COLOURS, new_figure, save_figure

if TYPE_CHECKING:
    from pathlib import Path

    from perflex.calibration.diagnosis.result import Diagnosis, KernelDiagnosis

_LONGEST_NAME = 44
# Marks on an axis of ratios, by how far it reaches.
_FINE = (0.7, 0.8, 0.9, 0.95, 1, 1.05, 1.1, 1.25, 1.5)
_MIDDLE = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2, 3)
_COARSE = (0.01, 0.1, 0.2, 0.5, 1, 2, 5, 10, 100)


def draw_diagnosis(diagnosis: Diagnosis, folder: Path) -> list[Path]:
    """Draw errors by generator, the parameters' intervals and their correlation."""
    drawn = {"errors": errors_figure, "parameters": parameters_figure, "correlation": _correlation}
    paths = []
    for name, draw in drawn.items():
        path = folder / f"{name}.png"
        save_figure(draw(diagnosis), path)
        paths.append(path)
    return paths


def errors_figure(diagnosis: Diagnosis) -> Any:
    """Return the picture of predicted over measured of each kernel, a row per generator, over the noise band."""
    groups: dict[str, list[KernelDiagnosis]] = {}
    for kernel in diagnosis.kernels:
        groups.setdefault(kernel.generator, []).append(kernel)
    figure = new_figure(8.0, 1.9 + 0.38 * len(groups))
    axes = figure.add_subplot()
    if not math.isnan(diagnosis.noise_floor):
        floor = diagnosis.noise_floor
        label = f"noise floor, {100 * floor:.2g} %"
        # As wide to either side on a logarithmic axis.
        axes.axvspan(1 / (1 + floor), 1 + floor, color="0.85", label=label, zorder=0)
    axes.axvline(1.0, color="0.4", linewidth=0.8)
    for place, kernels in enumerate(groups.values()):
        # Kernels side by side in order of size, so that trends within a generator show.
        heights = place + np.linspace(-0.28, 0.28, len(kernels)) if len(kernels) > 1 else np.array([float(place)])
        inside = [1 + kernel.relative_error for kernel in kernels]
        outside = [1 + kernel.leave_one_out_error for kernel in kernels]
        first = place == 0
        axes.plot(
            outside, heights, linestyle="none", marker="o", markersize=5, markerfacecolor="none",
            color=COLOURS[1], label="predicted without itself" if first else None,
        )  # fmt: skip
        axes.plot(
            inside, heights, linestyle="none", marker="o", markersize=2.6, color=COLOURS[0],
            label="fitted" if first else None,
        )  # fmt: skip
    _ratio_axis(axes, diagnosis)
    axes.set_yticks(range(len(groups)), [_shortened(f"{name} ({len(own)})") for name, own in groups.items()])
    axes.set_ylim(max(len(groups), 1) - 0.5, -0.5)
    axes.set_xlabel("predicted / measured")
    axes.set_title(_titled("Measurement kernels by generator", diagnosis), fontsize=10)
    axes.grid(visible=True, axis="x", which="both", linewidth=0.4, alpha=0.6)
    if groups:
        figure.legend(frameon=False, fontsize=8, loc="outside lower center", ncols=3)
    return figure


def _ratio_axis(axes: Any, diagnosis: Diagnosis) -> None:
    from matplotlib.ticker import NullFormatter, ScalarFormatter

    ratios = [1 + e for k in diagnosis.kernels for e in (k.relative_error, k.leave_one_out_error) if math.isfinite(e)]
    positive = [ratio for ratio in ratios if ratio > 0]
    furthest = max((max(ratio, 1 / ratio) for ratio in positive), default=1.0)
    if len(positive) < len(ratios) or not positive:
        return  # a negative prediction has no place on a logarithmic axis
    furthest = max(1.06 * furthest, 1.05)
    axes.set_xscale("log")
    axes.set_xlim(1 / furthest, furthest)
    every = _FINE if furthest < 1.6 else _MIDDLE if furthest < 4 else _COARSE
    marks = [mark for mark in every if 1 / furthest < mark < furthest]
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.set_xticks(marks, [f"{mark:g}" for mark in marks])


def parameters_figure(diagnosis: Diagnosis) -> Any:
    """Return the picture of each parameter's interval in multiples of its value."""
    parameters = diagnosis.parameters
    figure = new_figure(7.0, 1.5 + 0.3 * len(parameters))
    axes = figure.add_subplot()
    axes.axvline(0.0, color="black", linewidth=0.8)
    axes.axvline(1.0, color="0.6", linewidth=0.6)
    furthest = 4.0
    for place, p in enumerate(parameters):
        if p.value == 0 or math.isnan(p.standard_error):
            axes.text(0.03, place, p.flags or "no standard error", va="center", fontsize=8, color=COLOURS[3])
            continue
        colour = COLOURS[1] if p.consistent_with_zero or p.negative else COLOURS[0]
        size = abs(p.value)
        # Longer intervals are cut off: one badly known parameter would squeeze all others.
        low, high = max(p.low / size, -furthest), min(p.high / size, furthest)
        axes.plot([low, high], [place, place], color=colour, linewidth=2.0)
        axes.plot([math.copysign(1.0, p.value)], [place], marker="o", markersize=5, color=colour)
    axes.set_yticks(range(len(parameters)), [_shortened(p.name) for p in parameters])
    axes.set_ylim(len(parameters) - 0.5, -0.5)
    axes.set_xlabel("95 % interval, in multiples of the value")
    axes.set_title(_titled("Parameters", diagnosis), fontsize=10)
    axes.grid(visible=True, axis="x", linewidth=0.4, alpha=0.6)
    return figure


def _correlation(diagnosis: Diagnosis) -> Any:
    """Draw the correlation matrix; white where there is none."""
    names = [_shortened(parameter.name) for parameter in diagnosis.parameters]
    side = 2.2 + 0.34 * len(names)
    figure = new_figure(side + 0.9, side)
    axes = figure.add_subplot()
    shown = axes.imshow(diagnosis.correlation, cmap="RdBu_r", vmin=-1.0, vmax=1.0)
    axes.set_xticks(range(len(names)), names, rotation=90)
    axes.set_yticks(range(len(names)), names)
    if len(names) <= 20:
        for (row, column), value in np.ndenumerate(diagnosis.correlation):
            if row != column and abs(value) >= 0.3:
                colour = "white" if abs(value) > 0.6 else "black"
                axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=6, color=colour)
    figure.colorbar(shown, ax=axes, shrink=0.8, label="correlation of the estimates")
    axes.set_title(_titled("Correlation", diagnosis), fontsize=10)
    return figure


def _titled(what: str, diagnosis: Diagnosis) -> str:
    return f"{what}\n{diagnosis.title}" if diagnosis.title else what


def _shortened(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 3]}..."
