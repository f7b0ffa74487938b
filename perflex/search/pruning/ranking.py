"""Ranking variants by predicted time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.calibration.probed import probing_device
from perflex.calibration.row_predictions import resting_on
from perflex.html import shown_by
from perflex.search.spaces.candidates import candidates_of, columns_of
from perflex.search.spaces.extraction import ExtractedSpace
from perflex.search.spaces.predicted import known_variants, predicted_variants
from perflex.search.spaces.probes import probe_candidates

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from perflex.calibration.built_target import Knowledge
    from perflex.calibration.calibration import Calibration
    from perflex.calibration.probed import ProbeOn
    from perflex.machines.machine import Machine
    from perflex.search.spaces.space import VariantSpace
    from perflex.timing.short_launch import Probe


@dataclass(frozen=True)
class RankedVariant:
    """A variant's place among its rivals.

    Attributes
    ----------
    rank
        1 for the fastest.
    name
        Of the variant.
    predicted
        In the output feature's unit: seconds for a wall time.
    ratio
        Predicted time as a multiple of the fastest variant's.
    terms
        What each cost of the model contributes (`Model.terms`), in the same unit; where predictions are corrected by
        what was learned or is known of other devices, multiplied by the same factor.
    kernel
        The variant itself: what was given, or its settings in a space.
    knowledge
        What the time rests on: ``"nothing"`` of the variant but counts, its compiled ``"code"``, a ``"short launch"``,
        a ``"timing"`` of the whole launch, or, of calibrations that were transferred, a ``"timing on other devices"``.
    failure
        Why its short launch failed; empty where it did not.
    """

    rank: int
    name: str
    predicted: float
    ratio: float
    terms: Mapping[str, float] = field(repr=False)
    kernel: Any = field(repr=False, compare=False)
    knowledge: Knowledge = "nothing"
    failure: str = ""

    def __str__(self) -> str:
        """Return one line: place, name, prediction, and how many times as long as the fastest it takes."""
        return f"{self.rank}. {self.name}: {self.predicted:.4g} ({self.ratio:.2f} times the fastest)"


class Ranking(list[RankedVariant]):
    """Ranked variants: a list that notebooks show as a table."""

    _repr_html_ = shown_by("perflex.search.pruning.pruning_html:ranking_html")


def rank(
    variants: Mapping[str, Any] | Sequence[Any] | VariantSpace | ExtractedSpace,
    calibration: Calibration,
    sizes: Mapping[str, Any] | None = None,
    *,
    machine: str | Path | Machine | None = None,
    probe: ProbeOn = False,
) -> Ranking:
    """Order variants by predicted time, fastest first; nothing is run but with `probe`.

    Parameters
    ----------
    variants
        Loopy kernels or measurement kernels, by name or in a sequence; or a `VariantSpace`, or what its `extract` gave.
    calibration
        From `perflex.calibrate` or `Calibration.load`.
    sizes
        Value of each size parameter; measurement kernels bring their own if none are given.
    machine
        For features that need one: a machine, its name, or its file; by default that of `using_machine`, else the
        calibration's.
    probe
        Whether to predict by launching small parts of each variant, and where, as for `Calibration.predict`. Variants
        whose launch fails come last, with an infinite time.

    Returns
    -------
    Ranking
        A list of RankedVariant; equal times keep the order of `variants`.

    Warns
    -----
    PerflexWarning
        A variant cannot be probed.

    Raises
    ------
    CalibrationError
        There are no variants, or sizes are needed and missing.
    MachineError, MissingSizeError, UnsupportedKernelError
        As for predictions.
    DeviceError, MeasurementError
        Only with `probe`: there is no such device, or all launches fail.
    """
    found = candidates_of(variants, calibration, sizes, machine=machine, refuse=True)
    columns = columns_of(found, calibration.model.input_features())
    count, names = len(found), found.names
    probes: Mapping[int, Probe] = {}
    failures: Mapping[int, str] = {}
    labels = [label for label, _ in known_variants(calibration, found)] or [""] * count
    knowledge = resting_on(calibration, labels)
    predicted = predicted_variants(calibration, found, columns)
    with np.errstate(all="ignore"):
        factor = predicted / calibration.model.evaluate(calibration.fit, columns)
    # A model's time of zero has terms of zero, whatever corrects it.
    factor = np.where(np.isfinite(factor), factor, 1.0)
    if probe is not False:
        launched = probe_candidates(found, range(count), predicted, probing_device(calibration, probe))
        predicted, probes, failures = launched.predicted, launched.probes, launched.failures
    terms = {
        text: np.broadcast_to(value * factor, (count,))
        for text, value in calibration.model.terms(calibration.params, columns).items()
    }
    order = np.argsort(predicted, kind="stable").tolist()
    fastest = float(predicted[order[0]])
    return Ranking(
        RankedVariant(
            rank=place,
            name=names[number],
            predicted=float(predicted[number]),
            # A prediction of no time at all has no multiples.
            ratio=float(predicted[number]) / fastest if fastest else float("nan"),
            terms={text: float(value[number]) for text, value in terms.items()},
            kernel=found.settings[number] if isinstance(found, ExtractedSpace) else found.kernel(number),
            knowledge=probes[number].knowledge if number in probes else knowledge[number],
            failure=failures.get(number, ""),
        )
        for place, number in enumerate(order, start=1)
    )
