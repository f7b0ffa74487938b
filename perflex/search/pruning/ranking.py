"""Ranking variants by predicted time."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.calibration.device_match import probing_device
from perflex.calibration.row_predictions import resting_on
from perflex.errors import MeasurementError, PerflexWarning
from perflex.features.sized_kernel import SizedKernel
from perflex.features.values import kernel_of
from perflex.html import shown_by
from perflex.search.spaces.space import candidates_of
from perflex.timing.probe import Probe, probe_kernels

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from perflex.calibration.built_target import Knowledge
    from perflex.calibration.calibration import Calibration
    from perflex.calibration.device_match import ProbeOn
    from perflex.machines.machine import Machine
    from perflex.search.spaces.extraction import Candidates
    from perflex.search.spaces.space import VariantSpace
    from perflex.timing.launch.backend import TimedDevice


@dataclass(frozen=True)
class RankedVariant:
    """A variant's place among its rivals."""

    rank: int
    name: str
    # In the output feature's unit: seconds for a wall time.
    predicted: float
    # Predicted time as a multiple of the fastest variant's.
    ratio: float
    # What each cost of the model contributes (`Model.terms`), in the same unit; where predictions are corrected by what
    # was learned or is known of other devices, multiplied by the same factor.
    terms: Mapping[str, float] = field(repr=False)
    # The variant itself: what was given, or its settings in a space.
    kernel: Any = field(repr=False, compare=False)
    # What the time rests on: ``"nothing"`` of the variant but counts, its compiled ``"code"``, a ``"timing"`` of the
    # variant itself, or, of calibrations that were transferred, a ``"timing on other devices"``.
    knowledge: Knowledge = "nothing"
    # Why it could not be timed; empty where it was, or was not to be.
    failure: str = ""

    def __str__(self) -> str:
        """Return one line: place, name, prediction, and how many times as long as the fastest it takes."""
        return f"{self.rank}. {self.name}: {self.predicted:.4g} ({self.ratio:.2f} times the fastest)"


class Ranking(list[RankedVariant]):
    """Ranked variants: a list that notebooks show as a table."""

    _repr_html_ = shown_by("ranking.html")


def rank(
    variants: Mapping[str, Any] | Sequence[Any] | VariantSpace | Candidates,
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
        Whether to time each variant with a small budget (`probe_kernel`), and where: True on the device that the
        calibration belongs to, or a device, or parts of its name. Variants that fail come last, with an infinite time.

    Returns
    -------
    Ranking
        A list of RankedVariant; equal times keep the order of `variants`.

    Warns
    -----
    PerflexWarning
        A variant cannot be timed.

    Raises
    ------
    CalibrationError
        There are no variants, or sizes are needed and missing.
    MachineError, MissingSizeError, UnsupportedKernelError
        As for predictions.
    DeviceError, MeasurementError
        Only with `probe`: there is no such device, or no variant can be timed.
    """
    found = candidates_of(variants, calibration, sizes, machine=machine, refuse=True)
    columns = found.columns(calibration.model.input_features())
    count, names = len(found), found.names
    labels = [label for label, _ in found.known_as(calibration)] or [""] * count
    knowledge: list[Knowledge] = list(resting_on(calibration, labels))
    failures: Mapping[int, str] = {}
    predicted = found.predicted(calibration)
    with np.errstate(all="ignore"):
        factor = predicted / calibration.model.evaluate(calibration.fit, columns)
    # A model's time of zero has terms of zero, whatever corrects it.
    factor = np.where(np.isfinite(factor), factor, 1.0)
    if probe is not False:
        probes, failures = _probed(found, probing_device(calibration, probe))
        predicted = np.array([probes[n].seconds if n in probes else np.inf for n in range(count)])
        knowledge = ["timing" if n in probes else knowledge[n] for n in range(count)]
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
            kernel=found.settings[number] if found.settings else found.kernel(number),
            knowledge=knowledge[number],
            failure=failures.get(number, ""),
        )
        for place, number in enumerate(order, start=1)
    )


def _probed(found: Candidates, device: TimedDevice) -> tuple[dict[int, Probe], dict[int, str]]:
    """Return what probes say of variants, and why others failed, by number."""
    jobs = [
        SizedKernel(kernel_of(found.kernel(number)), found.sizes[number], name)
        for number, name in enumerate(found.names)
    ]
    outcomes = dict(enumerate(probe_kernels(jobs, device)))
    probes = {number: outcome for number, outcome in outcomes.items() if isinstance(outcome, Probe)}
    failures = {number: outcome.reason for number, outcome in outcomes.items() if not isinstance(outcome, Probe)}
    if not probes:
        msg = f"none of the {len(jobs)} variants could be timed; the last: {failures[len(jobs) - 1]}"
        raise MeasurementError(msg, device=str(device))
    for reason in failures.values():
        warnings.warn(f"{reason}; the variant is not timed", PerflexWarning, stacklevel=3)
    return probes, failures
