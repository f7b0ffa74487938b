"""Predictions of rows of tables, and by what name a kernel is known on other devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from perflex.calibration.built_target import model_knowledge
from perflex.calibration.interval import interval_at, interval_table
from perflex.calibration.times.named_kernels import label_key
from perflex.features.scop.checks import is_whole
from perflex.features.sized_kernel import sized_kernels
from perflex.features.tiles.tile_kernel import TileKernel
from perflex.html import shown_by

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from perflex.calibration.built_target import Knowledge
    from perflex.calibration.record import CalibrationRecord
    from perflex.calibration.transfer_prior import TransferPrior
    from perflex.fit.table import FeatureTable
    from perflex.tables import Table

ELSEWHERE: Literal["timing on other devices"] = "timing on other devices"
"""What is known of a kernel that sources have timed."""


@dataclass(frozen=True, eq=False)
class RowPredictions:
    """Predictions of rows of a table.

    Attributes
    ----------
    kernels
        Their labels.
    predicted, low, high
        In the output feature's unit, seconds for a wall time; shape ``(m,)``.
    knowledge
        What each rests on beside the model: ``"timing on other devices"``, ``"code"`` or ``"nothing"``.
    confidence
        Share of measurements that lie between ``low`` and ``high``.
    doubts
        What to know of all of them.
    """

    kernels: tuple[str, ...]
    predicted: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    knowledge: tuple[str, ...]
    confidence: float
    doubts: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.kernels)

    def table(self) -> Table:
        """Return a row for each prediction, by its kernel."""
        return interval_table(self, self.kernels)

    _repr_html_ = shown_by("result.html")


def row_predictions(calibration: CalibrationRecord, table: FeatureTable, confidence: float) -> RowPredictions:
    """Return predictions of a table's rows with their intervals; errors as `Calibration.predict_rows`."""
    values = table.columns(calibration.model.input_features())
    programs = table.generators
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
    """Return what predictions of kernels know of them beside the model."""
    usual = model_knowledge(calibration.model.input_features())
    timed = {} if calibration.transferred is None else calibration.transferred.kernels
    return [ELSEWHERE if label in timed else usual for label in labels]


def knowledge_of(calibration: CalibrationRecord, kernel: Any, labels: Sequence[str]) -> Knowledge:
    """Return what a prediction of a kernel, known by some labels, knows of it beside the model."""
    if isinstance(kernel, TileKernel):
        return "code"
    # Of several sizes, what is known of all.
    known = set(resting_on(calibration, labels))
    return known.pop() if len(known) == 1 else model_knowledge(calibration.model.input_features())


def known_as(known: TransferPrior, kernel: Any, sizes: Mapping[str, Any], name: str = "") -> list[tuple[str, str]]:
    """Return label and program by which other devices know a kernel at sizes, as many as the sizes have values."""
    # Labels have whole numbers as such, whatever type sizes are of.
    columns = [
        [int(value) if is_whole(value) else value for value in column.ravel()]
        for column in np.broadcast_arrays(*sizes.values())
    ]
    points = [dict(zip(sizes, point, strict=True)) for point in zip(*columns, strict=True)] if sizes else [{}]
    found = [_known_at(kernel, point, name if name in known.programs else "") for point in points]
    if all(label in known.kernels for label, _ in found):
        return found
    labels = {label_key(label): label for label in known.kernels}
    return [
        (label if label in known.kernels else labels.get(label_key(label), label), program) for label, program in found
    ]


def _known_at(kernel: Any, sizes: Mapping[str, Any], name: str) -> tuple[str, str]:
    """Return label and program of a kernel at one point, by the name by which a table knows it, if it does."""
    measurement = all(hasattr(kernel, field) for field in ("kernel", "sizes", "name", "generator"))
    if measurement and dict(kernel.sizes) == dict(sizes):
        # A measurement kernel has its own name at its own sizes only.
        return str(kernel.name), str(kernel.generator)
    (job,) = sized_kernels([(kernel.kernel if measurement else kernel, sizes)])
    if name:
        return f"{name}({', '.join(f'{key}={value}' for key, value in sizes.items())})", name
    return job.label, str(kernel.generator) if measurement else job.group
