"""Predictions of rows of tables, and by what name a kernel is known on other devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.calibration.built_target import model_knowledge
from perflex.calibration.carried_over import ELSEWHERE, RowPredictions
from perflex.calibration.interval import interval_at
from perflex.features.sized_kernel import sized_kernels

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.calibration.built_target import Knowledge
    from perflex.calibration.record import CalibrationRecord
    from perflex.fit.table import FeatureTable


def row_predictions(calibration: CalibrationRecord, table: FeatureTable, confidence: float) -> RowPredictions:
    """Return predictions of a table's rows with their intervals; errors as `Calibration.predict_rows`."""
    values = {name: table.column(name) for name in calibration.model.input_features()}
    programs = table.groups or tuple(label.partition("(")[0] for label in table.kernels)
    found = interval_at(calibration, values, confidence, list(zip(table.kernels, programs, strict=True)))
    return RowPredictions(
        table.kernels,
        np.asarray(found.predicted),
        np.asarray(found.low),
        np.asarray(found.high),
        tuple(resting_on(calibration, table.kernels)),
        confidence,
        found.doubts,
    )


def resting_on(calibration: CalibrationRecord, labels: Sequence[str]) -> list[Knowledge]:
    """Return what predictions of kernels know of them beside the model.

    Parameters
    ----------
    calibration
        The calibration.
    labels
        By which other devices may know each kernel at its sizes, as of `known_as`; of no use but for a calibration
        that was transferred.
    """
    usual = model_knowledge(calibration.model.input_features())
    timed = {} if calibration.transferred is None else calibration.transferred.kernels
    return [ELSEWHERE if label in timed else usual for label in labels]


def known_as(
    calibration: CalibrationRecord, kernel: Any, sizes: Mapping[str, Any], name: str = ""
) -> list[tuple[str, str]]:
    """Return label and program by which other devices know a kernel at sizes, as many as the sizes have values.

    Parameters
    ----------
    calibration
        One that was transferred.
    kernel, sizes
        As for `Calibration.predict`. Of arrays of sizes only the program is known.
    name
        What a table of times would call the kernel, such as the function that makes it; by default the kernel's own.
    """
    measurement = all(hasattr(kernel, field) for field in ("kernel", "sizes", "name", "generator"))
    count = int(np.prod(np.broadcast_shapes(*(np.shape(value) for value in sizes.values()))))
    if measurement and dict(kernel.sizes) == dict(sizes):
        # A measurement kernel has its own name at its own sizes only.
        return [(str(kernel.name), str(kernel.generator))]
    (job,) = sized_kernels([(getattr(kernel, "kernel", kernel) if measurement else kernel, sizes)])
    known = calibration.transferred
    if name and known is not None and name in known.programs:
        shown = ", ".join(f"{key}={value}" for key, value in sizes.items())
        return [(f"{name}({shown})" if count == 1 else "", name)] * count
    return [(job.label if count == 1 else "", str(kernel.generator) if measurement else job.group)] * count
